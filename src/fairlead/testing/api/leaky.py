"""A vendor's own bucket, and its ledger: what was served, refused, and came back in vain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class LeakyBucket:
    """Holds *capacity* units, *per_s* come back each second; full at the start.

    *wasted*: units that came back while it was full, which nobody will ever use.
    """

    capacity: float
    per_s: float
    now_s: Callable[[], float]
    level: float = field(init=False)
    wasted: float = 0.0
    served: int = 0
    refused: int = 0
    units: float = 0.0

    def __post_init__(self) -> None:
        self.level = self.capacity
        self._at_s = self.now_s()

    def refill(self) -> None:
        """Bring it up to now."""
        now_s = self.now_s()
        grown = self.level + (now_s - self._at_s) * self.per_s
        self.level, self._at_s = min(self.capacity, grown), now_s
        self.wasted += max(0.0, grown - self.capacity)

    def take(self, cost: float) -> bool:
        """Whether *cost* is served; a refusal costs nothing."""
        self.refill()
        if self.level < cost:
            self.refused += 1
            return False
        self.level -= cost
        self.served += 1
        self.units += cost
        return True

    def give_back(self, units: float) -> None:
        """What a call turned out not to need."""
        self.level = min(self.capacity, self.level + units)
        self.units -= units

    def ledger(self) -> dict[str, float]:
        """Where it stands."""
        self.refill()
        return {
            "level": self.level,
            "wasted": self.wasted,
            "served": self.served,
            "refused": self.refused,
            "units": self.units,
        }
