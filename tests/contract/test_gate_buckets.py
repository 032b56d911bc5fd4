"""Buckets of every gate: exact, never above the limit, no token lost (G2; defects of others: §2.2)."""

from __future__ import annotations

import asyncio
import math
from itertools import count

import pytest

from fairlead.engine.ports import (
    AdmitRequest,
    Admitted,
    GateRefusal,
    Observation,
    RefusedBy,
    Release,
    Reserved,
)
from fairlead.errors import InvalidConfigError
from fairlead.policy.limits.limit import BucketLimit, Domain, Plan, per_window
from tests.contract.gates import Timed

DOMAIN = Domain(("tenant", "a"))
_bookings = count(1)


def plan(*limits: BucketLimit, domain: Domain = DOMAIN) -> Plan:
    return Plan(domain, buckets=limits)


async def admitted_units(timed: Timed, ask: AdmitRequest, seconds: float, every_s: float) -> float:
    """Units let through while somebody asks all the time."""
    units = 0.0
    for _ in range(round(seconds / every_s)):
        while isinstance(answer := await timed.admit(ask), Admitted):
            units += sum(answer.spent)
        timed.tick(every_s)
    return units


async def test_a_bucket_gives_its_capacity_and_then_says_when(timed: Timed) -> None:
    ask = AdmitRequest(plan(BucketLimit("b", 3, 2)))
    for _ in range(3):
        await timed.admitted(ask)
    assert await timed.admit(ask) == GateRefusal(RefusedBy.BUCKET, 0.5, 0)
    timed.tick(0.499_999)
    assert await timed.admit(ask) == GateRefusal(RefusedBy.BUCKET, 0.000_001, 0)
    timed.tick(0.000_001)
    await timed.admitted(ask)


async def test_a_rate_above_its_burst_limits(timed: Timed) -> None:
    """1,000 a second with a burst of 100: a time to live of 0 would delete the key, and limit nothing."""
    ask = AdmitRequest(plan(BucketLimit("b", 100, 1000)))
    units = 0
    while isinstance(await timed.admit(ask), Admitted):
        units += 1
    assert units == 100


@pytest.mark.parametrize("every_s", [0.1, 1.0, 7.0])
async def test_no_part_of_a_token_is_lost_however_often_one_asks(timed: Timed, every_s: float) -> None:
    """100 a minute, asked each second: whole-second clocks and floors make 60 of it."""
    units = await admitted_units(timed, AdmitRequest(plan(BucketLimit("b", 100, 100 / 60))), 70, every_s)
    assert 100 + 100 / 60 * (70 - every_s) - 1 <= units <= 100 + 100 / 60 * 70


async def test_a_refused_call_is_not_charged(timed: Timed) -> None:
    """A refusal that consumes starves a heavy call for ever."""
    limit = BucketLimit("b", 10, 1)
    await timed.admitted(AdmitRequest(plan(limit), (9.0,)))
    for _ in range(5):
        assert await timed.admit(AdmitRequest(plan(limit), (5.0,))) == GateRefusal(RefusedBy.BUCKET, 4.0, 0)
    await timed.admitted(AdmitRequest(plan(limit), (1.0,)))


async def test_a_call_larger_than_its_bucket_is_told_so(timed: Timed) -> None:
    answer = await timed.admit(AdmitRequest(plan(BucketLimit("b", 10, 1)), (10.5,)))
    assert answer == GateRefusal(RefusedBy.BUCKET, None, 0)
    assert answer.capacity == 10


async def test_all_buckets_or_none(timed: Timed) -> None:
    many, few = BucketLimit("many", 100, 1), BucketLimit("few", 1, 0.1)
    both = AdmitRequest(plan(many, few))
    await timed.admitted(both)
    assert await timed.admit(both) == GateRefusal(RefusedBy.BUCKET, 10.0, 1)
    remaining = 0
    while isinstance(await timed.admit(AdmitRequest(plan(many))), Admitted):
        remaining += 1
    assert remaining == 99


