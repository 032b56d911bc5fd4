"""The outcome of a token request: a closed set of values that the coordinator matches on. Spec: T5, R8, V5.

| response                                              | outcome                                   |
| ----------------------------------------------------- | ----------------------------------------- |
| 429, 503                                              | NotProcessed, whatever the body says      |
| 2xx with a token                                      | Granted                                   |
| 2xx without a readable token or error                 | Unknown: the old token may be spent       |
| 2xx, 4xx with a fatal code or phrase                  | Rejected(permanent_auth)                  |
| 2xx, 4xx with another known code                      | Rejected(config, permission, request)     |
| 2xx, 4xx with an unknown code                         | TransientFailure, unclassified            |
| 4xx listed in errors.gone_statuses                    | Rejected(permanent_auth, account_gone)    |
| 4xx without an OAuth body (a firewall's page)         | TransientFailure                          |
| 3xx (never followed)                                  | TransientFailure                          |
| 500, 502, 504 and other 5xx                           | Unknown, even with invalid_grant inside   |
| any status with a code that means "not processed"     | TransientFailure or NotProcessed          |

Choices the sources leave open. A gone account (Shopify's 404) is permanent_auth: a new consent is the
only way back, and needs_reauth keeps the stored token. A 3xx comes from another server than the issuer's
token endpoint. `server_error` on a 400 is a complete refusal, on a 500 it leaves open whether
the token was spent (R8), so profiles list such codes as `ambiguous`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from fairlead._core.known_secrets import KNOWN_SECRETS
from fairlead._core.secret import Secret
from fairlead.errors import InvalidInputError
from fairlead.policy.failures.category import Category
from fairlead.policy.failures.hint import clamp_hint, parse_retry_after
from fairlead.policy.failures.process_health import is_own_fault
from fairlead.policy.providers.profile import Profile
from fairlead.policy.reasons import token_reasons
from fairlead.policy.tokens.lifetime import LONGEST_LIFE, read_number, stated_lifetime_s
from fairlead.policy.tokens.parse import ErrorFields, TokenGrant, TokenResponse, at_path
from fairlead.policy.tokens.token_json import NO_FIELDS

_CODE_SHAPE = re.compile(r"(?=.{3,48}\Z)[A-Za-z]{1,16}(?:_[A-Za-z]{1,16}){0,5}")


@dataclass(frozen=True, slots=True)
class Granted:
    """A token. *expires_in_s* counts from the send; None: it never expires.

    *lifetime_s* is *expires_in_s* if the response states it, else what an earlier response stated.
    """

    access_token: Secret
    refresh_token: Secret | None
    token_type: str | None
    scope: str | None
    expires_in_s: float | None
    refresh_expires_in_s: float | None
    account_id: str | None
    other: Secret
    lifetime_s: float | None = None


@dataclass(frozen=True, slots=True)
class NotProcessed:
    """The issuer did not process the request, so the same token may be sent again later."""

    category: Category
    code: str
    retry_after: str | None
    date: str | None


@dataclass(frozen=True, slots=True)
class TransientFailure:
    """A temporary refusal; no token was spent. *unclassified*: the profile does not list the code."""

    category: Category
    code: str
    unclassified: bool = False


@dataclass(frozen=True, slots=True)
class Rejected:
    """A permanent refusal, of this connection or, by *scope*, of every connection of this client id."""

    category: Category
    code: str
    scope: Literal["connection", "client"] = "connection"


@dataclass(frozen=True, slots=True)
class Unknown:
    """The request was sent, and it is not known whether the token was spent. The replay policy decides."""

    why: str


@dataclass(frozen=True, slots=True)
class NotSent:
    """The request was not sent, so a retry is safe. *scope*: where the cause probably is."""

    why: str
    scope: Literal["endpoint", "process"] = "endpoint"


TokenOutcome = Granted | NotProcessed | TransientFailure | Rejected | Unknown | NotSent


def why(outcome: TokenOutcome) -> str:
    """Return the code or the reason of *outcome*, for events and records; empty for a token."""
    return str(getattr(outcome, "code", getattr(outcome, "why", "")))


def hint_s(outcome: TokenOutcome) -> float | None:
    """Return the wait in seconds that the issuer asks for, within bounds."""
    if not isinstance(outcome, NotProcessed) or outcome.retry_after is None:
        return None
    hint_s = parse_retry_after([outcome.retry_after], server_date=outcome.date, now_epoch_s=None)
    return None if hint_s is None else clamp_hint(hint_s)


def not_sent(kind: str) -> NotSent:
    """Return the outcome of a request that never left, for the reason *kind*."""
    return NotSent(kind, "process" if is_own_fault(kind) else "endpoint")


def classify_token_response(
    profile: Profile, response: TokenResponse, *, lifetime_s: float | None = None
) -> TokenOutcome:
    """Return the outcome that *response* means at this provider. Never raises.

    Args:
        lifetime_s: The lifetime that an earlier response of the connection stated, for a response without one.
    """
    refused = _not_processed(profile, response)
    if refused is not None:
        return refused
    if 200 <= response.status < 300:
        return _classify_success(profile, response, lifetime_s)
    if 300 <= response.status < 400:
        return TransientFailure(Category.TRANSIENT_SERVER, f"http_{response.status}")
    if 400 <= response.status < 500:
        return _classify_refusal(profile, response)
    return Unknown(f"http_{response.status}")


def _not_processed(profile: Profile, response: TokenResponse) -> NotProcessed | TransientFailure | None:
    """Return the outcome of a 429, a 503 or a code that says so; these outrank everything else."""
    code = _known_code(profile, response.error)
    shown = shown_code(profile, code) if code else f"http_{response.status}"
    if response.status == 429:
        return NotProcessed(Category.TRANSIENT_RATE_LIMIT, shown, response.retry_after, response.date)
    is_rate_limit = code in profile.errors.rate_limited
    if response.status == 503:
        category = Category.TRANSIENT_RATE_LIMIT if is_rate_limit else Category.TRANSIENT_SERVER
        return NotProcessed(category, shown, response.retry_after, response.date)
    if code not in profile.errors.retryable or (200 <= response.status < 300 and response.grant):
        return None
    if is_rate_limit:
        return NotProcessed(Category.TRANSIENT_RATE_LIMIT, shown, response.retry_after, response.date)
    if response.status >= 500 and code in profile.errors.ambiguous:
        return None
    return TransientFailure(Category.TRANSIENT_SERVER, shown)


def _classify_success(profile: Profile, response: TokenResponse, lifetime_s: float | None) -> TokenOutcome:
    if response.grant is not None:
        return _granted(
            profile, response.grant, _lifetime_s(profile, response.grant, response.date) or lifetime_s
        )
    if _known_code(profile, response.error) is not None or _has_fatal_phrase(profile, response.error):
        return _classify_refusal(profile, response)  # GitHub answers 200 with an error
    return Unknown(f"http_{response.status}: {response.problem or 'no access_token'}")


def _classify_refusal(profile: Profile, response: TokenResponse) -> TokenOutcome:
    """Return the outcome of a complete refusal, by the profile's lists of codes and phrases."""
    rules = profile.errors
    code = _known_code(profile, response.error)
    if response.status in rules.gone_statuses:
        return Rejected(Category.PERMANENT_AUTH, token_reasons.ACCOUNT_GONE.code)
    if _has_fatal_phrase(profile, response.error):
        return Rejected(Category.PERMANENT_AUTH, shown_code(profile, code or token_reasons.FATAL_PHRASE.code))
    if code is None:
        return TransientFailure(Category.TRANSIENT_SERVER, f"http_{response.status}")
    shown = shown_code(profile, code)
    if code in rules.client and code not in rules.fatal:
        return Rejected(Category.PERMANENT_CONFIG, shown, scope="client")
    meanings = (
        (Category.PERMANENT_AUTH, rules.fatal),
        (Category.PERMANENT_PERMISSION, rules.permission),
        (Category.PERMANENT_REQUEST, rules.request),
        (Category.PERMANENT_CONFIG, rules.config),
    )
    for category, codes in meanings:
        if code in codes:
            return Rejected(category, shown)
    return TransientFailure(Category.TRANSIENT_NETWORK, shown, unclassified=True)


