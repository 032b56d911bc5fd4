"""Jobs: workers, schedules, heartbeats, dead letters."""
