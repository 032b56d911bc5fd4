"""A call whose cost nobody told is taken for what calls of its operation cost before (G2)."""

from __future__ import annotations

import pytest

from fairlead.engine.limits.observations import LimitIgnored
from fairlead.engine.ports import ConnectionKey
from fairlead.errors import InvalidInputError
from fairlead.policy.limits.feedback.raw_response import RawResponse
from tests.support.entrances import ConnectionUnderTest


def answer(
    requested: float, actual: float | None, *, remaining: float = 900.0, status: int = 200
) -> RawResponse:
    """What Shopify says to a query."""
    bucket = {"maximumAvailable": 1000.0, "currentlyAvailable": remaining, "restoreRate": 50.0}
    cost = {"requestedQueryCost": requested, "actualQueryCost": actual, "throttleStatus": bucket}
    refused = [{"message": "Throttled", "extensions": {"code": "THROTTLED"}}] if actual is None else []
    return RawResponse(status, {}, {"errors": refused, "extensions": {"cost": cost}})


async def spent(
    calls: ConnectionUnderTest, operation: str, reply: RawResponse | None = None, **fields: object
) -> float:
    """What a call takes of the points before it is sent; then it gets *reply*."""
    async with calls.call_admitter.enter(
        calls.wish(api="graphql", operation=operation, **fields)
    ) as admission:
        if reply is not None:
            admission.record_response(reply)
        names = [bucket.name for bucket in admission.admitted.plan.buckets]
        return admission.admitted.spent[names.index("points")]


async def test_the_next_call_of_an_operation_takes_what_the_last_was_asked_for() -> None:
    """Not what it really cost: the vendor wants the whole of it to be there before it begins."""
    calls = ConnectionUnderTest(provider="shopify")
    assert await spent(calls, "products", answer(102, 40)) == 1
    assert await spent(calls, "products") == 102
    assert await spent(calls, "orders") == 1


async def test_ignored_observation_is_emitted_for_each_connection() -> None:
    calls = ConnectionUnderTest()
    for tenant in ("acme", "acme", "acme", "beta"):
        calls.key = ConnectionKey(tenant, "stripe")
        async with calls.call_admitter.enter(calls.wish()) as admission:
            admission.ignored = ("requests",)
    ignored = [(event.tenant, event.total) for event in calls.told.of(LimitIgnored)]
    assert ignored == [("acme", 1), ("acme", 2), ("beta", 1)]


async def test_cost_estimate_rises_at_once_and_falls_slowly() -> None:
    calls = ConnectionUnderTest(provider="shopify")
    for requested in (100, 200, 100):
        await spent(calls, "products", answer(requested, 10))
    assert await spent(calls, "products") == pytest.approx(180)


async def test_stated_cost_overrides_the_estimate() -> None:
    calls = ConnectionUnderTest(provider="shopify")
    await spent(calls, "products", answer(102, 40))
    assert await spent(calls, "products", cost=7.0) == 7


async def test_a_refused_call_tells_what_the_next_one_needs() -> None:
    calls = ConnectionUnderTest(provider="shopify")
    await spent(calls, "products", answer(502, None, remaining=600.0))
    assert await spent(calls, "products", wait_s=0.0) == 502


async def test_a_cost_that_no_bucket_holds_any_more_is_cut_to_what_it_holds() -> None:
    """The shop's plan was larger once: a call that waits for more than there ever is would never go."""
    calls = ConnectionUnderTest(provider="shopify")
    await spent(calls, "products", answer(5000, 40, remaining=1000.0))
    assert await spent(calls, "products", wait_s=0.0) == 1000


@pytest.mark.parametrize("value", [-1.0, -0.001, float("nan"), float("inf"), 1e10, "1"])
@pytest.mark.parametrize("name", ["cost", "wait_s"])
def test_no_call_costs_less_than_nothing_or_waits_for_ever(name: str, value: object) -> None:
    with pytest.raises(InvalidInputError, match=name):
        ConnectionUnderTest(provider="shopify").wish(**{name: value})
