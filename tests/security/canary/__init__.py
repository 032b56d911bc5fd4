"""The canary run: fairlead as a user runs it, with a unique secret in every place that takes one (S13)."""
