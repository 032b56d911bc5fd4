"""Quirks as data: a `Quirk` changes one response, a `Rule` selects the requests that get it.

Quirks combine: each field that is set changes one aspect (the response itself, its fields, its transmission).
If two rules set the same field, the older rule wins. Chance comes from the seed, so a run can be repeated.
`QUIRKS` names the usual ones.
Spec: V4, V5, TT8.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from email.utils import formatdate
from random import Random
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from fairlead.errors import InvalidConfigError
from fairlead.testing._kit.model import Model
from fairlead.testing.issuer.dialects import Fields
from fairlead.testing.issuer.families import NO_EFFECT, QuirkEffect
from fairlead.testing.issuer.wire import HTML, WireResponse

HUGE_TOKEN_BYTES = 1 << 20

ExpiresIn = Literal[
    "absent", "zero", "negative", "string", "float", "milliseconds", "nan", "huge", "null", "true"
]
Seconds = Annotated[float, Field(ge=0, le=86_400)]


class Quirk(Model):
    """A change of one response; a field at its default changes nothing.

    Instead of the token response: *status*, *body*, *content_type*, *headers*, *retry_after* (sent as it is) or
    *retry_after_date_s* (an HTTP date that many seconds ahead). Such a response comes before processing, so
    nothing rotates; with *processed* the token is spent first.
    In the token response: *expires_in*, *refresh_token* ("absent", "empty", "same", "null": the token does not
    rotate; "huge": 1 MiB), *access_token* ("same": the earlier one again; others: odd characters), *token_type*,
    *account* (another one), *encoding*; in an error: *wording*.
    On the wire: *slow_head_s*, *slow_body_s* (spread over the body), *cut* ("before" processing, "after" it
    without a response, or after that many bytes; -1: all but the last), *hang* (the same two points; ends when
    the issuer stops or the client leaves).
    """

    status: int | None = Field(None, ge=200, le=599)
    body: str = ""
    content_type: str = HTML
    headers: dict[str, str] = Field(default_factory=dict)
    retry_after: str | None = None
    retry_after_date_s: float | None = None
    processed: bool = False
    expires_in: ExpiresIn | None = None
    refresh_token: Literal["absent", "empty", "same", "null", "huge"] | None = None
    access_token: Literal["same", "crlf", "nul", "non_ascii"] | None = None
    token_type: str | None = None
    account: Literal["other"] | None = None
    encoding: Literal["form", "duplicate_keys"] | None = None
    wording: Literal["error_description", "message", "both"] = "error_description"
    slow_head_s: Seconds = 0.0
    slow_body_s: Seconds = 0.0
    cut: Literal["before", "after"] | int | None = None
    hang: Literal["before", "after"] | None = None

    def under(self, older: Quirk) -> Quirk:
        """Return both at once; if both set a field, *older* wins."""
        fields = type(self).model_fields.items()
        set_there = {
            name
            for name, field in fields
            if getattr(older, name) != field.get_default(call_default_factory=True)
        }
        return self.model_copy(update={name: getattr(older, name) for name in set_there})

    @property
    def effect(self) -> QuirkEffect:
        """The effect on the refresh itself."""
        if self.refresh_token is None and self.access_token is None:
            return NO_EFFECT
        suffix = {"crlf": "\r\nX-Evil: 1", "nul": "\x00", "non_ascii": "\u00e9\u20ac"}
        return QuirkEffect(
            keep_refresh=self.refresh_token in ("absent", "empty", "same", "null"),
            same_access=self.access_token == "same",
            access_suffix=suffix.get(self.access_token or "", ""),
            refresh_suffix="x" * HUGE_TOKEN_BYTES if self.refresh_token == "huge" else "",
        )

    def replacement(self, now_at: float) -> WireResponse | None:
        """Return the response that replaces a token response, or None; *now_at* is the Unix time, for dates."""
        if self.status is None:
            return None
        headers = list(self.headers.items())
        if self.retry_after is not None:
            headers.append(("Retry-After", self.retry_after))
        if self.retry_after_date_s is not None:
            headers.append(("Retry-After", formatdate(now_at + self.retry_after_date_s, usegmt=True)))
        return WireResponse(self.status, self.body.encode(), self.content_type, tuple(headers))

    def change(self, fields: Fields, presented_text: str) -> Fields:
        """Return the *fields* of a token response with this quirk's changes."""
        changes = {
            "expires_in": _expires_in(self.expires_in, dict(fields).get("expires_in", "3600")),
            "refresh_token": _refresh_token(self.refresh_token, presented_text),
            "token_type": None if self.token_type is None else json.dumps(self.token_type),
        }
        fields = [(key, raw) for key, raw in fields if changes.get(key) is None]
        fields += [(key, raw) for key, raw in changes.items() if raw]
        if self.account == "other":
            fields = [(key, _other_account(raw) if key in _ACCOUNT_KEYS else raw) for key, raw in fields]
        if self.encoding == "duplicate_keys":
            decoys = [(key, '"decoy"') for key in ("access_token", "refresh_token")]
            fields = decoys + fields
        return fields


