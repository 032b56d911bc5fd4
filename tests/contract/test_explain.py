"""LaneStore: why a job waits, and how each tenant fares (Q6, Q14)."""

from __future__ import annotations

from uuid import UUID

import pytest

from fairlead.engine.ports import (
    Cancelled,
    ClaimFilter,
    Completed,
    Explanation,
    GroupCap,
    TenantShare,
    TenantTurn,
    Tier,
    UnhandledKind,
)
from fairlead.policy.jobs.lane import LONGEST_WAIT_S
from tests.contract.lane_steps import LINGER_S, claim_jobs, done, group, jobs_of, tenant
from tests.contract.stores import ANY, LEASE_S, Stores, a_session, claimed, discarded, enqueued, failed
from tests.support.engine import NOBODY, new_job


async def why(stores: Stores, job_id: UUID, asker: UUID | None = None) -> Explanation:
    explanation = await stores.lanes.explain(job_id, asker)
    assert explanation is not None
    assert explanation.job == await stores.jobs.get(job_id)
    assert explanation.detail
    return explanation


@pytest.fixture(autouse=True)
async def handled(stores: Stores) -> None:
    """Some worker takes what these tests enqueue."""
    await stores.lanes.report_kinds(["default"], ["work"])


# ---- why a job waits -------------------------------------------------------------------------------


async def test_missing_job_has_no_explanation(stores: Stores) -> None:
    assert await stores.lanes.explain(NOBODY) is None


async def test_finished(stores: Stores) -> None:
    session_id = await a_session(stores)
    await enqueued(stores, *jobs_of("a", 3))
    first, two, three = await claim_jobs(stores, session_id)
    outcomes = [
        Completed(first.job_id, first.lease_id),
        Cancelled(two.job_id, two.lease_id, "not wanted"),
        discarded(three),
    ]
    await stores.jobs.acknowledge(outcomes)
    for job, state in ((first, "completed"), (two, "cancelled"), (three, "discarded")):
        explanation = await why(stores, job.job_id)
        assert (explanation.why, explanation.job.state) == ("finished", state)
        assert (explanation.ahead_in_lane, explanation.lanes_ahead, explanation.running_on) == (
            None,
            None,
            None,
        )


async def test_running(stores: Stores) -> None:
    job = await claimed(stores, await a_session(stores, 7))
    explanation = await why(stores, job.job_id)
    assert (explanation.why, explanation.running_on, explanation.workers) == ("running", "here:7", 1)
    assert (explanation.ahead_in_lane, explanation.lanes_ahead) == (None, None)


async def test_not_due(stores: Stores) -> None:
    session_id = await a_session(stores)
    (job_id,) = await enqueued(stores, new_job(delay_s=60))
    explanation = await why(stores, job_id)
    assert (explanation.why, explanation.until, explanation.job.label) == (
        "not_due",
        explanation.job.run_at,
        "scheduled",
    )
    job = await claimed(stores, session_id)
    await stores.jobs.acknowledge([failed(job, delay_s=30)])
    explanation = await why(stores, job.job_id)
    assert (explanation.why, explanation.until, explanation.job.label) == (
        "not_due",
        explanation.job.run_at,
        "retryable",
    )
    assert [line["code"] for line in explanation.job.failures] == ["boom"]


async def test_expired(stores: Stores) -> None:
    await a_session(stores)
    (job_id,) = await enqueued(stores, new_job(expires_in_s=10))
    await stores.pass_time(11)
    assert (await why(stores, job_id)).why == "expired"


async def test_suspect(stores: Stores) -> None:
    survivor, victim = await a_session(stores, 1), await a_session(stores, 2)
    job = await claimed(stores, victim)
    await stores.sessions.mark_dead([victim])
    await stores.sessions.rescue(survivor, 0.0, 3, 100)
    explanation = await why(stores, job.job_id)
    assert (explanation.why, explanation.workers, explanation.ahead_in_lane) == ("suspect", 1, None)
    await stores.lanes.pause(tenant("acme"), None, reason="unpaid", by="ann")
    assert (await why(stores, job.job_id)).why == "paused"


async def test_paused(stores: Stores) -> None:
    await a_session(stores)
    first, other = await enqueued(stores, new_job(tenant_id="a", group_key="g"), new_job(tenant_id="b"))
    await stores.lanes.pause(group("g", "a"), 60.0, reason="limit of the vendor", by="worker")
    explanation = await why(stores, first)
    assert explanation.why == "paused"
    assert "limit of the vendor" in explanation.detail
    (view,) = await stores.lanes.pauses(9)
    assert explanation.until == view.until
    await stores.lanes.pause(tenant("a"), None, reason="unpaid", by="ann")
    explanation = await why(stores, first)
    assert (explanation.why, explanation.until) == ("paused", None)
    assert (await why(stores, other)).why == "queued"


