"""Retries may never become the load: a budget per connection (G7, R33, P10; failsafe-go's budget).

What is in flight says nothing where calls fail at once: there each retry is over before the next one asks.
So the retries that a call makes by itself are held to a share of the calls sent, too: in each second to so
much of those of the second before that any three seconds hold at most a fifth.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

SHARE = 0.2
PACE_SHARE = 0.15
FLOOR = 3
_MOST_KNOWN = 50_000


def may_retry(in_flight: int, retries_in_flight: int) -> bool:
    """Return whether one more retry may be sent while *in_flight* calls run, of which some are retries.

    At most a fifth of the calls in flight are retries, but three always may be. Counted per process.

    >>> may_retry(2, 2), may_retry(2, 3), may_retry(100, 19), may_retry(100, 20)
    (True, False, True, False)
    """
    return retries_in_flight < max(FLOOR, SHARE * in_flight)


@dataclass(slots=True)
class Pace:
    """First tries and retries of one connection, by the second."""

    second: int = 0
    calls: int = 0
    """First tries of this second, and of the one *before*."""
    calls_before: int = 0
    retries: int = 0

    def at(self, now_mono: float) -> Pace:
        """Return itself, advanced to *now_mono*."""
        second = int(now_mono)
        if second > self.second:
            self.calls_before = self.calls if second == self.second + 1 else 0
            self.second, self.calls, self.retries = second, 0, 0
        return self

    @property
    def may_retry(self) -> bool:
        """Return whether one more retry fits into this second; three always do."""
        return self.retries < max(FLOOR, PACE_SHARE * self.calls_before)


class RetryBudget:
    """What is in flight by connection, and what was sent lately, in this process.

    A retry counts from before it asks for admission: those that ask at the same time share one budget.
    """

    def __init__(self) -> None:
        self._calls: dict[Hashable, int] = {}
        self._retries: dict[Hashable, int] = {}
        self._paces: dict[Hashable, Pace] = {}

    def may_retry(self, connection: Hashable) -> bool:
        """Return whether one more retry fits beside the calls in flight."""
        return may_retry(self._calls.get(connection, 0), self._retries.get(connection, 0))

    def takes_retry(self, connection: Hashable, now_mono: float) -> bool:
        """Count a retry that a call makes by itself; return False if it does not fit."""
        pace = self._pace(connection, now_mono)
        if not (pace.may_retry and self.may_retry(connection)):
            return False
        pace.retries += 1
        return True

    def note_first(self, connection: Hashable, now_mono: float) -> None:
        """Count the first attempt of a call."""
        self._pace(connection, now_mono).calls += 1

    def _pace(self, connection: Hashable, now_mono: float) -> Pace:
        pace = self._paces.get(connection)
        if pace is None:
            if len(self._paces) >= _MOST_KNOWN:
                self._paces.clear()
            pace = self._paces[connection] = Pace(int(now_mono))
        return pace.at(now_mono)

    def count(self, connection: Hashable, *, retry: bool = False) -> None:
        """Count an admitted call, or with *retry* a retry, until it ends."""
        counts = self._retries if retry else self._calls
        counts[connection] = counts.get(connection, 0) + 1

    def uncount(self, connection: Hashable, *, retry: bool = False) -> None:
        """End the count of a call."""
        counts = self._retries if retry else self._calls
        remaining = counts[connection] - 1
        if remaining:
            counts[connection] = remaining
        else:
            del counts[connection]
