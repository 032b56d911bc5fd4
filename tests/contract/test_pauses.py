"""LaneStore: what is paused is not begun; all the rest is (Q7, R16)."""

from __future__ import annotations

import pytest

from fairlead.engine.ports import Completed, Rescheduled
from fairlead.policy.jobs.lane import Scope, ScopeKind, connection_group
from tests.contract.lane_steps import LINGER_S, claim_jobs, done, drained, group, jobs_of, tenant, tenants_of
from tests.contract.stores import ANY, Stores, a_session, claimed, enqueued
from tests.support.engine import new_job

GROUP = connection_group("shopify")
IT = {
    "queue": "default",
    "kind": "work",
    "tenant_id": "a",
    "provider": "shopify",
    "group_key": GROUP,
}
SCOPES = [
    Scope(ScopeKind.QUEUE, "default"),
    Scope(ScopeKind.KIND, "work"),
    Scope(ScopeKind.TENANT, "a"),
    Scope(ScopeKind.PROVIDER, "shopify"),
    Scope(ScopeKind.GROUP, GROUP, "a"),
    Scope(ScopeKind.GROUP, GROUP),
]
every_scope = pytest.mark.parametrize("scope", SCOPES, ids=str)
REASON_AND_ACTOR = {"reason": "429", "by": "test"}


async def looked_again(stores: Stores) -> None:
    """A moment goes by, so that nothing is missed only because it was not looked for yet."""
    await stores.pass_time(2 * LINGER_S)


# ---- each scope ------------------------------------------------------------------------------------


@every_scope
async def test_nothing_of_the_scope_begins_until_it_is_resumed(stores: Stores, scope: Scope) -> None:
    session_id = await a_session(stores)
    assert await stores.lanes.due_lanes(scope) == 0
    await enqueued(stores, *(new_job(**IT) for _ in range(3)), new_job(**IT, priority=1, delay_s=600))
    assert await stores.lanes.due_lanes(scope) == 1
    assert await stores.lanes.pause(scope, None, **REASON_AND_ACTOR) == 1
    await enqueued(stores, new_job(**IT), new_job(**IT, priority=0))  # what comes later is held, too
    assert await stores.lanes.due_lanes(scope) == 2
    for _ in range(2):
        assert await claim_jobs(stores, session_id) == []
        await looked_again(stores)
    assert await stores.jobs.next_due_in_s(ANY) is None
    assert await stores.lanes.resume(scope)
    assert await stores.jobs.next_due_in_s(ANY) == 0
    assert len(await claim_jobs(stores, session_id)) == 5
    assert not await stores.lanes.resume(scope)


@every_scope
async def test_our_own_work_goes_on(stores: Stores, scope: Scope) -> None:
    """Tokens are kept fresh whatever waits; only a pause of the kind itself holds such jobs."""
    session_id = await a_session(stores)
    ours = IT | {"kind": "token.refresh"}
    await enqueued(stores, new_job(**ours), new_job(**IT))
    assert await stores.lanes.pause(scope, None, **REASON_AND_ACTOR) == 1
    await enqueued(stores, new_job(**ours), new_job(**IT))
    await looked_again(stores)
    jobs = await claim_jobs(stores, session_id)
    assert [job.kind for job in jobs] == ["token.refresh"] * 2


async def test_a_pause_of_one_of_our_kinds_holds_it(stores: Stores) -> None:
    session_id = await a_session(stores)
    await enqueued(stores, new_job(**IT | {"kind": "token.refresh"}), new_job(**IT))
    assert await stores.lanes.pause(Scope(ScopeKind.KIND, "token.refresh"), None, **REASON_AND_ACTOR) == 1
    assert [job.kind for job in await claim_jobs(stores, session_id)] == ["work"]


@every_scope
async def test_a_pause_ends_by_itself(stores: Stores, scope: Scope) -> None:
    session_id = await a_session(stores)
    await enqueued(stores, new_job(**IT))
    assert await stores.lanes.pause(scope, 60.0, **REASON_AND_ACTOR) == 1
    assert await claim_jobs(stores, session_id) == []
    due_s = await stores.jobs.next_due_in_s(ANY)
    assert due_s is not None
    assert 50 < due_s <= 60
    await stores.pass_time(58)
    assert await claim_jobs(stores, session_id) == []
    await stores.pass_time(3)
    assert await stores.jobs.next_due_in_s(ANY) == 0
    assert len(await claim_jobs(stores, session_id)) == 1
    assert not await stores.lanes.resume(scope)
    assert await stores.lanes.pauses(9) == []


