"""What one process lets through by itself: whole calls, whole slots, and no more than its share (R27)."""

from __future__ import annotations

import pytest

from fairlead.adapters.local.local_gate import MAX_LIMITS, LocalGate
from fairlead.engine.limits.degraded_gate import DegradedGate
from fairlead.engine.ports import AdmitRequest, Admitted, Release
from fairlead.policy.limits.breaker import DestinationHealth
from fairlead.policy.limits.limit import MICRO, BreakerRule, BucketLimit, Domain, Plan, PoolLimit, QuotaLimit
from fairlead.policy.limits.pool import Holder
from fairlead.policy.limits.share import Share, share_of
from fairlead.testing._kit.clock import ManualClock

DOMAIN = Domain(("tenant", "acme"))


@pytest.mark.parametrize("processes", [1, 2, 3, 7, 11])
@pytest.mark.parametrize("capacity", [0.5, 1, 2, 2.5, 10])
def test_all_shares_together_are_the_limit_and_each_is_a_call_or_nothing(
    capacity: float, processes: int
) -> None:
    plan = Plan(
        DOMAIN, quota=QuotaLimit("q", 2), pool=PoolLimit("p", 3), buckets=(BucketLimit("b", capacity, 10),)
    )
    shares = [share_of(plan, Share(processes, rank)) for rank in range(processes)]
    buckets = [share.buckets[0] for share in shares]
    assert sum(share.quota.capacity for share in shares if share.quota) == 2
    assert sum(share.pool.capacity for share in shares if share.pool) == 3
    assert sum(bucket.capacity for bucket in buckets) == pytest.approx(capacity, abs=0.02)
    assert sum(bucket.per_s for bucket in buckets) == pytest.approx(10, abs=0.001)
    assert all(bucket.capacity >= min(1, capacity) or bucket.capacity == 0.001 for bucket in buckets)


@pytest.mark.parametrize("steady", [True, False])
async def test_the_only_process_of_the_last_lease_has_its_slots_at_once(steady: bool) -> None:
    clock = ManualClock()
    gate = LocalGate(lambda: round(clock.monotonic() * MICRO))
    alone = DegradedGate(gate, lambda: Share(1, 0, steady), clock.monotonic, [])
    asked = AdmitRequest(Plan(DOMAIN, pool=PoolLimit("p", 5)), holder=Holder(1, "p"))
    assert isinstance(await alone.admit(asked), Admitted) is steady
    await clock.advance(30)
    assert isinstance(await alone.admit(asked), Admitted)


async def test_limits_that_nobody_uses_any_more_are_forgotten() -> None:
    clock = ManualClock()
    gate = LocalGate(lambda: round(clock.monotonic() * MICRO))
    alone = DegradedGate(gate, lambda: Share(1, 0), clock.monotonic, [])
    for number in range(MAX_LIMITS + 10):
        domain = Domain(("tenant", str(number)))
        plan = Plan(domain, breaker=BreakerRule("k"), buckets=(BucketLimit("b", 10, 10),))
        answer = await alone.admit(AdmitRequest(plan))
        if isinstance(answer, Admitted):
            await alone.release(Release(answer, DestinationHealth.HEALTHY))
        if number % 1000 == 0:
            await clock.advance(60)
    assert len(list(gate.buckets())) < MAX_LIMITS
    assert len(alone._limits) <= MAX_LIMITS + 1
