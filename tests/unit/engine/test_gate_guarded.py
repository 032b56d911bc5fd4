"""Without the store: shares, own slots, debts, and the way back (G8, R23, R27)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairlead.engine.limits.degraded_gate import COUNTED_AFTER_S
from fairlead.engine.ports import (
    AdmitRequest,
    Admitted,
    GateRefusal,
    Lease,
    Queued,
    RefusedBy,
    Release,
    Renewal,
)
from fairlead.events import GateDegraded, GateRestored, GateSlow
from fairlead.policy.limits.breaker import DestinationHealth
from fairlead.policy.limits.limit import (
    BreakerRule,
    BucketLimit,
    Degraded,
    Domain,
    Plan,
    PoolLimit,
)
from fairlead.policy.limits.pool import Holder
from fairlead.testing._kit.clock import ManualClock
from tests.support.several import Process, Store, lease_ids, look

DOMAIN = Domain(("tenant", "acme"))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(start=1_800_000_000.0)


@pytest.fixture
def store(clock: ManualClock) -> Store:
    return Store(clock)


@pytest.fixture
def fleet(store: Store) -> list[Process]:
    return [Process(store, rank, 4) for rank in range(4)]


def rate(capacity: float, per_s: float, **settings: Any) -> Plan:
    return Plan(DOMAIN, buckets=(BucketLimit("b", capacity, per_s),), **settings)


def renewal(admitted: Admitted) -> Renewal:
    assert admitted.plan.pool is not None
    assert admitted.holder is not None
    return Renewal(DOMAIN, admitted.plan.pool, admitted.holder, had_slot=True)


async def test_the_first_error_is_enough(fleet: list[Process], store: Store) -> None:
    store.away = True
    answer = await fleet[0].take(rate(40, 2))
    assert isinstance(answer, GateRefusal), "a share begins empty"
    assert fleet[0].gate.is_degraded
    assert [type(event) for event in fleet[0].events] == [GateDegraded]
    assert not fleet[1].gate.is_degraded


async def test_silence_is_noticed_in_less_than_a_second(fleet: list[Process], clock: ManualClock) -> None:
    """Redis latency rising from 5 ms to 3 s: degraded, and back by itself."""
    process = fleet[0]
    process.way.answers_in_s = 3.0
    looking = asyncio.create_task(process.gate.ping_redis())
    await clock.advance(0.81)
    await looking
    assert process.gate.is_degraded
    assert process.way.abandoned == 1
    process.way.answers_in_s = 0.005
    for _ in range(2):
        looking = asyncio.create_task(process.gate.ping_redis())
        await clock.advance(0.01)
        await looking
    assert not process.gate.is_degraded
    assert isinstance(process.events[-1], GateRestored)


async def test_by_hand_it_keeps_to_its_share_until_it_may_return(
    fleet: list[Process], clock: ManualClock
) -> None:
    """With a store that answers all the time: it is told what was spent when that ends."""
    process, plan = fleet[0], rate(40, 4)
    await fleet[1].take_all(plan)
    await process.gate.force_degraded("redis is moved")
    await look(fleet, 3)
    assert process.gate.is_degraded
    assert process.way.abandoned == 1, "who waits for the store is served from the share"
    (event,) = process.events
    assert isinstance(event, GateDegraded)
    assert "redis is moved" in event.reason
    await clock.advance(10)
    assert len(await process.take_all(plan)) == 10, "a quarter of the rate, from 0"
    await process.gate.force_degraded("redis is moved")
    await process.gate.force_degraded(None)
    assert process.way.abandoned == 1
    await look([process])
    assert not process.gate.is_degraded
    assert isinstance(process.events[-1], GateRestored)
    assert len(await fleet[1].take_all(plan)) == 30, "what it spent alone is owed"


async def test_by_hand_while_the_store_is_away(fleet: list[Process], store: Store) -> None:
    process = fleet[0]
    store.away = True
    await look([process])
    await process.gate.force_degraded("to be sure")
    store.away = False
    await look([process], 3)
    assert process.gate.is_degraded
    await process.gate.force_degraded(None)
    await look([process])
    assert not process.gate.is_degraded


async def test_half_a_second_is_told(fleet: list[Process], clock: ManualClock) -> None:
    process = fleet[0]
    process.way.answers_in_s = 0.6
    for _ in range(3):
        looking = asyncio.create_task(process.gate.ping_redis())
        await clock.advance(0.7)
        await looking
    assert [type(event) for event in process.events] == [GateSlow]
    assert not process.gate.is_degraded


async def test_all_alone_keep_to_the_rate_together(
    fleet: list[Process], store: Store, clock: ManualClock
) -> None:
    plan = rate(40, 2)
    store.away = True
    await look(fleet)
    units = 0
    for _ in range(60):
        await clock.advance(1)
        for process in fleet:
            units += len(await process.take_all(plan))
    assert 110 <= units <= 120


async def test_on_return_there_is_no_burst(fleet: list[Process], store: Store, clock: ManualClock) -> None:
    plan = rate(40, 2)
    for process in fleet:
        await process.take_all(plan)
    store.away = True
    await look(fleet)
    for _ in range(30):  # the store's bucket would fill up meanwhile
        await clock.advance(1)
        for process in fleet:
            await process.take_all(plan)
    store.away = False
    await look(fleet, 2)
    assert not any(process.gate.is_degraded for process in fleet)
    first_second = sum([len(await process.take_all(plan)) for process in fleet])
    assert first_second <= 2


async def test_a_short_absence_of_one_is_accounted_for(fleet: list[Process], clock: ManualClock) -> None:
    plan = rate(40, 4)
    first, *others = fleet
    await others[0].take_all(plan)
    first.way.cut = True
    await first.gate.ping_redis()
    units = 0
    for _ in range(10):
        await clock.advance(1)
        for process in fleet:
            units += len(await process.take_all(plan))
    first.way.cut = False
    await look([first], 2)
    units += sum([len(await process.take_all(plan)) for process in fleet])
    assert units <= 4 * 10 * (1 + 1 / 4)
    remaining = await others[0].take(plan)
    assert isinstance(remaining, GateRefusal)
    assert remaining.retry_after_s is not None
    assert remaining.retry_after_s > 1, "what it spent alone is owed"


async def test_slots_are_never_over_the_limit(fleet: list[Process], store: Store, clock: ManualClock) -> None:
    plan = Plan(DOMAIN, pool=PoolLimit("p", 5, lease_s=30))
    holders = await fleet[0].take_all(plan)
    assert len(holders) == 5
    store.away = True
    await look(fleet)
    assert [len(await process.take_all(plan)) for process in fleet] == [0, 0, 0, 0]
    await fleet[0].gate.release(Release(holders.pop()))
    again = await fleet[0].take_all(plan)
    assert len(again) == 1, "what was its own it may use again"
    requests = [*holders, *again]
    for still_held in (5, 2, 2):  # its share of 5 among 4, before the store would give them to others
        await clock.advance(10.5)
        states = await fleet[0].gate.renew([renewal(request) for request in requests])
        requests = [request for request, state in zip(requests, states, strict=True) if state is Lease.ACTIVE]
        assert len(requests) == still_held
    assert [len(await process.take_all(plan)) for process in fleet[1:]] == [1, 1, 1]


async def shares_held(
    fleet: list[Process], store: Store, clock: ManualClock, capacity: int
) -> tuple[Plan, list[list[Admitted]]]:
    """Away for longer than a lease, each process took its share of the slots; the store is there again."""
    plan = Plan(DOMAIN, pool=PoolLimit("p", capacity, lease_s=30))
    store.away = True
    await look(fleet)
    await clock.advance(31)
    requests_by_process = [await process.take_all(plan) for process in fleet]
    assert [len(requests) for requests in requests_by_process] == [capacity // len(fleet)] * len(fleet)
    store.away = False
    return plan, requests_by_process


async def test_the_store_learns_who_holds_what(
    fleet: list[Process], store: Store, clock: ManualClock
) -> None:
    plan, requests_by_process = await shares_held(fleet, store, clock, 4)
    await look(fleet, 2)
    await clock.advance(1)
    assert isinstance(await fleet[0].take(plan), GateRefusal)
    await fleet[0].gate.release(Release(requests_by_process[0][0]))
    assert isinstance(await fleet[1].take(plan), Admitted)
    assert isinstance(await fleet[2].take(plan), GateRefusal)


async def test_a_slot_that_came_free_meanwhile_is_free_on_return(
    fleet: list[Process], store: Store, clock: ManualClock
) -> None:
    """A hiccup of a second must not leave every slot taken for a lease."""
    plan = Plan(DOMAIN, pool=PoolLimit("p", 4, lease_s=30))
    requests = await fleet[0].take_all(plan)
    store.away = True
    await look(fleet)
    for admitted in requests[:3]:
        await fleet[0].gate.release(Release(admitted))
    store.away = False
    await look(fleet, 2)
    assert len(await fleet[1].take_all(plan)) == 3


async def test_first_process_back_leaves_the_others_their_slots(
    fleet: list[Process], store: Store, clock: ManualClock
) -> None:
    """The store knows nothing of their slots until they are back, too."""
    plan, requests_by_process = await shares_held(fleet, store, clock, 8)
    await look(fleet[:1], 2)
    assert await fleet[0].take(plan) == GateRefusal(RefusedBy.RECOVERY, 1.0)
    await fleet[0].gate.release(Release(requests_by_process[0].pop()))
    assert len(await fleet[0].take_all(plan)) == 1
    await look(fleet[1:], 2)
    await clock.advance(1)
    await fleet[1].gate.release(Release(requests_by_process[1].pop()))
    assert len(await fleet[0].take_all(plan)) == 1, "now the limits are the fleet's again"


async def test_waiter_is_woken_when_local_counting_starts(fleet: list[Process], store: Store) -> None:
    process, woken = fleet[0], list[int]()
    await process.gate.listen(woken.append)
    plan = Plan(DOMAIN, pool=PoolLimit("p", 1))
    await process.take(plan)
    asks = [AdmitRequest(plan, holder=Holder(next(lease_ids), "p"), wait_s=3.0) for _ in range(3)]
    ids = [ask.holder.lease_id for ask in asks if ask.holder]
    for ask in asks:
        assert isinstance(await process.gate.admit(ask), Queued)
    await process.gate.cancel(asks[0])
    store.away = True
    await look([process])
    assert sorted(woken) == ids[1:]
    for ask in asks[1:]:
        assert isinstance(await process.gate.admit(ask), Queued)
    store.away = False
    await look([process], 2)
    assert sorted(woken) == sorted(ids[1:] * 2)


async def test_a_size_of_shares_never_reaches_the_store(
    fleet: list[Process], store: Store, clock: ManualClock
) -> None:
    plan = Plan(DOMAIN, pool=PoolLimit("p", 8, lease_s=30), buckets=(BucketLimit("b", 80, 8),))
    store.away = True
    await look(fleet)
    await clock.advance(31)
    (admitted, *_) = await fleet[0].take_all(plan)
    store.away = False
    await look(fleet, 2)
    await fleet[0].gate.release(Release(admitted))
    await clock.advance(30)
    assert len(await fleet[1].take_all(plan)) == 8


async def test_where_there_is_no_store_a_process_has_its_slots_at_once(
    store: Store, clock: ManualClock
) -> None:
    """With one set up and away, another process may hold them: that takes a lease to end."""
    store.away = True
    plan = Plan(DOMAIN, pool=PoolLimit("p", 4, lease_s=30))
    only, one_of_two = Process(store, 0, 1, storeless=True), Process(store, 1, 2, storeless=True)
    assert len(await only.take_all(plan)) == 4
    assert await one_of_two.take_all(plan) == [], "the other one may not have heard of it yet"
    assert await Process(store, 0, 1).take_all(plan) == []
    await clock.advance(COUNTED_AFTER_S)
    assert len(await one_of_two.take_all(plan)) == 2


async def test_closed_sends_nothing_and_open_everything(fleet: list[Process], store: Store) -> None:
    store.away = True
    await look(fleet)
    closed = await fleet[0].take(rate(1, 1, degraded=Degraded.CLOSED))
    assert closed == GateRefusal(RefusedBy.OUTAGE, 5.0)
    plan = rate(1, 1, degraded=Degraded.OPEN)
    for _ in range(10):
        admitted = await fleet[0].take(plan)
        assert isinstance(admitted, Admitted)
        await fleet[0].gate.release(Release(admitted, DestinationHealth.HEALTHY))


async def test_a_call_too_large_for_a_share_waits_for_the_store(fleet: list[Process], store: Store) -> None:
    store.away = True
    await look(fleet)
    answer = await fleet[0].take(rate(40, 2), 30.0)
    assert answer == GateRefusal(RefusedBy.OUTAGE, 5.0)


async def test_breakers_work_alone_too(fleet: list[Process], store: Store) -> None:
    plan = Plan(DOMAIN, breaker=BreakerRule("c|h", failures=3))
    store.away = True
    await look(fleet)
    for _ in range(3):
        admitted = await fleet[0].take(plan)
        assert isinstance(admitted, Admitted)
        finished = await fleet[0].gate.release(Release(admitted, DestinationHealth.UNHEALTHY))
    assert finished.opened_s == 60.0
    answer = await fleet[0].take(plan)
    assert isinstance(answer, GateRefusal)
    assert answer.by is RefusedBy.BREAKER
