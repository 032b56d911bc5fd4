"""The soft limits on memory: from 80 % on a warning, from 90 % on no new jobs (Q4).

The total use of a container only gives a warning, because no process knows whether it is the cause.
"""

from __future__ import annotations

import math

from fairlead._core.clock import Clock
from fairlead.engine.ports import MemoryGauge, MemoryUsage
from fairlead.events import Emit, MemoryPressure

WARN_SHARE = 0.8
FULL_SHARE = 0.9
EASED_SHARE = 0.75  # below the warning, so that a process at the edge does not report it again and again
EVALUATION_INTERVAL_S = 5.0


class MemoryGuard:
    """A guard that reads the gauge every 5 s and reports each change of the stage once."""

    def __init__(self, gauge: MemoryGauge, *, clock: Clock, emit: Emit) -> None:
        self._gauge = gauge
        self._clock = clock
        self._emit = emit
        self._evaluated_mono = -math.inf
        self._stage = "eased"

    def may_claim(self) -> bool:
        """Return False from 90 % of the limit until use has fallen below 75 %."""
        now = self._clock.monotonic()
        if now - self._evaluated_mono >= EVALUATION_INTERVAL_S:
            self._evaluated_mono = now
            self._evaluate(self._gauge.usage())
        return self._stage != "full"

    def _evaluate(self, usage: MemoryUsage) -> None:
        used_bytes = usage.used_bytes
        stage = self._stage_of(usage.share)
        if stage == "eased" and self._stage_of(usage.group_share) != "eased":
            stage, used_bytes = "warn", int(usage.group_share * (usage.limit_bytes or 0))
        if stage != self._stage:
            self._stage = stage
            self._emit(MemoryPressure(stage, used_bytes, usage.limit_bytes or 0))

    def _stage_of(self, share: float) -> str:
        if share >= FULL_SHARE:
            return "full"
        if share >= WARN_SHARE:
            return "warn"
        return "eased" if share < EASED_SHARE or self._stage == "eased" else "warn"