async def test_tenants_do_not_share(timed: Timed) -> None:
    limit = BucketLimit("b", 1, 1)
    for tenant in ("a", "b", "a:b", "{a}", "*", "й"):
        await timed.admitted(AdmitRequest(plan(limit, domain=Domain(("tenant", tenant)))))


async def test_names_are_counted_with_their_lengths(timed: Timed) -> None:
    limit = BucketLimit("b", 1, 1)
    await timed.admitted(AdmitRequest(plan(limit, domain=Domain(("a:b", "c")))))
    await timed.admitted(AdmitRequest(plan(limit, domain=Domain(("a", "b:c")))))


async def test_a_window_never_sees_more_than_its_limit(timed: Timed) -> None:
    """HubSpot's 100 in 10 s: a bucket of 100 would let nearly 200 through in one window."""
    ask = AdmitRequest(plan(per_window("b", 100, 10)))
    sent: list[float] = []
    for step in range(400):
        while isinstance(await timed.admit(ask), Admitted):
            sent.append(step * 0.1)
        timed.tick(0.1)
    assert max(sum(1 for at in sent if begin <= at < begin + 10) for begin in sent) <= 100
    assert len(sent) >= 0.88 * 100 * 4


# ---- turns ----------------------------------------------------------------------------------------


async def test_each_waiter_gets_a_turn_of_its_own(timed: Timed) -> None:
    limit = plan(BucketLimit("b", 1, 2))
    await timed.admitted(AdmitRequest(limit))
    asks = [AdmitRequest(limit, reserve_ahead_s=60, reservation_id=next(_bookings)) for _ in range(4)]
    assert [await timed.admit(ask) for ask in asks] == [Reserved(turn * 0.5) for turn in (1, 2, 3, 4)]
    for ask in asks:
        timed.tick(0.5)
        await timed.admitted(ask)


async def test_a_turn_is_not_lost_when_it_lies_far_ahead(timed: Timed) -> None:
    """A record that lives 30 s forgets a turn in 40."""
    limit = plan(BucketLimit("b", 1, 1 / 40))
    await timed.admitted(AdmitRequest(limit))
    turn = AdmitRequest(limit, reserve_ahead_s=100, reservation_id=next(_bookings))
    assert await timed.admit(turn) == Reserved(40.0)
    timed.tick(39)
    assert await timed.admit(AdmitRequest(limit)) == GateRefusal(RefusedBy.BUCKET, 41.0, 0)
    timed.tick(1)
    await timed.admitted(turn)


async def test_asking_again_does_not_take_a_second_turn(timed: Timed) -> None:
    limit = plan(BucketLimit("b", 1, 1))
    await timed.admitted(AdmitRequest(limit))
    turn = AdmitRequest(limit, reserve_ahead_s=60, reservation_id=next(_bookings))
    assert await timed.admit(turn) == Reserved(1.0)
    timed.tick(0.25)
    assert await timed.admit(turn) == Reserved(0.75)
    assert await timed.admit(
        AdmitRequest(limit, reserve_ahead_s=60, reservation_id=next(_bookings))
    ) == Reserved(1.75)


async def test_no_turn_is_taken_beyond_the_callers_time(timed: Timed) -> None:
    limit = plan(BucketLimit("b", 1, 1))
    await timed.admitted(AdmitRequest(limit))
    answer = await timed.admit(AdmitRequest(limit, reserve_ahead_s=0.9, reservation_id=next(_bookings)))
    assert answer == GateRefusal(RefusedBy.BUCKET, 1.0, 0)
    assert await timed.admit(
        AdmitRequest(limit, reserve_ahead_s=2, reservation_id=next(_bookings))
    ) == Reserved(1.0)


async def test_a_turn_given_up_or_slept_through_comes_back(timed: Timed) -> None:
    limit = plan(BucketLimit("b", 2, 1))
    for _ in range(2):
        await timed.admitted(AdmitRequest(limit))
    given_up, slept = (
        AdmitRequest(limit, reserve_ahead_s=60, reservation_id=next(_bookings)) for _ in range(2)
    )
    assert [await timed.admit(given_up), await timed.admit(slept)] == [Reserved(1.0), Reserved(2.0)]
    await timed.gate.cancel(given_up)
    await timed.gate.cancel(given_up)
    timed.tick(7.1)  # two units came back long ago; the second turn was not taken within 5 s
    assert isinstance(await timed.admit(slept), Admitted)
    await timed.admitted(AdmitRequest(limit))
    assert isinstance(await timed.admit(AdmitRequest(limit)), GateRefusal)


