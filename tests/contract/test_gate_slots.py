"""Slots of every gate: never over, never left over, in order (G4; how others hang: gate.md §3.1)."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

from fairlead.engine.ports import (
    AdmitRequest,
    AdmitResult,
    Admitted,
    GateRefusal,
    Lease,
    Observation,
    Queued,
    RefusedBy,
    Release,
    Renewal,
)
from fairlead.policy.limits.limit import BucketLimit, Domain, Plan, PoolLimit, QuotaLimit
from fairlead.policy.limits.pool import Holder
from tests.contract.gates import Timed

DOMAIN = Domain(("tenant", "a"))
_ids = count(1)


def pool(capacity: int, **settings: Any) -> PoolLimit:
    return PoolLimit("p", capacity, **settings)


def ask(limit: PoolLimit, *, number: int = 1, **settings: Any) -> AdmitRequest:
    """One more asker."""
    holder = Holder(next(_ids), "process", "a", "job", number)
    return AdmitRequest(Plan(DOMAIN, pool=limit), holder=holder, **settings)


async def free(timed: Timed, limit: PoolLimit) -> int:
    """How many slots can be had now; they are given back."""
    granted = []
    while isinstance(answer := await timed.admit(ask(limit)), Admitted):
        granted.append(answer)
    for admitted in granted:
        assert (await timed.gate.release(Release(admitted))).was_held
    return len(granted)


def renewal_of(limit: PoolLimit, request: AdmitRequest, wait_s: float = 0.0, *, had: bool = True) -> Renewal:
    assert request.holder is not None
    return Renewal(DOMAIN, limit, request.holder, wait_s, had)


async def test_limit_2_with_10_askers_2(timed: Timed) -> None:
    limit = pool(2)
    answers = [await timed.admit(ask(limit)) for _ in range(10)]
    assert [type(answer) for answer in answers].count(Admitted) == 2
    assert all(
        answer == GateRefusal(RefusedBy.SLOT, 30.0) for answer in answers if not isinstance(answer, Admitted)
    )


async def test_a_slot_that_is_given_back_can_be_had_again_and_only_once(timed: Timed) -> None:
    """A counter is put up by every release, also by the second one and by a stranger's."""
    limit = pool(1)
    first = await timed.admitted(ask(limit))
    assert (await timed.gate.release(Release(first))).was_held
    assert not (await timed.gate.release(Release(first))).was_held
    stranger = first._replace(holder=Holder(next(_ids), "other"))
    assert not (await timed.gate.release(Release(stranger))).was_held
    assert await free(timed, limit) == 1


async def test_asked_again_after_a_lost_reply_it_is_one_lease(timed: Timed) -> None:
    limit = pool(2)
    request = ask(limit)
    first, second = await timed.admitted(request), await timed.admitted(request)
    assert second.fence > first.fence
    assert await free(timed, limit) == 1


async def test_an_orphan_is_gone_at_the_end_of_its_lease_and_its_waiter_is_served(timed: Timed) -> None:
    """An orphan is gone at lease + 1 s, and its waiter is served: here at its end, to who asks then."""
    limit = pool(1, lease_s=30)
    await timed.admitted(ask(limit))
    waiter = ask(limit, wait_s=60)
    assert isinstance(await timed.admit(waiter), Queued)
    timed.tick(29.9)
    assert await timed.gate.renew([renewal_of(limit, waiter, 60, had=False)]) == [Lease.WAITING]
    timed.tick(0.1)
    assert await timed.gate.renew([renewal_of(limit, waiter, 60, had=False)]) == [Lease.ACTIVE]
    await timed.admitted(waiter)


async def test_a_busy_pool_loses_the_leases_of_the_dead_too(timed: Timed) -> None:
    """One time to live for all tokens is renewed by the living, so the dead keep theirs for ever."""
    limit = pool(2, lease_s=30)
    await timed.admitted(ask(limit))  # dies
    for _ in range(10):
        living = await timed.admitted(ask(limit))
        timed.tick(5)
        await timed.gate.release(Release(living))
    assert await free(timed, limit) == 2


async def test_an_idle_pool_does_not_forget_who_works(timed: Timed) -> None:
    """A set that expires while somebody works is made anew at full size."""
    limit = pool(1, lease_s=30)
    working = ask(limit)
    await timed.admitted(working)
    for _ in range(400):
        timed.tick(10)
        assert await timed.gate.renew([renewal_of(limit, working)]) == [Lease.ACTIVE]
    assert await free(timed, limit) == 0


