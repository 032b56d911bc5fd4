"""Services: their one shape, the heartbeat and its fence, rescuer, loop meter, memory guard, clean-up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from fairlead.engine.base.service import Service
from fairlead.engine.base.timing import LEAVE_S
from fairlead.engine.jobs.handler import JobContext
from fairlead.engine.jobs.heartbeat import Heartbeat
from fairlead.engine.jobs.loop_meter import LoopMeter
from fairlead.engine.jobs.memory_limits import MemoryGuard
from fairlead.engine.jobs.pruner import BATCH_SIZE, Pruner, Retention
from fairlead.engine.ports import Completed, MemoryUsage
from fairlead.errors import DependencyUnavailableError
from fairlead.events import (
    Emit,
    LeaseLost,
    LoopStalled,
    MemoryPressure,
    ServiceFailed,
    ServiceRecovered,
    StoreReachable,
    StoreUnreachable,
)
from fairlead.testing._kit.clock import ManualClock
from fairlead.testing._kit.ids import CountedIds
from fairlead.testing._memory import (
    MemoryDatabase,
    MemoryDeadLetterStore,
    MemoryJobStore,
    MemoryScheduleStore,
    MemorySessionStore,
)
from tests.support.engine import Recorder, a_job, half, new_job
from tests.support.process import LEASE_S, Fleet, Processes

# ---- the shape -------------------------------------------------------------------------------------


class Passes:
    """A pass that can be made to fail."""

    def __init__(self) -> None:
        self.count = 0
        self.error: Exception | None = None
        self.wait_s: float | None = None

    async def __call__(self) -> float | None:
        self.count += 1
        if self.error:
            raise self.error
        return self.wait_s


@asynccontextmanager
async def running(service: Service) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(service.run())
    yield task
    service.stop()
    await task


def service(passes: Passes, clock: ManualClock, emit: Emit, interval_s: float = 10.0) -> Service:
    return Service("demo", passes, interval_s=interval_s, clock=clock, draw=half, emit=emit)


async def test_a_pass_at_once_then_by_interval_or_as_the_pass_says() -> None:
    clock, passes, emit = ManualClock(), Passes(), Recorder()
    async with running(service(passes, clock, emit)):
        await clock.advance(0)
        assert passes.count == 1
        await clock.advance(9.9)
        assert passes.count == 1
        passes.wait_s = 1.0
        await clock.advance(0.1)
        assert passes.count == 2
        await clock.advance(5)
        assert passes.count == 7
    assert emit.events == []


async def test_woken_and_stopped_without_waiting() -> None:
    clock, passes = ManualClock(), Passes()
    demo = service(passes, clock, Recorder())
    async with running(demo):
        await clock.advance(0)
        demo.wake()
        await clock.advance(0)
        assert passes.count == 2
    assert clock.monotonic() == 0


async def test_a_pass_that_hangs_does_not_hold_up_the_end() -> None:
    clock, emit, started = ManualClock(), Recorder(), asyncio.Event()

    async def hang() -> None:
        started.set()
        await asyncio.Event().wait()

    demo = Service("demo", hang, interval_s=10.0, clock=clock, draw=half, emit=emit)
    task = asyncio.create_task(demo.run())
    await started.wait()
    demo.stop()
    await clock.advance(LEAVE_S - 0.1)
    assert not task.done()
    await clock.advance(0.1)
    await task
    assert emit.events == []


async def test_trouble_is_told_when_it_begins_and_when_it_ends() -> None:
    clock, passes, emit = ManualClock(), Passes(), Recorder()
    passes.error = ValueError("odd")
    async with running(service(passes, clock, emit, interval_s=1.0)):
        await clock.advance(60)
        assert passes.count > 20
        assert emit.events == [ServiceFailed("demo", "ValueError: odd")]
        passes.error = DependencyUnavailableError("away")
        await clock.advance(60)
        assert len(emit.of(StoreUnreachable)) == 1
        passes.error = None
        await clock.advance(3)
        assert len(emit.of(StoreReachable)) == 1
    assert len(emit.events) == 3


async def test_an_outage_is_retried_soon_whatever_the_interval() -> None:
    clock, passes, emit = ManualClock(), Passes(), Recorder()
    passes.error = DependencyUnavailableError("away")
    async with running(service(passes, clock, emit, interval_s=3600.0)):
        await clock.advance(60)
        passes.error = None
        count_before = passes.count
        await clock.advance(2)
        assert passes.count == count_before + 1
        assert emit.of(ServiceRecovered) == []


# ---- heartbeat ---------------------------------------------------------------------------------------


@asynccontextmanager
async def heartbeat(fleet: Fleet, emit: Recorder) -> AsyncIterator[tuple[Heartbeat, MemorySessionStore]]:
    sessions = MemorySessionStore(fleet.database.link())
    beat = Heartbeat(
        sessions,
        Processes(1, set()).identity(),
        version="1.0",
        clock=fleet.clock,
        draw=half,
        ids=CountedIds(),
        emit=emit,
        lease_s=LEASE_S,
    )
    task = asyncio.create_task(beat.run())
    await beat.wait_until_open()
    yield beat, sessions
    beat.stop()
    await task


async def test_a_session_is_renewed_each_third_of_its_lease_and_closed_at_the_end(fleet: Fleet) -> None:
    emit = Recorder()
    async with heartbeat(fleet, emit) as (beat, _):
        (row,) = fleet.database.sessions.values()
        for _ in range(10):
            await fleet.advance(LEASE_S / 3)
            assert row.heartbeat_at == fleet.database.now
        assert beat.left_s == LEASE_S
        await fleet.advance(5)
        assert beat.left_s == LEASE_S - 5
    assert row.stopped_at is not None
    assert emit.events == []


async def test_a_store_that_does_not_confirm_for_a_lease_ends_the_session(fleet: Fleet) -> None:
    emit, lost = Recorder(), []
    async with heartbeat(fleet, emit) as (beat, sessions):
        beat.on_lost(lambda session_id, reason: lost.append((fleet.clock.monotonic(), session_id)))
        first = beat.session_id
        sessions.link.is_down = True
        await fleet.advance(LEASE_S - 0.1)
        assert beat.session_id == first
        assert beat.left_s == pytest.approx(0.1)
        await fleet.advance(0.1)
        assert (beat.session_id, beat.left_s) == (None, 0.0)
        assert lost == [(LEASE_S, first)]
        sessions.link.is_down = False
        await fleet.advance(3)
        assert beat.session_id not in (None, first)
    assert len(emit.of(LeaseLost)) == 1


async def test_a_store_that_hangs_is_not_waited_for_beyond_the_lease(fleet: Fleet) -> None:
    emit = Recorder()
    async with heartbeat(fleet, emit) as (beat, sessions):

        async def hang(operation: str) -> None:
            await asyncio.Event().wait()

        sessions.link.on_arrival = hang
        await fleet.advance(LEASE_S)
        assert beat.session_id is None
        sessions.link.on_arrival = None
        await fleet.advance(LEASE_S)
        assert beat.session_id is not None


async def test_a_store_that_hangs_does_not_hold_up_the_end(fleet: Fleet) -> None:
    """Neither while the session is renewed, nor while there is none and a new one is asked for."""
    emit, requests = Recorder(), []
    async with heartbeat(fleet, emit) as (beat, sessions):
        (row,) = fleet.database.sessions.values()

        async def hang(operation: str) -> None:
            requests.append(operation)
            if operation in ("heartbeat", "open"):
                await asyncio.Event().wait()

        sessions.link.on_arrival = hang
        await fleet.advance(LEASE_S / 3)
    assert (requests, emit.events) == (["heartbeat", "close"], [])
    assert row.stopped_at is not None
    async with heartbeat(fleet, emit) as (beat, sessions):
        sessions.link.on_arrival = hang
        await fleet.advance(LEASE_S)
        event_count = len(emit.events)
        assert (beat.session_id, requests[-1]) == (None, "open")
    assert len(emit.events) == event_count


async def test_process_declared_lost_continues_with_a_new_session(fleet: Fleet) -> None:
    emit = Recorder()
    async with heartbeat(fleet, emit) as (beat, sessions):
        first = beat.session_id
        assert first is not None
        await sessions.mark_dead([first])
        await fleet.advance(LEASE_S / 3)
        assert beat.session_id not in (None, first)
        assert emit.of(LeaseLost)[0].session_id == first


async def test_after_a_stall_the_session_is_asked_for_before_it_is_given_up(fleet: Fleet) -> None:
    """A blocked loop wakes long after its lease: if nobody took its work, nothing has happened (E04)."""
    emit = Recorder()
    async with heartbeat(fleet, emit) as (beat, sessions):

        async def late(operation: str) -> None:
            await fleet.clock.sleep(1)

        await fleet.clock.wait_sleepers()
        sessions.link.on_arrival = late
        first = beat.session_id
        fleet.clock._now += 3 * LEASE_S  # time passed, and nobody ran
        await fleet.advance(1)
        assert (beat.session_id, beat.left_s) == (first, LEASE_S - 1)
        assert emit.events == []
        fleet.database.sessions[first].lost_at = fleet.database.now  # type: ignore[index]
        fleet.clock._now += 3 * LEASE_S
        await fleet.advance(2)
        assert beat.session_id != first
        sessions.link.on_arrival = None


# ---- loop meter, memory guard --------------------------------------------------------------------------


class StallingClock(ManualClock):
    """A clock whose sleepers wake late by what the test says."""

    stall_s = 0.0

    async def sleep(self, delay_s: float) -> None:
        await super().sleep(delay_s)
        self._now += self.stall_s


async def test_a_stall_is_measured_and_told() -> None:
    clock, emit = StallingClock(), Recorder()
    metering = LoopMeter(clock=clock, emit=emit).service(draw=half)
    async with running(metering):
        await clock.advance(1)
        assert emit.events == []
        clock.stall_s = 6.0
        await clock.advance(0.1)
        clock.stall_s = 0.0
        metering.stop()
        await clock.advance(20)
    (event,) = emit.of(LoopStalled)
    assert event.stall_s == pytest.approx(6.0, rel=0.1)


def test_a_gauge_that_knows_no_limit_stops_nothing() -> None:
    class Unknown:
        def usage(self) -> MemoryUsage:
            return MemoryUsage(10**12, None)

    emit = Recorder()
    assert MemoryGuard(Unknown(), clock=ManualClock(), emit=emit).may_claim()
    assert emit.events == []


async def test_a_gauge_at_the_edge_is_told_once() -> None:
    clock, emit, shares = ManualClock(), Recorder(), iter([0.81, 0.79, 0.81, 0.79, 0.91, 0.85, 0.5])

    class Edge:
        def usage(self) -> MemoryUsage:
            return MemoryUsage(int(next(shares) * 100), 100)

    guard = MemoryGuard(Edge(), clock=clock, emit=emit)
    may = []
    for _ in range(7):
        may.append(guard.may_claim())
        await clock.advance(5)
    assert may == [True, True, True, True, False, True, True]
    assert [event.stage for event in emit.of(MemoryPressure)] == ["warn", "full", "warn", "eased"]


async def test_a_full_container_is_a_warning_to_each_of_its_processes() -> None:
    clock, emit, shares = ManualClock(), Recorder(), iter([0.95, 0.7])

    class Crowded:
        def usage(self) -> MemoryUsage:
            return MemoryUsage(25, 100, next(shares))

    guard = MemoryGuard(Crowded(), clock=clock, emit=emit)
    for _ in range(2):
        assert guard.may_claim()
        await clock.advance(5)
    assert emit.of(MemoryPressure) == [MemoryPressure("warn", 95, 100), MemoryPressure("eased", 25, 100)]


# ---- clean-up --------------------------------------------------------------------------------------------


async def test_clean_up_prunes_everything_in_batches(fleet: Fleet) -> None:
    link = fleet.database.link()
    jobs = MemoryJobStore(link)
    await jobs.enqueue([new_job() for _ in range(BATCH_SIZE + 5)])
    claimed_jobs = await fleet.claim()
    await jobs.acknowledge([Completed(job.job_id, job.lease_id) for job in claimed_jobs])
    await fleet.advance(86_401)
    cleaned: list[str] = []

    async def journal() -> int:
        cleaned.append("journal")
        return 3

    pruner = Pruner(
        jobs,
        MemoryDeadLetterStore(link),
        MemoryScheduleStore(link),
        MemorySessionStore(link),
        retention=Retention(),
        one_batch_prunes={"journal": journal},
    )
    context = JobContext(a_job("clean_up"), lambda: 100.0)
    assert await pruner.run(context) == {
        "jobs": BATCH_SIZE + 5,
        "dead_letters": 0,
        "schedule_runs": 0,
        "sessions": 0,
        "journal": 3,
    }
    assert cleaned == ["journal"]
    assert pruner.handler().kind == "clean_up"


async def test_clean_up_begins_no_batch_without_time(fleet: Fleet) -> None:
    link = fleet.database.link()
    jobs = MemoryJobStore(link)
    pruner = Pruner(jobs, MemoryDeadLetterStore(link), MemoryScheduleStore(link), MemorySessionStore(link))
    assert sum((await pruner.run(JobContext(a_job(), lambda: 5.0))).values()) == 0


def test_memory_database_is_one_for_all_links() -> None:
    database = MemoryDatabase(ManualClock(), CountedIds())
    assert database.link().database is database.link().database
