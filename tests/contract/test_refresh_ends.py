"""CredentialStore: how a refresh ends, once, whoever comes late (R5-R8)."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tests.contract.credential_steps import (
    again,
    claim,
    claimed,
    connected,
    intent,
    marked,
    read_credential,
    reauth_requirement,
    sent,
    unknown,
    unknown_rotation,
)
from tests.contract.stores import Stores, a_session
from tests.support.engine import IDS

# ---- the end ---------------------------------------------------------------------------------------


async def test_a_settled_answer_is_the_new_generation(stores: Stores) -> None:
    credential, owner = await connected(stores), await a_session(stores)
    answer = replace(await sent(stores, intent(credential, owner)), account_id="77", refreshable=False)
    assert await stores.credentials.settle(answer) == "settled"
    now = await read_credential(stores)
    assert (now.generation, now.settled_epoch, now.sealed) == (2, answer.epoch, answer.sealed)
    assert (now.state, now.state_reason, now.rotation, now.refreshable) == ("active", None, None, False)
    assert now.connection.account_id == "77"
    assert now.connection.version > credential.connection.version
    assert now.expires_at is not None
    assert now.expires_in_s is not None
    assert (now.expires_at - answer.sent_at).total_seconds() == 3600, "counted from the send"
    offsets_s = [now.expires_in_s - other_s for other_s in (600, 100, 700)]
    assert [now.urgent_in_s, now.critical_in_s, now.due_in_s] == pytest.approx(offsets_s)
    assert now.refreshed_age_s == pytest.approx(3600 - now.expires_in_s)
    record = (await stores.trail())[-1]
    assert (record.act, record.details) == ("token.refreshed", {"generation": 2, "epoch": answer.epoch})


async def test_an_account_that_is_known_stays(stores: Stores) -> None:
    credential, owner = await connected(stores, account_id="77"), await a_session(stores)
    assert await stores.credentials.settle(await sent(stores, intent(credential, owner))) == "settled"
    connection = (await read_credential(stores)).connection
    assert (connection.account_id, connection.version) == ("77", credential.connection.version)


async def test_an_answer_settles_once(stores: Stores) -> None:
    credential, owner = await connected(stores), await a_session(stores)
    answer = await sent(stores, intent(credential, owner))
    others = replace(answer, audit_id=IDS.uuid7(), epoch=answer.epoch + 1)
    verdicts = await asyncio.gather(stores.credentials.settle(answer), stores.peer().settle(others))
    assert sorted(verdicts) == ["settled", "superseded"]
    assert await stores.credentials.settle(replace(answer, audit_id=IDS.uuid7())) == "superseded"
    now = await read_credential(stores)
    assert now.generation == 2
    winner = answer if verdicts[0] == "settled" else others
    assert now.settled_epoch == winner.epoch, "whose answer was lost reads here that it is his"


async def test_a_reconnect_wins_over_a_late_answer(stores: Stores) -> None:
    credential, owner = await connected(stores), await a_session(stores)
    answer = await sent(stores, intent(credential, owner))
    assert await stores.credentials.replace(again(credential))
    assert await stores.credentials.settle(answer) == "superseded"
    assert (await read_credential(stores)).sealed.blob == b"granted"


async def test_a_late_answer_does_not_end_the_refresh_of_a_later_generation(stores: Stores) -> None:
    credential, owner = await connected(stores), await a_session(stores)
    late = await sent(stores, intent(credential, owner))
    assert await stores.credentials.replace(again(credential))
    attempt = intent(await read_credential(stores), owner)
    await sent(stores, attempt)
    assert await stores.credentials.settle(late) == "superseded"
    rotation = (await read_credential(stores)).rotation
    assert rotation is not None
    assert rotation.attempt_id == attempt.attempt_id


@pytest.mark.parametrize("verdict", ["unknown", "needs_reauth"])
async def test_a_late_answer_heals(stores: Stores, verdict: str) -> None:
    credential, owner = await connected(stores), await a_session(stores)
    attempt = intent(credential, owner)
    answer = await sent(stores, attempt)
    if verdict == "unknown":
        assert await stores.credentials.mark_unknown(unknown(attempt, due_in_s=None))
    else:
        assert await stores.credentials.require_reauth(reauth_requirement(credential, attempt.attempt_id))
    assert (await read_credential(stores)).state == verdict
    assert await stores.credentials.settle(answer) == "settled"
    now = await read_credential(stores)
    assert (now.state, now.state_reason, now.rotation, now.generation) == ("active", None, None, 2)


async def test_unknown_keeps_the_token_and_says_when_to_look(stores: Stores) -> None:
    credential, owner = await connected(stores), await a_session(stores)
    attempt = intent(credential, owner)
    await claimed(stores, attempt)
    assert not await stores.credentials.mark_unknown(unknown(attempt)), "it was not sent"
    await stores.credentials.mark_sent(attempt.connection_id, attempt.attempt_id)
    assert not await stores.credentials.mark_unknown(replace(unknown(attempt), attempt_id=IDS.uuid7()))
    assert await stores.credentials.mark_unknown(unknown(attempt, due_in_s=30.0))
    assert not await stores.credentials.mark_unknown(unknown(attempt)), "it is unknown already"
    now = await read_credential(stores)
    assert (now.state, now.state_reason, now.sealed) == ("unknown", "cut", credential.sealed)
    assert now.due_in_s == pytest.approx(30, abs=5)
    assert now.rotation is not None
    assert now.rotation.phase == "unknown"


async def test_unknown_does_not_touch_a_later_grant(stores: Stores) -> None:
    credential, owner = await connected(stores), await a_session(stores)
    attempt = intent(credential, owner)
    await sent(stores, attempt)
    assert await stores.credentials.replace(again(credential))
    assert not await stores.credentials.mark_unknown(unknown(attempt))
    assert (await read_credential(stores)).state == "active"


@pytest.mark.parametrize("phase", ["intent", "sent"])
async def test_rotation_that_changed_nothing_is_released_without_a_trace(stores: Stores, phase: str) -> None:
    credential, owner = await connected(stores), await a_session(stores)
    attempt = intent(credential, owner)
    await (claimed if phase == "intent" else sent)(stores, attempt)
    assert not await stores.credentials.release(attempt.connection_id, IDS.uuid7())
    assert await stores.credentials.release(attempt.connection_id, attempt.attempt_id)
    assert not await stores.credentials.release(attempt.connection_id, attempt.attempt_id)
    now = await read_credential(stores)
    assert (now.state, now.rotation) == ("active", None)
    assert await claim(stores.credentials, intent(credential, owner)) is not None


async def test_the_sender_knows_better_than_who_found_it_unknown(stores: Stores) -> None:
    credential, first = await unknown_rotation(stores)
    assert await stores.credentials.release(first.connection_id, first.attempt_id)
    now = await read_credential(stores)
    assert (now.state, now.state_reason, now.rotation) == ("active", None, None)
    assert now.due_in_s is not None
    assert now.due_in_s <= 0, "it had been wanted, so it is due"
    assert await claim(stores.credentials, intent(credential, first.session_id)) is not None


@pytest.mark.parametrize("phase", ["intent", "sent"])
async def test_a_replay_that_changed_nothing_stays_unknown(stores: Stores, phase: str) -> None:
    credential, first = await unknown_rotation(stores)
    replay = intent(credential, first.session_id)
    granted = await stores.credentials.claim_replay(replay, 0)
    assert granted is not None
    if phase == "sent":
        await marked(stores, replay, granted)
    assert await stores.credentials.release(replay.connection_id, replay.attempt_id)
    assert not await stores.credentials.release(replay.connection_id, replay.attempt_id)
    assert not await stores.credentials.release(first.connection_id, first.attempt_id)
    now = await read_credential(stores)
    assert now.rotation is not None
    assert (now.state, now.rotation.phase, now.rotation.replays) == ("unknown", "unknown", 0)
    assert now.rotation.attempt_id not in (first.attempt_id, replay.attempt_id)
    assert await claim(stores.credentials, intent(credential, first.session_id)) is None
    assert await stores.credentials.claim_replay(intent(credential, first.session_id), 0) is not None


async def test_a_replay_of_unknown_outcome_stays_so(stores: Stores) -> None:
    credential, first = await unknown_rotation(stores)
    replay = intent(credential, first.session_id)
    granted = await stores.credentials.claim_replay(replay, 0)
    assert granted is not None
    await marked(stores, replay, granted)
    assert await stores.credentials.mark_unknown(unknown(replay, reason="cut again"))
    assert not await stores.credentials.release(replay.connection_id, replay.attempt_id)
    now = await read_credential(stores)
    assert now.rotation is not None
    assert (now.state_reason, now.rotation.phase, now.rotation.replays) == ("cut again", "unknown", 1)


async def test_a_loser_cannot_condemn_a_winner(stores: Stores) -> None:
    credential, owner = await connected(stores), await a_session(stores)
    attempt = intent(credential, owner)
    answer = await sent(stores, attempt)
    assert not await stores.credentials.require_reauth(reauth_requirement(credential, IDS.uuid7()))
    assert not await stores.credentials.require_reauth(reauth_requirement(credential)), (
        "a refresh is in flight"
    )
    assert await stores.credentials.settle(answer) == "settled"
    assert not await stores.credentials.require_reauth(reauth_requirement(credential, attempt.attempt_id))
    assert not await stores.credentials.require_reauth(reauth_requirement(credential)), "the generation moved"
    assert (await read_credential(stores)).state == "active"


async def test_the_owner_condemns_and_ends_its_refresh(stores: Stores) -> None:
    credential, owner = await connected(stores), await a_session(stores)
    attempt = intent(credential, owner)
    await sent(stores, attempt)
    assert await stores.credentials.require_reauth(reauth_requirement(credential, attempt.attempt_id))
    now = await read_credential(stores)
    assert (now.state, now.state_reason, now.due_in_s) == ("needs_reauth", "invalid_grant", None)
    assert now.rotation is None
    assert await claim(stores.credentials, intent(credential, owner)) is None


async def test_of_an_answer_and_a_verdict_one_stands(stores: Stores) -> None:
    credential, owner = await connected(stores), await a_session(stores)
    attempt = intent(credential, owner)
    answer = await sent(stores, attempt)
    verdict, condemned = await asyncio.gather(
        stores.credentials.settle(answer),
        stores.peer().require_reauth(reauth_requirement(credential, attempt.attempt_id)),
    )
    now = await read_credential(stores)
    assert verdict == "settled", "an answer of the generation that stands always settles"
    assert (now.state, now.generation, now.rotation) == ("active", 2, None)
    assert isinstance(condemned, bool)
