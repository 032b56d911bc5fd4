"""A queue for benchmarks of the claim: its stores, one session, a backlog, and claims one after the other."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from bench.databases import connected, fresh_database, settle
from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.jobs import PostgresJobStore
from fairlead.adapters.postgres.lanes import PostgresLaneStore
from fairlead.adapters.postgres.migrate import Migrator
from fairlead.adapters.postgres.worker_sessions import PostgresSessionStore
from fairlead.engine.ports import ClaimFilter, Completed, Job, NewJob, ProcessIdentity
from fairlead.testing._kit.ids import CountedIds

KIND = "noop"
CLAIM_FILTER = ClaimFilter(kinds=(KIND,))
TEND_EVERY_S = 1.0
"""How often floors are raised, as a service of each process does."""
BACKLOG = """
INSERT INTO job (job_id, kind, tenant_id, run_at)
SELECT gen_random_uuid(), $1, 't' || i % $2::integer, now() - interval '1 hour' + i * interval '1 ms'
FROM generate_series(1, $3::integer) AS i
"""
LANES = """
SELECT lane_touch(array_agg(lane_id), array_agg(run_at)) FROM (
    SELECT lane_id, min(run_at) AS run_at FROM job WHERE state = 'available' GROUP BY lane_id) AS waiting
"""


@dataclass(slots=True)
class Queue:
    """The stores and the session of a queue, created by `queue`."""

    database: Database
    session_id: UUID
    ids: CountedIds = field(default_factory=CountedIds)
    jobs: PostgresJobStore = field(init=False)
    lanes: PostgresLaneStore = field(init=False)
    _tended_mono: float = 0.0

    def __post_init__(self) -> None:
        self.jobs = PostgresJobStore(self.database, self.ids, notify=False)
        self.lanes = PostgresLaneStore(self.database, notify=False)

    async def enqueue(self, tenants: Sequence[str], **fields: Any) -> list[UUID]:
        """Store one job for each of *tenants*, with the same *fields*, and return their ids."""
        return await self.store([self.job(tenant, **fields) for tenant in tenants])

    def job(self, tenant: str, **fields: Any) -> NewJob:
        """Build a job to store."""
        return NewJob(self.ids.uuid7(), KIND, tenant, **fields)

    async def store(self, jobs: Sequence[NewJob]) -> list[UUID]:
        """Store *jobs* and return their ids."""
        for start in range(0, len(jobs), 1000):
            await self.jobs.enqueue(jobs[start : start + 1000])
        return [job.job_id for job in jobs]

    async def claim(self, demand: int) -> list[Job]:
        """Claim up to *demand* jobs."""
        return await self.jobs.claim(CLAIM_FILTER, demand, self.session_id)

    async def done(self, jobs: Sequence[Job]) -> None:
        """Complete *jobs*, and raise the floors if that is due, as a service does each second."""
        await self.jobs.acknowledge([Completed(job.job_id, job.lease_id) for job in jobs])
        if time.monotonic() >= self._tended_mono + TEND_EVERY_S:
            self._tended_mono = time.monotonic()
            await self.lanes.raise_floors(0.0)

    async def served(self, most: int, demand: int) -> list[Job]:
        """Claim and complete up to *most* jobs, and return them in the order of their claims."""
        jobs: list[Job] = []
        while len(jobs) < most and (batch := await self.claim(min(demand, most - len(jobs)))):
            await self.done(batch)
            jobs += batch
        return jobs


@asynccontextmanager
async def queue(
    server_url: str, name: str, backlog: tuple[int, int] = (0, 0), connections: int = 8
) -> AsyncIterator[Queue]:
    """Yield a queue in a database of its own. *backlog*: the number of jobs, and of their tenants."""
    async with fresh_database(server_url, name) as url:
        settings = DatabaseSettings(dsn=url, max_size=connections)
        await Migrator(settings).apply()
        jobs, tenants = backlog
        if jobs:
            async with connected(url) as connection:
                await connection.execute("SET jit = off")
                await connection.execute(BACKLOG, KIND, tenants, jobs)
                await connection.execute(LANES)
        await settle(url)
        database = await Database.open(settings)
        try:
            yield Queue(database, await _session(database))
        finally:
            await database.close()


async def _session(database: Database) -> UUID:
    ids = CountedIds(start=1_000_000)
    session_id = ids.uuid7()
    identity = ProcessIdentity("bench", "boot", "pid:[1]", 1, "1")
    await PostgresSessionStore(database, ids).open(session_id, identity, 3600.0, "1")
    return session_id
