"""Whoever writes a credential and its rotation holds the credential first: nobody stands across (R7)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from fairlead.adapters.postgres.credentials import PostgresCredentialStore
from fairlead.adapters.postgres.database import Database
from fairlead.engine.ports import Intent, UnknownOutcome
from tests.contract.credential_steps import claim
from tests.sql.test_credentials import KEY, connected, intent, reauth_requirement, session, settlement
from tests.support.raw_connections import raw_connection_of
from tests.support.rows import rows

BLOCKED = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE $1"
GOES_ON = "SELECT FROM refresh_attempt FOR UPDATE NOWAIT"
WHAT_IS_LEFT = (
    "SELECT credential.state, r.phase FROM credential LEFT JOIN refresh_attempt r USING (connection_id)"
)


@pytest.fixture
async def store(database: Database) -> AsyncIterator[PostgresCredentialStore]:
    store = PostgresCredentialStore(database)
    yield store
    await store.close()


async def is_unknown(store: PostgresCredentialStore, sent: Intent) -> bool:
    return await store.mark_unknown(UnknownOutcome(sent.connection_id, sent.attempt_id, "cut", 0.0, uuid4()))


async def releases(store: PostgresCredentialStore, sent: Intent) -> bool:
    return await store.release(sent.connection_id, sent.attempt_id)


async def requires_reauth(store: PostgresCredentialStore, sent: Intent) -> bool:
    credential = await store.read_id(sent.connection_id)
    assert credential is not None
    return await store.require_reauth(reauth_requirement(credential, sent.attempt_id))


async def removes(store: PostgresCredentialStore, sent: Intent) -> bool:
    return await store.remove(sent.connection_id, "acme", actor="test", audit_id=uuid4())


Act = Callable[[PostgresCredentialStore, Intent], Awaitable[bool]]
ACTS: dict[str, tuple[Act, list[tuple[str, str | None]]]] = {
    "refresh_attempt_unknown": (is_unknown, [("unknown", "unknown")]),
    "credential_require_reauth": (requires_reauth, [("needs_reauth", None)]),
    "connection_remove": (removes, []),
}
"""By statement: what asks for it, and what is left of credential and rotation."""


async def sent_once(store: PostgresCredentialStore, database: Database) -> Intent:
    """A send on its way."""
    attempt = intent(await connected(store), await session(database))
    assert await claim(store, attempt) is not None
    assert await store.mark_sent(attempt.connection_id, attempt.attempt_id) is not None
    return attempt


async def beside(
    database: Database, store: PostgresCredentialStore, name: str, *does: str
) -> tuple[bool, list[tuple[str, str | None]]]:
    """What *name* gives and leaves where somebody has the credential, then goes on to the rotation."""
    act, _ = ACTS[name]
    sent = await sent_once(store, database)
    async with database.transaction() as transaction:
        await raw_connection_of(transaction).execute(does[0])
        task = asyncio.create_task(act(store, sent))
        while not task.done() and not await rows(database, BLOCKED, f"/* {name}%"):
            await asyncio.sleep(0.005)
        for more in (GOES_ON, *does[1:]):
            await raw_connection_of(transaction).execute(more)
    return await task, [(row["state"], row["phase"]) for row in await rows(database, WHAT_IS_LEFT)]


@pytest.mark.parametrize("name", ACTS)
async def test_write_waits_without_locks_and_uses_the_row_as_it_is_then(
    database: Database, store: PostgresCredentialStore, name: str
) -> None:
    postponed = "UPDATE credential SET due_at = now() + interval '1 hour'"
    assert await beside(database, store, name, postponed) == (True, ACTS[name][1])


@pytest.mark.parametrize("name", [name for name in ACTS if name != "connection_remove"])
async def test_a_settlement_that_was_first_stands(
    database: Database, store: PostgresCredentialStore, name: str
) -> None:
    settled = "UPDATE credential SET generation = generation + 1, state = 'active'"
    assert await beside(database, store, name, settled, "DELETE FROM refresh_attempt") == (
        False,
        [("active", None)],
    )


async def marks(store: PostgresCredentialStore, sent: Intent) -> object:
    return await store.mark_sent(sent.connection_id, sent.attempt_id)


async def settles(store: PostgresCredentialStore, sent: Intent) -> object:
    return await store.settle(settlement(sent, 1, datetime.now(UTC)))


BATCHES: dict[str, Callable[[PostgresCredentialStore, Intent], Awaitable[object]]] = {
    "refresh_attempt_sent": marks,
    "refresh_attempt_release": releases,
    "credential_settle": settles,
}
"""By statement: what asks for one of its batch."""


@pytest.mark.parametrize("name", BATCHES)
async def test_a_batch_holds_its_rows_in_the_order_of_their_keys(
    database: Database, store: PostgresCredentialStore, name: str
) -> None:
    """Another process's batch of the same connections, in whichever order they came, stands behind it."""
    act = BATCHES[name]
    by = await session(database)
    credentials = [await connected(store, key=KEY._replace(account=account)) for account in ("one", "other")]
    attempts = sorted(
        (intent(credential, by) for credential in credentials), key=lambda attempt: attempt.connection_id
    )
    for sorted_attempt in attempts:
        assert await claim(store, sorted_attempt) is not None
        if name != "refresh_attempt_sent":
            assert await marks(store, sorted_attempt) is not None
        if name == "refresh_attempt_release":
            assert await is_unknown(store, sorted_attempt)
    row = "SELECT FROM refresh_attempt WHERE connection_id = $1 FOR UPDATE NOWAIT"
    async with database.transaction() as transaction:
        await raw_connection_of(transaction).execute(row, attempts[0].connection_id)
        tasks = [asyncio.ensure_future(act(store, attempt)) for attempt in reversed(attempts)]
        while not await rows(database, BLOCKED, f"/* {name}%"):
            await asyncio.sleep(0.005)
        await raw_connection_of(transaction).execute(row, attempts[1].connection_id)
        assert not any(task.done() for task in tasks)  # they are one batch
    assert all(await asyncio.gather(*tasks))
