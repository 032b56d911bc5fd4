"""LaneStore and JobStore: whose turn it is (Q2, Q6, R16, R17)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from fairlead.engine.ports import ClaimFilter, Rescheduled, Swept, TenantShare, Tier
from fairlead.errors import InvalidInputError
from fairlead.policy.jobs.lane import LONGEST_WAIT_S, QUANTUM
from tests.contract.lane_steps import (
    LINGER_S,
    claim_jobs,
    done,
    jobs_of,
    longest_run,
    looked_about,
    tenant,
    tenants_of,
)
from tests.contract.stores import ANY, Stores, a_session, enqueued
from tests.support.engine import new_job

# ---- order -----------------------------------------------------------------------------------------


async def test_fairness_off_is_first_in_first_out(stores: Stores) -> None:
    """One lane, which is what work without tenants and groups is: due time, then id."""
    session_id = await a_session(stores)
    last, *waiting = jobs_of("a", 20)
    await enqueued(stores, replace(last, delay_s=2), *reversed(waiting))  # in one moment: the ids tell
    await stores.pass_time(1)
    later = jobs_of("a", 20)
    await enqueued(stores, *later)
    await stores.pass_time(2)
    in_order = [job.job_id for job in [*waiting, *later, last]]
    assert [job.job_id for job in await claim_jobs(stores, session_id, demand=7)] == in_order


async def test_fairness_on_is_at_most_three_consecutive(stores: Stores) -> None:
    session_id = await a_session(stores)
    await enqueued(stores, *jobs_of("a", 200), *jobs_of("b", 200, group_key="g"), *jobs_of("c", 200))
    for demand in (100, 10, 4):
        batch = await stores.jobs.claim(ANY, demand, session_id)
        assert longest_run(batch) <= QUANTUM
    assert set(tenants_of(await claim_jobs(stores, session_id, 9, demand=1))) == {"a", "b", "c"}


async def test_the_quantum_holds_for_a_tenant_with_many_lanes(stores: Stores) -> None:
    session_id = await a_session(stores)
    mine = [job for n in range(10) for job in jobs_of("a", 20, group_key=f"g{n}")]
    await enqueued(stores, *mine, *jobs_of("b", 200))
    for _ in range(5):
        assert longest_run(await stores.jobs.claim(ANY, 30, session_id)) <= QUANTUM


async def test_the_quantum_holds_whatever_the_weight(stores: Stores) -> None:
    session_id = await a_session(stores)
    await stores.lanes.set_tenant(TenantShare("a", weight=1000.0))
    await enqueued(stores, *jobs_of("a", 200), *jobs_of("b", 200))
    for _ in range(3):
        batch = await stores.jobs.claim(ANY, 40, session_id)
        assert longest_run(batch) <= QUANTUM
        assert tenants_of(batch).count("a") >= 20


async def test_more_urgent_work_of_anybody_comes_first(stores: Stores) -> None:
    session_id = await a_session(stores)
    for priority in (3, 2, 1, 0):
        await enqueued(stores, *jobs_of("a", 5, priority=priority), *jobs_of("b", 5, priority=priority))
    order = [job.priority for job in await claim_jobs(stores, session_id, demand=7)]
    assert order == sorted(order)
    assert len(order) == 40


# ---- nothing is left lying -------------------------------------------------------------------------


@pytest.mark.parametrize("others", [0, 1, 5])
async def test_a_tenant_with_much_work_fills_what_others_leave(stores: Stores, others: int) -> None:
    session_id = await a_session(stores)
    await enqueued(stores, *jobs_of("a", 100), *(new_job(tenant_id=f"t{n}") for n in range(others)))
    two_claims = [await stores.jobs.claim(ANY, 50, session_id) for _ in range(2)]
    assert len(two_claims[0]) + len(two_claims[1]) >= 50
    assert len(await claim_jobs(stores, session_id)) + len(two_claims[0]) + len(two_claims[1]) == 100 + others


async def test_jobs_outside_a_claim_filter_block_no_other_job(stores: Stores) -> None:
    session_id = await a_session(stores)
    await enqueued(
        stores,
        *jobs_of("a", 30, kind="mail"),
        *jobs_of("b", 30, provider="xero"),
        *jobs_of("c", 10),
        *jobs_of("d", 10, provider="shopify"),
    )
    claim_filter = ClaimFilter(kinds=("work",), providers=("shopify",))
    assert tenants_of(await claim_jobs(stores, session_id, claim_filter=claim_filter)) == "d" * 10
    assert Counter(
        tenants_of(await claim_jobs(stores, session_id, claim_filter=ClaimFilter(kinds=("work",))))
    ) == {
        "b": 30,
        "c": 10,
    }
    assert tenants_of(await claim_jobs(stores, session_id)) == "a" * 30


async def test_each_queue_has_its_turn(stores: Stores) -> None:
    session_id = await a_session(stores)
    await enqueued(stores, *jobs_of("a", 50, queue="mail"), *jobs_of("a", 50, queue="sync"))
    both = ClaimFilter(queues=("mail", "sync"))
    jobs = await claim_jobs(stores, session_id, 20, demand=2, claim_filter=both)
    queues = Counter(job.queue for job in jobs)
    assert min(queues["mail"], queues["sync"]) >= 8


# ---- no banked credit ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("demand", [2, 10])
@pytest.mark.parametrize("extra", [0, 100], ids=["ran_empty", "goes_on"])
async def test_late_tenant_shares_at_once_without_a_burst(stores: Stores, extra: int, demand: int) -> None:
    session_id = await a_session(stores)
    await enqueued(stores, *jobs_of("a", 1000 + extra))
    await done(stores, await claim_jobs(stores, session_id, 1000))
    for _ in range(0 if extra else 3):  # it is seen to be empty, and forgotten
        assert await claim_jobs(stores, session_id) == []
        await stores.pass_time(LINGER_S + 0.1)
    await enqueued(stores, *jobs_of("b", 100))
    await enqueued(stores, *jobs_of("a", 100 - extra))
    jobs = await claim_jobs(stores, session_id, 60, demand=demand)
    assert longest_run(jobs) <= 2 * QUANTUM  # the end of one claim and the beginning of the next
    for end in range(12, 61, 12):
        assert abs(tenants_of(jobs[:end]).count("b") - end / 2) <= QUANTUM


@pytest.mark.slow
async def test_idle_tenant_returns_without_a_burst(stores: Stores) -> None:
    session_id = await a_session(stores)
    await enqueued(stores, *jobs_of("a", 400), *jobs_of("b", 1))
    await done(stores, await claim_jobs(stores, session_id, 300, demand=10))
    await enqueued(stores, *jobs_of("b", 100))
    jobs = tenants_of(await claim_jobs(stores, session_id, 40, demand=4))
    assert 16 <= jobs.count("b") <= 24
    assert "b" in jobs[: 2 * QUANTUM]


@pytest.mark.parametrize("demand", [2, 10])
async def test_work_that_nobody_takes_gives_no_credit_to_who_comes(stores: Stores, demand: int) -> None:
    """Lanes of a kind without a worker stay far behind: that is no place to begin for others."""
    session_id = await a_session(stores)
    await enqueued(stores, *jobs_of("a", 300), *jobs_of("b", 5, kind="other"))
    claim_filter = ClaimFilter(kinds=("work",))
    await done(stores, await claim_jobs(stores, session_id, 200, demand=20, claim_filter=claim_filter))
    await stores.lanes.raise_floors(0.0)
    await enqueued(stores, *jobs_of("c", 60))
    jobs = tenants_of(await claim_jobs(stores, session_id, 40, demand=demand, claim_filter=claim_filter))
    assert "c" in jobs[: 2 * QUANTUM]
    assert abs(jobs.count("c") - 20) <= QUANTUM


async def test_share_denied_by_the_quantum_is_not_saved_up(stores: Stores) -> None:
    session_id = await a_session(stores)
    await stores.lanes.set_tenant(TenantShare("a", weight=1000.0))
    await enqueued(stores, *jobs_of("a", 500), *jobs_of("b", 200))
    await done(stores, await claim_jobs(stores, session_id, 400, demand=40))
    await enqueued(stores, *jobs_of("c", 200))
    rest = tenants_of(await claim_jobs(stores, session_id, 80, demand=40))
    assert min(rest.count("b"), rest.count("c")) >= 6  # a quarter is theirs, half of it each's


@pytest.mark.parametrize("demand", [2, 10])
async def test_a_pause_saves_up_no_turns(stores: Stores, demand: int) -> None:
    session_id = await a_session(stores)
    await enqueued(stores, *jobs_of("a", 200), *jobs_of("b", 200))
    await stores.lanes.pause(tenant("b"), None, reason="holiday", by="test")
    await done(stores, await claim_jobs(stores, session_id, 100, demand=20))
    await stores.lanes.resume(tenant("b"))
    jobs = tenants_of(await claim_jobs(stores, session_id, 40, demand=demand))
    assert 16 <= jobs.count("b") <= 24


@pytest.mark.parametrize("demand", [2, 10])
async def test_a_cap_saves_up_no_turns(stores: Stores, demand: int) -> None:
    session_id = await a_session(stores)
    await stores.lanes.set_tenant(TenantShare("a", max_running=1))
    await enqueued(stores, *jobs_of("a", 200), *jobs_of("b", 200))
    assert tenants_of(await claim_jobs(stores, session_id, 100, demand=20)).count("a") == 1
    await stores.lanes.set_tenant(TenantShare("a"))
    jobs = tenants_of(await claim_jobs(stores, session_id, 40, demand=demand))
    assert 16 <= jobs.count("a") <= 24


async def test_a_delayed_lane_is_not_left_behind(stores: Stores) -> None:
    session_id = await a_session(stores)
    await enqueued(stores, *jobs_of("a", 300), new_job(tenant_id="b", delay_s=30))
    assert set(tenants_of(await claim_jobs(stores, session_id, 200, demand=20))) == {"a"}
    await stores.pass_time(31)
    await looked_about(stores, session_id)
    assert "b" in tenants_of(await claim_jobs(stores, session_id, 2 * QUANTUM))


# ---- shares ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("demand", [1, 3, 10, 100])
async def test_weights_three_to_one(stores: Stores, demand: int) -> None:
    session_id = await a_session(stores)
    await stores.lanes.set_tenant(TenantShare("a", weight=3.0))
    await enqueued(stores, *jobs_of("a", 500), *jobs_of("b", 500))
    jobs = await claim_jobs(stores, session_id, 400, demand=demand)
    assert abs(tenants_of(jobs).count("a") - 300) <= 0.02 * 400


async def test_weights_among_many(stores: Stores) -> None:
    session_id = await a_session(stores)
    weights = {"a": 0.5, "b": 1.0, "c": 2.0, "d": 1.5}
    for name, weight in weights.items():
        await stores.lanes.set_tenant(TenantShare(name, weight=weight))
    await enqueued(stores, *(job for name in weights for job in jobs_of(name, 150)))
    served = Counter(tenants_of(await claim_jobs(stores, session_id, 250, demand=25)))
    for name, weight in weights.items():
        assert abs(served[name] - 50 * weight) <= 0.02 * 250


async def test_many_groups_earn_no_extra_share(stores: Stores) -> None:
    session_id = await a_session(stores)
    mine = [job for n in range(10) for job in jobs_of("a", 40, group_key=f"g{n}")]
    await enqueued(stores, *mine, *jobs_of("b", 400))
    share = tenants_of(await claim_jobs(stores, session_id, 400, demand=20)).count("a") / 400
    assert 0.4 <= share <= 0.52


async def test_many_small_groups_do_not_all_come_first(stores: Stores) -> None:
    session_id = await a_session(stores)
    small = [new_job(tenant_id="a", group_key=f"g{n}") for n in range(60)]
    await enqueued(stores, *small)
    await enqueued(stores, *jobs_of("b", 60))
    first = tenants_of(await claim_jobs(stores, session_id, 60, demand=20))
    assert first.count("b") >= 29
    assert first.count("a") >= 10


async def test_a_tier_sets_the_weight_of_its_tenants(stores: Stores) -> None:
    session_id = await a_session(stores)
    await stores.lanes.set_tier(Tier("gold", weight=3.0))
    await stores.lanes.set_tenant(TenantShare("a", tier="gold"))
    await stores.lanes.set_tenant(TenantShare("b", tier="gold", weight=1.0))  # its own value wins
    await enqueued(stores, *jobs_of("a", 200), *jobs_of("b", 200))
    assert abs(tenants_of(await claim_jobs(stores, session_id, 200)).count("a") - 150) <= 4


async def test_a_new_weight_holds_for_the_backlog_at_once(stores: Stores) -> None:
    session_id = await a_session(stores)
    await stores.lanes.set_tier(Tier("gold"))
    await stores.lanes.set_tenant(TenantShare("a", tier="gold"))
    await enqueued(stores, *jobs_of("a", 300), *jobs_of("b", 300))
    assert abs(tenants_of(await claim_jobs(stores, session_id, 100, demand=10)).count("a") - 50) <= 2
    assert await stores.lanes.set_tier(Tier("gold", weight=3.0)) == 1
    assert abs(tenants_of(await claim_jobs(stores, session_id, 200, demand=10)).count("a") - 150) <= 4
    await stores.lanes.set_tenant(TenantShare("a"))  # as if nothing had been set
    assert abs(tenants_of(await claim_jobs(stores, session_id, 100, demand=10)).count("a") - 50) <= 2


async def test_tenants_and_tiers_are_read_as_set(stores: Stores) -> None:
    lanes = stores.lanes
    assert (await lanes.tenant("a"), await lanes.tenants(9), list(await lanes.tiers())) == (None, [], [])
    gold, bronze = Tier("gold", 3.0, 50), Tier("bronze", None, 2)
    assert await lanes.set_tier(gold) == 0
    assert await lanes.set_tier(bronze) == 0
    a, b = TenantShare("a", tier="gold"), TenantShare("b", weight=0.5, max_running=7)
    await lanes.set_tenant(b)
    await lanes.set_tenant(a)
    assert await lanes.set_tier(gold) == 1
    assert sorted(await lanes.tiers(), key=lambda tier: tier.name) == [bronze, gold]
    assert await lanes.tenants(9) == [a, b]
    assert await lanes.tenants(1) == [a]
    await lanes.set_tenant(changed := TenantShare("b", max_running=3))
    assert await lanes.tenant("b") == changed
    await lanes.set_tenant(TenantShare("b"))
    assert await lanes.tenant("b") is None
    assert await lanes.tenants(9) == [a]


async def test_a_tier_is_there_while_anybody_has_it(stores: Stores) -> None:
    lanes = stores.lanes
    with pytest.raises(InvalidInputError, match="gold") as error:
        await lanes.set_tenant(TenantShare("a", tier="gold"))
    assert error.value.tenant == "a"
    assert await lanes.tenant("a") is None
    await lanes.set_tier(Tier("gold", weight=2.0))
    await lanes.set_tenant(TenantShare("a", tier="gold"))
    with pytest.raises(InvalidInputError, match="gold") as error:
        await lanes.remove_tier("gold")
    assert error.value.hint
    assert await lanes.tiers() == [Tier("gold", weight=2.0)]
    await lanes.set_tenant(TenantShare("a"))
    assert await lanes.remove_tier("gold")
    assert not await lanes.remove_tier("gold")
    assert await lanes.tiers() == []


# ---- waiting too long (aging) ----------------------------------------------------------------------


async def wait_for_low(stores: Stores, *, aging: bool, step_s: float = 20.0) -> float | None:
    """Seconds until one job of low priority began, while more urgent work never ends; None: it did not."""
    session_id = await a_session(stores)
    await enqueued(stores, *jobs_of("a", 2, priority=3))
    waited_s = 0.0
    while waited_s <= LONGEST_WAIT_S:
        await enqueued(stores, *(job for level in (0, 1, 2) for job in jobs_of("b", 6, priority=level)))
        if "a" in tenants_of(await claim_jobs(stores, session_id, 6, demand=3)):
            return waited_s
        await stores.pass_time(step_s)
        waited_s += step_s
        if aging:
            await stores.lanes.age(0.0)
    return None


@pytest.mark.slow
async def test_nothing_waits_for_its_turn_beyond_five_minutes(stores: Stores) -> None:
    waited_s = await wait_for_low(stores, aging=True)
    assert waited_s is not None
    assert waited_s > LONGEST_WAIT_S / 2  # and the more urgent come first until then


@pytest.mark.slow
async def test_without_aging_it_would_wait_for_ever(stores: Stores) -> None:
    assert await wait_for_low(stores, aging=False) is None


async def test_once_served_an_aged_lane_is_back_in_its_class(stores: Stores) -> None:
    session_id = await a_session(stores)
    await enqueued(stores, *jobs_of("a", 10, priority=3), *jobs_of("b", 40, priority=0))
    for _ in range(4):
        await stores.pass_time(LONGEST_WAIT_S / 4 + 1)
        await stores.lanes.age(0.0)
    jobs = tenants_of(await claim_jobs(stores, session_id, 30, demand=3))
    assert "a" in jobs[: 2 * QUANTUM]
    assert jobs.count("a") <= QUANTUM
    assert "a" not in jobs[2 * QUANTUM + 3 :]


async def test_lanes_age_only_when_they_waited(stores: Stores) -> None:
    session_id = await a_session(stores)
    await enqueued(stores, *jobs_of("a", 10, priority=3), *jobs_of("b", 10, priority=0))
    await enqueued(stores, new_job(tenant_id="c", priority=3, delay_s=200))
    assert await stores.lanes.age(0.0) == 0
    await stores.pass_time(LONGEST_WAIT_S / 4 - 5)
    assert await stores.lanes.age(0.0) == 0
    await claim_jobs(stores, session_id, 13)  # lane a is served: its wait begins anew
    await stores.pass_time(10)
    assert await stores.lanes.age(0.0) == 0
    await stores.pass_time(LONGEST_WAIT_S / 4)
    assert await stores.lanes.age(0.0) == 1


async def test_upkeep_is_done_once_across_the_fleet(stores: Stores) -> None:
    await a_session(stores)
    await enqueued(stores, *jobs_of("a", 1, priority=1))
    await stores.pass_time(LONGEST_WAIT_S / 4 + 1)
    assert await stores.lanes.age(5.0) == 1
    await enqueued(stores, *jobs_of("b", 1, priority=1))
    await stores.pass_time(2)
    assert await stores.lanes.age(5.0) == 0
    assert await stores.lanes.raise_floors(5.0)
    assert not await stores.lanes.raise_floors(5.0)
    assert await stores.lanes.sweep(30.0) is not None
    await stores.pass_time(28)
    assert await stores.lanes.raise_floors(5.0)
    assert await stores.lanes.sweep(30.0) is None
    await stores.pass_time(3)
    assert await stores.lanes.sweep(30.0) == Swept()  # nothing had to be mended


# ---- when to look again ----------------------------------------------------------------------------


async def test_the_next_wake_is_told(stores: Stores) -> None:
    session_id = await a_session(stores)
    await enqueued(stores, new_job(tenant_id="a"), new_job(tenant_id="b", delay_s=40))
    assert await stores.jobs.next_due_in_s(ANY) == 0
    (job,) = await claim_jobs(stores, session_id)
    await stores.jobs.acknowledge([Rescheduled(job.job_id, job.lease_id, 20.0)])
    await stores.pass_time(2)  # whatever lingered is over
    assert await claim_jobs(stores, session_id) == []
    due_s = await stores.jobs.next_due_in_s(ANY)
    assert due_s is not None
    assert 15 < due_s <= 18
    await stores.pass_time(17)
    assert await claim_jobs(stores, session_id) == []
    await stores.pass_time(2)
    assert await stores.jobs.next_due_in_s(ANY) == 0
    assert tenants_of(await claim_jobs(stores, session_id)) == "a"
