"""A vendor's own limits, and their ledgers: what was served, refused, and came back in vain."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


def _whole() -> float:
    return 1.0


@dataclass
class LeakyBucket:
    """Holds *capacity* units, *per_s* come back each second; full at the start.

    *share*: how much of both there is now, from 0 to 1 (default: all).
    *wasted*: units that came back while it was full, which nobody will ever use.
    """

    capacity: float
    per_s: float
    now_s: Callable[[], float]
    share: Callable[[], float] = _whole
    level: float = field(init=False)
    wasted: float = 0.0
    served: int = 0
    refused: int = 0
    units: float = 0.0

    def __post_init__(self) -> None:
        self.level = self.capacity
        self._at_s = self.now_s()

    @property
    def capacity_now(self) -> float:
        """Units at most, as things stand."""
        return self.capacity * self.share()

    @property
    def per_s_now(self) -> float:
        """Units a second, as things stand."""
        return self.per_s * self.share()

    def refill(self) -> None:
        """Bring it up to now."""
        now_s = self.now_s()
        grown = self.level + (now_s - self._at_s) * self.per_s_now
        self.level, self._at_s = min(self.capacity_now, grown), now_s
        self.wasted += max(0.0, grown - self.capacity_now)

    def holds(self, cost: float = 1) -> bool:
        """Whether *cost* would be served."""
        self.refill()
        return self.level >= cost

    def take(self, cost: float = 1) -> bool:
        """Whether *cost* is served; a refusal costs nothing."""
        if not self.holds(cost):
            self.refused += 1
            return False
        self.level -= cost
        self.served += 1
        self.units += cost
        return True

    def give_back(self, units: float) -> None:
        """What a call turned out not to need."""
        self.level = min(self.capacity_now, self.level + units)
        self.units -= units

    def wait_s(self, cost: float = 1) -> float:
        """Seconds until *cost* is there, if nobody else takes it."""
        return max(0.0, cost - self.level) / self.per_s_now

    def ledger(self) -> Mapping[str, float]:
        """Where it stands."""
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
    """Serves *limit* calls in any *window_s* seconds, exactly; *share* as of a LeakyBucket."""

    limit: int
    window_s: float
    now_s: Callable[[], float]
    share: Callable[[], float] = _whole
    served: int = 0
    refused: int = 0
    _times: deque[float] = field(default_factory=deque)

    @property
    def limit_now(self) -> int:
        """Calls in a window, as things stand."""
        return int(self.limit * self.share())

    @property
    def left(self) -> int:
        """Calls that would be served now."""
        self.refill()
        return max(0, self.limit_now - len(self._times))

    def refill(self) -> None:
        """Forget what has left the window."""
        horizon_s = self.now_s() - self.window_s
        while self._times and self._times[0] <= horizon_s:
            self._times.popleft()

    def take(self) -> bool:
        """Whether a call is served; a refusal counts for nothing."""
        if not self.left:
            self.refused += 1
            return False
        self._times.append(self.now_s())
        self.served += 1
        return True

    def ledger(self) -> Mapping[str, float]:
        """Where it stands."""
        return {"left": self.left, "served": self.served, "refused": self.refused}
