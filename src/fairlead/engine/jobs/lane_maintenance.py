"""Maintains the lanes, so that claims stay cheap, no lane starves, and no job is missed. Spec: Q6, R4.

each second    moves the point at which claims begin to read
each 5 s       moves lanes that waited too long into a more urgent class
each 60 s      a process that runs jobs reports the kinds it takes, so that kinds without a worker are noticed
each 30 s      the sweep, which makes the lane of each available job ready, or parked with a wake time. With
               many lanes it runs less often, so that sweeps take at most a hundredth of the time

Every process tries; the store lets one process at a time do each of them.
"""

from __future__ import annotations

from fairlead._core.clock import Clock, Draw
from fairlead.engine.base.service import Service
from fairlead.engine.ports import ClaimFilter, LaneStore
from fairlead.events import Emit, LanesPromoted, LanesRepaired

FLOORS_EVERY_S = 1.0
"""How often the point at which claims begin to read is moved."""
AGE_EVERY_S = 5.0
"""How often lanes that waited too long are promoted."""
REPORT_EVERY_S = 60.0
"""How often a process reports its kinds. A report is valid for three minutes, so two may be missed."""
SWEEP_EVERY_S = 30.0
"""The longest time that a job in a missed lane stays unclaimed, up to about 30,000 lanes."""
SWEEP_SHARE = 0.01
"""The largest share of time for sweeps. 100,000 lanes take about a second, so a sweep every 100 s."""


class LaneMaintenance:
    """The services of the lanes: one for the short tasks, and one for the sweep, which may take longer.

    Args:
        claims: The filter of this process's worker, which a third service reports. None: it runs no jobs.
    """

    def __init__(self, lanes: LaneStore, claims: ClaimFilter | None = None, *, emit: Emit) -> None:
        self._lanes = lanes
        self._claims = claims
        self._emit = emit

    def services(self, *, clock: Clock, draw: Draw) -> list[Service]:
        """Return the services."""
        passes = {"lanes": (self.maintain, FLOORS_EVERY_S), "lane_sweep": (self.sweep, SWEEP_EVERY_S)}
        if self._claims is not None:
            passes["kind_report"] = (self.report_kinds, REPORT_EVERY_S)
        return [
            Service(name, one_pass, interval_s=every_s, clock=clock, draw=draw, emit=self._emit)
            for name, (one_pass, every_s) in passes.items()
        ]

    async def maintain(self) -> None:
        """Move the start of claims, and promote lanes that waited too long, each if it is due."""
        # half of the interval: a pass that comes a little early does not wait for the one after it
        await self._lanes.raise_floors(FLOORS_EVERY_S / 2)
        moved = await self._lanes.age(AGE_EVERY_S)
        if moved:
            self._emit(LanesPromoted(moved))

    async def sweep(self) -> None:
        """Repair lanes if a sweep is due."""
        swept = await self._lanes.sweep(SWEEP_EVERY_S / 2, SWEEP_SHARE)
        if swept is not None and (swept.opened or swept.parked or swept.woken):
            self._emit(LanesRepaired(swept.opened, swept.parked, swept.woken))

    async def report_kinds(self) -> None:
        """Report the kinds of jobs that this process runs, so that kinds without a worker are noticed."""
        if self._claims is not None:
            await self._lanes.report_kinds(self._claims.queues, self._claims.kinds)
