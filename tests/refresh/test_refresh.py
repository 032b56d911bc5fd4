"""One refresh per generation, whatever the issuer answers (T4-T7)."""

from __future__ import annotations

import asyncio
import traceback
from uuid import UUID

import pytest

from fairlead.engine.ports import ConnectionKey
from fairlead.engine.tokens.deps import FreshToken
from fairlead.errors import (
    AccountMismatchError,
    EndpointPausedError,
    NotFoundError,
    NotSentError,
    OutcomeUnknownError,
    RateLimitedError,
    ReauthRequiredError,
    RefreshInProgressError,
    RefusedError,
    RequestRejectedError,
    TransientFailureError,
)
from fairlead.events import NeedsReauth, ServiceFailed, TokenEndpointStateChanged, TokenRefreshed
from fairlead.testing.issuer.quirks import Quirk
from fairlead.testing.ledger import judge
from tests.refresh.conftest import POLICIES
from tests.support.refresher import FAST, FixedApps, Refresher, end_sends, local_profile, refresher
from tests.support.rows import rows, run

ALL = [policy.replace("_", "-") for policy in POLICIES]
STRICT = "strict"


@pytest.mark.parametrize("provider", ALL)
async def test_a_refresh_stores_what_the_issuer_gave(fl, issuer, provider) -> None:
    connection_id = await fl.connect(issuer, provider)
    fresh = await fl.coordinator.refresh(connection_id, 1)
    assert (fresh.generation, fresh.refreshed) == (2, True)
    assert fresh.tokens.access_token.reveal() == issuer.grant(provider, "acme").access_token
    stored = await fl.reader.token(ConnectionKey("acme", provider))
    assert stored.access_token == fresh.tokens.access_token
    assert len(fl.told(TokenRefreshed)) == 1
    again = await fl.coordinator.refresh(connection_id, 2)
    assert again.generation == 3, "the refresh token that was stored is the live one"
    assert not judge(issuer.ledger()).violations


async def test_many_callers_share_one_post(fl, peer, issuer) -> None:
    connection_id = await fl.connect(issuer, STRICT)
    asks = [process.coordinator.refresh(connection_id, 1) for process in (fl, peer) for _ in range(100)]
    answers = await asyncio.gather(*asks)
    assert {fresh.generation for fresh in answers} == {2}
    assert len({fresh.tokens.access_token for fresh in answers}) == 1
    assert judge(issuer.ledger()).provider_posts == 1


async def test_a_cancelled_caller_cancels_no_refresh(fl, issuer) -> None:
    connection_id = await fl.connect(issuer, STRICT)
    hold = issuer.hold("processed")
    first = asyncio.create_task(fl.coordinator.refresh(connection_id, 1))
    second = asyncio.create_task(fl.coordinator.refresh(connection_id, 1))
    await hold.reached()
    first.cancel()
    hold.release()
    assert (await second).generation == 2
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_refresh_cancelled_by_nobody_known_is_reported(fl, issuer) -> None:
    """As where a library cancels the task that awaits it: no stop of this process is to blame."""
    connection_id = await fl.connect(issuer, STRICT)
    hold = issuer.hold("answering", provider=STRICT)
    refresh_task = asyncio.create_task(fl.coordinator.refresh(connection_id, 1))
    await hold.reached()
    [flight] = [task for task in asyncio.all_tasks() if task.get_name() == f"refresh:{connection_id}"]
    flight.cancel()
    with pytest.raises(RefreshInProgressError):
        await refresh_task
    assert [failed.reason for failed in fl.told(ServiceFailed)] == ["CancelledError in a refresh"]
    hold.release()


async def test_a_newer_generation_is_served_without_a_post(fl, issuer) -> None:
    connection_id = await fl.connect(issuer, STRICT)
    await fl.coordinator.refresh(connection_id, 1)
    assert (await fl.coordinator.refresh(connection_id, 1)).generation == 2
    assert (await fl.coordinator.refresh(connection_id, None)).generation == 2, "it lasts for more than 60 s"
    assert judge(issuer.ledger()).provider_posts == 1


async def test_the_cooldown_never_hands_back_what_was_presented(database, profiles, issuer, tmp_path) -> None:
    settings = type(FAST)(**{**{f: getattr(FAST, f) for f in FAST.__slots__}, "cooldown_s": 30.0})
    async with refresher(database, profiles, tmp_path / "j", settings=settings) as fl:
        connection_id = await fl.connect(issuer, STRICT)
        await fl.coordinator.refresh(connection_id, 1)
        with pytest.raises(RateLimitedError) as refused:
            await fl.coordinator.refresh(connection_id, 2)
        assert 0 < (refused.value.retry_after_s or 0) <= 30
        assert (await fl.coordinator.refresh(connection_id, 1)).generation == 2


