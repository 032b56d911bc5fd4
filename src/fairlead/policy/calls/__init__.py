"""Decisions about calls: classification, pages, bulk operations, the next step."""
