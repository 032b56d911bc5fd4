"""What a caller committed is worked off, whatever the job that had the unique key did meanwhile (R53)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import product
from typing import Any
from uuid import UUID

import asyncpg
import psycopg
import pytest

from fairlead import Fairlead, JobRequest
from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.jobs import PostgresJobStore
from fairlead.adapters.postgres.postgres_errors import RowLockedError
from fairlead.assembly.config import load
from tests.support.databases import SCHEMA
from tests.support.engine import IDS, new_job
from tests.support.raw_connections import raw_connection_of
from tests.support.rows import rows, run

LEVELS = ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")
RUNNING = "state = 'running', lease_id = 1, session_id = gen_random_uuid(), started_at = now()"
ENDED = "state = 'completed', finished_at = now(), unique_live = false, lease_id = NULL, session_id = NULL"
STATES = {
    "none": None,
    "available": "priority = priority",
    "scheduled": "run_at = now() + interval '1 hour', expires_at = now() + interval '2 hours'",
    "running": RUNNING,
    "expired": "expires_at = now()",
    "completed": ENDED,
    "discarded": ENDED.replace("completed", "discarded"),
    "cancelled": ENDED.replace("completed", "cancelled"),
    "kept beyond its time": f"{ENDED.replace('false', 'true')}, unique_until = now()",
}
"""What the job that had the key is before the caller begins."""
MEANWHILE = {
    "begun in between": RUNNING,
    "completed in the snapshot": ENDED,
    "expired at the commit": "expires_at = now()",
}


class Asyncpg:
    """A transaction of asyncpg."""

    connection: Any

    async def begin(self, dsn: str, level: str) -> None:
        self.connection = await asyncpg.connect(dsn)
        await self.execute(f"BEGIN ISOLATION LEVEL {level}")

    async def execute(self, sql: str) -> None:
        await self.connection.execute(sql)

    async def enqueue(self, fl: Fairlead, key: str) -> UUID:
        return await fl.enqueue("work", tenant="acme", unique_key=key, transaction=self.connection)

    async def end(self) -> None:
        await self.connection.close()


class Function(Asyncpg):
    """The SQL function."""

    async def enqueue(self, fl: Fairlead, key: str) -> UUID:
        job_id: UUID = await self.connection.fetchval(
            f"SELECT \"{SCHEMA}\".fairlead_enqueue('work', 'acme', unique_key => $1)", key
        )
        return job_id


class Many(Asyncpg):
    """Several jobs in one call."""

    async def enqueue(self, fl: Fairlead, key: str) -> UUID:
        requested = [JobRequest("work", tenant="acme", unique_key=name) for name in (f"other/{key}", key)]
        return (await fl.enqueue_many(requested, transaction=self.connection))[1]


class Psycopg(Asyncpg):
    """A transaction of psycopg."""

    async def begin(self, dsn: str, level: str) -> None:
        self.connection = await psycopg.AsyncConnection.connect(dsn, autocommit=True)
        await self.execute(f"BEGIN ISOLATION LEVEL {level}")


class Blocking(Asyncpg):
    """A transaction of psycopg in code that blocks."""

    async def begin(self, dsn: str, level: str) -> None:
        self.connection = await asyncio.to_thread(psycopg.Connection.connect, dsn, autocommit=True)
        await self.execute(f"BEGIN ISOLATION LEVEL {level}")

    async def execute(self, sql: str) -> None:
        await asyncio.to_thread(self.connection.execute, sql)

    async def enqueue(self, fl: Fairlead, key: str) -> UUID:
        return await asyncio.to_thread(
            fl.sync.enqueue, "work", tenant="acme", unique_key=key, transaction=self.connection
        )

    async def end(self) -> None:
        await asyncio.to_thread(self.connection.close)


CALLERS = (Asyncpg, Function, Many, Psycopg, Blocking)
SERIALIZATION = (asyncpg.SerializationError, psycopg.errors.SerializationFailure)


@pytest.fixture
async def fl(
    database: Database, database_settings: DatabaseSettings, tmp_path: Any
) -> AsyncIterator[Fairlead]:
    """An application on this test's database."""
    environ = {
        "DATABASE_URL": database_settings.dsn,
        "FAIRLEAD_MASTER_KEY": "k1:" + "0123456789abcdef" * 4,
        "FAIRLEAD_DATABASE__SCHEMA_NAME": SCHEMA,
        "FAIRLEAD_HOME": str(tmp_path),
    }
    async with Fairlead(load(environ)) as opened:
        yield opened


