"""Limits in headers that are no vendor's own: RateLimit in its three forms, and X-RateLimit-*.

``policy.ratelimit_header`` reads them; here they become LimitObservation, one per policy. X-RateLimit-* is older than
any draft: the reset is a number of seconds at some services, and the second of the epoch at others. Which
is plain from its size.

A refusal blames the policies with nothing left. Its wait is Retry-After, which wins over the headers, else
the reset of the policy itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from fairlead.errors import InvalidInputError
from fairlead.policy.failures.http_date import parse_http_date
from fairlead.policy.failures.ratelimit_header import QuotaState, parse_ratelimit
from fairlead.policy.limits.feedback.raw_response import (
    DAILY,
    DAY_S,
    REQUESTS,
    LimitObservation,
    RawResponse,
    refusal_s,
    retry_after_s,
    with_refusal,
)
from fairlead.policy.limits.feedback.readers import number
from fairlead.policy.text.names import check_name

_OLDER = {f"ratelimit-{part}": f"x-ratelimit-{part}" for part in ("limit", "remaining", "reset")}
_MOST_POLICIES = 16
_EPOCH_S = 1_000_000_000  # from here on a reset is a moment (2001 and later), not 31 years of waiting
_EPOCH_MS = re.compile(r"[0-9]{13}")
_LONGEST = 4096
# One large hub writes a kind before the name: "fixed window";"api";q=500;w=300 (reference/gate.md §2.3).
_KIND = re.compile(r'(\A|,)[ \t]*"[^"\\]{0,256}";[ ]*(?=")')


def standard(reply: RawResponse, now_epoch_s: float | None) -> tuple[LimitObservation, ...]:
    """Return the limits of the RateLimit headers, else of X-RateLimit-*.

    Source: draft-ietf-httpapi-ratelimit-headers 07 to 11; reference/gate.md §2.3.
    """
    items = _by_limit(_states(reply, now_epoch_s))
    is_spent = reply.status == 403 and any(
        item.remaining == 0 for item in items
    )  # a limit, in GitHub's spelling
    if refusal_s(reply, now_epoch_s) is None and not is_spent:
        return items
    stated_s = retry_after_s(reply, now_epoch_s)
    blamed = [item for item in items if item.remaining == 0] or (items if len(items) == 1 else ())
    if not blamed:
        return with_refusal(items, LimitObservation(REQUESTS, wait_s=stated_s or 0.0))
    return tuple(replace(item, wait_s=_wait_s(item, stated_s)) if item in blamed else item for item in items)


def _wait_s(item: LimitObservation, stated_s: float | None) -> float:
    if stated_s is not None:
        return stated_s
    return (item.reset_s or 0.0) if item.remaining == 0 else 0.0


def _states(reply: RawResponse, now_epoch_s: float | None) -> tuple[QuotaState, ...]:
    headers = reply.headers
    if "ratelimit" in headers or "ratelimit-policy" in headers:
        headers = dict(headers)
        for name in ("ratelimit", "ratelimit-policy"):
            headers[name] = [_without_kind(value) for value in headers.get(name, ())]
    return parse_ratelimit(headers) or _older(reply.headers, now_epoch_s)


def _without_kind(value: str) -> str:
    return _KIND.sub(r"\1", value) if len(value) <= _LONGEST else value


def _older(headers: Mapping[str, Sequence[str]], now_epoch_s: float | None) -> tuple[QuotaState, ...]:
    renamed = {new: headers[old] for new, old in _OLDER.items() if old in headers}
    if "ratelimit-reset" in renamed:  # Unix milliseconds at some vendors
        resets = renamed["ratelimit-reset"]
        renamed["ratelimit-reset"] = [value[:-3] if _EPOCH_MS.fullmatch(value) else value for value in resets]
    states = parse_ratelimit(renamed)
    if not states:
        return ()
    dates = headers.get("date", ())
    server_epoch_s = parse_http_date(dates[0]) if dates else None
    base_epoch_s = now_epoch_s if server_epoch_s is None else server_epoch_s
    return tuple(replace(state, reset_s=_from_now(state.reset_s, base_epoch_s)) for state in states)


def _from_now(reset_s: float | None, base_epoch_s: float | None) -> float | None:
    if reset_s is None or reset_s < _EPOCH_S:
        return reset_s
    return None if base_epoch_s is None else max(0.0, reset_s - base_epoch_s)


def _by_limit(states: Sequence[QuotaState]) -> tuple[LimitObservation, ...]:
    """Return one LimitObservation for each name, the tighter of two policies."""
    tightest: dict[str, LimitObservation] = {}
    for state in states[:_MOST_POLICIES]:
        limit = _limit_of(state.policy)
        previous, item = tightest.get(limit), _item(limit, state)
        if previous is None or _room(item) < _room(previous):
            tightest[limit] = item
    return tuple(tightest.values())


def _room(item: LimitObservation) -> tuple[float, float]:
    """Return the sort key by tightness: the units left, then the longer reset."""
    return item.remaining or 0.0, -(item.reset_s or 0.0)


def _item(limit: str, state: QuotaState) -> LimitObservation:
    window_s = number(state.window_s) or None
    return LimitObservation(
        limit,
        remaining=number(state.remaining),
        capacity=number(state.quota) or None,
        window_s=window_s,
        reset_s=state.reset_s,
        daily=limit == DAILY or (window_s is not None and window_s >= DAY_S),
    )


def _limit_of(policy: str) -> str:
    """Return the policy's name if it is a valid name of a limit; a nameless one counts requests."""
    try:
        name = check_name("limit", policy.lower())
    except InvalidInputError:
        return REQUESTS
    return REQUESTS if name == "default" else name  # the name that the drafts and most servers use for one
