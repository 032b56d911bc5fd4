"""HubSpot: a rolling window, a day, and search with a limit of its own.

A refusal names its policy in the body. Search answers carry no rate headers; that distinguishes a refused search
from a refused call where the policy is SECONDLY, which both use. The headers ``-Secondly`` are not read: the
vendor sends them still, but enforces the rolling window in their place.
"""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.policy.limits.feedback.raw_response import (
    DAILY,
    DAY_S,
    OBJECT,
    REQUESTS,
    SEARCH,
    LimitObservation,
    RawResponse,
    refusal_wait_s,
    with_refusal,
)
from fairlead.policy.limits.feedback.readers import count, header, member, word

_LOCKED_S = 2.0  # "wait at least 2 seconds", says the vendor of a 423
_WINDOWS_S = {"TEN_SECONDLY_ROLLING": 10.0, "SECONDLY": 1.0, "DAILY": DAY_S}


def hubspot(reply: RawResponse, now_epoch_s: float | None) -> tuple[LimitObservation, ...]:
    """Return the rolling window and the day from the headers, and the limit that refused.

    Source: developers.hubspot.com docs/api/usage-details, changelog 2018-11-06 (headers);
    reference/gate.md §6.
    """
    items = (*_rolling(reply), *_daily(reply))
    wait_s = refusal_wait_s(reply, now_epoch_s)
    if reply.status == 423:
        return with_refusal(items, LimitObservation(OBJECT, wait_s=max(_LOCKED_S, wait_s)))
    if reply.status == 477:  # the account is being moved between data centres
        return with_refusal(items, LimitObservation(REQUESTS, wait_s=wait_s))
    if reply.status != 429 or (code := word(member(reply.body, "policyName"))) not in _WINDOWS_S:
        return items
    window_s = _WINDOWS_S[code]
    limit = _limit_of(code, items)
    refusal = LimitObservation(limit, window_s=window_s, wait_s=wait_s, daily=limit == DAILY, code=code)
    return with_refusal(items, refusal)


def _limit_of(code: str, items: tuple[LimitObservation, ...]) -> str:
    if code == "DAILY":
        return DAILY
    rolling = any(item.limit == REQUESTS for item in items)
    return SEARCH if code == "SECONDLY" and not rolling else REQUESTS


def _rolling(reply: RawResponse) -> Iterator[LimitObservation]:
    capacity = count(header(reply, "x-hubspot-ratelimit-max")) or None
    remaining = count(header(reply, "x-hubspot-ratelimit-remaining"))
    window_ms = count(header(reply, "x-hubspot-ratelimit-interval-milliseconds"))
    if remaining is not None or capacity is not None:
        yield LimitObservation(
            REQUESTS, remaining=remaining, capacity=capacity, window_s=window_ms / 1000 if window_ms else None
        )


def _daily(reply: RawResponse) -> Iterator[LimitObservation]:
    capacity = count(header(reply, "x-hubspot-ratelimit-daily")) or None
    remaining = count(header(reply, "x-hubspot-ratelimit-daily-remaining"))
    if remaining is not None or capacity is not None:
        yield LimitObservation(DAILY, remaining=remaining, capacity=capacity, window_s=DAY_S, daily=True)