async def a_job(database: Database, fl: Fairlead, key: str, then: str | None) -> None:
    """Store the job that has *key*, and set *then*; None: there is none."""
    if then is not None:
        job_id = await fl.enqueue("work", tenant="acme", unique_key=key)
        await run(database, f"UPDATE job SET {then} WHERE job_id = $1", job_id)


async def assert_worked_off(database: Database, key: str, expected_id: UUID) -> None:
    """One job is left, and never expires; the id that was given is one of *key*.

    It begins now, or once the job that runs has ended.
    """
    due = "SELECT FROM job WHERE unique_key = $1 AND state = 'available' AND run_at <= now()"
    if await rows(database, "SELECT FROM job WHERE unique_key = $1 AND state = 'running'", key):
        assert await rows(database, due, key) == [], key
        await run(database, f"UPDATE job SET {ENDED} WHERE unique_key = $1 AND state = 'running'", key)
    rows_found = await rows(
        database,
        "SELECT count(*) FILTER (WHERE state = 'available' AND expires_at IS NULL AND run_at <= now())"
        " AS left, array_agg(job_id) AS job_ids FROM job WHERE unique_key = $1",
        key,
    )
    assert rows_found[0]["left"] == 1, key
    assert expected_id in rows_found[0]["job_ids"], key


async def transact(
    caller: Asyncpg,
    fl: Fairlead,
    dsn: str,
    level: str,
    key: str,
    meanwhile: Any = None,
    *,
    early: bool = False,
) -> UUID:
    """Enqueue in a transaction of the caller's, who repeats it after 40001; the id that was given."""
    moments = [meanwhile] if meanwhile else []
    for _ in range(3):
        await caller.begin(dsn, level)
        try:
            await caller.execute(f'SELECT 1 FROM "{SCHEMA}".job LIMIT 1')  # its snapshot
            if moments and early:
                await moments.pop()()
            job_id = await caller.enqueue(fl, key)
            if moments:
                await moments.pop()()
            await caller.execute("COMMIT")
        except SERIALIZATION:
            continue
        finally:
            await caller.end()
        return job_id
    raise AssertionError("it is refused again and again")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("caller_type", CALLERS)
async def test_unique_key_of_a_job_in_whatever_state(
    database: Database,
    database_settings: DatabaseSettings,
    fl: Fairlead,
    caller_type: type[Asyncpg],
    level: str,
) -> None:
    for state, then in STATES.items():
        await a_job(database, fl, state, then)
        job_id = await transact(caller_type(), fl, database_settings.dsn, level, state)
        await assert_worked_off(database, state, job_id)
    for early, (state, then) in product((False, True), MEANWHILE.items()):
        key = f"{state}/{early}"
        await a_job(database, fl, key, "priority = 3")

        async def meanwhile(key: str = key, then: str = then) -> None:
            await run(database, f"UPDATE job SET {then} WHERE unique_key = $1", key)

        job_id = await transact(caller_type(), fl, database_settings.dsn, level, key, meanwhile, early=early)
        await assert_worked_off(database, key, job_id)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("caller_type", CALLERS)
async def test_unique_key_that_another_transaction_is_taking(
    database: Database,
    database_settings: DatabaseSettings,
    fl: Fairlead,
    caller_type: type[Asyncpg],
    level: str,
) -> None:
    for end in ("COMMIT", "ROLLBACK"):
        other = Function()
        await other.begin(database_settings.dsn, level)
        await other.enqueue(fl, end)
        waiting = asyncio.create_task(transact(caller_type(), fl, database_settings.dsn, level, end))
        await blocked(database)
        await other.execute(end)
        await other.end()
        await assert_worked_off(database, end, await waiting)


@pytest.mark.parametrize("many", [False, True])
async def test_unique_key_without_a_transaction(
    database: Database, database_settings: DatabaseSettings, fl: Fairlead, *, many: bool
) -> None:
    async def enqueue(key: str) -> UUID:
        if not many:
            return await fl.enqueue("work", tenant="acme", unique_key=key)
        requested = [JobRequest("work", tenant="acme", unique_key=name) for name in (f"other/{key}", key)]
        return (await fl.enqueue_many(requested))[1]

    for state, then in STATES.items():
        await a_job(database, fl, state, then)
        await assert_worked_off(database, state, await enqueue(state))
    other = Function()
    await other.begin(database_settings.dsn, LEVELS[0])
    await other.enqueue(fl, "k")
    waiting = asyncio.create_task(enqueue("k"))
    await blocked(database)
    await other.execute("COMMIT")
    await assert_worked_off(database, "k", await waiting)
    await other.end()


