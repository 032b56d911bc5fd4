"""Which limits a call meets."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from fairlead.engine.limits.limit_plans import Plans, check_settings
from fairlead.engine.limits.observations import observations_for
from fairlead.engine.ports import Connection, ConnectionKey, LearnedSlots
from fairlead.errors import InvalidConfigError, InvalidInputError
from fairlead.policy.limits.feedback.raw_response import CONCURRENCY, LimitObservation
from fairlead.policy.limits.limit import EXPLICIT, OBSERVED, Degraded, Domain, is_newer, version_of
from fairlead.policy.providers.profile_load import load_profiles

PROFILES = load_profiles([])
OWNER = 1


def connection(provider: str, number: int = 1, **fields: Any) -> Connection:
    values: dict[str, Any] = {
        "connection_id": UUID(int=number),
        "key": ConnectionKey("acme", provider),
        "variant": None,
        "account_id": "shop-1",
        "client_id": "app-1",
        "endpoint": {},
        "settings": {},
        **fields,
    }
    return Connection(**values)


@pytest.fixture
def plans() -> Plans:
    return Plans(lambda provider, variant: PROFILES[provider])


def test_each_api_meets_its_own_limits(plans: Plans) -> None:
    shop = connection("shopify")
    rest, graphql = plans.of(shop).plan, plans.of(shop, "graphql").plan
    assert [(limit.name, limit.capacity, limit.per_s) for limit in rest.buckets] == [("requests", 40, 2)]
    assert [(limit.name, limit.capacity, limit.per_s) for limit in graphql.buckets] == [("points", 1000, 50)]
    assert rest.domain == graphql.domain == Domain(("tenant", "acme"))
    assert rest.pool is None, "slots only where they are asked for"


def test_netsuite_counts_calls_in_flight_per_account(plans: Plans) -> None:
    first, other = connection("netsuite"), connection("netsuite", 2, key=ConnectionKey("beta", "netsuite"))
    plan, same = plans.of(first).plan, plans.of(other).plan
    assert plan.domain == same.domain == Domain(("netsuite", "account", "shop-1"))
    assert plan.pool is not None
    assert same.pool is not None
    assert (plan.pool.key, plan.pool.capacity) == (same.pool.key, 5)
    assert plan.buckets == ()
    assert plan.breaker != same.breaker


def test_connection_without_an_account_shares_no_limits(plans: Plans) -> None:
    """Neither with another tenant's connection of the same name, nor with the account of that name."""
    named = connection("netsuite", account_id="main")
    unnamed = [
        connection("netsuite", number, key=ConnectionKey(tenant, "netsuite", "main"), account_id=None)
        for number, tenant in enumerate(("beta", "gamma"), 2)
    ]
    domains = {plans.of(shop).plan.domain for shop in (named, *unnamed)}
    assert len(domains) == 3


def test_an_apps_limit_is_one_for_all_its_accounts(plans: Plans) -> None:
    overlay = PROFILES["hubspot"].overlay({"limits": {"domain": "app"}})
    app_wide = Plans(lambda provider, variant: overlay)
    app_plan = app_wide.of(connection("hubspot")).plan
    other = app_wide.of(connection("hubspot", 2, account_id="shop-2")).plan
    assert app_plan.domain == other.domain
    assert [limit.key for limit in app_plan.buckets] == [limit.key for limit in other.buckets]


@pytest.mark.parametrize(("domain", "is_alone"), [("app", False), ("account", True), ("tenant", True)])
def test_shared_limit_changes_after_two_tenants_receive_the_same_numbers(domain: str, is_alone: bool) -> None:
    """R50: one tenant's answers change no limit that others' calls count against."""
    overlay = PROFILES["hubspot"].overlay({"limits": {"domain": domain, "slots": 9}})
    wide = Plans(lambda provider, variant: overlay)

    def is_shared(tenant: str, number: int) -> bool:
        call = wide.of(connection("hubspot", ord(tenant), key=ConnectionKey(tenant, "hubspot")))
        name, capacity = call.plan.buckets[0].name, call.plan.buckets[0].capacity
        items = [
            LimitObservation(name, capacity=capacity - number),
            LimitObservation(CONCURRENCY, capacity=9 - number),
        ]
        observations = observations_for(call.plan, items, call.doubts)
        changes = {observations.observed[0].capacity is not None, observations.slots is not None}
        assert observations.ignored == (() if True in changes or number == 0 else (name, CONCURRENCY))
        return changes == {True}

    steps = [("a", 1), ("a", 1), ("b", 2), ("a", 1), ("b", 1), ("a", 1), ("b", 0), ("b", 0), ("a", 1)]
    effects = [is_shared(*step) for step in steps]
    if domain == "tenant":
        assert all(effects)
    else:
        assert effects == [is_alone, is_alone, False, False, True, True, False, False, False]


