"""Breakers of every gate: one probe of the fleet decides, a ramp follows (G6, R33)."""

from __future__ import annotations

import pytest

from fairlead.engine.ports import AdmitRequest, Admitted, GateRefusal, RefusedBy, Release
from fairlead.policy.limits.breaker import DestinationHealth
from fairlead.policy.limits.limit import BreakerRule, BucketLimit, Domain, Plan
from tests.contract.gates import Timed

RULE = BreakerRule("connection|host")
PLAN = Plan(Domain(("tenant", "a")), breaker=RULE)
BAD, GOOD, NEUTRAL = DestinationHealth.UNHEALTHY, DestinationHealth.HEALTHY, DestinationHealth.NEUTRAL
SICK, WELL, THIRD = 2, 3, 4
"""Numbers of processes."""


async def call(timed: Timed, health: DestinationHealth) -> float | None:
    """One call; for how long the breaker opened by it."""
    return (await timed.gate.release(Release(await timed.admitted(AdmitRequest(PLAN)), health))).opened_s


async def opened(timed: Timed) -> None:
    for _ in range(9):
        assert await call(timed, BAD) is None
    assert await call(timed, BAD) == 60.0


async def test_10_in_a_row_open_it_for_a_minute(timed: Timed) -> None:
    await opened(timed)
    assert await timed.admit(AdmitRequest(PLAN)) == GateRefusal(RefusedBy.BREAKER, 60.0)
    timed.tick(59)
    assert await timed.admit(AdmitRequest(PLAN)) == GateRefusal(RefusedBy.BREAKER, 1.0)


async def test_half_of_20_within_30_s_open_it(timed: Timed) -> None:
    for _ in range(9):
        await call(timed, GOOD)
        await call(timed, BAD)
        timed.tick(1)
    assert await call(timed, GOOD) is None
    assert await call(timed, BAD) == 60.0


async def test_a_good_call_that_is_the_twentieth_opens_it_too(timed: Timed) -> None:
    """Half of them failed, whichever comes last."""
    await call(timed, BAD)
    for _ in range(9):
        await call(timed, BAD)
        assert await call(timed, GOOD) is None
    assert await call(timed, GOOD) == 60.0


async def test_a_good_call_among_few_bad_ones_opens_nothing(timed: Timed) -> None:
    await call(timed, BAD)
    for _ in range(30):
        assert await call(timed, GOOD) is None


async def test_breaker_forgets_failures_older_than_30_s(timed: Timed) -> None:
    for _ in range(9):
        await call(timed, BAD)
        await call(timed, GOOD)
    timed.tick(31)
    for _ in range(9):
        assert await call(timed, BAD) is None


async def test_a_success_ends_the_row_and_neutral_ends_count_for_nothing(timed: Timed) -> None:
    for _ in range(9):
        await call(timed, BAD)
    for _ in range(30):
        assert await call(timed, NEUTRAL) is None
    await call(timed, GOOD)
    for _ in range(9):
        assert await call(timed, BAD) is None


async def test_breaker_is_decided_by_one_probe(timed: Timed) -> None:
    await opened(timed)
    timed.tick(60)
    probe = await timed.admitted(AdmitRequest(PLAN, call_s=7))
    assert probe.probe
    assert await timed.admit(AdmitRequest(PLAN)) == GateRefusal(RefusedBy.BREAKER, 1.0)
    await timed.gate.release(Release(probe, GOOD))
    assert not (await timed.admitted(AdmitRequest(PLAN))).probe


async def test_a_failed_probe_opens_it_twice_as_long_up_to_10_minutes(timed: Timed) -> None:
    await opened(timed)
    lengths = [60.0]
    for _ in range(5):
        timed.tick(lengths[-1])
        done = await timed.gate.release(Release(await timed.admitted(AdmitRequest(PLAN)), BAD))
        assert done.opened_s is not None
        lengths.append(done.opened_s)
    assert lengths == [60.0, 120.0, 240.0, 480.0, 600.0, 600.0]


async def test_a_probe_that_dies_is_followed_by_another_at_its_deadline(timed: Timed) -> None:
    await opened(timed)
    timed.tick(60)
    await timed.admitted(AdmitRequest(PLAN, call_s=7))
    timed.tick(6.9)
    assert isinstance(await timed.admit(AdmitRequest(PLAN)), GateRefusal)
    timed.tick(0.1)
    assert (await timed.admitted(AdmitRequest(PLAN, call_s=7))).probe


@pytest.mark.parametrize("health", [GOOD, BAD, NEUTRAL])
async def test_a_probe_that_comes_back_when_another_has_begun_decides_nothing(
    timed: Timed, health: DestinationHealth
) -> None:
    """Its process stood still for longer than the probe had: what it says is of then."""
    await opened(timed)
    timed.tick(60)
    late = await timed.admitted(AdmitRequest(PLAN, call_s=7))
    timed.tick(7)
    probe = await timed.admitted(AdmitRequest(PLAN, call_s=7))
    released = await timed.gate.release(Release(late, health))
    assert (released.opened_s, released.closed) == (None, False)
    assert await timed.admit(AdmitRequest(PLAN)) == GateRefusal(RefusedBy.BREAKER, 1.0)
    released = await timed.gate.release(Release(probe, GOOD))
    assert (released.opened_s, released.closed) == (None, True)
    released = await timed.gate.release(Release(late, health))
    assert (released.opened_s, released.closed) == (None, False)
    assert not (await timed.admitted(AdmitRequest(PLAN))).probe


