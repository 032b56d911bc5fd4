"""Getting in, waiting, being cancelled, losing a slot: the gate of one process and a clock of our own."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from fairlead.adapters.local.local_gate import LocalGate
from fairlead.engine.limits.admission import AdmissionRequest
from fairlead.engine.limits.admitter import Admitter
from fairlead.engine.limits.lease_renewer import LeaseRenewer
from fairlead.engine.ports import AdmitRequest, Admitted, Observation
from fairlead.errors import DependencyUnavailableError, LimitExceededError, SlotLostError
from fairlead.policy.limits.breaker import DestinationHealth
from fairlead.policy.limits.limit import MICRO, BreakerRule, BucketLimit, Domain, Plan, PoolLimit
from fairlead.policy.limits.pool import Holder
from fairlead.testing._kit.clock import ManualClock
from tests.support.altered import Altered, alter, altered
from tests.support.engine import IDS, Recorder, half
from tests.support.entrances import settled

DOMAIN = Domain(("tenant", "acme"))


@dataclass
class World:
    clock: ManualClock
    gate: LocalGate
    renewer: LeaseRenewer
    admitter: Admitter
    inside: list[str]

    def entry(self, plan: Plan, **settings: Any) -> AdmissionRequest:
        return AdmissionRequest(plan, "acme", "shopify", **settings)

    async def stay(self, name: str, entry: AdmissionRequest, until: asyncio.Event | None = None) -> None:
        """Go in, say so, and stay until told."""
        async with self.admitter.enter(entry):
            self.inside.append(name)
            if until is not None:
                await until.wait()

    async def is_free(self, plan: Plan) -> bool:
        """Whether somebody could go in now."""
        try:
            await self.stay("tried", self.entry(plan))
        except LimitExceededError:
            return False
        self.inside.remove("tried")
        return True


@pytest.fixture
async def world() -> World:
    clock = ManualClock(start=1_800_000_000.0)
    gate: Any = Altered(LocalGate(lambda: round(clock.monotonic() * MICRO)))
    recorder = Recorder()
    renewer = LeaseRenewer(gate, clock=clock, draw=half, emit=recorder)
    await renewer.listen()
    admitter = Admitter(gate, renewer, process="p1", clock=clock, draw=half, ids=IDS, emit=recorder)
    return World(clock, gate, renewer, admitter, [])


async def test_a_waiter_gets_the_slot_when_it_comes_free(world: World) -> None:
    plan, first_may_go = Plan(DOMAIN, pool=PoolLimit("p", 1)), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(world.stay("first", world.entry(plan), first_may_go))
        await settled()
        group.create_task(world.stay("second", world.entry(plan, wait_s=30)))
        await settled()
        assert world.inside == ["first"]
        first_may_go.set()
        await settled()
        assert world.inside == ["first", "second"]


async def test_call_that_may_not_wait_gets_retry_after(world: World) -> None:
    plan = Plan(DOMAIN, buckets=(BucketLimit("requests", 1, 0.1),))
    await world.stay("first", world.entry(plan))
    with pytest.raises(LimitExceededError, match=r"acme.*shopify.*hint: ") as refused:
        await world.stay("second", world.entry(plan))
    assert refused.value.retry_after_s == 10.0
    assert refused.value.reason == "rate"
    assert not refused.value.sent


async def test_waiters_for_tokens_go_one_by_one_in_their_turns(world: World) -> None:
    plan = Plan(DOMAIN, buckets=(BucketLimit("requests", 1, 1),))
    async with asyncio.TaskGroup() as group:
        for name in "abcd":
            group.create_task(world.stay(name, world.entry(plan, wait_s=30)))
        await settled()
        for number in range(1, 5):
            assert len(world.inside) == number
            await world.clock.advance(1)
            await settled()
    assert world.inside == list("abcd")


async def test_a_turn_is_kept_for_who_comes_back_for_it(world: World) -> None:
    """How a job waits: its turn is booked, its worker goes on with others."""
    plan = Plan(DOMAIN, buckets=(BucketLimit("requests", 1, 0.1),))
    await world.stay("first", world.entry(plan))
    job = world.entry(plan, reserve_ahead_s=900, reservation_id=77)
    with pytest.raises(LimitExceededError) as refused:
        await world.stay("job", job)
    assert refused.value.retry_after_s == 10.0
    with pytest.raises(LimitExceededError) as refused:
        await world.stay("other", world.entry(plan, reserve_ahead_s=900, reservation_id=78))
    assert refused.value.retry_after_s == 20.0
    await world.clock.advance(10)
    await world.stay("job", job)


async def test_a_cancelled_waiter_leaves_nothing_behind(world: World) -> None:
    plan, first_may_go = Plan(DOMAIN, pool=PoolLimit("p", 1)), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(world.stay("first", world.entry(plan), first_may_go))
        await settled()
        waiter = asyncio.create_task(world.stay("second", world.entry(plan, wait_s=30)))
        await settled()
        waiter.cancel()
        await settled(waiter.done)
        first_may_go.set()
    assert world.inside == ["first"]
    assert await world.is_free(plan)


async def test_a_cancelled_turn_is_given_back(world: World) -> None:
    plan = Plan(DOMAIN, buckets=(BucketLimit("requests", 1, 0.1),))
    await world.stay("first", world.entry(plan))
    waiter = asyncio.create_task(world.stay("second", world.entry(plan, wait_s=30)))
    await settled()
    waiter.cancel()
    await settled(waiter.done)
    await world.clock.advance(10)
    assert await world.is_free(plan)


async def test_a_call_that_is_cancelled_gives_its_slot_back(world: World) -> None:
    plan = Plan(DOMAIN, pool=PoolLimit("p", 1))
    call = asyncio.create_task(world.stay("call", world.entry(plan), asyncio.Event()))
    await settled()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await world.is_free(plan)


async def test_a_long_call_keeps_its_slot(world: World) -> None:
    plan, may_go = Plan(DOMAIN, pool=PoolLimit("p", 1, lease_s=30)), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(world.stay("long", world.entry(plan), may_go))
        await settled()
        for _ in range(20):
            await world.clock.advance(10)
            await world.renewer.beat()
            assert not await world.is_free(plan)
        may_go.set()
    assert await world.is_free(plan)


async def test_a_call_whose_slot_is_lost_is_ended(world: World) -> None:
    plan = Plan(DOMAIN, pool=PoolLimit("p", 1, lease_s=30))
    call = asyncio.create_task(world.stay("call", world.entry(plan), asyncio.Event()))
    await settled()
    await world.clock.advance(31)
    assert await world.is_free(plan), "its lease has ended"
    await world.renewer.beat()
    with pytest.raises(SlotLostError, match="hint: "):
        await call
    assert not call.cancelled()


async def test_an_orphan_is_gone_at_lease_1_s_and_its_waiter_is_served(world: World) -> None:
    """Nobody gives its slot back and no hint comes: who waits asks again within a second."""
    plan = Plan(DOMAIN, pool=PoolLimit("p", 1, lease_s=30))
    orphan = AdmitRequest(plan, holder=Holder(1_000, "dead"))
    assert isinstance(await world.gate.admit(orphan), Admitted)
    async with asyncio.TaskGroup() as group:
        group.create_task(world.stay("waiter", world.entry(plan, wait_s=60)))
        await world.clock.advance(29.9)
        assert world.inside == []
        await world.clock.advance(1.1)
        assert world.inside == ["waiter"]


async def test_no_wait_begins_that_cannot_end_in_time(world: World) -> None:
    plan = Plan(DOMAIN, buckets=(BucketLimit("requests", 1, 0.1),))
    await world.stay("first", world.entry(plan))
    with pytest.raises(LimitExceededError):
        await world.stay("second", world.entry(plan, wait_s=9.9))
    assert world.clock.sleepers == 0


async def test_an_open_breaker_refuses_and_a_short_rest_of_it_is_waited_for(world: World) -> None:
    rule = BreakerRule("c|h", failures=1, open_s=10)
    plan = Plan(DOMAIN, breaker=rule)
    async with world.admitter.enter(world.entry(plan)) as admission:
        admission.record_failure()
    with pytest.raises(LimitExceededError, match="breaker"):
        await world.stay("second", world.entry(plan, wait_s=5))
    async with asyncio.TaskGroup() as group:
        group.create_task(world.stay("third", world.entry(plan, wait_s=20)))
        await settled()
        await world.clock.advance(12)
        await settled()
    assert world.inside == ["third"]


async def test_unsent_call_costs_nothing(world: World) -> None:
    plan = Plan(DOMAIN, buckets=(BucketLimit("requests", 1, 0.001),))
    async with world.admitter.enter(world.entry(plan)) as admission:
        admission.not_sent()
    assert await world.is_free(plan)


async def test_observation_of_the_provider_reaches_the_gate(world: World) -> None:
    plan = Plan(DOMAIN, buckets=(BucketLimit("requests", 40, 2),))
    async with world.admitter.enter(world.entry(plan)) as admission:
        admission.record_health(DestinationHealth.HEALTHY, {0: Observation(wait_s=120.0)})
    with pytest.raises(LimitExceededError) as refused:
        await world.stay("next", world.entry(plan))
    assert refused.value.retry_after_s == 120.5


async def test_a_call_larger_than_its_limit_says_so(world: World) -> None:
    plan = Plan(DOMAIN, buckets=(BucketLimit("points", 1000, 50),))
    with pytest.raises(
        LimitExceededError, match=r"costs more .*'points'.*1000.*hint: make the call smaller"
    ) as refused:
        await world.stay("huge", world.entry(plan, costs=(1001.0,), wait_s=60))
    assert refused.value.retry_after_s is None
    assert refused.value.category == "permanent_request"


async def test_call_larger_than_learnt_limit_takes_all_of_it(world: World) -> None:
    """The settings allow it: what answers told makes it wait, and never refuses it for good."""
    plan = Plan(DOMAIN, buckets=(BucketLimit("points", 100, 1), BucketLimit("requests", 10, 1)))
    async with world.admitter.enter(world.entry(plan)) as admission:
        admission.record_health(DestinationHealth.HEALTHY, {0: Observation(remaining=2.0, capacity=2.0)})
    async with world.admitter.enter(world.entry(plan, costs=(5.0, 1.0))) as admission:
        assert admission.admitted.spent == (2.0, 1.0)
    as_learnt = Plan(DOMAIN, buckets=(BucketLimit("points", 2, 1, configured=100.0),))
    with pytest.raises(LimitExceededError, match="the rate lets it through in"):
        await world.stay("later", world.entry(as_learnt, costs=(5.0,)))
    with pytest.raises(LimitExceededError, match=r"than the limit 'points' holds by the settings \(100\)"):
        await world.stay("huge", world.entry(as_learnt, costs=(101.0,)))


# ---- an end that nobody waits for


async def test_a_call_that_has_ended_is_given_back_without_a_turn_of_the_loop(world: World) -> None:
    plan = Plan(DOMAIN, pool=PoolLimit("p", 1), buckets=(BucketLimit("requests", 1, 0.001),))
    inside = await world.admitter.admit(world.entry(plan))
    assert not await world.is_free(plan)
    inside.not_sent()
    assert world.admitter.release_local(inside) is None
    world.admitter.release_soon(inside)
    assert await world.is_free(plan)


async def test_a_lost_slot_ends_the_call_and_takes_the_cancellation_back(world: World) -> None:
    plan = Plan(DOMAIN, pool=PoolLimit("p", 1))
    outcome: list[object] = []

    async def call() -> None:
        inside = await world.admitter.admit(world.entry(plan))
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            outcome.append(world.admitter.release_local(inside, error))
        world.admitter.release_soon(inside)
        task = asyncio.current_task()
        assert task is not None
        outcome.append(task.cancelling())

    running = asyncio.create_task(call())
    await settled()
    await world.clock.advance(31)
    await world.renewer.beat()
    await running
    assert isinstance(outcome[0], SlotLostError)
    assert outcome[1] == 0


async def test_an_end_that_comes_as_the_gate_closes_takes_nothing_from_the_call(world: World) -> None:
    """A caller who was told to try again would have it done twice."""
    closed = DependencyUnavailableError("gate is closed")
    inside = await world.admitter.admit(world.entry(Plan(DOMAIN)))
    world.admitter.release_local(inside)
    alter(world.gate, release_soon=lambda _finish, callback: callback(closed))
    world.admitter.release_soon(inside)

    async def finish(_finish: object) -> None:
        raise closed

    with altered(world.gate, release=finish):
        await world.stay("asked", world.entry(Plan(DOMAIN)))
    alter(world.gate, release_soon=lambda _finish, callback: callback(ValueError("of ours")))
    with pytest.raises(ValueError, match="of ours"):
        world.admitter.release_soon(inside)
