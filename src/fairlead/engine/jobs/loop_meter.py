"""Measures how long the event loop stood still: a handler that blocks it harms all its neighbours (E04)."""

from __future__ import annotations

from fairlead._core.clock import Clock, Draw
from fairlead.engine.base.service import Service
from fairlead.events import Emit, LoopStalled

SAMPLE_S = 0.1
TOLD_FROM_S = 0.25


class LoopMeter:
    """Sleeps for a sample and sees how much longer it took; tells stalls of *told_from_s* and more."""

    def __init__(self, *, clock: Clock, emit: Emit, told_from_s: float = TOLD_FROM_S) -> None:
        self._clock = clock
        self._emit = emit
        self._told_from_s = told_from_s

    def service(self, *, draw: Draw) -> Service:
        """This as a service."""
        return Service(
            "loop_meter", self.one_pass, interval_s=SAMPLE_S, clock=self._clock, draw=draw, emit=self._emit
        )

    async def one_pass(self) -> float:
        """Take one sample."""
        due = self._clock.monotonic() + SAMPLE_S
        await self._clock.sleep(SAMPLE_S)
        stall_s = self._clock.monotonic() - due
        if stall_s >= self._told_from_s:
            self._emit(LoopStalled(stall_s))
        return 0.0
