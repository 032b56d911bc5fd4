"""Jobs inside a transaction of the caller's own: asyncpg and psycopg, on whatever search_path (Q1)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import asyncpg
import psycopg
import pytest
from psycopg.rows import dict_row

from fairlead.adapters.local.system import SystemIds
from fairlead.adapters.postgres.caller_transactions import PostgresCallerJobs
from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.jobs import PostgresJobStore
from fairlead.engine.ports import ClaimFilter, Enqueued, NewJob
from fairlead.errors import InvalidInputError, MigrationRequiredError, RefusedError
from tests.support.databases import SCHEMA
from tests.support.engine import new_job
from tests.support.rows import rows, run
from tests.support.seeds import a_session

IDS = SystemIds()
BLOCKED = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = 'the caller'"


@pytest.fixture
def callers() -> PostgresCallerJobs:
    return PostgresCallerJobs(schema=SCHEMA, bound=3)


async def connected(settings: DatabaseSettings) -> Any:
    """A connection as a user's program has one: nothing on it is as ours are."""
    return await asyncpg.connect(settings.dsn, server_settings={"application_name": "the caller"})


@pytest.fixture
async def theirs(database_settings: DatabaseSettings) -> AsyncIterator[Any]:
    connection = await connected(database_settings)
    yield connection
    await connection.close(timeout=5)


async def kinds(database: Database) -> list[str]:
    """The kinds of all jobs that others can see."""
    return [row["kind"] for row in await rows(database, "SELECT kind FROM job ORDER BY kind")]


def full_job(**fields: Any) -> NewJob:
    """A job with every field that may be given."""
    caller_fields: dict[str, Any] = {
        "tenant_id": "Müller & 100 % $1",
        "queue": "slow",
        "provider": "shopify",
        "group_key": "shopify/eu",
        "priority": 1,
        "delay_s": 3600.0,
        "args": {"text": "100 % 'x' $1 \\u0041 😀", "n": 1.5},
        "unique_key": "k",
        "unique_for_s": 60.0,
        "expires_in_s": 7200.0,
        "tags": ("one", "two"),
    }
    return new_job(**(caller_fields | fields))


# ---- the drivers -----------------------------------------------------------------------------------


async def test_asyncpg(database: Database, callers: PostgresCallerJobs, theirs: Any) -> None:
    job = new_job("kept")
    async with theirs.transaction():
        assert await callers.store(theirs, [job]) == [Enqueued(job.job_id, True)]
        assert await kinds(database) == [], "nobody sees it before the commit"
    assert await kinds(database) == ["kept"]
    transaction = theirs.transaction()
    await transaction.start()
    await callers.store(theirs, [new_job("undone")])
    await transaction.rollback()
    assert await kinds(database) == ["kept"]
    assert await callers.store(theirs, []) == []


async def test_asyncpg_with_json_of_its_own_making(
    database: Database, callers: PostgresCallerJobs, theirs: Any
) -> None:
    """Many programs set a codec for jsonb; a parameter of that type would be encoded twice."""
    await theirs.set_type_codec("jsonb", encoder=repr, decoder=eval, schema="pg_catalog")
    async with theirs.transaction():
        await callers.store(theirs, [new_job(args={"a": 1})])
    assert (await rows(database, "SELECT args FROM job"))[0]["args"] == '{"a": 1}'


@pytest.mark.parametrize("row_factory", [None, dict_row])
async def test_psycopg_async(
    database: Database, callers: PostgresCallerJobs, database_settings: DatabaseSettings, row_factory: Any
) -> None:
    options = {"row_factory": row_factory} if row_factory else {}
    async with await psycopg.AsyncConnection.connect(database_settings.dsn, **options) as theirs:
        await callers.store(theirs, [new_job("undone")])  # the first statement begins its transaction
        await theirs.rollback()
        await theirs.set_autocommit(True)
        async with theirs.transaction():
            job = new_job("kept")
            assert await callers.store(theirs, [job]) == [Enqueued(job.job_id, True)]
            assert await kinds(database) == []
    assert await kinds(database) == ["kept"]


