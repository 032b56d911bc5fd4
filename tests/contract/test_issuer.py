"""The issuer on the wire: each replay policy, each endpoint, its ledger and its holds."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import time
from collections.abc import AsyncIterator
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey

from fairlead.errors import ConfigInvalid, InputInvalid
from fairlead.testing import Issuer, IssuerConfig, ManualClock, ProviderConfig, judge
from fairlead.testing.issuer import Moment, Policy
from fairlead.testing.issuer.assertion import BEARER_CLIENT, BEARER_GRANT
from fairlead.testing.issuer.dialects import DIALECTS
from tests.support.issuer import Reply, begin, fetch, refresh_form

ROTATING = ["until_successor_used", "grace", "strict", "strict_family_revoke"]


def _config(policy: str, **more: object) -> ProviderConfig:
    grace = {"grace_s": 60.0} if policy == "grace" else {}
    return ProviderConfig.model_validate({"policy": policy, **grace, **more})


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(start=1000.0)


@pytest.fixture
async def issuer(clock: ManualClock) -> AsyncIterator[Issuer]:
    providers = {policy.value: _config(policy.value) for policy in Policy}
    async with Issuer(IssuerConfig(providers=providers), clock=clock) as issuer:
        yield issuer


async def refresh(issuer: Issuer, provider: str, token: str, **more: str) -> Reply:
    return await fetch(f"{issuer.url}/{provider}/token", refresh_form(token, **more))


async def resource(issuer: Issuer, provider: str, access_token: str) -> Reply:
    return await fetch(f"{issuer.url}/{provider}/resource", None, {"Authorization": f"Bearer {access_token}"})


async def recorded(issuer: Issuer, event: str) -> None:
    """Return once the ledger has a line of this event; the client that caused it is gone."""
    async with asyncio.timeout(5):
        while not any(issuer.ledger().of(event)):
            await asyncio.sleep(0)


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


# ---- assertions ------------------------------------------------------------------------------------

KEY = RSAKey.generate_key(2048)
OTHER = ECKey.generate_key("P-256")


def _assertion(issuer: Issuer, key: RSAKey | ECKey = KEY, changes: dict[str, object] | None = None) -> str:
    claims: dict[str, object] = {
        "iss": "m2m",
        "sub": "m2m",
        "aud": f"{issuer.url}/assertion/token",
        "exp": int(time.time()) + 300,
        **(changes or {}),
    }
    algorithm = "PS256" if isinstance(key, RSAKey) else "ES256"
    return jwt.encode({"alg": algorithm}, claims, key, algorithms=[algorithm])


def _client_form(assertion: str) -> dict[str, str]:
    return {
        "grant_type": "client_credentials",
        "client_assertion_type": BEARER_CLIENT,
        "client_assertion": assertion,
    }


async def test_an_assertion_mints_without_a_refresh_token(issuer: Issuer) -> None:
    public = KEY.as_pem(private=False).decode()
    issuer.register("assertion", "acme", client_id="m2m", public_key=public)
    url = f"{issuer.url}/assertion/token"
    bearer = {"grant_type": BEARER_GRANT, "assertion": _assertion(issuer)}
    replies = [await fetch(url, form) for form in (_client_form(_assertion(issuer)), bearer)]
    assert [reply.status for reply in replies] == [200, 200]
    assert all("refresh_token" not in reply.json for reply in replies)
    verdict = judge(issuer.ledger())
    assert (verdict.provider_posts, verdict.generations, verdict.violations) == (2, 2, ())


@pytest.mark.parametrize(
    "changes",
    [{"exp": 1}, {"aud": "https://elsewhere.example/token"}, {"iss": "m3m"}, {"exp": None}],
    ids=["expired", "foreign audience", "foreign issuer", "no expiry"],
)
async def test_an_assertion_that_does_not_hold_is_refused(issuer: Issuer, changes: dict[str, object]) -> None:
    issuer.register("assertion", "acme", client_id="m2m", public_key=KEY.as_pem(private=False).decode())
    reply = await fetch(f"{issuer.url}/assertion/token", _client_form(_assertion(issuer, KEY, changes)))
    assert (reply.status, reply.json["error"]) == (401, "invalid_client")
    assert judge(issuer.ledger()).generations == 0


async def test_a_signature_by_another_key_is_refused_and_without_a_key_any_will_do(issuer: Issuer) -> None:
    url = f"{issuer.url}/assertion/token"
    jwk = {name: str(value) for name, value in OTHER.as_dict(private=False).items()}
    issuer.register("assertion", "acme", client_id="m2m", public_key=jwk)
    assert (await fetch(url, _client_form(_assertion(issuer)))).status == 401
    assert (await fetch(url, _client_form(_assertion(issuer, OTHER)))).status == 200
    issuer.register("assertion", "acme", client_id="m2m")
    assert (await fetch(url, _client_form(_assertion(issuer)))).status == 200


@pytest.mark.parametrize("text", ["", "not.a.jwt", "a.b", "eyJhbGciOiJub25lIn0.e30."])
async def test_what_is_no_assertion_is_refused(issuer: Issuer, text: str) -> None:
    issuer.register("assertion", "acme", client_id="m2m", public_key=KEY.as_pem(private=False).decode())
    assert (await fetch(f"{issuer.url}/assertion/token", _client_form(text))).status == 401


# ---- other endpoints -------------------------------------------------------------------------------


async def test_the_resource_knows_live_expired_revoked_and_unknown(
    issuer: Issuer, clock: ManualClock
) -> None:
    grant = issuer.register("strict", "acme", expires_in_s=10)
    other = issuer.register("strict", "other")
    assert (await resource(issuer, "strict", grant.access_token)).json == {"connection": "acme"}
    await clock.advance(10)
    issuer.revoke("strict", "other")
    for access_token in (grant.access_token, other.access_token, "at_unknown"):
        reply = await resource(issuer, "strict", access_token)
        assert (reply.status, reply.json["error"]) == (401, "invalid_token")
    assert (await resource(issuer, "stable", grant.access_token)).status == 401
    whys = [entry.fields["why"] for entry in issuer.ledger().of("resource")]
    assert whys == ["live", "expired", "revoked", "unknown", "unknown"]
    assert judge(issuer.ledger()).expired_served == 1


async def test_revoke_ends_the_grant_by_either_token(issuer: Issuer) -> None:
    for name in ("refresh_token", "access_token"):
        grant = issuer.register("strict", name)
        reply = await fetch(f"{issuer.url}/strict/revoke", {"token": getattr(grant, name)})
        assert reply.status == 200
        assert (await refresh(issuer, "strict", grant.refresh_token)).json["error"] == "invalid_grant"
    assert (await fetch(f"{issuer.url}/strict/revoke", {"token": "unknown"})).status == 200
    assert judge(issuer.ledger()).revoked == 2


async def test_consent_gives_a_code_for_one_use(issuer: Issuer) -> None:
    verifier = "v" * 43
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    back = "http://127.0.0.1:9/callback"
    query = (
        f"response_type=code&client_id=app&redirect_uri={back}&state=s1&login_hint=acme"
        f"&code_challenge={challenge}&code_challenge_method=S256&scope=read"
    )
    consent = await fetch(f"{issuer.url}/strict/authorize?{query}")
    sent = parse_qs(urlsplit(consent.headers["location"]).query)
    assert consent.status == 302
    assert (sent["state"], sent["iss"]) == (["s1"], [issuer.url])
    form = {"grant_type": "authorization_code", "code": sent["code"][0], "redirect_uri": back}
    form |= {"client_id": "app", "code_verifier": verifier}
    token = await fetch(f"{issuer.url}/strict/token", form)
    assert token.status == 200
    assert issuer.grant("strict", "acme").refresh_token == token.json["refresh_token"]
    assert (await fetch(f"{issuer.url}/strict/token", form)).json["error"] == "invalid_grant"
    assert judge(issuer.ledger()).provider_posts == 0, "a code is no refresh"


@pytest.mark.parametrize("change", [{"code_verifier": "w" * 43}, {"redirect_uri": "http://x.example/"}])
async def test_a_code_is_bound_to_its_request(issuer: Issuer, change: dict[str, str]) -> None:
    challenge = base64.urlsafe_b64encode(hashlib.sha256(b"v" * 43).digest()).rstrip(b"=").decode()
    back = "http://127.0.0.1:9/callback"
    query = f"provider=strict&response_type=code&redirect_uri={back}&code_challenge={challenge}"
    consent = await fetch(f"{issuer.url}/authorize?{query}")
    code = parse_qs(urlsplit(consent.headers["location"]).query)["code"][0]
    form = {"grant_type": "authorization_code", "code": code, "redirect_uri": back, "code_verifier": "v" * 43}
    assert (await fetch(f"{issuer.url}/strict/token", form | change)).status == 400


async def test_bad_requests_are_answered_as_such(issuer: Issuer) -> None:
    grant = issuer.register("strict", "acme")
    url = f"{issuer.url}/strict/token"
    assert (await fetch(url, {"grant_type": "password"})).json["error"] == "unsupported_grant_type"
    assert (await refresh(issuer, "strict", "rt_unknown")).json["error"] == "invalid_grant"
    assert (await refresh(issuer, "stable", grant.refresh_token)).json["error"] == "invalid_grant"
    assert (await fetch(f"{issuer.url}/strict/authorize?response_type=token")).status == 400
    assert (await fetch(f"{issuer.url}/nobody/token", refresh_form("x"))).status == 404
    verdict = judge(issuer.ledger())
    assert (verdict.unknown_tokens, verdict.strays) == (2, 1)
    assert (await refresh(issuer, "strict", grant.refresh_token)).status == 200, "no harm was done"


async def test_a_body_that_never_comes_is_on_record_and_harmless(issuer: Issuer) -> None:
    grant = issuer.register("strict", "acme")
    form = urlencode(refresh_form(grant.refresh_token)).encode()
    _, writer = await begin(f"{issuer.url}/strict/token", form, {"Content-Length": str(len(form) + 1)})
    writer.close()
    await writer.wait_closed()
    await recorded(issuer, "arrived")
    verdict = judge(issuer.ledger())
    assert (verdict.incomplete, verdict.provider_posts) == (1, 0)
    assert (await refresh(issuer, "strict", grant.refresh_token)).status == 200


# ---- dialects and clients --------------------------------------------------------------------------


async def test_mercado_libre_words_its_refusal_as_documented() -> None:
    providers = {"mercadolibre": _config("strict", dialect="mercadolibre", ttl_s=21600)}
    async with Issuer(IssuerConfig(providers=providers)) as issuer:
        grant = issuer.register("mercadolibre", "acme", account_id=42)
        fresh = await refresh(issuer, "mercadolibre", grant.refresh_token)
        assert (fresh.json["expires_in"], fresh.json["user_id"]) == (21600, 42)
        words = (
            "Error validating grant. Your authorization code or refresh token may be expired "
            "or it was already used"
        )
        plain = await refresh(issuer, "mercadolibre", grant.refresh_token)
        assert plain.body.decode() == (
            f'{{"error":"invalid_grant","error_description":"{words}","status":400,"cause":[]}}'
        )
        issuer.be_rude("message")
        odd = await refresh(issuer, "mercadolibre", grant.refresh_token)
        assert odd.body.decode() == (
            f'{{"error":"invalid_grant","message":"{words}","status":400,"cause":[]}}'
        )


async def test_shopify_speaks_at_its_own_path_in_form_or_json() -> None:
    providers = {"shopify": _config("until_successor_used", dialect="shopify")}
    async with Issuer(IssuerConfig(providers=providers)) as issuer:
        token = issuer.register("shopify", "my-shop").refresh_token
        url = f"{issuer.url}/admin/oauth/access_token"
        first = await fetch(url, refresh_form(token))
        assert first.json["refresh_token_expires_in"] == 7776000
        second = await fetch(url, json.dumps(refresh_form(str(first.json["refresh_token"]))).encode())
        assert second.status == 200
        dead = await fetch(url, refresh_form("rt_dead"))
        assert dead.status == 401
        assert dead.json == {
            "error": "invalid_request",
            "error_description": "This request requires an active refresh_token",
        }


@pytest.mark.parametrize("dialect", sorted(DIALECTS))
async def test_every_dialect_grants_and_refuses(dialect: str) -> None:
    async with Issuer(IssuerConfig(providers={"p": _config("strict", dialect=dialect)})) as issuer:
        token = issuer.register("p", "acme").refresh_token
        fields = (await refresh(issuer, "p", token)).json
        assert {"access_token", "refresh_token"} <= fields.keys()
        assert ("expires_in" in fields) is (dialect != "salesforce")
        refused = await refresh(issuer, "p", token)
        assert refused.status in (400, 401)
        assert refused.json["error_description"]


async def test_client_secrets_are_checked_and_a_client_can_be_refused() -> None:
    providers = {"p": _config("strict", clients={"app": "s3cret"})}
    async with Issuer(IssuerConfig(providers=providers)) as issuer:
        token = issuer.register("p", "acme").refresh_token
        wrong = await refresh(issuer, "p", token, client_secret="wrong")
        assert (wrong.status, wrong.json["error"]) == (401, "invalid_client")
        issuer.refuse_client("app")
        assert (await refresh(issuer, "p", token, client_secret="s3cret")).status == 401
        issuer.refuse_client("app", False)
        basic = {"Authorization": "Basic " + base64.b64encode(b"app:s3cret").decode()}
        form = {"grant_type": "refresh_token", "refresh_token": token}
        assert (await fetch(f"{issuer.url}/p/token", form, basic)).status == 200
        verdict = judge(issuer.ledger())
        assert (verdict.answered_failures, verdict.violations) == (2, ())
        assert "s3cret" not in issuer.ledger_path.read_text()


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
    with pytest.raises(InputInvalid, match="there is no point"):
        issuer.hold("somewhere")


async def test_a_hook_sees_every_point_in_order() -> None:
    seen: list[Moment] = []

    async def hook(moment: Moment) -> None:
        seen.append(moment)

    async with Issuer(IssuerConfig(providers={"p": _config("strict")}), hooks=[hook]) as issuer:
        await refresh(issuer, "p", issuer.register("p", "acme").refresh_token)
    assert [moment.point for moment in seen] == ["arrived", "processed", "answering"]
    assert {(moment.connection, moment.generation) for moment in seen} == {("acme", 1)}


async def test_overlapping_posts_are_seen(issuer: Issuer) -> None:
    token = issuer.register("stable", "acme").refresh_token
    hold = issuer.hold("processed", times=2)
    asking = [asyncio.create_task(refresh(issuer, "stable", token)) for _ in range(2)]
    await hold.reached(2)
    hold.release()
    await asyncio.gather(*asking)
    assert judge(issuer.ledger()).overlaps == 1


async def test_stopping_ends_what_hangs_and_completes_the_ledger() -> None:
    config = IssuerConfig(providers={"p": _config("strict")})
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
        config = IssuerConfig(seed=seed, providers={"p": _config("stable", ttl_s=(6, 12))})
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
    with pytest.raises(ConfigInvalid, match="hint:"):
        IssuerConfig.read(wrong, "the test")


async def test_a_start_that_fails_leaves_nothing_behind() -> None:
    config = IssuerConfig.model_validate({"connections": [{"provider": "nobody", "connection": "acme"}]})
    issuer = Issuer(config)
    with pytest.raises(InputInvalid, match="not configured"):
        await issuer.start()
    issuer.ledger_path.unlink()
    async with Issuer() as first:
        taken = Issuer(IssuerConfig(port=int(urlsplit(first.url).port or 0)))
        with pytest.raises(OSError, match="address already in use"):
            await taken.start()
        taken.ledger_path.unlink()
