"""Safeguards that a review asked for, each with the scenario that broke before it stood."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fairlead._core.secret import Secret
from fairlead.adapters.postgres.postgres_errors import CommitInDoubtError
from fairlead.engine.ports import ConnectionKey, EndpointRefusal
from fairlead.errors import (
    DependencyUnavailableError,
    EndpointPausedError,
    InvalidInputError,
    RateLimitedError,
    ReauthRequiredError,
    RequestRejectedError,
    TransientFailureError,
)
from fairlead.events import ServiceFailed
from fairlead.testing.ledger import judge
from tests.support.altered import alter, altered
from tests.support.refresher import FixedApps, Refresher, end_sends, local_profile, refresher
from tests.support.rows import rows, run

STRICT = "strict"
KEY = ConnectionKey("acme", STRICT)


async def expire(database: Any) -> None:
    await run(database, "UPDATE credential SET expires_at = now() - interval '1 hour'")


async def test_a_newer_generation_that_has_died_is_refreshed(fl, issuer, database) -> None:
    connection_id = await fl.connect(issuer, STRICT)
    await fl.coordinator.refresh(connection_id, 1)
    await expire(database)
    fresh = await fl.coordinator.refresh(connection_id, 1)
    assert fresh.generation == 3
    assert fresh.expires_in_s is not None
    assert fresh.expires_in_s > 3000


async def test_an_answer_recovered_too_late_is_not_served(fl, peer, issuer, database) -> None:
    await fl.connect(issuer, STRICT)
    view = await fl.connections.get(KEY)

    async def away(settlement: object) -> str:
        raise RuntimeError("killed here")

    alter(peer.deps.store, settle=away)
    with pytest.raises(RuntimeError):
        await peer.coordinator.refresh(view.connection_id, 1)
    await run(database, "UPDATE worker_session SET lost_at = now() WHERE session_id = $1", peer.session_id)
    await run(database, "UPDATE credential SET expires_at = now() - interval '1 s'")
    posts_before = judge(issuer.ledger()).provider_posts
    token = await fl.reader.token(KEY)
    assert token.access_token.reveal() == issuer.grant(STRICT, "acme").access_token
    assert judge(issuer.ledger()).provider_posts == posts_before == 1, "the journal had it"


async def test_a_refresh_waits_while_others_hold_the_rows_of_its_endpoint(fl, issuer) -> None:
    connection_id = await fl.connect(issuer, STRICT)
    busy = EndpointRefusal("busy", 0.01, "another transaction holds a row")
    claim, refusals = fl.deps.store.claim, [busy, busy]

    async def locked_twice(*args: Any) -> object:
        return refusals.pop() if refusals else await claim(*args)

    alter(fl.deps.store, claim=locked_twice)
    assert (await fl.coordinator.refresh(connection_id, 1)).generation == 2
    refusals.append(busy)
    with pytest.raises(RateLimitedError) as refused:
        await fl.coordinator.refresh(connection_id, 2, others_s=0.0)
    assert refused.value.reason == "busy"


async def test_a_release_is_asked_until_it_is_heard(fl, issuer) -> None:
    connection_id = await fl.connect(issuer, STRICT)
    issuer.be_rude({"status": 503}, times=1)
    release, tries = fl.deps.store.release, []

    async def flaky(*which: Any) -> bool:
        tries.append(which)
        if len(tries) < 4:
            raise DependencyUnavailableError("the database is away")
        return await release(*which)

    alter(fl.deps.store, release=flaky)
    with pytest.raises(TransientFailureError):
        await fl.coordinator.refresh(connection_id, 1)
    assert len(tries) == 4
    assert (await fl.connections.get(KEY)).refreshing is None


async def test_a_process_takes_over_its_own_unsent_intent(fl, issuer, database) -> None:
    connection_id = await fl.connect(issuer, STRICT)

    async def lost(*_which: Any) -> None:
        raise CommitInDoubtError("the database went away")

    with (
        altered(fl.deps.store, mark_sent=lost, release=lost),
        altered(fl.deps.clock, sleep=lost),
        pytest.raises(CommitInDoubtError),
    ):
        await fl.coordinator.refresh(connection_id, 1)
    attempts = await rows(database, "SELECT phase FROM refresh_attempt")
    assert [row["phase"] for row in attempts] == ["intent"]
    assert (await fl.coordinator.refresh(connection_id, 1)).generation == 2
    assert judge(issuer.ledger()).provider_posts == 1


async def test_permanently_rejected_refresh_is_sent_once(fl, issuer) -> None:
    connection_id = await fl.connect(issuer, STRICT)
    body = '{"error":"invalid_scope"}'
    issuer.be_rude({"status": 400, "body": body, "content_type": "application/json"})
    for _ in range(10):
        with pytest.raises(RequestRejectedError):
            await fl.coordinator.refresh(connection_id, 1)
    assert judge(issuer.ledger()).provider_posts == 1
    issuer.be_polite()
    await fl.connect(issuer, STRICT)
    assert (await fl.coordinator.refresh(connection_id, 2)).generation == 3, "a new grant is tried"


async def test_rejected_secret_is_one_incident_where_limits_are_per_account(
    database, issuer, tmp_path
) -> None:
    profile = local_profile(
        issuer.url, "strict", STRICT, rate={"limit": 1000, "window_s": 1.0, "scope": "app_and_account"}
    )
    apps = FixedApps()
    async with refresher(database, {STRICT: profile}, tmp_path / "j", apps=apps) as fl:
        shops = [await fl.connect(issuer, STRICT, f"shop{number}") for number in range(4)]
        issuer.refuse_client("app")
        with pytest.raises(RequestRejectedError):
            await fl.coordinator.refresh(shops[0], 1)
        for shop in shops[1:]:
            with pytest.raises(EndpointPausedError):
                await fl.coordinator.refresh(shop, 1)
        assert judge(issuer.ledger()).provider_posts == 2, "two must say so"
        old, apps.credential = apps.credential, replace(apps.credential, fingerprint="f2")
        issuer.refuse_client("app", on=False)
        assert (await fl.coordinator.refresh(shops[1], 1)).generation == 2
        apps.credential = old
        with pytest.raises(EndpointPausedError):
            await fl.coordinator.refresh(shops[2], 1)


async def test_a_lost_grant_stands_in_the_dead_letters_whoever_found_it(fl, issuer, database) -> None:
    connection_id = await fl.connect(issuer, STRICT)
    issuer.revoke(STRICT, "acme")
    with pytest.raises(ReauthRequiredError):
        await fl.coordinator.refresh(connection_id, 1)
    entries = await rows(database, "SELECT kind, category, code, connection_id, status FROM dead_letter")
    assert [tuple(entry.values()) for entry in entries] == [
        ("token.refresh", "permanent_auth", "invalid_grant", connection_id, "pending_review")
    ]
    await fl.connect(issuer, STRICT)
    closed = await rows(database, "SELECT status, resolution FROM dead_letter")
    assert [tuple(entry.values()) for entry in closed] == [("auto_resolved", "reauthorize")]


async def test_a_reconnect_for_another_account_is_refused_and_keeps_the_settings(fl, issuer) -> None:
    await fl.connect(issuer, STRICT, account_id="one", settings={"subject": "s"}, client_secret=Secret("own"))
    with pytest.raises(InvalidInputError, match="another account"):
        await fl.connect(issuer, STRICT, account_id="two")
    await fl.connect(issuer, STRICT, account_id="one")
    credential = await fl.deps.store.read(KEY)
    assert credential is not None
    assert credential.connection.settings == {"subject": "s"}
    stored = await fl.settler.open_secrets(credential)
    assert stored.client_secret == Secret("own")


async def test_journal_entry_without_a_profile_stops_no_start(
    fl: Refresher, issuer, database, profiles, tmp_path
) -> None:
    connection_id = await fl.connect(issuer, STRICT)

    async def away(settlement: object) -> str:
        raise RuntimeError("killed here")

    async with refresher(database, profiles, tmp_path / "journal") as dying:
        alter(dying.deps.store, settle=away)
        with pytest.raises(RuntimeError):
            await dying.coordinator.refresh(connection_id, 1)
    async with refresher(database, {}, tmp_path / "journal") as started:
        assert await started.unknown.replay_journal() == 0
        assert started.told(ServiceFailed)
    async with refresher(database, profiles, tmp_path / "journal") as process:
        assert await process.unknown.replay_journal() == 1
    assert (await fl.connections.get(KEY)).generation == 2


async def test_of_two_answers_on_two_hosts_the_later_one_is_kept(
    fl: Refresher, issuer, database, profiles, tmp_path
) -> None:
    """A replay's answer replaces the first one at the provider, so the first gives way here, too."""
    name = "until-successor-used"
    connection_id = await fl.connect(issuer, name)

    async def killed(settlement: object) -> str:
        raise RuntimeError("killed here")

    for host in ("one", "two"):
        async with refresher(database, profiles, tmp_path / host) as dying:
            alter(dying.deps.store, settle=killed)
            with pytest.raises(RuntimeError):
                await dying.coordinator.refresh(connection_id, 1)
        mark_lost = "UPDATE worker_session SET lost_at = now() WHERE session_id = $1"
        await run(database, mark_lost, dying.session_id)
        await end_sends(database)
    for host, count in (("one", 0), ("two", 1), ("one", 0)):
        async with refresher(database, profiles, tmp_path / host) as started:
            assert await started.unknown.replay_journal() == count
    await expire(database)
    assert (await fl.coordinator.refresh(connection_id, 2)).generation == 3
    verdict = judge(issuer.ledger())
    assert (verdict.replays_allowed, verdict.burnt, verdict.violations) == (1, 0, ())


async def test_a_caller_without_a_generation_gets_the_token_that_lasts(fl, peer, issuer) -> None:
    await fl.connect(issuer, STRICT)
    first = await fl.reader.token(KEY)
    assert (await peer.reader.refreshed_after(KEY, None)).access_token == first.access_token
    newer = await peer.reader.refreshed_after(KEY, first.generation)
    assert newer.generation == 2
    assert judge(issuer.ledger()).provider_posts == 1
