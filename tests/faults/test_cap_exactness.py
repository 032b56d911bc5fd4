"""Caps are exact: of a tenant, of its group, and of a group that all tenants share (Q6).

Eight claimers take jobs of all queues, classes and tenants at once, hold them for a while and end them in
every way. Some die: in the middle of a claim, or with jobs in their hands, which are rescued; what the dead
still say counts for nothing. The database itself writes the log that is judged: a line for each job that
begins or ends to run, at the end of the transaction that did it. Whoever saw a place as free wrote his own
line after the one that freed it, so a place that is taken twice shows in the order of the lines, and nothing
else does. Besides, somebody counts again and again what runs at one moment.

FAIRLEAD_CAP_CLAIMS sets how many jobs are claimed.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from random import Random
from uuid import UUID

import pytest

from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.jobs import PostgresJobStore
from fairlead.adapters.postgres.lanes import PostgresLaneStore
from fairlead.adapters.postgres.worker_sessions import PostgresSessionStore
from fairlead.engine.ports import (
    Cancelled,
    ClaimFilter,
    Completed,
    FailureRecord,
    GroupCap,
    Job,
    NewJob,
    Outcome,
    ProcessIdentity,
    Rescheduled,
    TenantShare,
)
from fairlead.errors import DependencyUnavailableError
from fairlead.testing._kit.ids import CountedIds
from tests.faults.support.report import Figures, sized
from tests.support.raw_connections import raw_connection
from tests.support.rows import rows, run

pytestmark = pytest.mark.slow

CLAIMS = int(os.environ.get("FAIRLEAD_CAP_CLAIMS") or sized(5_000, 100_000))
ABLATION_CLAIMS = 2_000
CLAIMERS = 8
BACKLOG = 3_000
WHERE = ClaimFilter(queues=("default", "mail"))
PRIORITIES = (1, 2)
TENANTS = {"one": 1, "few": 8, "many": 40, "free": None}
GROUPS = {("few", "own"): 3, ("many", "own"): 12, (None, "shared"): 30, (None, "single"): 1}
TENANTS_DRAWN = {"one": 2, "few": 18, "many": 50, "free": 30}  # so often
KEYS_DRAWN = {"": 40, "own": 18, "shared": 40, "single": 2}
CRASH = 0.01

LOG = """
CREATE UNLOGGED TABLE cap_log (
    place bigserial, begins boolean NOT NULL, tenant_id text NOT NULL, group_key text NOT NULL
);
CREATE FUNCTION cap_noted() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO cap_log (begins, tenant_id, group_key)
    VALUES (NEW.state = 'running', NEW.tenant_id, NEW.group_key);
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER cap_noted AFTER UPDATE OF state ON job DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN ((OLD.state = 'running') <> (NEW.state = 'running')) EXECUTE FUNCTION cap_noted();
"""
JUDGED = """
SELECT cap, max_running, max(running) AS most, count(*) FILTER (WHERE begins) AS begun,
    count(*) FILTER (WHERE begins AND running > max_running) AS over
FROM (
    SELECT c.tenant_id || '/' || c.group_key AS cap, c.max_running, l.begins,
        sum(CASE WHEN l.begins THEN 1 ELSE -1 END)
            OVER (PARTITION BY c.tenant_id, c.group_key ORDER BY l.place) AS running
    FROM concurrency_cap c JOIN cap_log l ON c.tenant_id IN ('', l.tenant_id) AND c.group_key IN ('', l.group_key)
) AS line GROUP BY cap, max_running
"""
OVER = """
SELECT c.tenant_id, c.group_key, c.max_running, count(*) AS running
FROM concurrency_cap c JOIN job j ON j.state = 'running' AND c.tenant_id IN ('', j.tenant_id)
    AND c.group_key IN ('', j.group_key)