async def test_a_lease_that_ended_is_lost_and_is_not_had_back(timed: Timed) -> None:
    limit = pool(1, lease_s=30)
    frozen = ask(limit)
    admitted = await timed.admitted(frozen)
    timed.tick(30)
    await timed.admitted(ask(limit))
    assert await timed.gate.renew([renewal_of(limit, frozen)]) == [Lease.LOST]
    assert not (await timed.gate.release(Release(admitted))).was_held
    assert await free(timed, limit) == 0


async def test_first_come_first_served(timed: Timed) -> None:
    limit = pool(1)
    working = await timed.admitted(ask(limit))
    line = [ask(limit, wait_s=60) for _ in range(5)]
    for waiter in line:
        timed.tick(0.001)
        assert isinstance(await timed.admit(waiter), Queued)
    assert isinstance(await timed.admit(ask(limit)), GateRefusal)
    for waiter in line:
        await timed.gate.release(Release(working))
        assert isinstance(await timed.admit(ask(limit)), GateRefusal), "no one passes those who wait"
        working = await timed.admitted(waiter)


async def test_free_slot_wakes_one_waiter(timed: Timed) -> None:
    limit = pool(1)
    working = await timed.admitted(ask(limit))
    line = [ask(limit, wait_s=60) for _ in range(3)]
    for waiter in line:
        timed.tick(0.001)
        await timed.admit(waiter)
    await timed.gate.release(Release(working))
    states = await timed.gate.renew([renewal_of(limit, waiter, 60, had=False) for waiter in line])
    assert states == [Lease.ACTIVE, Lease.WAITING, Lease.WAITING]


async def test_a_grant_that_nobody_claims_goes_to_the_next(timed: Timed) -> None:
    limit = pool(1, claim_s=5)
    working = await timed.admitted(ask(limit))
    dead, living = ask(limit, wait_s=60), ask(limit, wait_s=60)
    await timed.admit(dead)
    timed.tick(0.001)
    await timed.admit(living)
    await timed.gate.release(Release(working))
    timed.tick(5)
    assert await timed.gate.renew([renewal_of(limit, living, 60, had=False)]) == [Lease.ACTIVE]


async def test_a_waiter_that_is_not_heard_of_is_passed_over(timed: Timed) -> None:
    limit = pool(1, lease_s=100)
    working = await timed.admitted(ask(limit))
    dead, living = ask(limit, wait_s=10), ask(limit, wait_s=60)
    await timed.admit(dead)
    timed.tick(0.001)
    await timed.admit(living)
    timed.tick(10)
    await timed.gate.release(Release(working))
    await timed.admitted(living)
    assert await timed.gate.renew([renewal_of(limit, dead, 10, had=False)]) == [Lease.LOST]


async def test_a_cancelled_waiter_leaves_and_a_cancelled_grant_goes_on(timed: Timed) -> None:
    limit = pool(1)
    working = await timed.admitted(ask(limit))
    first, second, third = line = [ask(limit, wait_s=60) for _ in range(3)]
    for waiter in line:
        timed.tick(0.001)
        await timed.admit(waiter)
    await timed.gate.cancel(first)
    await timed.gate.release(Release(working))
    await timed.gate.cancel(second)  # it had been granted the slot
    await timed.gate.cancel(second)
    await timed.admitted(third)


async def test_classes_are_served_in_order_and_fifo_within(timed: Timed) -> None:
    limit = pool(1, classes=3)
    working = await timed.admitted(ask(limit))
    line = [ask(limit, number=number, wait_s=60) for number in (3, 2, 1, 2, 1)]
    for waiter in line:
        timed.tick(0.001)
        await timed.admit(waiter)
    order = []
    for _ in line:
        await timed.gate.release(Release(working))
        states = await timed.gate.renew([renewal_of(limit, waiter, 60, had=False) for waiter in line])
        served = states.index(Lease.ACTIVE)
        order.append(served)
        working = await timed.admitted(line[served])
    assert order == [2, 4, 1, 3, 0]


async def test_a_6_minute_waiter_is_promoted(timed: Timed) -> None:
    limit = pool(1, classes=3, lease_s=1000, max_wait_s=300)
    working = await timed.admitted(ask(limit))
    old = ask(limit, number=3, wait_s=600)
    await timed.admit(old)
    timed.tick(360)
    new = ask(limit, number=1, wait_s=600)
    await timed.admit(new)
    await timed.gate.release(Release(working))
    await timed.admitted(old)


