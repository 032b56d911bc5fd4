"""Retries may never become the load: a budget per connection (G7, R33; failsafe-go's budget)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager

SHARE = 0.2
FLOOR = 3


def may_retry(in_flight: int, retries_in_flight: int) -> bool:
    """Whether one more retry may be sent while *in_flight* calls run, of which some are retries.

    At most a fifth of the calls in flight are retries, but three always may be. Counted per process.

    >>> may_retry(2, 2), may_retry(2, 3), may_retry(100, 19), may_retry(100, 20)
    (True, False, True, False)
    """
    return retries_in_flight < max(FLOOR, SHARE * in_flight)


class RetryBudget:
    """What is in flight by connection, in this process.

    A retry counts from before it asks for admission: those that ask at the same time share one budget.
    """

    def __init__(self) -> None:
        self._calls: Counter[Hashable] = Counter()
        self._retries: Counter[Hashable] = Counter()

    def may_retry(self, connection: Hashable) -> bool:
        """Whether one more retry fits in."""
        return may_retry(self._calls[connection], self._retries[connection])

    @contextmanager
    def retrying(self, connection: Hashable) -> Iterator[None]:
        """For as long as a retry asks or runs."""
        with _counted(self._retries, connection):
            yield

    @contextmanager
    def calling(self, connection: Hashable) -> Iterator[None]:
        """For as long as an admitted call runs, be it a retry or not."""
        with _counted(self._calls, connection):
            yield


@contextmanager
def _counted(counts: Counter[Hashable], connection: Hashable) -> Iterator[None]:
    counts[connection] += 1
    try:
        yield
    finally:
        counts[connection] -= 1
        if not counts[connection]:
            del counts[connection]
