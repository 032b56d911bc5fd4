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
    """Whether one more retry may be sent while *in_flight* calls run, of which some are retries.

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
    before: int = 0
    retries: int = 0

    def at(self, now_s: float) -> Pace:
        """Itself, brought to *now_s* (of any clock that does not go back)."""
        second = int(now_s)
        if second > self.second:
            self.before = self.calls if second == self.second + 1 else 0
            self.second, self.calls, self.retries = second, 0, 0
        return self

    @property
    def may_retry(self) -> bool:
        """Whether one more retry fits into this second; three always do."""
        return self.retries < max(FLOOR, PACE_SHARE * self.before)


class RetryBudget:
    """What is in flight by connection, and what was sent lately, in this process.

    A retry counts from before it asks for admission: those that ask at the same time share one budget.
    """

    def __init__(self) -> None:
        self._calls: dict[Hashable, int] = {}
        self._retries: dict[Hashable, int] = {}
        self._paces: dict[Hashable, Pace] = {}

    def may_retry(self, connection: Hashable) -> bool:
        """Whether one more retry fits in beside what is in flight."""
        return may_retry(self._calls.get(connection, 0), self._retries.get(connection, 0))

    def takes_retry(self, connection: Hashable, now_s: float) -> bool:
        """The same for one that a call makes by itself, which is counted here if it fits in."""
        pace = self._pace(connection, now_s)
        if not (pace.may_retry and self.may_retry(connection)):
            return False
        pace.retries += 1
        return True

    def note_first(self, connection: Hashable, now_s: float) -> None:
        """A call is sent for the first time."""
        self._pace(connection, now_s).calls += 1

    def _pace(self, connection: Hashable, now_s: float) -> Pace:
        known = self._paces.get(connection)
        if known is None:
            if len(self._paces) >= _MOST_KNOWN:
                self._paces.clear()
            known = self._paces[connection] = Pace(int(now_s))
        return known.at(now_s)

    def count(self, connection: Hashable, *, retry: bool = False) -> None:
        """An admitted call begins, or with *retry* a retry asks or runs; to be uncounted when it is over."""
        counts = self._retries if retry else self._calls
        counts[connection] = counts.get(connection, 0) + 1

    def uncount(self, connection: Hashable, *, retry: bool = False) -> None:
        """It is over."""
        counts = self._retries if retry else self._calls
        left = counts[connection] - 1
        if left:
            counts[connection] = left
        else:
            del counts[connection]
