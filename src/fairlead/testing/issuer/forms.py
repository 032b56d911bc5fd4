"""Parse what clients send: form or JSON bodies, client credentials, bearer tokens."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from urllib.parse import unquote_plus


def read_form(body: bytes) -> dict[str, str]:
    """Return the fields of a form or JSON body; skip what cannot be parsed, and let the last of a double win."""
    if body[:1] == b"{":
        return _read_json(body)
    text = body.decode("utf-8", "replace")
    if "%" in text or "+" in text:
        pairs = (pair.partition("=") for pair in text.split("&"))
        return {unquote_plus(key): unquote_plus(value) for key, _, value in pairs if key}
    return {key: value for key, _, value in [pair.partition("=") for pair in text.split("&")] if key}


def _read_json(body: bytes) -> dict[str, str]:
    try:
        data = json.loads(body)
    except ValueError:
        return {}
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in data.items()}


def client_of(form: Mapping[str, str], authorization: str | None) -> tuple[str | None, str | None]:
    """Return client id and secret, from HTTP Basic or else from the body."""
    if authorization is None or not authorization.startswith("Basic "):
        return form.get("client_id"), form.get("client_secret")
    try:
        pair = base64.b64decode(authorization[6:], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None, None
    client_id, _, secret = pair.partition(":")
    return unquote_plus(client_id), unquote_plus(secret)


def bearer_of(authorization: str | None) -> str:
    """Return the bearer token of a request, "" if it has none."""
    scheme, _, token = (authorization or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