async def test_late_turns_and_new_calls_never_pass_the_limit_together(timed: Timed) -> None:
    """A promise counts as not spent yet, so the level does not fill up over it."""
    limit = plan(BucketLimit("b", 4, 20))
    units = [await timed.admitted(AdmitRequest(limit)) for _ in range(4)]
    turns = [AdmitRequest(limit, reserve_ahead_s=60, reservation_id=next(_bookings)) for _ in range(60)]
    booked = [await timed.admit(turn) for turn in turns]
    timed.tick(3.0)
    redeemed = [turn for turn in turns if isinstance(await timed.admit(turn), Admitted)]
    fresh = 0
    while isinstance(await timed.admit(AdmitRequest(limit)), Admitted):
        fresh += 1
    assert all(isinstance(answer, Reserved) for answer in booked)
    assert len(redeemed) + fresh <= 4, "all at one moment: no more than the bucket holds"
    assert len(units) == 4


# ---- what the provider says ------------------------------------------------------------------------


async def finish(
    timed: Timed, admitted: Admitted, observed: Observation, actual: float | None = None
) -> None:
    used = {} if actual is None else {0: actual}
    await timed.gate.release(Release(admitted, actual=used, observed={0: observed}))


async def remaining_units(timed: Timed, of: Plan) -> int:
    units = 0
    while isinstance(await timed.admit(AdmitRequest(of)), Admitted):
        units += 1
    return units


async def test_unused_cost_is_refunded(timed: Timed) -> None:
    points = plan(BucketLimit("b", 100, 0.001))
    call = await timed.admitted(AdmitRequest(points, (60.0,)))
    await timed.gate.release(Release(call, actual={0: 11.0}))
    assert await remaining_units(timed, points) == 89


async def test_a_debt_is_at_most_one_capacity(timed: Timed) -> None:
    """R52: a cost that is told in other units must not stop the calls for months."""
    limit = plan(BucketLimit("b", 10, 1))
    call = await timed.admitted(AdmitRequest(limit))
    await timed.gate.release(Release(call, actual={0: 1e6}))
    assert await timed.admit(AdmitRequest(limit)) == GateRefusal(RefusedBy.BUCKET, 11.0, 0)


async def test_502_points_asked_498_available_50_a_second_80_ms(timed: Timed) -> None:
    """502 points asked, 498 available, 50/s: 80 ms."""
    points = plan(BucketLimit("b", 1000, 50))
    call = await timed.admitted(AdmitRequest(points, (502.0,)))
    await finish(timed, call, Observation(remaining=498.0, capacity=1000.0, per_s=50.0))
    assert await timed.admit(AdmitRequest(points, (502.0,))) == GateRefusal(RefusedBy.BUCKET, 0.08, 0)


async def test_down_is_believed_at_once_up_only_when_nothing_was_sent_since(timed: Timed) -> None:
    points = plan(BucketLimit("b", 100, 0.001))
    first, second = [await timed.admitted(AdmitRequest(points, (10.0,))) for _ in range(2)]
    await finish(timed, first, Observation(remaining=95.0))  # does not know of the second call
    assert isinstance(await timed.admit(AdmitRequest(points, (81.0,))), GateRefusal)
    await finish(timed, second, Observation(remaining=40.0))
    assert await remaining_units(timed, points) == 40


async def test_an_answer_that_tells_what_is_left_has_seen_its_own_cost(timed: Timed) -> None:
    """40 points instead of the 1 that was thought: they are not taken off a second time."""
    points = plan(BucketLimit("b", 100, 0.001))
    call = await timed.admitted(AdmitRequest(points))
    await finish(timed, call, Observation(remaining=60.0), actual=40.0)
    assert await remaining_units(timed, points) == 60


