"""What answers change in the buckets of a call."""

from __future__ import annotations

import pytest

from fairlead.engine.limits.observations import Doubts, Observations, observations_for
from fairlead.engine.ports import Observation
from fairlead.policy.limits.feedback.dialect import parse_limits
from fairlead.policy.limits.feedback.raw_response import LimitObservation, RawResponse
from fairlead.policy.limits.limit import BucketLimit, Domain, Plan

REST = BucketLimit("shop|rest", 40, 2, name="requests")
POINTS = BucketLimit("shop|points", 1000, 50, name="points")
PLAN = Plan(Domain(("tenant", "a")), buckets=(REST, POINTS))


def of(dialect: str, reply: RawResponse, plan: Plan = PLAN) -> Observations:
    return observations_for(plan, parse_limits(dialect, reply, now_epoch_s=None))


def throttled(available: float) -> RawResponse:
    status = {"maximumAvailable": 1000.0, "currentlyAvailable": available, "restoreRate": 50.0}
    cost = {"requestedQueryCost": 502, "actualQueryCost": None, "throttleStatus": status}
    error = {"message": "Throttled", "extensions": {"code": "THROTTLED"}}
    return RawResponse(200, body={"errors": [error], "extensions": {"cost": cost}})


@pytest.mark.parametrize(
    ("own_limit", "slots"), [(8, 8), (3.0, 3), (100_000, 100_000), (100_001, None), (0, None), (None, None)]
)
def test_how_many_calls_may_be_in_flight_is_told_to_the_pool(own_limit: object, slots: int | None) -> None:
    body = {
        "accountConcurrencyLimit": 15,
        "integrationConcurrencyLimit": own_limit,
        "integrationLimitType": "integrationSpecific",
    }
    observations = of("netsuite", RawResponse(200, body=body))
    assert observations == Observations({}, {}, {}, slots, () if slots or not own_limit else ("concurrency",))


@pytest.mark.parametrize(
    "odd",
    [
        LimitObservation("points", capacity=20, window_s=31_536_000),
        LimitObservation("points", per_s=1e-6),
        LimitObservation("points", capacity=1.0),
        LimitObservation("points", capacity=1e6),
    ],
)
def test_a_limit_far_from_the_known_one_counts_once_it_is_told_twice(odd: LimitObservation) -> None:
    """R52: one odd answer rules nothing; what no bucket can be never does."""
    usual = LimitObservation("points", remaining=7.0, capacity=1100.0, per_s=55.0)
    doubts = Doubts()
    for item, believed in ((odd, False), (usual, True), (odd, False), (odd, odd.window_s is None)):
        observations = observations_for(PLAN, [item], doubts)
        observation = observations.observed[1]
        assert (observation.capacity is not None or observation.per_s is not None) is believed
        assert observations.ignored == (() if believed else ("points",))


def test_no_call_costs_more_than_its_bucket_holds() -> None:
    observations = observations_for(PLAN, [LimitObservation("points", requested=1e9, actual=1e9)])
    assert (observations.actual, observations.estimated, observations.ignored) == (
        {1: 1000.0},
        {1: 1000.0},
        ("points",),
    )


def test_a_reset_that_comes_before_the_next_unit_is_waited_for() -> None:
    observation = observations_for(PLAN, [LimitObservation("requests", remaining=0.0, reset_s=0.2)]).observed[
        0
    ]
    assert (observation.remaining, observation.held_s, observation.wait_s) == (40.0, 0.2, None)
    for item in (
        LimitObservation("requests", remaining=0.0, reset_s=9.0),
        LimitObservation("requests", remaining=3.0, reset_s=0.2),
    ):
        assert observations_for(PLAN, [item]).observed[0].held_s is None


def test_a_refusal_for_want_of_a_slot_tells_no_number() -> None:
    assert of("netsuite", RawResponse(429)) == Observations({}, {}, {})


def test_a_throttled_query_tells_its_bucket_and_costs_nothing() -> None:
    assert of("shopify", throttled(498)) == Observations(
        {1: Observation(498.0, 1000.0, 50.0, None)}, {1: 0.0}, {1: 502.0}
    )