GROUP BY c.tenant_id, c.group_key HAVING count(*) > c.max_running
"""


@dataclass
class _Fleet:
    """Claimers over one database, until *most* jobs were claimed."""

    database: Database
    figures: Figures
    most: int
    ablated: bool = False
    ids: CountedIds = field(default_factory=CountedIds)
    claimed: int = 0
    stored: int = 0
    told: Counter[str] = field(default_factory=Counter)
    _pids: int = 0

    def __post_init__(self) -> None:
        self._desk = PostgresJobStore(self.database, self.ids, notify=False)
        self._sessions = PostgresSessionStore(self.database, self.ids)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            others = [group.create_task(self._feed()), group.create_task(self._count())]
            claimers = [
                group.create_task(self._claim(Random(self.figures.draw.random()))) for _ in range(CLAIMERS)
            ]
            await asyncio.gather(*claimers)
            for other in others:
                other.cancel()

    async def _feed(self) -> None:
        draw = Random(self.figures.draw.random())
        while True:
            if self.stored - self.claimed < BACKLOG:
                await self._desk.enqueue([self._job(draw) for _ in range(500)])
                self.stored += 500
            await asyncio.sleep(0.01)

    def _job(self, draw: Random) -> NewJob:
        return NewJob(
            self.ids.uuid7(),
            "work",
            *draw.choices(list(TENANTS_DRAWN), list(TENANTS_DRAWN.values())),
            queue=draw.choice(WHERE.queues),
            priority=draw.choice(PRIORITIES),
            group_key=draw.choices(list(KEYS_DRAWN), list(KEYS_DRAWN.values()))[0],
        )

    async def _count(self) -> None:
        """What is over its cap at one moment, all the time."""
        while True:
            self.told["over_at_a_moment"] += len(await rows(self.database, OVER))
            self.told["looks"] += 1
            await asyncio.sleep(0.01)

    # ---- one claimer

    async def _claim(self, draw: Random) -> None:
        session_id, jobs_held = await self._begin(), list[Job]()
        jobs = PostgresJobStore(self.database, self.ids, notify=False)
        while self.claimed < self.most:
            if draw.random() < CRASH:
                await self._die(jobs, session_id, jobs_held, draw)
                session_id, jobs_held = await self._begin(), []
                jobs = PostgresJobStore(self.database, self.ids, notify=False)
            jobs_claimed = await self._taken(jobs, draw.randint(1, 40), session_id)
            suspect = await jobs.claim_suspect(WHERE, session_id) if draw.random() < 0.1 else None
            if suspect is not None:
                await jobs.start_suspect(suspect.job_id, suspect.lease_id)
                jobs_claimed.append(suspect)
            self.claimed += len(jobs_claimed)
            jobs_held += jobs_claimed
            draw.shuffle(jobs_held)
            kept_count = draw.choice([0, 0, draw.randint(0, len(jobs_held))])
            jobs_held, ending = jobs_held[:kept_count], jobs_held[kept_count:]
            accepted = await jobs.acknowledge([_outcome(job, draw) for job in ending])
            self.told["own_refused"] += len(ending) - len(accepted)
            if not jobs_claimed:
                await asyncio.sleep(0.01)

    async def _taken(self, jobs: PostgresJobStore, demand: int, session_id: UUID) -> list[Job]:
        """Claim jobs. Without the lock of a cap two claims may wait for each other, and neither gets any."""
        try:
            return list(await jobs.claim(WHERE, demand, session_id))
        except DependencyUnavailableError:
            if not self.ablated:
                raise
            return []

    async def _begin(self) -> UUID:
        self._pids += 1
        session_id = self.ids.uuid7()
        identity = ProcessIdentity("host", "boot", "pid:[1]", self._pids, "1")
        await self._sessions.open(session_id, identity, 3600.0, "1")
        return session_id

    async def _die(
        self, jobs: PostgresJobStore, session_id: UUID, jobs_held: Sequence[Job], draw: Random
    ) -> None:
        """In a claim, or between two; what it still says after it was rescued counts for nothing."""
        claim = asyncio.create_task(jobs.claim(WHERE, 20, session_id))
        await asyncio.sleep(draw.choice([0.0, 0.001, 0.005]))
        claim.cancel()
        with suppress(asyncio.CancelledError):
            jobs_held = [*jobs_held, *await claim]
        heir = await self._begin()
        await self._sessions.mark_dead([session_id])
        rescue = await self._sessions.rescue(heir, 0.0, 100, 1000)
        self.told["crashes"] += 1
        self.told["rescued"] += rescue.rescued if rescue else 0
        accepted = await jobs.acknowledge([Completed(job.job_id, job.lease_id) for job in jobs_held])
        self.told["late_accepted"] += len(accepted)
        await self._sessions.close(heir)


def _outcome(job: Job, draw: Random) -> Outcome:
    chance = draw.random()
    if chance < 0.1:
        return Rescheduled(job.job_id, job.lease_id, 0.0)
    if chance < 0.2:
        failure = FailureRecord("transient_server", "boom", "it failed", 0.1, job.attempt)
        return Rescheduled(job.job_id, job.lease_id, 0.01, failure, {})
    if chance < 0.25:
        return Cancelled(job.job_id, job.lease_id, "not wanted")
    return Completed(job.job_id, job.lease_id)


# ---- the judgement


async def _judge(database: Database, figures: Figures) -> None:
    caps = await rows(database, JUDGED)
    [lines] = await rows(database, "SELECT count(*) AS begun FROM cap_log WHERE begins")
    figures.note(n=lines["begun"])
    figures.note(most={row["cap"]: [row["most"], row["max_running"], row["begun"]] for row in caps})
    figures.zero(violations=int(sum(row["over"] for row in caps)))
    figures.zero(
        never_full=len(TENANTS) - 1 + len(GROUPS) - sum(row["most"] >= row["max_running"] for row in caps)
    )


async def _experiment(settings: DatabaseSettings, figures: Figures, claims: int, *ablated: str) -> _Fleet:
    timeouts = {"statement_timeout_s": 600.0, "command_timeout_s": 600.0}  # for the judgement
    database = await Database.open(replace(settings, max_size=CLAIMERS + 3, **timeouts))
    try:
        await _prepare(database)
        for sql in ablated:
            await run(database, sql)
        fleet = _Fleet(database, figures, claims, bool(ablated))
        began_s = time.monotonic()
        await fleet.run()
        figures.note(claimers=CLAIMERS, claims_per_s=round(fleet.claimed / (time.monotonic() - began_s)))
        figures.note(crashes=fleet.told["crashes"], rescued=fleet.told["rescued"], looks=fleet.told["looks"])
        figures.zero(over_at_a_moment=fleet.told["over_at_a_moment"])
        await _judge(database, figures)
    finally:
        await database.close()
    return fleet


async def _prepare(database: Database) -> None:
    async with raw_connection(database) as connection:
        await connection.execute(LOG)
    lanes = PostgresLaneStore(database)
    for tenant_id, most in TENANTS.items():
        await lanes.set_tenant(TenantShare(tenant_id, max_running=most))
    for (tenant_id_or_none, key), most in GROUPS.items():
        await lanes.set_group_cap(GroupCap(key, tenant_id_or_none, most))


async def test_caps_are_exact(database_settings: DatabaseSettings) -> None:
    figures = Figures("CAPS")
    fleet = await _experiment(database_settings, figures, CLAIMS)
    figures.zero(own_refused=fleet.told["own_refused"], late_accepted=fleet.told["late_accepted"])
    figures.conclude()


async def test_caps_ablation_no_lock(database_settings: DatabaseSettings, database: Database) -> None:
    """What runs is counted without holding the row of the cap."""
    [counts] = await rows(database, "SELECT pg_get_functiondef('lane_places'::regproc) AS sql")
    locks = "FOR UPDATE SKIP LOCKED"
    assert locks in counts["sql"]
    figures = Figures("CAPS", ablation="no_lock", sees="violations")
    await _experiment(database_settings, figures, ABLATION_CLAIMS, counts["sql"].replace(locks, ""))
    figures.conclude()
