"""The limits of vendors: a leaky bucket and a rolling window, each with counts of what it served and refused."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


def _full() -> float:
    return 1.0


@dataclass
class LeakyBucket:
    """A bucket of *capacity* units that refills by *per_s*; full at the start.

    *monotonic* is its clock. *share* returns how much of both is available now, from 0 to 1 (default: all).
    *wasted* counts the units that were lost because the bucket was full.
    """

    capacity: float
    per_s: float
    monotonic: Callable[[], float]
    share: Callable[[], float] = _full
    level: float = field(init=False)
    wasted: float = 0.0
    served: int = 0
    refused: int = 0
    units: float = 0.0

    def __post_init__(self) -> None:
        self.level = self.capacity
        self._refilled_mono = self.monotonic()

    @property
    def capacity_now(self) -> float:
        """The capacity in units under the current share."""
        return self.capacity * self.share()

    @property
    def per_s_now(self) -> float:
        """The units per second under the current share."""
        return self.per_s * self.share()

    def refill(self) -> None:
        """Add the units of the time since the last refill."""
        now_mono = self.monotonic()
        level = self.level + (now_mono - self._refilled_mono) * self.per_s_now
        self.level, self._refilled_mono = min(self.capacity_now, level), now_mono
        self.wasted += max(0.0, level - self.capacity_now)

    def holds(self, cost: float = 1) -> bool:
        """Return whether *cost* could be taken now."""
        self.refill()
        return self.level >= cost

    def take(self, cost: float = 1) -> bool:
        """Take *cost* units and return True, or return False and take nothing."""
        if not self.holds(cost):
            self.refused += 1
            return False
        self.level -= cost
        self.served += 1
        self.units += cost
        return True

    def give_back(self, units: float) -> None:
        """Return units that a call did not need."""
        self.level = min(self.capacity_now, self.level + units)
        self.units -= units

    def wait_s(self, cost: float = 1) -> float:
        """Return the seconds until *cost* is available, if no other call takes it."""
        return max(0.0, cost - self.level) / self.per_s_now

    def ledger(self) -> Mapping[str, float]:
        """Return the level and the counts."""
        self.refill()
        return {
            "level": self.level,
            "wasted": self.wasted,
            "served": self.served,
            "refused": self.refused,
            "units": self.units,
        }


@dataclass
class RollingWindow:
    """An exact limit of *limit* calls in any *window_s* seconds; *monotonic* and *share* as in `LeakyBucket`."""

    limit: int
    window_s: float
    monotonic: Callable[[], float]
    share: Callable[[], float] = _full
    served: int = 0
    refused: int = 0
    _times: deque[float] = field(default_factory=deque)

    @property
    def limit_now(self) -> int:
        """The calls in a window under the current share."""
        return int(self.limit * self.share())

    @property
    def remaining(self) -> int:
        """The calls that would be served now."""
        self.refill()
        return max(0, self.limit_now - len(self._times))

    def refill(self) -> None:
        """Drop the calls that have left the window."""
        start_mono = self.monotonic() - self.window_s
        while self._times and self._times[0] <= start_mono:
            self._times.popleft()

    def take(self) -> bool:
        """Count a call and return True, or return False if the window is full."""
        if not self.remaining:
            self.refused += 1
            return False
        self._times.append(self.monotonic())
        self.served += 1
        return True

    def ledger(self) -> Mapping[str, float]:
        """Return the remaining calls and the counts."""
        return {"left": self.remaining, "served": self.served, "refused": self.refused}
