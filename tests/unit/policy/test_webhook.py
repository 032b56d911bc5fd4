"""Signing by Standard Webhooks, checked with that standard's own example, and what answers mean."""

from __future__ import annotations

import pytest

from fairlead._core.secret import Secret
from fairlead.errors import (
    FairleadError,
    InvalidConfigError,
    InvalidInputError,
    RequestRejectedError,
    TransientFailureError,
)
from fairlead.policy.failures.category import classify_exception
from fairlead.policy.notifications.webhook import matches, refusal, sign, signing_key
from fairlead.testing.webhook import verify

# The example of the standard's reference libraries.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
SENT_S = 1614265330
BODY = b'{"test": 2432232314}'
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
HEADERS = {"Webhook-Id": ID, "webhook-timestamp": str(SENT_S), "WEBHOOK-SIGNATURE": SIGNATURE}


def test_the_standards_example() -> None:
    key = signing_key(Secret(SECRET))
    assert sign(key, ID, SENT_S, BODY) == SIGNATURE
    assert matches(key, ID, SENT_S, BODY, SIGNATURE)
    assert matches(key, ID, SENT_S, BODY, f"v1,AAAA {SIGNATURE} v2,\udcff")


def test_a_plain_secret_is_the_key_itself() -> None:
    assert signing_key(Secret("sixteen bytes ok")) == b"sixteen bytes ok"


@pytest.mark.parametrize("secret", ["", "short", "whsec_QUJD", "whsec_not base64!", "whsec_QUJDQ"])
def test_bad_secrets_are_refused_and_not_repeated(secret: str) -> None:
    with pytest.raises(InvalidConfigError) as refused:
        signing_key(Secret(secret))
    assert not secret or secret not in str(refused.value)


def test_verify_gives_the_event() -> None:
    assert verify(SECRET, HEADERS, BODY, now=lambda: SENT_S + 300) == {"test": 2432232314}


@pytest.mark.parametrize(
    ("secret", "headers", "body", "now_s"),
    [
        ("whsec_" + "QUJD" * 8, {}, BODY, SENT_S),
        (SECRET, {}, BODY.replace(b"2432232314", b"2432232315"), SENT_S),
        (SECRET, {"Webhook-Id": "msg_other"}, BODY, SENT_S),
        (SECRET, {"webhook-timestamp": str(SENT_S + 1)}, BODY, SENT_S),
        (SECRET, {"webhook-timestamp": "now"}, BODY, SENT_S),
        (SECRET, {"webhook-timestamp": "9" * 5000}, BODY, SENT_S),
        (SECRET, {"WEBHOOK-SIGNATURE": ""}, BODY, SENT_S),
        (SECRET, {"WEBHOOK-SIGNATURE": SIGNATURE.removeprefix("v1,")}, BODY, SENT_S),
        (SECRET, {}, BODY, SENT_S + 301),
        (SECRET, {}, BODY, SENT_S - 301),
    ],
)
def test_verify_refuses_all_else(secret: str, headers: dict[str, str], body: bytes, now_s: float) -> None:
    with pytest.raises(InvalidInputError):
        verify(secret, HEADERS | headers, body, now=lambda: now_s)


@pytest.mark.parametrize("status", [200, 202, 204, 299])
def test_2xx_is_taken(status: int) -> None:
    assert refusal(status) is None


@pytest.mark.parametrize(
    ("status", "kind", "category"),
    [
        (301, RequestRejectedError, "permanent_request"),
        (308, RequestRejectedError, "permanent_request"),
        (400, RequestRejectedError, "permanent_request"),
        (401, RequestRejectedError, "permanent_request"),
        (410, RequestRejectedError, "permanent_request"),
        (408, TransientFailureError, "transient_network"),
        (425, TransientFailureError, "transient_server"),
        (429, TransientFailureError, "transient_rate_limit"),
        (500, TransientFailureError, "transient_server"),
        (503, TransientFailureError, "transient_server"),
        (599, TransientFailureError, "transient_server"),
    ],
)
def test_webhook_status_is_classified(status: int, kind: type[FairleadError], category: str) -> None:
    error = refusal(status, retry_after_s=7.0, tenant="acme", provider="xero")
    assert type(error) is kind
    failure = classify_exception(error)
    assert failure.category == category
    assert str(status) in failure.reason
    assert (error.tenant, error.provider) == ("acme", "xero")
    assert failure.hint_s == (7.0 if kind is TransientFailureError else None)
