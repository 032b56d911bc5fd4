"""Everything works behind a pooler in transaction mode, where only polling tells of new work (Q13).

Through a strict one of our own always, and through PgBouncer where it is installed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import asyncpg
import pytest

from fairlead import Fairlead
from fairlead.adapters.postgres.connection_setup import DatabaseSettings, quoted
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.jobs import PostgresJobStore
from fairlead.adapters.postgres.lanes import PostgresLaneStore
from fairlead.adapters.postgres.migrate import Migrator
from fairlead.adapters.postgres.worker_sessions import PostgresSessionStore
from fairlead.assembly.config import load
from fairlead.engine.jobs.handler import JobContext
from fairlead.engine.ports import ClaimFilter, Completed, ProcessIdentity, Rescheduled, TenantShare
from fairlead.errors import InvalidConfigError
from fairlead.policy.jobs.lane import Scope, ScopeKind
from fairlead.testing.issuer import Issuer, IssuerConfig, ProviderConfig
from tests.support.databases import SCHEMA
from tests.support.engine import IDS, new_job
from tests.support.pooler import TransactionPooler, pgbouncer, strict_pooler
from tests.support.rows import rows
from tests.support.tools import needs

pytestmark = pytest.mark.slow

POOLERS = {"strict": strict_pooler, "pgbouncer": pgbouncer}


@dataclass(frozen=True, slots=True)
class Pooled:
    """A database behind a pooler. *strict*: ours, and what it noted."""

    settings: DatabaseSettings
    strict: TransactionPooler | None


@pytest.fixture(params=["strict", pytest.param("pgbouncer", marks=needs("pgbouncer"))])
async def pooled(
    request: pytest.FixtureRequest, database_settings: DatabaseSettings
) -> AsyncIterator[Pooled]:
    """No role and no database has a search_path: names are qualified before they are sent."""
    async with POOLERS[request.param](database_settings.dsn) as (strict, url):
        yield Pooled(replace(database_settings, dsn=url, transaction_pooler=True), strict)
        if strict is not None:
            assert strict.of_a_session == []
            assert strict.refused == []
            assert strict.transactions > 3


@pytest.fixture
async def database(pooled: Pooled) -> AsyncIterator[Database]:
    opened = await Database.open(pooled.settings)
    yield opened
    await opened.close()


async def test_the_strict_pooler_tells_who_relies_on_a_session(database_settings: DatabaseSettings) -> None:
    """Ablation: a connection that does not know of the pooler."""
    async with strict_pooler(database_settings.dsn) as (strict, url):
        with pytest.raises(asyncpg.PostgresError, match="unsupported startup parameter"):
            await asyncpg.connect(url, server_settings={"search_path": "public"})
        connection = await asyncpg.connect(url)
        await connection.execute("SET work_mem = '5MB'")
        await connection.execute("LISTEN somewhere")
        await connection.fetch("SELECT $1::integer", 1)
        with pytest.raises(asyncpg.PostgresError, match="does not exist"):
            await connection.fetch("SELECT $1::integer", 1)  # it was prepared elsewhere
        connection.terminate()
        assert strict.refused == ["search_path"]
        assert len(strict.of_a_session) >= 3


async def test_migrations_are_read_through_a_pooler_and_applied_past_it(
    database_settings: DatabaseSettings,
) -> None:
    async with strict_pooler(database_settings.dsn) as (strict, url):
        pooled = Migrator(replace(database_settings, dsn=url, transaction_pooler=True))
        assert await pooled.plan() == []
        assert strict.refused == []
        with pytest.raises(InvalidConfigError, match="with the DATABASE_URL of the server itself"):
            await pooled.apply()


# ---- stores ----------------------------------------------------------------------------------------


async def test_jobs_lanes_and_sessions(database: Database) -> None:
    jobs, lanes = PostgresJobStore(database, IDS, notify=False), PostgresLaneStore(database, notify=False)
    sessions = PostgresSessionStore(database, IDS)
    mine, other = IDS.uuid7(), IDS.uuid7()
    for number, session_id in enumerate((mine, other)):
        identity = ProcessIdentity("here", "boot", "pid:[1]", number, "5")
        await sessions.open(session_id, identity, 30.0, "1")
    await lanes.set_tenant(TenantShare("a", max_running=2))
    await jobs.enqueue([new_job(tenant_id=name, group_key="g") for name in "aaaabbbb"])
    await lanes.pause(Scope(ScopeKind.TENANT, "b"), None, reason="test", by="test")

    jobs_claimed = await jobs.claim(ClaimFilter(), 10, other)
    assert [job.tenant_id for job in jobs_claimed] == ["a", "a"]
    assert await sessions.heartbeat(other)
    outcomes = [
        Completed(jobs_claimed[0].job_id, jobs_claimed[0].lease_id),
        Rescheduled(jobs_claimed[1].job_id, jobs_claimed[1].lease_id, 0.0),
    ]
    assert len(await jobs.acknowledge(outcomes)) == 2  # two statements in one transaction
    await lanes.resume(Scope(ScopeKind.TENANT, "b"))
    jobs_claimed = await jobs.claim(ClaimFilter(), 10, other)
    assert sorted(job.tenant_id for job in jobs_claimed) == list("aabbbb")

    await sessions.mark_dead([other])
    rescued = await sessions.rescue(mine, 0.0, 3, 100)
    assert rescued is not None
    assert rescued.rescued == 6
    suspect = await jobs.claim_suspect(ClaimFilter(), mine)
    assert suspect is not None
    assert await jobs.start_suspect(suspect.job_id, suspect.lease_id)
    swept = await lanes.sweep(0.0)
    assert swept is not None
    await lanes.raise_floors(0.0)
    await lanes.age(0.0)
    assert (await jobs.counts())["completed"] == 1


async def test_many_at_once(database: Database) -> None:
    """More clients than server connections, in transactions of one statement and of several."""
    jobs, sessions = PostgresJobStore(database, IDS, notify=False), PostgresSessionStore(database, IDS)
    session_id = IDS.uuid7()
    await sessions.open(session_id, ProcessIdentity("here", "boot", "pid:[1]", 1, "5"), 30.0, "1")

    async def work(number: int) -> int:
        await jobs.enqueue([new_job(tenant_id=f"t{number}") for _ in range(20)])
        done = 0
        while jobs_claimed := await jobs.claim(ClaimFilter(), 5, session_id):
            done += len(await jobs.acknowledge([Completed(job.job_id, job.lease_id) for job in jobs_claimed]))
        return done

    done = sum(await asyncio.gather(*(work(number) for number in range(6))))
    done += await work(6)  # what the others left to each other
    assert done == 140


# ---- a whole process -------------------------------------------------------------------------------

SETTINGS = """
home = "{home}"
http.allow_private_addresses = true
refresh.cooldown_s = 0
worker.poll_s = 0.05
worker.lease_s = 3
schedules.refresh_scan = "@every 1s"
schedules.urgent_scan = "@every 1s"

