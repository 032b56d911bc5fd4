"""The worker at work: claiming, running, waiting, draining, and what it does when its lease is gone."""

from __future__ import annotations

import asyncio

import pytest

from fairlead.engine.jobs.executor import Executor
from fairlead.engine.jobs.handler import Handler, JobContext
from fairlead.engine.jobs.worker_settings import WorkerSettings
from fairlead.engine.ports import ClaimFilter, MemoryUsage
from fairlead.errors import InvalidConfigError, TransientFailureError
from fairlead.events import (
    HandlersStuck,
    JobDiscarded,
    JobFinished,
    JobsHandedBack,
    LeaseLost,
    MemoryPressure,
    ServiceFailed,
    SupersededWriteRefused,
    WorkerDraining,
)
from fairlead.policy.failures.backoff import Jitter
from fairlead.policy.failures.category import Category
from fairlead.policy.failures.retry import DEFAULT_RULES, RetryPolicy
from fairlead.policy.jobs.job import RequireReauth
from tests.support.engine import IDS, Recorder, half, new_job
from tests.support.process import LEASE_S, Fleet, Gate, Process


async def done_at_once(context: JobContext) -> str:
    return "done"


async def test_jobs_run_and_are_acknowledged(fleet: Fleet) -> None:
    (job,) = await fleet.enqueue()
    process = await fleet.start(Handler("work", done_at_once))
    await process.emit.wait_for(JobFinished)
    await fleet.settle()
    view = await fleet.view(job)
    assert (view.state, view.result, view.attempt) == ("completed", "done", 1)


@pytest.mark.parametrize("awaits", [True, False])
async def test_a_handler_that_cancels_its_own_task_has_failed(fleet: Fleet, awaits: bool) -> None:
    """Handed back, as what we cancel is, its job would come at once and do so again, for ever."""

    async def cancels_itself(context: JobContext) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        if awaits:
            await asyncio.sleep(0)

    (job,) = await fleet.enqueue()
    once = RetryPolicy.uniform(1, base_s=1.0, cap_s=1.0, jitter=Jitter.FULL)
    process = await fleet.start(Handler("work", cancels_itself, retry=once))
    await fleet.advance(10)
    assert len(process.emit.of(JobDiscarded)) == 1
    view = await fleet.view(job)
    assert (view.state, view.attempt) == ("discarded", 2)
    assert len(view.failures) == 2


async def test_only_free_places_are_filled(fleet: Fleet) -> None:
    gate = Gate()
    await fleet.enqueue(*(new_job() for _ in range(7)))
    process = await fleet.start(gate.handler, concurrency=3)
    await gate.wait_running(3)
    assert await fleet.jobs.counts() == {"running": 3, "available": 4}
    await fleet.advance(10)
    assert process.worker.running == 3
    gate.open.set()
    await process.emit.wait_for(JobFinished, 7)
    assert gate.most == 3


async def test_outcomes_travel_together(fleet: Fleet) -> None:
    """While one write is under way the others gather: a hundred jobs are a few statements."""
    gate = Gate()
    await fleet.enqueue(*(new_job() for _ in range(100)))
    process = await fleet.start(gate.handler, concurrency=100)
    await gate.wait_running(100)
    gate.open.set()
    await process.emit.wait_for(JobFinished, 100)
    await fleet.settle()
    assert process.operations["acknowledge"] <= 3
    assert await fleet.jobs.counts() == {"completed": 100}


async def test_a_hint_is_followed_at_once(fleet: Fleet) -> None:
    process = await fleet.start(Handler("work", done_at_once))
    await fleet.settle()
    await fleet.enqueue()
    process.worker.wake()
    await process.emit.wait_for(JobFinished)
    assert fleet.clock.monotonic() == 0


async def test_without_a_hint_it_is_found_by_polling(fleet: Fleet) -> None:
    process = await fleet.start(Handler("work", done_at_once))
    await fleet.advance(0.1)
    await fleet.enqueue()
    await fleet.advance(0.8)
    assert process.emit.of(JobFinished) == []
    await fleet.advance(0.2)
    assert len(process.emit.of(JobFinished)) == 1