async def test_a_cancelled_probe_lets_the_next_one_try(timed: Timed) -> None:
    await opened(timed)
    timed.tick(60)
    await timed.gate.release(Release(await timed.admitted(AdmitRequest(PLAN)), NEUTRAL))
    assert (await timed.admitted(AdmitRequest(PLAN))).probe


async def test_call_sent_before_the_breaker_opened_decides_nothing(timed: Timed) -> None:
    early = [await timed.admitted(AdmitRequest(PLAN)) for _ in range(3)]
    await opened(timed)
    timed.tick(60)
    probe = await timed.admitted(AdmitRequest(PLAN))
    await timed.gate.release(Release(early[0], GOOD))
    assert isinstance(await timed.admit(AdmitRequest(PLAN)), GateRefusal)
    await timed.gate.release(Release(early[1], BAD))
    await timed.gate.release(Release(probe, GOOD))
    await timed.admitted(AdmitRequest(PLAN))


async def test_after_it_closes_calls_come_back_step_by_step(timed: Timed) -> None:
    await opened(timed)
    timed.tick(60)
    await timed.gate.release(Release(await timed.admitted(AdmitRequest(PLAN)), GOOD))
    let_through = []
    for _ in range(6):
        sent = 0
        while sent < 100 and isinstance(await timed.admit(AdmitRequest(PLAN)), Admitted):
            sent += 1
        let_through.append(sent)
        timed.tick(1)
    assert let_through == [2, 4, 8, 16, 32, 100]


async def test_an_open_breaker_costs_no_token_and_a_dry_bucket_no_probe(timed: Timed) -> None:
    bucket = BucketLimit("b", 1, 0.01)
    plan = Plan(PLAN.domain, breaker=RULE, buckets=(bucket,))
    await opened(timed)
    assert isinstance(await timed.admit(AdmitRequest(plan)), GateRefusal)
    await timed.admitted(AdmitRequest(Plan(PLAN.domain, buckets=(bucket,))))
    timed.tick(60)
    answer = await timed.admit(AdmitRequest(plan))
    assert isinstance(answer, GateRefusal)
    assert answer.by is RefusedBy.BUCKET
    assert (await timed.admitted(AdmitRequest(PLAN))).probe


@pytest.mark.parametrize("other", [Plan(PLAN.domain, breaker=BreakerRule("other|host"))])
async def test_other_destinations_run_on(timed: Timed, other: Plan) -> None:
    await opened(timed)
    await timed.admitted(AdmitRequest(other))


async def test_a_clock_that_is_set_back_keeps_it_open_no_longer_than_it_may(timed: Timed) -> None:
    await opened(timed)
    timed.tick(-86_400)
    assert await timed.admit(AdmitRequest(PLAN)) == GateRefusal(RefusedBy.BREAKER, 600.0)
    timed.tick(600)
    probe = await timed.admitted(AdmitRequest(PLAN))
    await timed.gate.release(Release(probe, GOOD))
    timed.tick(-86_400)
    for _ in range(6):
        await timed.admit(AdmitRequest(PLAN))
        timed.tick(1)
    await timed.admitted(AdmitRequest(PLAN))


async def unreached(timed: Timed, reporter: int, admitted: Admitted | None = None) -> float | None:
    """One call of a process that does not reach the destination; for how long the breaker opened by it."""
    admitted = admitted or await timed.admitted(AdmitRequest(PLAN))
    return (
        await timed.gate.release(Release(admitted, DestinationHealth.UNREACHED, reporter=reporter))
    ).opened_s


async def test_local_faults_of_one_process_open_no_breaker_of_the_fleet(timed: Timed) -> None:
    for _ in range(40):
        assert await unreached(timed, SICK) is None


async def test_two_processes_that_do_not_reach_it_open_it(timed: Timed) -> None:
    for _ in range(9):
        assert await unreached(timed, SICK) is None
    assert await unreached(timed, WELL) == 60.0


async def test_calls_of_two_processes_count_together_with_bad_responses(timed: Timed) -> None:
    for _ in range(4):
        await call(timed, BAD)
        await unreached(timed, SICK)
    await unreached(timed, WELL)
    assert await call(timed, BAD) == 60.0


async def test_success_within_the_window_speaks_for_the_destination(timed: Timed) -> None:
    for reporter in [SICK, WELL] * 4:
        await unreached(timed, reporter)
    await call(timed, GOOD)
    for reporter in [SICK, WELL] * 20:
        assert await unreached(timed, reporter) is None
    timed.tick(31)
    for _ in range(9):
        assert await unreached(timed, SICK) is None
    assert await unreached(timed, WELL) == 60.0


async def test_report_of_one_process_is_forgotten_after_the_window(timed: Timed) -> None:
    for _ in range(9):
        await unreached(timed, SICK)
    timed.tick(31)
    assert await unreached(timed, WELL) is None


async def test_process_that_cannot_reach_it_keeps_no_breaker_open_by_its_probes(timed: Timed) -> None:
    await opened(timed)
    timed.tick(60)
    assert await unreached(timed, SICK) == 120.0
    timed.tick(120)
    assert await unreached(timed, SICK) is None, "its second probe makes room for others at once"
    probe = await timed.admitted(AdmitRequest(PLAN))
    assert probe.probe
    await timed.gate.release(Release(probe, GOOD))
    assert not (await timed.admitted(AdmitRequest(PLAN))).probe
