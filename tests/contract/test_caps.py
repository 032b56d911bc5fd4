"""LaneStore: never more of a tenant or a group at once than was set, and never idle below it (Q6)."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from uuid import UUID

import pytest

from fairlead.engine.ports import (
    Cancelled,
    ClaimFilter,
    Completed,
    GroupCap,
    Job,
    Rescheduled,
    TenantShare,
    Tier,
)
from tests.contract.lane_steps import LINGER_S, claim_jobs, done, jobs_of, tenants_of
from tests.contract.stores import ANY, Stores, a_session, discarded, enqueued, failed
from tests.support.engine import new_job

ALL_QUEUES = ClaimFilter(queues=("default", "mail", "sync"))


async def after_a_look(stores: Stores, session_id: UUID, claim_filter: ClaimFilter = ANY) -> list[Job]:
    """What is to be had once free places have been noticed, at the latest."""
    jobs = await claim_jobs(stores, session_id, claim_filter=claim_filter)
    await stores.pass_time(LINGER_S + 0.1)
    return jobs + await claim_jobs(stores, session_id, claim_filter=claim_filter)


async def cap_tenant(stores: Stores) -> None:
    await stores.lanes.set_tenant(TenantShare("a", max_running=2))


async def cap_tier(stores: Stores) -> None:
    await stores.lanes.set_tier(Tier("free", max_running=2))
    await stores.lanes.set_tenant(TenantShare("a", tier="free"))


async def cap_own_before_tier(stores: Stores) -> None:
    await stores.lanes.set_tier(Tier("free", max_running=5))
    await stores.lanes.set_tenant(TenantShare("a", tier="free", max_running=2))


async def cap_tier_later(stores: Stores) -> None:
    await stores.lanes.set_tier(Tier("free"))
    await stores.lanes.set_tenant(TenantShare("a", tier="free"))
    assert await stores.lanes.set_tier(Tier("free", max_running=2)) == 1


async def cap_group_of_tenant(stores: Stores) -> None:
    await stores.lanes.set_group_cap(GroupCap("g", "a", 2))


async def cap_group_of_all(stores: Stores) -> None:
    await stores.lanes.set_group_cap(GroupCap("g", None, 2))


async def cap_several(stores: Stores) -> None:
    await stores.lanes.set_tenant(TenantShare("a", max_running=9))
    await stores.lanes.set_group_cap(GroupCap("g", "a", 3))
    await stores.lanes.set_group_cap(GroupCap("g", None, 2))


SETTERS = [
    cap_tenant,
    cap_tier,
    cap_own_before_tier,
    cap_tier_later,
    cap_group_of_tenant,
    cap_group_of_all,
    cap_several,
]
Setter = Callable[[Stores], Awaitable[None]]


@pytest.mark.parametrize("backlog_first", [False, True], ids=["set_before", "set_on_a_backlog"])
@pytest.mark.parametrize("setter", SETTERS)
async def test_no_more_than_the_cap_and_others_run(
    stores: Stores, setter: Setter, backlog_first: bool
) -> None:
    session_id = await a_session(stores)
    if not backlog_first:
        await setter(stores)
    await enqueued(stores, *jobs_of("a", 10, group_key="g"), *jobs_of("b", 10))
    if backlog_first:
        await setter(stores)
    jobs = await after_a_look(stores, session_id)
    assert Counter(tenants_of(jobs)) == {"a": 2, "b": 10}
    due_s = await stores.jobs.next_due_in_s(ANY)
    assert due_s is not None  # a place may get free in any other process
    assert 0 < due_s <= LINGER_S
    await done(stores, jobs)
    assert tenants_of(await after_a_look(stores, session_id)) == "aa"


async def test_a_tenants_cap_counts_all_it_has(stores: Stores) -> None:
    """Over queues, kinds, classes, providers and groups."""
    session_id = await a_session(stores)
    await stores.lanes.set_tenant(TenantShare("a", max_running=3))
    kinds = [
        {"queue": "mail"},
        {"queue": "sync", "kind": "other"},
        {"priority": 0},
        {"priority": 3},
        {"provider": "shopify", "group_key": "g"},
        {},
    ]
    await enqueued(stores, *(new_job(tenant_id="a", **kind) for kind in kinds * 2))
    ended = 0
    for claim_filter in [ClaimFilter(queues=("mail",)), ClaimFilter(queues=("sync",)), ANY, ALL_QUEUES] * 4:
        jobs = await after_a_look(stores, session_id, claim_filter)
        assert len(jobs) <= 3
        assert (await stores.jobs.counts()).get("running", 0) <= 3
        await done(stores, jobs)
        ended += len(jobs)
    assert ended == 12


async def test_our_own_work_is_neither_held_nor_counted(stores: Stores) -> None:
    """A tenant at its cap keeps its tokens; and its refreshes take no place from its work."""
    session_id = await a_session(stores)
    await stores.lanes.set_tenant(TenantShare("a", max_running=1))
    await stores.lanes.set_group_cap(GroupCap("g", "a", 1))
    ours = {"tenant_id": "a", "group_key": "g", "kind": "token.refresh"}
    await enqueued(stores, *(new_job(**ours) for _ in range(3)))
    assert len(await claim_jobs(stores, session_id)) == 3
    await enqueued(stores, *(new_job(tenant_id="a", group_key="g") for _ in range(3)), new_job(**ours))
    jobs = await after_a_look(stores, session_id)
    assert sorted(job.kind for job in jobs) == ["token.refresh", "work"]


async def test_a_shared_group_counts_all_tenants(stores: Stores) -> None:
    session_id = await a_session(stores)
    await stores.lanes.set_group_cap(GroupCap("g", None, 3))
    await enqueued(stores, *(job for name in "abcd" for job in jobs_of(name, 3, group_key="g")))
    await enqueued(stores, *jobs_of("a", 2, group_key="h"), *jobs_of("b", 2, queue="mail", group_key="g"))
    jobs = await after_a_look(stores, session_id, ALL_QUEUES)
    assert Counter(job.group_key for job in jobs) == {"g": 3, "h": 2}
    job_count = len(jobs)
    while jobs:
        await done(stores, jobs)
        jobs = await after_a_look(stores, session_id, ALL_QUEUES)
        assert len(jobs) <= 3
        job_count += len(jobs)
    assert job_count == 16


async def test_a_group_of_one_tenant_is_not_anothers(stores: Stores) -> None:
    session_id = await a_session(stores)
    await stores.lanes.set_group_cap(GroupCap("g", "a", 1))
    await enqueued(stores, *jobs_of("a", 3, group_key="g"), *jobs_of("b", 3, group_key="g"), *jobs_of("a", 3))
    jobs = await after_a_look(stores, session_id)
    assert Counter((job.tenant_id, job.group_key) for job in jobs) == {
        ("a", "g"): 1,
        ("b", "g"): 3,
        ("a", ""): 3,
    }


async def test_work_of_other_groups_fills_the_batch(stores: Stores) -> None:
    """A lane whose cap is full stands in nobody's way, not even its own tenant's."""
    session_id = await a_session(stores)
    await stores.lanes.set_group_cap(GroupCap("g", "a", 1))
    await enqueued(stores, *jobs_of("a", 50, group_key="g"), *jobs_of("a", 50))
    assert len(await claim_jobs(stores, session_id, demand=20)) == 51


async def test_room_left_by_a_cap_goes_to_the_same_class_first(stores: Stores) -> None:
    session_id = await a_session(stores)
    await stores.lanes.set_tenant(TenantShare("a", max_running=1))
    urgent = [*jobs_of("a", 150), *jobs_of("b", 150)]
    await enqueued(stores, *urgent, *jobs_of("c", 150, priority=3))
    assert tenants_of(await stores.jobs.claim(ANY, 100, session_id)).count("b") == 99


async def test_a_smaller_cap_lets_go_on_what_runs(stores: Stores) -> None:
    session_id = await a_session(stores)
    await enqueued(stores, *jobs_of("a", 12))
    running = await claim_jobs(stores, session_id, 4)
    await stores.lanes.set_tenant(TenantShare("a", max_running=2))
    for remaining in (4, 3, 2):
        assert await after_a_look(stores, session_id) == []
        assert (await stores.jobs.counts())["running"] == remaining
        await done(stores, [running.pop()])
    assert len(await after_a_look(stores, session_id)) == 1
    await done(stores, running)


async def test_a_greater_cap_and_none_at_all_hold_at_once(stores: Stores) -> None:
    session_id = await a_session(stores)
    await stores.lanes.set_tenant(TenantShare("a", max_running=1))
    await stores.lanes.set_group_cap(GroupCap("g", "a", 1))
    await enqueued(stores, *jobs_of("a", 6), *jobs_of("a", 6, group_key="g"))
    assert len(await after_a_look(stores, session_id)) == 1
    await stores.lanes.set_tenant(TenantShare("a", max_running=3))
    assert len(await claim_jobs(stores, session_id)) == 2
    await stores.lanes.set_tenant(TenantShare("a"))
    jobs = await claim_jobs(stores, session_id)
    assert len(jobs) >= 3  # all of the lane without a group
    assert await stores.lanes.clear_group_cap("g", "a")
    assert not await stores.lanes.clear_group_cap("g", "a")
    assert not await stores.lanes.clear_group_cap("g", None)
    assert len(jobs) + len(await claim_jobs(stores, session_id)) == 9


async def test_the_caps_of_groups_are_told(stores: Stores) -> None:
    caps = [GroupCap("g", None, 5), GroupCap("g", "a", 2), GroupCap("h", "b", 1)]
    for cap in caps:
        await stores.lanes.set_group_cap(cap)
    await stores.lanes.set_tenant(TenantShare("a", max_running=9))  # no cap of a group
    assert set(await stores.lanes.group_caps(9)) == set(caps)
    assert len(await stores.lanes.group_caps(2)) == 2
    await stores.lanes.set_group_cap(GroupCap("g", None, 7))
    assert GroupCap("g", None, 7) in await stores.lanes.group_caps(9)


async def by_success(stores: Stores, job: Job, session_id: UUID) -> None:
    await stores.jobs.acknowledge([Completed(job.job_id, job.lease_id)])


async def by_failure(stores: Stores, job: Job, session_id: UUID) -> None:
    await stores.jobs.acknowledge([failed(job, delay_s=600)])


async def by_snooze(stores: Stores, job: Job, session_id: UUID) -> None:
    await stores.jobs.acknowledge([Rescheduled(job.job_id, job.lease_id, 600.0)])


async def by_its_handlers_cancel(stores: Stores, job: Job, session_id: UUID) -> None:
    await stores.jobs.acknowledge([Cancelled(job.job_id, job.lease_id, "not wanted")])


async def by_dead_letter(stores: Stores, job: Job, session_id: UUID) -> None:
    await stores.jobs.acknowledge([discarded(job)])


async def by_a_persons_cancel(stores: Stores, job: Job, session_id: UUID) -> None:
    assert await stores.jobs.cancel(job.job_id, "operator")
    await stores.jobs.acknowledge([Cancelled(job.job_id, job.lease_id, "cancelled while it ran")])


async def by_close(stores: Stores, job: Job, session_id: UUID) -> None:
    await stores.sessions.close(session_id)


async def by_rescue(stores: Stores, job: Job, session_id: UUID) -> None:
    survivor = await a_session(stores, 9)
    await stores.sessions.mark_dead([session_id])
    done = await stores.sessions.rescue(survivor, 0.0, 1, 100)
    assert done is not None
    assert done.dead == 1


ENDINGS = [
    by_success,
    by_failure,
    by_snooze,
    by_its_handlers_cancel,
    by_dead_letter,
    by_a_persons_cancel,
    by_close,
    by_rescue,
]


@pytest.mark.parametrize("end_job", ENDINGS)
async def test_a_place_that_gets_free_is_used(
    stores: Stores, end_job: Callable[[Stores, Job, UUID], Awaitable[None]]
) -> None:
    holder, other = await a_session(stores, 1), await a_session(stores, 2)
    await stores.lanes.set_tenant(TenantShare("a", max_running=1))
    await enqueued(stores, *jobs_of("a", 5))
    (job,) = await claim_jobs(stores, holder)
    assert await after_a_look(stores, other) == []
    await end_job(stores, job, holder)
    assert len(await after_a_look(stores, other)) == 1


async def test_suspects_are_counted_and_held(stores: Stores) -> None:
    survivor, victim = await a_session(stores, 1), await a_session(stores, 2)
    await stores.lanes.set_tenant(TenantShare("a", max_running=2))
    await enqueued(stores, *jobs_of("a", 2))
    assert len(await claim_jobs(stores, victim)) == 2
    await stores.sessions.mark_dead([victim])
    await stores.sessions.rescue(survivor, 0.0, 3, 100)
    await enqueued(stores, *jobs_of("a", 3))
    first = await stores.jobs.claim_suspect(ANY, survivor)
    assert first is not None
    (fresh,) = await after_a_look(stores, survivor)  # the suspect has one place of two
    assert await stores.jobs.claim_suspect(ANY, survivor) is None
    await done(stores, [fresh])
    second = await stores.jobs.claim_suspect(ANY, survivor)
    assert second is not None
    assert second.job_id != first.job_id
    assert await after_a_look(stores, survivor) == []


# ---- eight at once ---------------------------------------------------------------------------------

CAPS = {("a", ""): 1, ("b", ""): 4, ("", "shared"): 3, ("c", "own"): 2}
"""By tenant and group; '' stands for all."""


@dataclass
class Fleet:
    """Claimers that keep a log. A job counts from its claim's answer to the call that ends it: never longer
    than it really runs, so that whatever is found too many was too many."""

    stores: Stores
    left: int
    draw: random.Random
    running: Counter[tuple[str, str]] = field(default_factory=Counter)
    most: Counter[tuple[str, str]] = field(default_factory=Counter)
    ended: list[UUID] = field(default_factory=list)

    async def claimer(self, session_id: UUID) -> None:
        claimed: list[Job] = []
        while self.left > 0:
            jobs = await self.stores.jobs.claim(ALL_QUEUES, self.draw.randint(1, 6), session_id)
            if self.draw.random() < 0.2:
                suspect = await self.stores.jobs.claim_suspect(ALL_QUEUES, session_id)
                jobs += [suspect] if suspect is not None else []
            self._began(jobs)
            claimed += jobs
            await asyncio.sleep(0)
            split = 0 if not jobs else self.draw.randint(0, len(claimed))
            claimed, ending = claimed[:split], claimed[split:]
            await self._end(ending)

    def _began(self, jobs: list[Job]) -> None:
        for job in jobs:
            for cap in self._caps_of(job):
                self.running[cap] += 1
                self.most[cap] = max(self.most[cap], self.running[cap])

    async def _end(self, jobs: list[Job]) -> None:
        outcomes: list[Completed | Rescheduled] = []
        for job in jobs:
            for cap in self._caps_of(job):
                self.running[cap] -= 1
            if self.draw.random() < 0.1:
                outcomes.append(Rescheduled(job.job_id, job.lease_id, 0.0))
            else:
                outcomes.append(Completed(job.job_id, job.lease_id))
        assert await self.stores.jobs.acknowledge(outcomes) == {job.job_id for job in jobs}
        finished = [outcome.job_id for outcome in outcomes if isinstance(outcome, Completed)]
        self.ended += finished
        self.left -= len(finished)

    @staticmethod
    def _caps_of(job: Job) -> list[tuple[str, str]]:
        names = {(job.tenant_id, ""), (job.tenant_id, job.group_key), ("", job.group_key)}
        return [cap for cap in CAPS if cap in names]


async def crashed(stores: Stores, survivor: UUID) -> None:
    """Somebody dies with all that the caps let him have: those are suspects now."""
    victim = await a_session(stores, 99)
    assert await claim_jobs(stores, victim, 60, claim_filter=ALL_QUEUES)
    await stores.sessions.mark_dead([victim])
    await stores.sessions.rescue(survivor, 0.0, 3, 1000)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
async def test_eight_claimers_never_run_more_than_the_caps(stores: Stores, seed: int) -> None:
    draw = random.Random(seed)
    for (tenant_id, group_key), cap in CAPS.items():
        if group_key:
            await stores.lanes.set_group_cap(GroupCap(group_key, tenant_id or None, cap))
        else:
            await stores.lanes.set_tenant(TenantShare(tenant_id, max_running=cap))
    jobs = [
        new_job(
            tenant_id=draw.choice("abbccddd"),
            group_key=draw.choice(["", "shared", "own"]),
            queue=draw.choice(ALL_QUEUES.queues),
            kind=draw.choice(["work", "other"]),
            priority=draw.randrange(4),
        )
        for _ in range(500)
    ]
    stored = await enqueued(stores, *jobs)
    sessions = [await a_session(stores, pid) for pid in range(8)]
    await crashed(stores, sessions[0])
    fleet = Fleet(stores, len(jobs), draw)
    async with asyncio.timeout(120), asyncio.TaskGroup() as group:
        for session_id in sessions:
            group.create_task(fleet.claimer(session_id))
    assert sorted(fleet.ended) == sorted(stored)
    assert fleet.most == CAPS  # reached, so that they were tried, and never passed