@pytest.mark.parametrize(("domain", "is_own"), [("tenant", True), ("account", False), ("app", False)])
def test_limit_shared_between_tenants_is_not_a_tenants_own(domain: str, is_own: bool) -> None:
    overlay = PROFILES["hubspot"].overlay({"limits": {"domain": domain}})
    assert Plans(lambda provider, variant: overlay).of(connection("hubspot")).is_exclusive is is_own


def test_settings_of_the_connection_lie_over_the_profile(plans: Plans) -> None:
    settings = {
        "concurrency_limit": 3,
        "calls": {"requests": {"limit": 600, "window_s": 60.0}},
        "tenant_slots": 2,
        "priority_classes": 3,
        "minimum_slots": {"1": 1},
        "degraded_mode": "closed",
        "max_wait_s": 60.0,
        "breaker_failures": 3,
        "observe": True,
        "of_others": "left alone",
    }
    call_plan = plans.of(connection("shopify", settings=settings, version=7))
    plan = call_plan.plan
    assert plan.pool is not None
    assert (plan.pool.capacity, plan.pool.classes, plan.pool.minimum) == (3, 3, {1: 1})
    assert plan.pool.version == version_of(EXPLICIT, OWNER, 7)
    assert plan.pool.max_wait_s == 60
    assert plan.quota is not None
    assert plan.quota.capacity == 2
    (bucket,) = plan.buckets
    assert (bucket.capacity, bucket.per_s, bucket.version) == (60, 9, plan.pool.version)
    assert plan.breaker is not None
    assert plan.breaker.failures == 3
    assert plan.degraded is Degraded.CLOSED
    assert call_plan.observe


def test_a_plan_is_made_once_per_version(plans: Plans) -> None:
    first = plans.of(connection("shopify"))
    assert plans.of(connection("shopify")) is first
    assert plans.of(connection("shopify", version=2)) is not first


@pytest.mark.parametrize(
    "settings",
    [
        {"concurrency_limit": 0},
        {"concurrency_limit": "5"},
        {"concurrency_limit": 2, "minimum_slots": {"1": 3}},
        {"minimum_slots": {"1": 1}},
        {"calls": {"requests": {"capacity": 40.0}}},
        {"calls": {"requests": {"capacity": 40.0, "per_s": 2.0, "limit": 4.0, "window_s": 1.0}}},
        {"degraded_mode": "hopeful"},
        {"priority_classes": 10},
    ],
)
def test_impossible_settings_are_told_by_name(plans: Plans, settings: dict[str, object]) -> None:
    with pytest.raises(InvalidConfigError, match=r"acme.*shopify.*hint: "):
        plans.of(connection("shopify", settings=settings))


@pytest.mark.parametrize(
    "calls",
    [
        {"requests": {"limit": 50.0, "window_s": 1.0, "apis": ["graphq"]}},
        {f"limit_{number}": {"limit": 50.0, "window_s": 1.0} for number in range(8)},
        {"requests": {"limit": 1e9, "window_s": 1e-6}},
    ],
    ids=["unknown API", "too many with the provider's", "no bucket can be so fast"],
)
def test_settings_that_fail_no_sooner_than_at_a_call_are_refused_beforehand(calls: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfigError, match=r"acme.*shopify.*hint: "):
        check_settings(connection("shopify", settings={"calls": calls}), PROFILES["shopify"].limits)


def test_settings_that_others_read_are_no_matter_of_the_gate() -> None:
    settings = {"subject": "s", "scopes": ["a"], "concurrency_limit": 5}
    check_settings(connection("shopify", settings=settings), PROFILES["shopify"].limits)


def test_an_unknown_api_is_told_what_there_is(plans: Plans) -> None:
    with pytest.raises(InvalidInputError, match="hint: it has: graphql, rest"):
        plans.of(connection("shopify"), "soap")


def test_a_quota_alone_counts_slots_too(plans: Plans) -> None:
    plan = plans.of(connection("shopify", settings={"tenant_slots": 4})).plan
    assert plan.pool is not None
    assert plan.quota is not None
    assert (plan.pool.capacity, plan.quota.capacity) == (4, 4)


def test_a_plan_begins_with_what_was_learnt_and_keeps_its_version(plans: Plans) -> None:
    guess = plans.of(connection("shopify", version=7), "graphql").plan
    taught = connection("shopify", version=7, learned_limits={"points": (2000.0, 100.0)})
    (bucket,) = plans.of(taught, "graphql").plan.buckets
    assert (bucket.capacity, bucket.per_s) == (2000, 100)
    assert is_newer(guess.buckets[0].version, bucket.version)
    assert not is_newer(bucket.version, guess.buckets[0].version), (
        "it would unlearn what a bucket knows by now"
    )
    (other,) = plans.of(taught).plan.buckets
    assert (other.name, other.per_s) == ("requests", 2), "what was learnt of points is about points"
    assert plans.of(taught, "graphql") is plans.of(taught, "graphql")