[providers.mercadolibre]
client_id = "app"
client_secret = "s3cret"

[providers.mercadolibre.overlay]
allow_http = true
endpoints.token = "{url}/mercadolibre/token"
"""


async def test_a_process_works_polls_and_refreshes(pooled: Pooled, tmp_path: Path) -> None:
    ran: asyncio.Queue[str] = asyncio.Queue()
    played = {"mercadolibre": ProviderConfig(policy="strict", dialect="mercadolibre")}
    async with AsyncExitStack() as stack:
        issuer = await stack.enter_async_context(Issuer(IssuerConfig(providers=played)))
        fl = await stack.enter_async_context(_fairlead(pooled, issuer, tmp_path, ran))
        grant = issuer.register("mercadolibre", "acme")
        tokens = {"access_token": grant.access_token, "refresh_token": grant.refresh_token}
        await fl.connections.upsert("acme", "mercadolibre", **tokens, expires_in_s=0)
        working = asyncio.create_task(fl.run())
        async with asyncio.timeout(30):
            await fl.enqueue("greet", {"name": "Ada"}, tenant="acme")
            assert await ran.get() == "Ada"
            while (await fl.token("acme", "mercadolibre")).generation == 1:
                await asyncio.sleep(0.02)
            while not await rows(fl.runtime.database, f"SELECT FROM {quoted(SCHEMA)}.schedule_run"):
                await asyncio.sleep(0.02)
        fl.stop()
        await working
        token = (await fl.token("acme", "mercadolibre")).access_token.reveal()
        assert token == issuer.grant("mercadolibre", "acme").access_token


def _fairlead(pooled: Pooled, issuer: Issuer, folder: Path, ran: asyncio.Queue[str]) -> Fairlead:
    file = folder / "fairlead.toml"
    file.write_text(SETTINGS.format(home=folder / "home", url=issuer.url))
    environ = {
        "DATABASE_URL": pooled.settings.dsn,
        "FAIRLEAD_DATABASE__POOLER": "true",
        "FAIRLEAD_DATABASE__SCHEMA_NAME": SCHEMA,
        "FAIRLEAD_MASTER_KEY": "k1:" + "0123456789abcdef" * 4,
    }
    fl = Fairlead(load(environ, file))

    @fl.job("greet")
    async def greet(context: JobContext) -> None:
        await ran.put(str(context.args["name"]))

    return fl
