"""Deaths, outages and poison: what a fleet of workers loses (nothing) and what it repeats."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from fairlead.engine.jobs.handler import SAVED, Handler, JobContext
from fairlead.engine.ports import NewJob
from fairlead.errors import DependencyUnavailableError, TransientFailureError
from fairlead.events import (
    JobFinished,
    JobsRescued,
    LeaseLost,
    StoreReachable,
    StoreUnreachable,
    SupersededWriteRefused,
)
from tests.support.engine import new_job
from tests.support.process import LEASE_S, Fleet, Gate


def named(name: str, kind: str = "work") -> NewJob:
    return new_job(kind, args={"name": name})


# ---- deaths ----------------------------------------------------------------------------------------


async def test_after_a_kill_the_work_goes_on_within_lease_and_sweep(fleet: Fleet) -> None:
    gate = Gate()
    (job,) = await fleet.enqueue()
    first = await fleet.start(gate.handler)
    await gate.wait_running(1)
    second = await fleet.start(gate.handler)
    await fleet.advance(60)  # the database has run without a gap for longer than a lease
    await first.kill()
    await gate.wait_running(0)
    await fleet.advance(LEASE_S + 6)
    assert gate.running == 1
    view = await fleet.view(job)
    assert (view.attempt, view.crash_count) == (1, 1)
    assert second.emit.of(JobsRescued) == [JobsRescued(rescued=1, discarded=0, sessions=1)]


async def test_with_proof_of_death_nobody_waits_for_the_lease(fleet: Fleet) -> None:
    gate = Gate()
    await fleet.enqueue()
    first = await fleet.start(gate.handler)
    await gate.wait_running(1)
    await fleet.start(gate.handler)
    await first.kill()
    fleet.proven_dead.add(first.pid)
    await gate.wait_running(0)
    await fleet.advance(6)
    assert gate.running == 1


async def test_no_living_job_is_rescued(fleet: Fleet) -> None:
    """E09: jobs far longer than the lease, four rescuers, and a database that is slow to answer."""
    gate = Gate()
    await fleet.enqueue(*(new_job() for _ in range(8)))
    processes = [await fleet.start(gate.handler, concurrency=2, poll_s=5.0) for _ in range(4)]

    async def late(operation: str) -> None:
        await fleet.clock.sleep(0.4)

    for process in processes:
        process.link.on_arrival = late
    await fleet.advance(10 * LEASE_S)
    assert all(process.emit.of(JobsRescued) == [] for process in processes)
    assert all(process.emit.of(LeaseLost) == [] for process in processes)
    gate.open.set()
    await fleet.advance(10)
    assert await fleet.jobs.counts() == {"completed": 8}
    assert len(gate.started) == 8


# ---- suspects (R3) ---------------------------------------------------------------------------------


async def test_a_suspect_runs_alone_and_its_neighbours_are_not_disturbed(fleet: Fleet) -> None:
    gate, slow = Gate(), Gate("slow")
    await fleet.enqueue(named("suspect"))
    first = await fleet.start(gate.handler)
    await gate.wait_running(1)
    await first.kill()
    fleet.proven_dead.add(first.pid)
    await gate.wait_running(0)
    await fleet.enqueue(named("slow", "slow"))
    second = await fleet.start(gate.handler, slow.handler)
    await slow.wait_running(1)
    await fleet.advance(10)
    assert (gate.running, slow.running) == (0, 1)  # it waits for the other to end, and does not disturb it
    await fleet.enqueue(named("late", "slow"))
    second.worker.wake()
    await fleet.advance(3)
    assert slow.started == ["slow"]  # nothing new begins before it
    slow.open.set()
    await fleet.advance(2)
    assert gate.running == 1
    assert slow.started == ["slow"]  # it is alone
    gate.open.set()
    await fleet.advance(2)
    assert slow.started == ["slow", "late"]
    assert await fleet.jobs.counts() == {"completed": 3}


async def test_a_crash_with_many_jobs_in_flight_is_worked_off_quickly(fleet: Fleet) -> None:
    """All but one of the suspects are innocent: they follow each other without a wait in between."""
    gate, quick = Gate(), Gate("quick")
    quick.open.set()
    await fleet.enqueue(*(new_job() for _ in range(100)))
    first = await fleet.start(gate.handler, quick.handler, concurrency=100)
    await gate.wait_running(100)
    await first.kill()
    fleet.proven_dead.add(first.pid)
    gate.open.set()
    await fleet.start(gate.handler, quick.handler)
    await fleet.advance(7)  # a rescue pass, and a poll
    assert await fleet.jobs.counts() == {"completed": 100}


@pytest.mark.slow
async def test_slow_suspects_leave_other_work_its_share(fleet: Fleet) -> None:
    """Each suspect takes 20 s: in between, other work is done for as long."""

    async def slow(context: JobContext) -> None:
        await fleet.clock.sleep(20)

    done_at: list[float] = []

    async def other(context: JobContext) -> None:
        done_at.append(fleet.clock.monotonic())

    handlers = [Handler("slow", slow), Handler("other", other)]
    await fleet.enqueue(*(new_job("slow") for _ in range(5)))
    first = await fleet.start(*handlers)
    await fleet.advance(1)
    await first.kill()
    fleet.proven_dead.add(first.pid)
    second = await fleet.start(*handlers)
    for _ in range(200):
        await fleet.enqueue(new_job("other"))
        await fleet.advance(1)
    assert await fleet.jobs.counts() == {"completed": 205}
    # One that finds a job and one that finds no more: a suspect that waits makes nobody ask in haste.
    assert second.operations["claim"] < 3 * 205
    waits = [later - earlier for earlier, later in pairwise(done_at)]
    assert max(waits) < 23
    assert sum(wait > 10 for wait in waits) == 5  # once per suspect


async def test_a_job_that_kills_its_worker_ends_after_three_crashes_and_harms_nobody(fleet: Fleet) -> None:
    """P5: whoever runs ``poison`` dies of it; its neighbours lose no attempt."""
    poison, good = Gate("poison"), Gate("good")
    bad, *others = await fleet.enqueue(named("bad", "poison"), *(named(f"good{n}", "good") for n in range(4)))
    for death in range(3):
        process = await fleet.start(poison.handler, good.handler)
        await fleet.advance(10)  # earlier deaths are found
        if death:
            good.open.set()  # the suspect waits until it is alone
            await fleet.advance(5)
        await poison.wait_running(1)
        await process.kill()
        fleet.proven_dead.add(process.pid)
        await poison.wait_running(0)
    last = await fleet.start(poison.handler, good.handler)
    await fleet.advance(20)
    assert (await fleet.view(bad)).state == "discarded"
    assert poison.started == ["bad"] * 3
    (entry,) = await fleet.dead_letters.search(
        status="pending_review", category=None, tenant_id=None, kind="poison", limit=9
    )
    assert entry.code == "poison"
    assert last.emit.of(JobsRescued)[-1].discarded == 1
    for job in others:
        view = await fleet.view(job)
        assert (view.state, view.attempt) == ("completed", 1)
        assert [line["code"] for line in view.failures] == ["crashed"]  # seen by people, not counted


async def test_a_reserved_suspect_goes_back_when_the_worker_stops(fleet: Fleet) -> None:
    gate, slow = Gate(), Gate("slow")
    (job,) = await fleet.enqueue(named("suspect"))
    first = await fleet.start(gate.handler)
    await gate.wait_running(1)
    await first.kill()
    fleet.proven_dead.add(first.pid)
    await fleet.enqueue(named("slow", "slow"))
    second = await fleet.start(gate.handler, slow.handler)
    await slow.wait_running(1)
    await fleet.advance(10)
    assert (await fleet.view(job)).state == "running"  # reserved
    second.stop()
    await fleet.advance(1)
    view = await fleet.view(job)
    assert (view.state, view.attempt, view.crash_count) == ("available", 0, 1)
    slow.open.set()
    await second.stopped()


# ---- the store away (P14, E14) -----------------------------------------------------------------------


async def test_outcome_of_an_outage_is_stored_after_it(fleet: Fleet) -> None:
    gate = Gate()
    jobs = await fleet.enqueue(*(new_job() for _ in range(5)))
    process = await fleet.start(gate.handler, concurrency=5)
    await gate.wait_running(5)
    await fleet.enqueue()
    process.link.is_down = True
    gate.open.set()
    await fleet.advance(20)
    assert len(process.emit.of(JobFinished)) == 5
    process.link.is_down = False
    await fleet.advance(5)
    for job in jobs:
        view = await fleet.view(job)
        assert (view.state, view.attempt) == ("completed", 1)
    assert process.emit.of(SupersededWriteRefused) == []
    assert await fleet.jobs.counts() == {"completed": 6}  # and it consumes again


async def test_a_minute_without_the_store_loses_no_result_and_floods_no_log(fleet: Fleet) -> None:
    gate = Gate()
    jobs = await fleet.enqueue(*(new_job() for _ in range(5)))
    process = await fleet.start(gate.handler)
    await gate.wait_running(5)
    gate.open.set()
    process.link.is_down = True
    await fleet.advance(61)
    assert len(process.emit.of(LeaseLost)) == 1  # for a full lease nobody confirmed it
    event_count = len(process.emit.events)
    assert event_count <= 5 + 8  # runs, and a line per service: not one per try
    process.link.is_down = False
    await fleet.enqueue()
    await fleet.advance(5)
    assert await fleet.jobs.counts() == {"completed": 6}
    for job in jobs:
        assert (await fleet.view(job)).attempt == 1
    reachable = process.emit.of(StoreReachable)
    assert reachable
    assert len(reachable) == len(process.emit.of(StoreUnreachable))
    assert all(event.outage_s > 40 for event in reachable)


async def test_an_answer_that_was_lost_is_asked_for_again_and_told_once(fleet: Fleet) -> None:
    """E12: the write was committed, its answer cut: the second write finds nothing to do, and no alarm."""
    lost = []

    async def cut_once(operation: str) -> None:
        if operation == "acknowledge" and not lost:
            lost.append(operation)
            raise DependencyUnavailableError("the connection was lost")

    async def work(context: JobContext) -> str:
        return "done"

    (job,) = await fleet.enqueue()
    process = await fleet.start(Handler("work", work))
    process.link.on_answer = cut_once
    await fleet.advance(5)
    assert lost
    assert (await fleet.view(job)).state == "completed"
    assert process.emit.of(SupersededWriteRefused) == []
    assert len(process.emit.of(StoreUnreachable)) == 1


async def test_handlers_are_ended_when_the_lease_cannot_be_kept(fleet: Fleet) -> None:
    gate = Gate()
    (job,) = await fleet.enqueue()
    process = await fleet.start(gate.handler)
    await gate.wait_running(1)
    process.link.is_down = True
    await fleet.advance(LEASE_S)
    assert len(gate.cancelled) == 1
    process.link.is_down = False
    await fleet.advance(5)
    assert gate.running == 1  # handed back, and claimed again under the new session
    view = await fleet.view(job)
    assert (view.attempt, view.crash_count, view.failures) == (1, 0, [])


async def test_a_stop_without_the_store_ends_all_the_same(fleet: Fleet) -> None:
    async def work(context: JobContext) -> str:
        return "done"

    await fleet.enqueue()
    process = await fleet.start(Handler("work", work), grace_s=10)
    process.link.is_down = True
    process.worker.wake()
    await fleet.advance(1)
    process.stop()
    await fleet.advance(15)
    await process.stopped()


async def test_all_die_at_once_while_jobs_fail(fleet: Fleet) -> None:
    """E06: every process either consumes again or ends; none is alive and idle."""
    gate, failing = Gate(), []

    async def fails(context: JobContext) -> None:
        failing.append(context.attempt)
        raise TransientFailureError("boom")

    await fleet.enqueue(*(new_job() for _ in range(4)), *(new_job("fails") for _ in range(8)))
    processes = [await fleet.start(gate.handler, Handler("fails", fails)) for _ in range(3)]
    await gate.wait_running(4)
    for process in processes:
        process.link.is_down = True
    await fleet.advance(3)
    for process in processes:
        process.link.is_down = False
    gate.open.set()
    await asyncio.sleep(0)
    await fleet.advance(120)
    counts = await fleet.jobs.counts()
    assert counts == {"completed": 4, "discarded": 8}
    assert not any(process.task.done() for process in processes)
    await fleet.enqueue(*(new_job() for _ in range(3)))
    await fleet.advance(5)
    assert (await fleet.jobs.counts())["completed"] == 7


# ---- cut off ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_itself", [True, False])
async def test_a_run_that_is_cancelled_leaves_what_it_saved(fleet: Fleet, by_itself: bool) -> None:
    """By its own hand or by the end of its worker: the next run begins where this one had come to."""
    saved = asyncio.Event()

    async def saves(context: JobContext) -> None:
        context.save("page", 7)
        saved.set()
        if by_itself:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        await fleet.clock.sleep(1000)

    (job,) = await fleet.enqueue()
    process = await fleet.start(Handler("work", saves))
    await saved.wait()
    if not by_itself:
        process.stop()
    await fleet.advance(45)
    assert fleet.database.jobs[job.job_id].args[SAVED] == {"page": 7}
