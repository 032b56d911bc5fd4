"""Stores new jobs: one statement for a few of them, a stream of statements for many.

All jobs are created first, so that a caller's generator runs without locks or an open transaction. Many jobs
are written in slices: while the server stores one, the next is prepared. All of it is one short transaction,
which touches its lanes at the end. Jobs with unique keys are one statement, which takes the keys in order, so
that two callers never wait for each other.

job_enqueue alone stores any jobs. job_enqueue_plain (500 jobs in 25 instead of 50 ms) and job_enqueue_one (a job in
0.4 instead of 1.2 ms) are faster without unique keys: delete both, and only speed changes. SQL clients call the
function fairlead_enqueue, which checks its arguments and may run in any transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice
from uuid import UUID

from fairlead.adapters.postgres.database import Database, Transaction
from fairlead.adapters.postgres.dead_letters import DeadLetterBound
from fairlead.adapters.postgres.driver import Row
from fairlead.adapters.postgres.job_rows import lane_id_of, new_job_columns, one_job_values, plain_job_columns
from fairlead.adapters.postgres.notifier import Notifier
from fairlead.adapters.postgres.postgres_errors import RolledBackError, RowLockedError
from fairlead.adapters.postgres.statements import statement
from fairlead.engine.ports import Enqueued, NewJob
from fairlead.errors import FairleadError, InvalidInputError
from fairlead.policy.text.names import shown

SLICE = 500
"""Jobs of one statement. More jobs are a stream of statements."""
LATE_S = 0.8
"""An empty lane is deleted after a second, and claims read no further back. An insert that takes longer is
therefore followed by another touch of its lanes."""
UNIQUE_VIOLATION = "23505"
_KEYS_NAMED = 3
"""Unique keys that a message names."""


class Enqueuer:
    """The inserting part of the JobStore.

    Args:
        bound: Refuses kinds that have too many open dead letters.
    """

    def __init__(self, database: Database, bound: DeadLetterBound, wake_ups: Notifier) -> None:
        self._database = database
        self._bound = bound
        self._wake_ups = wake_ups

    async def enqueue(self, jobs: Iterable[NewJob]) -> list[Enqueued]:
        """Store *jobs*, all or none. An error of the iterable is raised, and nothing is stored."""
        new_jobs = await _listed(jobs)
        if not new_jobs:
            return []
        await self._bound.check(new_jobs)
        loop = asyncio.get_running_loop()
        started_mono = loop.time()
        stored = await self._database.resolve_doubt(
            lambda: self._store(new_jobs), lambda: self._store_missing(new_jobs)
        )
        took_s = loop.time() - started_mono
        if took_s > LATE_S:
            with suppress(FairleadError):  # the jobs are stored, and the sweep finds them
                await self._touch(self._database, {lane_id_of(job) for job in new_jobs}, took_s)
        return stored

    # ---- one statement -------------------------------------------------------------------------

    async def _store(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        if not any(job.unique_key for job in jobs):
            await (self._store_plain(jobs) if len(jobs) <= SLICE else self._stream(jobs))
            return [Enqueued(job.job_id, True) for job in jobs]
        values = new_job_columns(jobs) | {"notify": self._notify(jobs)}
        try:
            rows = await self._database.fetch(statement("job_enqueue"), **values)
        except RowLockedError as error:
            raise _key_locked(jobs) from error
        stored = {row["asked_id"]: Enqueued(row["job_id"], row["inserted"], row["key_state"]) for row in rows}
        return [stored[job.job_id] for job in jobs]

    async def _store_plain(self, jobs: Sequence[NewJob]) -> None:
        if len(jobs) == 1:
            plain, values = statement("job_enqueue_one"), one_job_values(jobs[0])
        else:
            plain, values = statement("job_enqueue_plain"), plain_job_columns(jobs) | {"touch": True}
        await self._database.fetch(plain, notify=self._notify(jobs), **values)

    async def _store_missing(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store those of *jobs* that a commit in doubt did not, which their ids show."""
        rows = await self._database.fetch(statement("job_present"), job_ids=[job.job_id for job in jobs])
        stored = {
            row["job_id"]: Enqueued(row["job_id"], True, "running" if row["follows"] else "none")
            for row in rows
        }
        missing = [job for job in jobs if job.job_id not in stored]
        if missing:
            try:
                results = await self._store(missing)
                stored |= {job.job_id: result for job, result in zip(missing, results, strict=True)}
            except InvalidInputError as error:
                if error.reason == UNIQUE_VIOLATION:  # the first statement committed meanwhile
                    raise RolledBackError("the same jobs were stored at the same moment") from error
                raise
        return [stored[job.job_id] for job in jobs]

    def _notify(self, jobs: Sequence[NewJob]) -> bool:
        return self._wake_ups.now({job.queue for job in jobs if job.delay_s <= 0})

    # ---- a stream ------------------------------------------------------------------------------

    async def _stream(self, jobs: Sequence[NewJob]) -> None:
        plain = statement("job_enqueue_plain")
        sending: asyncio.Task[list[Row]] | None = None
        lane_ids: set[UUID] = set()
        async with self._database.transaction() as transaction:
            try:
                for slice_ in (jobs[start : start + SLICE] for start in range(0, len(jobs), SLICE)):
                    columns = plain_job_columns(slice_)
                    lane_ids.update(columns["lane_ids"])
                    if sending is not None:
                        await sending
                    work = transaction.fetch(plain, touch=False, notify=self._notify(slice_), **columns)
                    sending = asyncio.create_task(work)
                    await asyncio.sleep(0)  # sent before the next slice is prepared
                if sending is not None:
                    await sending
                await self._touch(transaction, lane_ids)
            except BaseException:
                if sending is not None:
                    sending.cancel()
                    await asyncio.gather(sending, return_exceptions=True)
                raise

    async def _touch(
        self, target: Database | Transaction, lane_ids: Iterable[UUID], window_s: float = 0.0
    ) -> None:
        """Let claims find jobs stored in these lanes within the last *window_s* seconds."""
        await target.fetch(statement("lane_touch"), lane_ids=list(lane_ids), since_s=window_s)


def _key_locked(jobs: Sequence[NewJob]) -> RowLockedError:
    """Return the error for unique keys one of which belongs to another open transaction."""
    keyed = [job for job in jobs if job.unique_key is not None]
    names = ", ".join(f"{shown(job.unique_key)} of {job.kind}" for job in keyed[:_KEYS_NAMED])
    if len(keyed) == 1:
        message = f"an open transaction holds the unique key {names}: nothing was stored"
    else:
        more = f" and {len(keyed) - _KEYS_NAMED} more" if len(keyed) > _KEYS_NAMED else ""
        message = f"an open transaction holds one of the unique keys {names}{more}: nothing was stored"
    hint = (
        "commit or roll back that transaction, which pg_blocking_pids() and pg_stat_activity name,"
        " then enqueue again"
    )
    tenants = {job.tenant_id for job in keyed}
    return RowLockedError(message, tenant=tenants.pop() if len(tenants) == 1 else None, hint=hint)


async def _listed(jobs: Iterable[NewJob]) -> list[NewJob]:
    """Return *jobs* as a list, and let other tasks run in between."""
    new_jobs: list[NewJob] = []
    remaining = iter(jobs)
    while slice_ := list(islice(remaining, SLICE)):
        new_jobs += slice_
        if len(slice_) == SLICE:
            await asyncio.sleep(0)
    return new_jobs
