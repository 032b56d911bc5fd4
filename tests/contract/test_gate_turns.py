"""A call that needs a slot and a turn in a bucket, where both are short (R26)."""

from __future__ import annotations

from itertools import count

from fairlead.engine.ports import AdmitRequest, GateRefusal, Queued, RefusedBy, Release, Reserved
from fairlead.policy.limits.limit import BucketLimit, Domain, Plan, PoolLimit
from fairlead.policy.limits.pool import Holder
from tests.contract.gates import Timed

DOMAIN = Domain(("tenant", "a"))
_bookings = count(1)


async def test_slot_of_a_call_without_a_turn_goes_to_the_next(timed: Timed) -> None:
    slot, rate = PoolLimit("p", 1), BucketLimit("rate", 2, 1.0)
    both, slot_only = Plan(DOMAIN, buckets=(rate,), pool=slot), Plan(DOMAIN, pool=slot)
    admitted = await timed.admitted(AdmitRequest(both, holder=Holder(next(_bookings), "process")))
    in_line = AdmitRequest(both, holder=Holder(next(_bookings), "process"), wait_s=60)
    assert isinstance(await timed.admit(in_line), Queued)
    await timed.admitted(AdmitRequest(Plan(DOMAIN, buckets=(rate,))))
    assert (await timed.gate.release(Release(admitted))).was_held
    assert await timed.admit(in_line) == GateRefusal(RefusedBy.BUCKET, 1.0, 0)
    await timed.admitted(AdmitRequest(slot_only, holder=Holder(next(_bookings), "process")))


async def test_call_that_waits_for_a_slot_keeps_its_turn(timed: Timed) -> None:
    """R26. Else each slot that comes free finds calls whose turns others have taken, and lies idle."""
    slot, rate = PoolLimit("p", 1), BucketLimit("rate", 1, 1.0)
    both = Plan(DOMAIN, buckets=(rate,), pool=slot)

    def ask() -> AdmitRequest:
        number = next(_bookings)
        return AdmitRequest(
            both, holder=Holder(number, "process"), wait_s=3, reserve_ahead_s=60, reservation_id=number
        )

    admitted, in_line, later = await timed.admitted(ask()), ask(), ask()
    assert await timed.admit(in_line) == Reserved(1.0)
    timed.tick(1)
    assert isinstance(await timed.admit(in_line), Queued)
    timed.tick(2)
    assert isinstance(await timed.admit(in_line), Queued), "its turn was given back, and is due again"
    assert isinstance(await timed.admit(later), Reserved)
    assert (await timed.gate.release(Release(admitted))).was_held
    timed.tick(0.5)
    await timed.admitted(in_line)


async def test_a_slot_and_its_turn_a_moment_later_wait_for_each_other(timed: Timed) -> None:
    slot, rate = PoolLimit("p", 1), BucketLimit("rate", 2, 1.0)
    both = Plan(DOMAIN, buckets=(rate,), pool=slot)
    admitted = await timed.admitted(AdmitRequest(both, holder=Holder(next(_bookings), "process")))
    first, second = (
        AdmitRequest(
            both, holder=Holder(number, "process"), wait_s=30, reserve_ahead_s=60, reservation_id=number
        )
        for number in (next(_bookings), next(_bookings))
    )
    assert isinstance(await timed.admit(first), Queued)
    assert await timed.admit(second) == Reserved(1.0)
    timed.tick(1)
    assert isinstance(await timed.admit(second), Queued)
    assert (await timed.gate.release(Release(admitted))).was_held
    timed.tick(0.01)
    assert (await timed.gate.release(Release(await timed.admitted(first)))).was_held
    await timed.admitted(second)