@pytest.mark.parametrize("scope", SCOPES[1:], ids=str)
async def test_all_others_run_on(stores: Stores, scope: Scope) -> None:
    session_id = await a_session(stores)
    (kept_id,) = await enqueued(stores, new_job(**IT))
    await stores.lanes.pause(scope, None, **REASON_AND_ACTOR)
    other = new_job(kind="other", tenant_id="b", provider="xero", group_key=connection_group("xero"))
    plain = new_job(kind="other", tenant_id="b")
    await enqueued(stores, other, plain)
    assert {job.job_id for job in await claim_jobs(stores, session_id)} == {other.job_id, plain.job_id}
    await stores.lanes.resume(scope)
    assert [job.job_id for job in await claim_jobs(stores, session_id)] == [kept_id]


async def test_a_paused_queue_holds_no_other_queue(stores: Stores) -> None:
    session_id = await a_session(stores)
    await stores.lanes.pause(Scope(ScopeKind.QUEUE, "mail"), None, **REASON_AND_ACTOR)
    await enqueued(stores, new_job(), new_job(queue="mail"))
    assert [job.queue for job in await claim_jobs(stores, session_id)] == ["default"]


async def test_a_group_of_a_tenant_is_not_his_other_groups_nor_anybody_elses(stores: Stores) -> None:
    session_id = await a_session(stores)
    await stores.lanes.pause(group("one", "a"), None, **REASON_AND_ACTOR)
    held_job = new_job(tenant_id="a", group_key="one")
    others = [new_job(tenant_id="a", group_key="two"), new_job(tenant_id="b", group_key="one")]
    await enqueued(stores, held_job, *others, *jobs_of("a", 1))
    jobs = await claim_jobs(stores, session_id)
    assert len(jobs) == 3
    assert held_job.job_id not in {job.job_id for job in jobs}


async def test_a_shared_group_is_every_tenants(stores: Stores) -> None:
    session_id = await a_session(stores)
    await enqueued(stores, *(new_job(tenant_id=name, group_key="one") for name in "abc"))
    await enqueued(stores, new_job(tenant_id="a", group_key="two"))
    assert await stores.lanes.pause(group("one"), None, **REASON_AND_ACTOR) == 3
    assert [job.group_key for job in await claim_jobs(stores, session_id)] == ["two"]
    await stores.lanes.resume(group("one"))
    assert sorted(tenants_of(await claim_jobs(stores, session_id))) == ["a", "b", "c"]


# ---- several pauses --------------------------------------------------------------------------------


async def test_all_pauses_must_be_over(stores: Stores) -> None:
    session_id = await a_session(stores)
    await enqueued(stores, new_job(**IT))
    for scope in SCOPES:
        await stores.lanes.pause(scope, 60.0 if scope.kind is ScopeKind.KIND else None, **REASON_AND_ACTOR)
    for scope in SCOPES:
        assert await claim_jobs(stores, session_id) == []
        if scope.kind is ScopeKind.KIND:
            await stores.pass_time(61)
        else:
            assert await stores.lanes.resume(scope)
    assert len(await claim_jobs(stores, session_id)) == 1


async def test_the_last_of_two_ends_counts(stores: Stores) -> None:
    session_id = await a_session(stores)
    await enqueued(stores, new_job(**IT))
    await stores.lanes.pause(tenant("a"), 30.0, **REASON_AND_ACTOR)
    await stores.lanes.pause(group(GROUP, "a"), 90.0, **REASON_AND_ACTOR)
    await stores.lanes.pause(Scope(ScopeKind.PROVIDER, "shopify"), 60.0, **REASON_AND_ACTOR)
    for step_s in (31, 30):
        await stores.pass_time(step_s)
        assert await claim_jobs(stores, session_id) == []
    due_s = await stores.jobs.next_due_in_s(ANY)
    assert due_s is not None
    assert 20 < due_s <= 29
    await stores.pass_time(30)
    assert len(await claim_jobs(stores, session_id)) == 1


async def test_a_pause_is_made_longer_never_shorter(stores: Stores) -> None:
    session_id = await a_session(stores)
    await enqueued(stores, *jobs_of("a", 1))
    for for_s, ends_s in ((60.0, 60.0), (20.0, 60.0), (120.0, 120.0), (60.0, 120.0)):
        await stores.lanes.pause(tenant("a"), for_s, **REASON_AND_ACTOR)
        due_s = await stores.jobs.next_due_in_s(ANY)
        assert due_s is not None
        assert ends_s - 5 < due_s <= ends_s
        (view,) = await stores.lanes.pauses(9)
        assert view.scope == tenant("a")
    await stores.lanes.pause(tenant("a"), None, **REASON_AND_ACTOR)
    await stores.lanes.pause(tenant("a"), 10.0, **REASON_AND_ACTOR)
    await stores.pass_time(200)
    assert await claim_jobs(stores, session_id) == []
    assert await stores.jobs.next_due_in_s(ANY) is None
    assert await stores.lanes.resume(tenant("a"))
    assert len(await claim_jobs(stores, session_id)) == 1


