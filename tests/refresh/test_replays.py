"""What is sent once more after an unknown outcome: as often, and as late, as the policy allows (R7)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from fairlead.adapters.postgres.database import Database
from fairlead.engine.ports import ConnectionKey
from fairlead.errors import OutcomeUnknownError, ReauthRequiredError, TransientFailureError
from fairlead.policy.tokens import outcome
from fairlead.testing._kit.request_barrier import Hold
from fairlead.testing.issuer import Issuer
from fairlead.testing.ledger import judge
from tests.refresh.conftest import SAME
from tests.support.altered import alter
from tests.support.refresher import FAST, Refresher, end_sends, refresher
from tests.support.rows import rows, run

STRICT, GRACE, SUCCESSOR = "strict", "grace", "until-successor-used"


async def expire(database: Any) -> None:
    await run(database, "UPDATE credential SET expires_at = now() - interval '1 s'")


async def test_of_two_that_judged_the_same_one_replays(fl, peer, issuer, database) -> None:
    """The second claims when the first has had its replay, and an answer that tells as little as before."""
    connection_id = await fl.connect(issuer, STRICT)
    issuer.be_rude({"status": 502}, times=2)
    with pytest.raises(OutcomeUnknownError):
        await fl.coordinator.refresh(connection_id, 1)
    await expire(database)
    await end_sends(database)
    claim_replay = fl.deps.store.claim_replay

    async def late(*which: Any) -> Any:
        with pytest.raises(TransientFailureError):
            await peer.coordinator.refresh(connection_id, 1)
        return await claim_replay(*which)

    alter(fl.deps.store, claim_replay=late)
    with pytest.raises(ReauthRequiredError):
        await fl.coordinator.refresh(connection_id, 1)
    assert judge(issuer.ledger()).provider_posts == 2, "one replay is allowed under strict"


@pytest.mark.parametrize("slow", ["claim_replay", "mark_sent"])
async def test_a_replay_that_was_held_up_does_not_leave_after_the_grace(fl, issuer, database, slow) -> None:
    """Whatever it waited for, database or connection: 110 of 120 s are too many for one more request."""
    connection_id = await fl.connect(issuer, GRACE)
    issuer.be_rude({"status": 502}, times=1)
    with pytest.raises(OutcomeUnknownError):
        await fl.coordinator.refresh(connection_id, 1)
    await end_sends(database)
    step, monotonic = getattr(fl.deps.store, slow), fl.deps.clock.monotonic

    async def held_up(*which: Any) -> Any:
        done = await step(*which)
        older = "sent_at = sent_at - interval '110 s', started_at = started_at - interval '110 s'"
        await run(database, f"UPDATE refresh_attempt SET {older}")
        alter(fl.deps.clock, monotonic=lambda: monotonic() + 110.0)
        return done

    alter(fl.deps.store, **{slow: held_up})
    with pytest.raises(ReauthRequiredError) as error:
        await fl.coordinator.refresh(connection_id, 1)
    assert error.value.reason == "lost_rotation"
    assert judge(issuer.ledger()).provider_posts == 1


async def left_on_its_way(fl: Refresher, issuer: Issuer, database: Database, connection_id: UUID) -> Hold:
    """The process is killed when its request has arrived, and not yet been looked at; the issuer goes on."""
    hold = issuer.hold("arrived")
    fl.coordinator.start_background(connection_id, 1)
    await hold.reached()
    flight = fl.coordinator._refreshes[connection_id].task
    flight.cancel()
    await asyncio.wait({flight})
    await run(database, "UPDATE worker_session SET lost_at = now() WHERE session_id = $1", fl.session_id)
    return hold


async def let_go(issuer: Issuer, hold: Hold) -> None:
    """It is looked at after all."""
    processed = issuer.hold("processed")
    hold.release()
    await processed.reached()
    processed.release()


async def test_a_replay_does_not_overtake_the_send_before_it(fl, peer, issuer, database) -> None:
    connection_id = await fl.connect(issuer, SUCCESSOR)
    hold = await left_on_its_way(fl, issuer, database, connection_id)
    with pytest.raises(OutcomeUnknownError) as wait:
        await peer.coordinator.refresh(connection_id, 1)
    assert 0 < (wait.value.retry_after_s or 0.0) <= FAST.request_deadline_s
    assert judge(issuer.ledger()).provider_posts == 1, "nothing was sent behind it"
    assert (await peer.reader.token(ConnectionKey("acme", SUCCESSOR))).generation == 1, "served meanwhile"
    await let_go(issuer, hold)
    await end_sends(database)
    assert (await peer.coordinator.refresh(connection_id, 1)).generation == 2
    assert (await peer.coordinator.refresh(connection_id, 2)).generation == 3
    verdict = judge(issuer.ledger())
    assert (verdict.replays_allowed, verdict.burnt, verdict.violations) == (1, 0, ())


async def test_a_replay_that_does_not_wait_burns_the_grant(fl, peer, issuer, database, monkeypatch) -> None:
    """Why it waits: answered last, the request before it has the successor that counts."""
    monkeypatch.setattr(peer.unknown, "_settings", replace(FAST, request_deadline_s=0.0))
    connection_id = await fl.connect(issuer, SUCCESSOR)
    hold = await left_on_its_way(fl, issuer, database, connection_id)
    assert (await peer.coordinator.refresh(connection_id, 1)).generation == 2
    await let_go(issuer, hold)
    with pytest.raises(ReauthRequiredError):
        await peer.coordinator.refresh(connection_id, 2)
    assert judge(issuer.ledger()).burnt == 1


async def test_a_replay_waits_for_the_replay_before_it(fl, peer, issuer, database) -> None:
    """A gateway gave it up with 502; who stands behind may be at it still."""
    connection_id = await fl.connect(issuer, SUCCESSOR)
    issuer.be_rude({"status": 502}, times=2)
    for posts in (1, 2):
        for process in (fl, peer):
            with pytest.raises(OutcomeUnknownError):
                await process.coordinator.refresh(connection_id, 1)
        assert judge(issuer.ledger()).provider_posts == posts
        due = await rows(database, "SELECT extract(epoch FROM due_at - now())::float8 AS s FROM credential")
        assert 0 < due[0]["s"] <= FAST.request_deadline_s, "the scan comes back when it may go"
        await end_sends(database)
    assert (await peer.coordinator.refresh(connection_id, 1)).generation == 2


async def test_an_answer_that_is_late_gives_way_to_a_replay_whose_answer_was_lost(
    fl, issuer, database, profiles, tmp_path
) -> None:
    """The provider answered the replay with another successor, and forgot the one that is in hand here."""
    connection_id = await fl.connect(issuer, SUCCESSOR)
    settle = fl.deps.store.settle

    async def stood_still(settlement: object) -> str:
        alter(fl.deps.store, settle=settle)
        await run(database, "UPDATE worker_session SET lost_at = now() WHERE session_id = $1", fl.session_id)
        await end_sends(database)
        issuer.be_rude("cut_after", times=1)
        async with refresher(database, profiles, tmp_path / "another-host") as peer:
            with pytest.raises(OutcomeUnknownError):
                await peer.coordinator.refresh(connection_id, 1)
        await end_sends(database)
        return await settle(settlement)

    alter(fl.deps.store, settle=stood_still)
    assert (await fl.coordinator.refresh(connection_id, 1)).generation == 2
    await expire(database)
    assert (await fl.coordinator.refresh(connection_id, 2)).generation == 3
    verdict = judge(issuer.ledger())
    assert (verdict.burnt, verdict.violations) == (0, ())


async def test_a_first_send_that_was_held_up_does_not_leave_after_its_lease(
    fl, peer, issuer, database
) -> None:
    """Others take it for one of unknown outcome by then, and have sent it once more."""
    connection_id = await fl.connect(issuer, GRACE)
    mark_sent, monotonic = fl.deps.store.mark_sent, fl.deps.clock.monotonic

    async def held_up(*which: Any) -> Any:
        alter(fl.deps.store, mark_sent=mark_sent)
        done = await mark_sent(*which)
        await run(database, "UPDATE refresh_attempt SET lease_until = now() - interval '1 s'")
        await end_sends(database)
        assert (await peer.coordinator.refresh(connection_id, 1)).generation == 2
        alter(fl.deps.clock, monotonic=lambda: monotonic() + FAST.lease_s)
        return done

    alter(fl.deps.store, mark_sent=held_up)
    assert (await fl.coordinator.refresh(connection_id, 1)).generation == 2
    assert judge(issuer.ledger()).provider_posts == 1


@pytest.mark.parametrize("told", [True, False])
async def test_refresh_sent_after_a_replay_takes_its_place(fl, peer, issuer, database, told) -> None:
    """Its process stood still before the first byte. The issuer takes it for the replay, and lets its answer
    live; without a word that it was late the answer of the other would be kept, which is dead (E44)."""
    connection_id = await fl.connect(issuer, SUCCESSOR)
    send, clock = fl.deps.transport.send, fl.deps.clock

    async def stands_still(call: Any, before_sent: Any) -> Any:
        late_s = 0.0

        async def let_go() -> None:
            nonlocal late_s
            await before_sent()
            stopped_s = clock.monotonic()
            await run(database, "UPDATE refresh_attempt SET lease_until = now() - interval '1 s'")
            await end_sends(database)
            assert (await peer.coordinator.refresh(connection_id, 1)).generation == 2
            late_s = clock.monotonic() - stopped_s if told else 0.0

        return replace(await send(call, let_go), late_s=late_s)

    alter(fl.deps.transport, send=stands_still)
    assert (await fl.coordinator.refresh(connection_id, 1)).generation == 2 + told
    alter(fl.deps.transport, send=send)
    if not told:
        with pytest.raises(ReauthRequiredError):
            await peer.coordinator.refresh(connection_id, 2)
    else:
        await expire(database)
        assert (await peer.coordinator.refresh(connection_id, 3)).generation == 4
    verdict = judge(issuer.ledger())
    assert (verdict.burnt, verdict.violations) == (int(not told), ())


async def test_late_send_that_brings_the_stored_tokens_replaces_nothing(fl, peer, issuer, database) -> None:
    """The stored token has been sent since: in another generation it would be sent again, and is spent."""
    connection_id = await fl.connect(issuer, SAME)
    send, mark_late, holds = fl.deps.transport.send, fl.deps.store.mark_late, list[Hold]()

    async def stands_still(call: Any, before_sent: Any) -> Any:
        async def let_go() -> None:
            await before_sent()
            await run(database, "UPDATE refresh_attempt SET lease_until = now() - interval '1 s'")
            await end_sends(database)
            assert (await peer.coordinator.refresh(connection_id, 1)).generation == 2

        return replace(await send(call, let_go), late_s=1.0)

    async def meanwhile(*which: Any) -> Any:
        alter(fl.deps.store, mark_late=mark_late)
        holds.append(issuer.hold("processed"))
        peer.coordinator.start_background(connection_id, 2)
        await holds[0].reached()
        return await mark_late(*which)

    alter(fl.deps.transport, send=stands_still)
    alter(fl.deps.store, mark_late=meanwhile)
    assert (await fl.coordinator.refresh(connection_id, 1)).generation == 2
    holds[0].release()
    assert (await peer.coordinator.refresh(connection_id, 2)).generation == 3
    assert (await peer.coordinator.refresh(connection_id, 3)).generation == 4
    verdict = judge(issuer.ledger())
    assert (verdict.burnt, verdict.violations) == (0, ())


async def test_an_answer_that_cannot_be_read_is_kept_once_until_a_newer_token(fl, issuer, database) -> None:
    """It may hold the only copy of a paid-for token; a day after the newer one its file may go (R12)."""
    connection_id = await fl.connect(issuer, SUCCESSOR)
    settled: list[int] = []
    alter(fl.deps.journal, settled=lambda _rotation, epoch: settled.append(epoch))
    issuer.be_rude({"status": 200, "body": "<html>"}, times=2)
    for _ in range(2):
        with pytest.raises(OutcomeUnknownError):
            await fl.coordinator.refresh(connection_id, 1)
        [unreadable] = [head async for page in fl.deps.journal.heads() for head in page]
        await end_sends(database)
    assert settled == []
    assert (await fl.coordinator.refresh(connection_id, 1)).generation == 2
    assert max(settled) > unreadable.epoch


async def test_an_answer_that_could_not_be_read_is_published_by_a_version_that_can(
    issuer, database, profiles, tmp_path, monkeypatch
) -> None:
    async with refresher(database, profiles, tmp_path) as old:
        connection_id = await old.connect(issuer, STRICT)
        with monkeypatch.context() as patch:
            patch.setattr(
                outcome,
                "classify_token_response",
                lambda *_args, **_kwargs: outcome.Unknown("unreadable"),
            )
            with pytest.raises(OutcomeUnknownError):
                await old.coordinator.refresh(connection_id, 1)
    async with refresher(database, profiles, tmp_path) as new:
        assert await new.unknown.replay_journal() == 1
        assert (await new.coordinator.refresh(connection_id, 1)).generation == 2
    assert judge(issuer.ledger()).provider_posts == 1
