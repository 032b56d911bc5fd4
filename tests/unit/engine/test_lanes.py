"""The keeper of lanes: how often, and what is told of it."""

from __future__ import annotations

import asyncio

from fairlead.engine.jobs.lane_maintenance import (
    AGE_EVERY_S,
    FLOORS_EVERY_S,
    SWEEP_EVERY_S,
    SWEEP_SHARE,
    LaneMaintenance,
)
from fairlead.engine.ports import ClaimFilter, Swept
from fairlead.errors import DependencyUnavailableError
from fairlead.events import LanesPromoted, LanesRepaired, StoreUnreachable
from fairlead.testing._kit.clock import ManualClock
from tests.support.engine import Recorder, half


class Lanes:
    """The upkeep of a store, written down."""

    def __init__(self) -> None:
        self.done: list[tuple[object, ...]] = []
        self.aged = 0
        self.swept: Swept | None = Swept()
        self.away = False

    async def raise_floors(self, every_s: float) -> bool:
        self._did("floors", every_s)
        return True

    async def age(self, every_s: float) -> int:
        self._did("age", every_s)
        return self.aged

    async def sweep(self, every_s: float, share: float) -> Swept | None:
        self._did("sweep", every_s, share)
        return self.swept

    async def report_kinds(self, queues: tuple[str, ...], kinds: tuple[str, ...]) -> None:
        self.done.append(("report", queues, kinds))

    def _did(self, operation: str, *values: float) -> None:
        if self.away:
            raise DependencyUnavailableError("it is away")
        self.done.append((operation, *values))

    def count(self, operation: str) -> int:
        return sum(done[0] == operation for done in self.done)


async def test_each_second_and_each_half_minute() -> None:
    lanes, clock, emit = Lanes(), ManualClock(), Recorder()
    keeper = LaneMaintenance(lanes, emit=emit)  # type: ignore[arg-type]
    services = keeper.services(clock=clock, draw=half)
    tasks = [asyncio.create_task(service.run()) for service in services]
    for _ in range(60):
        await clock.advance(1.0)
    for service in services:
        service.stop()
    await asyncio.gather(*tasks)
    assert 58 <= lanes.count("floors") <= 62
    assert 2 <= lanes.count("sweep") <= 3
    # a pass that comes a little early is not put off to the next one; ageing is asked for each second
    assert set(lanes.done) == {
        ("floors", FLOORS_EVERY_S / 2),
        ("age", AGE_EVERY_S),
        ("sweep", SWEEP_EVERY_S / 2, SWEEP_SHARE),
    }
    assert emit.events == []


async def test_moved_and_repaired_lanes_are_reported() -> None:
    lanes, emit = Lanes(), Recorder()
    keeper = LaneMaintenance(lanes, emit=emit)  # type: ignore[arg-type]
    lanes.aged, lanes.swept = 3, Swept(opened=1, parked=2, woken=4, deleted=9)
    await keeper.maintain()
    await keeper.sweep()
    assert emit.events == [LanesPromoted(3), LanesRepaired(1, 2, 4)]
    lanes.aged = 0
    for nothing in (None, Swept(), Swept(deleted=7)):
        lanes.swept = nothing
        await keeper.maintain()
        await keeper.sweep()
    assert len(emit.events) == 2


async def test_an_outage_is_told_once_and_outlived() -> None:
    lanes, clock, emit = Lanes(), ManualClock(), Recorder()
    lanes.away = True
    service, _ = LaneMaintenance(lanes, emit=emit).services(clock=clock, draw=half)  # type: ignore[arg-type]
    task = asyncio.create_task(service.run())
    await clock.advance(20.0)
    assert len(emit.of(StoreUnreachable)) == 1
    lanes.away = False
    await clock.advance(5.0)
    assert lanes.count("floors") >= 3
    service.stop()
    await task


async def test_a_process_that_runs_jobs_reports_their_kinds() -> None:
    lanes, clock, emit = Lanes(), ManualClock(), Recorder()
    keeper = LaneMaintenance(lanes, ClaimFilter(("mail",), ("work",)), emit=emit)  # type: ignore[arg-type]
    *_, service = keeper.services(clock=clock, draw=half)
    task = asyncio.create_task(service.run())
    await clock.advance(0.0)
    assert lanes.done == [("report", ("mail",), ("work",))]
    await clock.advance(150.0)
    assert lanes.count("report") == 3
    service.stop()
    await task