async def test_a_pause_that_is_over_lengthens_no_new_one(stores: Stores) -> None:
    session_id = await a_session(stores)
    await enqueued(stores, *jobs_of("a", 2))
    await stores.lanes.pause(tenant("a"), 60.0, **REASON_AND_ACTOR)
    await stores.pass_time(61)
    assert len(await stores.jobs.claim(ANY, 1, session_id)) == 1
    await stores.lanes.pause(tenant("a"), 20.0, reason="again", by="other")
    (view,) = await stores.lanes.pauses(9)
    assert (view.reason, view.by) == ("again", "other")
    assert await claim_jobs(stores, session_id) == []
    await stores.pass_time(21)
    assert len(await claim_jobs(stores, session_id)) == 1


async def test_pauses_are_listed_with_reason_and_actor(stores: Stores) -> None:
    assert await stores.lanes.pauses(9) == []
    await enqueued(stores, *jobs_of("a", 2), *jobs_of("a", 1, group_key="g"), *jobs_of("b", 1, group_key="g"))
    assert await stores.lanes.pause(tenant("a"), None, reason="unpaid", by="ann") == 2
    await stores.pass_time(5)
    assert await stores.lanes.pause(group("g"), 60.0, reason="429", by="worker") >= 1
    newest, oldest = await stores.lanes.pauses(9)
    assert (oldest.scope, oldest.until, oldest.reason, oldest.by) == (tenant("a"), None, "unpaid", "ann")
    assert (newest.scope, newest.reason, newest.by) == (group("g"), "429", "worker")
    assert newest.until is not None
    assert 50 < (newest.until - newest.since).total_seconds() <= 60
    assert oldest.since < newest.since
    assert (oldest.lanes, newest.lanes) == (2, 2)
    assert await stores.lanes.pauses(1) == [newest]


# ---- what is under way, and what is not yet --------------------------------------------------------


async def test_pause_lets_running_jobs_end_and_holds_rescheduled_ones(stores: Stores) -> None:
    session_id = await a_session(stores)
    finished, rescheduled = [await claimed(stores, session_id, **IT) for _ in range(2)]
    await stores.lanes.pause(tenant("a"), None, **REASON_AND_ACTOR)
    outcomes = [
        Completed(finished.job_id, finished.lease_id),
        Rescheduled(rescheduled.job_id, rescheduled.lease_id, 0.0),
    ]
    assert await stores.jobs.acknowledge(outcomes) == {finished.job_id, rescheduled.job_id}
    await looked_again(stores)
    assert await claim_jobs(stores, session_id) == []
    await stores.lanes.resume(tenant("a"))
    assert [job.job_id for job in await claim_jobs(stores, session_id)] == [rescheduled.job_id]


async def test_a_suspect_is_held_like_any_other(stores: Stores) -> None:
    survivor, victim = await a_session(stores, 1), await a_session(stores, 2)
    job = await claimed(stores, victim, **IT)
    await stores.sessions.mark_dead([victim])
    await stores.sessions.rescue(survivor, 0.0, 3, 100)
    for scope in SCOPES:
        await stores.lanes.pause(scope, None, **REASON_AND_ACTOR)
        assert await stores.jobs.claim_suspect(ANY, survivor) is None
        assert await stores.jobs.next_due_in_s(ANY) is None
        await stores.lanes.resume(scope)
    await stores.lanes.pause(tenant("a"), 60.0, **REASON_AND_ACTOR)
    due_s = await stores.jobs.next_due_in_s(ANY)
    assert due_s is not None
    assert 50 < due_s <= 60
    await stores.pass_time(61)
    suspect = await stores.jobs.claim_suspect(ANY, survivor)
    assert suspect is not None
    assert suspect.job_id == job.job_id


async def test_job_due_during_a_pause_runs_after_it(stores: Stores) -> None:
    session_id = await a_session(stores)
    await stores.lanes.pause(tenant("a"), 60.0, **REASON_AND_ACTOR)
    during, later = new_job(tenant_id="a", delay_s=30), new_job(tenant_id="a", delay_s=90)
    await enqueued(stores, during, later)
    await stores.pass_time(40)
    assert await claim_jobs(stores, session_id) == []
    await stores.pass_time(21)
    (job,) = await claim_jobs(stores, session_id)
    assert job.job_id == during.job_id
    await done(stores, [job])
    assert [job.job_id for job in await drained(stores, session_id)] == [later.job_id]


async def test_a_job_made_due_now_is_still_held(stores: Stores) -> None:
    session_id = await a_session(stores)
    (job_id,) = await enqueued(stores, new_job(tenant_id="a", delay_s=600))
    await stores.lanes.pause(tenant("a"), None, **REASON_AND_ACTOR)
    assert await stores.jobs.retry_now(job_id)
    assert await claim_jobs(stores, session_id) == []
    await stores.lanes.resume(tenant("a"))
    assert [job.job_id for job in await claim_jobs(stores, session_id)] == [job_id]


