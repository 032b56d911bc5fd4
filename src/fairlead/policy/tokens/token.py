"""The secrets of one generation as a value: made from a response by merge(), shown by sanitise() only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from fairlead._core.secret import Secret
from fairlead.policy.tokens.outcome import Granted
from fairlead.policy.tokens.token_json import NO_FIELDS, plain_json

_VERSION = 1
_MAX_OTHER_LENGTH = 64 * 1024  # characters


@dataclass(frozen=True, slots=True)
class TokenSet:
    """What is sealed for a connection. An API key is an access token that never expires.

    *other* is a JSON object of the fields that fairlead does not use; they are kept for the user (T7).
    *lifetime_s* is the last stated lifetime; it applies to responses that state none.
    """

    access_token: Secret
    refresh_token: Secret | None = None
    token_type: str = "Bearer"
    scope: str | None = None
    expires_at: datetime | None = None
    refresh_expires_at: datetime | None = None
    account_id: str | None = None
    other: Secret = Secret(NO_FIELDS, remember=False)  # noqa: RUF009 - immutable
    lifetime_s: float | None = None


@dataclass(frozen=True, slots=True)
class PublicToken:
    """What a caller may see (T8). Nothing else of a TokenSet ever leaves the vault."""

    access_token: Secret
    token_type: str
    expires_at: datetime | None
    scope: str | None
    account_id: str | None
    generation: int | None = None
    """Pass it to `refresh` after a 401, so that only a newer token is returned. Spec: R5."""

    def as_dict(self) -> dict[str, str | None]:
        """Return values for JSON: the access token in clear, expires_at in ISO 8601."""
        return {
            "access_token": self.access_token.reveal(),
            "token_type": self.token_type,
            "expires_at": self.expires_at.isoformat() if self.expires_at else None,
            "scope": self.scope,
            "account_id": self.account_id,
        }


def merge(stored: TokenSet | None, granted: Granted, sent_at: datetime) -> TokenSet:
    """Return the next generation of *stored*.

    Fields that *granted* lacks keep their stored value: the refresh token with its expiry, scope, account id
    and other fields.

    Args:
        sent_at: The time of the SENT mark by the database's clock.

    Spec: T7, R10.
    """
    old = stored or TokenSet(access_token=granted.access_token)
    refresh_token = granted.refresh_token or old.refresh_token
    kept_end_at = old.refresh_expires_at if granted.refresh_token is None else None
    refresh_end_at = _end_at(sent_at, granted.refresh_expires_in_s) or kept_end_at
    return TokenSet(
        access_token=granted.access_token,
        refresh_token=refresh_token,
        token_type=granted.token_type or "Bearer",
        scope=granted.scope or old.scope,
        expires_at=_end_at(sent_at, granted.expires_in_s),
        refresh_expires_at=refresh_end_at if refresh_token else None,
        account_id=old.account_id or granted.account_id,
        other=_others(old.other, granted.other),
        lifetime_s=granted.lifetime_s or old.lifetime_s,
    )


def _others(old: Secret, new: Secret) -> Secret:
    """Return all unknown fields, the newest of each; only those of the last response if they are too large."""
    if old == new or old.reveal() == NO_FIELDS:
        return new
    if new.reveal() == NO_FIELDS:
        return old
    text = plain_json({**_object(old), **_object(new)})
    return Secret(text, remember=False) if len(text) <= _MAX_OTHER_LENGTH else new


def _end_at(start: datetime, length_s: float | None) -> datetime | None:
    return None if length_s is None else start + timedelta(seconds=length_s)


def _object(text: Secret) -> dict[str, Any]:
    fields = json.loads(text.reveal())
    return fields if isinstance(fields, dict) else {}


def account_mismatch(stored_account_id: str | None, granted: Granted) -> bool:
    """Return whether the response is for another account: both are known, in canonical form, and differ. Spec: R12."""
    return None not in (stored_account_id, granted.account_id) and stored_account_id != granted.account_id


def sanitise(tokens: TokenSet, generation: int | None = None) -> PublicToken:
    """Return the public part, made of the fields that are named here and no others. Spec: S18."""
    return PublicToken(
        access_token=tokens.access_token,
        token_type=tokens.token_type,
        expires_at=tokens.expires_at,
        scope=tokens.scope,
        account_id=tokens.account_id,
        generation=generation,
    )


# ---- the sealed form


def token_set_to_record(tokens: TokenSet) -> dict[str, Any]:
    """Return *tokens* as a JSON object for the vault to seal. It holds secrets in clear."""
    return {
        "v": _VERSION,
        "access_token": tokens.access_token.reveal(),
        "refresh_token": tokens.refresh_token.reveal() if tokens.refresh_token else None,
        "token_type": tokens.token_type,
        "scope": tokens.scope,
        "expires_at": _time_text(tokens.expires_at),
        "refresh_expires_at": _time_text(tokens.refresh_expires_at),
        "account_id": tokens.account_id,
        "other": tokens.other.reveal(),
        "lifetime_s": tokens.lifetime_s,
    }


def token_set_from_record(record: Mapping[str, Any]) -> TokenSet:
    """Return the tokens that `token_set_to_record` wrote as *record*.

    Raises:
        ValueError: Without the content, if it is not a record that this version reads.
    """
    try:
        if record["v"] != _VERSION:
            raise ValueError(f"token record of version {record['v']!r}")
        return TokenSet(
            access_token=Secret(record["access_token"]),
            refresh_token=Secret(record["refresh_token"]) if record["refresh_token"] else None,
            token_type=record["token_type"],
            scope=record["scope"],
            expires_at=_time(record["expires_at"]),
            refresh_expires_at=_time(record["refresh_expires_at"]),
            account_id=record["account_id"],
            other=Secret(record["other"], remember=False),
            lifetime_s=record.get("lifetime_s"),
        )
    except (KeyError, TypeError):
        raise ValueError("not a token record hint: was it sealed by another program?") from None


def _time_text(time: datetime | None) -> str | None:
    return time.astimezone(UTC).isoformat() if time else None


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
