"""Who may see what: row-level security, users that are no superusers, an audit trail that grows (R35)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from urllib.parse import urlsplit

import asyncpg
import pytest

from fairlead._core.ids import uuid7_from
from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.local.system import SystemIds
from fairlead.adapters.postgres.audit import PostgresAuditStore
from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.dead_letters import PostgresDeadLetterStore
from fairlead.adapters.postgres.jobs import PostgresJobStore
from fairlead.adapters.postgres.lanes import PostgresLaneStore
from fairlead.adapters.postgres.migrate import Migrator
from fairlead.adapters.postgres.postgres_info import server_facts
from fairlead.adapters.postgres.worker_sessions import PostgresSessionStore
from fairlead.assembly.doctor.database_checks import row_security_check
from fairlead.engine.ports import (
    AuditRecord,
    ClaimFilter,
    Completed,
    Discarded,
    FailureRecord,
    GroupCap,
    TenantShare,
    Tier,
)
from fairlead.policy.jobs.lane import Scope, ScopeKind
from tests.contract.stores import identity
from tests.support.databases import settings_of, without_public
from tests.support.engine import new_job
from tests.support.plans import explained
from tests.support.raw_connections import raw_connection
from tests.support.rows import rows, run
from tests.support.seeds import a_session
from tests.support.servers import drop_database, fresh_database, running_servers
from tests.support.two_tenants import TABLES

IDS = SystemIds()
ANY = ClaimFilter()
FAILURE = FailureRecord("transient_server", "boom", "it failed", 0.5, 1)
READER_TABLES = ["audit", "connection", "credential", "dead_letter", "job", "refresh_attempt"]


TENANT_ROWS = """
WITH c AS (
    INSERT INTO connection (connection_id, tenant_id, provider) VALUES (gen_random_uuid(), $1, 'p')
    RETURNING *
), s AS (
    INSERT INTO credential (connection_id, tenant_id, provider, account, sealed, key_id, refreshable)
    SELECT connection_id, tenant_id, provider, account, '', gen_random_uuid(), true FROM c
), r AS (
    INSERT INTO refresh_attempt
        (connection_id, tenant_id, attempt_id, from_generation, epoch, phase, session_id, lease_until)
    SELECT connection_id, tenant_id, gen_random_uuid(), 1, 1, 'intent', gen_random_uuid(), now() FROM c
)
INSERT INTO data_key (key_id, tenant_id, master_id, wrapped) VALUES (gen_random_uuid(), $1, 'm', '')
"""


async def as_reader(database: Database, tenant: str | None, sql: str) -> list[dict[str, object]]:
    """The rows of *sql* as fairlead_reader sees them for *tenant*."""
    async with (
        raw_connection(database) as connection,
        connection.transaction(isolation="read_committed"),
    ):
        if tenant is not None:
            await connection.fetch("SELECT set_config('fairlead.tenant_id', $1, true)", tenant)
        await connection.execute("SET LOCAL ROLE fairlead_reader")
        return [dict(row.items()) for row in await connection.fetch(sql)]


async def two_tenants(database: Database) -> None:
    """A job, a dead letter, an audit record, a connection with a secret and a rotation for each of two."""
    jobs, session_id = PostgresJobStore(database, IDS), await a_session(database)
    for tenant in ("acme", "globex"):
        await jobs.enqueue([new_job(tenant_id=tenant), new_job(tenant_id=tenant, delay_s=60.0)])
        (job,) = await jobs.claim(ANY, 1, session_id)
        await jobs.acknowledge([Discarded(job.job_id, job.lease_id, IDS.uuid7(), FAILURE)])
        await PostgresAuditStore(database).append([AuditRecord(IDS.uuid7(), "act", "x", tenant)])
        await run(
            database,
            TENANT_ROWS,
            tenant,
        )


async def test_every_table_of_tenants_is_guarded(database: Database) -> None:
    rows_found = await rows(
        database,
        "SELECT c.relname::text AS name, relrowsecurity AND relforcerowsecurity AS guarded"
        " FROM pg_class c JOIN pg_attribute a ON attrelid = c.oid AND attname = 'tenant_id'"
        " WHERE relkind = 'r' AND relnamespace = quote_ident(current_schema())::regnamespace"
        " AND relname <> 'schedule' ORDER BY 1",
    )
    assert [row["name"] for row in rows_found] == list(TABLES)
    assert all(row["guarded"] for row in rows_found)


@pytest.mark.parametrize("table", READER_TABLES)
async def test_reader_sees_the_rows_of_its_tenant_only(database: Database, table: str) -> None:
    await two_tenants(database)
    tenants = f"SELECT DISTINCT tenant_id FROM {table} ORDER BY 1"
    assert [row["tenant_id"] for row in await rows(database, tenants)] == ["acme", "globex"]
    assert [row["tenant_id"] for row in await as_reader(database, "acme", tenants)] == ["acme"]
    assert await as_reader(database, "nobody", tenants) == []
    assert await as_reader(database, "", tenants) == []
    assert await as_reader(database, None, tenants) == []


@pytest.mark.parametrize("table", sorted(set(TABLES) - set(READER_TABLES)))
async def test_reader_may_not_read_keys(database: Database, table: str) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await as_reader(database, "acme", f"SELECT FROM {table}")


async def test_a_view_shows_the_reader_no_more_than_its_tables(database: Database) -> None:
    await two_tenants(database)
    query = "SELECT DISTINCT tenant_id FROM credential_detail"
    assert [row["tenant_id"] for row in await rows(database, query + " ORDER BY 1")] == ["acme", "globex"]
    with pytest.raises(
        asyncpg.InsufficientPrivilegeError
    ):  # it also reads who is alive, which is no tenant's
        await as_reader(database, "acme", query)


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE job SET priority = 0",
        "DELETE FROM dead_letter",
        "INSERT INTO job (job_id, kind, tenant_id) VALUES (gen_random_uuid(), 'k', 'acme')",
        "UPDATE credential SET state = 'revoked'",
        "SELECT FROM worker_session",
        "TRUNCATE job",
    ],
)
async def test_reader_changes_nothing(database: Database, sql: str) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await as_reader(database, "acme", sql)


@pytest.mark.parametrize("sql", ["UPDATE audit SET act = 'x'", "DELETE FROM audit", "TRUNCATE audit"])
async def test_the_audit_trail_only_grows_whoever_asks(database: Database, sql: str) -> None:
    await two_tenants(database)
    with pytest.raises(asyncpg.RaiseError, match="append-only"):
        await run(database, sql)
    assert len(await PostgresAuditStore(database).search(tenant=None, limit=9)) == 2


async def test_audit_records_come_newest_first_and_once(database: Database) -> None:
    audit = PostgresAuditStore(database)
    ids = [uuid7_from(1_800_000_000_000 + n, 0) for n in range(3)]
    records = [
        AuditRecord(ids[n], f"act {n}", "ann", "acme", "shopify", IDS.uuid7(), {"n": n, "bad": "\0"})
        for n in range(3)
    ]
    for record in (*records, records[0]):
        await audit.append([record])
    await audit.append([])
    for entries in (
        await audit.search(tenant=None, limit=9),
        await audit.search(tenant="acme", limit=9),
    ):
        assert [record.act for _, record in entries] == ["act 2", "act 1", "act 0"]
        assert entries[2][1] == replace(records[0], details={"n": 0, "bad": "\ufffd"})
    assert len(await audit.search(tenant="acme", limit=2)) == 2
    assert await audit.search(tenant="other", limit=2) == []


# ---- without a superuser ---------------------------------------------------------------------------


def login(url: str, user: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=f"{user}@{parts.netloc.rpartition('@')[2]}").geturl()


@pytest.fixture(params=["CREATEROLE", "NOCREATEROLE"])
async def owner(
    servers: Endpoints, migrated_url: str, request: pytest.FixtureRequest
) -> AsyncIterator[DatabaseSettings]:
    """A database migrated by its owner, who is no superuser; a DBA has granted the two roles beforehand."""
    admin = await asyncpg.connect(servers.database_url)
    url = await fresh_database(servers.database_url)
    await without_public(url)
    try:
        await admin.execute(f"CREATE ROLE shopkeeper LOGIN NOSUPERUSER {request.param}")
        await admin.execute("GRANT fairlead_engine, fairlead_reader TO shopkeeper")
        await admin.execute(f"ALTER DATABASE {urlsplit(url).path[1:]} OWNER TO shopkeeper")
        settings = settings_of(login(url, "shopkeeper"))
        await Migrator(settings).apply()
        yield settings
    finally:
        await drop_database(servers.database_url, url)
        await admin.execute("DROP ROLE IF EXISTS clerk")
        await admin.execute("DROP ROLE shopkeeper")
        await admin.close()


async def a_day_of_work(database: Database) -> None:
    """Every store does something that shows whether it sees its rows."""
    sessions, jobs = PostgresSessionStore(database, IDS), PostgresJobStore(database, IDS)
    session_id = IDS.uuid7()
    await sessions.open(session_id, identity(), 30.0, "1")
    await jobs.enqueue(
        [new_job(unique_key="k"), new_job(unique_key="k", priority=0), new_job(expires_in_s=60.0)]
    )
    done, dead = await jobs.claim(ANY, 9, session_id)
    record = Discarded(dead.job_id, dead.lease_id, IDS.uuid7(), FAILURE, action_in_s=0.0)
    accepted = await jobs.acknowledge([Completed(done.job_id, done.lease_id), record])
    assert accepted == {done.job_id, dead.job_id}
    entries = PostgresDeadLetterStore(database)
    assert await entries.redrive(record.dead_letter_id, new_job())
    assert len(await jobs.claim(ANY, 9, session_id)) == 1
    assert await sessions.rescue(session_id, 0.0, 3, 10) is not None
    await PostgresAuditStore(database).append([AuditRecord(IDS.uuid7(), "act", "x", "acme")])
    assert len(await PostgresAuditStore(database).search(tenant="acme", limit=9)) == 1
    assert await jobs.prune({"completed": 0.0}, 10) == 1
    await shares_of_a_day(PostgresLaneStore(database))
    await sessions.close(session_id)
    assert (await jobs.counts())["available"] == 1


async def shares_of_a_day(lanes: PostgresLaneStore) -> None:
    """What is set, held back and looked after."""
    assert await lanes.set_tier(Tier("gold", 2.0)) == 0
    await lanes.set_tenant(TenantShare("acme", tier="gold", max_running=1))
    await lanes.set_group_cap(GroupCap("g", None, 3))
    await lanes.pause(Scope(ScopeKind.TENANT, "acme"), None, reason="unpaid", by="ann")
    assert [pause.reason for pause in await lanes.pauses(9)] == ["unpaid"]
    (turn,) = await lanes.turns(queue=None, tenant_id="acme", limit=9)
    assert (turn.weight, turn.max_running, turn.waiting, turn.running) == (2.0, 1, 0, 1)
    assert await lanes.resume(Scope(ScopeKind.TENANT, "acme"))
    assert await lanes.explain(IDS.uuid7()) is None
    assert await lanes.raise_floors(0.0)
    assert await lanes.age(0.0) == 0
    assert await lanes.sweep(0.0) is not None
    assert await lanes.clear_group_cap("g", None)
    await lanes.set_tenant(TenantShare("acme"))
    assert await lanes.remove_tier("gold")


@pytest.fixture
def new_cluster() -> Iterator[Endpoints]:
    """A server that has never seen our roles, like a managed one on its first day."""
    with running_servers() as endpoints:
        yield endpoints


@pytest.mark.slow
async def test_an_owner_may_make_the_roles_itself(new_cluster: Endpoints) -> None:
    """From PostgreSQL 16 on who creates a role has not its rights, but may grant them to itself."""
    admin = await asyncpg.connect(new_cluster.database_url)
    await admin.execute("CREATE ROLE shopkeeper LOGIN NOSUPERUSER CREATEROLE CREATEDB")
    await admin.close()
    url = await fresh_database(login(new_cluster.database_url, "shopkeeper"))
    settings = settings_of(url)
    await Migrator(settings).apply()
    database = await Database.open(settings)
    await a_day_of_work(database)
    assert await as_reader(database, "acme", "SELECT DISTINCT tenant_id FROM job") == [{"tenant_id": "acme"}]
    await database.close()


@pytest.mark.slow
async def test_where_the_role_of_the_wall_cannot_be_made_it_is_told(new_cluster: Endpoints) -> None:
    """All goes on with the first wall alone; once a DBA has made the role, the owner raises the second."""
    admin = await asyncpg.connect(new_cluster.database_url)
    await admin.execute("CREATE ROLE fairlead_engine NOLOGIN")
    await admin.execute("CREATE ROLE fairlead_reader NOLOGIN")
    await admin.execute("CREATE ROLE shopkeeper LOGIN CREATEDB IN ROLE fairlead_engine, fairlead_reader")
    settings = settings_of(await fresh_database(login(new_cluster.database_url, "shopkeeper")))
    await Migrator(settings).apply()
    check = row_security_check((await server_facts(settings)).wall)
    assert check.detail.startswith("row-level security is off: there is no role fairlead_tenant")
    database = await Database.open(settings)
    assert not database.row_security_enabled
    await a_day_of_work(database)

    await admin.execute("CREATE ROLE fairlead_tenant NOLOGIN")
    assert not (await server_facts(settings)).wall.guarded
    await run(database, "CALL row_security_enable()")
    check = row_security_check((await server_facts(settings)).wall)
    assert check.hint == "have an administrator run GRANT fairlead_tenant TO fairlead_engine;"
    await admin.execute(check.hint.removeprefix("have an administrator run "))
    assert row_security_check((await server_facts(settings)).wall).status == "ok"
    await database.close()
    database = await Database.open(settings)
    assert database.row_security_enabled
    assert len(await PostgresAuditStore(database).search(tenant="acme", limit=9)) == 1
    await admin.execute("ALTER ROLE fairlead_tenant BYPASSRLS")
    assert row_security_check((await server_facts(settings)).wall).status == "warn"
    await admin.close()
    await database.close()


async def test_an_owner_that_is_no_superuser_can_work(owner: DatabaseSettings) -> None:
    database = await Database.open(owner)
    assert database.row_security_enabled
    (row,) = await rows(database, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
    assert not row["rolsuper"]
    await a_day_of_work(database)
    await database.close()


async def test_a_member_of_the_engine_role_can_work_and_alter_nothing(
    owner: DatabaseSettings, servers: Endpoints
) -> None:
    admin = await asyncpg.connect(servers.database_url)
    await admin.execute("CREATE ROLE clerk LOGIN IN ROLE fairlead_engine")
    await admin.close()
    database = await Database.open(replace(owner, dsn=login(owner.dsn, "clerk")))
    assert database.row_security_enabled
    await a_day_of_work(database)
    await Migrator(database.settings).check()
    for sql in ("DROP TABLE job", "ALTER TABLE job DISABLE ROW LEVEL SECURITY", "DELETE FROM audit"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await run(database, sql)
    await database.close()


async def test_the_guards_cost_the_engine_nothing(owner: DatabaseSettings) -> None:
    """The planner must see through `true OR ...`: no filter is left on the hot statements."""
    database = await Database.open(owner)
    session_id = await a_session(database)
    plan = await explained(
        database,
        "job_claim",
        queues=["default"],
        kinds=[],
        providers=[],
        wake=True,
        demand=5,
        session_id=session_id,
        lease_seed=1,
    )
    assert "tenant_id" not in str(plan.tree)
    await database.close()