_ACCOUNT_KEYS = frozenset({"user_id", "account_id", "id"})


def _expires_in(quirk: ExpiresIn | None, regular: str) -> str | None:
    """Return raw JSON for expires_in; "" leaves the field out, None changes nothing."""
    if quirk is None:
        return None
    seconds = float(regular)
    return {
        "absent": "",
        "zero": "0",
        "negative": "-1",
        "string": json.dumps(regular),
        "float": repr(seconds + 0.5),
        "milliseconds": str(int(seconds * 1000)),
        "nan": "NaN",
        "huge": "1e400",
        "null": "null",
        "true": "true",
    }[quirk]


def _refresh_token(quirk: str | None, presented_text: str) -> str | None:
    if quirk is None or quirk == "huge":
        return None
    return {"absent": "", "empty": '""', "same": json.dumps(presented_text), "null": "null"}[quirk]


def _other_account(raw: str) -> str:
    account = json.loads(raw)
    return json.dumps(account + 1 if isinstance(account, int) else f"{account}-other")


def _named(**quirks: Quirk) -> dict[str, Quirk]:
    return quirks


_BLOCKED = "<!doctype html><html><body><h1>Request blocked</h1></body></html>"
_LOCAL_LIMIT = '{"message":"local_rate_limited","error":"local_rate_limited","status":429,"cause":[]}'
_SERVER_ERRORS = {f"status_{status}": Quirk(status=status, body=_BLOCKED) for status in (500, 502, 503, 504)}
_EXPIRIES: tuple[ExpiresIn, ...] = (
    "absent", "zero", "negative", "string", "float", "milliseconds", "nan", "huge", "null", "true",
)  # fmt: skip

QUIRKS: dict[str, Quirk] = {
    **_SERVER_ERRORS,
    **{f"expires_in_{value}": Quirk(expires_in=value) for value in _EXPIRIES},
    **_named(
        message=Quirk(wording="message"),
        refresh_token_absent=Quirk(refresh_token="absent"),
        refresh_token_empty=Quirk(refresh_token="empty"),
        refresh_token_same=Quirk(refresh_token="same"),
        refresh_token_null=Quirk(refresh_token="null"),
        refresh_token_huge=Quirk(refresh_token="huge"),
        same_access_token=Quirk(access_token="same"),
        access_token_crlf=Quirk(access_token="crlf"),
        access_token_nul=Quirk(access_token="nul"),
        access_token_non_ascii=Quirk(access_token="non_ascii"),
        odd_token_type=Quirk(token_type="urn:odd"),
        other_account=Quirk(account="other"),
        form_encoded=Quirk(encoding="form"),
        duplicate_keys=Quirk(encoding="duplicate_keys"),
        html_200=Quirk(status=200, body=_BLOCKED),
        error_200=Quirk(status=200, body='{"error":"bad_refresh_token"}', content_type="application/json"),
        no_content=Quirk(status=204),
        html_400=Quirk(status=400, body=_BLOCKED),
        invalid_client=Quirk(
            status=401,
            body='{"error":"invalid_client","error_description":"Client authentication failed"}',
            content_type="application/json",
        ),
        html_403=Quirk(status=403, body=_BLOCKED),
        rate_limited=Quirk(status=429, body=_LOCAL_LIMIT, content_type="application/json"),
        rate_limited_seconds=Quirk(status=429, retry_after="2"),
        rate_limited_decimal=Quirk(status=429, retry_after="1.5"),
        rate_limited_date=Quirk(status=429, retry_after_date_s=3.0),
        invalid_grant_500=Quirk(
            status=500, body='{"error":"invalid_grant"}', content_type="application/json"
        ),
        redirect=Quirk(status=302, headers={"Location": "/_elsewhere"}),
        slow_head=Quirk(slow_head_s=1.0),
        slow_body=Quirk(slow_body_s=1.0),
        cut_before=Quirk(cut="before"),
        cut_after=Quirk(cut="after"),
        cut_last_byte=Quirk(cut=-1),
        hang_before=Quirk(hang="before"),
        hang_after=Quirk(hang="after"),
    ),
}