async def test_work_that_is_due_soon_is_not_waited_for_longer(fleet: Fleet) -> None:
    process = await fleet.start(Handler("work", done_at_once), poll_s=60.0)
    await fleet.enqueue(new_job(delay_s=5))
    process.worker.wake()
    await fleet.advance(5.1)
    assert len(process.emit.of(JobFinished)) == 1


async def test_an_idle_worker_asks_no_more_than_its_polling_says(fleet: Fleet) -> None:
    process = await fleet.start(Handler("work", done_at_once))
    await fleet.advance(100)
    assert 95 <= process.operations["claim"] <= 105


async def test_kinds_without_a_handler_are_left_to_others(fleet: Fleet) -> None:
    process = await fleet.start(Handler("work", done_at_once))
    await fleet.enqueue(new_job("unknown.here"), new_job())
    await fleet.advance(5)
    assert len(process.emit.of(JobFinished)) == 1
    assert await fleet.jobs.counts() == {"available": 1, "completed": 1}


async def test_a_filter_that_nothing_can_satisfy_is_refused(fleet: Fleet) -> None:
    with pytest.raises(InvalidConfigError, match="no handler for kind mail"):
        await fleet.start(Handler("work", done_at_once), claims=ClaimFilter(kinds=("mail",)))
    with pytest.raises(InvalidConfigError, match="without handlers"):
        fleet.new()._worker(Executor([], clock=fleet.clock, draw=half, ids=IDS, emit=Recorder()))
    with pytest.raises(InvalidConfigError, match="concurrency"):
        WorkerSettings(concurrency=0)
    with pytest.raises(InvalidConfigError, match="times"):
        WorkerSettings(poll_s=0)


@pytest.mark.parametrize("category", list(Category))
async def test_each_category_goes_its_way_to_the_dead_letters(fleet: Fleet, category: Category) -> None:
    async def fails(context: JobContext) -> None:
        raise TransientFailureError("boom", category=category.value)

    await fleet.enqueue(new_job(args={"connection_id": "00000000-0000-7000-8000-000000000001"}))
    process = await fleet.start(Handler("work", fails), poll_s=5.0)
    await fleet.advance(900)
    dead = process.emit.of(JobDiscarded)
    assert [(event.category, event.code, event.tenant) for event in dead] == [
        (category.value, "transient_failure", "acme")
    ]
    (entry,) = await fleet.dead_letters.search(
        status="pending_review", category=category.value, tenant_id="acme", kind="work", limit=9
    )
    assert len(entry.history) == DEFAULT_RULES[category].attempts + 1
    assert str(entry.connection_id) == "00000000-0000-7000-8000-000000000001"
    assert entry.reason


async def test_a_snoozed_job_keeps_its_attempt_for_ever(fleet: Fleet) -> None:
    async def not_yet(context: JobContext) -> object:
        return context.snooze(10)

    (job,) = await fleet.enqueue()
    process = await fleet.start(Handler("work", not_yet))
    await fleet.advance(500)
    assert len(process.emit.of(JobFinished)) >= 45
    view = await fleet.view(job)
    assert (view.label, view.attempt, len(view.failures)) == ("scheduled", 0, 0)


async def test_a_hanging_handler_is_ended_and_its_neighbours_are_not(fleet: Fleet) -> None:
    hangs, fine = Gate("hangs", timeout_s=20), Gate("fine")
    await fleet.enqueue(new_job("hangs"), new_job("fine"))
    process = await fleet.start(hangs.handler, fine.handler)
    await hangs.wait_running(1)
    await fleet.advance(21)
    assert process.emit.of(JobFinished)[0].code == "job_timeout"
    assert fine.running == 1


# ---- drain (E05) -----------------------------------------------------------------------------------