async def test_unique_key_asked_for_again_in_one_transaction(
    database: Database, database_settings: DatabaseSettings, fl: Fairlead
) -> None:
    """One job follows, however often it is asked for; what a savepoint undoes is undone."""
    await a_job(database, fl, "k", RUNNING)
    caller = Function()
    await caller.begin(database_settings.dsn, LEVELS[0])
    await caller.execute("SAVEPOINT s")
    await caller.enqueue(fl, "k")
    await caller.execute("ROLLBACK TO s")
    first = await caller.enqueue(fl, "k")
    assert await caller.enqueue(fl, "k") == first
    await caller.execute("COMMIT")
    await caller.end()
    await assert_worked_off(database, "k", first)
    await caller.begin(database_settings.dsn, LEVELS[0])
    await caller.enqueue(fl, "k")
    await caller.execute("ROLLBACK")
    await caller.end()
    assert await rows(database, "SELECT FROM enqueue_note") == []
    assert (await rows(database, "SELECT count(*) AS jobs FROM job"))[0]["jobs"] == 2


async def test_unique_key_asked_for_at_different_times_in_one_transaction(
    database: Database, database_settings: DatabaseSettings, fl: Fairlead
) -> None:
    """The job that follows one that runs is as soon as the soonest."""
    await a_job(database, fl, "k", RUNNING)
    caller = Function()
    await caller.begin(database_settings.dsn, LEVELS[0])
    later = (
        f'SELECT "{SCHEMA}".fairlead_enqueue('
        "'work', 'acme', unique_key => 'k', delay_s => 9, expires_in_s => 99)"
    )
    await caller.execute(later)
    job_id = await caller.enqueue(fl, "k")
    await caller.execute(later)
    await caller.execute("COMMIT")
    await caller.end()
    await assert_worked_off(database, "k", job_id)


async def test_unique_key_that_another_commit_is_taking(
    database: Database, database_settings: DatabaseSettings, fl: Fairlead
) -> None:
    """A commit waits for nobody: with two keys two of them would wait for each other."""
    await a_job(database, fl, "k", RUNNING)
    first, two = Function(), Function()
    for caller in (first, two):
        await caller.begin(database_settings.dsn, LEVELS[0])
        await caller.enqueue(fl, "k")
    await first.execute("SET CONSTRAINTS ALL IMMEDIATE")  # the first half of its commit
    async with asyncio.timeout(20):
        await two.execute("COMMIT")
    await first.execute("COMMIT")
    rows_found = await rows(
        database, "SELECT unique_live FROM job WHERE state = 'available' ORDER BY unique_live"
    )
    assert [row["unique_live"] for row in rows_found] == [False, True]
    for caller in (first, two):
        await caller.end()


@pytest.mark.parametrize("many", [False, True])
async def test_unique_key_that_an_open_transaction_holds_is_named(
    database: Database, database_settings: DatabaseSettings, *, many: bool
) -> None:
    impatient = await Database.open(replace(database_settings, statement_timeout_s=2.0))
    jobs = PostgresJobStore(impatient, IDS, notify=False)
    keys = ["shop/7", "a", "b", "c"] if many else ["shop/7"]
    requested = [new_job(unique_key=key, tenant_id="acme") for key in keys]
    async with database.transaction() as transaction:
        await raw_connection_of(transaction).fetch(
            "SELECT fairlead_enqueue('work', 'acme', unique_key => 'shop/7')"
        )
        with pytest.raises(RowLockedError, match="an open transaction holds") as caught:
            await jobs.enqueue(requested)
    assert "'shop/7' of work" in caught.value.message
    assert ("and 1 more" in caught.value.message) == many
    assert caught.value.tenant == "acme"
    assert "commit or roll back" in caught.value.hint
    assert (await jobs.enqueue(requested))[0].inserted is False
    await impatient.close()


async def blocked(database: Database) -> None:
    """Return once somebody waits for a transaction to end."""
    async with asyncio.timeout(20):
        while not await rows(
            database, "SELECT FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"
        ):
            await asyncio.sleep(0.01)
