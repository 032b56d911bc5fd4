"""How providers word their token responses: data only, one row for each dialect.

A token response is an ordered list of (key, raw JSON text), so that a quirk can write what no JSON encoder
would: ``NaN``, ``1e400`` or a key twice.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from urllib.parse import urlencode

Fields = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Dialect:
    """One provider's wording.

    Attributes:
        error: The error code for a dead refresh token.
        account_field: The field of the account in a token response; "": there is none.
        extra: Raw JSON added to a token response.
        without: Fields that a token response never has.
        also: Raw JSON added to each error body.
    """

    status: int = 400
    error: str = "invalid_grant"
    description: str = "The refresh token is invalid, expired, revoked or was used before."
    account_field: str = "account_id"
    extra: tuple[tuple[str, str], ...] = ()
    without: frozenset[str] = frozenset()
    also: tuple[tuple[str, str], ...] = ()


DIALECTS: dict[str, Dialect] = {
    "generic": Dialect(),
    "mercadolibre": Dialect(
        description=(
            "Error validating grant. Your authorization code or refresh token may be expired "
            "or it was already used"
        ),
        account_field="user_id",
        also=(("status", "400"), ("cause", "[]")),
    ),
    "shopify": Dialect(
        status=401,
        error="invalid_request",
        description="This request requires an active refresh_token",
        account_field="",
        extra=(("refresh_token_expires_in", "7776000"),),
        without=frozenset({"token_type"}),
    ),
    "google": Dialect(description="Token has been expired or revoked.", account_field=""),
    "salesforce": Dialect(
        description="expired access/refresh token",
        account_field="id",
        without=frozenset({"expires_in"}),
    ),
    "anthropic": Dialect(description="Refresh token not found or invalid", account_field=""),
}


def token_fields(
    dialect: Dialect, *, access: str, refresh: str | None, expires_in: float, scope: str, account: str | int
) -> Fields:
    """Return the fields of a token response; *refresh* None leaves the refresh token out."""
    fields = [
        ("access_token", json.dumps(access)),
        ("token_type", '"Bearer"'),
        ("expires_in", repr(expires_in)),
    ]
    if refresh is not None:
        fields.append(("refresh_token", json.dumps(refresh)))
    fields.append(("scope", json.dumps(scope)))
    if dialect.account_field:
        fields.append((dialect.account_field, json.dumps(account)))
    fields.extend(dialect.extra)
    if dialect.without:
        fields = [pair for pair in fields if pair[0] not in dialect.without]
    return fields


def to_json(fields: Fields) -> bytes:
    """Return the fields as one JSON object, with their raw texts."""
    return ("{" + ",".join([f'"{key}":{raw}' for key, raw in fields]) + "}").encode()


def to_form(fields: Fields) -> bytes:
    """Return the fields as a form body, as a few providers respond."""
    return urlencode([(key, json.loads(raw) if raw[:1] == '"' else raw) for key, raw in fields]).encode()


def error_body(dialect: Dialect, code: str, description: str, wording: str = "error_description") -> bytes:
    """Return an OAuth error in this dialect; *wording* is the key of the description, or ``both``."""
    keys = ("error_description", "message") if wording == "both" else (wording,)
    words = [(key, json.dumps(description)) for key in keys]
    return to_json([("error", json.dumps(code)), *words, *dialect.also])