async def test_stopping_waits_for_what_runs(fleet: Fleet) -> None:
    gate = Gate()
    (job, _) = await fleet.enqueue(new_job(priority=0), new_job())
    process = await fleet.start(gate.handler, concurrency=1)
    await gate.wait_running(1)
    process.stop()
    await process.emit.wait_for(WorkerDraining)
    await fleet.advance(30)
    gate.open.set()
    await process.stopped()
    assert (await fleet.view(job)).state == "completed"
    assert await fleet.jobs.counts() == {"completed": 1, "available": 1}
    assert process.emit.of(JobsHandedBack) == []


async def test_job_that_outlives_the_drain_is_handed_back_with_its_attempt(fleet: Fleet) -> None:
    gate = Gate()
    (job,) = await fleet.enqueue()
    process = await fleet.start(gate.handler)
    await gate.wait_running(1)
    process.stop()
    await fleet.advance(44.9)
    assert gate.running == 1
    await fleet.advance(0.1)
    await process.stopped()
    assert fleet.clock.monotonic() == 45
    view = await fleet.view(job)
    assert (view.state, view.attempt, view.crash_count, len(view.failures)) == ("available", 0, 0, 0)
    assert process.emit.of(JobsHandedBack) == [JobsHandedBack(1, "drain")]
    session = next(iter(fleet.database.sessions.values()))
    assert session.stopped_at is not None


async def test_a_second_stop_is_at_once(fleet: Fleet) -> None:
    gate = Gate()
    (job,) = await fleet.enqueue()
    process = await fleet.start(gate.handler)
    await gate.wait_running(1)
    process.stop()
    await process.emit.wait_for(WorkerDraining)
    process.stop()
    await process.stopped()
    assert fleet.clock.monotonic() == 0
    assert (await fleet.view(job)).attempt == 0


async def test_a_second_stop_waits_for_nobody(fleet: Fleet) -> None:
    """Not for a deaf handler, and not for a store that is away."""
    gate = Gate(deaf=True)
    await fleet.enqueue()
    process = await fleet.start(gate.handler)
    await gate.wait_running(1)
    process.stop()
    await fleet.advance(10)
    process.link.is_down = True
    process.stop()
    await fleet.advance(3)
    assert process.emit.of(HandlersStuck) == [HandlersStuck(("work",))]
    assert "could not be written" in process.emit.of(ServiceFailed)[-1].reason
    gate.open.set()
    await process.stopped()


async def test_a_handler_that_ignores_its_end_loses_its_lease_all_the_same(fleet: Fleet) -> None:
    gate = Gate(deaf=True)
    (job,) = await fleet.enqueue()
    process = await fleet.start(gate.handler)
    await gate.wait_running(1)
    process.stop()
    await fleet.advance(60)
    assert process.emit.of(HandlersStuck) == [HandlersStuck(("work",))]
    assert (await fleet.view(job)).label == "available"
    gate.open.set()
    await process.stopped()
    assert (await fleet.view(job)).label == "available"  # its late result was not written


async def test_a_job_claimed_while_stopping_knows_its_time(fleet: Fleet) -> None:
    """Its claim was under way when the stop came: with too little time left it is put off, not begun."""
    gate = Gate()
    process = await fleet.start(gate.handler, grace_s=10.0)
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def slowly(operation: str) -> None:
        if operation == "claim":
            arrived.set()
            await go_on.wait()

    process.link.on_arrival = slowly
    (job,) = await fleet.enqueue()
    process.worker.wake()
    await arrived.wait()
    process.stop()
    go_on.set()
    await process.stopped()
    assert gate.started == []
    view = await fleet.view(job)
    assert (view.label, view.attempt) == ("scheduled", 0)
    assert (view.run_at - fleet.database.now).total_seconds() == 30


# ---- losing the lease (E03) ------------------------------------------------------------------------


async def declared_lost(fleet: Fleet, process: Process) -> None:
    """What the others do to a process that they believe dead: its jobs run elsewhere."""
    for row in fleet.database.sessions.values():
        row.lost_at = fleet.database.now
    await process.emit.wait_for(LeaseLost)


