"""How new jobs get into the database: one statement for a few, a stream of them for many.

Many jobs are checked and written down in slices: while the server stores one, the next is made ready. All of
it is one transaction, and a short one. Jobs with unique keys end the stream: keys are taken in their order,
in one statement, so that two callers never wait for each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from uuid import UUID

from fairlead.adapters.postgres.dead_letters import Bound
from fairlead.adapters.postgres.driver import Row
from fairlead.adapters.postgres.failures import Undone
from fairlead.adapters.postgres.jobrows import new_job_columns, one_job_values, plain_job_columns
from fairlead.adapters.postgres.pool import Database, Transaction
from fairlead.adapters.postgres.sqlfiles import statement
from fairlead.adapters.postgres.wakeups import WakeUps
from fairlead.engine.ports import Enqueued, NewJob
from fairlead.errors import InputInvalid

SLICE = 500
"""Jobs of a statement of a stream; so many and fewer are one statement."""
UNIQUE_VIOLATION = "23505"


STREAM_S = 1.5
"""The longest a stream may take. Lanes are served meanwhile, and floors rise after two seconds."""


class _NoStream(Exception):
    """It has a unique key, or takes too long: all of it in one statement instead."""


class _Theirs(Exception):
    """Making the jobs failed: no error of ours, whatever its type."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


class Intake:
    """The part of the JobStore that takes jobs in. *bound* refuses what dead letters are full of (Q10)."""

    def __init__(self, database: Database, bound: Bound, wake_ups: WakeUps) -> None:
        self._database = database
        self._bound = bound
        self._wake_ups = wake_ups

    async def enqueue(self, jobs: Iterable[NewJob]) -> list[Enqueued]:
        """Store *jobs*, all or none; see the port. What iterating over them raises is raised, too."""
        rest = iter(jobs)
        taken = list(islice(rest, SLICE + 1))
        if not taken:
            return []
        await self._bound.check(taken)
        if len(taken) <= SLICE:
            return await self._database.again(lambda: self._store(taken), lambda: self._store_rest(taken))
        return await self._database.again(
            lambda: self._stream(taken, rest), lambda: self._after_stream(taken, rest)
        )

    # ---- one statement -------------------------------------------------------------------------

    async def _store(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        if not any(job.unique_key for job in jobs):
            await self._store_plain(jobs)
            return [Enqueued(job.job_id, True) for job in jobs]
        rows = await self._database.fetch(
            statement("job_enqueue"), notify=self._notify(jobs), **new_job_columns(jobs)
        )
        stored = {row["asked_id"]: Enqueued(row["job_id"], row["inserted"]) for row in rows}
        return [stored[job.job_id] for job in jobs]

    async def _store_plain(self, jobs: Sequence[NewJob]) -> None:
        if len(jobs) == 1:
            plain, values = statement("job_enqueue_one"), one_job_values(jobs[0])
        else:
            plain, values = statement("job_enqueue_plain"), plain_job_columns(jobs)
        await self._database.fetch(plain, notify=self._notify(jobs), **values)

    async def _store_rest(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store what a commit in doubt did not: our ids tell which."""
        rows = await self._database.fetch(statement("job_present"), job_ids=[job.job_id for job in jobs])
        stored = {row["job_id"]: Enqueued(row["job_id"], True) for row in rows}
        rest = [job for job in jobs if job.job_id not in stored]
        if rest:
            try:
                stored |= {job.job_id: done for job, done in zip(rest, await self._store(rest), strict=True)}
            except InputInvalid as error:
                if error.reason == UNIQUE_VIOLATION:  # the first try was being committed: now it is there
                    raise Undone("the same jobs were stored at the same moment") from error
                raise
        return [stored[job.job_id] for job in jobs]

    def _notify(self, jobs: Sequence[NewJob]) -> bool:
        return self._wake_ups.now({job.queue for job in jobs if job.delay_s <= 0})

    # ---- a stream ------------------------------------------------------------------------------

    async def _stream(self, taken: list[NewJob], rest: Iterator[NewJob]) -> list[Enqueued]:
        """Store *taken* and *rest*; what comes of *rest* is added to *taken*."""
        try:
            async with self._database.transaction() as transaction:
                await self._send(transaction, taken, rest)
        except _NoStream:
            return await self._after_stream(taken, rest)
        except _Theirs as theirs:
            raise theirs.error from None
        return [Enqueued(job.job_id, True) for job in taken]

    async def _send(self, transaction: Transaction, taken: list[NewJob], rest: Iterator[NewJob]) -> None:
        sending: asyncio.Task[list[Row]] | None = None
        slice_ = list(taken)
        lane_ids: set[UUID] = set()
        loop = asyncio.get_running_loop()
        until = loop.time() + STREAM_S
        try:
            while slice_:
                if any(job.unique_key for job in slice_) or loop.time() > until:
                    raise _NoStream
                columns = plain_job_columns(slice_)
                lane_ids.update(columns["lane_ids"])
                if sending is not None:
                    await sending
                    await self._bound.check(slice_, transaction)
                plain = statement("job_enqueue_plain")
                work = transaction.fetch(plain, notify=self._notify(slice_), **columns)
                sending = asyncio.create_task(work)
                await asyncio.sleep(0)  # it is on its way before the next slice is made ready
                slice_ = _made(rest)
                taken += slice_
            if sending is not None:
                await sending
            # who was served meanwhile may have passed what only this transaction sees
            await transaction.fetch(statement("lane_touch"), lane_ids=list(lane_ids))
        except BaseException:
            if sending is not None:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
            raise

    async def _after_stream(self, taken: list[NewJob], rest: Iterator[NewJob]) -> list[Enqueued]:
        """All of it in one statement, but for what is there already."""
        taken += rest
        await self._bound.check(taken)
        return await self._store_rest(taken)


def _made(rest: Iterator[NewJob]) -> list[NewJob]:
    try:
        return list(islice(rest, SLICE))
    except Exception as error:  # noqa: BLE001 (a caller's generator raises what it likes)
        raise _Theirs(error) from None