async def test_work_that_waited_elsewhere_keeps_its_place(timed: Timed) -> None:
    """A snoozed job brings along since when it waits (R26)."""
    limit = pool(1, classes=3, max_wait_s=300)
    working = await timed.admitted(ask(limit))
    await timed.admit(ask(limit, number=1, wait_s=60))
    snoozed = ask(limit, number=3, wait_s=60, waited_s=301.0)
    await timed.admit(snoozed)
    await timed.gate.release(Release(working))
    await timed.admitted(snoozed)


async def test_waiter_that_moved_forward_keeps_its_place(timed: Timed) -> None:
    """Who waits asks again each second, and tells then what it knows itself of its waiting."""
    limit = pool(1)
    holder = await timed.admitted(ask(limit))
    first, other = ask(limit, wait_s=60), ask(limit, wait_s=60)
    assert isinstance(await timed.admit(first), Queued)
    timed.tick(1)
    for since_s in (400.0, 0.0):
        assert isinstance(await timed.admit(other._replace(waited_s=since_s)), Queued)
    await timed.gate.release(Release(holder))
    assert isinstance(await timed.admit(first), Queued)
    await timed.admitted(other)


async def test_slots_kept_for_a_class_are_kept(timed: Timed) -> None:
    limit = pool(3, classes=2, minimum={1: 1})
    answers = [await timed.admit(ask(limit, number=2)) for _ in range(3)]
    assert [type(answer) for answer in answers] == [Admitted, Admitted, GateRefusal]
    await timed.admitted(ask(limit, number=1))


async def test_too_many_do_not_wait(timed: Timed) -> None:
    limit = pool(1, max_waiters=2)
    await timed.admitted(ask(limit))
    answers: list[AdmitResult] = [await timed.admit(ask(limit, wait_s=60)) for _ in range(3)]
    assert [type(answer) for answer in answers] == [Queued, Queued, GateRefusal]


# ---- quota and size ---------------------------------------------------------------------------------


def of_tenant(limit: PoolLimit, quota: QuotaLimit, **settings: Any) -> AdmitRequest:
    holder = Holder(next(_ids), "process", quota.key, "job", 1, quota)
    return AdmitRequest(Plan(DOMAIN, pool=limit, quota=quota), holder=holder, **settings)


async def test_quota_2_the_third_refused_released_granted(timed: Timed) -> None:
    limit, quota = pool(10), QuotaLimit("a", 2)
    first, _ = [await timed.admitted(of_tenant(limit, quota)) for _ in range(2)]
    assert await timed.admit(of_tenant(limit, quota)) == GateRefusal(RefusedBy.QUOTA, 30.0)
    await timed.gate.release(Release(first))
    await timed.admitted(of_tenant(limit, quota))


async def test_a_quota_counts_across_pools(timed: Timed) -> None:
    quota = QuotaLimit("a", 2)
    for key in ("p", "q"):
        await timed.admitted(of_tenant(PoolLimit(key, 10), quota))
    assert await timed.admit(of_tenant(PoolLimit("r", 10), quota)) == GateRefusal(RefusedBy.QUOTA, 30.0)


async def test_a_tenant_at_its_quota_does_not_hold_up_the_others(timed: Timed) -> None:
    limit, small, other = pool(2), QuotaLimit("small", 1), QuotaLimit("other", 5)
    working = await timed.admitted(of_tenant(limit, small))
    busy = await timed.admitted(of_tenant(limit, other))
    blocked, behind = of_tenant(limit, small, wait_s=60), of_tenant(limit, other, wait_s=60)
    await timed.admit(blocked)
    timed.tick(0.001)
    await timed.admit(behind)
    await timed.gate.release(Release(busy))
    await timed.admitted(behind)
    await timed.gate.release(Release(working))
    await timed.admitted(blocked)


async def test_a_smaller_pool_ends_nobodys_slot_and_a_larger_one_serves_several(timed: Timed) -> None:
    four, two = pool(4), pool(2, version=2)
    working = [await timed.admitted(ask(four)) for _ in range(4)]
    assert isinstance(await timed.admit(ask(two)), GateRefusal)
    for admitted in working[:2]:
        assert (await timed.gate.release(Release(admitted))).was_held
        assert isinstance(await timed.admit(ask(four)), GateRefusal), "an old size does not come back"
    await timed.gate.release(Release(working[2]))
    waiting = [ask(two, wait_s=60) for _ in range(4)]
    for request in waiting:
        timed.tick(0.001)
        await timed.admit(request)
    larger = pool(5, version=3)
    await timed.gate.renew([renewal_of(larger, waiting[3], 60, had=False)])
    states = await timed.gate.renew([renewal_of(larger, waiter, 60, had=False) for waiter in waiting])
    assert states == [Lease.ACTIVE] * 4


