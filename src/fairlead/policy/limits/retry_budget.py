"""A budget of retries for each connection, so that retries never become the load (as in failsafe-go).

Two bounds apply. At most a fifth of the calls in flight are retries. That bound is no help if calls fail at once,
since each retry is over before the next one starts. So automatic retries of a second are also bounded by a share
of the first attempts of the second before. The share is so small that retries are at most a fifth of the calls
in any three seconds.

Spec: G7, R33, P10.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

SHARE = 0.2
"""The largest share of retries among the calls in flight."""
PACE_SHARE = 0.15
"""Automatic retries in a second, as a share of the first attempts of the second before."""
FLOOR = 3
"""Retries that are always allowed, by either bound."""
_MAX_CONNECTIONS = 50_000


def may_retry(in_flight: int, retries_in_flight: int) -> bool:
    """Return whether one more retry may be sent while *in_flight* calls run, of which some are retries.

    At most a fifth of the calls in flight are retries, but three always may be. Counted per process.

    >>> may_retry(2, 2), may_retry(2, 3), may_retry(100, 19), may_retry(100, 20)
    (True, False, True, False)
    """
    return retries_in_flight < max(FLOOR, SHARE * in_flight)


@dataclass(slots=True)
class Pace:
    """The first attempts and automatic retries of one connection in the present second."""

    second: int = 0
    """The present second, as a whole number of the monotonic clock."""
    calls: int = 0
    """First attempts of this second."""
    calls_before: int = 0
    """First attempts of the second before."""
    retries: int = 0
    """Automatic retries of this second."""

    def advance(self, now_mono: float) -> Pace:
        """Move to the second of *now_mono*, and return itself."""
        second = int(now_mono)
        if second > self.second:
            self.calls_before = self.calls if second == self.second + 1 else 0
            self.second, self.calls, self.retries = second, 0, 0
        return self

    @property
    def may_retry(self) -> bool:
        """True if one more automatic retry fits into this second; three always do."""
        return self.retries < max(FLOOR, PACE_SHARE * self.calls_before)


class RetryBudget:
    """The calls and retries in flight by connection, and the recent pace of each, in this process.

    A retry counts from before it requests admission, so retries that request it at the same time share one budget.
    """

    def __init__(self) -> None:
        self._calls: dict[Hashable, int] = {}
        self._retries: dict[Hashable, int] = {}
        self._paces: dict[Hashable, Pace] = {}

    def may_retry(self, connection: Hashable) -> bool:
        """Return whether one more retry fits beside the calls in flight."""
        return may_retry(self._calls.get(connection, 0), self._retries.get(connection, 0))

    def take_retry(self, connection: Hashable, now_mono: float) -> bool:
        """Count an automatic retry if it fits into both bounds; return whether it does."""
        pace = self._pace(connection, now_mono)
        if not (pace.may_retry and self.may_retry(connection)):
            return False
        pace.retries += 1
        return True

    def count_first_attempt(self, connection: Hashable, now_mono: float) -> None:
        """Count the first attempt of a call in its second."""
        self._pace(connection, now_mono).calls += 1

    def _pace(self, connection: Hashable, now_mono: float) -> Pace:
        pace = self._paces.get(connection)
        if pace is None:
            if len(self._paces) >= _MAX_CONNECTIONS:
                self._paces.clear()
            pace = self._paces[connection] = Pace(int(now_mono))
        return pace.advance(now_mono)

    def start(self, connection: Hashable, *, retry: bool = False) -> None:
        """Count a call, or with *retry* a retry, as in flight until `end`."""
        counts = self._retries if retry else self._calls
        counts[connection] = counts.get(connection, 0) + 1

    def end(self, connection: Hashable, *, retry: bool = False) -> None:
        """Count the call or retry as in flight no more."""
        counts = self._retries if retry else self._calls
        remaining = counts[connection] - 1
        if remaining:
            counts[connection] = remaining
        else:
            del counts[connection]