@pytest.mark.parametrize("row_factory", [None, dict_row])
async def test_psycopg(
    database: Database, callers: PostgresCallerJobs, database_settings: DatabaseSettings, row_factory: Any
) -> None:
    def blocking() -> list[Enqueued]:
        options = {"row_factory": row_factory} if row_factory else {}
        with psycopg.connect(database_settings.dsn, **options) as theirs:
            callers.store_blocking(theirs, [new_job("undone")])
            theirs.rollback()
            theirs.autocommit = True
            with theirs.transaction():
                return callers.store_blocking(theirs, [job])

    job = new_job("kept")
    assert await asyncio.to_thread(blocking) == [Enqueued(job.job_id, True)]
    assert await kinds(database) == ["kept"]


async def test_every_field_arrives(
    database: Database, callers: PostgresCallerJobs, database_settings: DatabaseSettings, theirs: Any
) -> None:
    """As by the store itself: all three ways leave the same row."""
    by_store = full_job(unique_key="1")
    await PostgresJobStore(database, IDS).enqueue([by_store])
    async with theirs.transaction():
        await callers.store(theirs, [full_job(unique_key="2")])

    def blocking() -> None:
        with psycopg.connect(database_settings.dsn) as theirs:
            callers.store_blocking(theirs, [full_job(unique_key="3")])

    await asyncio.to_thread(blocking)
    columns = """queue, kind, tenant_id, provider, group_key, priority, state, lane_id, unique_live,
        args, tags, replay_of, date_trunc('hour', run_at - created_at) AS due,
        date_trunc('hour', expires_at - created_at) AS expires,
        date_trunc('minute', unique_until - created_at) AS held"""
    jobs_found = await rows(database, f"SELECT {columns} FROM job ORDER BY unique_key")
    assert jobs_found[0] == jobs_found[1] == jobs_found[2]
    assert jobs_found[0]["tenant_id"] == by_store.tenant_id


async def test_a_batch_comes_back_in_its_order(callers: PostgresCallerJobs, theirs: Any) -> None:
    jobs = [new_job(kind, unique_key=key) for kind, key in (("b", "x"), ("a", "y"), ("b", "x"), ("a", None))]
    async with theirs.transaction():
        stored = await callers.store(theirs, jobs)
    assert [enqueued.inserted for enqueued in stored].count(True) == 3
    assert stored[0].job_id == stored[2].job_id
    assert [stored[1].job_id, stored[3].job_id] == [jobs[1].job_id, jobs[3].job_id]


# ---- what is refused -------------------------------------------------------------------------------


async def test_without_a_transaction_nothing_is_stored(
    database: Database, callers: PostgresCallerJobs, database_settings: DatabaseSettings, theirs: Any
) -> None:
    """It would be there at once, whatever becomes of what belongs to it."""
    with pytest.raises(InvalidInputError, match="in no transaction"):
        await callers.store(theirs, [new_job()])
    async with await psycopg.AsyncConnection.connect(database_settings.dsn, autocommit=True) as other:
        with pytest.raises(InvalidInputError, match="in no transaction"):
            await callers.store(other, [new_job()])
        with pytest.raises(InvalidInputError, match=r"psycopg\.AsyncConnection is not a psycopg Connection"):
            callers.store_blocking(other, [new_job()])
    with psycopg.connect(database_settings.dsn, autocommit=True) as blocking:
        with pytest.raises(InvalidInputError, match="in no transaction"):
            callers.store_blocking(blocking, [new_job()])
        with pytest.raises(InvalidInputError, match=r"fl\.sync"):
            await callers.store(blocking, [new_job()])
    pool = await asyncpg.create_pool(database_settings.dsn, min_size=1)
    for thing in (pool, object(), database_settings.dsn, None):
        with pytest.raises(InvalidInputError, match="is not an asyncpg connection"):
            await callers.store(thing, [new_job()])
    await pool.close()
    assert await kinds(database) == []


async def test_a_connection_to_another_database_is_told_where_fairlead_is_looked_for(theirs: Any) -> None:
    lost = PostgresCallerJobs(schema="fairlead", bound=3)
    with pytest.raises(MigrationRequiredError, match=r"database\.schema_name"):
        async with theirs.transaction():
            await lost.store(theirs, [new_job()])


