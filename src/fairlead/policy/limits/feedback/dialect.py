"""How each provider says what is left of its limits: one table of dialects, one way in (G3).

A dialect reads what only its provider says. What is said everywhere, a refusal by status with Retry-After, is
added here, and only if the dialect found no refusal itself: a 429 for a locked object or a spent day must
not be taken for one of the whole connection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal

from fairlead.errors import InvalidConfigError
from fairlead.policy.limits.feedback.hubspot import hubspot
from fairlead.policy.limits.feedback.mercadolibre import mercadolibre
from fairlead.policy.limits.feedback.netsuite import netsuite
from fairlead.policy.limits.feedback.raw_response import (
    REQUESTS,
    LimitObservation,
    RawResponse,
    refusal_s,
    with_refusal,
)
from fairlead.policy.limits.feedback.salesforce import salesforce
from fairlead.policy.limits.feedback.shopify import shopify
from fairlead.policy.limits.feedback.standard import standard
from fairlead.policy.limits.feedback.stripe import stripe
from fairlead.policy.text.names import shown

Dialect = Callable[[RawResponse, float | None], tuple[LimitObservation, ...]]
"""Takes an answer and our clock (None: unknown); returns the observations, each limit once. Never raises."""

DialectName = Literal["hubspot", "mercadolibre", "netsuite", "salesforce", "shopify", "standard", "stripe"]

DIALECTS: Mapping[str, Dialect] = MappingProxyType(
    {
        "hubspot": hubspot,
        "mercadolibre": mercadolibre,
        "netsuite": netsuite,
        "salesforce": salesforce,
        "shopify": shopify,
        "standard": standard,
        "stripe": stripe,
    }
)
"""All dialects by name; "standard" serves a vendor without one."""


def parse_limits(
    dialect: str, reply: RawResponse, *, now_epoch_s: float | None
) -> tuple[LimitObservation, ...]:
    """Return the observations in *reply*, at most one for each limit.

    *now_epoch_s*: our clock, for moments in answers without a Date header of their own.

    >>> parse_limits("standard", RawResponse(429, {"retry-after": ["120"]}), now_epoch_s=None)[0].wait_s
    120.0
    """
    listen = DIALECTS.get(dialect)
    if listen is None:
        hint = f"use one of {', '.join(DIALECTS)}"
        raise InvalidConfigError(f"{shown(dialect)} is no dialect of rate limit feedback", hint=hint)
    items = listen(reply, now_epoch_s)
    wait_s = refusal_s(reply, now_epoch_s)
    if wait_s is None or any(item.refused for item in items):
        return items
    return with_refusal(items, LimitObservation(REQUESTS, wait_s=wait_s))