async def test_capped(stores: Stores) -> None:
    session_id = await a_session(stores)
    await stores.lanes.set_group_cap(GroupCap("g", None, 1))
    await enqueued(stores, new_job(tenant_id="a", group_key="g"))
    (running,) = await claim_jobs(stores, session_id)
    first, second = await enqueued(stores, *jobs_of("b", 2, group_key="g"))
    assert await claim_jobs(stores, session_id) == []
    for job_id, ahead in ((first, 0), (second, 1)):
        explanation = await why(stores, job_id)
        assert (explanation.why, explanation.ahead_in_lane) == ("capped", ahead)
    await done(stores, [running])
    await stores.pass_time(LINGER_S + 0.1)
    assert len(await claim_jobs(stores, session_id)) == 1
    assert (await why(stores, first)).why == "running"


async def test_no_worker(stores: Stores) -> None:
    (job_id,) = await enqueued(stores, new_job())
    explanation = await why(stores, job_id)
    assert (explanation.why, explanation.workers) == ("no_worker", 0)
    session_id = await a_session(stores)
    explanation = await why(stores, job_id)
    assert (explanation.why, explanation.workers) == ("queued", 1)
    explanation = await why(stores, job_id, asker=session_id)  # the session that asks is not counted
    assert (explanation.why, explanation.workers) == ("no_worker", 0)
    await stores.pass_time(2 * LEASE_S)  # silent for so long: it is no worker any more
    assert (await why(stores, job_id)).workers == 0
    assert await stores.sessions.heartbeat(session_id)
    assert (await why(stores, job_id)).workers == 1


async def test_job_of_a_kind_that_no_process_knows_has_the_reason_no_handler(stores: Stores) -> None:
    """No worker takes its kind from its queue, or none has for three minutes."""
    session_id = await a_session(stores)
    misspelt, elsewhere, known_id = await enqueued(
        stores, new_job("wrok"), new_job(queue="mail"), new_job(priority=0)
    )
    for job_id in (misspelt, elsewhere):
        explanation = await why(stores, job_id)
        assert (explanation.why, explanation.until) == ("no_handler", None)
    assert (await why(stores, known_id)).why == "queued"
    unhandled = [UnhandledKind("default", "wrok", 1), UnhandledKind("mail", "work", 1)]
    assert await stores.lanes.unhandled_kinds(9) == unhandled
    assert await stores.lanes.unhandled_kinds(1) == unhandled[:1]
    await stores.lanes.report_kinds(["mail"], ["work"])
    assert (await why(stores, elsewhere)).why == "queued"
    await stores.pass_time(181)
    await stores.sessions.heartbeat(session_id)
    assert (await why(stores, known_id)).why == "no_handler"
    assert len(await stores.lanes.unhandled_kinds(9)) == 3


async def test_turn_and_place(stores: Stores) -> None:
    session_id = await a_session(stores)
    jobs = jobs_of("a", 30)
    await enqueued(stores, *jobs)
    await done(stores, await claim_jobs(stores, session_id, 20, demand=4))
    await enqueued(stores, *jobs_of("b", 5), *jobs_of("c", 5))
    urgent, *_ = await enqueued(stores, *jobs_of("a", 2, priority=0))
    explanation = await why(stores, jobs[-1].job_id)
    assert (explanation.why, explanation.until, explanation.ahead_in_lane, explanation.running_on) == (
        "queued",
        None,
        9,
        None,
    )
    assert explanation.lanes_ahead is not None
    assert 0 <= explanation.lanes_ahead <= 2
    assert (await why(stores, jobs[20].job_id)).ahead_in_lane == 0
    explanation = await why(stores, urgent)  # first of its own class
    assert (explanation.why, explanation.ahead_in_lane, explanation.lanes_ahead) == ("queued", 0, 0)


# ---- how each tenant fares -------------------------------------------------------------------------


async def turn_of(stores: Stores, tenant_id: str, queue: str = "default") -> TenantTurn:
    (turn,) = await stores.lanes.turns(queue=queue, tenant_id=tenant_id, limit=9)
    return turn