@pytest.mark.parametrize(
    "name", ["a/b", "'; --", "ü" * 100, "with spaces"], ids=["path", "sql", "long", "spaces"]
)
async def test_names_are_anything(stores: Stores, name: str) -> None:
    session_id = await a_session(stores)
    await enqueued(stores, *jobs_of(name, 1, group_key=name), *jobs_of(name + "x", 1, group_key=name + "x"))
    for scope in (tenant(name), group(name, name), group(name)):
        assert await stores.lanes.pause(scope, None, **REASON_AND_ACTOR) == 1
        assert [view.scope for view in await stores.lanes.pauses(9)] == [scope]
        await stores.lanes.resume(scope)
    await stores.lanes.pause(group(name, name), None, **REASON_AND_ACTOR)
    assert tenants_of(await claim_jobs(stores, session_id)) == name + "x"


# ---- turns at the provider's limits ----------------------------------------------------------------


async def test_a_held_group_waits_for_its_turn_and_others_run_on(stores: Stores) -> None:
    session_id = await a_session(stores)
    await enqueued(stores, new_job(**IT), new_job(**IT | {"tenant_id": "b"}), new_job(tenant_id="a"))
    await stores.lanes.hold("a", GROUP, 60.0, reason="its rate")
    await enqueued(stores, new_job(**IT))  # what comes later is held, too
    assert sorted(job.tenant_id for job in await claim_jobs(stores, session_id)) == ["a", "b"]
    await looked_again(stores)
    assert await claim_jobs(stores, session_id) == []
    await stores.pass_time(61)
    assert len(await claim_jobs(stores, session_id)) == 2


async def test_a_turn_is_told_to_who_asks_why_a_job_waits(stores: Stores) -> None:
    held_id, other = await enqueued(stores, new_job(**IT), new_job(**IT | {"tenant_id": "b"}))
    await stores.lanes.hold("a", GROUP, 60.0, reason="its rate")
    (view,) = await stores.lanes.pauses(9)
    assert (view.scope, view.lanes) == (Scope(ScopeKind.RATE, GROUP, "a"), 1)
    explanation = await stores.lanes.explain(held_id)
    assert explanation is not None
    assert (explanation.why, explanation.until) == ("paused", view.until)
    assert "waits for its turn at the provider's limits: its rate" in explanation.detail
    assert "jobs resume" not in explanation.detail, "nobody can resume it"
    explanation = await stores.lanes.explain(other)
    assert explanation is not None
    assert explanation.why != "paused"


async def test_of_two_turns_the_earlier_counts(stores: Stores) -> None:
    session_id = await a_session(stores)
    await enqueued(stores, new_job(**IT))
    await stores.lanes.hold("a", GROUP, 60.0, reason="its rate")
    await stores.lanes.hold("a", GROUP, 20.0, reason="its rate")
    await stores.lanes.hold("a", GROUP, 40.0, reason="its rate")
    await stores.pass_time(21)
    await looked_again(stores)
    assert len(await claim_jobs(stores, session_id)) == 1


async def test_a_turn_ends_no_pause_and_a_pause_no_turn(stores: Stores) -> None:
    session_id = await a_session(stores)
    await enqueued(stores, new_job(**IT))
    await stores.lanes.hold("a", GROUP, 20.0, reason="its rate")
    await stores.lanes.pause(group(GROUP, "a"), 60.0, **REASON_AND_ACTOR)
    await stores.pass_time(21)
    await looked_again(stores)
    assert await claim_jobs(stores, session_id) == []
    await stores.lanes.hold("a", GROUP, 60.0, reason="its rate")
    await stores.lanes.resume(group(GROUP, "a"))
    await looked_again(stores)
    assert await claim_jobs(stores, session_id) == []
    await stores.pass_time(61)
    assert len(await claim_jobs(stores, session_id)) == 1


async def test_job_rescheduled_in_place_keeps_its_place(stores: Stores) -> None:
    """A job that waits for its turn is not passed by those behind it."""
    session_id = await a_session(stores)
    first, second, third = await enqueued(stores, *(new_job(**IT) for _ in range(3)))
    (job,) = await claim_jobs(stores, session_id, 1)
    assert job.job_id == first
    await stores.lanes.hold("a", GROUP, 30.0, reason="its rate")
    await stores.jobs.acknowledge([Rescheduled(job.job_id, job.lease_id, None)])
    assert await claim_jobs(stores, session_id) == []
    await stores.pass_time(31)
    await looked_again(stores)
    jobs = await claim_jobs(stores, session_id)
    assert [job.job_id for job in jobs] == [first, second, third]
    assert [job.attempt for job in jobs] == [1, 1, 1]
