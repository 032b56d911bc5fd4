"""The soft limits on memory: from 80 % on a warning, from 90 % on no new jobs (Q4).

The total use of a container only gives a warning, because no process knows whether it is the cause.
"""

from __future__ import annotations

import math
from typing import Literal

from fairlead._core.clock import Clock
from fairlead.engine.ports import MemoryGauge, MemoryUsage
from fairlead.events import Emit, MemoryPressure

WARN_SHARE = 0.8
"""The share of the limit from which a warning is reported."""
FULL_SHARE = 0.9
"""The share from which no new jobs are claimed."""
EASED_SHARE = 0.75
"""The share below which both end. It is lower, so that use near 80 % is not reported repeatedly."""
EVALUATION_INTERVAL_S = 5.0

Stage = Literal["eased", "warn", "full"]


class MemoryGuard:
    """A guard that reads the gauge every 5 s and reports each change of the stage once."""

    def __init__(self, gauge: MemoryGauge, *, clock: Clock, emit: Emit) -> None:
        self._gauge = gauge
        self._clock = clock
        self._emit = emit
        self._read_mono = -math.inf
        self._stage: Stage = "eased"

    def may_claim(self) -> bool:
        """Return False from 90 % of the limit until use has fallen below 75 %."""
        now_mono = self._clock.monotonic()
        if now_mono - self._read_mono >= EVALUATION_INTERVAL_S:
            self._read_mono = now_mono
            self._update_stage(self._gauge.usage())
        return self._stage != "full"

    def _update_stage(self, usage: MemoryUsage) -> None:
        """Determine the stage of *usage*, and report it if it is a new one."""
        used_bytes = usage.used_bytes
        stage = self._stage_for(usage.share)
        if stage == "eased" and self._stage_for(usage.group_share) != "eased":
            stage, used_bytes = "warn", int(usage.group_share * (usage.limit_bytes or 0))
        if stage != self._stage:
            self._stage = stage
            self._emit(MemoryPressure(stage, used_bytes, usage.limit_bytes or 0))

    def _stage_for(self, share: float) -> Stage:
        """Return the stage for this share of the limit in use."""
        if share >= FULL_SHARE:
            return "full"
        if share >= WARN_SHARE:
            return "warn"
        return "eased" if share < EASED_SHARE or self._stage == "eased" else "warn"
