"""Time and chance as arguments, so that policy and engine never read a clock or draw a number themselves.

Stored instants come from the database's clock. A Clock only measures waits and deadlines inside one process,
so it has no wall time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

Draw = Callable[[], float]
"""Returns a number in [0, 1): ``random.random`` in production, a sequence in tests."""


class Clock(Protocol):
    """The monotonic time of this process."""

    def monotonic(self) -> float:
        """Return the seconds since an arbitrary start; they never decrease."""
        ...

    async def sleep(self, delay_s: float) -> None:
        """Return after *delay_s* seconds of this clock."""
        ...

    def call_later(self, delay_s: float, act: Callable[[], None]) -> Callable[[], None]:
        """Call *act* in the running loop after *delay_s* seconds. Return a function that cancels it."""
        ...
