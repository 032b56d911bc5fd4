"""Failures: categories, retries, backoff, hints, and what each failure may stop."""
