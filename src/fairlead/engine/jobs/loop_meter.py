"""Measure how long the event loop stands still: a handler that blocks it delays all others. Spec: E04."""

from __future__ import annotations

from fairlead._core.clock import Clock, Draw
from fairlead.engine.base.service import Service
from fairlead.events import Emit, LoopStalled

SAMPLE_S = 0.1
"""How long one sample sleeps."""
REPORT_FROM_S = 0.25
"""The shortest stall that is reported."""


class LoopMeter:
    """A meter of stalls: it sleeps for a sample and emits an event if that took *report_from_s* longer."""

    def __init__(self, *, clock: Clock, emit: Emit, report_from_s: float = REPORT_FROM_S) -> None:
        self._clock = clock
        self._emit = emit
        self._report_from_s = report_from_s

    def service(self, *, draw: Draw) -> Service:
        """Return this as a service."""
        return Service(
            "loop_meter", self.one_pass, interval_s=SAMPLE_S, clock=self._clock, draw=draw, emit=self._emit
        )

    async def one_pass(self) -> float:
        """Sleep for one sample and report a stall. Return 0.0: the next sample follows at once."""
        due_mono = self._clock.monotonic() + SAMPLE_S
        await self._clock.sleep(SAMPLE_S)
        stall_s = self._clock.monotonic() - due_mono
        if stall_s >= self._report_from_s:
            self._emit(LoopStalled(stall_s))
        return 0.0