def _known_code(profile: Profile, error: ErrorFields | None) -> str | None:
    """Return the first code in the profile's fields that the profile knows, else the first code."""
    if error is None:
        return None
    at = dict(error.codes)
    codes = [at[field] for field in profile.errors.code_fields if field in at]
    profile_codes = _all_codes(profile)
    return next((code for code in codes if code in profile_codes), codes[0] if codes else None)


def _all_codes(profile: Profile) -> frozenset[str]:
    rules = profile.errors
    return frozenset(
        (*rules.fatal, *rules.client, *rules.config, *rules.permission, *rules.request, *rules.retryable)
    )


def _has_fatal_phrase(profile: Profile, error: ErrorFields | None) -> bool:
    text = " ".join(error.texts).lower() if error else ""
    return any(phrase.lower() in text for phrase in profile.errors.fatal_phrases)


def shown_code(profile: Profile, code: str) -> str:
    """Return *code* if it is safe to show, else `unrecognised`, because an issuer may echo a secret there.

    It is safe if the profile lists it, or if it has the shape of a code and holds no known secret.
    """
    if code in _all_codes(profile) or (_CODE_SHAPE.fullmatch(code) and KNOWN_SECRETS.masked(code) == code):
        return code
    return token_reasons.UNRECOGNISED.code


# ---- the grant, in the profile's terms


def _granted(profile: Profile, grant: TokenGrant, lifetime_s: float | None) -> Granted:
    other = {} if grant.other.reveal() == NO_FIELDS else json.loads(grant.other.reveal())
    facts = profile.refresh_token
    expires_in = at_path(other, facts.expires_in_field) if facts.expires_in_field else None
    return Granted(
        access_token=grant.access_token,
        refresh_token=grant.refresh_token,
        token_type=grant.token_type,
        scope=grant.scope,
        expires_in_s=lifetime_s or profile.ttl_default_s,
        refresh_expires_in_s=_refresh_life(expires_in) or facts.idle_lifetime_s,
        account_id=_account_id(profile, other),
        other=grant.other,
        lifetime_s=lifetime_s,
    )


def _lifetime_s(profile: Profile, grant: TokenGrant, date: str | None) -> float | None:
    life_s = grant.life
    if life_s is not None and profile.expires_in_unit == "ms":
        life_s /= 1000
    return stated_lifetime_s(life_s, grant.ends_at, grant.access_token.reveal(), date)


def _refresh_life(value: object) -> float | None:
    life_s = read_number(value)
    return None if life_s is None or life_s > LONGEST_LIFE else float(life_s)


def _account_id(profile: Profile, other: object) -> str | None:
    """Return the account that the response names, in canonical form; None without a readable one."""
    rule = profile.account
    value = at_path(other, rule.field) if rule.field and isinstance(other, dict) else None
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        return None
    try:
        if rule.url_segment is not None:
            value = urlsplit(value).path.split("/")[1:][rule.url_segment]
        return profile.canonical_account(value)
    except (InvalidInputError, IndexError, ValueError):
        return None
