"""What a process tells a store that is back, and what it leaves behind there (R23, R27)."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from fairlead.engine.limits.degraded_gate import DegradedGate
from fairlead.engine.ports import (
    AdmitRequest,
    Admitted,
    GateRefusal,
    Lease,
    Queued,
    Release,
    Renewal,
    Reserved,
)
from fairlead.errors import LimiterUnavailableError
from fairlead.policy.limits.limit import Domain, Plan
from fairlead.policy.limits.share import Share
from fairlead.testing._kit.clock import ManualClock
from tests.support.several import DOMAIN, Process, Store, away, back, kept, look, rate, slots, waiter


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(start=1_800_000_000.0)


@pytest.fixture
def store(clock: ManualClock) -> Store:
    return Store(clock)


@pytest.fixture
def fleet(store: Store) -> list[Process]:
    return [Process(store, rank, 4) for rank in range(4)]


async def test_waiter_served_during_an_outage_blocks_no_other(
    fleet: list[Process], clock: ManualClock
) -> None:
    """A slot that comes free is for who waits, not for five seconds for who has long been served."""
    ours, other = fleet[:2]
    requests = [await process.take(slots(2)) for process in (other, ours)]
    served, gave_up, told_late = (waiter(slots(2)) for _ in range(3))
    for waits in (served, gave_up, told_late):
        assert isinstance(await ours.gate.admit(waits), Queued)
    ours.way.cut = True
    await ours.gate.cancel(told_late)  # this one finds out that the store is away
    assert ours.gate.is_degraded
    await ours.gate.cancel(gave_up)
    assert isinstance(requests[1], Admitted)
    await ours.gate.release(Release(requests[1]))
    answer = await ours.gate.admit(served)
    assert isinstance(answer, Admitted)
    await ours.gate.release(Release(answer))
    await back(ours)
    first, second = waiter(slots(2)), waiter(slots(2))
    assert isinstance(await other.gate.admit(first), Admitted)
    assert isinstance(await other.gate.admit(second), Queued)
    assert isinstance(requests[0], Admitted)
    await other.gate.release(Release(requests[0]))
    assert isinstance(await other.gate.admit(second), Admitted)


async def test_grant_whose_response_was_lost_is_released(fleet: list[Process]) -> None:
    request = waiter(slots())
    fleet[0].way.deaf = True
    assert not isinstance(await fleet[0].gate.admit(request), Admitted)
    assert fleet[0].gate.is_degraded
    assert isinstance(await fleet[1].take(slots()), GateRefusal), "it is held, of nobody"
    await back(fleet[0])
    assert isinstance(await fleet[1].take(slots()), Admitted)


async def test_whose_slot_ended_unheard_and_who_runs_by_the_share_has_it_again(
    fleet: list[Process], clock: ManualClock
) -> None:
    request = waiter(slots(4))
    fleet[0].way.deaf = True
    assert not isinstance(await fleet[0].gate.admit(request), Admitted)
    await clock.advance(31)
    assert isinstance(await fleet[0].gate.admit(request), Admitted)
    await back(fleet[0])
    assert await fleet[0].gate.renew([kept(request)]) == [Lease.ACTIVE]


async def test_an_answer_that_was_there_as_the_store_went_away_counts(
    fleet: list[Process], clock: ManualClock
) -> None:
    """Its call runs under a slot that the store granted: the store is told of it, and does not give it up."""
    process, request = fleet[0], waiter(slots())
    process.way.late = asyncio.Event()
    admission = asyncio.create_task(process.gate.admit(request))
    await asyncio.sleep(0)
    await away(process)
    assert process.way.abandoned == 1
    process.way.late.set()
    assert isinstance(await admission, Admitted)
    assert await process.gate.renew([kept(request)]) == [Lease.ACTIVE], "it is our own, as those before it"
    await back(process)
    assert isinstance(await fleet[1].take(slots()), GateRefusal)
    assert await process.gate.renew([kept(request)]) == [Lease.ACTIVE]


async def test_a_place_that_was_given_as_the_store_went_away_is_left(
    fleet: list[Process], clock: ManualClock
) -> None:
    other = await fleet[1].take(slots())
    process, request = fleet[0], waiter(slots())
    process.way.late = asyncio.Event()
    admission = asyncio.create_task(process.gate.admit(request))
    await asyncio.sleep(0)
    await away(process)
    process.way.late.set()
    await admission
    await process.gate.cancel(request)
    await back(process)
    late = waiter(slots())
    assert isinstance(await fleet[1].gate.admit(late), Queued)
    assert isinstance(other, Admitted)
    await fleet[1].gate.release(Release(other))
    assert isinstance(await fleet[1].gate.admit(late), Admitted)


@pytest.mark.parametrize("error", ["an ask", "an end"])
async def test_first_failure_ends_every_wait_for_the_store(fleet: list[Process], error: str) -> None:
    process = fleet[0]
    request = await process.take(slots(4))
    process.way.cut = True
    if error == "an ask":
        await process.take(slots(4))
    else:
        assert isinstance(request, Admitted)
        await process.gate.release(Release(request))
    assert process.gate.is_degraded
    assert process.way.abandoned == 1


async def test_held_slots_are_reported_before_any_release(fleet: list[Process]) -> None:
    """What is given back goes to who waits: beside a call that nobody knows of yet that is one too many."""
    process = fleet[0]
    requests = [await process.take(slots(2)) for _ in range(2)]
    assert isinstance(await process.gate.admit(waiter(slots(2))), Queued)
    await away(process)
    assert isinstance(requests[0], Admitted)
    await process.gate.release(Release(requests[0]))
    process.way.done.clear()
    await back(process)
    assert process.way.done[0] == "renew"
    assert sorted(process.way.done[1:]) == ["cancel", "release"]


async def test_release_that_fails_delays_no_return(fleet: list[Process]) -> None:
    """A domain whose keys are damaged: its lease ends by itself. What has ended is told once."""
    process, request = fleet[0], waiter(slots(2))
    await fleet[1].take(slots(2))
    held = await process.take(slots(2))
    await process.gate.admit(request)
    await away(process)
    assert isinstance(held, Admitted)
    await process.gate.release(Release(held))
    assert request.holder is not None
    process.way.spoilt.add(request.holder.lease_id)
    await back(process)
    assert process.way.done.count("release") == 1


async def test_a_slot_that_the_store_cannot_take_keeps_nobody_away(fleet: list[Process]) -> None:
    """The others are told of one by one, and this one's lease ends."""
    process, plan = fleet[0], slots(4)
    requests = await process.take_all(plan)
    await away(process)
    assert requests[1].holder is not None
    process.way.spoilt.add(requests[1].holder.lease_id)
    await back(process)
    process.way.spoilt.clear()
    renewals = [
        Renewal(DOMAIN, plan.pool, request.holder) for request in requests if plan.pool and request.holder
    ]
    assert await process.gate.renew(renewals) == [Lease.ACTIVE] * 4
    for admitted in requests:
        await process.gate.release(Release(admitted))
    assert len(await fleet[1].take_all(plan)) == 4


