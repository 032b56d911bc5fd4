"""A process that is back keeps to its share for a second: the others may not be back yet (R27)."""

from __future__ import annotations

import pytest

from fairlead.engine.ports import AdmitRequest, Admitted, GateRefusal, Queued, RefusedBy, Release
from fairlead.policy.limits.limit import Plan, PoolLimit
from fairlead.testing._kit.clock import ManualClock
from tests.support.several import DOMAIN, Process, Store, away, back, look, rate, slots, waiter


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(start=1_800_000_000.0)


@pytest.fixture
def store(clock: ManualClock) -> Store:
    return Store(clock)


@pytest.fixture
def fleet(store: Store) -> list[Process]:
    return [Process(store, rank, 4) for rank in range(4)]


async def test_first_process_back_leaves_the_tokens_that_others_have_spent(
    fleet: list[Process], store: Store, clock: ManualClock
) -> None:
    """It came back while they spent their shares of it, and they have not said so yet."""
    plan = rate(80, 8)
    await fleet[0].take_all(plan)
    store.away = True
    await look(fleet)
    for _ in range(10):
        await clock.advance(1)
        assert [len(await process.take_all(plan)) for process in fleet] == [2, 2, 2, 2]
    store.away = False
    await look(fleet[:1], 2)
    assert await fleet[0].take(plan) == GateRefusal(RefusedBy.RECOVERY, 0.5)
    await clock.advance(0.5)
    assert len(await fleet[0].take_all(plan)) == 1
    await look(fleet[1:], 2)
    await clock.advance(0.5)
    assert len(await fleet[0].take_all(plan)) == 7, "8 came back in the last second, and one is sent"


async def test_turns_of_the_outage_stand_in_nobodys_way(
    fleet: list[Process], store: Store, clock: ManualClock
) -> None:
    plan = rate(80, 8)
    store.away = True
    await look(fleet)
    await clock.advance(2)
    for reservation_id in range(1, 40):
        await fleet[0].gate.admit(AdmitRequest(plan, reservation_id=reservation_id, reserve_ahead_s=60.0))
    await clock.advance(0.5)
    store.away = False
    await look(fleet[:1], 2)
    assert len(await fleet[0].take_all(plan)) == 1, "what came back in half a second"


async def test_refusal_of_the_store_costs_nothing_of_the_share(
    fleet: list[Process], store: Store, clock: ManualClock
) -> None:
    plan = rate(80, 8)
    store.away = True
    await look(fleet)
    await clock.advance(10)
    store.away = False
    await look(fleet[:1], 2)
    held_plan = Plan(DOMAIN, buckets=plan.buckets, pool=PoolLimit("p", 0, lease_s=30))
    for _ in range(30):
        assert isinstance(await fleet[0].take(held_plan), GateRefusal)
    assert len(await fleet[0].take_all(plan)) == 20


@pytest.mark.parametrize("away_s", [0.4, 60.0])
async def test_single_process_or_short_outage_needs_no_share(
    store: Store, clock: ManualClock, away_s: float
) -> None:
    process = Process(store, 0, 1 if away_s > 1 else 4)
    store.away = True
    await look([process])
    await clock.advance(away_s)
    store.away = False
    await look([process], 2)
    assert len(await process.take_all(rate(40, 0.01))) >= 40


async def test_call_over_the_share_after_a_return_keeps_no_place(
    fleet: list[Process], clock: ManualClock
) -> None:
    """A slot that came to him would lie idle until its claim ends: he was refused, and looks nowhere."""
    ours, other, plan = *fleet[:2], slots(buckets=rate(80, 8).buckets)
    request = await other.take(plan)
    await away(ours)
    await clock.advance(0.6)
    await back(ours)
    early = waiter(plan)
    assert isinstance(await ours.gate.admit(early), Queued)
    await ours.take_all(rate(80, 8))
    assert isinstance(request, Admitted)
    await other.gate.release(Release(request))
    assert isinstance(await ours.gate.admit(early), GateRefusal)
    assert isinstance(await other.take(plan), Admitted)