def test_a_query_that_ran_tells_its_cost() -> None:
    status = {"maximumAvailable": 2000.0, "currentlyAvailable": 1969, "restoreRate": 100.0}
    cost = {"requestedQueryCost": 52, "actualQueryCost": 31, "throttleStatus": status}
    observations = of("shopify", RawResponse(200, body={"data": {}, "extensions": {"cost": cost}}))
    assert observations == Observations({1: Observation(1969.0, 2000.0, 100.0, None)}, {1: 31.0}, {1: 52.0})


def test_a_refused_call_waits_as_asked() -> None:
    headers = {"x-shopify-shop-api-call-limit": ["40/40"], "retry-after": ["2.0"]}
    observations = of("shopify", RawResponse(429, headers))
    assert observations == Observations({0: Observation(0.0, 40.0, None, 2.0)}, {0: 0.0}, {})


def test_a_refusal_of_calls_that_no_bucket_counts_slows_them_all() -> None:
    plan = Plan(PLAN.domain, buckets=(POINTS,))
    observations = of("standard", RawResponse(429, {"retry-after": ["120"]}), plan)
    assert observations == Observations({0: Observation(wait_s=120.0)}, {}, {})


def test_a_refusal_for_limits_that_are_not_known_slows_all_until_the_last_of_them_has_room() -> None:
    headers = {"ratelimit": ['"minute";r=0;t=10, "burst";r=0;t=40, "hour";r=7;t=900']}
    observations = of("standard", RawResponse(429, headers))
    assert observations == Observations(dict.fromkeys((0, 1), Observation(wait_s=40.0)), {}, {})


def test_a_bucket_that_is_known_waits_for_the_limits_that_are_not_and_keeps_what_it_has() -> None:
    observations = of("standard", RawResponse(429, {"ratelimit": ['"requests";r=30;t=10, "burst";r=0;t=40']}))
    assert observations.observed == {0: Observation(remaining=30.0, held_s=40.0), 1: Observation(wait_s=40.0)}
    observations = of("standard", RawResponse(429, {"ratelimit": ['"requests";r=0;t=90, "burst";r=0;t=40']}))
    assert observations.observed[0] == Observation(remaining=0.0, wait_s=90.0, held_s=40.0)


def test_a_server_that_is_down_for_a_while_does_not_spend_the_day() -> None:
    plan = Plan(PLAN.domain, buckets=(BucketLimit("sf|daily", 5_000, 0.52, name="daily"),))
    headers = {"retry-after": ["60"], "sforce-limit-info": ["api-usage=1000/50000"]}
    observation = of("salesforce", RawResponse(503, headers), plan).observed[0]
    assert (observation.remaining, observation.wait_s, observation.held_s) == (49_000.0, None, 60.0)


@pytest.mark.parametrize(("told_s", "waits_s"), [(0.0, 900.0), (3600.0, 3600.0), (1e6, 86_400.0)])
def test_a_spent_day_parks_to_its_reset_and_at_most_a_day(told_s: float, waits_s: float) -> None:
    observations = observations_for(PLAN, [LimitObservation("daily", wait_s=told_s, daily=True)])
    assert observations.observed[0] == Observation(wait_s=waits_s)


def test_hints_are_bounded() -> None:
    observations = observations_for(PLAN, [LimitObservation("requests", wait_s=1e9)])
    assert observations.observed[0].wait_s == 900.0


def test_observed_window_becomes_a_bucket() -> None:
    observations = observations_for(
        PLAN, [LimitObservation("requests", remaining=60.0, capacity=100.0, window_s=10.0)]
    )
    assert observations.observed[0] == Observation(60.0, 10.0, 9.0, None)


@pytest.mark.parametrize("limit", ["concurrency", "object", "endpoint", "bulk", "account"])
def test_observation_of_an_unknown_limit_changes_no_bucket(limit: str) -> None:
    assert observations_for(PLAN, [LimitObservation(limit, wait_s=3.0)]) == Observations({}, {}, {})