async def test_nothing_is_taken_where_a_bucket_refuses(timed: Timed) -> None:
    limit, bucket = pool(1), BucketLimit("b", 1, 0.1)
    plan = Plan(DOMAIN, pool=limit, buckets=(bucket,))
    call = await timed.admitted(AdmitRequest(plan, holder=Holder(next(_ids), "process")))
    await timed.gate.release(Release(call))
    answer = await timed.admit(AdmitRequest(plan, holder=Holder(next(_ids), "process"), wait_s=60))
    assert answer == GateRefusal(RefusedBy.BUCKET, 10.0, 0)
    assert await free(timed, limit) == 1


async def test_nothing_is_spent_where_the_slot_is_taken(timed: Timed) -> None:
    limit, bucket = pool(1), BucketLimit("b", 2, 0.001)
    plan = Plan(DOMAIN, pool=limit, buckets=(bucket,))
    await timed.admitted(AdmitRequest(plan, holder=Holder(next(_ids), "process")))
    for _ in range(5):
        assert isinstance(
            await timed.admit(AdmitRequest(plan, holder=Holder(next(_ids), "process"))), GateRefusal
        )
    await timed.admitted(AdmitRequest(Plan(DOMAIN, buckets=(bucket,))))


async def test_no_slot_is_held_while_waiting_for_tokens(timed: Timed) -> None:
    """A granted slot goes on to the next when the buckets have nothing for its holder."""
    limit, bucket = pool(1), BucketLimit("b", 1, 0.001)
    plan = Plan(DOMAIN, pool=limit, buckets=(bucket,))
    working = await timed.admitted(
        AdmitRequest(Plan(DOMAIN, pool=limit), holder=Holder(next(_ids), "process"))
    )
    poor, rich = AdmitRequest(plan, holder=Holder(next(_ids), "process"), wait_s=60), ask(limit, wait_s=60)
    assert isinstance(await timed.admit(poor), Queued)
    timed.tick(0.001)
    await timed.admit(rich)
    await timed.admitted(AdmitRequest(Plan(DOMAIN, buckets=(bucket,))))
    await timed.gate.release(Release(working))
    assert isinstance(await timed.admit(poor), GateRefusal)
    await timed.admitted(rich)


async def test_observation_counts_after_its_lease_was_lost(timed: Timed) -> None:
    limit, bucket = pool(1), BucketLimit("b", 100, 0.001)
    plan = Plan(DOMAIN, pool=limit, buckets=(bucket,))
    late = await timed.admitted(AdmitRequest(plan, holder=Holder(next(_ids), "process")))
    timed.tick(31)
    done = await timed.gate.release(Release(late, observed={0: Observation(remaining=3.0)}))
    assert not done.was_held
    assert isinstance(await timed.admit(AdmitRequest(Plan(DOMAIN, buckets=(bucket,)), (4.0,))), GateRefusal)


async def test_adopted_holder_no_longer_waits_in_line(timed: Timed) -> None:
    """He waited when the store went away, and took a slot without it: his lease must not become a claim."""
    limit = pool(2, lease_s=30, claim_s=5)
    others = [await timed.admitted(ask(limit)) for _ in range(2)]
    waiter = ask(limit, wait_s=60)
    assert isinstance(await timed.admit(waiter), Queued)
    adopted = replace(renewal_of(limit, waiter), adopt=True)
    assert await timed.gate.renew([adopted]) == [Lease.ACTIVE]
    for other in others:
        await timed.gate.release(Release(other))
    timed.tick(6)
    assert await timed.gate.renew([renewal_of(limit, waiter)]) == [Lease.ACTIVE]


async def test_whose_call_is_over_stands_in_line_no_more(timed: Timed) -> None:
    limit = pool(1)
    working = await timed.admitted(ask(limit))
    waiter = ask(limit, wait_s=60)
    assert isinstance(await timed.admit(waiter), Queued)
    await timed.gate.release(Release(working._replace(holder=waiter.holder)))
    assert await timed.gate.renew([renewal_of(limit, waiter, 60, had=False)]) == [Lease.LOST]
