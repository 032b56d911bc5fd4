"""CredentialStore: one refresh per generation, whoever asks, dies, or never hears the answer (R5-R8)."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace

import pytest

from fairlead.errors import DependencyUnavailableError
from tests.contract.credential_steps import (
    KEY,
    again,
    claim,
    claimed,
    connected,
    intent,
    marked,
    read_credential,
    sent,
    unknown,
    unknown_rotation,
)
from tests.contract.stores import Stores, a_session, memory_stores
from tests.support.engine import IDS, NOBODY

# ---- INTENT ----------------------------------------------------------------------------------------


async def test_rotation_has_one_intent_at_a_time_across_processes(stores: Stores) -> None:
    credential, processes = await connected(stores), [stores.credentials, stores.peer(), stores.peer()]
    attempts = [intent(credential, await a_session(stores, pid)) for pid in range(3) for _ in range(4)]
    granted = await asyncio.gather(
        *(claim(processes[number % 3], attempt) for number, attempt in enumerate(attempts))
    )
    assert sum(epoch is not None for epoch in granted) == 1
    rotation = (await read_credential(stores)).rotation
    assert rotation is not None
    [(winner, answer)] = [
        (attempt, epoch) for attempt, epoch in zip(attempts, granted, strict=True) if epoch is not None
    ]
    assert (rotation.attempt_id, rotation.epoch) == (winner.attempt_id, answer)


async def test_an_intent_is_shown_with_its_owner(stores: Stores) -> None:
    credential, owner = await connected(stores), await a_session(stores)
    attempt = intent(credential, owner)
    granted = await claimed(stores, attempt)
    rotation = (await read_credential(stores)).rotation
    assert rotation is not None
    assert (rotation.attempt_id, rotation.session_id) == (attempt.attempt_id, owner)
    assert (rotation.from_generation, rotation.epoch, rotation.phase) == (1, granted, "intent")
    assert (rotation.owner_lost, rotation.expired) == (False, False)
    assert (rotation.age_sent_s, rotation.age_last_sent_s, rotation.replays) == (None, None, 0)
    await stores.pass_time(70)
    await stores.sessions.mark_dead([owner])
    rotation = (await read_credential(stores)).rotation
    assert rotation is not None
    assert (rotation.owner_lost, rotation.expired) == (True, True)


@pytest.mark.parametrize("end", ["lost", "stopped", "unknown"])
async def test_rotation_of_a_dead_session_is_reported_as_lost(stores: Stores, end: str) -> None:
    credential, owner = await connected(stores), await a_session(stores)
    await claimed(stores, intent(credential, NOBODY if end == "unknown" else owner))
    if end == "lost":
        await stores.sessions.mark_dead([owner])
    if end == "stopped":
        await stores.sessions.close(owner)
    rotation = (await read_credential(stores)).rotation
    assert rotation is not None
    assert rotation.owner_lost
    assert await claim(stores.credentials, intent(credential, await a_session(stores, 2))) is not None


async def test_epochs_follow_time_and_stay_above_what_is_known(stores: Stores) -> None:
    """A restore sets a sequence back, and not the time (R51)."""
    _, attempt = await unknown_rotation(stores)
    rotation = (await read_credential(stores)).rotation
    assert rotation is not None
    seconds = rotation.epoch / 1e6 - (await read_credential(stores)).read_at.timestamp()
    assert -60 < seconds <= 0
    replay = replace(attempt, attempt_id=IDS.uuid7())
    granted = await stores.credentials.claim_replay(replay, 0)
    assert granted is not None
    assert granted > rotation.epoch
    await stores.credentials.raise_epochs(granted + 10**12)
    await stores.credentials.raise_epochs(granted)
    answer = await marked(stores, replay, granted)
    assert await stores.credentials.settle(answer) == "settled"
    later = await claimed(stores, intent(await read_credential(stores), attempt.session_id))
    assert later > granted + 10**12
    assert (await read_credential(stores)).settled_epoch == granted


async def test_a_send_of_before_the_stored_token_was_got_is_superseded(stores: Stores) -> None:
    """After a restore two tokens have the number of one generation (R51)."""
    credential, owner = await connected(stores), await a_session(stores)
    lost = await sent(stores, intent(credential, owner))
    lost = replace(lost, from_generation=2, epoch=lost.epoch - 1)
    assert await stores.credentials.release(lost.connection_id, lost.attempt_id)
    assert await stores.credentials.settle(await sent(stores, intent(credential, owner))) == "settled"
    assert await stores.credentials.settle(lost) == "superseded"
    assert (await read_credential(stores)).generation == 2


async def test_asked_again_after_a_lost_answer_it_is_granted_again(stores: Stores) -> None:
    credential, owner = await connected(stores), await a_session(stores)
    attempt = intent(credential, owner)
    first, second = await claimed(stores, attempt), await claimed(stores, attempt)
    assert second > first
    assert await stores.credentials.mark_sent(attempt.connection_id, attempt.attempt_id) is not None
    assert await claim(stores.credentials, attempt) is None, "it was sent meanwhile"


async def test_a_stale_generation_gets_no_intent_and_no_mark(stores: Stores) -> None:
    credential, owner = await connected(stores), await a_session(stores)
    attempt = intent(credential, owner)
    await claimed(stores, attempt)
    assert await stores.credentials.replace(again(credential))
    assert await stores.credentials.mark_sent(attempt.connection_id, attempt.attempt_id) is None
    assert await claim(stores.credentials, intent(credential, owner)) is None
    ahead = replace(intent(credential, owner), from_generation=3)
    assert await claim(stores.credentials, ahead) is None
    assert await claim(stores.credentials, replace(attempt, connection_id=NOBODY)) is None
    await claimed(stores, intent(await read_credential(stores), owner))


# ---- takeover (R7) ---------------------------------------------------------------------------------


async def test_time_takes_over_what_was_never_sent(stores: Stores) -> None:
    credential, owner, peer = await connected(stores), await a_session(stores), await a_session(stores, 2)
    first = intent(credential, owner, lease_s=60)
    await claimed(stores, first)
    await stores.pass_time(50)
    assert await claim(stores.credentials, intent(credential, peer)) is None
    await stores.pass_time(20)
    second = intent(credential, peer)
    await claimed(stores, second)
    assert await stores.credentials.mark_sent(first.connection_id, first.attempt_id) is None
    assert not await stores.credentials.release(first.connection_id, first.attempt_id)
    assert await stores.credentials.mark_sent(second.connection_id, second.attempt_id) is not None


async def test_a_lost_owner_makes_room_before_it_sent(stores: Stores) -> None:
    credential, owner, peer = await connected(stores), await a_session(stores), await a_session(stores, 2)
    await claimed(stores, intent(credential, owner))
    assert await claim(stores.credentials, intent(credential, peer)) is None
    await stores.sessions.mark_dead([owner])
    assert await claim(stores.credentials, intent(credential, peer)) is not None


async def test_a_process_takes_over_its_own_intent(stores: Stores) -> None:
    credential, owner = await connected(stores), await a_session(stores)
    first, second = intent(credential, owner), intent(credential, owner)
    await claimed(stores, first)
    await claimed(stores, second)
    assert await stores.credentials.mark_sent(first.connection_id, first.attempt_id) is None


@pytest.mark.parametrize("phase", ["sent", "unknown"])
async def test_nothing_takes_over_what_was_sent(stores: Stores, phase: str) -> None:
    credential, owner, peer = await connected(stores), await a_session(stores), await a_session(stores, 2)
    first = intent(credential, owner)
    answer = await sent(stores, first)
    if phase == "unknown":
        assert await stores.credentials.mark_unknown(unknown(first))
    await stores.pass_time(1e6)
    await stores.sessions.mark_dead([owner])
    for session_id in (owner, peer):
        assert await claim(stores.credentials, intent(credential, session_id)) is None
    assert await stores.credentials.settle(answer) == "settled", "however late"


@pytest.mark.parametrize("phase", ["intent", "sent"])
async def test_a_replay_follows_an_unknown_outcome_alone(stores: Stores, phase: str) -> None:
    credential, owner = await connected(stores), await a_session(stores)
    await (claimed if phase == "intent" else sent)(stores, intent(credential, owner))
    await stores.pass_time(1e6)
    assert await stores.credentials.claim_replay(intent(credential, owner), 0) is None
    assert (
        await stores.credentials.claim_replay(replace(intent(credential, owner), connection_id=NOBODY), 0)
        is None
    )


async def test_an_intent_to_replay_is_no_unsent_one(stores: Stores) -> None:
    """Time gives it to another replay, never to a claim: the first send is still unknown."""
    credential, first = await unknown_rotation(stores)
    peer, replay = await a_session(stores, 2), intent(credential, first.session_id)
    assert await stores.credentials.claim_replay(replay, 0) is not None
    assert await stores.credentials.claim_replay(intent(credential, peer), 0) is None
    await stores.pass_time(100)
    assert await claim(stores.credentials, intent(credential, peer)) is None
    over = intent(credential, peer)
    assert await stores.credentials.claim_replay(over, 0) is not None
    assert await stores.credentials.mark_sent(replay.connection_id, replay.attempt_id) is None
    assert await stores.credentials.mark_sent(over.connection_id, over.attempt_id) is not None
    assert await stores.credentials.claim_replay(intent(credential, first.session_id), 0) is None


async def test_of_two_that_replay_one_does(stores: Stores) -> None:
    credential, _first = await unknown_rotation(stores)
    replays = [intent(credential, await a_session(stores, pid)) for pid in (2, 3)]
    granted = await asyncio.gather(
        stores.credentials.claim_replay(replays[0], 0), stores.peer().claim_replay(replays[1], 0)
    )
    assert sum(epoch is not None for epoch in granted) == 1


async def test_of_two_that_judged_the_same_the_second_judges_again(stores: Stores) -> None:
    """One after the other: what both had read is no longer so when the second asks."""
    credential, first = await unknown_rotation(stores)
    replay, other = intent(credential, first.session_id), intent(credential, await a_session(stores, 2))
    granted = await stores.credentials.claim_replay(replay, 0)
    assert granted is not None
    await marked(stores, replay, granted)
    assert await stores.credentials.mark_unknown(unknown(replay))
    assert await stores.credentials.claim_replay(other, 0) is None
    assert await stores.credentials.claim_replay(other, 2) is None
    assert await stores.credentials.claim_replay(other, 1) is not None


async def test_a_lost_replayer_makes_room_for_another(stores: Stores) -> None:
    credential, _first = await unknown_rotation(stores)
    lost, peer = await a_session(stores, 2), await a_session(stores, 3)
    assert await stores.credentials.claim_replay(intent(credential, lost), 0) is not None
    await stores.sessions.close(lost)
    assert await stores.credentials.claim_replay(intent(credential, peer), 0) is not None


# ---- SENT ------------------------------------------------------------------------------------------


async def test_sent_mark_is_set_once(stores: Stores) -> None:
    credential, owner = await connected(stores), await a_session(stores)
    attempt = intent(credential, owner)
    assert await stores.credentials.mark_sent(attempt.connection_id, attempt.attempt_id) is None
    await claimed(stores, attempt)
    assert await stores.credentials.mark_sent(attempt.connection_id, IDS.uuid7()) is None
    assert await stores.credentials.mark_sent(NOBODY, attempt.attempt_id) is None
    marks = await asyncio.gather(
        stores.credentials.mark_sent(attempt.connection_id, attempt.attempt_id),
        stores.peer().mark_sent(attempt.connection_id, attempt.attempt_id),
    )
    assert sum(mark is not None for mark in marks) == 1
    await stores.pass_time(20)
    rotation = (await read_credential(stores)).rotation
    assert rotation is not None
    assert (rotation.phase, rotation.replays) == ("sent", 0)
    assert rotation.age_sent_s == pytest.approx(20, abs=5)


async def test_a_replay_keeps_the_time_of_the_first_send_and_tells_its_own(stores: Stores) -> None:
    credential, first = await unknown_rotation(stores)
    await stores.pass_time(40)
    replay = intent(credential, first.session_id)
    granted = await stores.credentials.claim_replay(replay, 0)
    assert granted is not None
    rotation_before = (await read_credential(stores)).rotation
    assert rotation_before is not None
    assert rotation_before.age_last_sent_s == pytest.approx(40, abs=5), "that one may go is no send"
    await marked(stores, replay, granted)
    await stores.pass_time(20)
    rotation = (await read_credential(stores)).rotation
    assert rotation is not None
    assert (rotation.phase, rotation.replays, rotation.epoch) == ("sent", 1, granted)
    assert rotation.age_sent_s == pytest.approx(60, abs=5)
    assert rotation.age_last_sent_s == pytest.approx(20, abs=5)


async def test_an_answer_gives_way_to_a_later_send_while_its_token_may_be_sent_once_more(
    stores: Stores,
) -> None:
    """Whoever answers a token twice answers with another successor, and forgets the one before."""
    credential = await connected(stores)
    first = intent(credential, await a_session(stores))
    late = await sent(stores, first)
    assert await stores.credentials.mark_unknown(unknown(first))
    assert await stores.credentials.settle(replace(late, from_generation=7)) == "superseded"
    replay = intent(credential, first.session_id)
    granted = await stores.credentials.claim_replay(replay, 0)
    assert granted is not None
    later = await marked(stores, replay, granted)
    for defer_s in (math.inf, 60.0):
        assert await stores.credentials.settle(replace(late, defer_s=defer_s)) == "superseded"
    assert (await read_credential(stores)).generation == 1
    await stores.pass_time(100)
    assert await stores.credentials.settle(replace(late, defer_s=math.inf)) == "superseded"
    assert await stores.credentials.settle(replace(late, defer_s=60.0)) == "settled", (
        "nothing newer is to be had"
    )
    assert await stores.credentials.settle(replace(later, from_generation=2)) == "settled"


@pytest.mark.parametrize("defer_s", [None, math.inf])
async def test_nothing_gives_way_to_a_send_that_was_not_made(stores: Stores, defer_s: float | None) -> None:
    credential = await connected(stores)
    first = intent(credential, await a_session(stores))
    late = await sent(stores, first)
    assert await stores.credentials.mark_unknown(unknown(first))
    replay = intent(credential, first.session_id)
    granted = await stores.credentials.claim_replay(replay, 0)
    assert granted is not None
    if defer_s is None:
        await marked(stores, replay, granted)
    assert await stores.credentials.settle(replace(late, defer_s=defer_s)) == "settled"


async def test_the_latest_send_gives_way_to_none(stores: Stores) -> None:
    credential, first = await unknown_rotation(stores)
    replay = intent(credential, first.session_id)
    granted = await stores.credentials.claim_replay(replay, 0)
    assert granted is not None
    latest = await marked(stores, replay, granted)
    assert await stores.credentials.settle(replace(latest, defer_s=math.inf)) == "settled"


# ---- left behind -----------------------------------------------------------------------------------


async def test_a_refresh_is_left_behind_when_its_owner_is_gone_or_its_time_is_up(stores: Stores) -> None:
    marks = {}
    for account in ("dead", "slow", "fine", "unsent", "unknown"):
        credential = await connected(stores, KEY._replace(account=account))
        lease_s = 60.0 if account == "slow" else 10_000.0
        marks[account] = intent(credential, await a_session(stores, len(marks) + 1), lease_s)
        if account == "unsent":
            await claimed(stores, marks[account])
        else:
            await sent(stores, marks[account])
    assert await stores.credentials.mark_unknown(unknown(marks["unknown"]))
    assert await stores.credentials.left_behind(10, 0.0) == []
    await stores.sessions.mark_dead([marks[account].session_id for account in ("dead", "unsent", "unknown")])
    due_connections = await stores.credentials.left_behind(10, 0.0)
    assert [(due.key.account, due.generation, due.priority) for due in due_connections] == [("dead", 1, 1)]
    await stores.pass_time(100)
    due_connections = await stores.credentials.left_behind(10, 0.0)
    assert [due.key.account for due in due_connections] == ["dead", "slow"]
    assert [(due.refreshable, due.expired) for due in due_connections] == [(True, False)] * 2
    assert [due.key.account for due in await stores.credentials.left_behind(1, 0.0)] == ["dead"]


# ---- in memory alone -------------------------------------------------------------------------------


async def test_an_answer_may_be_lost_on_its_way() -> None:
    stores = memory_stores()
    credential, owner = await connected(stores), await a_session(stores)

    async def lose(operation: str) -> None:
        raise DependencyUnavailableError(f"the answer to {operation} is lost")

    attempt = intent(credential, owner)
    stores.credentials.link.on_answer = lose
    with pytest.raises(DependencyUnavailableError):
        await claim(stores.credentials, attempt)
    stores.credentials.link.on_answer = None
    rotation = (await read_credential(stores)).rotation
    assert rotation is not None
    assert rotation.attempt_id == attempt.attempt_id, "it had been done"
    assert await claim(stores.credentials, attempt) is not None
    stores.credentials.link.is_down = True
    with pytest.raises(DependencyUnavailableError):
        await stores.credentials.mark_sent(attempt.connection_id, attempt.attempt_id)
    stores.credentials.link.is_down = False
    rotation = (await read_credential(stores)).rotation
    assert rotation is not None
    assert rotation.phase == "intent", "it had not arrived"
