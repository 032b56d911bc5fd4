"""What ends a wait at the gate, or moves it: the time of the call, newer limits, mere observation."""

from __future__ import annotations

import asyncio

import pytest

from fairlead.adapters.local.local_gate import LocalGate
from fairlead.engine.limits.admission import AdmissionRequest
from fairlead.engine.limits.admitter import Admitter
from fairlead.engine.limits.lease_renewer import LeaseRenewer
from fairlead.engine.ports import AdmitRequest, AdmitResult, Observation
from fairlead.errors import DeadlineExceededError, LimitExceededError
from fairlead.events import GateWouldRefuse
from fairlead.policy.limits.breaker import DestinationHealth
from fairlead.policy.limits.limit import MICRO, BreakerRule, BucketLimit, Domain, Plan, PoolLimit
from fairlead.testing._kit.clock import ManualClock
from tests.support.engine import IDS, Recorder, half
from tests.support.entrances import ConnectionUnderTest, settled, started_task

DOMAIN = Domain(("tenant", "acme"))


class Silent(LocalGate):
    """A store that says nothing to asks."""

    async def admit(self, ask: AdmitRequest) -> AdmitResult:
        await asyncio.Event().wait()
        raise AssertionError


def admissions_of(gate: LocalGate, clock: ManualClock) -> Admitter:
    renewer = LeaseRenewer(gate, clock=clock, draw=half, emit=Recorder())
    return Admitter(gate, renewer, process="p", clock=clock, draw=half, ids=IDS, emit=Recorder())


async def test_no_wait_for_the_store_outlives_its_call() -> None:
    clock = ManualClock()
    entry = AdmissionRequest(Plan(DOMAIN), "acme", "shopify", wait_s=0.3, call_s=0.3)
    task = started_task(admissions_of(Silent(lambda: 0), clock).admit(entry))
    await settled()
    await clock.advance(0.3)
    with pytest.raises(DeadlineExceededError, match="did not answer"):
        await task


@pytest.mark.parametrize("kind", ["slots", "rate"])
async def test_waiter_is_judged_by_the_newest_limits(kind: str) -> None:
    """K3: raised to relieve a queue, they hold for those who stand in it."""
    clock = ManualClock(start=1000.0)
    gate = LocalGate(lambda: round(clock.monotonic() * MICRO))
    if kind == "slots":
        plans = [Plan(DOMAIN, pool=PoolLimit("p", 1 + 3 * version, version=version)) for version in range(2)]
    else:
        limits = (BucketLimit("b", 1, rate, version) for version, rate in enumerate((0.01, 10.0)))
        plans = [Plan(DOMAIN, buckets=(limit,)) for limit in limits]
    now, admitter = [plans[0]], admissions_of(gate, clock)
    entry = AdmissionRequest(plans[0], "acme", "shopify", wait_s=200, call_s=200, plan_now=lambda: now[0])
    await admitter.admit(entry)
    waiting = started_task(admitter.admit(entry))
    await settled()
    now[0] = plans[1]
    for _ in range(6):
        await clock.advance(0.5)
        await settled()
    assert waiting.done(), "it came with limits that hold no more"
    await waiting


async def test_no_wait_for_a_breaker_is_begun_that_leaves_no_time_for_the_call() -> None:
    clock = ManualClock(start=1000.0)
    gate = LocalGate(lambda: round(clock.monotonic() * MICRO))
    admitter, plan = admissions_of(gate, clock), Plan(DOMAIN, breaker=BreakerRule("k", failures=1))
    entry = AdmissionRequest(plan, "acme", "shopify", wait_s=60.0, call_s=60.0)
    async with admitter.enter(entry) as admission:
        admission.health = DestinationHealth.UNHEALTHY
    await clock.advance(0.5)
    with pytest.raises(LimitExceededError) as refused:
        await admitter.admit(entry)
    assert refused.value.reason == "breaker"


async def test_a_connection_that_only_observes_waits_for_nothing() -> None:
    """G11: decided and recorded, never blocked; nor does it flag its tenant."""
    slow = {"calls": {"requests": {"capacity": 1.0, "per_s": 1.0}}, "observe": True}
    calls = ConnectionUnderTest(settings=slow)
    for _ in range(3):
        await calls.call(wait_s=60.0)
    assert [event.reason for event in calls.told.of(GateWouldRefuse)] == ["rate"] * 2


async def test_a_slot_handed_to_a_caller_that_leaves_with_its_turn_is_given_back() -> None:
    """A job keeps its turn in the bucket and comes back for it. The slot would lie idle meanwhile."""
    clock = ManualClock(start=1000.0)
    gate = LocalGate(lambda: round(clock.monotonic() * MICRO))
    slot, rate = PoolLimit("p", 1), BucketLimit("b", 3, 2.0)
    both, slot_only = Plan(DOMAIN, buckets=(rate,), pool=slot), Plan(DOMAIN, pool=slot)
    admitter = admissions_of(gate, clock)
    first = await admitter.admit(AdmissionRequest(both, "acme", "shopify"))
    job = AdmissionRequest(both, "acme", "shopify", wait_s=0.3, reserve_ahead_s=900, reservation_id=77)
    waiting = started_task(admitter.admit(job))
    await settled()
    first.record_health(DestinationHealth.HEALTHY, {0: Observation(remaining=0.0)})
    admitter.release_local(first)
    await admitter.release(first)
    await clock.advance(0.3)
    with pytest.raises(LimitExceededError, match="rate"):
        await waiting
    await settled()
    await admitter.admit(AdmissionRequest(slot_only, "acme", "shopify"))
