"""Time and chance as arguments: nothing below the doors reads a clock or draws a number by itself.

What is stored is timed by the database's clock. A Clock only measures waits and deadlines inside a
process, so there is no wall clock here at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

Draw = Callable[[], float]
"""Gives a number in [0, 1). Adapters hand in ``random.random``; tests hand in a sequence."""


class Clock(Protocol):
    """Monotonic time of this process."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary start; never goes back."""
        ...

    async def sleep(self, delay_s: float) -> None:
        """Return after *delay_s* seconds of this clock."""
        ...

    def call_later(self, delay_s: float, act: Callable[[], None]) -> Callable[[], None]:
        """Call *act* in the running loop after *delay_s* seconds; what is given back prevents it."""
        ...
