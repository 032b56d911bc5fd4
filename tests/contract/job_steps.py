"""What may happen to jobs, as data, and one side that it happens to.

Steps name jobs and processes by number. A process presents the lease that it was last given, whatever has
become of the job since. Which of many due jobs a claim takes is fairness, and no matter of these histories: a
claim takes all that it can have, in no order that counts (tests/contract/test_fairness.py). Nor is it when to
look again: a store may name an earlier moment than it must.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from fairlead.engine.ports import Cancelled, ClaimFilter, Completed, DeadLetter, Job, Outcome, Rescheduled
from fairlead.testing.ids import CountedIds
from tests.contract.pairs import Pass, Step
from tests.contract.stores import Stores, discarded, failed, identity
from tests.support.engine import new_job

QUEUES, KINDS, TENANTS, GROUPS = ("default", "mail"), ("work", "other"), ("a", "b"), ("", "g")
EVERYTHING = ClaimFilter(queues=QUEUES)
NOTHING = ClaimFilter(queues=("nothing",))
MOST = 1000
MOST_CLAIMS = 10
"""A claim may have to be asked for again until it has found what fell due."""


class Side:
    """One implementation, and what its processes hold. *start*: the first of its ids."""

    def __init__(self, stores: Stores, start: int) -> None:
        self._stores = stores
        self._ids = CountedIds(start)
        self._sessions: dict[int, UUID] = {}
        self._jobs: list[UUID] = []
        self._held: dict[tuple[int, UUID], Job] = {}
        self._unstarted: set[int] = set()
        """Leases of suspects that were not begun."""

    async def take(self, step: Step) -> object:
        """What comes of *step*; the same on every side."""
        if isinstance(step, Pass):
            return await self._stores.pass_time(step.seconds)
        act: Callable[..., Awaitable[object]] = getattr(self, step.act)
        return await act(*step.args)

    async def glance(self) -> object:
        """All jobs, as people see them."""
        views = await self._stores.jobs.search(state=None, kind=None, tenant_id=None, queue=None, limit=MOST)
        return [_shown(view) | {"failures": [_told(one) for one in view.failures]} for view in views]

    async def state(self) -> object:
        """All dead letters, and what is counted."""
        letters = await self._letters()
        own = [{"dead_letter_id": 0, "history": len(one.history)} for one in letters]
        shown = [_shown(one) | its for one, its in zip(letters, own, strict=True)]
        return [shown, await self._stores.jobs.counts(), await self._stores.dead_letters.counts()]

    async def _letters(self) -> Sequence[DeadLetter]:
        found = await self._stores.dead_letters.search(
            status=None, category=None, tenant_id=None, kind=None, limit=MOST
        )
        return sorted(found, key=lambda letter: (letter.first_at, letter.job_id))

    # ---- processes -----------------------------------------------------------------------------

    async def begin(self, process: int) -> None:
        self._sessions[process] = session_id = self._ids.uuid7()
        await self._stores.sessions.open(session_id, identity(process), 1e9, "1.0")

    async def end(self, process: int, lost: bool) -> object:
        session_id = self._session(process)
        if lost:
            return await self._stores.sessions.bury([session_id])
        return await self._stores.sessions.close(session_id)

    async def rescue(self, process: int) -> object:
        done = await self._stores.sessions.rescue(self._session(process), 0.0, 3, MOST)
        return None if done is None else [done.sessions, done.rescued, done.dead]

    def _session(self, process: int) -> UUID:
        return self._sessions.get(process) or UUID(int=process)

    # ---- jobs ----------------------------------------------------------------------------------

    async def enqueue(self, count: int, fields: dict[str, Any]) -> object:
        jobs = [new_job(**(fields | {"job_id": self._ids.uuid7()})) for _ in range(count)]
        stored = await self._stores.jobs.enqueue(jobs)
        self._jobs += [job.job_id for job in jobs]
        return [(one.job_id, one.inserted) for one in stored]

    async def claim(self, process: int) -> object:
        session_id, claimed = self._session(process), list[Job]()
        for _ in range(MOST_CLAIMS):
            claimed += await self._stores.jobs.claim(EVERYTHING, 100, session_id)
            await self._stores.jobs.claim(NOTHING, 1, session_id)  # then all is looked at
        return [self._holds(process, job) for job in sorted(claimed, key=lambda job: job.job_id)]

    async def claim_suspect(self, process: int, starts: bool) -> object:
        job = await self._stores.jobs.claim_suspect(EVERYTHING, self._session(process))
        if job is None:
            return None
        if not starts:
            self._unstarted.add(job.lease_id)
            return self._holds(process, job)
        return [self._holds(process, job), await self._stores.jobs.start_suspect(job.job_id, job.lease_id)]

    def _holds(self, process: int, job: Job) -> object:
        self._held[process, job.job_id] = job
        return _shown(job) | {"lease_id": 0, "replay_of": job.replay_of is not None}

    async def acknowledge(self, process: int, number: int, outcome: str, delay_s: float) -> object:
        """One that it holds, or held: the others may have it by now."""
        known = [job for (whose, _), job in self._held.items() if whose == process]
        if not known:
            return None
        job = sorted(known, key=lambda job: job.job_id)[number % len(known)]
        if job.lease_id in self._unstarted:  # it was not run, so there is nothing to tell but that
            outcome = "snoozed"
        accepted = await self._stores.jobs.acknowledge([self._outcome(job, outcome, delay_s)])
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
        kept = {"completed": keep_s, "cancelled": keep_s, "discarded": keep_s}
        return await self._stores.jobs.prune(kept, MOST)

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
        chosen = letters[number % len(letters)].dead_letter_id
        return await self._stores.dead_letters.resolve(
            chosen, status="abandoned", resolution="abandoned", by="me", why="no use"
        )


def _shown(value: Any) -> dict[str, Any]:
    return {name: _rounded(getattr(value, name)) for name in value.__dataclass_fields__}


def _rounded(value: Any) -> Any:
    return round(value, 3) if isinstance(value, float) else value


def _told(failure: Any) -> Any:
    """One line of a job's history; the stores may use other words, and write moments in another way."""
    return {name: _rounded(failure.get(name)) for name in ("category", "code", "attempt", "ran_s")}
