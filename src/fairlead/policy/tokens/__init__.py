"""Decisions about credentials: requests, responses, replay, refresh windows."""
