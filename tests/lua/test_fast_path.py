"""The fast path of an admission: it does without the full path and leaves the same state (G9, G10)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from secrets import token_hex

import pytest
from redis.asyncio import Redis

from fairlead._core.secret import Secret
from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.local.system import SystemClock
from fairlead.adapters.redis import node as node_module
from fairlead.adapters.redis.redis_gate import RedisGate
from fairlead.engine.ports import AdmitRequest, Admitted, Release
from fairlead.errors import LimiterUnavailableError
from fairlead.policy.limits.breaker import DestinationHealth
from fairlead.policy.limits.key import Keyspace
from fairlead.policy.limits.limit import MICRO, BreakerRule, BucketLimit, Domain, Plan, PoolLimit, QuotaLimit
from fairlead.policy.limits.pool import Holder
from tests.contract.gates import T0_US
from tests.faults.support.gateless import altered

BUCKETS = (BucketLimit("points", 1000, 100), BucketLimit("requests", 40, 2))
PLAN = Plan(
    Domain(("tenant", "acme")),
    breaker=BreakerRule("api"),
    quota=QuotaLimit("acme", 3),
    pool=PoolLimit("slots", 5),
    buckets=BUCKETS,
)
PLANS = [
    PLAN,
    Plan(PLAN.domain, buckets=BUCKETS),
    Plan(PLAN.domain, breaker=PLAN.breaker),
    Plan(PLAN.domain, quota=PLAN.quota, pool=PLAN.pool),
    Plan(PLAN.domain, pool=PLAN.pool),
]
NO_FULL_PATH = ("gate", "--- @include full_path\n", "        error('the full path is needed')\n")


@pytest.fixture
async def gate(servers: Endpoints) -> AsyncIterator[RedisGate]:
    made = RedisGate(
        Secret(servers.redis_url), clock=SystemClock(), keys=Keyspace(f"t{token_hex(6)}"), new=True
    )
    yield made
    await made.close()


@pytest.mark.parametrize("rest_s", [7.0, 40.0, 4000.0])
async def test_a_call_now_and_then_needs_nothing_else_either(
    rest_s: float, servers: Endpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every set is empty by then, and every tick of the breaker another one."""
    keys = Keyspace(f"t{token_hex(6)}")
    first = RedisGate(Secret(servers.redis_url), clock=SystemClock(), keys=keys, new=True, pinned_us=T0_US)
    await call(first, PLAN, 1)
    await first.close()
    without_full_path = altered("gate", [NO_FULL_PATH])
    monkeypatch.setattr(node_module, "script", lambda _name: without_full_path)
    later_us = T0_US + round(rest_s * MICRO)
    later = RedisGate(Secret(servers.redis_url), clock=SystemClock(), keys=keys, pinned_us=later_us)
    await call(later, PLAN, 2)
    await later.close()


def holder_of(plan: Plan, number: int) -> Holder:
    return Holder(number, "p", "acme", quota=plan.quota)


async def call(gate: RedisGate, plan: Plan, number: int) -> Admitted:
    """One call that goes well."""
    answer = await gate.admit(
        AdmitRequest(plan, holder=holder_of(plan, number) if plan.pool is not None else None)
    )
    assert isinstance(answer, Admitted)
    assert (await gate.release(Release(answer, DestinationHealth.HEALTHY))).was_held
    return answer


@pytest.mark.parametrize("plan", PLANS, ids=["all", "buckets", "breaker", "quota", "pool"])
async def test_a_call_with_room_and_its_good_end_need_nothing_else(
    plan: Plan, gate: RedisGate, servers: Endpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2):
        await call(gate, plan, number)  # the first writes what the next ones find
    without_full_path = altered("gate", [NO_FULL_PATH])
    monkeypatch.setattr(node_module, "script", lambda _name: without_full_path)
    # Of the same name: a server knows nothing of prefixes, so what the first wrote is there.
    later = RedisGate(Secret(servers.redis_url), clock=SystemClock(), keys=gate._keys)
    try:
        for number in (3, 4, 5):
            await call(later, plan, number)
        unknown = Plan(plan.domain, buckets=(BucketLimit("other", 1, 1),))
        with pytest.raises(LimiterUnavailableError, match="the full path is needed"):
            await later.admit(AdmitRequest(unknown))
    finally:
        await later.close()


async def test_no_key_is_without_a_time_to_live(gate: RedisGate, servers: Endpoints) -> None:
    """A set of leases that nobody was in is a key that is made anew with each call."""
    async with Redis.from_url(servers.redis_url) as client:
        for number in range(1, 4):
            answer = await gate.admit(AdmitRequest(PLAN, holder=holder_of(PLAN, number)))
            assert isinstance(answer, Admitted)
            keys = [key async for key in client.scan_iter(f"{gate._keys.prefix}*")]
            assert len(keys) == 3
            for key in keys:
                assert await client.pttl(key) > 0, key
            await gate.release(Release(answer, DestinationHealth.HEALTHY))


async def test_fences_grow_within_one_run_too(gate: RedisGate) -> None:
    """Time stands still while a script runs."""
    await call(gate, PLAN, 1)
    asks = [
        gate.admit(AdmitRequest(Plan(PLAN.domain, pool=PLAN.pool), holder=Holder(n, "p")))
        for n in range(2, 7)
    ]
    fences = [answer.fence for answer in await asyncio.gather(*asks) if isinstance(answer, Admitted)]
    assert len(set(fences)) == len(asks)
    assert fences == sorted(fences)
