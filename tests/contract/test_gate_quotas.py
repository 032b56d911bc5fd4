"""What a tenant may hold at once, of all pools (G4)."""

from __future__ import annotations

from itertools import count

from fairlead.engine.ports import AdmitRequest, Admitted, GateRefusal, Queued, RefusedBy, Release
from fairlead.policy.limits.limit import Domain, Plan, PoolLimit, QuotaLimit
from fairlead.policy.limits.pool import Holder
from tests.contract.gates import Timed

DOMAIN = Domain(("tenant", "a"))
_ids = count(1)


async def test_a_lease_that_ended_is_not_claimed_beyond_the_quota(timed: Timed) -> None:
    """Its slot is free, but two calls of the tenant run by now: who lost it stands in line as any other."""
    quota = QuotaLimit("t", 2)
    beside = Plan(DOMAIN, quota=quota, pool=PoolLimit("beside", 3))
    slots = Plan(DOMAIN, quota=quota, pool=PoolLimit("pool", 3, lease_s=3.0, claim_s=1.0))
    first, lost, second = (Holder(next(_ids), "p1", quota=quota) for _ in range(3))
    await timed.admitted(AdmitRequest(beside, holder=first))
    await timed.admitted(AdmitRequest(slots, holder=lost))
    timed.tick(6.0)
    await timed.admitted(AdmitRequest(beside, holder=second))
    assert isinstance(await timed.admit(AdmitRequest(slots, holder=lost, wait_s=2.0)), Queued)


async def test_leases_that_end_by_time_free_the_quota_though_nobody_asks_their_pools(timed: Timed) -> None:
    quota = QuotaLimit("t", 2)

    def ask(pool: str) -> AdmitRequest:
        return AdmitRequest(
            Plan(DOMAIN, quota=quota, pool=PoolLimit(pool, 9)), holder=Holder(next(_ids), "p1", quota=quota)
        )

    await timed.admitted(ask("p"))
    timed.tick(10.0)
    await timed.admitted(ask("q"))
    assert isinstance(await timed.admit(ask("r")), GateRefusal)
    timed.tick(21.0)
    await timed.admitted(ask("r"))
    assert await timed.admit(ask("r")) == GateRefusal(RefusedBy.QUOTA, 9.0)


async def test_a_crowd_of_one_tenant_at_its_quota_holds_up_nobody_else(timed: Timed) -> None:
    crowd, other = QuotaLimit("crowd", 1), QuotaLimit("other", 1)
    pool = PoolLimit("pool", 2, lease_s=300.0)

    def ask(quota: QuotaLimit, waited_s: float = 0.0) -> AdmitRequest:
        holder = Holder(next(_ids), "p1", quota=quota)
        return AdmitRequest(
            Plan(DOMAIN, quota=quota, pool=pool), holder=holder, wait_s=60.0, waited_s=waited_s
        )

    await timed.admitted(ask(crowd))
    admitted = await timed.admitted(ask(other))
    for number in range(150):
        assert isinstance(await timed.admit(ask(crowd, 1000.0 - number)), Queued)
    late = ask(other)
    assert isinstance(await timed.admit(late), Queued)
    await timed.gate.release(Release(admitted))
    assert isinstance(await timed.admit(late), Admitted)
