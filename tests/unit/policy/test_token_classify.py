"""What every answer of a token endpoint means (T5, R8, V5), as one table per kind."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead._core.secret import Secret
from fairlead.policy.failures.category import Category
from fairlead.policy.providers.profile_load import load_profiles
from fairlead.policy.tokens.outcome import (
    Granted,
    NotProcessed,
    Rejected,
    TokenOutcome,
    TransientFailure,
    Unknown,
    classify_token_response,
)
from fairlead.policy.tokens.parse import parse_token_response

PROFILES = load_profiles()
HTML = b"<html><body>Request blocked</body></html>"
MELI_BODY = {
    "error": "invalid_grant",
    "message": "Error validating grant. Your authorization code or refresh token may be expired or it was "
    "already used",
    "status": 400,
    "cause": [],
}
SHOPIFY_DEAD = {
    "error": "invalid_request",
    "error_description": "This request requires an active refresh_token",
}


def outcome_of(
    profile: str, status: int, body: bytes | dict[str, Any], headers: dict[str, Any] | None = None
) -> TokenOutcome:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return classify_token_response(PROFILES[profile], parse_token_response(status, headers or {}, raw))


# ---- refused for good


@pytest.mark.parametrize(
    ("profile", "status", "body", "category", "code", "scope"),
    [
        ("mercadolibre", 400, MELI_BODY, "permanent_auth", "invalid_grant", "connection"),
        ("mercadolibre", 401, {"error": "expired_token"}, "permanent_auth", "expired_token", "connection"),
        ("mercadolibre", 403, {"error": "access_denied"}, "permanent_auth", "access_denied", "connection"),
        ("mercadolibre", 403, {"error": "forbidden"}, "permanent_permission", "forbidden", "connection"),
        ("mercadolibre", 401, {"error": "unauthorized_application"}, "permanent_config",
         "unauthorized_application", "client"),
        ("xero", 401, {"error": "invalid_client"}, "permanent_config", "invalid_client", "client"),
        ("xero", 400, {"error": "invalid_client"}, "permanent_config", "invalid_client", "client"),
        ("xero", 400, {"error": "unauthorized_client"}, "permanent_config", "unauthorized_client",
         "connection"),
        ("xero", 400, {"error": "unsupported_grant_type"}, "permanent_config", "unsupported_grant_type",
         "connection"),
        ("xero", 400, {"error": "invalid_scope"}, "permanent_config", "invalid_scope", "connection"),
        ("xero", 400, {"error": "access_denied"}, "permanent_permission", "access_denied", "connection"),
        ("xero", 403, {"error": "insufficient_scope"}, "permanent_permission", "insufficient_scope",
         "connection"),
        ("xero", 400, {"error": "invalid_request"}, "permanent_request", "invalid_request", "connection"),
        ("shopify", 401, SHOPIFY_DEAD, "permanent_auth", "invalid_request", "connection"),
        ("shopify", 401, {"message": "requires an ACTIVE refresh_token"}, "permanent_auth", "fatal_phrase",
         "connection"),
        ("shopify", 400, {"error": "invalid_request"}, "permanent_request", "invalid_request", "connection"),
        ("shopify", 404, HTML, "permanent_auth", "account_gone", "connection"),
        ("hubspot", 400, {"status": "BAD_REFRESH_TOKEN", "message": "missing or invalid refresh token"},
         "permanent_auth", "BAD_REFRESH_TOKEN", "connection"),
        ("hubspot", 400, {"error": "invalid_grant", "status": "BAD_REFRESH_TOKEN"}, "permanent_auth",
         "invalid_grant", "connection"),
        ("google", 400, {"error": "invalid_grant", "error_subtype": "invalid_rapt"}, "permanent_auth",
         "invalid_grant", "connection"),
        ("google", 401, {"error": {"status": "invalid_client", "message": "x"}}, "permanent_config",
         "invalid_client", "client"),
        ("xero", 200, {"error": "invalid_grant"}, "permanent_auth", "invalid_grant", "connection"),
        ("xero", 200, b"error=invalid_grant&error_description=bad", "permanent_auth", "invalid_grant",
         "connection"),
    ],
)  # fmt: skip
def test_permanent_refusals(
    profile: str, status: int, body: Any, category: str, code: str, scope: str
) -> None:
    assert outcome_of(profile, status, body) == Rejected(Category(category), code, scope)  # type: ignore[arg-type]


# ---- passes by itself, nothing was spent


@pytest.mark.parametrize(
    ("profile", "status", "body", "expected"),
    [
        ("xero", 400, HTML, TransientFailure(Category.TRANSIENT_SERVER, "http_400")),
        ("xero", 401, HTML, TransientFailure(Category.TRANSIENT_SERVER, "http_401")),
        ("mercadolibre", 403, HTML, TransientFailure(Category.TRANSIENT_SERVER, "http_403")),
        ("mercadolibre", 404, HTML, TransientFailure(Category.TRANSIENT_SERVER, "http_404")),
        ("xero", 408, b"", TransientFailure(Category.TRANSIENT_SERVER, "http_408")),
        ("xero", 400, {"message": "no"}, TransientFailure(Category.TRANSIENT_SERVER, "http_400")),
        ("xero", 400, b'{"error":"invalid_grant","error":"x"}',
         TransientFailure(Category.TRANSIENT_SERVER, "http_400")),
        ("xero", 302, b"", TransientFailure(Category.TRANSIENT_SERVER, "http_302")),
        ("xero", 308, {"error": "invalid_grant"}, TransientFailure(Category.TRANSIENT_SERVER, "http_308")),
        ("xero", 400, {"error": "temporarily_unavailable"},
         TransientFailure(Category.TRANSIENT_SERVER, "temporarily_unavailable")),
        ("mercadolibre", 400, {"error": "server_error"},
         TransientFailure(Category.TRANSIENT_SERVER, "server_error")),
        ("mercadolibre", 500, {"error": "temporarily_unavailable"},
         TransientFailure(Category.TRANSIENT_SERVER, "temporarily_unavailable")),
        ("xero", 200, {"error": "server_error"}, TransientFailure(Category.TRANSIENT_SERVER, "server_error")),
        ("xero", 400, {"error": "out_of_luck"},
         TransientFailure(Category.TRANSIENT_NETWORK, "out_of_luck", unclassified=True)),
        ("xero", 200, {"error": "bad_refresh_token"},
         TransientFailure(Category.TRANSIENT_NETWORK, "bad_refresh_token", unclassified=True)),
        ("xero", 400, {"error": "SECRET-0123456789"},
         TransientFailure(Category.TRANSIENT_NETWORK, "unrecognised", unclassified=True)),
        ("mercadolibre", 400, {"error": "local_rate_limited"},
         NotProcessed(Category.TRANSIENT_RATE_LIMIT, "local_rate_limited", None, None)),
        ("mercadolibre", 500, {"error": "rate_limit_exceeded"},
         NotProcessed(Category.TRANSIENT_RATE_LIMIT, "rate_limit_exceeded", None, None)),
        ("shopify", 200, {"error": "throttled"},
         NotProcessed(Category.TRANSIENT_RATE_LIMIT, "throttled", None, None)),
        ("xero", 429, b"", NotProcessed(Category.TRANSIENT_RATE_LIMIT, "http_429", None, None)),
        ("xero", 429, {"error": "invalid_grant"},
         NotProcessed(Category.TRANSIENT_RATE_LIMIT, "invalid_grant", None, None)),
        ("mercadolibre", 429, {"error": "local_rate_limited"},
         NotProcessed(Category.TRANSIENT_RATE_LIMIT, "local_rate_limited", None, None)),
        ("xero", 503, HTML, NotProcessed(Category.TRANSIENT_SERVER, "http_503", None, None)),
        ("xero", 503, {"error": "invalid_grant"},
         NotProcessed(Category.TRANSIENT_SERVER, "invalid_grant", None, None)),
    ],
)  # fmt: skip
def test_token_response_is_classified(profile: str, status: int, body: Any, expected: TokenOutcome) -> None:
    assert outcome_of(profile, status, body) == expected


def test_a_hint_is_handed_on_as_sent() -> None:
    headers = {"retry-after": ["2.5"], "date": ["Fri, 20 Nov 2026 12:00:00 GMT"]}
    for status in (429, 503):
        outcome = outcome_of("shopify", status, b"", headers)
        assert isinstance(outcome, NotProcessed)
        assert (outcome.retry_after, outcome.date) == ("2.5", "Fri, 20 Nov 2026 12:00:00 GMT")


# ---- nobody knows


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, HTML), (500, MELI_BODY), (500, {"error": "server_error"}), (502, b""), (504, b""), (520, b""),
        (500, {"access_token": "a"}), (200, b""), (204, b""), (200, HTML), (200, b'{"access_token": "a'),
        (200, {}), (200, {"access_token": "a\r\n"}), (200, {"status": "ok"}), (101, b""), (700, b""),
    ],
)  # fmt: skip
def test_outcomes_nobody_knows(status: int, body: Any) -> None:
    assert isinstance(outcome_of("mercadolibre", status, body), Unknown)


def test_a_grant_wins_over_an_error_beside_it() -> None:
    for error in ("", None, "server_error", "invalid_grant"):
        assert isinstance(outcome_of("xero", 200, {"access_token": "a", "error": error}), Granted)
    assert isinstance(outcome_of("xero", 201, {"access_token": "a"}), Granted)


bodies = st.fixed_dictionaries(
    {},
    optional={
        "error": st.sampled_from(
            ["invalid_grant", "invalid_client", "server_error", "throttled", "x", 5, None]
        )
        | st.text(max_size=30),
        "error_description": st.text(max_size=30),
        "access_token": st.sampled_from(["a", "", None, 5]),
    },
)


@given(st.sampled_from(sorted(PROFILES)), st.integers(500, 599), bodies)
def test_no_5xx_ever_condemns_a_connection_or_an_app(name: str, status: int, body: dict[str, Any]) -> None:
    assert not isinstance(outcome_of(name, status, body), Rejected | Granted)


@given(st.sampled_from(sorted(PROFILES)), st.integers(200, 299), bodies)
def test_a_2xx_is_never_called_unspent_without_the_issuers_word(
    name: str, status: int, body: dict[str, Any]
) -> None:
    outcome = outcome_of(name, status, body)
    if isinstance(outcome, TransientFailure | NotProcessed | Rejected):
        assert isinstance(body.get("error"), str)


@given(st.text("0123456789abcdefXYZ-_.", min_size=12, max_size=60), st.integers(200, 499))
def test_a_secret_echoed_as_a_code_is_not_shown(secret: str, status: int) -> None:
    shown = repr(outcome_of("xero", status, {"error": f"9{secret}", "error_description": secret}))
    assert secret not in shown


def test_a_known_secret_that_has_the_form_of_a_code_is_not_shown() -> None:
    assert "hunterpassphrase" in repr(outcome_of("xero", 400, {"error": "hunterpassphrase"}))
    Secret("hunterpassphrase")
    assert "hunterpassphrase" not in repr(outcome_of("xero", 400, {"error": "hunterpassphrase"}))
