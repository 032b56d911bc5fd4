"""The response as the feedback parsers see it, and one observation of a limit.

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
        """Normalise the headers: names in lower case, and a single text as a tuple.

        >>> RawResponse(429, {"Retry-After": "120"}).headers
        {'retry-after': ('120',)}
        """
        if all(type(values) is tuple and name.islower() for name, values in self.headers.items()):
            return
        headers: dict[str, tuple[str, ...]] = {}
        for name, values in self.headers.items():
            previous = headers.get(name.lower(), ())
            headers[name.lower()] = (*previous, values) if isinstance(values, str) else (*previous, *values)
        object.__setattr__(self, "headers", headers)

    @property
    def is_markup(self) -> bool:
        """True if it may be XML or HTML."""
        return (self.text or "")[:64].lstrip("\ufeff \t\r\n\0").startswith("<")

    def may_contain(self, word: str) -> bool:
        """Return whether the body may contain *word*, without parsing it."""
        return self.body is not None or self.text is not None

    def holds(self, word: bytes, behind: re.Pattern[bytes]) -> bool:
        """Return whether the raw body contains *word* directly followed by *behind*; see `stands_in`.

        False where its JSON was read.
        """
        return stands_in((self.text or "").encode("utf-8", "replace"), word, behind)

    def count(self, word: str) -> int:
        """Return how often the raw body contains *word*; 0 if its JSON was parsed."""
        return (self.text or "").count(word)


def stands_in(raw: bytes, word: bytes, behind: re.Pattern[bytes]) -> bool:
    """Return whether *raw* contains *word* directly followed by *behind*, or too often to examine each.

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
    *remaining*: units left now. *capacity*: units at most, per window if *window_s* is stated: such a limit
    becomes a bucket by ``policy.gate.limit.per_window``, never one that holds a whole window. *per_s*: units
    that come back each second. *window_s*: the vendor counts in windows so long. *reset_s*: the units come
    back at once in so many seconds.

    *wait_s*: the provider refused, and asks to wait so long; 0.0 for a refusal without a time, None where it
    did not refuse. As stated, not clamped: that is ``clamp_hint(wait_s, daily_limit=daily)``. *daily*: a limit
    of a day (or longer), so a refusal parks until its reset.

    *requested*, *actual*: units this call was estimated at, and units it took. *code*: the vendor's word
    for the refusal, out of a closed list, so it can be shown.
    """

    limit: str
    remaining: float | None = None
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
    """Return the seconds of Retry-After, a date measured by the server's clock; None without one."""
    headers = {name: reply.headers.get(name, ()) for name in ("retry-after", "retry-after-ms", "date")}
    return server_hint(headers, now_epoch_s=now_epoch_s)


def refusal_wait_s(reply: RawResponse, now_epoch_s: float | None) -> float:
    """Return the wait of a refusal: Retry-After, or 0.0."""
    return retry_after_s(reply, now_epoch_s) or 0.0


def refusal_s(reply: RawResponse, now_epoch_s: float | None) -> float | None:
    """Return the wait in seconds if the status alone refuses: any 429, and a 503 that asks for a wait.

    A bare 503 is an outage, which is the breaker's affair.
    """
    if reply.status not in (429, 503):
        return None
    wait_s = retry_after_s(reply, now_epoch_s)
    return (wait_s or 0.0) if reply.status == 429 else wait_s


def with_refusal(
    items: tuple[LimitObservation, ...], refusal: LimitObservation
) -> tuple[LimitObservation, ...]:
    """Return *items* with *refusal*, merged if both concern the same limit.

    Numbers of *items* stay; those of *refusal* fill the gaps.
    """
    for index, item in enumerate(items):
        if item.limit == refusal.limit:
            merged = replace(
                item,
                window_s=item.window_s or refusal.window_s,
                wait_s=refusal.wait_s,
                daily=item.daily or refusal.daily,
                code=refusal.code,
            )
            return (*items[:index], merged, *items[index + 1 :])
    return (*items, refusal)
