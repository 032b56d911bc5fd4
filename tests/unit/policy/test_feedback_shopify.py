"""Shopify beyond the fixtures: points, their shortfall, REST calls, bulk operations."""

from __future__ import annotations

import pytest

from fairlead.policy.limits.feedback.dialect import parse_limits
from fairlead.policy.limits.feedback.raw_response import LimitObservation, RawResponse


def listen(status: int = 200, body: object = None, **headers: str) -> tuple[LimitObservation, ...]:
    named = {name.replace("_", "-"): [value] for name, value in headers.items()}
    return parse_limits("shopify", RawResponse(status, named, body), now_epoch_s=None)


def cost(**parts: object) -> dict[str, object]:
    return {"data": {"shop": {}}, "extensions": {"cost": parts}}


STATUS = {"maximumAvailable": 2000.0, "currentlyAvailable": 1954, "restoreRate": 100.0}


def test_shopify_every_answer_tells_bucket_and_cost() -> None:
    body = cost(requestedQueryCost=101, actualQueryCost=46, throttleStatus=STATUS)
    assert listen(body=body) == (
        LimitObservation("points", remaining=1954, capacity=2000, per_s=100, requested=101, actual=46),
    )


def test_shopify_absent_is_none_and_not_0() -> None:
    (item,) = listen(body=cost(requestedQueryCost=10))
    assert item == LimitObservation("points", requested=10)
    (item,) = listen(body=cost(actualQueryCost=0, throttleStatus={"currentlyAvailable": 0}))
    assert item == LimitObservation("points", remaining=0, actual=0)
    assert listen(body=cost()) == ()


THROTTLED = {"message": "Throttled", "extensions": {"code": "THROTTLED"}}


def throttled(requested: object, remaining: object, per_s: object) -> dict[str, object]:
    status = {"maximumAvailable": 1000.0, "currentlyAvailable": remaining, "restoreRate": per_s}
    return {"errors": [THROTTLED], **cost(requestedQueryCost=requested, throttleStatus=status)}


@pytest.mark.parametrize(
    ("requested", "remaining", "per_s", "wait_s"),
    [
        (202, 118, 50.0, 1.68),
        (70, 66, 50, 0.08),
        (100, 0, 50, 2),
        (10, 500, 50, 0),  # refused although it would fit: somebody else spends, too
        (1e9, 0, 1e-6, 1e9),
        (100, 0, 0, 0),  # a rate of 0 would divide by nothing
        (100, 0, 5e-324, 0),
        (None, 0, 50, 0),
        (100, None, 50, 0),
        ("100", 0, 50, 0),
    ],
)
def test_shopify_wait_is_what_is_missing(
    requested: object, remaining: object, per_s: object, wait_s: float
) -> None:
    (item,) = listen(body=throttled(requested, remaining, per_s))
    assert item.wait_s == pytest.approx(wait_s)
    assert item.code == "THROTTLED"


def test_shopify_retry_after_and_shortfall_both_hold() -> None:
    (item,) = listen(429, throttled(502, 498, 50.0), retry_after="2.0")
    assert item.wait_s == 2
    (item,) = listen(429, throttled(600, 0, 50.0), retry_after="2.0")
    assert item.wait_s == 12


def test_shopify_throttled_in_its_other_forms() -> None:
    (item,) = listen(body={"errors": [{"message": "Throttled"}]})
    assert item == LimitObservation("points", wait_s=0.0, code="THROTTLED")
    body = cost(requestedQueryCost=60, throttleStatus={"currentlyAvailable": 10, "restoreRate": 50})
    (item,) = listen(429, body)
    assert (item.limit, item.wait_s) == ("points", 1)
    body = {"errors": [{"message": "too costly", "extensions": {"code": "MAX_COST_EXCEEDED"}}]}
    assert listen(body=body) == ()


def test_shopify_rest_bucket_and_refusal_are_one_item() -> None:
    (item,) = listen(x_shopify_shop_api_call_limit="32/40")
    assert item == LimitObservation("requests", remaining=8, capacity=40)
    (item,) = listen(429, x_shopify_shop_api_call_limit="40/40", retry_after="2.0")
    assert item == LimitObservation("requests", remaining=0, capacity=40, wait_s=2)
    (item,) = listen(x_shopify_shop_api_call_limit="41/40")
    assert item.remaining == 0


@pytest.mark.parametrize(
    "value",
    ["", "32", "32/", "/40", "-1/40", "32/0", "3_2/40", "32/40/1", "32 / 40", "a/b", "٣/40", "1e1/40"],
)
def test_shopify_rest_header_that_cannot_be_read(value: str) -> None:
    assert listen(x_shopify_shop_api_call_limit=value) == ()


def bulk(field: str, code: str, **selected: object) -> dict[str, object]:
    return {"data": {field: {**selected, "userErrors": [{"code": code, "message": "no"}]}}}


def test_shopify_bulk_refusals() -> None:
    for field in ("bulkOperationRunQuery", "bulkOperationRunMutation"):
        (item,) = listen(body=bulk(field, "LIMIT_REACHED"))
        assert item == LimitObservation("bulk", wait_s=0.0, code="LIMIT_REACHED")
    (item,) = listen(body=bulk("mine", "OPERATION_IN_PROGRESS", bulkOperation=None))
    assert item.code == "OPERATION_IN_PROGRESS"
    assert listen(body=bulk("bulkOperationRunQuery", "INVALID")) == ()
    assert listen(body=bulk("metafieldCreate", "LIMIT_REACHED")) == ()


def test_shopify_bulk_refusal_does_not_hide_the_points() -> None:
    cost_fields = cost(requestedQueryCost=10, throttleStatus=STATUS)
    body = {**cost_fields, **bulk("bulkOperationRunQuery", "LIMIT_REACHED")}
    points, refusal = listen(body=body)
    assert (points.limit, points.remaining, points.refused) == ("points", 1954, False)
    assert (refusal.limit, refusal.refused) == ("bulk", True)
