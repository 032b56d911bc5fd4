"""A sender that woke late and knows that nothing came of its send ends what others took for unknown (E44)."""

from __future__ import annotations

from uuid import uuid4

import pytest

from fairlead.adapters.postgres.credentials import PostgresCredentialStore
from fairlead.adapters.postgres.database import Database
from fairlead.engine.ports import UnknownOutcome
from tests.contract.credential_steps import claim
from tests.sql.test_credentials import KEY, connected, intent, session, unknown_rotation
from tests.support.rows import rows


@pytest.fixture
async def store(database: Database):
    store = PostgresCredentialStore(database)
    yield store
    await store.close()


async def test_the_sender_knows_better(store, database) -> None:
    credential, first = await unknown_rotation(store, database)
    assert await store.release(first.connection_id, first.attempt_id)
    now = await store.read(KEY)
    assert now is not None
    assert (now.state, now.state_reason, now.rotation) == ("active", None, None)
    assert now.due_in_s is not None
    assert now.due_in_s <= 0, "it had been wanted, so it is due"
    assert await claim(store, intent(credential, first.session_id)) is not None


async def test_only_the_owner_releases_its_rotation(store, database) -> None:
    _credential, first = await unknown_rotation(store, database)
    assert not await store.release(first.connection_id, uuid4())
    now = await store.read(KEY)
    assert now is not None
    assert (now.state, now.rotation is not None) == ("unknown", True)


async def test_released_twice_a_replay_still_leaves_the_first_send_unknown(store, database) -> None:
    credential, first = await unknown_rotation(store, database)
    replay = intent(credential, first.session_id)
    assert await store.claim_replay(replay, 0) is not None
    assert await store.release(replay.connection_id, replay.attempt_id)
    assert not await store.release(replay.connection_id, replay.attempt_id), "a commit had been in doubt"
    assert not await store.release(first.connection_id, first.attempt_id), "its sender is long gone"
    attempts = await rows(database, "SELECT phase, replays FROM refresh_attempt")
    assert attempts == [{"phase": "unknown", "replays": 0}]
    assert await claim(store, intent(credential, first.session_id)) is None


async def test_a_replay_of_unknown_outcome_stays_so(store, database) -> None:
    credential, owner = await connected(store), await session(database)
    first, replay = intent(credential, owner), intent(credential, owner)
    await claim(store, first)
    await store.mark_sent(first.connection_id, first.attempt_id)
    await store.mark_unknown(UnknownOutcome(first.connection_id, first.attempt_id, "cut", 0.0, uuid4()))
    await store.claim_replay(replay, 0)
    await store.mark_sent(replay.connection_id, replay.attempt_id)
    await store.mark_unknown(UnknownOutcome(replay.connection_id, replay.attempt_id, "cut", 0.0, uuid4()))
    assert not await store.release(replay.connection_id, replay.attempt_id)
    assert [row["phase"] for row in await rows(database, "SELECT phase FROM refresh_attempt")] == ["unknown"]
