"""Work that goes on beside something, and a report that is read within one long transaction."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.jobs import PostgresJobStore
from fairlead.engine.ports import ClaimFilter, Completed
from tests.support.engine import IDS, new_job
from tests.support.notes import sql
from tests.support.seeds import a_session
from tests.support.standstill import all_ran_s

TENANTS = ("acme", "globex", "initech")


@dataclass
class Beside:
    """What was done meanwhile."""

    done: int = 0
    rounds: list[tuple[float, float]] = field(default_factory=list)
    """Each of one tenant: jobs stored, claimed, acknowledged and looked for."""

    @property
    def longest_s(self) -> float:
        """The longest of them."""
        return max(all_ran_s(self.rounds))


@asynccontextmanager
async def at_work(database: Database) -> AsyncIterator[Beside]:
    """Enqueue and run jobs of some tenants during the block. Raise the error of a statement."""
    jobs, session_id = PostgresJobStore(database, IDS, notify=False), await a_session(database)
    beside, over = Beside(), False

    async def work(tenant: str) -> None:
        while not over or not beside.done:
            began_s = time.monotonic()
            await jobs.enqueue([new_job(tenant_id=tenant) for _ in range(5)])
            claimed_jobs = await jobs.claim(ClaimFilter(), 5, session_id)
            accepted = await jobs.acknowledge([Completed(job.job_id, job.lease_id) for job in claimed_jobs])
            beside.done += len(accepted)
            await jobs.search(state=None, kind=None, tenant_id=tenant, queue=None, limit=3)
            beside.rounds.append((began_s, time.monotonic()))

    async with asyncio.TaskGroup() as group:
        for tenant in TENANTS:
            group.create_task(work(tenant))
        yield beside
        over = True


@asynccontextmanager
async def a_long_report(settings: DatabaseSettings, reads_s: float) -> AsyncIterator[None]:
    """Read the table of jobs within one transaction until *reads_s* have passed."""
    eyes = await Database.open(settings)

    async def read() -> None:
        async with eyes.transaction() as reading:
            await reading.fetch(sql("SELECT count(*) FROM job"))
            started.set()
            await asyncio.sleep(reads_s)

    started = asyncio.Event()
    reading = asyncio.create_task(read())
    await started.wait()
    try:
        yield
    finally:
        await reading
        await eyes.close()
