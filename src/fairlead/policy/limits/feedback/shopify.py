"""Shopify: points of GraphQL, calls of REST, bulk operations.

GraphQL states its bucket in each response, also in the refusal, which comes as 200 with code THROTTLED (some
saw 429) and without Retry-After: the wait is what is missing, at the rate at which it comes back. A throttled
query was not run, so its actual cost is null.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fairlead.policy.limits.feedback.raw_response import (
    BULK,
    POINTS,
    REQUESTS,
    LimitObservation,
    RawResponse,
    refusal_wait_s,
)
from fairlead.policy.limits.feedback.readers import MOST, entries, header, member, number, share, word

_BULK_CODES = frozenset({"OPERATION_IN_PROGRESS", "LIMIT_REACHED"})
_MOST_FIELDS = 64
_LEAST_RATE = 1e-6  # as in gate.limit: a slower bucket is none, and dividing by it has no meaning


def shopify(reply: RawResponse, now_epoch_s: float | None) -> tuple[LimitObservation, ...]:
    """Return points, calls and bulk operations, as far as the response states them.

    Source: shopify.dev docs/apps/build/apis/graphql-admin/rate-limits; docs/api/admin-rest/usage/rate-limits;
    docs/api/admin-graphql/latest/enums/BulkOperationUserErrorCode; community.shopify.com/t/8456.
    """
    return (*_points(reply, now_epoch_s), *_calls(reply), *_bulk(reply))


def _points(reply: RawResponse, now_epoch_s: float | None) -> Iterator[LimitObservation]:
    if not (reply.may_contain('"cost"') or reply.may_contain("errors")):
        return
    cost = member(reply.body, "extensions", "cost")
    status = member(cost, "throttleStatus")
    throttled = _throttled(reply, cost)
    item = LimitObservation(
        POINTS,
        remaining=number(member(status, "currentlyAvailable")),
        capacity=number(member(status, "maximumAvailable"), at_least=1),
        per_s=number(member(status, "restoreRate"), at_least=_LEAST_RATE),
        wait_s=refusal_wait_s(reply, now_epoch_s) if throttled else None,
        requested=number(member(cost, "requestedQueryCost")),
        actual=number(member(cost, "actualQueryCost")),
        code="THROTTLED" if throttled else None,
    )
    if throttled:
        yield _with_shortfall(item)
    elif item != LimitObservation(POINTS):
        yield item


def _throttled(reply: RawResponse, cost: object) -> bool:
    if reply.status == 429 and isinstance(cost, dict):
        return True
    return any(
        member(error, "extensions", "code") == "THROTTLED" or member(error, "message") == "Throttled"
        for error in entries(member(reply.body, "errors"))
    )


def _with_shortfall(item: LimitObservation) -> LimitObservation:
    """Return *item* with the time until the points it lacks are back: 502 asked, 498 left, 50 a second: 80 ms."""
    if item.requested is None or item.remaining is None or item.per_s is None:
        return item
    missing_s = max(0.0, item.requested - item.remaining) / item.per_s
    return replace(item, wait_s=max(item.wait_s or 0.0, min(missing_s, MOST)))


def _calls(reply: RawResponse) -> Iterator[LimitObservation]:
    usage = share(header(reply, "x-shopify-shop-api-call-limit"))
    if usage is not None:
        yield LimitObservation(REQUESTS, remaining=usage[0], capacity=usage[1])


def _bulk(reply: RawResponse) -> Iterator[LimitObservation]:
    """Yield a bulk operation that could not start: one runs already (to be adopted), or too many do."""
    if not reply.may_contain("userErrors"):
        return
    data = member(reply.body, "data")
    fields = list(data.items())[:_MOST_FIELDS] if isinstance(data, dict) else []
    for name, payload in fields:
        # Other mutations have codes of these names, too; an alias hides the name but not what was selected.
        if not word(name).startswith("bulkOperation") and not _has(payload, "bulkOperation"):
            continue
        for error in entries(member(payload, "userErrors")):
            code = word(member(error, "code"))
            if code in _BULK_CODES:
                yield LimitObservation(BULK, wait_s=0.0, code=code)
                return


def _has(value: object, key: str) -> bool:
    return isinstance(value, dict) and key in value