async def test_a_lost_lease_ends_its_handlers_and_a_new_session_goes_on(fleet: Fleet) -> None:
    gate = Gate()
    (job,) = await fleet.enqueue()
    process = await fleet.start(gate.handler)
    await gate.wait_running(1)
    first = process.heartbeat.session_id
    lost = asyncio.create_task(declared_lost(fleet, process))
    await fleet.advance(LEASE_S / 3)
    await lost
    assert len(gate.cancelled) == 1
    assert process.emit.of(JobsHandedBack) == [JobsHandedBack(1, "lease_lost")]
    await fleet.advance(2)
    await gate.wait_running(1)
    assert process.heartbeat.session_id not in (None, first)
    view = await fleet.view(job)
    assert (view.state, view.attempt, len(view.failures)) == ("running", 1, 0)


async def test_a_late_write_is_refused_counted_and_told(fleet: Fleet) -> None:
    gate = Gate()
    (job,) = await fleet.enqueue()
    process = await fleet.start(gate.handler)
    await gate.wait_running(1)
    row = fleet.database.jobs[job.job_id]
    row.give_back(fleet.database.now)  # rescued behind its back
    row.lease_id, row.state, row.session_id = 77, row.state.RUNNING, job.job_id  # and running elsewhere
    gate.open.set()
    event = await process.emit.wait_for(SupersededWriteRefused)
    assert (event.kind, event.count) == ("work", 1)
    assert (await fleet.view(job)).state == "running"


async def test_a_claim_that_returns_after_the_lease_was_lost_starts_nothing(fleet: Fleet) -> None:
    gate = Gate()
    process = await fleet.start(gate.handler)
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def slowly(operation: str) -> None:
        if operation == "claim":
            arrived.set()
            await go_on.wait()

    process.link.on_answer = slowly
    (job,) = await fleet.enqueue()
    process.worker.wake()
    await arrived.wait()
    process.link.on_answer = None
    lost = asyncio.create_task(declared_lost(fleet, process))
    await fleet.advance(LEASE_S / 3)
    await lost
    go_on.set()
    await fleet.advance(20)
    assert len(gate.started) == 1  # under the new session, not under both
    gate.open.set()
    await fleet.advance(5)
    assert (await fleet.view(job)).state == "completed"
    assert len(gate.started) == 1
    assert process.emit.of(JobsHandedBack) == []


# ---- memory (Q4) -----------------------------------------------------------------------------------


class Memory:
    def __init__(self) -> None:
        self.share = 0.0

    def usage(self) -> MemoryUsage:
        return MemoryUsage(int(self.share * 1000), 1000)


async def test_memory_warns_then_stops_claiming_then_goes_on(fleet: Fleet) -> None:
    memory, gate = Memory(), Gate()
    gate.open.set()
    process = await fleet.start(gate.handler, memory=memory)
    for share, stage in ((0.5, None), (0.82, "warn"), (0.95, "full")):
        memory.share = share
        await fleet.advance(20)
        events = process.emit.of(MemoryPressure)
        assert (events[-1].stage if events else None) == stage
    await fleet.enqueue()
    await fleet.advance(20)
    assert gate.started == []
    memory.share = 0.7
    await fleet.advance(20)
    assert len(gate.started) == 1
    assert [event.stage for event in process.emit.of(MemoryPressure)] == ["warn", "full", "eased"]


async def test_auth_failures_wait_for_the_workflow(fleet: Fleet) -> None:
    async def revoked(context: JobContext) -> RequireReauth:
        return RequireReauth("the grant is gone")

    await fleet.enqueue(new_job(provider="xero"))
    process = await fleet.start(Handler("work", revoked))
    await process.emit.wait_for(JobDiscarded)
    (entry,) = await fleet.dead_letters.due(9)
    assert (entry.category, entry.provider) == ("permanent_auth", "xero")
