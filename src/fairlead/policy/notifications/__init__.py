"""Notifications: signed webhooks."""