async def test_an_absent_refresh_token_keeps_the_stored_one(fl, issuer) -> None:
    connection_id = await fl.connect(issuer, STRICT)
    issuer.be_rude("refresh_token_absent", times=1)
    await fl.coordinator.refresh(connection_id, 1)
    assert (await fl.coordinator.refresh(connection_id, 2)).generation == 3


async def test_an_answer_without_lifetime_keeps_the_one_that_was_stated_before(fl, issuer) -> None:
    connection_id = await fl.connect(issuer, "hasty", expires_in_s=30.0)
    for generation in (1, 2, 3):
        if generation > 1:
            issuer.be_rude("expires_in_absent", times=1)
        fresh = await fl.coordinator.refresh(connection_id, generation)
        assert 500 < (fresh.expires_in_s or 0) <= 600


async def test_an_answer_for_another_account_is_kept_but_not_published(fl, issuer, database) -> None:
    connection_id = await fl.connect(issuer, STRICT)
    await fl.coordinator.refresh(connection_id, 1)
    issuer.be_rude("other_account", times=1)
    with pytest.raises(AccountMismatchError):
        await fl.coordinator.refresh(connection_id, 2)
    view = await fl.connections.get(ConnectionKey("acme", STRICT))
    assert (view.state, view.state_reason, view.generation) == ("needs_reauth", "account_mismatch", 2)
    assert await fl.deps.journal.find(connection_id, 2) is not None


@pytest.mark.parametrize("quirk", ["rate_limited", "html_400", "html_403", "redirect"])
async def test_unprocessed_refresh_is_retried_with_the_same_token(fl, issuer, quirk) -> None:
    connection_id = await fl.connect(issuer, STRICT)
    issuer.be_rude(quirk, times=1)
    with pytest.raises(TransientFailureError):
        await fl.coordinator.refresh(connection_id, 1)
    assert (await fl.coordinator.refresh(connection_id, 1)).generation == 2
    assert not judge(issuer.ledger()).violations


async def test_two_connections_that_get_429_hold_the_whole_app_back_for_one_bucket_at_most(
    fl, peer, issuer, database
) -> None:
    first, second, third = [await fl.connect(issuer, STRICT, name) for name in "abc"]
    issuer.be_rude("rate_limited_seconds", times=2)
    for connection_id in (first, second):
        with pytest.raises(TransientFailureError) as failed:
            await fl.coordinator.refresh(connection_id, 1)
        assert failed.value.retry_after_s == 2
    with pytest.raises(RateLimitedError) as refused:
        await peer.coordinator.refresh(third, 1)
    assert 0.5 < (refused.value.retry_after_s or 0) <= 1.1
    assert judge(issuer.ledger()).provider_posts == 2
    await run(database, "UPDATE endpoint_gate SET refilled_at = refilled_at - interval '3 s'")
    assert (await peer.coordinator.refresh(third, 1)).generation == 2


async def test_503_is_not_processed(fl, issuer) -> None:
    connection_id = await fl.connect(issuer, STRICT)
    issuer.be_rude({"status": 503}, times=1)
    with pytest.raises(TransientFailureError) as failed:
        await fl.coordinator.refresh(connection_id, 1)
    assert failed.value.category == "transient_server"
    assert (await fl.coordinator.refresh(connection_id, 1)).generation == 2


async def test_invalid_grant_needs_the_customer_and_is_told_once(fl, peer, issuer, database) -> None:
    connection_id = await fl.connect(issuer, STRICT)
    issuer.revoke(STRICT, "acme")
    results = await asyncio.gather(
        *(process.coordinator.refresh(connection_id, 1) for process in (fl, peer)), return_exceptions=True
    )
    assert all(isinstance(result, ReauthRequiredError) for result in results), results
    assert judge(issuer.ledger()).provider_posts == 1
    assert len(fl.told(NeedsReauth)) + len(peer.told(NeedsReauth)) == 1
    jobs = await rows(database, "SELECT kind, args FROM job")
    assert [job["kind"] for job in jobs] == ["event.needs_reauth"]
    assert str(connection_id) in jobs[0]["args"]
    with pytest.raises(ReauthRequiredError):
        await fl.coordinator.refresh(connection_id, 1)
    assert judge(issuer.ledger()).provider_posts == 1, "a dead grant is not hammered"


async def test_a_dead_grant_still_serves_its_token_while_that_lasts(fl, issuer) -> None:
    connection_id = await fl.connect(issuer, STRICT)
    token_before = await fl.reader.token(ConnectionKey("acme", STRICT))
    issuer.revoke(STRICT, "acme")
    with pytest.raises(ReauthRequiredError):
        await fl.coordinator.refresh(connection_id, 1)
    assert await fl.reader.token(ConnectionKey("acme", STRICT)) == token_before


