"""Signed webhooks by Standard Webhooks 1.0: the key, what is signed, and what a receiver's response means.

    webhook-id: the event's id    webhook-timestamp: Unix seconds    webhook-signature: v1,<base64>

The signature is HMAC-SHA256 over ``id.timestamp.body``, so neither can be exchanged for another. A secret
``whsec_<base64>`` is a key in base64, as that standard has it; any other text is the key itself.
Source: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

from fairlead._core.secret import Secret
from fairlead.errors import FairleadError, InvalidConfigError, RequestRejectedError, TransientFailureError
from fairlead.policy.failures.category import Category

ID = "webhook-id"
TIMESTAMP = "webhook-timestamp"
SIGNATURE = "webhook-signature"
MIN_KEY_BYTES = 16

_PREFIX = "whsec_"
_VERSION = "v1,"
_HTTP_GONE = 410
_NOT_PROCESSED = {408: Category.TRANSIENT_NETWORK, 425: Category.TRANSIENT_SERVER}


def signing_key(secret: Secret) -> bytes:
    """Return the key in *secret*; InvalidConfigError for bad base64 or fewer than 16 bytes.

    >>> len(signing_key(Secret("whsec_" + "QUJD" * 8)))
    24
    """
    text = secret.reveal()
    try:
        encoded = text.removeprefix(_PREFIX)
        key = base64.b64decode(encoded, validate=True) if text.startswith(_PREFIX) else text.encode()
    except binascii.Error:
        hint = "write whsec_ and then 24 to 64 random bytes in base64"
        raise InvalidConfigError(
            "notifications.webhook_secret is not base64 after whsec_", hint=hint
        ) from None
    if len(key) < MIN_KEY_BYTES:
        hint = f"use {MIN_KEY_BYTES} random bytes or more"
        raise InvalidConfigError(f"notifications.webhook_secret has only {len(key)} bytes", hint=hint)
    return key


def sign(key: bytes, event_id: str, timestamp_s: int, body: bytes) -> str:
    """Return the ``webhook-signature`` of *body*."""
    signed = f"{event_id}.{timestamp_s}.".encode() + body
    return _VERSION + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def matches(key: bytes, event_id: str, timestamp_s: int, body: bytes, signatures: str) -> bool:
    """Return whether the receiver's *key* made one of *signatures*.

    While a secret is rotated, the header has several signatures with spaces between them.
    """
    expected = sign(key, event_id, timestamp_s, body).encode()
    candidates = (signature.encode("utf-8", "replace") for signature in signatures.split(" "))
    return any(hmac.compare_digest(expected, candidate) for candidate in candidates)


def refusal(
    status: int, *, retry_after_s: float | None = None, tenant: str | None = None, provider: str | None = None
) -> FairleadError | None:
    """Return the error to raise for the receiver's *status*; None if it accepted the event."""
    if 200 <= status < 300:
        return None
    message = f"the webhook's receiver answered {status}"
    if status == 429 or status >= 500 or status in _NOT_PROCESSED:
        category = Category.TRANSIENT_RATE_LIMIT if status == 429 else Category.TRANSIENT_SERVER
        return TransientFailureError(
            message,
            tenant=tenant,
            provider=provider,
            category=_NOT_PROCESSED.get(status, category),
            retry_after_s=retry_after_s,
        )
    hint = "see what the receiver's log says about this event; then `fairlead dlq redrive`"
    if status == _HTTP_GONE:
        hint = "the receiver wants no more events: change or remove notifications.webhook_url"
    elif status < 400:
        hint = "redirects are not followed: set notifications.webhook_url to the final address"
    return RequestRejectedError(message, tenant=tenant, provider=provider, hint=hint)