async def test_a_bound_full_of_dead_letters_refuses(
    database: Database, callers: PostgresCallerJobs, theirs: Any
) -> None:
    """Q10 holds here as well; other kinds go on, and so does who has few of them."""
    await run(
        database,
        "INSERT INTO dead_letter (dead_letter_id, job_id, lineage_id, queue, kind, tenant_id, priority,"
        " category, code, reason) SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 'default',"
        " kind, $1, 2, 'transient_server', 'boom', 'it failed'"
        " FROM unnest(ARRAY['bad', 'bad', 'good']) AS kind",
        new_job().tenant_id,
    )
    for kind in ("good", "bad", "new"):
        transaction = theirs.transaction()
        await transaction.start()
        if kind == "bad":
            with pytest.raises(RefusedError, match="takes no new bad") as refused:
                await callers.store(theirs, [new_job(kind)])
            assert (refused.value.reason, refused.value.retry_after_s) == ("dead_letters_full", 60.0)
            await transaction.rollback()
        else:
            await callers.store(theirs, [new_job(kind)])
            await transaction.commit()
    async with theirs.transaction():
        await callers.store(theirs, [new_job("bad", tenant_id="quiet")])
    assert await kinds(database) == ["bad", "good", "new"]
    roomy = PostgresCallerJobs(schema=SCHEMA, bound=4)
    async with theirs.transaction():
        await roomy.store(theirs, [new_job("bad")])


async def test_an_error_of_the_callers_transaction_is_the_callers(
    callers: PostgresCallerJobs, theirs: Any
) -> None:
    transaction = theirs.transaction()
    await transaction.start()
    with pytest.raises(asyncpg.PostgresError):
        await theirs.execute("SELECT 1 / 0")
    with pytest.raises(asyncpg.InFailedSQLTransactionError):
        await callers.store(theirs, [new_job()])
    await transaction.rollback()


# ---- waiting ---------------------------------------------------------------------------------------


async def until_blocked(database: Database) -> None:
    async with asyncio.timeout(20):
        while not await rows(database, BLOCKED):
            await asyncio.sleep(0)


@pytest.mark.parametrize("end", ["commit", "rollback"])
async def test_insert_with_the_same_unique_key_waits_for_the_other_transaction_alone(
    database: Database,
    callers: PostgresCallerJobs,
    database_settings: DatabaseSettings,
    theirs: Any,
    end: str,
) -> None:
    other = await connected(database_settings)
    first, second = theirs.transaction(), other.transaction()
    await first.start()
    await second.start()
    first_job, two = new_job(unique_key="k", priority=2), new_job(unique_key="k", priority=0)
    await callers.store(theirs, [first_job])
    waiting = asyncio.create_task(callers.store(other, [two]))
    await until_blocked(database)
    await getattr(first, end)()
    (stored,) = await waiting
    await second.commit()
    stored_job = first_job if end == "commit" else two
    assert stored == Enqueued(
        stored_job.job_id, stored_job is two, "none" if stored_job is two else "waiting"
    )
    jobs_found = await rows(database, "SELECT job_id, priority FROM job")
    assert jobs_found == [{"job_id": stored_job.job_id, "priority": 0}], "the more urgent one counts"
    await other.close(timeout=5)


async def test_a_long_transaction_holds_up_nobody(
    database: Database, callers: PostgresCallerJobs, database_settings: DatabaseSettings, theirs: Any
) -> None:
    """Same lane: others enqueue and claim while it is open, and then its own job is claimed."""
    jobs, other = PostgresJobStore(database, IDS), await connected(database_settings)
    session_id = await a_session(database)
    await jobs.enqueue([new_job("lane")])
    transaction = theirs.transaction()
    await transaction.start()
    late = new_job("lane")
    await callers.store(theirs, [late])
    async with asyncio.timeout(20), other.transaction():
        await other.execute("SET LOCAL lock_timeout = '1s'")
        await callers.store(other, [new_job("lane")])
    (stored,) = await jobs.enqueue([new_job("lane")])
    async with asyncio.timeout(20):
        job_ids = await claimed(jobs, session_id, 3)
    assert stored.job_id in job_ids
    assert late.job_id not in job_ids
    await transaction.commit()
    assert await claimed(jobs, session_id, 1) == {late.job_id}
    await other.close(timeout=5)


async def claimed(jobs: PostgresJobStore, session_id: UUID, count: int) -> set[UUID]:
    """Claim until *count* jobs were had."""
    job_ids: set[UUID] = set()
    while len(job_ids) < count:
        job_ids |= {job.job_id for job in await jobs.claim(ClaimFilter(), count, session_id)}
    return job_ids
