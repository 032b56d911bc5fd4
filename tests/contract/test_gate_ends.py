"""Ends that nobody waits for, at every gate: surely done, and before what is asked later."""

from __future__ import annotations

import asyncio
from itertools import count

from fairlead.engine.ports import AdmitRequest, Admitted, GateRefusal, Queued, Release, Released
from fairlead.policy.limits.breaker import DestinationHealth
from fairlead.policy.limits.limit import BreakerRule, Domain, Plan, PoolLimit
from fairlead.policy.limits.pool import Holder
from tests.contract.gates import Timed

DOMAIN = Domain(("tenant", "a"))
_ids = count(1)


def ask(plan: Plan) -> AdmitRequest:
    """One more asker."""
    return AdmitRequest(plan, holder=Holder(next(_ids), "process"))


async def test_admission_after_an_unawaited_end_finds_its_slot_free(timed: Timed) -> None:
    """Nobody waits for the end; however many connections there are, one who asks next finds its slot free."""
    plan, results = Plan(DOMAIN, pool=PoolLimit("p", 1)), []
    admitted = await timed.admitted(ask(plan))
    for _ in range(30):
        timed.gate.release_soon(Release(admitted), results.append)
        admitted = await timed.admitted(ask(plan))
    assert results == [Released(was_held=True)] * 30


async def test_an_end_stands_before_what_is_asked_with_it(timed: Timed) -> None:
    """In one batch, too, and where the next call of the same slots meets other limits."""
    limit, results = PoolLimit("p", 1), []
    admitted = await timed.admitted(ask(Plan(DOMAIN, pool=limit)))
    other = Plan(Domain(("tenant", "b")), pool=limit)
    guarded = Plan(DOMAIN, pool=limit, breaker=BreakerRule("c|h"))
    asking = asyncio.gather(*(timed.admitted(ask(plan)) for plan in (other, guarded)))
    timed.gate.release_soon(Release(admitted), results.append)
    await asking
    assert results == [Released(was_held=True)]


async def test_the_slot_of_a_call_that_may_run_on_ends_with_its_lease(timed: Timed) -> None:
    plan = Plan(DOMAIN, pool=PoolLimit("p", 1, lease_s=3, claim_s=1))
    admitted = await timed.admitted(ask(plan))
    assert await timed.gate.release(Release(admitted, keeps_slot=True)) == Released(was_held=True)
    assert isinstance(await timed.admit(ask(plan)), GateRefusal)
    timed.tick(3.001)
    await timed.admitted(ask(plan))


async def test_beyond_the_bound_of_a_line_each_tenant_has_one_place(timed: Timed) -> None:
    """R50. Where tenants share slots the crowd of one keeps nobody else out."""
    plan = Plan(DOMAIN, pool=PoolLimit("p", 1, max_waiters=2))

    def waiting(tenant: str) -> AdmitRequest:
        return AdmitRequest(plan, holder=Holder(next(_ids), "process", tenant), wait_s=30)

    await timed.admitted(ask(plan))
    answers = [await timed.admit(waiting(tenant)) for tenant in ("a", "a", "a", "b", "b", "c", "d")]
    is_queued = [isinstance(answer, Queued) for answer in answers]
    assert is_queued == [True, True, False, True, False, True, False], "no more than twice the bound"


RULE = BreakerRule("c|h", failures=1, open_s=1, ramp_s=4)


async def probe_of(timed: Timed) -> Admitted:
    """The one call that may go, where the breaker has opened."""
    plan = Plan(DOMAIN, breaker=RULE, pool=PoolLimit("p", 50))
    failed = await timed.admitted(ask(plan))
    await timed.gate.release(Release(failed, DestinationHealth.UNHEALTHY))
    timed.tick(1)
    probe = await timed.admitted(ask(plan))
    assert isinstance(await timed.admit(ask(plan)), GateRefusal)
    return probe


async def test_the_head_of_a_probe_lets_others_in_gradually_and_keeps_its_slot(timed: Timed) -> None:
    probe, results = await probe_of(timed), []
    timed.gate.release_soon(Release(probe, DestinationHealth.RESPONDING), results.append)
    assert await admitted_of(timed, probe.plan, 5) == 2, "as after closing"
    assert results == [Released(was_held=True, closed=True)]
    timed.tick(1)
    assert await admitted_of(timed, probe.plan, 5) == 4
    assert await timed.gate.release(Release(probe, DestinationHealth.HEALTHY)) == Released(was_held=True)


async def test_a_probe_that_breaks_off_after_its_head_opens_the_breaker_again(timed: Timed) -> None:
    probe, results = await probe_of(timed), []
    timed.gate.release_soon(Release(probe, DestinationHealth.RESPONDING), results.append)
    await timed.admitted(ask(probe.plan))
    assert await timed.gate.release(Release(probe, DestinationHealth.UNHEALTHY)) == Released(
        was_held=True, opened_s=2.0
    )
    assert isinstance(await timed.admit(ask(probe.plan)), GateRefusal)


async def test_after_the_ramp_the_end_of_a_probe_decides_nothing_more(timed: Timed) -> None:
    probe, results = await probe_of(timed), []
    timed.gate.release_soon(Release(probe, DestinationHealth.RESPONDING), results.append)
    await timed.admitted(ask(probe.plan))
    timed.tick(4)
    await timed.admitted(ask(probe.plan))
    await timed.gate.release(Release(probe, DestinationHealth.UNHEALTHY))
    assert await admitted_of(timed, probe.plan, 20) == 20


async def admitted_of(timed: Timed, plan: Plan, request_count: int) -> int:
    """How many of so many more are let in."""
    return sum([isinstance(await timed.admit(ask(plan)), Admitted) for _ in range(request_count)])