@pytest.mark.parametrize(("bad_first", "remaining"), [(True, 80 - 20), (False, 80 - 2 * 20)])
async def test_a_debt_is_told_again_once_beside_one_that_cannot_be_told(
    fleet: list[Process], clock: ManualClock, bad_first: bool, remaining: int
) -> None:
    """Else whoever shares a batch with a damaged domain pays again at each try. It may have been done."""
    process, other, plan = *fleet[:2], rate(80, 8)
    bad = Plan(Domain(("tenant", "damaged")), buckets=plan.buckets)
    await other.take_all(plan)
    process.way.cut = True
    await look([process])
    await clock.advance(10)
    for each_plan in (bad, plan) if bad_first else (plan, bad):
        assert len(await process.take_all(each_plan)) == 20
    process.way.bad_domains.add(bad.domain)
    await back(process)
    await away(process)
    await back(process)
    assert len(await other.take_all(plan)) == remaining


async def test_a_slot_that_was_told_of_in_vain_is_given_back(
    fleet: list[Process], clock: ManualClock
) -> None:
    """The way back broke off behind it, and its call ended before the next try."""
    process, lost = fleet[0], waiter(slots(4))
    process.way.deaf = True
    await process.gate.admit(lost)
    await process.gate.cancel(lost)
    await clock.advance(31)
    answer = await process.take(slots(4))
    assert isinstance(answer, Admitted)
    assert lost.holder is not None
    process.way.breaks_at = lost.holder.lease_id
    process.way.deaf = False
    await look([process], 2)
    assert process.gate.is_degraded
    await process.gate.release(Release(answer))
    await back(process)
    assert len(await fleet[1].take_all(slots(4))) == 4


