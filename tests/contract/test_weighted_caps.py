"""LaneStore and JobStore: a cap that tenants of different weights share (Q6, Q7, R17)."""

from __future__ import annotations

from collections import Counter

import pytest

from fairlead.engine.ports.lanes import GroupCap, TenantShare
from tests.contract.lane_steps import done, drained, jobs_of, tenants_of
from tests.contract.stores import ANY, Stores, a_session, enqueued

LIGHT, HEAVY = "b", "ac"


@pytest.mark.parametrize("demand", [1, 3, 10, 100])
@pytest.mark.parametrize("places", [1, 2])
async def test_a_light_tenant_in_front_does_not_hold_a_shared_cap_up(
    stores: Stores, places: int, demand: int
) -> None:
    """Its share of a claim may be less than one job; the places are not kept for it then."""
    session_id = await a_session(stores)
    await stores.lanes.set_group_cap(GroupCap("g", None, places))
    for name in HEAVY:
        await stores.lanes.set_tenant(TenantShare(name, weight=5.0))
    await stores.lanes.set_tenant(TenantShare(LIGHT, weight=0.1))
    for name in LIGHT + HEAVY:
        await enqueued(stores, *jobs_of(name, 5, group_key="g"))
    served = []
    for _ in range(6):
        jobs = await stores.jobs.claim(ANY, demand, session_id)
        assert len(jobs) == min(places, demand)
        await done(stores, jobs)
        served += jobs
    served += await drained(stores, session_id)
    assert Counter(tenants_of(served)) == dict.fromkeys(LIGHT + HEAVY, 5)
