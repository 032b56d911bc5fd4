"""Retries may never become the load: a budget per connection (G7, R33; failsafe-go's budget)."""

from __future__ import annotations

SHARE = 0.2
FLOOR = 3


def may_retry(in_flight: int, retries_in_flight: int) -> bool:
    """Whether one more retry may be sent while *in_flight* calls run, of which some are retries.

    At most a fifth of the calls in flight are retries, but three always may be. Counted per process.

    >>> may_retry(2, 2), may_retry(2, 3), may_retry(100, 19), may_retry(100, 20)
    (True, False, True, False)
    """
    return retries_in_flight < max(FLOOR, SHARE * in_flight)