async def test_a_debt_that_was_heard_of_is_not_told_again(fleet: list[Process], clock: ManualClock) -> None:
    """What was spent between two tries is."""
    process, other, plan, lost = *fleet[:2], rate(80, 8), waiter(slots())
    await other.take_all(plan)
    process.way.deaf = True
    await process.gate.admit(lost)
    await clock.advance(10)
    assert len(await process.take_all(plan)) == 20
    assert lost.holder is not None
    process.way.breaks_at = lost.holder.lease_id
    process.way.deaf = False
    await look([process], 2)
    assert process.gate.is_degraded
    await clock.advance(0.5)
    assert len(await process.take_all(plan)) == 1
    await back(process)
    assert len(await other.take_all(plan)) == 80 + 4 - 20 - 1


async def test_a_way_back_on_which_the_store_falls_silent_ends(
    fleet: list[Process], clock: ManualClock
) -> None:
    """Else whoever asks would wait with it."""
    process = fleet[0]
    request = await process.take(slots())
    await away(process)
    assert isinstance(request, Admitted)
    await process.gate.release(Release(request))
    process.way.cut = False
    await look([process])
    process.way.silent = asyncio.get_running_loop().create_future()
    looking = asyncio.create_task(process.gate.ping_redis())
    await clock.advance(1.9)
    waiting_task = asyncio.create_task(process.take(slots()))
    await clock.advance(0.05)
    assert not waiting_task.done()
    await clock.advance(0.1)
    assert looking.done()
    assert process.gate.is_degraded
    assert waiting_task.done()
    await back(process)


async def test_return_waits_while_an_undo_may_still_arrive(fleet: list[Process]) -> None:
    """It would be undone by its lease, with which the same call may have been admitted anew by then."""
    process = fleet[0]
    await away(process)
    process.way.cut, process.way.is_settled = False, False
    await look([process], 5)
    assert process.gate.is_degraded
    process.way.is_settled = True
    await look([process])
    assert not process.gate.is_degraded


async def test_a_slot_taken_up_as_the_store_goes_away(fleet: list[Process]) -> None:
    process, request = fleet[0], waiter(slots())
    assert isinstance(await fleet[1].gate.admit(request), Admitted)
    process.way.cut = True
    with pytest.raises(LimiterUnavailableError) as raised:
        await process.gate.attach(kept(request))
    assert raised.value.retry_after_s is not None, "its job comes back, and has not failed"
    assert process.gate.is_degraded
    await back(process)
    assert await process.gate.attach(kept(request)) is Lease.ACTIVE


async def test_a_turn_whose_ask_was_under_way_is_given_up_with_its_place(fleet: list[Process]) -> None:
    degraded = DegradedGate(fleet[0].way.store.gate, lambda: Share(1, 0), lambda: 0.0, [])
    booked, rate_alone = waiter(slots(), reservation_id=7), AdmitRequest(rate(1, 1), reservation_id=8)
    degraded.cancel_later([booked, rate_alone])
    degraded.cancel_later(
        [AdmitRequest(slots(), holder=booked.holder)]
    )  # a slot was granted after its caller had left
    assert [degraded.requests_to_cancel() for _ in range(2)] == [[booked]] * 2, "a return may break off"


async def test_handed_over_slot_is_not_released(fleet: list[Process], store: Store) -> None:
    process, request = fleet[0], waiter(slots(4))
    process.way.deaf = True
    await process.gate.admit(request)
    await process.gate.detach(kept(request))
    await back(process)
    assert await store.gate.renew([kept(request)]) == [Lease.ACTIVE]


async def test_a_turn_that_nobody_comes_back_for_is_given_up(fleet: list[Process]) -> None:
    """The store went away between the answer and the turn, and its caller went on without it or left."""
    process = fleet[0]
    plan = replace(rate(1, 0.1), pool=slots().pool)
    assert isinstance(await process.take(plan), Admitted)
    booked = waiter(plan, reservation_id=7)._replace(reserve_ahead_s=30.0)
    assert isinstance(await process.gate.admit(booked), Reserved)
    await away(process)
    await back(process)
    assert process.way.done.count("cancel") == 1


async def test_a_running_call_gives_up_the_turn_that_it_did_not_need(
    fleet: list[Process], store: Store, clock: ManualClock
) -> None:
    """The call stood in line with a turn as the store went away, and was let in without it."""
    process, plan = fleet[0], replace(rate(10, 8), pool=slots().pool)
    request = await process.take(plan)
    waits = waiter(plan, reservation_id=7)
    assert isinstance(await process.gate.admit(waits), Queued)
    await away(process)
    assert isinstance(request, Admitted)
    await process.gate.release(Release(request))
    await clock.advance(0.5)
    assert isinstance(await process.gate.admit(waits), Admitted)
    await back(process)
    assert [bucket.reserved for _, _, bucket in store.gate.buckets()] == [0]
    assert await process.gate.renew([kept(waits)]) == [Lease.ACTIVE]
