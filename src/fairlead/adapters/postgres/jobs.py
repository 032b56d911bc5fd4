"""The queue on PostgreSQL: see fairlead.engine.ports.JobStore.

Each method is one statement (acknowledge: one per type of outcome, in one transaction). The write of an
outcome carries the lease id of the claim, and has an effect only while that lease is current. The row then
stores that id, which distinguishes a lost response from a rejected write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID

from fairlead._core.faultpoint import faultpoint
from fairlead._core.ids import Ids
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.dead_letters import DeadLetterBound
from fairlead.adapters.postgres.driver import Row
from fairlead.adapters.postgres.enqueuer import Enqueuer
from fairlead.adapters.postgres.job_rows import (
    cancel_text,
    claimed_job,
    discarded_columns,
    job_view,
    rescheduled_columns,
    results_text,
)
from fairlead.adapters.postgres.notifier import Notifier
from fairlead.adapters.postgres.postgres_errors import CommitInDoubtError
from fairlead.adapters.postgres.statements import Statement, statement
from fairlead.engine.ports import (
    Cancelled,
    ClaimFilter,
    Completed,
    Discarded,
    Enqueued,
    Job,
    JobView,
    NewJob,
    Outcome,
    Rescheduled,
)
from fairlead.policy.jobs.lane import interleave_tenants

COUNT_BOUND = 100_000
WAKE_EVERY_S = 0.05
"""How often a claim looks for lanes that have become due while the ready ones are enough."""
LOST_FOR_S = 60.0  # longer than any statement is at work

T = TypeVar("T")
Columns = dict[str, Any]


class PostgresJobStore:
    """The JobStore port on PostgreSQL.

    Args:
        bound: Open dead letters of a kind per queue at which new jobs of that kind are refused. Default
        10,000. notify: Whether workers are notified of new jobs. False: they poll.
    """

    def __init__(self, database: Database, ids: Ids, *, bound: int = 10_000, notify: bool = True) -> None:
        self._database = database
        self._ids = ids
        self._wake_ups = Notifier(database, enabled=notify)
        self._intake = Enqueuer(database, DeadLetterBound(database, bound), self._wake_ups)
        self._turn = 0
        self._next_wake = 0.0
        self._lost: dict[int, tuple[UUID, float]] = {}  # claims without a response, by seed
        self._in_doubt: set[int] = set()  # lease ids of outcomes without a response

    async def close(self) -> None:
        """Send pending notifications."""
        await self._wake_ups.close()

    # ---- in ------------------------------------------------------------------------------------

    async def enqueue(self, jobs: Iterable[NewJob]) -> list[Enqueued]:
        return await self._intake.enqueue(jobs)

    # ---- out -----------------------------------------------------------------------------------

    async def claim(self, filters: ClaimFilter, demand: int, session_id: UUID) -> list[Job]:
        if demand <= 0:
            return []
        self._turn += 1  # each claim begins with another queue
        moment = asyncio.get_running_loop().time()
        wake = moment >= self._next_wake
        if wake:
            self._next_wake = moment + WAKE_EVERY_S
        query = {
            "queues": _from(self._turn, filters.queues),
            "kinds": filters.kinds,
            "providers": filters.providers,
            "demand": demand,
            "wake": wake,
        }
        rows = await self._claim(statement("job_claim"), session_id, query)
        jobs = interleave_tenants([claimed_job(row) for row in rows])
        if len(jobs) < demand:
            self._next_wake = moment
        return jobs

    async def claim_suspect(self, filters: ClaimFilter, session_id: UUID) -> Job | None:
        query = {"queues": filters.queues, "kinds": filters.kinds, "providers": filters.providers}
        rows = await self._claim(statement("job_claim_suspect"), session_id, query)
        return claimed_job(rows[0]) if rows else None

    async def _claim(self, claim: Statement, session_id: UUID, query: Mapping[str, object]) -> list[Row]:
        await self._hand_back_lost()
        seed = self._ids.lease_id()
        claimant = {"session_id": session_id, "lease_seed": seed}

        async def claimed() -> list[Row]:
            """Return the jobs of the first statement. If it may still run, hand its jobs back later."""
            rows = await self._database.fetch(statement("job_claimed"), **claimant)
            if not rows:
                self._lose(seed, session_id)
            return rows

        try:
            return await self._database.resolve_doubt(
                lambda: self._database.fetch(claim, **query, **claimant), claimed
            )
        except (CommitInDoubtError, asyncio.CancelledError):
            self._lose(seed, session_id)
            raise

    def _lose(self, seed: int, session_id: UUID) -> None:
        self._lost[seed] = (session_id, asyncio.get_running_loop().time() + LOST_FOR_S)

    async def _hand_back_lost(self) -> None:
        """Hand back the jobs of claims without a response, for as long as those statements may still run."""
        if not self._lost:
            return
        lost = dict(self._lost)
        moment = asyncio.get_running_loop().time()
        sessions = [session_id for session_id, _ in lost.values()]
        await self._database.fetch(statement("job_hand_back"), session_ids=sessions, lease_seeds=list(lost))
        self._lost = {
            seed: claim for seed, claim in self._lost.items() if claim[1] > moment or seed not in lost
        }

    async def start_suspect(self, job_id: UUID, lease_id: int) -> bool:
        return await self._changed("job_start_suspect", job_id=job_id, lease_id=lease_id)

    # ---- outcomes ------------------------------------------------------------------------------

    async def acknowledge(self, outcomes: Sequence[Outcome]) -> set[UUID]:
        if not outcomes:
            return set()
        try:
            accepted = await self._database.resolve_doubt(
                lambda: self._write(outcomes), lambda: self._write_or_settled(outcomes)
            )
        except (CommitInDoubtError, asyncio.CancelledError):
            self._in_doubt.update(outcome.lease_id for outcome in outcomes)
            raise
        return accepted | await self._accepted_before(outcomes, accepted)

    async def _write(self, outcomes: Sequence[Outcome]) -> set[UUID]:
        writes = _writes(outcomes)
        if len(writes) == 1:
            [(write, columns)] = writes
            return _ids(await self._database.fetch(write, **columns))
        accepted: set[UUID] = set()
        async with self._database.transaction() as transaction:
            for write, columns in writes:
                accepted |= _ids(await transaction.fetch(write, **columns))
                faultpoint("job.within_ack")
        return accepted

    async def _write_or_settled(self, outcomes: Sequence[Outcome]) -> set[UUID]:
        return await self._write(outcomes) | await self._settled(outcomes)

    async def _settled(self, outcomes: Sequence[Outcome]) -> set[UUID]:
        return _ids(await self._database.fetch(statement("job_settled"), **_leases(outcomes)))

    async def _accepted_before(self, outcomes: Sequence[Outcome], accepted: set[UUID]) -> set[UUID]:
        """Return the outcomes rejected now that an earlier call with a lost response has stored."""
        if not self._in_doubt:
            return set()
        doubtful = [o for o in outcomes if o.lease_id in self._in_doubt and o.job_id not in accepted]
        settled = await self._settled(doubtful) if doubtful else set()
        self._in_doubt.difference_update(outcome.lease_id for outcome in outcomes)
        return settled

    # ---- upkeep --------------------------------------------------------------------------------

    async def expire_due(self, limit: int) -> int:
        ids = [self._ids.uuid7() for _ in range(limit)]
        return await self._count("job_expire", "moved", dead_letter_ids=ids)

    async def next_due_in_s(self, filters: ClaimFilter) -> float | None:
        row = await self._database.first(
            statement("job_next_due"), queues=filters.queues, kinds=filters.kinds, providers=filters.providers
        )
        due_in_s: float | None = row["due_in_s"] if row else None
        return None if due_in_s is None else max(0.0, due_in_s)

    async def prune(self, retention_s: Mapping[str, float], limit: int) -> int:
        states, kept_s = list(retention_s), list(retention_s.values())
        return await self._count("job_prune", "deleted", states=states, retentions_s=kept_s, limit=limit)

    async def listen(self, on_wake: Callable[[str], None]) -> Callable[[], Awaitable[None]]:
        return await self._database.listen("fairlead_job", on_wake)

    # ---- people --------------------------------------------------------------------------------

    async def get(self, job_id: UUID) -> JobView | None:
        row = await self._database.first(statement("job_get"), job_id=job_id)
        return job_view(row) if row else None

    async def search(
        self, *, state: str | None, kind: str | None, tenant_id: str | None, queue: str | None, limit: int
    ) -> list[JobView]:
        rows = await self._database.for_tenants(tenant_id).fetch(
            statement("job_search"), state=state, kind=kind, tenant_id=tenant_id, queue=queue, limit=limit
        )
        return [job_view(row) for row in rows]

    async def retry_now(self, job_id: UUID, *, tenant_id: str | None = None) -> bool:
        due = statement("job_retry_now")
        row = await self._database.for_tenants(tenant_id).first(due, job_id=job_id, tenant_id=tenant_id)
        return row is not None

    async def cancel(
        self, job_id: UUID, reason: str, *, tenant_id: str | None = None, state: str | None = None
    ) -> str | None:
        row = await self._database.for_tenants(tenant_id).first(
            statement("job_cancel"),
            job_id=job_id,
            tenant_id=tenant_id,
            state=state,
            result=cancel_text(reason),
        )
        return row["state"] if row else None

    async def counts(self) -> Mapping[str, int]:
        rows = await self._database.fetch(statement("job_counts"), bound=COUNT_BOUND)
        return {row["label"]: row["jobs"] for row in rows if row["jobs"]}

    async def _changed(self, name: str, **values: object) -> bool:
        return await self._database.first(statement(name), **values) is not None

    async def _count(self, name: str, column: str, **values: object) -> int:
        row = await self._database.first(statement(name), **values)
        return int(row[column]) if row else 0


def _from(turn: int, names: Sequence[str]) -> list[str]:
    """Return *names* rotated by *turn*."""
    start = turn % len(names) if names else 0
    return [*names[start:], *names[:start]]


def _ids(rows: Sequence[Row]) -> set[UUID]:
    return {row["job_id"] for row in rows}


def _leases(outcomes: Sequence[Outcome]) -> Columns:
    return {
        "job_ids": [outcome.job_id for outcome in outcomes],
        "lease_ids": [outcome.lease_id for outcome in outcomes],
    }


def _writes(outcomes: Sequence[Outcome]) -> list[tuple[Statement, Columns]]:
    """Return one statement, with its parameters, for each type of outcome that occurs."""
    completed = [outcome for outcome in outcomes if isinstance(outcome, Completed)]
    rescheduled = [outcome for outcome in outcomes if isinstance(outcome, Rescheduled)]
    cancelled = [outcome for outcome in outcomes if isinstance(outcome, Cancelled)]
    discarded = [outcome for outcome in outcomes if isinstance(outcome, Discarded)]
    writes: list[tuple[Statement, Columns]] = []
    if completed:
        writes.append((statement("job_complete"), _leases(completed) | {"results": results_text(completed)}))
    if rescheduled:
        columns = _leases(rescheduled) | rescheduled_columns(rescheduled)
        writes.append((statement("job_reschedule"), columns))
    if cancelled:
        results = [cancel_text(outcome.reason) for outcome in cancelled]
        writes.append((statement("job_cancel_running"), _leases(cancelled) | {"results": results}))
    if discarded:
        writes.append((statement("job_discard"), _leases(discarded) | discarded_columns(discarded)))
    return writes