async def test_answers_out_of_order_never_fill_the_bucket(timed: Timed) -> None:
    points = plan(BucketLimit("b", 100, 0.001))
    calls = [await timed.admitted(AdmitRequest(points, (30.0,))) for _ in range(3)]
    for call, expected in zip(reversed(calls), (10.0, 40.0, 70.0), strict=True):
        await finish(timed, call, Observation(remaining=expected))
    assert await remaining_units(timed, points) == 10


async def test_learnt_limits_hold_until_settings_say_otherwise(timed: Timed) -> None:
    guess = BucketLimit("b", 50, 50)
    call = await timed.admitted(AdmitRequest(plan(guess)))
    await finish(timed, call, Observation(remaining=1999.0, capacity=2000.0, per_s=100.0))
    assert isinstance(await timed.admit(AdmitRequest(plan(guess), (1500.0,))), Admitted)
    newer = BucketLimit("b", 50, 50, version=2)
    assert await timed.admit(AdmitRequest(plan(newer), (51.0,))) == GateRefusal(RefusedBy.BUCKET, None, 0)


async def test_the_highest_version_of_the_settings_counts(timed: Timed) -> None:
    old, new = BucketLimit("b", 10, 1), BucketLimit("b", 2, 1, version=2)
    assert await remaining_units(timed, plan(new)) == 2
    assert await remaining_units(timed, plan(old)) == 0
    assert await timed.admit(AdmitRequest(plan(old), (3.0,))) == GateRefusal(RefusedBy.BUCKET, None, 0)


async def test_more_capacity_gives_nothing_at_once_and_less_takes_at_once(timed: Timed) -> None:
    limit = BucketLimit("b", 10, 0.001)
    assert await remaining_units(timed, plan(limit)) == 10
    assert await remaining_units(timed, plan(BucketLimit("b", 100, 0.001, version=2))) == 0
    other = BucketLimit("c", 10, 0.001)
    for _ in range(4):
        await timed.admitted(AdmitRequest(plan(other)))
    assert await remaining_units(timed, plan(BucketLimit("c", 7, 0.001, version=2))) == 3


@pytest.mark.parametrize("wait_s", [120.0, 2.0])
async def test_retry_after_then_at_the_rate_without_a_burst(timed: Timed, wait_s: float) -> None:
    """Retry-After 120: 120 s; 2: ~2,000 ms. And then the next token."""
    limit = plan(BucketLimit("b", 40, 2))
    call = await timed.admitted(AdmitRequest(limit))
    await finish(timed, call, Observation(wait_s=wait_s))
    assert await timed.admit(AdmitRequest(limit)) == GateRefusal(RefusedBy.BUCKET, wait_s + 0.5, 0)
    timed.tick(wait_s)
    assert await timed.admit(AdmitRequest(limit)) == GateRefusal(RefusedBy.BUCKET, 0.5, 0)
    timed.tick(0.5)
    assert await remaining_units(timed, limit) == 1


async def test_a_refusal_for_another_limit_leaves_what_is_left(timed: Timed) -> None:
    limit = plan(BucketLimit("b", 40, 2))
    call = await timed.admitted(AdmitRequest(limit))
    await finish(timed, call, Observation(remaining=30.0, held_s=60.0))
    assert await timed.admit(AdmitRequest(limit)) == GateRefusal(RefusedBy.BUCKET, 60.0, 0)
    timed.tick(60)
    assert await remaining_units(timed, limit) >= 30


async def test_of_both_refusals_the_longer_wait_counts(timed: Timed) -> None:
    limit = plan(BucketLimit("b", 40, 2))
    for wait_s, held_s in ((5.0, 60.0), (60.0, 5.0)):
        call = await timed.admitted(AdmitRequest(limit))
        await finish(timed, call, Observation(wait_s=wait_s, held_s=held_s))
        assert await timed.admit(AdmitRequest(limit)) == GateRefusal(RefusedBy.BUCKET, 60.5, 0)
        timed.tick(61)


