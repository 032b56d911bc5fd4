"""A send that left late asks for its place while another settles (R7)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from fairlead.adapters.postgres.credentials import PostgresCredentialStore
from fairlead.adapters.postgres.database import Database
from tests.sql.test_credentials import unknown_rotation
from tests.support.raw_connections import raw_connection_of
from tests.support.rows import rows, run

BLOCKED = (
    "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '/* refresh_attempt_late%'"
)
SETTLES = (
    "WITH ended AS (DELETE FROM refresh_attempt RETURNING started_at) UPDATE credential SET generation = 2,"
    " refreshed_at = ended.started_at, last_sent_at = ended.started_at FROM ended"
)


@pytest.fixture
async def store(database: Database) -> AsyncIterator[PostgresCredentialStore]:
    store = PostgresCredentialStore(database)
    yield store
    await store.close()


async def test_late_mark_waits_for_a_settlement_and_sees_its_row(
    database: Database, store: PostgresCredentialStore
) -> None:
    """Of its own snapshot neither row was there to be found: not the one, nor yet the other."""
    _credential, first = await unknown_rotation(store, database)
    (marked,) = await rows(database, "SELECT started_at AS at FROM refresh_attempt")
    left_at = marked["at"] + timedelta(seconds=1)
    async with database.transaction() as transaction:
        await raw_connection_of(transaction).execute(SETTLES)
        late = asyncio.create_task(store.mark_late(first.connection_id, 1, left_at))
        while not await rows(database, BLOCKED):
            await asyncio.sleep(0.005)
    assert await late is not None


async def test_last_sent_at_left_by_an_older_version_is_not_used(
    database: Database, store: PostgresCredentialStore
) -> None:
    """It settles, and the last send of the generation before stays in the row."""
    _credential, first = await unknown_rotation(store, database)
    (marked,) = await rows(database, "SELECT started_at AS at FROM refresh_attempt")
    await run(database, SETTLES)
    await run(database, "UPDATE credential SET last_sent_at = last_sent_at - interval '1 hour'")
    assert await store.mark_late(first.connection_id, 1, marked["at"] + timedelta(seconds=1)) is None
