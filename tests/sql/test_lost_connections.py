"""Wires that are cut or go silent: waits that end, commits in doubt, listening that comes back (E12, E16)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import cast
from urllib.parse import urlsplit

import asyncpg
import pytest

from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.driver import DatabaseConnection
from fairlead.adapters.postgres.listen import NotificationListener
from fairlead.adapters.postgres.postgres_errors import CommitInDoubtError, ReadOnlyServerError
from fairlead.errors import DependencyUnavailableError
from tests.support.cutting_proxy import COMMIT, CuttingProxy, cutting_proxy
from tests.support.notes import COUNT, INSERT, count, make_notes, sql
from tests.support.rows import rows, run


@pytest.fixture
async def notes(database: Database) -> Database:
    """With a table to write to."""
    await make_notes(database)
    return database


@pytest.fixture
async def proxied(
    notes: Database, database_settings: DatabaseSettings
) -> AsyncIterator[tuple[CuttingProxy, Database]]:
    """The same database over a wire that can be cut; one connection, so that nothing is left to chance."""
    async with cutting_proxy(database_settings.dsn) as (proxy, url):
        settings = replace(
            database_settings, dsn=url, max_size=1, command_timeout_s=5.0, acquire_timeout_s=5.0
        )
        database = await Database.open(settings)
        yield proxy, database
        proxy.flow()
        await database.close()


# ---- in doubt (E12, F6) ----------------------------------------------------------------------------


@pytest.mark.parametrize(("when", "stored"), [("before", 0), ("after", 1)])
async def test_a_connection_lost_during_a_statement_is_in_doubt(
    proxied: tuple[CuttingProxy, Database], notes: Database, when: str, stored: int
) -> None:
    proxy, database = proxied
    assert await count(database) == 0
    (proxy.cut_before if when == "before" else proxy.cut_after)()
    with pytest.raises(CommitInDoubtError, match="hint:"):
        await database.fetch(INSERT, id=1)
    assert await count(notes) == stored
    assert await count(database) == stored  # the pool has a new connection by itself


@pytest.mark.parametrize(("when", "stored"), [("before", 0), ("after", 1)])
async def test_only_the_commit_of_a_transaction_can_be_in_doubt(
    proxied: tuple[CuttingProxy, Database], notes: Database, when: str, stored: int
) -> None:
    proxy, database = proxied
    cut = proxy.cut_before if when == "before" else proxy.cut_after

    async def cut_at_the_commit() -> None:
        async with database.transaction() as transaction:
            await transaction.fetch(INSERT, id=1)
            cut(COMMIT)

    async def cut_before_it() -> None:
        async with database.transaction() as transaction:
            await transaction.fetch(INSERT, id=2)
            cut()
            await transaction.fetch(INSERT, id=3)

    with pytest.raises(CommitInDoubtError):
        await cut_at_the_commit()
    assert await count(notes) == stored
    with pytest.raises(DependencyUnavailableError) as caught:
        await cut_before_it()
    assert not isinstance(caught.value, CommitInDoubtError)
    assert await count(notes) == stored


@pytest.mark.parametrize("when", ["before", "after"])
async def test_again_resolves_a_doubt(
    proxied: tuple[CuttingProxy, Database], notes: Database, when: str
) -> None:
    proxy, database = proxied
    once = sql("INSERT INTO note (id) VALUES ($1) ON CONFLICT DO NOTHING", "id")
    (proxy.cut_before if when == "before" else proxy.cut_after)()
    await database.resolve_doubt(lambda: database.fetch(once, id=1))
    assert proxy.cuts == 1
    assert await count(notes) == 1


async def test_again_gives_up_in_time_and_says_that_it_does_not_know(
    proxied: tuple[CuttingProxy, Database],
) -> None:
    proxy, database = proxied

    async def work() -> object:
        proxy.cut_before()
        return await database.fetch(INSERT, id=1)

    with pytest.raises(CommitInDoubtError):
        await database.resolve_doubt(work, within_s=0.05)


async def test_again_leaves_what_was_provably_not_done_to_the_caller(notes: Database) -> None:
    tries = 0

    async def work() -> None:
        nonlocal tries
        tries += 1
        raise DependencyUnavailableError("away")

    with pytest.raises(DependencyUnavailableError):
        await notes.resolve_doubt(work)
    assert tries == 1


async def test_a_killed_backend_is_in_doubt_and_the_next_statement_works(
    notes: Database, database_settings: DatabaseSettings
) -> None:
    victim = await Database.open(replace(database_settings, max_size=1))
    sleeping = asyncio.create_task(victim.fetch(sql("SELECT pg_sleep(30) /* asleep */")))
    kill = (
        "SELECT pg_terminate_backend(pid) AS done FROM pg_stat_activity"
        " WHERE query LIKE '%/* asleep%' AND pid <> pg_backend_pid() AND state = 'active'"
    )
    while not await rows(notes, kill):
        await asyncio.sleep(0.01)
    with pytest.raises(CommitInDoubtError):
        await sleeping
    assert await count(victim) == 0
    await victim.close()


async def test_a_silent_peer_costs_a_bounded_time(proxied: tuple[CuttingProxy, Database]) -> None:
    proxy, _ = proxied
    _, database = proxied
    impatient = await Database.open(
        replace(
            database.settings,
            max_size=2,
            min_size=2,
            command_timeout_s=0.2,
            connect_timeout_s=0.2,
            acquire_timeout_s=0.3,
        )
    )
    proxy.stall()
    async with asyncio.timeout(3):
        ends = await asyncio.gather(*(impatient.fetch(COUNT) for _ in range(4)), return_exceptions=True)
    assert all(isinstance(end, DependencyUnavailableError) for end in ends)
    proxy.flow()
    assert await count(impatient) == 0
    await impatient.close()


@pytest.fixture
async def patient(
    proxied: tuple[CuttingProxy, Database],
) -> AsyncIterator[tuple[CuttingProxy, Database]]:
    """Waits a minute for everything, so that whatever is over in seconds was not waited for."""
    proxy, database = proxied
    waits = ("connect_timeout_s", "acquire_timeout_s", "command_timeout_s", "statement_timeout_s")
    settings = replace(database.settings, min_size=2, max_size=2, **dict.fromkeys(waits, 60.0))
    database = await Database.open(settings)
    yield proxy, database
    await database.close()


async def test_a_silent_peer_holds_up_neither_who_gives_up_nor_who_leaves(
    patient: tuple[CuttingProxy, Database],
) -> None:
    proxy, database = patient
    proxy.stall()
    async with asyncio.timeout(5):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await database.fetch(COUNT)
        await database.close()


async def test_task_cancelled_in_a_transaction_ends_while_the_server_is_silent(
    patient: tuple[CuttingProxy, Database],
) -> None:
    proxy, database = patient
    requested = asyncio.Event()

    async def work() -> None:
        async with database.transaction() as transaction:
            proxy.stall()
            requested.set()
            await transaction.fetch(COUNT)

    task = asyncio.create_task(work())
    await requested.wait()
    task.cancel()
    async with asyncio.timeout(5):
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_cancelled_caller_leaves_a_sound_pool(database_settings: DatabaseSettings) -> None:
    database = await Database.open(replace(database_settings, max_size=2))
    for _ in range(5):
        asleep = [asyncio.create_task(database.fetch(sql("SELECT pg_sleep(30)"))) for _ in range(2)]
        await asyncio.sleep(0.02)
        for task in asleep:
            task.cancel()
        await asyncio.gather(*asleep, return_exceptions=True)
    answers = await asyncio.gather(*(database.fetch(sql("SELECT 1 AS one")) for _ in range(10)))
    assert all(answer[0]["one"] == 1 for answer in answers)
    await database.close()


async def test_behind_a_transaction_pooler_nothing_is_left_in_a_session(
    notes: Database, database_settings: DatabaseSettings
) -> None:
    name = urlsplit(database_settings.dsn).path[1:]  # `note` is no table of ours
    await run(notes, f'ALTER DATABASE "{name}" SET search_path = "{database_settings.schema}"')
    database = await Database.open(replace(database_settings, transaction_pooler=True, max_size=1))
    await database.fetch(INSERT, id=1)
    async with database.transaction() as transaction:
        await transaction.fetch(INSERT, id=2)
    assert await count(database) == 2
    assert await rows(database, "SELECT name FROM pg_prepared_statements WHERE name <> ''") == []
    payloads: list[str] = []
    stop = await database.listen("anything", payloads.append)
    await stop()
    assert payloads == []
    await database.close()


# ---- a former primary (E15) ------------------------------------------------------------------------

READ_ONLY = sql("SELECT set_config('default_transaction_read_only', 'on', false)")
"""As a session finds its server after a fail-over that left it running."""


async def test_connections_to_a_server_that_takes_no_writes_are_given_up(
    notes: Database, database_settings: DatabaseSettings
) -> None:
    both = await Database.open(replace(database_settings, min_size=2, max_size=2))
    async with both.transaction() as first, both.transaction() as other:
        await first.fetch(READ_ONLY)
        await other.fetch(READ_ONLY)
    with pytest.raises(
        ReadOnlyServerError, match="hint: DATABASE_URL points at a replica or at a former primary"
    ):
        await both.fetch(INSERT, id=1)
    async with both.transaction() as first, both.transaction() as other:
        await first.fetch(INSERT, id=1)
        await other.fetch(INSERT, id=2)
    assert await count(both) == 2
    await both.close()


async def test_a_server_that_stays_read_only_is_not_stormed(
    notes: Database, database_settings: DatabaseSettings
) -> None:
    """Each new session costs such a server a process, and nobody waits for less because of them."""
    async with notes.transaction() as transaction:
        (name,) = (await transaction.fetch(sql("SELECT quote_ident(current_database())")))[0].values()
        await transaction.fetch(sql(f"ALTER DATABASE {name} SET default_transaction_read_only = on"))
    database = await Database.open(replace(database_settings, max_size=1))
    sessions = set()
    for number in range(60):
        with pytest.raises(ReadOnlyServerError):
            await database.fetch(INSERT, id=number)
        sessions.add((await rows(database, "SELECT pg_backend_pid() AS pid"))[0]["pid"])
    assert len(sessions) <= 4
    await database.close()


async def test_a_server_where_nobody_may_listen_is_asked_with_growing_pauses() -> None:
    """A stand-by lets everybody in and then refuses LISTEN."""
    begun_s: list[float] = []

    class StandBy:
        def add_termination_listener(self, _listener: object) -> None: ...
        def terminate(self) -> None: ...
        def is_closed(self) -> bool:
            return False

        async def add_listener(self, _channel: str, _callback: object) -> None:
            raise asyncpg.ReadOnlySQLTransactionError("cannot execute LISTEN during recovery")

    async def connect() -> DatabaseConnection:
        begun_s.append(asyncio.get_running_loop().time())
        requested.set()
        return cast(DatabaseConnection, StandBy())

    listener, requested = NotificationListener(connect), asyncio.Event()
    await listener.add("one", Ear())
    async with asyncio.timeout(10):
        while len(begun_s) < 3:
            requested.clear()
            await requested.wait()
    await listener.close()
    assert begun_s[1] - begun_s[0] >= 0.1
    assert begun_s[2] - begun_s[1] >= 0.5


async def test_listener_on_a_former_primary_reconnects(database_settings: DatabaseSettings) -> None:
    database = await Database.open(replace(database_settings, max_size=1))
    ear = Ear()
    await database.listen("one", ear)
    await ear.hears("")
    await database.fetch(READ_ONLY)
    with pytest.raises(ReadOnlyServerError):
        await database.fetch(sql("CREATE TABLE more (id integer)"))
    await ear.hears("", "")
    await database.close()


# ---- listening -------------------------------------------------------------------------------------


class Ear:
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self._more = asyncio.Event()

    def __call__(self, payload: str) -> None:
        self.heard.append(payload)
        self._more.set()

    async def hears(self, *payloads: str) -> None:
        async with asyncio.timeout(5):
            while self.heard[-len(payloads) :] != list(payloads):
                self._more.clear()
                await self._more.wait()


NOTIFY = sql("SELECT pg_notify($1, $2)", "channel", "payload")


async def test_listening_survives_its_connection(database: Database) -> None:
    ear, other = Ear(), Ear()
    stop = await database.listen("one", ear)
    await database.listen("two", other)
    await ear.hears("")
    await other.hears("")
    await database.fetch(NOTIFY, channel="one", payload="first")
    await ear.hears("first")
    kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
    await run(database, kill)
    await ear.hears("first", "")  # something may have been missed
    await other.hears("", "")
    await database.fetch(NOTIFY, channel="one", payload="second")
    await ear.hears("second")
    await stop()
    await database.fetch(NOTIFY, channel="one", payload="third")
    await database.fetch(NOTIFY, channel="two", payload="end")
    await other.hears("end")
    assert ear.heard == ["", "first", "", "second"]


async def test_closing_leaves_no_task_and_no_connection(
    database: Database, database_settings: DatabaseSettings
) -> None:
    tasks_before = asyncio.all_tasks()
    name = "to be closed"
    other = await Database.open(replace(database_settings, application_name=name))
    ear = Ear()
    await other.listen("one", ear)
    await ear.hears("")
    await other.close()
    assert asyncio.all_tasks() == tasks_before
    mine = "SELECT count(*) AS n FROM pg_stat_activity WHERE application_name = $1"
    async with asyncio.timeout(5):
        while (await rows(database, mine, name))[0]["n"]:
            await asyncio.sleep(0.01)