async def test_turns_show_what_a_tenant_ran_and_runs(stores: Stores) -> None:
    session_id = await a_session(stores)
    assert await stores.lanes.turns(queue=None, tenant_id=None, limit=9) == []
    await stores.lanes.set_tier(Tier("gold", weight=2.0, max_running=40))
    await stores.lanes.set_tenant(TenantShare("a", tier="gold"))
    await enqueued(stores, *jobs_of("a", 9), *jobs_of("a", 9, group_key="g"), *jobs_of("b", 40))
    await done(stores, await claim_jobs(stores, session_id, 10))
    running = await claim_jobs(stores, session_id, 10)
    a, b = await turn_of(stores, "a"), await turn_of(stores, "b")
    assert a.processed + b.processed == 20
    assert a.running + b.running == len(running)
    assert (a.waiting, b.waiting) == (18 - a.processed, 40 - b.processed)
    assert (a.weight, a.max_running, b.weight, b.max_running) == (2.0, 40, 1.0, None)
    assert (a.queue, a.ready_lanes, a.parked_lanes, b.ready_lanes) == ("default", 2, 0, 1)
    assert 1 <= a.consecutive <= 3
    assert 1 <= b.consecutive <= 3
    assert (b.rounds_without_service, b.current_priority) == (0, 5)


async def test_a_blocked_tenants_lanes_are_parked(stores: Stores) -> None:
    session_id = await a_session(stores)
    await enqueued(stores, *jobs_of("a", 2), *jobs_of("a", 2, group_key="g"), new_job(tenant_id="b"))
    await stores.lanes.pause(group("g", "a"), None, reason="429", by="worker")
    a = await turn_of(stores, "a")
    assert (a.ready_lanes, a.parked_lanes) == (1, 1)
    await stores.lanes.pause(tenant("a"), None, reason="unpaid", by="ann")
    a = await turn_of(stores, "a")
    assert (a.ready_lanes, a.parked_lanes, a.waiting, a.waits_s) == (0, 2, 4, None)
    assert len(await claim_jobs(stores, session_id)) == 1


async def test_turns_list_the_longest_waiting_tenant_first(stores: Stores) -> None:
    session_id = await a_session(stores)
    for name in "abc":
        await enqueued(stores, *jobs_of(name, 5, kind=name))
        await stores.pass_time(10)
    turns = await stores.lanes.turns(queue=None, tenant_id=None, limit=9)
    assert [turn.tenant_id for turn in turns] == ["a", "b", "c"]
    waits = [turn.waits_s for turn in turns if turn.waits_s is not None]
    assert all(
        expected <= waited < expected + 5 for expected, waited in zip((30, 20, 10), waits, strict=True)
    )
    await claim_jobs(stores, session_id, 1, claim_filter=ClaimFilter(kinds=("a",)))
    turns = await stores.lanes.turns(queue="default", tenant_id=None, limit=2)
    assert [turn.tenant_id for turn in turns] == ["b", "c"]


async def test_queues_are_told_apart(stores: Stores) -> None:
    await enqueued(stores, *jobs_of("a", 2), *jobs_of("a", 3, queue="mail"), *jobs_of("b", 1))
    assert (await turn_of(stores, "a")).waiting == 2
    assert (await turn_of(stores, "a", "mail")).waiting == 3
    assert len(await stores.lanes.turns(queue=None, tenant_id="a", limit=9)) == 2
    assert len(await stores.lanes.turns(queue="mail", tenant_id=None, limit=9)) == 1


async def test_rounds_without_service_lower_the_current_priority(stores: Stores) -> None:
    """Nobody takes the second tenant's kind, and the first one is served all the time."""
    session_id = await a_session(stores)
    await enqueued(stores, *jobs_of("a", 40), *jobs_of("b", 5, kind="other"))
    explanations = []
    for _ in range(5):
        await claim_jobs(stores, session_id, 3, demand=3, claim_filter=ClaimFilter(kinds=("work",)))
        explanations.append(await turn_of(stores, "b"))
    rounds = [turn.rounds_without_service for turn in explanations]
    assert rounds == sorted(rounds)
    assert rounds[-1] >= 4
    assert [turn.current_priority for turn in explanations] == [max(1, 5 - n) for n in rounds]
    assert (await turn_of(stores, "a")).current_priority == 5
    await claim_jobs(stores, session_id, 3, claim_filter=ClaimFilter(kinds=("other",)))
    assert (await turn_of(stores, "b")).rounds_without_service < rounds[-1]


async def test_a_lane_that_aged_counts_where_it_stands(stores: Stores) -> None:
    session_id = await a_session(stores)
    low, *_ = await enqueued(stores, *jobs_of("a", 2, priority=3), *jobs_of("b", 30, priority=0))
    explanation = await why(stores, low)
    assert (explanation.why, explanation.lanes_ahead) == (
        "queued",
        0,
    )  # of its own class: strictly after the more urgent ones
    for _ in range(4):
        await stores.pass_time(LONGEST_WAIT_S / 4 + 1)
        await stores.lanes.age(0.0)
    assert low in {job.job_id for job in await stores.jobs.claim(ANY, 6, session_id)}
