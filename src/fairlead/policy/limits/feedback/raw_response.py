"""An answer as the feedback parsers see it, and what one of them heard in it.

Absent is None and never 0: "nothing left" and "nothing told" lead to opposite decisions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from fairlead.policy.failures.hint import server_hint

REQUESTS = "requests"
"""Calls as such: of the connection, or in whatever wider domain the vendor counts them."""
POINTS = "points"
"""Query cost in points (Shopify GraphQL)."""
CONCURRENCY = "concurrency"
"""Calls in flight at once: a matter of slots, not of a bucket."""
ACCOUNT = "account"
"""Calls in flight of the whole account, all integrations together (NetSuite)."""
BULK = "bulk"
"""Bulk operations that run at once (Shopify)."""
SEARCH = "search"
"""Calls of the search API, counted apart (HubSpot)."""
DAILY = "daily"
"""Calls of a day."""
APP = "app"
"""Calls of a day that this one app may make (Salesforce)."""
ENDPOINT = "endpoint"
"""Calls of the endpoint that was called; the rest of the connection goes on."""
OBJECT = "object"
"""The object that was called is locked or worn out. It must not slow the connection."""

DAY_S = 86_400.0
MOST_PLACES = 20_000
"""Twice as many as the largest batch has rows (Bulk API 1.0 of Salesforce: 10,000)."""


@dataclass(frozen=True, slots=True)
class RawResponse:
    """One answer of a provider, as received; nothing in it is trusted, and nothing of it shown."""

    status: int
    headers: Mapping[str, Sequence[str]] = field(default_factory=dict, repr=False)
    """All values of each name, in order. Given in any case, or as a text for one value, they become that."""
    body: object = field(default=None, repr=False)
    """The parsed JSON value; None where the body is no JSON."""
    text: str | None = field(default=None, repr=False)
    """The body where it is no JSON: XML of a SOAP service, or plain text."""

    def __post_init__(self) -> None:
        """Headers as HTTP clients have them: a text would pass for a list of its characters.

        >>> RawResponse(429, {"Retry-After": "120"}).headers
        {'retry-after': ('120',)}
        """
        if all(type(values) is tuple and name.islower() for name, values in self.headers.items()):
            return
        told: dict[str, tuple[str, ...]] = {}
        for name, values in self.headers.items():
            known = told.get(name.lower(), ())
            told[name.lower()] = (*known, values) if isinstance(values, str) else (*known, *values)
        object.__setattr__(self, "headers", told)

    @property
    def is_markup(self) -> bool:
        """Whether it may be XML or HTML."""
        return (self.text or "")[:64].lstrip("\ufeff \t\r\n\0").startswith("<")

    def may_contain(self, word: str) -> bool:
        """Whether *word* may stand in its body: asked before a body is read that nobody else may want."""
        return self.body is not None or self.text is not None

    def holds(self, word: bytes, behind: re.Pattern[bytes]) -> bool:
        """Whether *word* with *behind* right after it stands in its body as it came; see `stands_in`.

        False where its JSON was read.
        """
        return stands_in((self.text or "").encode("utf-8", "replace"), word, behind)

    def count(self, word: str) -> int:
        """How often *word* stands in its body as it came; 0 where its JSON was read."""
        return (self.text or "").count(word)


def stands_in(raw: bytes, word: bytes, behind: re.Pattern[bytes]) -> bool:
    """Whether *word* stands in *raw* with *behind* right after it, or too often to look at each of them.

    One expression for both would be tried at each of them, however many a hostile answer has, and nobody else
    has his turn meanwhile.
    """
    at = raw.find(word)
    for _ in range(MOST_PLACES):
        if at < 0:
            return False
        at += len(word)
        if behind.match(raw, at):
            return True
        at = raw.find(word, at)
    return at >= 0


@dataclass(frozen=True, slots=True)
class LimitObservation:
    """What an answer said of one limit. None: it did not say.

    *limit*: which of the provider's limits, one of the names above or the provider's own name of a policy.
    *left*: units left now. *capacity*: units at most, per window where *window_s* is told: such a limit
    becomes a bucket by ``policy.gate.limit.per_window``, never one that holds a whole window. *per_s*: units
    that come back each second. *window_s*: the vendor counts in windows so long. *reset_s*: the units come
    back at once in so many seconds.

    *wait_s*: the provider refused, and asks to wait so long; 0.0 for a refusal without a time, None where it
    did not refuse. As told, not clamped: that is ``clamp_hint(wait_s, daily_limit=daily)``. *daily*: a limit
    of a day (or longer), so a refusal parks until its reset.

    *requested*, *actual*: units this call was estimated at, and units it took. *code*: the vendor's word
    for the refusal, out of a closed list, so it can be shown.
    """

    limit: str
    left: float | None = None
    capacity: float | None = None
    per_s: float | None = None
    window_s: float | None = None
    reset_s: float | None = None
    wait_s: float | None = None
    requested: float | None = None
    actual: float | None = None
    daily: bool = False
    code: str | None = None

    @property
    def refused(self) -> bool:
        """The call was refused for this limit."""
        return self.wait_s is not None


def retry_after_s(reply: RawResponse, now_epoch_s: float | None) -> float | None:
    """Seconds that Retry-After asks for, a date being measured by the server's clock; None: nothing told."""
    told = {name: reply.headers.get(name, ()) for name in ("retry-after", "retry-after-ms", "date")}
    return server_hint(told, now_epoch_s=now_epoch_s)


def asked_s(reply: RawResponse, now_epoch_s: float | None) -> float:
    """The wait of a refusal: Retry-After, or 0.0."""
    return retry_after_s(reply, now_epoch_s) or 0.0


def refusal_s(reply: RawResponse, now_epoch_s: float | None) -> float | None:
    """The wait in seconds where the status alone refuses: any 429, and a 503 that asks for a wait.

    A bare 503 is an outage, which is the breaker's affair.
    """
    if reply.status not in (429, 503):
        return None
    wait_s = retry_after_s(reply, now_epoch_s)
    return (wait_s or 0.0) if reply.status == 429 else wait_s


def with_refusal(
    items: tuple[LimitObservation, ...], refusal: LimitObservation
) -> tuple[LimitObservation, ...]:
    """*items* and *refusal*: one item where both speak of the same limit.

    Numbers that *items* tell stay; those of *refusal* fill the gaps.
    """
    for index, item in enumerate(items):
        if item.limit == refusal.limit:
            told = replace(
                item,
                window_s=item.window_s or refusal.window_s,
                wait_s=refusal.wait_s,
                daily=item.daily or refusal.daily,
                code=refusal.code,
            )
            return (*items[:index], told, *items[index + 1 :])
    return (*items, refusal)