async def test_a_turn_during_a_penalty_is_taken_anew(timed: Timed) -> None:
    limit = plan(BucketLimit("b", 1, 1))
    call = await timed.admitted(AdmitRequest(limit))
    turn = AdmitRequest(limit, reserve_ahead_s=900, reservation_id=next(_bookings))
    assert await timed.admit(turn) == Reserved(1.0)
    await finish(timed, call, Observation(wait_s=30.0))
    timed.tick(1)
    answer = await timed.admit(turn)
    assert isinstance(answer, Reserved)
    assert answer.delay_s >= 29.0


async def test_a_clock_that_is_set_back_gives_nothing(timed: Timed) -> None:
    limit = plan(BucketLimit("b", 5, 1))
    assert await remaining_units(timed, limit) == 5
    timed.tick(-600)
    assert await timed.admit(AdmitRequest(limit)) == GateRefusal(RefusedBy.BUCKET, 1.0, 0)


async def test_a_turn_moves_with_a_clock_that_is_set_back(timed: Timed) -> None:
    """Else whoever waits for it is told to come again in ten minutes."""
    limit = plan(BucketLimit("b", 1, 1))
    await timed.admitted(AdmitRequest(limit))
    turn = AdmitRequest(limit, reserve_ahead_s=60, reservation_id=next(_bookings))
    assert await timed.admit(turn) == Reserved(1.0)
    timed.tick(-600)
    assert await timed.admit(turn) == Reserved(1.0)
    timed.tick(0.25)
    assert await timed.admit(turn) == Reserved(0.75)
    timed.tick(0.75)
    await timed.admitted(turn)


async def test_after_a_loss_a_bucket_is_full_for_who_came_after_it_and_empty_for_who_was_there(
    emptied: Timed,
) -> None:
    """R23. Who was there may have spent all of it a moment before."""
    met_plan, known_plan, new = (plan(BucketLimit(name, 10, 1)) for name in ("met", "known", "new"))
    assert await emptied.admit(AdmitRequest(met_plan)) == GateRefusal(RefusedBy.BUCKET, 1.0, 0)
    emptied.tick(2)
    assert await emptied.admit(AdmitRequest(known_plan, (3.0,), existed_s=2.001)) == GateRefusal(
        RefusedBy.BUCKET, 1.0, 0
    )
    assert await emptied.admit(AdmitRequest(known_plan, (3.0,))) == GateRefusal(RefusedBy.BUCKET, 1.0, 0)
    await emptied.admitted(AdmitRequest(new, (10.0,), existed_s=1.999))
    assert await emptied.admit(AdmitRequest(new, (1.0,), existed_s=1.999)) == GateRefusal(
        RefusedBy.BUCKET, 1.0, 0
    )


async def test_new_connection_gets_no_tokens_that_others_have_spent(emptied: Timed) -> None:
    limit = plan(BucketLimit("b", 10, 1))
    assert await emptied.admit(AdmitRequest(limit, (10.0,))) == GateRefusal(RefusedBy.BUCKET, 10.0, 0)
    emptied.tick(10)
    await emptied.admitted(AdmitRequest(limit, (10.0,)))
    assert await emptied.admit(AdmitRequest(limit, existed_s=0.0)) == GateRefusal(RefusedBy.BUCKET, 1.0, 0)


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, 0.0])
def test_an_impossible_limit_never_starts(value: float) -> None:
    with pytest.raises(InvalidConfigError, match="hint: give"):
        BucketLimit("b", value, 1)
    with pytest.raises(InvalidConfigError, match="hint: give"):
        BucketLimit("b", 1, value)


async def test_a_call_without_limits_goes_together_with_others(timed: Timed) -> None:
    first, other = (plan(BucketLimit("b", 1, 1), domain=Domain(("tenant", name))) for name in "ab")
    answers = await asyncio.gather(
        *(timed.admit(AdmitRequest(each_plan)) for each_plan in (first, Plan(DOMAIN), other))
    )
    assert all(isinstance(answer, Admitted) for answer in answers)
    for plan_again in (first, other):
        assert isinstance(await timed.admit(AdmitRequest(plan_again)), GateRefusal)
