"""The heartbeat gets a connection where all others wait for somebody who takes his time (R2)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from urllib.parse import urlsplit

import asyncpg
import pytest

from fairlead._core.secret import Secret
from fairlead.adapters.local.system import SystemClock, SystemIds
from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.jobs import PostgresJobStore
from fairlead.adapters.postgres.statements import statement
from fairlead.adapters.postgres.worker_sessions import PostgresSessionStore
from fairlead.assembly.settings import Settings
from fairlead.assembly.stores import database_settings as ground_settings
from fairlead.engine.jobs.heartbeat import Heartbeat
from fairlead.errors import DependencyUnavailableError
from fairlead.events import Event, LeaseLost
from tests.contract.stores import identity
from tests.support.databases import SCHEMA
from tests.support.engine import new_job
from tests.support.rows import rows, run
from tests.support.standstill import patience

LEASE_S = 2.0
LEASES = 3
HANDLERS = 6
PAUSE_S = 0.01
IDS = SystemIds()
LOOK = statement("server_clock")
BLOCKED = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


@asynccontextmanager
async def held_open(settings: DatabaseSettings, key: str) -> AsyncIterator[None]:
    """A transaction of somebody's business, in which a job of this unique key was enqueued."""
    connection = await asyncpg.connect(settings.dsn)
    try:
        async with connection.transaction():
            enqueue = f'SELECT "{SCHEMA}".fairlead_enqueue($1, $2, unique_key => $3)'
            await connection.execute(enqueue, "work", "acme", key)
            yield
    finally:
        await connection.close(timeout=5)


@asynccontextmanager
async def asking(database: Database, key: str) -> AsyncIterator[None]:
    """Handlers that enqueue the same key; whoever gives up is replaced at once."""
    jobs = PostgresJobStore(database, IDS)

    async def handler() -> None:
        while True:
            try:
                async with asyncio.timeout(LEASE_S * 2):  # as long as its job may take
                    await jobs.enqueue([new_job(unique_key=key)])
            except (TimeoutError, DependencyUnavailableError):
                await asyncio.sleep(PAUSE_S)

    handlers = [asyncio.create_task(handler()) for _ in range(HANDLERS)]
    try:
        yield
    finally:
        for task in handlers:
            task.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)
        await jobs.close()


@pytest.mark.slow
async def test_no_lease_is_lost_to_enqueues_that_wait_for_a_transaction(
    database: Database, database_settings: DatabaseSettings
) -> None:
    """Each waits for its lock_timeout, six leases long; two connections are all there are."""
    events: list[Event] = []
    first = await Database.open(replace(database_settings, max_size=2, urgent_size=1))
    heartbeat = Heartbeat(
        PostgresSessionStore(first, IDS),
        identity(1),
        version="1",
        clock=SystemClock(),
        draw=lambda: 0.5,
        ids=IDS,
        emit=events.append,
        lease_s=LEASE_S,
    )
    beating = asyncio.create_task(heartbeat.run())
    session_id = await heartbeat.wait_until_open()
    async with held_open(database_settings, "K"), asking(first, "K"):
        async with patience(10.0):
            while not await rows(database, BLOCKED):
                await asyncio.sleep(PAUSE_S)
        await asyncio.sleep(LEASES * LEASE_S)
        assert not [event for event in events if isinstance(event, LeaseLost)]
        assert heartbeat.session_id == session_id
    heartbeat.stop()
    await beating
    await first.close()


def test_a_process_keeps_one_of_its_connections_for_that() -> None:
    assert ground_settings(Settings(), Secret("postgresql://u@h/d")).urgent_size == 1


async def test_the_place_of_the_urgent_is_lent_to_nobody_else(database_settings: DatabaseSettings) -> None:
    database = await Database.open(
        replace(database_settings, max_size=3, urgent_size=1, acquire_timeout_s=0.1)
    )
    async with database.transaction(), database.transaction():
        with pytest.raises(DependencyUnavailableError):
            await database.fetch(LOOK)
        assert await database.urgent(LOOK)
    await asyncio.gather(*(database.fetch(LOOK) for _ in range(20)))
    await database.close()


async def test_cancelled_waiter_returns_its_connection(database_settings: DatabaseSettings) -> None:
    database = await Database.open(replace(database_settings, max_size=2, urgent_size=1))
    for _ in range(5):
        async with database.transaction():
            waiting = [asyncio.create_task(database.fetch(LOOK)) for _ in range(3)]
            await asyncio.sleep(0)
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
    async with asyncio.timeout(5):
        await asyncio.gather(*(database.fetch(LOOK) for _ in range(10)))
    await database.close()


async def test_on_a_full_server_the_urgent_one_is_served_first(
    database: Database, database_settings: DatabaseSettings
) -> None:
    """The server gives one connection, others wait for it already, and it comes free."""
    await run(database, "CREATE ROLE narrow LOGIN CONNECTION LIMIT 1 IN ROLE fairlead_engine")
    served: list[str] = []
    try:
        parts = urlsplit(database_settings.dsn)
        dsn = parts._replace(netloc=f"narrow@{parts.netloc.rpartition('@')[2]}").geturl()
        narrow = await Database.open(replace(database_settings, dsn=dsn, urgent_size=1))

        async def ask(name: str) -> None:
            await (narrow.urgent if name == "urgent" else narrow.fetch)(LOOK)
            served.append(name)

        async with narrow.transaction():
            tasks = [asyncio.create_task(ask("other")) for _ in range(4)]
            while not narrow._checkouts._queue.locked():
                await asyncio.sleep(PAUSE_S)
            tasks.append(asyncio.create_task(ask("urgent")))
            while not narrow._checkouts._urgent_waiting:
                await asyncio.sleep(PAUSE_S)
        await asyncio.gather(*tasks)
        await narrow.close()
    finally:
        await run(database, "DROP ROLE narrow")
    assert served == ["urgent", *["other"] * 4]
