"""The way to PostgreSQL: refusals at the door, errors in our words, transactions that count or do not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from urllib.parse import urlsplit

import asyncpg
import pytest

from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.migrate import Migrator
from fairlead.adapters.postgres.postgres_errors import CommitInDoubtError
from fairlead.adapters.postgres.statements import statement
from fairlead.errors import (
    DependencyUnavailableError,
    InvalidConfigError,
    InvalidInputError,
    MigrationRequiredError,
)
from tests.support.notes import COUNT, INSERT, count, make_notes, sql
from tests.support.rows import rows, run


@pytest.fixture
async def notes(database: Database) -> Database:
    """With a table to write to."""
    await make_notes(database)
    return database


# ---- at the door -----------------------------------------------------------------------------------


async def test_address_without_a_server_is_unavailable(database_settings: DatabaseSettings) -> None:
    settings = replace(database_settings, dsn="postgresql://u@127.0.0.1:1/x", connect_timeout_s=2.0)
    with pytest.raises(DependencyUnavailableError, match="hint:"):
        await Database.open(settings)


@pytest.mark.parametrize(
    "dsn",
    [
        "mysql://u:hunter2@h/x",
        "postgresql://u:hunter2@h:port/x",
        "postgresql://u:hunter2@[::1/x",
        "postgresql://u@h/x?sslmode=hunter2",
    ],
)
async def test_an_address_that_cannot_be_read_is_not_shown(
    database_settings: DatabaseSettings, dsn: str
) -> None:
    with pytest.raises(InvalidConfigError, match=r"DATABASE_URL.*hint: ") as caught:
        await Database.open(replace(database_settings, dsn=dsn))
    assert "hunter2" not in str(caught.value)
    with pytest.raises(InvalidConfigError, match="DATABASE_URL"):
        await Migrator(replace(database_settings, dsn=dsn)).check()


async def test_a_database_that_does_not_exist(database_settings: DatabaseSettings) -> None:
    parts = urlsplit(database_settings.dsn)
    settings = replace(database_settings, dsn=parts._replace(path="/no_such_database").geturl())
    with pytest.raises(InvalidConfigError, match="DATABASE_URL"):
        await Database.open(settings)


async def test_a_server_that_may_lose_commits_is_refused_unless_asked(
    database: Database, database_settings: DatabaseSettings
) -> None:
    await run(
        database, f'ALTER DATABASE "{urlsplit(database_settings.dsn).path[1:]}" SET synchronous_commit = off'
    )
    with pytest.raises(InvalidConfigError, match="synchronous_commit is off"):
        await Database.open(database_settings)
    allowed = await Database.open(replace(database_settings, allow_async_commit=True))
    await allowed.close()


async def test_a_user_without_our_role_is_refused_and_told(
    database: Database, database_settings: DatabaseSettings, servers: Endpoints
) -> None:
    await run(database, "CREATE ROLE outsider LOGIN")
    try:
        outside = replace(database_settings, dsn=_as(database_settings.dsn, "outsider"))
        with pytest.raises(InvalidConfigError, match="GRANT fairlead_engine"):
            await Database.open(outside)
    finally:
        await run(database, "DROP ROLE outsider")


def _as(dsn: str, user: str) -> str:
    parts = urlsplit(dsn)
    return parts._replace(netloc=f"{user}@{parts.netloc.rpartition('@')[2]}").geturl()


async def test_a_schema_that_was_not_migrated(database_settings: DatabaseSettings) -> None:
    database = await Database.open(replace(database_settings, schema="empty"))
    with pytest.raises(MigrationRequiredError, match="fairlead migrate"):
        await database.fetch(statement("schedule_list"))
    await database.close()


async def test_the_connection_is_set_up_as_promised(database: Database) -> None:
    (row,) = await rows(
        database,
        "SELECT current_setting('application_name') AS name, current_setting('lock_timeout') AS lock,"
        " current_setting('transaction_isolation') AS isolation,"
        " current_setting('statement_timeout') AS statement",
    )
    assert row == {"name": "fairlead-test", "isolation": "read committed", "statement": "12s", "lock": "10s"}


# ---- statements ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("INSERT INTO note (id) VALUES ($1)", "no number"),  # asyncpg cannot encode it
        ("INSERT INTO note (id) VALUES ($1)", 2**40),
        ("INSERT INTO note (id, body) VALUES (1, $1)", '"\\u0000"'),
        ("INSERT INTO note (id, body) VALUES (1, $1)", "NaN"),
        ("INSERT INTO note (id, body) VALUES (1, $1)", "0"),  # the check constraint
        ("INSERT INTO note (id, body) VALUES (1, $1)", "[" * 100_000),
        ("INSERT INTO note (id) VALUES (1), ($1)", 1),  # the primary key
    ],
)
async def test_bad_values_are_told_apart_and_change_nothing(
    notes: Database, text: str, value: object
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        await notes.fetch(sql(text, "value"), value=value)
    assert "\\u0000" not in str(caught.value)
    assert await count(notes) == 0


async def test_a_mistake_in_our_own_sql_stays_what_it_is(database: Database) -> None:
    with pytest.raises(asyncpg.PostgresSyntaxError):
        await database.fetch(sql("SELECT FROM WHERE"))


async def test_a_statement_that_takes_too_long_is_ended_by_the_server(
    database_settings: DatabaseSettings,
) -> None:
    database = await Database.open(
        replace(database_settings, statement_timeout_s=1.0)
    )  # time to open it, under load
    with pytest.raises(DependencyUnavailableError) as caught:
        await database.fetch(sql("SELECT pg_sleep(60)"))
    assert not isinstance(caught.value, CommitInDoubtError)
    await database.close()


async def test_no_connection_is_free(database_settings: DatabaseSettings) -> None:
    database = await Database.open(replace(database_settings, max_size=1, acquire_timeout_s=0.05))
    async with database.transaction():
        with pytest.raises(DependencyUnavailableError):
            await database.fetch(COUNT)
    await database.close()


@pytest.fixture
async def crowded(notes: Database, database_settings: DatabaseSettings) -> AsyncIterator[DatabaseSettings]:
    """Of a user to whom the server gives one connection."""
    await run(notes, "CREATE ROLE crowded LOGIN CONNECTION LIMIT 1 IN ROLE fairlead_engine")
    await run(notes, "GRANT SELECT ON note TO crowded")
    yield replace(database_settings, dsn=_as(database_settings.dsn, "crowded"), max_size=2)
    await run(notes, "DROP OWNED BY crowded")
    await run(notes, "DROP ROLE crowded")


async def test_a_server_without_a_connection_is_asked_again(
    crowded: DatabaseSettings, notes: Database
) -> None:
    database = await Database.open(crowded)
    async with database.transaction():
        task = asyncio.create_task(database.fetch(COUNT))
        while not database._checkouts._queue.locked():
            await asyncio.sleep(0.01)
        await run(notes, "ALTER ROLE crowded CONNECTION LIMIT 2")
        assert (await task)[0]["n"] == 0
    await database.close()


async def test_with_one_connection_for_many_they_take_turns_without_a_pause(
    crowded: DatabaseSettings,
) -> None:
    database = await Database.open(replace(crowded, max_size=8, acquire_timeout_s=60.0))
    async with asyncio.timeout(10):  # a pause each would be twice as long
        async with database.transaction():
            tasks = [asyncio.create_task(database.fetch(COUNT)) for _ in range(200)]
            while not database._checkouts._queue.locked():
                await asyncio.sleep(0.01)
        await asyncio.gather(*tasks)
    await database.close()


async def test_a_full_server_is_asked_by_one_at_a_time(
    crowded: DatabaseSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = await Database.open(replace(crowded, max_size=8, acquire_timeout_s=1.0))
    tries, connect = 0, asyncpg.connect

    async def counted(*args: object, **named: object) -> object:
        nonlocal tries
        tries += 1
        return await connect(*args, **named)

    monkeypatch.setattr(database._pool, "_connect", counted)
    async with database.transaction():
        tasks = [asyncio.create_task(database.fetch(COUNT))]
        while not database._checkouts._queue.locked():
            await asyncio.sleep(0.01)
        tasks += [asyncio.create_task(database.fetch(COUNT)) for _ in range(100)]
        await asyncio.wait(tasks)
    assert all(isinstance(task.exception(), DependencyUnavailableError) for task in tasks)
    assert 2 <= tries <= 12, "ten a second"
    await database.close()


async def test_a_server_that_stays_full_is_told_in_time(crowded: DatabaseSettings) -> None:
    database = await Database.open(replace(crowded, acquire_timeout_s=0.3))
    async with database.transaction():
        ends = await asyncio.gather(*(database.fetch(COUNT) for _ in range(4)), return_exceptions=True)
    assert [type(end) for end in ends] == [DependencyUnavailableError] * 4
    assert all("too many connections" in str(end) for end in ends)
    await database.close()


async def test_a_changed_table_does_not_break_prepared_statements(notes: Database) -> None:
    everything = sql("SELECT * FROM note")
    assert await notes.fetch(everything) == []
    await run(notes, "ALTER TABLE note ADD COLUMN more text")
    await run(notes, "INSERT INTO note (id) VALUES (1)")
    assert len(await notes.fetch(everything)) == 1


LOCK = sql("SELECT id FROM note WHERE id = $1 FOR UPDATE", "id")
LOCK_BOTH = sql(
    "WITH one AS MATERIALIZED (SELECT id FROM note WHERE id = 1 FOR UPDATE),"
    " nap AS MATERIALIZED (SELECT pg_sleep(0.1) FROM one)"
    " SELECT note.id FROM note, nap WHERE note.id = 2 FOR UPDATE OF note"
)


async def test_a_statement_that_lost_a_deadlock_is_done_again(
    notes: Database, database_settings: DatabaseSettings
) -> None:
    await run(notes, "INSERT INTO note (id) VALUES (1), (2)")
    name = urlsplit(database_settings.dsn).path[1:]
    await run(notes, f"ALTER DATABASE \"{name}\" SET deadlock_timeout = '20ms'")
    loser = await Database.open(database_settings)
    async with notes.transaction() as winner:  # an older connection: it finds deadlocks after a second only
        await winner.fetch(LOCK, id=2)
        both = asyncio.create_task(loser.fetch(LOCK_BOTH))
        while not await rows(loser, "SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep'"):
            await asyncio.sleep(0.005)
        await winner.fetch(LOCK, id=1)  # one of the two must lose now
        assert not both.done()
    assert [row["id"] for row in await both] == [2]
    await loser.close()


# ---- transactions ----------------------------------------------------------------------------------


async def test_all_statements_of_a_transaction_count_or_none(notes: Database) -> None:
    async with notes.transaction() as transaction:
        await transaction.fetch(INSERT, id=1)
        await transaction.fetch(INSERT, id=2)
    assert await count(notes) == 2

    async def refused() -> None:
        async with notes.transaction() as transaction:
            await transaction.fetch(INSERT, id=3)
            await transaction.fetch(INSERT, id=1)

    async def given_up() -> None:
        async with notes.transaction() as transaction:
            await transaction.fetch(INSERT, id=4)
            raise ZeroDivisionError

    with pytest.raises(InvalidInputError):
        await refused()
    with pytest.raises(ZeroDivisionError):
        await given_up()
    assert await count(notes) == 2
