"""What may happen to jobs, as data, and one side that it happens to.

Steps name jobs and processes by number. A process presents the lease that it was last given, whatever has
become of the job since. Which of many due jobs a claim takes is fairness, and no matter of these histories: a
claim takes all that it can have, in no order that counts (tests/contract/test_fairness.py). Nor is it when to
look again: a store may name an earlier moment than it must.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import cycle
from typing import Any
from uuid import UUID

from fairlead.engine.ports import (
    Cancelled,
    ClaimFilter,
    Completed,
    DeadLetter,
    Job,
    JobStore,
    NewJob,
    Outcome,
    Rescheduled,
    Schedule,
)
from fairlead.errors import InvalidInputError
from fairlead.testing._kit.ids import CountedIds
from tests.contract.losses import LOST, Loss, Road
from tests.contract.pairs import Pass, Step
from tests.contract.stores import Stores, discarded, failed, identity
from tests.support.engine import new_job

QUEUES, KINDS, TENANTS, GROUPS = ("default", "mail"), ("work", "other"), ("a", "b"), ("", "g")
SCHEDULES = ("hourly", "nightly")
EVERYTHING = ClaimFilter(queues=QUEUES)
MOST = 300
IN_VAIN = 2
"""A claim may have to be asked for again until it has found what fell due: after so many there is nothing."""


class Side:
    """One implementation, and what its processes hold. *start*: the first of its ids.

    A process asks by job stores that *jobs* makes: it forgets with its end which answers it never got.
    """

    def __init__(self, stores: Stores, start: int, road: Road, jobs: Callable[[], JobStore]) -> None:
        self._stores = stores
        self._ids = CountedIds(start)
        self._road = road
        self._new_jobs = jobs
        self._sessions: dict[int, UUID] = {}
        self._queue: dict[int, JobStore] = {}
        """Of each process, its own."""
        self._asked: list[list[NewJob]] = []
        self._seen: dict[tuple[int, str], datetime] = {}
        """The last run of a schedule as a process knows it."""
        self._jobs: list[UUID] = []
        self._held: dict[tuple[int, UUID], Job] = {}
        self._unstarted: set[int] = set()
        """Leases of suspects that were not begun."""
        self._accepted: set[int] = set()
        """Leases whose outcomes were accepted, as their holders know."""
        self._loss: Loss | None = None

    async def take(self, step: Step) -> object:
        """What comes of *step*; the same on every side."""
        if isinstance(step, Pass):
            return await self._stores.pass_time(step.seconds)
        return await self._done(step.act, step.args)

    async def _done(self, name: str, args: Sequence[Any]) -> object:
        act: Callable[..., Awaitable[object]] = getattr(self, name)
        try:
            return await act(*args)
        except InvalidInputError:
            return "refused"

    async def lost(self, loss: Loss, act: str, args: Sequence[Any]) -> object:
        """*act*, the first request of which meets *loss*."""
        self._loss = loss
        try:
            with self._road.losing(loss):
                return await self._done(act, args)
        except LOST:
            return "lost"
        finally:
            self._loss = None

    async def glance(self) -> object:
        """All jobs, as people see them."""
        views = await self._stores.jobs.search(state=None, kind=None, tenant_id=None, queue=None, limit=MOST)
        return [
            _shown(view) | {"failures": [_shown_failure(failure) for failure in view.failures]}
            for view in views
        ]

    async def state(self) -> object:
        """All dead letters, and what is counted."""
        letters = await self._letters()
        histories = [{"dead_letter_id": 0, "history": len(letter.history)} for letter in letters]
        shown = [_shown(letter) | its for letter, its in zip(letters, histories, strict=True)]
        sessions = sorted(await self._stores.sessions.search(), key=lambda session: session.session_id)
        run_times = [await self._stores.schedule_store.runs(name, MOST) for name in SCHEDULES]
        return [
            shown,
            await self._stores.jobs.counts(),
            await self._stores.dead_letters.counts(),
            [_shown(session) for session in sessions],
            await self._stores.schedule_store.schedules(),
            run_times,
        ]

    async def _letters(self) -> Sequence[DeadLetter]:
        letters = await self._stores.dead_letters.search(
            status=None, category=None, tenant_id=None, kind=None, limit=MOST
        )
        return sorted(letters, key=lambda letter: (letter.first_at, letter.job_id))

    # ---- processes -----------------------------------------------------------------------------

    async def begin(self, process: int, lease_s: float) -> None:
        self._sessions[process] = session_id = self._ids.uuid7()
        self._queue[process] = self._new_jobs()
        await self._stores.sessions.open(session_id, identity(process), lease_s, "1.0")

    async def begin_again(self, process: int) -> None:
        """By the same id, as who does not know whether the first try counted."""
        await self._stores.sessions.open(self._session(process), identity(process), 20.0, "1.0")

    async def heartbeat(self, process: int) -> object:
        return await self._stores.sessions.heartbeat(self._session(process))

    async def end(self, process: int, lost: bool) -> object:
        session_id = self._session(process)
        if lost:
            return await self._stores.sessions.mark_dead([session_id])
        return await self._stores.sessions.close(session_id)

    async def rescue(self, process: int, every_s: float) -> object:
        done = await self._stores.sessions.rescue(self._session(process), every_s, 3, MOST)
        return None if done is None else [done.ready, done.sessions, done.rescued, done.dead]

    async def local_sessions(self, process: int) -> object:
        return sorted(await self._stores.sessions.local_sessions(identity(process)), key=lambda pair: pair[0])

    async def forget_sessions(self, older_than_s: float) -> object:
        return await self._stores.sessions.prune(older_than_s, MOST)

    def _session(self, process: int) -> UUID:
        return self._sessions.get(process) or UUID(int=process)

    def _jobs_of(self, process: int) -> JobStore:
        return self._queue.setdefault(process, self._new_jobs())

    # ---- jobs ----------------------------------------------------------------------------------

    async def enqueue(self, count: int, fields: dict[str, Any]) -> object:
        jobs = [new_job(**(fields | {"job_id": self._ids.uuid7()})) for _ in range(count)]
        self._jobs += [job.job_id for job in jobs]
        self._asked.append(jobs)
        return await self._enqueued(jobs)

    async def enqueue_again(self, number: int) -> object:
        """The same jobs, as a customer whom nobody answered."""
        return await self._enqueued(self._asked[number % len(self._asked)]) if self._asked else None

    async def _enqueued(self, jobs: Sequence[NewJob]) -> object:
        return [
            (enqueued.job_id, enqueued.inserted, enqueued.key_state)
            for enqueued in await self._stores.jobs.enqueue(jobs)
        ]

    async def claim(self, process: int) -> object:
        session_id, claimed, in_vain = self._session(process), list[Job](), 0
        while in_vain < IN_VAIN:
            jobs = await self._jobs_of(process).claim(EVERYTHING, 100, session_id)
            claimed += jobs
            in_vain = 0 if jobs else in_vain + 1
        return [self._holds(process, job) for job in sorted(claimed, key=lambda job: job.job_id)]

    async def claim_suspect(self, process: int, starts: bool) -> object:
        job = await self._jobs_of(process).claim_suspect(EVERYTHING, self._session(process))
        if job is None:
            return None
        if not starts:
            self._unstarted.add(job.lease_id)
            return self._holds(process, job)
        is_held = self._holds(process, job)
        return [is_held, await self._jobs_of(process).start_suspect(job.job_id, job.lease_id)]

    def _holds(self, process: int, job: Job) -> object:
        self._held[process, job.job_id] = job
        return _shown(job) | {"lease_id": 0, "replay_of": job.replay_of is not None}

    async def acknowledge(self, process: int, number: int, outcome: str, delay_s: float) -> object:
        """One that it holds, or held: the others may have it by now."""
        jobs = self._known(process)
        if not jobs:
            return None
        return await self._acknowledged(process, [(jobs[number % len(jobs)], outcome)], delay_s)

    async def acknowledge_all(self, process: int, outcomes: Sequence[str], delay_s: float) -> object:
        """All of them at once, in turns by one of *outcomes*."""
        return await self._acknowledged(
            process, list(zip(self._known(process), cycle(outcomes), strict=False)), delay_s
        )

    def _known(self, process: int) -> list[Job]:
        """What it was given. Who reads back whether a lease was settled finds an earlier end of it, too."""
        jobs = [job for (holder, _), job in self._held.items() if holder == process]
        settled = self._accepted if self._loss == "answer" else ()
        return sorted((job for job in jobs if job.lease_id not in settled), key=lambda job: job.job_id)

    async def _acknowledged(self, process: int, ends: Sequence[tuple[Job, str]], delay_s: float) -> object:
        """One that was not run has nothing to tell but that."""
        named = [(job, "snoozed" if job.lease_id in self._unstarted else outcome) for job, outcome in ends]
        outcomes = [self._outcome(job, outcome, delay_s) for job, outcome in named]
        accepted = await self._jobs_of(process).acknowledge(outcomes)
        self._accepted |= {job.lease_id for job, _ in ends if job.job_id in accepted}
        return sorted(accepted)

    def _outcome(self, job: Job, outcome: str, delay_s: float) -> Outcome:
        match outcome:
            case "completed":
                return Completed(job.job_id, job.lease_id, {"n": 1})
            case "failed":
                return failed(job, delay_s=delay_s)
            case "snoozed":
                return Rescheduled(job.job_id, job.lease_id, delay_s)
            case "cancelled":
                return Cancelled(job.job_id, job.lease_id, "not wanted")
            case _:
                return replace(discarded(job), dead_letter_id=self._ids.uuid7())

    async def cancel(self, number: int) -> object:
        return await self._stores.jobs.cancel(self._job(number), "operator")

    async def retry_now(self, number: int) -> object:
        return await self._stores.jobs.retry_now(self._job(number))

    def _job(self, number: int) -> UUID:
        return self._jobs[number % len(self._jobs)] if self._jobs else UUID(int=0)

    async def expire(self) -> object:
        return await self._stores.jobs.expire_due(MOST)

    async def prune(self, keep_s: float) -> object:
        keep_by_state = {"completed": keep_s, "cancelled": keep_s, "discarded": keep_s}
        return await self._stores.jobs.prune(keep_by_state, MOST)

    # ---- schedules -----------------------------------------------------------------------------

    async def sync(self, priority: int, paused: bool) -> None:
        """All of them, as a program declares them."""
        await self._stores.schedule_store.sync_schedules(
            [
                Schedule(name, "* * * * *", KINDS[0], TENANTS[0], priority=priority, paused=paused)
                for name in SCHEDULES
            ]
        )

    async def look(self, process: int) -> object:
        """What a process knows of schedules it knows from here."""
        schedules = await self._stores.schedule_store.schedules()
        self._seen |= {(process, state.schedule.name): state.last_run_at for state in schedules}
        return schedules

    async def fire(self, process: int, name: str, step_s: float, fields: dict[str, Any]) -> object:
        """One so long after the last that it knows of."""
        seen_run_at = self._seen.get((process, name))
        if seen_run_at is None:
            return None
        job = new_job(KINDS[0], tenant_id=TENANTS[0], job_id=self._ids.uuid7(), **fields)
        self._jobs.append(job.job_id)
        run_at = seen_run_at + timedelta(seconds=step_s)
        took = await self._stores.schedule_store.record_run(
            name, seen_run_at, run_at, 1, self._session(process), job
        )
        if took:
            self._seen[process, name] = run_at
        return took

    async def pause(self, name: str) -> object:
        return await self._stores.schedule_store.pause(name, "me", "a holiday")

    async def resume(self, name: str, make_up: bool) -> object:
        return await self._stores.schedule_store.resume(name, make_up=make_up)

    async def drop(self, name: str) -> object:
        return await self._stores.schedule_store.remove(name)

    async def forget_runs(self, older_than_s: float) -> object:
        return await self._stores.schedule_store.prune(older_than_s, MOST)

    # ---- dead letters --------------------------------------------------------------------------

    async def redrive(self, number: int) -> object:
        letters = await self._letters()
        if not letters:
            return None
        letter, job_id = letters[number % len(letters)], self._ids.uuid7()
        job = new_job(letter.kind, tenant_id=letter.tenant_id, queue=letter.queue, job_id=job_id)
        job.unique_key, job.args = letter.unique_key, letter.args
        self._jobs.append(job_id)
        return await self._stores.dead_letters.redrive(letter.dead_letter_id, job)

    async def resolve(self, number: int) -> object:
        letters = await self._letters()
        if not letters:
            return None
        letter_id = letters[number % len(letters)].dead_letter_id
        return await self._stores.dead_letters.resolve(
            letter_id, status="abandoned", resolution="abandoned", by="me", reason="no use"
        )


def _shown(value: Any) -> dict[str, Any]:
    return {name: _rounded(getattr(value, name)) for name in value.__dataclass_fields__}


def _rounded(value: Any) -> Any:
    return round(value, 3) if isinstance(value, float) else value


def _shown_failure(failure: Any) -> Any:
    """One line of a job's history; the stores may use other words, and write moments in another way."""
    return {name: _rounded(failure.get(name)) for name in ("category", "code", "attempt", "ran_s")}
