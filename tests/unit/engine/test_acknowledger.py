"""The writer of outcomes: batches, refusals, outcomes that cannot be stored, and what it keeps."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from uuid import UUID

import pytest

from fairlead.engine.jobs.acknowledger import MAX_PENDING, Acknowledger
from fairlead.engine.jobs.executor import Executor
from fairlead.engine.ports import ClaimFilter, Completed, Discarded, FailureRecord, Job, Outcome, Rescheduled
from fairlead.errors import DependencyUnavailableError, InvalidInputError, MigrationRequiredError
from fairlead.events import JobDiscarded, ServiceFailed, SupersededWriteRefused
from fairlead.testing._kit.clock import ManualClock
from fairlead.testing._kit.ids import CountedIds
from fairlead.testing._memory import MemoryDatabase, MemoryJobStore, MemorySessionStore
from tests.support.engine import IDS, Recorder, half, new_job
from tests.support.process import Processes


class Desk:
    """A store with claimed jobs, and what was asked of it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.emit = Recorder()
        self.link = MemoryDatabase(self.clock, CountedIds()).link()
        self.store = MemoryJobStore(self.link)
        self.batches: list[list[Outcome]] = []
        self.refuse: Callable[[Sequence[Outcome]], Exception | None] = lambda outcomes: None

    def __getattr__(self, name: str) -> object:
        return getattr(self.store, name)

    async def acknowledge(self, outcomes: Sequence[Outcome]) -> set[UUID]:
        error = self.refuse(outcomes)
        if error is not None:
            raise error
        self.batches.append(list(outcomes))
        return await self.store.acknowledge(outcomes)

    async def running(self, count: int) -> list[Job]:
        session_id = IDS.uuid7()
        await MemorySessionStore(self.link).open(session_id, Processes(1, set()).identity(), 30.0, "1.0")
        await self.store.enqueue([new_job() for _ in range(count)])
        return await self.store.claim(ClaimFilter(), count, session_id)

    @asynccontextmanager
    async def acknowledger(self) -> AsyncIterator[Acknowledger]:
        store: MemoryJobStore = self  # type: ignore[assignment]  # all of it, acknowledge watched
        executor = Executor([], clock=self.clock, draw=half, ids=IDS, emit=self.emit)
        acks = Acknowledger(
            store,
            clock=self.clock,
            draw=half,
            emit=self.emit,
            refused_outcome=executor.refused_outcome,
            on_flushed=lambda: None,
        )
        task = asyncio.create_task(acks.run())
        yield acks
        assert not task.done()
        task.cancel()


def done(job: Job) -> Completed:
    return Completed(job.job_id, job.lease_id)


async def test_at_once_when_idle_and_together_while_one_write_is_under_way() -> None:
    desk = Desk()
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def slowly(operation: str) -> None:
        arrived.set()
        await go_on.wait()

    first, *others = await desk.running(5)
    desk.link.on_arrival = slowly
    async with desk.acknowledger() as acks:
        acks.put(first, done(first))
        await arrived.wait()
        for job in others:
            acks.put(job, done(job))
        assert acks.pending == 5
        go_on.set()
        await acks.flushed()
        assert [len(batch) for batch in desk.batches] == [1, 4]
        assert acks.pending == 0


async def test_outcome_of_a_lost_job_is_counted_by_kind() -> None:
    desk = Desk()
    kept_job, *lost = await desk.running(3)
    async with desk.acknowledger() as acks:
        acks.put(kept_job, done(kept_job))
        for job in lost:
            acks.put(job, Completed(job.job_id, job.lease_id + 100))
        await acks.flushed()
        assert desk.emit.of(SupersededWriteRefused) == [SupersededWriteRefused("work", 2)]


async def test_a_death_is_told_once_it_is_stored() -> None:
    desk = Desk()
    stored, stale = await desk.running(2)
    failure = FailureRecord("permanent_request", "bad", "bad data", 0.1, 1)
    async with desk.acknowledger() as acks:
        acks.put(stored, Discarded(stored.job_id, stored.lease_id, IDS.uuid7(), failure))
        acks.put(stale, Discarded(stale.job_id, stale.lease_id + 100, IDS.uuid7(), failure))
        await acks.flushed()
    (event,) = desk.emit.of(JobDiscarded)
    assert (event.job_id, event.category, event.code, event.reason) == (
        stored.job_id,
        "permanent_request",
        "bad",
        "bad data",
    )


async def test_an_outcome_that_cannot_be_stored_holds_up_no_other() -> None:
    desk = Desk()
    good, bad, fine = await desk.running(3)

    def refuse(outcomes: Sequence[Outcome]) -> Exception | None:
        broken = any(isinstance(o, Completed) and o.job_id == bad.job_id for o in outcomes)
        return InvalidInputError("the database refuses these values") if broken else None

    desk.refuse = refuse
    async with desk.acknowledger() as acks:
        for job in (good, bad, fine):
            acks.put(job, done(job))
        await acks.flushed()
    assert await desk.store.counts() == {"completed": 2, "retryable": 1}
    row = desk.store.database.jobs[bad.job_id]
    assert row.run_at > desk.store.database.now


