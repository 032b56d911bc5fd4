"""One locked credential delays its own settlement and release, and nobody else's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from fairlead.adapters.postgres.credentials import PostgresCredentialStore
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.postgres_errors import RowLockedError
from fairlead.engine.ports import ConnectionKey, Settlement
from tests.contract.credential_steps import claim
from tests.sql.test_credentials import connected, intent, session, settlement
from tests.support.raw_connections import raw_connection_of

LOCK = "UPDATE credential SET state_reason = 'looked into' WHERE connection_id = $1"
KEYS = [ConnectionKey(tenant, "mercadolibre") for tenant in ("acme", "bolt")]


@pytest.fixture
async def store(database: Database) -> AsyncIterator[PostgresCredentialStore]:
    store = PostgresCredentialStore(database)
    yield store
    await store.close()


async def sent(store: PostgresCredentialStore, database: Database, key: ConnectionKey) -> Settlement:
    """Return the answer of a send of *key*."""
    attempt = intent(await connected(store, key=key), await session(database))
    granted = await claim(store, attempt)
    assert granted is not None
    marked = await store.mark_sent(attempt.connection_id, attempt.attempt_id)
    assert marked is not None
    return settlement(attempt, granted, marked.first_at)


async def test_a_locked_rotation_delays_no_other_claim_of_its_endpoint(
    store: PostgresCredentialStore, database: Database
) -> None:
    owner = await session(database)
    locked, free = [intent(await connected(store, key=key), owner) for key in KEYS]
    assert await claim(store, locked) is not None
    async with asyncio.timeout(5), database.transaction() as transaction:
        await raw_connection_of(transaction).execute(
            "UPDATE refresh_attempt SET reason = 'looked into' WHERE connection_id = $1", locked.connection_id
        )
        granted = await asyncio.gather(claim(store, locked), claim(store, free))
        assert granted[0] is None
        assert granted[1] is not None
    assert await claim(store, locked) is not None


async def test_a_locked_row_delays_only_its_own_settlement(
    store: PostgresCredentialStore, database: Database
) -> None:
    locked, free = [await sent(store, database, key) for key in KEYS]
    async with database.transaction() as transaction:
        await raw_connection_of(transaction).execute(LOCK, locked.connection_id)
        first, second = await asyncio.gather(store.settle(locked), store.settle(free), return_exceptions=True)
        assert isinstance(first, RowLockedError)
        assert second == "settled"
        assert str(locked.connection_id) in str(first)
    assert await store.settle(locked) == "settled"


async def test_a_locked_row_delays_only_its_own_release(
    store: PostgresCredentialStore, database: Database
) -> None:
    locked, free = [await sent(store, database, key) for key in KEYS]

    def release(answer: Settlement) -> object:
        return store.release(answer.connection_id, answer.attempt_id)

    async with database.transaction() as transaction:
        await raw_connection_of(transaction).execute(LOCK, locked.connection_id)
        first, second = await asyncio.gather(release(locked), release(free), return_exceptions=True)
        assert isinstance(first, RowLockedError)
        assert second is True
    assert await release(locked)


async def test_a_connection_that_is_gone_is_not_taken_for_locked(
    store: PostgresCredentialStore, database: Database
) -> None:
    answer = await sent(store, database, KEYS[0])
    await store.remove(answer.connection_id, "acme", actor="test", audit_id=UUID(int=7))
    assert await store.settle(answer) == "superseded"
    assert not await store.release(answer.connection_id, answer.attempt_id)
