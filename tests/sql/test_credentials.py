"""The rotation row as mutex, intent and SENT mark, and settle and condemn by compare-and-set (R5-R8)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime
from uuid import UUID, uuid4

import pytest

from fairlead.adapters.postgres.credentials import PostgresCredentialStore
from fairlead.adapters.postgres.database import Database
from fairlead.engine.ports import (
    ConnectionKey,
    Credential,
    Intent,
    Lifetime,
    NewCredential,
    ReauthRequirement,
    Sealed,
    Settlement,
    UnknownOutcome,
)
from fairlead.testing._kit.ids import CountedIds
from tests.contract.credential_steps import claim
from tests.support.rows import rows, run

KEY = ConnectionKey("acme", "mercadolibre")
HOUR = Lifetime(expires_in_s=3600.0, urgent_in_s=3000.0, critical_in_s=3500.0, due_in_s=2900.0)
PAST = Lifetime(expires_in_s=0.0, urgent_in_s=0.0, critical_in_s=0.0, due_in_s=0.0)
IDS = CountedIds(10_000)


@pytest.fixture
async def store(database: Database):
    store = PostgresCredentialStore(database)
    yield store
    await store.close()


async def session(database: Database) -> UUID:
    session_id = uuid4()
    await run(
        database,
        "INSERT INTO worker_session (session_id, host, boot_id, pid_namespace, pid, process_started, version,"
        " lease) VALUES ($1, 'h', 'b', 'n', 1, '1', '0', interval '30 s')",
        session_id,
    )
    return session_id


def new(key: ConnectionKey = KEY, lifetime: Lifetime = HOUR, generation: int = 1) -> NewCredential:
    return NewCredential(
        connection_id=uuid4(),
        key=key,
        variant=None,
        account_id=None,
        client_id="app",
        endpoint={},
        settings={},
        sealed=Sealed(uuid4(), b"secret 1"),
        generation=generation,
        refreshable=True,
        lifetime=lifetime,
        actor="test",
        audit_id=uuid4(),
    )


async def connected(store: PostgresCredentialStore, **kwargs: object) -> Credential:
    new_record = new(**kwargs)  # type: ignore[arg-type]
    assert await store.create(new_record)
    credential = await store.read(new_record.key)
    assert credential is not None
    return credential


def intent(credential: Credential, session_id: UUID, lease_s: float = 60.0) -> Intent:
    return Intent(credential.connection.connection_id, uuid4(), credential.generation, session_id, lease_s)


def settlement(attempt: Intent, epoch: int, sent_at: datetime) -> Settlement:
    return Settlement(
        connection_id=attempt.connection_id,
        attempt_id=attempt.attempt_id,
        from_generation=attempt.from_generation,
        epoch=epoch,
        sealed=Sealed(uuid4(), b"secret 2"),
        refreshable=True,
        account_id="77",
        sent_at=sent_at,
        lifetime=HOUR,
        actor="test",
        audit_id=uuid4(),
    )


async def answer(store: PostgresCredentialStore, attempt: Intent, epoch: int) -> Settlement:
    mark = await store.mark_sent(attempt.connection_id, attempt.attempt_id)
    assert mark is not None
    return settlement(attempt, epoch, mark.first_at)


async def test_a_connection_is_read_by_name_and_by_id(store) -> None:
    credential = await connected(store)
    assert (credential.state, credential.generation, credential.sealed.blob, credential.rotation) == (
        "active",
        1,
        b"secret 1",
        None,
    )
    assert credential.expires_in_s == pytest.approx(3600, abs=5)
    assert await store.read_id(credential.connection.connection_id) is not None
    assert await store.read(KEY._replace(account="other")) is None
    assert not await store.create(new())


async def test_rotation_has_one_intent_at_a_time_across_sessions(store, database) -> None:
    credential = await connected(store)
    sessions = [await session(database) for _ in range(4)]
    others = [PostgresCredentialStore(database) for _ in range(4)]
    granted = await asyncio.gather(
        *(claim(other, intent(credential, s)) for other, s in zip(others * 5, sessions * 5, strict=True))
    )
    assert sum(epoch is not None for epoch in granted) == 1
    for other in others:
        await other.close()


async def test_time_takes_over_only_what_was_never_sent(store, database) -> None:
    credential, owner, peer = await connected(store), await session(database), await session(database)
    first = intent(credential, owner, lease_s=-1.0)
    assert await claim(store, first) is not None
    second = intent(credential, peer, lease_s=-1.0)
    assert await claim(store, second) is not None, "an intent that ran out may be taken over"
    assert await store.mark_sent(first.connection_id, first.attempt_id) is None, (
        "its first owner must not send"
    )
    assert await store.mark_sent(second.connection_id, second.attempt_id) is not None
    assert await claim(store, intent(credential, owner)) is None, "what was sent is never taken over by time"


async def test_a_lost_owner_makes_room_before_it_sent(store, database) -> None:
    credential, owner, peer = await connected(store), await session(database), await session(database)
    assert await claim(store, intent(credential, owner)) is not None
    assert await claim(store, intent(credential, peer)) is None
    await run(database, "UPDATE worker_session SET lost_at = now() WHERE session_id = $1", owner)
    assert await claim(store, intent(credential, peer)) is not None


async def test_a_stale_generation_gets_no_intent_and_no_mark(store, database) -> None:
    credential, owner = await connected(store), await session(database)
    attempt = intent(credential, owner)
    assert await claim(store, attempt) is not None
    moved = replace(new(generation=2), connection_id=credential.connection.connection_id)
    assert await store.replace(moved)
    assert await store.mark_sent(attempt.connection_id, attempt.attempt_id) is None
    assert await claim(store, intent(credential, owner)) is None


async def test_settle_moves_the_generation_once(store, database) -> None:
    credential, owner = await connected(store), await session(database)
    attempt = intent(credential, owner)
    granted = await claim(store, attempt)
    assert granted is not None
    settlement = await answer(store, attempt, granted)
    assert await store.settle(settlement) == "settled"
    assert await store.settle(replace(settlement, audit_id=uuid4())) == "superseded"
    now = await store.read(KEY)
    assert now is not None
    assert (now.generation, now.sealed.blob, now.settled_epoch, now.rotation) == (
        2,
        b"secret 2",
        granted,
        None,
    )
    assert now.connection.account_id == "77"
    assert now.refreshed_age_s is not None
    acts = await rows(database, "SELECT act FROM audit ORDER BY at, act")
    assert [row["act"] for row in acts] == ["connection.created", "token.refreshed"]


async def test_expiry_counts_from_the_send(store, database) -> None:
    credential, owner = await connected(store), await session(database)
    attempt = intent(credential, owner)
    granted = await claim(store, attempt)
    assert granted is not None
    settlement = await answer(store, attempt, granted)
    await store.settle(settlement)
    now = await store.read(KEY)
    assert now is not None
    assert now.expires_at is not None
    assert (now.expires_at - settlement.sent_at).total_seconds() == 3600


async def test_a_reconnect_wins_over_a_late_answer(store, database) -> None:
    credential, owner = await connected(store), await session(database)
    attempt = intent(credential, owner)
    granted = await claim(store, attempt)
    assert granted is not None
    settlement = await answer(store, attempt, granted)
    again = replace(new(generation=2), connection_id=credential.connection.connection_id)
    assert await store.replace(again)
    assert await store.settle(settlement) == "superseded"
    assert not await store.replace(replace(again, audit_id=uuid4())), "a second writer of generation 2 loses"


async def test_the_version_moves_on_where_the_clock_does_not(store, database) -> None:
    """Two transactions may begin at one moment, and end in either order: the gate goes by the newest."""
    credential, owner = await connected(store), await session(database)
    await run(database, "UPDATE connection SET updated_at = now() + interval '1 hour'")
    version_before = (await store.read(KEY)).connection.version
    await store.replace(replace(new(generation=2), connection_id=credential.connection.connection_id))
    latest = await store.read(KEY)
    attempt = intent(latest, owner)
    granted = await claim(store, attempt)
    assert await store.settle(await answer(store, attempt, granted)) == "settled"
    named = await store.read(KEY)
    assert version_before < latest.connection.version < named.connection.version


async def test_a_released_intent_leaves_nothing(store, database) -> None:
    credential, owner = await connected(store), await session(database)
    attempt = intent(credential, owner)
    await claim(store, attempt)
    assert await store.release(attempt.connection_id, attempt.attempt_id)
    assert not await store.release(attempt.connection_id, attempt.attempt_id)
    assert await claim(store, intent(credential, owner)) is not None


async def unknown_rotation(store, database, *, reason: str = "cut") -> tuple[Credential, Intent]:
    credential, owner = await connected(store), await session(database)
    attempt = intent(credential, owner)
    await claim(store, attempt)
    assert await store.mark_sent(attempt.connection_id, attempt.attempt_id) is not None
    assert await store.mark_unknown(
        UnknownOutcome(attempt.connection_id, attempt.attempt_id, reason, 0.0, uuid4())
    )
    return credential, attempt


async def test_an_unknown_outcome_keeps_the_token_and_one_may_replay(store, database) -> None:
    credential, first = await unknown_rotation(store, database)
    now = await store.read(KEY)
    assert now is not None
    assert now.rotation is not None
    assert (now.state, now.state_reason, now.rotation.phase, now.sealed.blob) == (
        "unknown",
        "cut",
        "unknown",
        b"secret 1",
    )
    assert await claim(store, intent(credential, first.session_id)) is None, (
        "an ordinary claim never sends again"
    )
    replays = [intent(credential, await session(database)) for _ in range(5)]
    granted = await asyncio.gather(*(store.claim_replay(replay, 0) for replay in replays))
    assert sum(epoch is not None for epoch in granted) == 1


async def test_a_replay_that_was_not_processed_stays_unknown(store, database) -> None:
    credential, first = await unknown_rotation(store, database)
    again = intent(credential, first.session_id)
    assert await store.claim_replay(again, 0) is not None
    assert await store.mark_sent(again.connection_id, again.attempt_id) is not None
    sent = await store.read(KEY)
    assert sent is not None
    assert sent.rotation is not None
    assert sent.rotation.replays == 1
    assert await store.release(again.connection_id, again.attempt_id)
    back = await store.read(KEY)
    assert back is not None
    assert back.rotation is not None
    assert (back.rotation.phase, back.rotation.replays) == ("unknown", 0)


async def test_a_late_answer_heals_what_was_unknown(store, database) -> None:
    credential, owner = await connected(store), await session(database)
    attempt = intent(credential, owner)
    granted = await claim(store, attempt)
    assert granted is not None
    settlement = await answer(store, attempt, granted)
    assert await store.mark_unknown(
        UnknownOutcome(attempt.connection_id, attempt.attempt_id, "frozen", None, uuid4())
    )
    assert await store.settle(settlement) == "settled"
    now = await store.read(KEY)
    assert now is not None
    assert (now.state, now.rotation) == ("active", None)


def reauth_requirement(credential: Credential, attempt_id: UUID | None) -> ReauthRequirement:
    return ReauthRequirement(
        connection_id=credential.connection.connection_id,
        from_generation=credential.generation,
        attempt_id=attempt_id,
        reason="invalid_grant",
        notice_id=uuid4(),
        notice_args={"reason": "invalid_grant"},
        audit_id=uuid4(),
    )


async def test_a_loser_cannot_condemn_a_winner(store, database) -> None:
    credential, owner = await connected(store), await session(database)
    attempt = intent(credential, owner)
    granted = await claim(store, attempt)
    assert granted is not None
    assert not await store.require_reauth(reauth_requirement(credential, uuid4())), (
        "another owner's rotation is open"
    )
    assert not await store.require_reauth(reauth_requirement(credential, None)), "a refresh is in flight"
    await store.settle(await answer(store, attempt, granted))
    assert not await store.require_reauth(reauth_requirement(credential, attempt.attempt_id)), (
        "the generation moved"
    )
    now = await store.read(KEY)
    assert now is not None
    assert now.state == "active"


async def test_condemning_tells_once(store, database) -> None:
    credential, owner = await connected(store), await session(database)
    attempt = intent(credential, owner)
    await claim(store, attempt)
    assert await store.require_reauth(reauth_requirement(credential, attempt.attempt_id))
    assert not await store.require_reauth(reauth_requirement(credential, None))
    jobs = await rows(database, "SELECT kind, tenant_id, provider FROM job")
    assert [tuple(job.values()) for job in jobs] == [("event.needs_reauth", "acme", "mercadolibre")]
    now = await store.read(KEY)
    assert now is not None
    assert (now.state, now.state_reason, now.due_in_s) == (
        "needs_reauth",
        "invalid_grant",
        None,
    )


async def test_due_pages_cover_everything_once_and_in_order(store, database) -> None:
    for number in range(25):
        await store.create(new(ConnectionKey("acme", "mercadolibre", f"b{number}"), PAST))
    await store.create(new(ConnectionKey("acme", "mercadolibre", "later"), HOUR))
    accounts: list[str] = []
    cursor = None
    while True:
        page = await store.due(urgent_only=False, cool_down_s=60, cursor=cursor, limit=10)
        accounts += [due.key.account for due in page.connections]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert sorted(accounts) == sorted(f"b{number}" for number in range(25))
    urgent = await store.due(urgent_only=True, cool_down_s=60, cursor=None, limit=100)
    assert {due.priority for due in urgent.connections} == {0}


async def test_refreshes_left_behind_are_found(store, database) -> None:
    credential, owner = await connected(store), await session(database)
    attempt = intent(credential, owner)
    await claim(store, attempt)
    await store.mark_sent(attempt.connection_id, attempt.attempt_id)
    assert not await store.left_behind(10, 0.0)
    await run(database, "UPDATE worker_session SET lost_at = now() WHERE session_id = $1", owner)
    due_connections = await store.left_behind(10, 0.0)
    assert [due.connection_id for due in due_connections] == [attempt.connection_id]


async def test_revoked_stays_revoked(store, database) -> None:
    credential, owner = await connected(store), await session(database)
    attempt = intent(credential, owner)
    granted = await claim(store, attempt)
    assert granted is not None
    settlement = await answer(store, attempt, granted)
    assert await store.revoke(
        attempt.connection_id, KEY.tenant, actor="test", reason="left", audit_id=uuid4()
    )
    assert not await store.revoke(
        attempt.connection_id, KEY.tenant, actor="test", reason="left", audit_id=uuid4()
    )
    assert await store.settle(settlement) == "superseded"
    assert await store.remove(attempt.connection_id, KEY.tenant, actor="test", audit_id=uuid4())
    assert await store.read(KEY) is None


async def test_the_timeline_changes_where_a_dump_is_restored_into_the_same_server(store, database) -> None:
    timeline_before = await store.timeline()
    assert await store.timeline() == timeline_before
    await run(database, "TRUNCATE credential")
    assert await store.timeline() != timeline_before
