"""Decisions about jobs: lanes, states, schedules, dead letters."""