def test_slots_that_an_answer_told_of_are_the_pools_until_settings_say_otherwise(plans: Plans) -> None:
    slots = LearnedSlots(8, 1_000)
    pool = plans.of(connection("netsuite", version=7, learned_slots=slots)).plan.pool
    assert pool is not None
    assert (pool.capacity, pool.version) == (8, version_of(OBSERVED, OWNER, 1_000)), "a pool keeps the newest"
    shop = connection("netsuite", version=2_000, settings={"concurrency_limit": 2}, learned_slots=slots)
    pool = plans.of(shop).plan.pool
    assert pool is not None
    assert (pool.capacity, pool.version) == (2, version_of(EXPLICIT, OWNER, 2_000))


def test_slots_that_are_told_anew_make_another_plan_and_the_same_ones_none(plans: Plans) -> None:
    call_plans = [
        plans.of(connection("netsuite", learned_slots=slots)) for slots in (None, LearnedSlots(8, 9))
    ]
    assert call_plans[0] is not call_plans[1]
    assert plans.of(connection("netsuite", learned_slots=LearnedSlots(8, 9))) is call_plans[1]


def test_where_nothing_limits_the_calls_in_flight_nothing_learnt_does(plans: Plans) -> None:
    assert plans.of(connection("stripe", learned_slots=LearnedSlots(8, 9))).plan.pool is None


def test_bulk_operations_are_counted_per_app_shop_and_type_and_from_2026_01_on_together(plans: Plans) -> None:
    shop = connection("shopify")
    query, mutation = (plans.bulk(shop, kind, "2025-10").pool for kind in ("query", "mutation"))
    assert query.key != mutation.key
    assert query.capacity == mutation.capacity == 1
    query, mutation = (plans.bulk(shop, kind).pool for kind in ("query", "mutation"))
    assert query.key == mutation.key
    assert (query.capacity, query.fencing, query.lease_s) == (5, True, 600)
    for other in (connection("shopify", client_id="app-2"), connection("shopify", account_id="shop-2")):
        assert plans.bulk(other, "query").pool.key != query.key


def test_the_number_of_bulk_operations_is_a_setting(plans: Plans) -> None:
    bulk_plan = plans.bulk(
        connection("shopify", settings={"bulk_operations": 3, "observe": True}, version=9), "query"
    )
    assert (bulk_plan.pool.capacity, bulk_plan.observe) == (3, True)
    assert bulk_plan.pool.version == version_of(EXPLICIT, OWNER, 9)


def test_a_guess_reaches_known_buckets_with_a_new_process_and_never_undoes_a_setting() -> None:
    """R52: levels carry versions of their own; the last writer does not win."""
    earlier, later = (Plans(lambda provider, variant: PROFILES[provider], since_us=at) for at in (5, 6))
    own_settings = {"calls": {"requests": {"capacity": 1.0, "per_s": 2.0}}, "concurrency_limit": 2}
    for provider in ("shopify", "netsuite"):  # a bucket, and slots

        def version(plans: Plans, version: int, provider: str = provider, **more: Any) -> int:
            own_id = {"connection_id": UUID(int=len(provider)), **more}
            plan = plans.of(connection(provider, version=version, **own_id)).plan
            part = plan.buckets[0] if provider == "shopify" else plan.pool
            assert part is not None
            return part.version

        guess, new, setting = (
            version(earlier, 7),
            version(later, 7),
            version(earlier, 8, settings=own_settings),
        )
        assert is_newer(new, guess)
        assert not is_newer(guess, new)
        assert is_newer(setting, new)
        assert is_newer(version(earlier, 9, settings=own_settings), setting), "a later setting"
        assert not is_newer(version(later, 9, connection_id=UUID(int=77 + len(provider))), setting), (
            "somebody connects"
        )
        assert is_newer(version(earlier, 10), setting), "its own connection takes it back"


@pytest.mark.parametrize(
    ("provider", "kind", "version", "hint"),
    [
        ("stripe", "query", None, "it has: none"),
        ("shopify", "queries", None, "it has: query, mutation"),
        ("shopify", "query", "july", "write it like 2026-07"),
    ],
)
def test_bulk_operations_that_a_provider_does_not_have_are_told(
    plans: Plans, provider: str, kind: str, version: str | None, hint: str
) -> None:
    with pytest.raises(InvalidInputError, match=f"acme.*hint: {hint}"):
        plans.bulk(connection(provider), kind, version)


def test_how_long_a_call_waits_that_says_nothing_is_a_setting_of_its_connection(plans: Plans) -> None:
    assert plans.of(connection("shopify")).inline_wait_s == 2.0
    patient = connection("shopify", 2, settings={"inline_wait_s": 7.0})
    assert plans.of(patient).inline_wait_s == 7.0
