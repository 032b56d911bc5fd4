"""The issuer's endpoints beyond refreshing: assertions, resource, revocation, consent, dialects."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import AsyncIterator
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey

from fairlead.testing import Issuer, IssuerConfig, ManualClock, judge
from fairlead.testing.issuer import Policy
from fairlead.testing.issuer.assertion import BEARER_CLIENT, BEARER_GRANT
from fairlead.testing.issuer.dialects import DIALECTS
from tests.support.issuer import begin, fetch, provider, recorded, refresh, refresh_form, resource


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(start=1000.0)


@pytest.fixture
async def issuer(clock: ManualClock) -> AsyncIterator[Issuer]:
    providers = {policy.value: provider(policy.value) for policy in Policy}
    async with Issuer(IssuerConfig(providers=providers), clock=clock) as issuer:
        yield issuer


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
async def test_malformed_assertion_is_refused(issuer: Issuer, text: str) -> None:
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
    providers = {"mercadolibre": provider("strict", dialect="mercadolibre", ttl_s=21600)}
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
    providers = {"shopify": provider("until_successor_used", dialect="shopify")}
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
    async with Issuer(IssuerConfig(providers={"p": provider("strict", dialect=dialect)})) as issuer:
        token = issuer.register("p", "acme").refresh_token
        fields = (await refresh(issuer, "p", token)).json
        assert {"access_token", "refresh_token"} <= fields.keys()
        assert ("expires_in" in fields) is (dialect != "salesforce")
        refused = await refresh(issuer, "p", token)
        assert refused.status in (400, 401)
        assert refused.json["error_description"]


async def test_client_secrets_are_checked_and_a_client_can_be_refused() -> None:
    providers = {"p": provider("strict", clients={"app": "s3cret"})}
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
