"""LaneStore and JobStore: whose turn it is under a cap, and who need not wait for what it holds (Q6, Q7)."""

from __future__ import annotations

from collections import Counter

import pytest

from fairlead.engine.ports import GroupCap, TenantShare
from fairlead.policy.jobs.lane import LONGEST_WAIT_S
from tests.contract.lane_steps import claim_jobs, done, drained, jobs_of, tenants_of
from tests.contract.stores import ANY, Stores, a_session, enqueued

LIGHT, HEAVY = "b", "ac"
STEP_S = 10.0


@pytest.mark.parametrize("demand", [1, 3, 10, 100])
@pytest.mark.parametrize("slots", [1, 2])
async def test_a_light_tenant_in_front_does_not_hold_a_shared_cap_up(
    stores: Stores, slots: int, demand: int
) -> None:
    """Its share of a claim may be less than one job; the places are not kept for it then."""
    session_id = await a_session(stores)
    await stores.lanes.set_group_cap(GroupCap("g", None, slots))
    for name in HEAVY:
        await stores.lanes.set_tenant(TenantShare(name, weight=5.0))
    await stores.lanes.set_tenant(TenantShare(LIGHT, weight=0.1))
    for name in LIGHT + HEAVY:
        await enqueued(stores, *jobs_of(name, 5, group_key="g"))
    served = []
    for _ in range(6):
        jobs = await stores.jobs.claim(ANY, demand, session_id)
        assert len(jobs) == min(slots, demand)
        await done(stores, jobs)
        served += jobs
    served += await drained(stores, session_id)
    assert Counter(tenants_of(served)) == dict.fromkeys(LIGHT + HEAVY, 5)


async def test_lanes_of_a_full_cap_do_not_come_before_others_again_and_again(stores: Stores) -> None:
    """However many they are, and however little one claim asks for."""
    session_id = await a_session(stores)
    await stores.lanes.set_group_cap(GroupCap("g", None, 1))
    await enqueued(stores, *(job for n in range(200) for job in jobs_of(f"t{n}", 1, group_key="g")))
    assert len(await stores.jobs.claim(ANY, 1, session_id)) == 1  # and runs on
    await enqueued(stores, *jobs_of("z", 1, priority=3))
    assert tenants_of([job for _ in range(2) for job in await stores.jobs.claim(ANY, 1, session_id)]) == "z"


async def test_suspects_of_a_full_cap_do_not_stand_before_others(stores: Stores) -> None:
    survivor, victim = await a_session(stores, 1), await a_session(stores, 2)
    await stores.lanes.set_group_cap(GroupCap("g", None, 25))
    await enqueued(stores, *jobs_of("a", 25, group_key="g"), *jobs_of("b", 1, priority=3))
    assert len(await claim_jobs(stores, victim)) == 26
    await enqueued(stores, *jobs_of("a", 25, group_key="g"))
    await stores.sessions.mark_dead([victim])
    await stores.sessions.rescue(survivor, 0.0, 3, 100)
    assert len(await claim_jobs(stores, survivor)) == 25  # the cap is full again
    suspect = await stores.jobs.claim_suspect(ANY, survivor)
    assert suspect is not None
    assert suspect.tenant_id == "b"
    assert await stores.jobs.claim_suspect(ANY, survivor) is None


@pytest.mark.slow
@pytest.mark.parametrize("tenant", ["of a tenant", "shared"])
async def test_endless_urgent_work_under_a_cap_keeps_nobody_from_his_turn(
    stores: Stores, tenant: str
) -> None:
    """Who waits under a full cap waits for his turn: he ages as others do, and goes home once served (Q6)."""
    session_id = await a_session(stores)
    low = "a"
    if tenant == "shared":
        await stores.lanes.set_group_cap(GroupCap("g", None, 1))
    else:
        low = "b"
        await stores.lanes.set_tenant(TenantShare("b", max_running=1))
    await enqueued(stores, *jobs_of(low, 2, priority=2, group_key="g"))
    await enqueued(stores, *jobs_of("b", 60, priority=1, group_key="g"))
    waited_s, since_s = 0.0, None
    while waited_s <= LONGEST_WAIT_S and since_s is None:
        (running,) = await stores.jobs.claim(ANY, 3, session_id)
        assert await stores.jobs.claim(ANY, 3, session_id) == []  # it is full
        since_s = waited_s if running.priority == 2 else None
        await stores.pass_time(STEP_S)
        await stores.lanes.age(0.0)
        await done(stores, [running])
        waited_s += STEP_S
    assert since_s is not None
    assert since_s > LONGEST_WAIT_S / 4, "more urgent work comes first until then"
    (next_job,) = await stores.jobs.claim(ANY, 3, session_id)
    assert next_job.priority == 1
