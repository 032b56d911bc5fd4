"""The issuer on the wire: each replay policy, each endpoint, its ledger and its holds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest

from fairlead.errors import InvalidConfigError, InvalidInputError
from fairlead.testing import Issuer, IssuerConfig, ManualClock, judge
from fairlead.testing.issuer import Moment, Policy
from tests.support.issuer import begin, provider, recorded, refresh, refresh_form, resource

ROTATING = ["until_successor_used", "grace", "strict", "strict_family_revoke"]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(start=1000.0)


@pytest.fixture
async def issuer(clock: ManualClock) -> AsyncIterator[Issuer]:
    providers = {policy.value: provider(policy.value) for policy in Policy}
    async with Issuer(IssuerConfig(providers=providers), clock=clock) as issuer:
        yield issuer


# ---- the six policies ------------------------------------------------------------------------------


@pytest.mark.parametrize("provider", ROTATING)
async def test_a_chain_of_refreshes_is_clean(issuer: Issuer, provider: str) -> None:
    token = issuer.register(provider, "acme").refresh_token
    for _ in range(5):
        reply = await refresh(issuer, provider, token)
        assert (reply.status, reply.whole) == (200, True)
        assert reply.json["refresh_token"] != token
        token = str(reply.json["refresh_token"])
    assert issuer.grant(provider, "acme").refresh_token == token
    verdict = judge(issuer.ledger())
    assert (verdict.provider_posts, verdict.generations, verdict.violations) == (5, 5, ())
    assert (verdict.burnt, verdict.lost_answers) == (0, 0)


@pytest.mark.parametrize("provider", ROTATING)
async def test_a_replay_after_the_successor_was_used_is_refused(issuer: Issuer, provider: str) -> None:
    first = issuer.register(provider, "acme").refresh_token
    second = str((await refresh(issuer, provider, first)).json["refresh_token"])
    third = str((await refresh(issuer, provider, second)).json["refresh_token"])
    reply = await refresh(issuer, provider, first)
    assert (reply.status, reply.json["error"]) == (400, "invalid_grant")
    killed = provider == "strict_family_revoke"
    assert (await refresh(issuer, provider, third)).status == (400 if killed else 200)
    verdict = judge(issuer.ledger())
    assert (verdict.reuse_events, [count.generation for count in verdict.violations]) == (1, [1])
    assert verdict.burnt == (0 if Policy(provider).forgives else 1)


@pytest.mark.parametrize("provider", ["until_successor_used", "grace"])
async def test_a_lost_answer_is_had_again_where_the_policy_allows(issuer: Issuer, provider: str) -> None:
    first = issuer.register(provider, "acme").refresh_token
    issuer.be_rude("cut_after", times=1)
    assert (await refresh(issuer, provider, first)).raw == b""
    again = await refresh(issuer, provider, first)
    assert again.status == 200
    assert (await refresh(issuer, provider, str(again.json["refresh_token"]))).status == 200
    verdict = judge(issuer.ledger())
    assert (verdict.lost_answers, verdict.burnt, verdict.replays_allowed) == (1, 0, 1)
    assert verdict.violations == ()


async def test_grace_ends(issuer: Issuer, clock: ManualClock) -> None:
    first = issuer.register("grace", "acme").refresh_token
    await refresh(issuer, "grace", first)
    await clock.advance(60.001)
    assert (await refresh(issuer, "grace", first)).status == 400
    assert len(judge(issuer.ledger()).violations) == 1


@pytest.mark.parametrize("provider", ["strict", "strict_family_revoke"])
async def test_a_lost_answer_is_a_burnt_token_under_strict(issuer: Issuer, provider: str) -> None:
    grant = issuer.register(provider, "acme")
    issuer.be_rude("cut_after", times=1)
    await refresh(issuer, provider, grant.refresh_token)
    verdict = judge(issuer.ledger())
    assert [(burn.generation, burn.cause) for burn in verdict.burns] == [(1, "lost_answer")]
    assert verdict.violations == ()
    lines = list(issuer.ledger().of("burnt"))
    assert [(line.fields["generation"], line.fields["cause"]) for line in lines] == [(1, "lost_answer")]


async def test_family_revoke_kills_the_access_tokens_too(issuer: Issuer) -> None:
    provider = "strict_family_revoke"
    grant = issuer.register(provider, "acme")
    fresh = (await refresh(issuer, provider, grant.refresh_token)).json
    assert (await resource(issuer, provider, str(fresh["access_token"]))).status == 200
    await refresh(issuer, provider, grant.refresh_token)
    for access_token in (grant.access_token, str(fresh["access_token"])):
        assert (await resource(issuer, provider, access_token)).status == 401
    assert issuer.grant(provider, "acme").revoked == "replay"


async def test_stable_keeps_its_refresh_token(issuer: Issuer) -> None:
    grant = issuer.register("stable", "acme")
    replies = [await refresh(issuer, "stable", grant.refresh_token) for _ in range(3)]
    assert all("refresh_token" not in reply.json for reply in replies)
    assert len({str(reply.json["access_token"]) for reply in replies}) == 3
    verdict = judge(issuer.ledger())
    assert (verdict.generations, verdict.replays, verdict.violations) == (3, 0, ())


# ---- ledger, holds, life ---------------------------------------------------------------------------


async def test_arrival_is_on_record_before_anything_is_done(issuer: Issuer) -> None:
    token = issuer.register("strict", "acme").refresh_token
    hold = issuer.hold("arrived", connection="acme")
    asking = asyncio.create_task(refresh(issuer, "strict", token))
    await hold.reached()
    assert [entry.event for entry in issuer.ledger().entries][-1] == "arrived"
    assert issuer.grant("strict", "acme").generation == 1
    hold.release()
    assert (await asking).status == 200


async def test_a_hold_parks_a_request_between_processing_and_answer(issuer: Issuer) -> None:
    token = issuer.register("strict", "acme").refresh_token
    processed, answering = issuer.hold("processed"), issuer.hold("answering", provider="strict")
    _, writer = await begin(f"{issuer.url}/strict/token", refresh_form(token))
    await processed.reached()
    assert issuer.grant("strict", "acme").generation == 2
    processed.release()
    await answering.reached()
    writer.close()  # the client dies while its answer is being made
    await writer.wait_closed()
    answering.release()
    await recorded(issuer, "answered")
    (burn,) = judge(issuer.ledger()).burns
    assert burn.cause == "lost_answer"


async def test_a_hold_leaves_others_alone(issuer: Issuer) -> None:
    parked, free = issuer.register("strict", "parked"), issuer.register("strict", "free")
    hold = issuer.hold("arrived", connection="parked")
    asking = asyncio.create_task(refresh(issuer, "strict", parked.refresh_token))
    await hold.reached()
    assert (await refresh(issuer, "strict", free.refresh_token)).status == 200
    hold.release()
    await asking
    with pytest.raises(InvalidInputError, match="there is no point"):
        issuer.hold("somewhere")


async def test_a_hook_sees_every_point_in_order() -> None:
    moments: list[Moment] = []

    async def hook(moment: Moment) -> None:
        moments.append(moment)

    async with Issuer(IssuerConfig(providers={"p": provider("strict")}), hooks=[hook]) as issuer:
        await refresh(issuer, "p", issuer.register("p", "acme").refresh_token)
    assert [moment.point for moment in moments] == ["arrived", "processed", "answering"]
    assert {(moment.connection, moment.generation) for moment in moments} == {("acme", 1)}


async def test_overlapping_posts_are_seen(issuer: Issuer) -> None:
    token = issuer.register("stable", "acme").refresh_token
    hold = issuer.hold("processed", times=2)
    asking = [asyncio.create_task(refresh(issuer, "stable", token)) for _ in range(2)]
    await hold.reached(2)
    hold.release()
    await asyncio.gather(*asking)
    assert judge(issuer.ledger()).overlaps == 1


async def test_stopping_ends_what_hangs_and_completes_the_ledger() -> None:
    config = IssuerConfig(providers={"p": provider("strict")})
    issuer = Issuer(config)
    await issuer.start()
    token = issuer.register("p", "acme").refresh_token
    issuer.be_rude("hang_after")
    reached = issuer.hold("processed")
    asking = asyncio.create_task(refresh(issuer, "p", token))
    await reached.reached()
    await issuer.stop()
    assert (await asking).raw == b""
    await issuer.stop()
    ledger = issuer.ledger()
    issuer.ledger_path.unlink()
    assert ledger.complete
    assert [entry.fields["delivered"] for entry in ledger.of("answered")] == [False]


async def test_scripted_revocations_come_at_their_time(clock: ManualClock) -> None:
    config = IssuerConfig.model_validate(
        {
            "providers": {"p": {"policy": "strict"}},
            "connections": [{"provider": "p", "connection": "acme"}],
            "revocations": [{"provider": "p", "connection": "acme", "after_s": 30}],
        }
    )
    async with Issuer(config, clock=clock) as issuer:
        first = await refresh(issuer, "p", issuer.grant("p", "acme").refresh_token)
        await clock.advance(30)
        second = await refresh(issuer, "p", str(first.json["refresh_token"]))
        assert (first.status, second.status) == (200, 400)
        assert issuer.grant("p", "acme").revoked == "scripted"


async def test_lifetimes_come_from_the_seed(clock: ManualClock) -> None:
    async def lifetimes(seed: int) -> list[object]:
        config = IssuerConfig(seed=seed, providers={"p": provider("stable", ttl_s=(6, 12))})
        async with Issuer(config, clock=clock) as issuer:
            token = issuer.register("p", "acme").refresh_token
            return [(await refresh(issuer, "p", token)).json["expires_in"] for _ in range(20)]

    first, again, other = [await lifetimes(seed) for seed in (1, 1, 2)]
    assert first == again != other
    assert set(map(type, first)) == {int}
    assert min(map(int, map(str, first))) >= 6
    assert max(map(int, map(str, first))) <= 12


@pytest.mark.parametrize(
    "wrong",
    [
        {"providers": {"P!": {}}},
        {"providers": {"p": {"policy": "grace"}}},
        {"providers": {"p": {"ttl_s": [12, 6]}}},
        {"providers": {"p": {"dialect": "klingon"}}},
        {"rules": [{"quirk": "no such quirk"}]},
        {"rules": [{"quirk": "message", "unknown": 1}]},
        {"colour": "red"},
    ],
    ids=lambda wrong: str(wrong)[:40],
)
def test_settings_that_cannot_be_are_refused_with_a_hint(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidConfigError, match="hint:"):
        IssuerConfig.read(wrong, "the test")


async def test_a_start_that_fails_leaves_nothing_behind() -> None:
    config = IssuerConfig.model_validate({"connections": [{"provider": "nobody", "connection": "acme"}]})
    issuer = Issuer(config)
    with pytest.raises(InvalidInputError, match="not configured"):
        await issuer.start()
    issuer.ledger_path.unlink()
    async with Issuer() as first:
        second_issuer = Issuer(IssuerConfig(port=int(urlsplit(first.url).port or 0)))
        with pytest.raises(OSError, match="address already in use"):
            await second_issuer.start()
        second_issuer.ledger_path.unlink()
