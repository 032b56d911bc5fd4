"""A call whose cost nobody told is taken for what calls of its operation cost before (G2)."""

from __future__ import annotations

import pytest

from fairlead.engine.limits.observations import LimitIgnored
from fairlead.engine.ports import ConnectionKey
from fairlead.errors import InvalidInputError
from fairlead.policy.limits.feedback.raw_response import RawResponse
from tests.support.entrances import Way


def answer(requested: float, actual: float | None, *, left: float = 900.0, status: int = 200) -> RawResponse:
    """What Shopify says to a query."""
    bucket = {"maximumAvailable": 1000.0, "currentlyAvailable": left, "restoreRate": 50.0}
    cost = {"requestedQueryCost": requested, "actualQueryCost": actual, "throttleStatus": bucket}
    refused = [{"message": "Throttled", "extensions": {"code": "THROTTLED"}}] if actual is None else []
    return RawResponse(status, {}, {"errors": refused, "extensions": {"cost": cost}})


async def spent(way: Way, operation: str, reply: RawResponse | None = None, **wish: object) -> float:
    """What a call takes of the points before it is sent; then it gets *reply*."""
    async with way.call_admitter.enter(way.wish(api="graphql", operation=operation, **wish)) as admission:
        if reply is not None:
            admission.record_response(reply)
        names = [bucket.name for bucket in admission.admitted.plan.buckets]
        return admission.admitted.spent[names.index("points")]


async def test_the_next_call_of_an_operation_takes_what_the_last_was_asked_for() -> None:
    """Not what it really cost: the vendor wants the whole of it to be there before it begins."""
    way = Way(provider="shopify")
    assert await spent(way, "products", answer(102, 40)) == 1
    assert await spent(way, "products") == 102
    assert await spent(way, "orders") == 1


async def test_ignored_observation_is_emitted_for_each_connection() -> None:
    way = Way()
    for tenant in ("acme", "acme", "acme", "beta"):
        way.key = ConnectionKey(tenant, "stripe")
        async with way.call_admitter.enter(way.wish()) as admission:
            admission.ignored = ("requests",)
    told = [(event.tenant, event.total) for event in way.told.of(LimitIgnored)]
    assert told == [("acme", 1), ("acme", 2), ("beta", 1)]


async def test_cost_estimate_rises_at_once_and_falls_slowly() -> None:
    way = Way(provider="shopify")
    for requested in (100, 200, 100):
        await spent(way, "products", answer(requested, 10))
    assert await spent(way, "products") == pytest.approx(180)


async def test_stated_cost_overrides_the_estimate() -> None:
    way = Way(provider="shopify")
    await spent(way, "products", answer(102, 40))
    assert await spent(way, "products", cost=7.0) == 7


async def test_a_refused_call_tells_what_the_next_one_needs() -> None:
    way = Way(provider="shopify")
    await spent(way, "products", answer(502, None, left=600.0))
    assert await spent(way, "products", wait_s=0.0) == 502


async def test_a_cost_that_no_bucket_holds_any_more_is_cut_to_what_it_holds() -> None:
    """The shop's plan was larger once: a call that waits for more than there ever is would never go."""
    way = Way(provider="shopify")
    await spent(way, "products", answer(5000, 40, left=1000.0))
    assert await spent(way, "products", wait_s=0.0) == 1000


@pytest.mark.parametrize("value", [-1.0, -0.001, float("nan"), float("inf"), 1e10, "1"])
@pytest.mark.parametrize("name", ["cost", "wait_s"])
def test_no_call_costs_less_than_nothing_or_waits_for_ever(name: str, value: object) -> None:
    with pytest.raises(InvalidInputError, match=name):
        Way(provider="shopify").wish(**{name: value})
