"""The security checklist S01-S36: what is guarded, and the tests that show it."""
