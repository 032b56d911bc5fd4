"""E47: a backlog is worked off to its end, and what it costs to find the next job does not depend on it (Q2).

Now and then somebody new asks for something urgent: the very next claim brings it, whatever waits before it.
One loop claims and completes, so that claims are measured and not their waiting for each other.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TypeVar
from uuid import UUID

import pytest

from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.jobs import PostgresJobStore
from fairlead.adapters.postgres.lanes import PostgresLaneStore
from fairlead.adapters.postgres.statements import statement
from fairlead.engine.ports import ClaimFilter, Completed, Job, NewJob
from fairlead.policy.jobs.job import Priority
from fairlead.testing._kit.ids import CountedIds
from tests.faults.support.report import Figures, quantiles, sized
from tests.support.plans import explained
from tests.support.rows import rows, run
from tests.support.seeds import a_session, waiting_jobs

pytestmark = pytest.mark.slow

JOBS, TENANTS = sized((30_000, 500), (1_000_000, 10_000))
ABLATION_JOBS, ABLATION_TENANTS = 3_000, 50
BATCH = 100
T = TypeVar("T")
URGENT_EVERY = sized(20, 100)  # claims
LOOK_EVERY = sized(10, 50)  # claims of which the buffers are counted
TEND_EVERY_S = 1.0  # as the service does
SIZES = """
SELECT relname::text AS name, pg_relation_size(oid) / 1048576.0 AS mib FROM pg_class
WHERE relname IN ('job', 'job_pkey', 'job_lane_idx', 'lane', 'lane_ready_idx')
"""


@dataclass
class _Drain:
    """Claims until nothing is left. *urgent*: the priority of what is asked for on the way."""

    database: Database
    session_id: UUID
    urgent: Priority
    ids: CountedIds = field(default_factory=CountedIds)
    jobs: int = 0
    claim_s: list[float] = field(default_factory=list)
    looks: list[tuple[int, int]] = field(default_factory=list)  # buffers and jobs of a claim
    behind: list[int] = field(default_factory=list)  # how many jobs came before an urgent one

    async def run(self) -> None:
        self._store = PostgresJobStore(self.database, self.ids, notify=False)
        lanes = PostgresLaneStore(self.database)
        tended_s = time.monotonic()
        for turn in count():
            if time.monotonic() >= tended_s + TEND_EVERY_S:
                tended_s = time.monotonic()
                await lanes.raise_floors(0.0)
            if turn % LOOK_EVERY == 0:
                jobs = await self._look(turn)
            elif turn % URGENT_EVERY == 1:
                jobs = await self._urgent(turn)
            else:
                jobs = await self._claim()
            if not jobs:
                break
            await self._store.acknowledge([Completed(job_id, lease_id) for job_id, lease_id in jobs])
            self.jobs += len(jobs)

    async def _claim(self) -> list[tuple[UUID, int]]:
        return [(job.job_id, job.lease_id) for job in await self._timed()]

    async def _timed(self) -> list[Job]:
        began_s = time.perf_counter()
        jobs = await self._store.claim(ClaimFilter(), BATCH, self.session_id)
        self.claim_s.append(time.perf_counter() - began_s)
        return jobs

    async def _urgent(self, turn: int) -> list[tuple[UUID, int]]:
        """Somebody who was never here before; how many jobs of others are before his."""
        mine = NewJob(self.ids.uuid7(), "work", f"new {turn}", priority=self.urgent)
        await self._store.enqueue([mine])
        jobs = await self._timed()
        order = [job.job_id for job in jobs]
        self.behind.append(order.index(mine.job_id) if mine.job_id in order else len(order))
        return [(job.job_id, job.lease_id) for job in jobs]

    async def _look(self, seed: int) -> list[tuple[UUID, int]]:
        """A claim whose buffers are counted."""
        claimer = {"session_id": self.session_id, "lease_seed": seed}
        filters = {"queues": ["default"], "kinds": [], "providers": [], "demand": BATCH, "wake": False}
        plan = await explained(self.database, "job_claim", keep=True, **claimer, **filters)
        jobs = await self.database.fetch(statement("job_claimed"), **claimer)
        if jobs:
            self.looks.append((plan.buffers, len(jobs)))
        return [(row["job_id"], row["lease_id"]) for row in jobs]


async def _experiment(
    settings: DatabaseSettings, figures: Figures, jobs: int, tenants: int, urgent: Priority
) -> _Drain:
    timeouts = {"statement_timeout_s": 900.0, "command_timeout_s": 900.0}  # to store so many at once
    database = await Database.open(replace(settings, **timeouts))
    try:
        await waiting_jobs(database, jobs, tenants)
        await run(database, "ANALYZE")
        drain = _Drain(database, await a_session(database), urgent)
        sizes = {"full": await _sizes(database)}
        began_s = time.monotonic()
        await drain.run()
        figures.note(
            n=drain.jobs, tenants=tenants, jobs_per_s=round(drain.jobs / (time.monotonic() - began_s))
        )
        figures.note(index_mib=sizes | {"drained": await _sizes(database)})
        [remaining] = await rows(database, "SELECT count(*) AS jobs FROM job WHERE state <> 'completed'")
    finally:
        await database.close()
    figures.note(claim_ms=quantiles(drain.claim_s, 1000, 2), urgent_behind=max(drain.behind))
    figures.zero(left=remaining["jobs"])
    figures.holds(max(drain.behind) == 0, "what is urgent is the next one")
    return drain


async def _sizes(database: Database) -> dict[str, float]:
    return {row["name"]: round(float(row["mib"]), 1) for row in await rows(database, SIZES)}


def _tenths(values: list[T]) -> tuple[list[T], list[T]]:
    """The first and the last tenth, without the very first: that claim reads the catalogs too."""
    tenth = max(2, len(values) // 10)
    return values[1 : tenth + 1], values[-tenth:]


async def test_E47_backlog(database_settings: DatabaseSettings) -> None:
    figures = Figures("E47")
    drain = await _experiment(database_settings, figures, JOBS, TENANTS, Priority.CRITICAL)
    first_s, last_s = _tenths(drain.claim_s)
    figures.note(first_tenth_ms=quantiles(first_s, 1000, 2), last_tenth_ms=quantiles(last_s, 1000, 2))
    first, last = (sum(b for b, _ in part) / sum(jobs for _, jobs in part) for part in _tenths(drain.looks))
    figures.note(buffers_per_job=[round(first, 1), round(last, 1)])
    figures.holds(last <= 1.5 * first, "buffers of a claim: last tenth <= 1.5 x the first")
    figures.conclude()


async def test_E47_ablation_one_class(database_settings: DatabaseSettings) -> None:
    """What is urgent is asked for like everything else: it has its turn, not the next one."""
    figures = Figures("E47", ablation="one_class", sees="urgent")
    await _experiment(database_settings, figures, ABLATION_JOBS, ABLATION_TENANTS, Priority.NORMAL)
    figures.conclude()