async def test_reconnecting_heals_in_place(fl, issuer) -> None:
    connection_id = await fl.connect(issuer, STRICT)
    issuer.revoke(STRICT, "acme")
    with pytest.raises(ReauthRequiredError):
        await fl.coordinator.refresh(connection_id, 1)
    assert await fl.connect(issuer, STRICT) == connection_id
    assert (await fl.coordinator.refresh(connection_id, 2)).generation == 3


async def test_a_reconnect_during_a_refresh_wins(fl, issuer) -> None:
    connection_id = await fl.connect(issuer, STRICT)
    hold = issuer.hold("answering")
    flight = asyncio.create_task(fl.coordinator.refresh(connection_id, 1))
    await hold.reached()
    await fl.connect(issuer, STRICT)
    hold.release()
    fresh = await flight
    assert fresh.generation == 2
    assert fresh.tokens.access_token.reveal() == issuer.grant(STRICT, "acme").access_token


async def test_invalid_client_told_to_two_pauses_the_app_and_no_tenant(
    database, profiles, issuer, tmp_path
) -> None:
    apps = FixedApps()
    async with refresher(database, profiles, tmp_path / "j", apps=apps) as fl:
        first, second, third = [await fl.connect(issuer, STRICT, name) for name in "abc"]
        issuer.refuse_client("app")
        with pytest.raises(RequestRejectedError) as rejected:
            await fl.coordinator.refresh(first, 1)
        assert rejected.value.category == "permanent_config"
        for connection_id in (second, third):
            with pytest.raises(EndpointPausedError):
                await fl.coordinator.refresh(connection_id, 1)
        assert judge(issuer.ledger()).provider_posts == 2, "the third was not sent"
        assert [event.state for event in fl.told(TokenEndpointStateChanged)] == ["paused"]
        assert (await fl.connections.get(ConnectionKey("b", STRICT))).state == "active"
        issuer.refuse_client("app", on=False)
        apps.credential = type(apps.credential)("app", apps.credential.client_secret, fingerprint="f2")
        assert (await fl.coordinator.refresh(second, 1)).generation == 2, "another secret lifts the pause"


async def test_an_outage_opens_one_breaker_and_one_probe_closes_it(fl, issuer, database) -> None:
    ids = [await fl.connect(issuer, "stable", f"t{number}") for number in range(12)]
    issuer.be_rude({"status": 503})
    for connection_id in ids[:10]:
        with pytest.raises(TransientFailureError):
            await fl.coordinator.refresh(connection_id, 1)
    posts = judge(issuer.ledger()).provider_posts
    with pytest.raises(Exception, match="breaker open"):
        await fl.coordinator.refresh(ids[10], 1)
    assert judge(issuer.ledger()).provider_posts == posts == 10
    issuer.be_polite()
    await run(database, "UPDATE endpoint_gate SET open_until = now()")
    answers = await asyncio.gather(
        *(fl.coordinator.refresh(connection_id, 1) for connection_id in ids[10:]), return_exceptions=True
    )
    assert sum(not isinstance(answer, Exception) for answer in answers) >= 1
    assert [row["state"] for row in await rows(database, "SELECT state FROM endpoint_gate")] == ["closed"]


async def test_unsent_requests_are_tried_again_and_burn_nothing(database, issuer, tmp_path) -> None:
    nowhere = {"gone": local_profile("http://127.0.0.1:9", "strict", "gone")}
    issuer.play("gone", issuer.state.provider(STRICT))
    async with refresher(database, nowhere, tmp_path / "j") as fl:
        connection_id = await fl.connect(issuer, "gone")
        with pytest.raises(NotSentError, match="never left: connect failed") as refused:
            await fl.coordinator.refresh(connection_id, 1)
        assert refused.value.reason == "connect"
        assert await rows(database, "SELECT * FROM refresh_attempt") == []
        assert (await fl.connections.get(ConnectionKey("acme", "gone"))).state == "active"


async def test_a_full_disk_refuses_before_the_token_is_spent(fl, issuer, tmp_path) -> None:
    connection_id = await fl.connect(issuer, STRICT)
    (tmp_path / "journal").rename(tmp_path / "gone")
    with pytest.raises(Exception, match="could not be stored"):
        await fl.coordinator.refresh(connection_id, 1)
    assert judge(issuer.ledger()).provider_posts == 0
    (tmp_path / "gone").rename(tmp_path / "journal")