async def test_emoji_that_the_database_refuses_ends_in_a_dead_letter() -> None:
    """Each refusal spends an attempt; its text is ASCII, whatever the database says."""
    desk = Desk()
    desk.refuse = lambda outcomes: (
        InvalidInputError("the database refuses these values: \N{GRINNING FACE}")
        if any(isinstance(outcome, Completed) for outcome in outcomes)
        else None
    )
    session_id = IDS.uuid7()
    await MemorySessionStore(desk.link).open(session_id, Processes(1, set()).identity(), 30.0, "1.0")
    await desk.store.enqueue([new_job()])
    async with desk.acknowledger() as acks:
        for attempt in range(1, 5):
            (job,) = await desk.store.claim(ClaimFilter(), 1, session_id)
            assert job.attempt == attempt
            acks.put(job, done(job))
            await acks.flushed()
            await desk.clock.advance(60)
    (dead,) = desk.emit.of(JobDiscarded)
    assert (dead.code, "the result or error of its run" in dead.reason, dead.reason.isascii()) == (
        "outcome_refused",
        True,
        True,
    )
    assert await desk.store.counts() == {"discarded": 1}


@pytest.mark.parametrize("args_are_bad", [False, True])
async def test_saved_state_survives_an_outcome_that_cannot_be_stored(args_are_bad: bool) -> None:
    """Its next run begins where it had come to, unless what it saved is what cannot be stored."""
    desk = Desk()
    (job,) = await desk.running(1)
    failure = FailureRecord("transient_server", "bad", "its text cannot be stored", 0.1, 1)
    saved = {"saved": {"page": 7}}

    def refuse(outcomes: Sequence[Outcome]) -> Exception | None:
        (outcome,) = outcomes
        assert isinstance(outcome, Rescheduled)
        broken = outcome.failure == failure or (args_are_bad and outcome.args is not None)
        return InvalidInputError("the database refuses these values") if broken else None

    desk.refuse = refuse
    async with desk.acknowledger() as acks:
        acks.put(job, Rescheduled(job.job_id, job.lease_id, 5.0, failure, args=saved))
        await acks.flushed()
    row = desk.store.database.jobs[job.job_id]
    assert (row.state, row.args) == ("available", job.args if args_are_bad else saved)


async def test_a_store_that_takes_nothing_is_asked_again_and_again_and_told_once() -> None:
    desk = Desk()
    jobs = await desk.running(3)
    desk.refuse = lambda outcomes: RuntimeError("a bug of the adapter")
    async with desk.acknowledger() as acks:
        for job in jobs:
            acks.put(job, done(job))
        await desk.clock.advance(30)
        assert acks.pending == 3
        assert len(desk.emit.of(ServiceFailed)) == 1
        desk.refuse = lambda outcomes: None
        await desk.clock.advance(3)
        assert acks.pending == 0


@pytest.mark.parametrize(
    "error", [MigrationRequiredError("the schema is old"), OSError(errno.EMFILE, "Too many open files")]
)
async def test_a_wrong_set_up_or_a_want_of_descriptors_is_no_fault_of_the_outcome(error: Exception) -> None:
    desk = Desk()
    (job,) = await desk.running(1)
    desk.refuse = lambda outcomes: error if isinstance(outcomes[0], Completed) else None
    async with desk.acknowledger() as acks:
        acks.put(job, Completed(job.job_id, job.lease_id, "kept"))
        await desk.clock.advance(30)
        desk.refuse = lambda outcomes: None
        await desk.clock.advance(3)
    view = await desk.store.get(job.job_id)
    assert view is not None
    assert view.result == "kept"


async def test_backlog_of_outcomes_too_old_or_too_large_stops_claims() -> None:
    desk = Desk()
    (job,) = await desk.running(1)
    desk.refuse = lambda outcomes: DependencyUnavailableError("away")
    async with desk.acknowledger() as acks:
        acks.put(job, done(job))
        await desk.clock.advance(59)
        assert acks.is_accepting
        await desk.clock.advance(2)
        assert not acks.is_accepting
        desk.refuse = lambda outcomes: None
        await desk.clock.advance(3)
        assert acks.is_accepting
        desk.refuse = lambda outcomes: DependencyUnavailableError("away")
        for _ in range(MAX_PENDING):
            acks.put(job, Rescheduled(job.job_id, job.lease_id, 0.0))
        assert not acks.is_accepting


async def test_order_is_kept_through_an_outage() -> None:
    desk = Desk()
    first, two, three = await desk.running(3)
    desk.refuse = lambda outcomes: DependencyUnavailableError("away")
    async with desk.acknowledger() as acks:
        acks.put(first, done(first))
        acks.put(two, done(two))
        await desk.clock.advance(1)
        acks.put(three, done(three))
        desk.refuse = lambda outcomes: None
        await desk.clock.advance(3)
    assert [outcome.job_id for batch in desk.batches for outcome in batch] == [
        first.job_id,
        two.job_id,
        three.job_id,
    ]
