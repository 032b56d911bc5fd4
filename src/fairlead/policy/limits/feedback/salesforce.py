"""Salesforce: calls of 24 hours, and long calls at once. Both refuse with REQUEST_LIMIT_EXCEEDED.

Which of them it was stands in the message alone. A refusal that names neither is taken for a passing one:
to park for a day on a guess would stop a healthy connection.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from fairlead.policy.limits.feedback.raw_response import (
    APP,
    CONCURRENCY,
    DAILY,
    DAY_S,
    REQUESTS,
    LimitObservation,
    RawResponse,
    refusal_wait_s,
    with_refusal,
)
from fairlead.policy.limits.feedback.readers import elements, entries, header, member, share, word

_CODE = "REQUEST_LIMIT_EXCEEDED"
# "api-usage=25/5000; per-app-api-usage=17/250(appName=my-app)". The app's name is anybody's text, so the
# header is matched as a whole and not searched.
_USAGE = re.compile(
    r"(?:api-usage=([0-9]{1,10}/[0-9]{1,10}))?"
    r"(?:[;,]?[ ]{0,8}per-app-api-usage=([0-9]{1,10}/[0-9]{1,10})(?:\(appName=[^\r\n]{0,500}\))?)?"
)


def salesforce(reply: RawResponse, now_epoch_s: float | None) -> tuple[LimitObservation, ...]:
    """Return the day's use from Sforce-Limit-Info, and what a refusal was for; it comes as 403 and as a SOAP fault.

    Source: developer.salesforce.com app-limits-platform-api; reference/gate.md §6.
    """
    items = tuple(_usage(reply))
    message = _refusal(reply)
    if message is None:
        return items
    limit = _limit_of(message)
    window_s = DAY_S if limit == DAILY else None
    wait_s = refusal_wait_s(reply, now_epoch_s)
    return with_refusal(
        items, LimitObservation(limit, window_s=window_s, wait_s=wait_s, daily=limit == DAILY, code=_CODE)
    )


def _limit_of(message: str) -> str:
    if "Concurrent" in message:
        return CONCURRENCY
    return DAILY if "TotalRequests" in message else REQUESTS


def _usage(reply: RawResponse) -> Iterator[LimitObservation]:
    match = _USAGE.fullmatch(header(reply, "sforce-limit-info") or "")
    for limit, usage in ((DAILY, match[1]), (APP, match[2])) if match else ():
        use = share(usage)
        if use is not None:
            yield LimitObservation(limit, remaining=use[0], capacity=use[1], window_s=DAY_S, daily=True)


def _refusal(reply: RawResponse) -> str | None:
    """Return the message of a refusal; None if there is none."""
    if reply.status >= 400:  # in a 200 it would be a record with such fields
        for error in entries(reply.body) or (reply.body,):
            if member(error, "errorCode") == _CODE:
                return word(member(error, "message"))
    if not reply.is_markup:
        return None
    fault = dict(elements(reply.text, "faultcode", "faultstring"))
    code = fault.get("faultcode", "").rpartition(":")[2]
    return fault.get("faultstring", "") if code == _CODE else None