async def test_unknown_names_have_their_own_error(fl) -> None:
    with pytest.raises(NotFoundError):
        await fl.reader.token(ConnectionKey("nobody", STRICT))


async def test_a_lost_answer_under_strict_keeps_serving_and_waits_for_expiry(fl, issuer) -> None:
    connection_id = await fl.connect(issuer, STRICT)
    token_before = await fl.reader.token(ConnectionKey("acme", STRICT))
    issuer.be_rude("cut_after", times=1)
    with pytest.raises(OutcomeUnknownError) as unknown:
        await fl.coordinator.refresh(connection_id, 1)
    assert (unknown.value.retry_after_s or 0) > 3000
    for _ in range(3):
        with pytest.raises(OutcomeUnknownError):
            await fl.coordinator.refresh(connection_id, 1)
    assert judge(issuer.ledger()).provider_posts == 1, "a spent token is not sent twice"
    view = await fl.connections.get(ConnectionKey("acme", STRICT))
    assert (view.state, view.refreshing) == ("unknown", "unknown")
    assert await fl.reader.token(ConnectionKey("acme", STRICT)) == token_before


@pytest.mark.parametrize(
    ("provider", "heals"),
    [
        ("strict", False),
        ("strict-family-revoke", False),
        ("grace", True),
        ("until-successor-used", True),
        ("stable", True),
    ],
)
@pytest.mark.parametrize("quirk", ["cut_after", "cut_last_byte"])
async def test_a_lost_answer_heals_where_the_provider_allows_it(
    fl, issuer, database, provider, heals, quirk
) -> None:
    connection_id = await fl.connect(issuer, provider)
    issuer.be_rude(quirk, times=1)
    with pytest.raises((OutcomeUnknownError, TransientFailureError)):
        await fl.coordinator.refresh(connection_id, 1)
    await end_sends(database)
    if heals:
        assert (await fl.coordinator.refresh(connection_id, 1)).generation == 2
        assert (await fl.coordinator.refresh(connection_id, 2)).generation == 3
    else:
        await run(database, "UPDATE credential SET expires_at = now() - interval '1 s'")
        with pytest.raises(ReauthRequiredError) as error:
            await fl.coordinator.refresh(connection_id, 1)
        assert error.value.reason == "lost_rotation"
        view = await fl.connections.get(ConnectionKey("acme", provider))
        assert (view.state, view.state_reason) == ("needs_reauth", "lost_rotation")
        posts = judge(issuer.ledger()).provider_posts
        assert posts == (2 if provider == "strict" else 1), "strict looks once at expiry, the other never"


async def test_a_caller_waits_no_longer_than_it_said_also_after_the_send(fl, issuer) -> None:
    connection_id = await fl.connect(issuer, STRICT)
    hold = issuer.hold("answering")
    first = asyncio.create_task(fl.coordinator.refresh(connection_id, 1))
    await hold.reached()
    with pytest.raises(RefreshInProgressError, match=str(connection_id)):
        await fl.coordinator.refresh(connection_id, 1, wait_s=0.01)
    hold.release()
    assert (await first).generation == 2, "the flight went on"


async def test_sent_refresh_gets_its_response_though_the_process_stops(fl, issuer) -> None:
    sent, unsent = await fl.connect(issuer, STRICT, "sent"), await fl.connect(issuer, STRICT, "unsent")
    hold = issuer.hold("answering")
    flight = asyncio.create_task(fl.coordinator.refresh(sent, 1))
    await hold.reached()
    never = asyncio.create_task(never_claimed(fl, unsent))
    await asyncio.sleep(0)
    leaving = asyncio.create_task(fl.coordinator.drain(0.0))
    await asyncio.wait({never})
    assert not leaving.done()
    hold.release()
    assert (await flight).generation == 2
    assert await leaving == 1
    with pytest.raises(RefusedError, match="stopping"):
        await never


async def never_claimed(fl: Refresher, connection_id: UUID) -> FreshToken:
    fl.deps.store.claim = lambda _intent: asyncio.Event().wait()
    return await fl.coordinator.refresh(connection_id, 1)


async def test_a_refusal_that_is_remembered_is_raised_anew(fl, issuer) -> None:
    connection_id = await fl.connect(issuer, STRICT)
    issuer.be_rude(Quirk(status=400, body='{"error":"invalid_scope"}', content_type="application/json"))
    depths, errors = [], []
    for _ in range(4):
        with pytest.raises(RequestRejectedError) as refused:
            await fl.coordinator.refresh(connection_id, 1)
        errors.append(refused.value)
        depths.append(len(list(traceback.walk_tb(refused.value.__traceback__))))
    assert len({id(error) for error in errors}) == 4
    assert depths[3] == depths[1]