def _by_name(value: object) -> object:
    if not isinstance(value, str):
        return value
    if value not in QUIRKS:
        raise InvalidConfigError(
            f"test issuer: there is no quirk named {value!r}", hint=f"one of: {', '.join(sorted(QUIRKS))}"
        )
    return QUIRKS[value]


Endpoint = Literal["token", "revoke", "resource"]


class Rule(Model):
    """The requests that get *quirk*, a `Quirk` or a name of `QUIRKS`.

    Attributes:
        provider, connection: None means any.
        times: How many requests get it (default: all).
        probability: Drawn from the seed for each request.
        start_s: Seconds from its addition until it applies (default: at once).
        for_s: Seconds for which it applies (default: for ever).
    """

    quirk: Annotated[Quirk, BeforeValidator(_by_name)]
    provider: str | None = None
    connection: str | None = None
    endpoint: Endpoint = "token"
    times: int | None = Field(None, ge=1)
    probability: float = Field(1.0, gt=0, le=1)
    start_s: Seconds = 0.0
    for_s: Seconds | None = None


@dataclass(slots=True)
class _Active:
    rule: Rule
    starts_at: float
    ends_at: float
    remaining: float


class ActiveRules:
    """The rules in force, oldest first."""

    def __init__(self, draw: Random) -> None:
        self._draw = draw
        self._active: dict[int, _Active] = {}
        self._last = 0

    def __len__(self) -> int:
        return len(self._active)

    def add(self, rule: Rule, now: float) -> int:
        """Put *rule* in force and return the number that `remove` takes."""
        starts_at = now + rule.start_s
        ends_at = float("inf") if rule.for_s is None else starts_at + rule.for_s
        self._last += 1
        self._active[self._last] = _Active(rule, starts_at, ends_at, rule.times or float("inf"))
        return self._last

    def remove(self, number: int) -> None:
        """Remove a rule; one that has ended by itself is no error."""
        self._active.pop(number, None)

    def clear(self) -> None:
        """Remove all rules."""
        self._active.clear()

    def pick(self, endpoint: Endpoint, provider: str, connection: str | None, now: float) -> Quirk | None:
        """Return the combined quirk for this request, or None, and drop rules that have ended."""
        quirk: Quirk | None = None
        for number, active in list(self._active.items()):
            if now >= active.ends_at:
                del self._active[number]
            elif self._matches(active, endpoint, provider, connection, now):
                quirk = active.rule.quirk if quirk is None else active.rule.quirk.under(quirk)
                active.remaining -= 1
                if active.remaining <= 0:
                    del self._active[number]
        return quirk

    def _matches(
        self, active: _Active, endpoint: Endpoint, provider: str, connection: str | None, now: float
    ) -> bool:
        rule = active.rule
        return (
            now >= active.starts_at
            and rule.endpoint == endpoint
            and rule.provider in (None, provider)
            and rule.connection in (None, connection)
            and (rule.probability >= 1 or self._draw.random() < rule.probability)
        )
