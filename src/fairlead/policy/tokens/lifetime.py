"""The lifetime of an access token, counted from the send, by the first source here that states a usable one.

| source                                           | lifetime                                            |
| ------------------------------------------------ | --------------------------------------------------- |
| `expires_in`                                     | the number, in the profile's unit                   |
| `expires_at` (epoch seconds or ms, RFC 3339,     | minus the response's own Date: both come from the   |
| HTTP date) with a Date header                    | issuer's clock                                      |
| an access token that is a JWT                    | `exp` - `iat`, or `exp` - Date where that is less   |
| the last response that stated one                | the same lifetime again                             |
| the profile                                      | `ttl_default_s`                                     |

A JWT that ends earlier than `expires_in` or `expires_at` wins: APIs judge the token by its `exp`. Numbers
below 1 s or above ten years are no lifetimes and are passed over.

How numbers are read (text as in JSON, with blanks around it allowed):

| value                              | read as   | why                                             |
| ---------------------------------- | --------- | ----------------------------------------------- |
| absent, null, ""                   | nothing   | a missing lifetime must not disable refresh     |
| 3600, "3600", "3600.0", " 3.6e3 "  | 3600      | issuers send text; ASCII digits only            |
| 3600.5, "3600.5"                   | 3600      | rounded down: early is safe                     |
| 0, -1, 0.4, "0"                    | nothing   | a fresh token that is already dead is a mistake |
| "3_600", "0x10", Arabic digits     | nothing   | Python reads them, the standards do not         |
| NaN, 1e400, true, {}, []           | nothing   | not a number; the token is still good           |
| above ten years                    | nothing   | microseconds, or an absolute time               |

The JWT is decoded without verification, to read two numbers; an API that verifies it may do so.
"""

from __future__ import annotations

import base64
import math
import re
from typing import Any

from fairlead.policy.failures.http_date import parse_http_date, parse_rfc_3339
from fairlead.policy.text.number import number_of
from fairlead.policy.tokens.token_json import UnreadableBodyError, json_object

LONGEST_LIFE = 10 * 366 * 86_400
"""The longest lifetime in seconds, ten years. Milliseconds are converted before they are compared."""

_NUMBER = re.compile(r"[ \t]*([0-9]{1,16}(?:\.[0-9]{1,9})?(?:[eE]\+?[0-9]{1,2})?)[ \t]*")
_LONGEST_TIME = 64  # characters
_FIRST_MS = 1e11
"""The first Unix time that is read as milliseconds; in seconds it would be the year 5138."""
# Header and claims are JSON objects in base64url, and "{" becomes "e" with one of "wxyz".
_JWT = re.compile(r"e[w-z][A-Za-z0-9_-]{0,16384}\.(e[w-z][A-Za-z0-9_-]{0,16384})\.[A-Za-z0-9_-]*")


def read_number(value: object) -> float | None:
    """Return *value*, a number or the text of one, rounded down; None unless that is 1 or more."""
    if isinstance(value, str):
        match = _NUMBER.fullmatch(value) if len(value) <= _LONGEST_TIME else None
        value = float(match[1]) if match else None
    number = number_of(value)
    return math.floor(number) if math.isfinite(number) and number >= 1 else None


def read_time(value: object) -> float | None:
    """Return the Unix time that *value* states: seconds, milliseconds, RFC 3339 or an HTTP date."""
    number = read_number(value)
    if number is not None:
        return number / 1000 if number >= _FIRST_MS else number
    if not isinstance(value, str) or len(value) > _LONGEST_TIME:
        return None
    text = value.strip(" \t")
    stated = parse_rfc_3339(text)
    return parse_http_date(text) if stated is None else stated


def stated_lifetime_s(
    life_s: float | None, ends_at: float | None, access_token: str, date: str | None
) -> float | None:
    """Return the lifetime in seconds that a response states, by the table above; None if it states none.

    Args:
        life_s: `expires_in` in seconds.
        ends_at: `expires_at` as Unix time.
        access_token: The token in clear; it is read only if it is a JWT.
        date: The response's Date header as sent.
    """
    stated_s, claims = _usable(life_s), _claims(access_token)
    if claims or stated_s is None:
        issuer_at = parse_http_date(date) if date is not None else None
        if stated_s is None and issuer_at is not None and ends_at is not None:
            stated_s = _usable(ends_at - issuer_at)
        stated_s = min(filter(None, (stated_s, _claimed_s(claims, issuer_at))), default=None)
    return stated_s


def jwt_lifetime_s(access_token: str, issuer_at: float | None = None) -> float | None:
    """Return the lifetime of *access_token* in seconds by its own claims; None if it is no JWT or states none.

    Args:
        issuer_at: The issuer's Unix time when it responded. None: unknown.
    """
    return _claimed_s(_claims(access_token), issuer_at)


def _claimed_s(claims: dict[str, Any], issuer_at: float | None) -> float | None:
    """Return the lifetime by the claims of a JWT: its end less its issue, or less the issuer's present time."""
    end_at, start_at = read_number(claims.get("exp")), read_number(claims.get("iat"))
    if end_at is None:
        return None
    # An issuer may return a token that it issued earlier, so the time at the issuer counts as well.
    lives = [_usable(end_at - from_at) for from_at in (start_at, issuer_at) if from_at is not None]
    return min(filter(None, lives), default=None)


def _claims(access_token: str) -> dict[str, Any]:
    """Return the claims of a JWT without verification; empty for any other token."""
    match = _JWT.fullmatch(access_token)
    if match is None:
        return {}
    try:
        return json_object(base64.urlsafe_b64decode(match[1] + "=" * (-len(match[1]) % 4)).decode())
    except (UnreadableBodyError, ValueError):  # no base64url, no UTF-8, no JSON
        return {}


def _usable(life_s: float | None) -> float | None:
    """Return *life_s* if it is a lifetime of 1 s to ten years, else None."""
    return None if life_s is None or not 1 <= life_s <= LONGEST_LIFE else float(life_s)
