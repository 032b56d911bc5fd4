"""Requests to token endpoints: the right fields, and secrets in body or header only (S29, S04)."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import pytest

from fairlead._core.secret import Secret
from fairlead.errors import InvalidInputError
from fairlead.policy.providers.profile import Profile
from fairlead.policy.providers.profile_load import load_profiles
from fairlead.policy.tokens.request import (
    OAuthClient,
    TokenRequest,
    api_headers,
    assertion_claims,
    authorize_url,
    code_request,
    revoke_request,
    token_request,
)
from fairlead.policy.tokens.token import TokenSet

PROFILES = load_profiles()
CLIENT = OAuthClient("client-1", Secret("CANARY-secret"))
REFRESH = Secret("CANARY-refresh")
ENDPOINT: dict[str, dict[str, str]] = {
    "shopify": {"shop": "My-Shop.myshopify.com"},
    "netsuite": {"account": "123_SB1"},
    "quickbooks": {"realm": "913"},
    "generic_oauth2": {"host": "login.example.com"},
}


def _all() -> list[Profile]:
    return [
        profile.variant(name)
        for profile in PROFILES.values()
        for name in (None, *profile.variants)
        if profile.variant(name).strategy != "static_key"
    ]


def _request(profile: Profile) -> TokenRequest:
    assertion = profile.strategy == "assertion"
    return token_request(
        profile,
        ENDPOINT.get(profile.name, {}),
        CLIENT,
        refresh_token=None if assertion else REFRESH,
        assertion=Secret("CANARY.jwt.sig") if assertion else None,
    )


def _form(request: TokenRequest) -> dict[str, str]:
    return {name: value.reveal() for name, value in request.form.items()}


def test_a_refresh_with_the_secret_in_the_body() -> None:
    request = _request(PROFILES["mercadolibre"])
    assert (request.method, request.url) == ("POST", "https://api.mercadolibre.com/oauth/token")
    assert _form(request) == {
        "grant_type": "refresh_token",
        "refresh_token": "CANARY-refresh",
        "client_id": "client-1",
        "client_secret": "CANARY-secret",
    }
    assert request.headers["content-type"].reveal() == "application/x-www-form-urlencoded"
    assert request.headers["accept"].reveal() == "application/json"
    assert "authorization" not in request.headers
    assert dict(parse_qsl(request.body().decode())) == _form(request)


def test_a_refresh_with_the_secret_in_the_header() -> None:
    client = OAuthClient("a:b", Secret("p%ss w\u00f6rd"))
    request = token_request(PROFILES["xero"], {}, client, refresh_token=REFRESH)
    scheme, value = request.headers["authorization"].reveal().split()
    assert scheme == "Basic"
    assert base64.b64decode(value) == b"a%3Ab:p%25ss+w%C3%B6rd"  # RFC 6749 §2.3.1
    assert set(request.form) == {"grant_type", "refresh_token"}


def test_a_public_client_names_itself_only() -> None:
    public = PROFILES["netsuite"].variant("public")
    request = token_request(public, ENDPOINT["netsuite"], OAuthClient("client-1"), refresh_token=REFRESH)
    assert set(request.form) == {"grant_type", "refresh_token", "client_id"}
    assert request.url.startswith("https://123-sb1.suitetalk.api.netsuite.com/")


def test_a_client_assertion() -> None:
    assert _form(_request(PROFILES["netsuite"].variant("m2m"))) == {
        "grant_type": "client_credentials",
        "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        "client_assertion": "CANARY.jwt.sig",
    }


def test_an_assertion_that_is_the_grant() -> None:
    assert _form(_request(PROFILES["google"].variant("service_account"))) == {
        "grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
        "assertion": "CANARY.jwt.sig",
    }


@pytest.mark.parametrize("profile", _all(), ids=lambda profile: profile.label)
def test_no_secret_stands_in_an_address_or_shows_when_printed(profile: Profile) -> None:
    request = _request(profile)
    assert "CANARY" not in request.url
    assert urlsplit(request.url).query == ""
    assert "CANARY" not in repr(request)
    assert b"CANARY" in request.body()


@pytest.mark.parametrize(
    ("name", "variant", "values", "expected"),
    [
        ("xero", None, {}, "needs a refresh token"),
        ("xero", None, {"refresh_token": Secret("")}, "needs a refresh token"),
        ("netsuite", "m2m", {"refresh_token": REFRESH}, "needs a signed assertion"),
        ("stripe", None, {"refresh_token": REFRESH}, "never renewed"),
    ],
)
def test_a_request_without_its_proof_is_refused(
    name: str, variant: str | None, values: dict[str, Any], expected: str
) -> None:
    with pytest.raises(InvalidInputError, match=expected) as caught:
        token_request(PROFILES[name].variant(variant), ENDPOINT.get(name, {}), CLIENT, **values)
    assert "hint:" in str(caught.value)


@pytest.mark.parametrize("bad", ["s\n", "s\r\nX-Evil: 1", "s\0", "s\ud800", "x" * 70_000])
@pytest.mark.parametrize("name", ["xero", "mercadolibre"])
def test_secrets_with_control_characters_are_refused_by_name(name: str, bad: str) -> None:
    clients = [
        (OAuthClient("c", Secret(bad)), REFRESH, "client_secret"),
        (OAuthClient(bad, Secret("s")), REFRESH, "client_id"),
        (CLIENT, Secret(bad), "refresh_token"),
    ]
    for client, refresh, expected in clients:
        with pytest.raises(InvalidInputError, match=expected) as caught:
            token_request(PROFILES[name], {}, client, refresh_token=refresh)
        assert "Evil" not in str(caught.value)


def test_a_missing_client_secret_is_said_so() -> None:
    for secret in (None, Secret("")):
        with pytest.raises(InvalidInputError, match="client secret is missing"):
            token_request(PROFILES["xero"], {}, OAuthClient("c", secret), refresh_token=REFRESH)


@pytest.mark.parametrize(
    ("name", "variant", "header", "value"),
    [
        ("mercadolibre", None, "authorization", "Bearer k"),
        ("shopify", None, "x-shopify-access-token", "k"),
        ("shopify", "permanent", "x-shopify-access-token", "k"),
        ("anthropic", None, "x-api-key", "k"),
        ("gemini", None, "x-goog-api-key", "k"),
        ("gemini", "oauth", "authorization", "Bearer k"),
        ("stripe", None, "authorization", "Bearer k"),
    ],
)
def test_how_an_api_call_carries_its_secret(name: str, variant: str | None, header: str, value: str) -> None:
    headers = api_headers(PROFILES[name].variant(variant), Secret("k"))
    assert headers[header].reveal() == value
    if name == "anthropic":
        assert headers["anthropic-version"].reveal() == "2023-06-01"


@pytest.mark.parametrize("bad", ["k\r\nX: 1", "k\0", "\u00e4", "k\n"])
def test_no_header_can_be_ended_by_a_secret(bad: str) -> None:
    with pytest.raises(InvalidInputError, match="authorization"):
        api_headers(PROFILES["stripe"], Secret(bad))


def _claims(name: str, variant: str, **more: Any) -> dict[str, object]:
    profile = PROFILES[name].variant(variant)
    return assertion_claims(
        profile, ENDPOINT.get(name, {}), client_id="client-1", unix_time=1_795_000_000, jti="j-1", **more
    )


def test_claims_of_netsuite() -> None:
    claims = _claims("netsuite", "m2m", scopes=["restlets", "rest_webservices"])
    assert claims == {
        "iss": "client-1",
        "aud": "https://123-sb1.suitetalk.api.netsuite.com/services/rest/auth/oauth2/v1/token",
        "iat": 1_795_000_000,
        "exp": 1_795_000_300,
        "scope": ["restlets", "rest_webservices"],
        "jti": "j-1",
    }
    assert _claims("netsuite", "m2m")["scope"] == ["rest_webservices"]


def test_claims_of_a_service_account() -> None:
    assert _claims("google", "service_account", scopes=["a", "b"], subject="who@example.com") == {
        "iss": "client-1",
        "aud": "https://oauth2.googleapis.com/token",
        "iat": 1_795_000_000,
        "exp": 1_795_003_600,
        "scope": "a b",
        "sub": "who@example.com",
    }
    assert "sub" not in _claims("google", "service_account")


def test_claims_need_a_profile_that_takes_them() -> None:
    with pytest.raises(InvalidInputError, match="no assertion"):
        assertion_claims(PROFILES["xero"], {}, client_id="c", unix_time=0, jti="j")


def test_the_consent_page() -> None:
    url = authorize_url(
        PROFILES["shopify"].variant("online"),
        ENDPOINT["shopify"],
        client_id="client-1",
        redirect_uri="http://127.0.0.1:8400/callback",
        state="st&te",
        code_challenge="ch",
        scopes=["read_orders", "write_orders"],
    )
    parts = urlsplit(url)
    assert (parts.netloc, parts.path) == ("my-shop.myshopify.com", "/admin/oauth/authorize")
    assert parse_qs(parts.query) == {
        "response_type": ["code"],
        "client_id": ["client-1"],
        "redirect_uri": ["http://127.0.0.1:8400/callback"],
        "state": ["st&te"],
        "code_challenge": ["ch"],
        "code_challenge_method": ["S256"],
        "scope": ["read_orders,write_orders"],
        "grant_options[]": ["per-user"],
    }


def test_the_exchange_of_a_code() -> None:
    request = code_request(
        PROFILES["shopify"],
        ENDPOINT["shopify"],
        CLIENT,
        code=Secret("CANARY-code"),
        redirect_uri="https://me.example/cb",
        code_verifier=Secret("v"),
    )
    assert _form(request) == {
        "grant_type": "authorization_code",
        "code": "CANARY-code",
        "redirect_uri": "https://me.example/cb",
        "code_verifier": "v",
        "expiring": "1",
        "client_id": "client-1",
        "client_secret": "CANARY-secret",
    }


TOKENS = TokenSet(access_token=Secret("at-9"), refresh_token=Secret("rt-9"), account_id="8035443")


def test_revoking_by_form() -> None:
    request = revoke_request(PROFILES["xero"], {}, CLIENT, TOKENS)
    assert (request.method, request.url) == ("POST", "https://identity.xero.com/connect/revocation")
    assert _form(request) == {"token": "rt-9"}
    assert request.headers["authorization"].reveal().startswith("Basic ")


def test_revoking_by_address_and_access_token() -> None:
    request = revoke_request(PROFILES["mercadolibre"], {}, CLIENT, TOKENS)
    assert (request.method, request.url) == (
        "DELETE", "https://api.mercadolibre.com/users/8035443/applications/client-1",
    )  # fmt: skip
    assert request.headers["authorization"].reveal() == "Bearer at-9"
    assert request.form == {}


def test_revoking_without_a_refresh_token_sends_the_access_token() -> None:
    request = revoke_request(PROFILES["google"], {}, CLIENT, TokenSet(Secret("at-9")))
    assert _form(request) == {"token": "at-9"}


def test_an_account_id_cannot_bend_the_address_of_a_revocation() -> None:
    for account in ("../x", "a/b", "a?b", "", "..", "a#b", "%2e"):
        with pytest.raises(InvalidInputError):
            revoke_request(PROFILES["mercadolibre"], {}, CLIENT, TokenSet(Secret("a"), account_id=account))
    with pytest.raises(InvalidInputError, match="account_id"):
        revoke_request(PROFILES["mercadolibre"], {}, CLIENT, TokenSet(Secret("a")))
