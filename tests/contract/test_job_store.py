"""JobStore: enqueue, claim, outcomes under their fence, housekeeping."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from fairlead.engine.ports import Cancelled, ClaimFilter, Completed, Discarded, Rescheduled
from tests.contract.stores import ANY, Stores, a_session, claimed, discarded, enqueued, failed, failure
from tests.support.engine import NOBODY, new_job

# ---- enqueue and claim -----------------------------------------------------------------------------


async def test_the_most_urgent_come_first_then_the_longest_due(stores: Stores) -> None:
    session_id = await a_session(stores)
    late = new_job(priority=2)
    await stores.jobs.enqueue([late])
    await stores.pass_time(1)
    later, urgent, low = new_job(priority=2), new_job(priority=1), new_job(priority=3)
    await stores.jobs.enqueue([later, low, urgent])
    jobs = await stores.jobs.claim(ANY, 3, session_id)
    assert {job.job_id for job in jobs} == {urgent.job_id, late.job_id, later.job_id}
    (last,) = await stores.jobs.claim(ANY, 3, session_id)
    assert last.job_id == low.job_id


async def test_a_claimed_job_says_what_was_enqueued(stores: Stores) -> None:
    session_id = await a_session(stores)
    args = {"n": 1, "deep": {"list": [1, None, "ü"]}}
    new = new_job(provider="shopify", group_key="g", priority=1, args=args)
    await stores.jobs.enqueue([new])
    await stores.pass_time(2)
    (job,) = await stores.jobs.claim(ANY, 10, session_id)
    assert (job.job_id, job.kind, job.tenant_id, job.provider) == (new.job_id, "work", "acme", "shopify")
    assert (job.group_key, job.priority, job.attempt, job.crash_count) == ("g", 1, 1, 0)
    assert (dict(job.args), dict(job.streaks), job.replay_of, job.queue) == (args, {}, None, "default")
    assert 2 <= job.waited_s < 60
    assert job.lease_id > 0


async def test_only_what_is_due_and_wanted_is_claimed(stores: Stores) -> None:
    session_id = await a_session(stores)
    await stores.jobs.enqueue(
        [
            new_job(delay_s=30),
            new_job(queue="mail"),
            new_job("other"),
            new_job(provider="xero"),
            expected_job := new_job(provider="shopify"),
        ]
    )
    only = ClaimFilter(queues=("default",), kinds=("work",), providers=("shopify",))
    assert [job.job_id for job in await stores.jobs.claim(only, 9, session_id)] == [expected_job.job_id]
    assert len(await stores.jobs.claim(ClaimFilter(queues=("mail",)), 9, session_id)) == 1
    assert len(await stores.jobs.claim(ANY, 9, session_id)) == 2
    await stores.pass_time(31)
    assert len(await stores.jobs.claim(ANY, 9, session_id)) == 1


async def test_no_job_is_claimed_twice(stores: Stores) -> None:
    first, other = await a_session(stores, 1), await a_session(stores, 2)
    await stores.jobs.enqueue([new_job() for _ in range(60)])
    batches = await asyncio.gather(
        *(stores.jobs.claim(ANY, 7, session_id) for session_id in (first, other) * 5)
    )
    jobs = [job for batch in batches for job in batch]
    assert len(jobs) == len({job.job_id for job in jobs}) == len({job.lease_id for job in jobs})
    assert all(len(batch) <= 7 for batch in batches)


async def test_demand_bounds_a_claim(stores: Stores) -> None:
    session_id = await a_session(stores)
    await stores.jobs.enqueue([new_job() for _ in range(5)])
    assert len(await stores.jobs.claim(ANY, 3, session_id)) == 3
    assert len(await stores.jobs.claim(ANY, 3, session_id)) == 2
    assert await stores.jobs.claim(ANY, 3, session_id) == []


async def test_session_declared_lost_claims_nothing(stores: Stores) -> None:
    session_id = await a_session(stores)
    await stores.jobs.enqueue([new_job()])
    await stores.sessions.mark_dead([session_id])
    assert await stores.jobs.claim(ANY, 9, session_id) == []
    assert await stores.jobs.claim(ANY, 9, NOBODY) == []
    assert len(await stores.jobs.claim(ANY, 9, await a_session(stores, 2))) == 1


async def test_listener_is_notified_of_due_jobs(stores: Stores) -> None:
    log: asyncio.Queue[str] = asyncio.Queue()
    unlisten = await stores.jobs.listen(log.put_nowait)
    await stores.jobs.enqueue([new_job(queue="later", delay_s=60)])
    await stores.jobs.enqueue([new_job(queue="mail")])
    async with asyncio.timeout(30):
        while (
            queue := await log.get()
        ) == "":  # a notification may have been missed, and the next one is not
            await stores.jobs.enqueue([new_job(queue="mail")])
    assert queue == "mail"
    await unlisten()


async def test_a_late_result_does_not_replace_the_valid_one(stores: Stores) -> None:
    """One process may have a job in hand twice, after a lease that it lost: both results in one batch."""
    session_id = await a_session(stores)
    await enqueued(stores, new_job())
    (stale,) = await stores.jobs.claim(ANY, 1, session_id)
    await stores.jobs.acknowledge([Rescheduled(stale.job_id, stale.lease_id, 0.0)])
    (valid,) = await stores.jobs.claim(ANY, 1, session_id)
    results = [
        Completed(valid.job_id, valid.lease_id, "valid"),
        Completed(stale.job_id, stale.lease_id, "stale"),
    ]
    await stores.jobs.acknowledge(results)
    view = await stores.jobs.get(valid.job_id)
    assert view is not None
    assert view.result == "valid"


# ---- outcomes --------------------------------------------------------------------------------------


async def test_done_keeps_its_result(stores: Stores) -> None:
    job = await claimed(stores, await a_session(stores))
    assert await stores.jobs.acknowledge([Completed(job.job_id, job.lease_id, {"n": [1]})]) == {job.job_id}
    view = await stores.jobs.get(job.job_id)
    assert view is not None
    assert (view.state, view.label, view.result, view.attempt) == ("completed", "completed", {"n": [1]}, 1)
    assert view.finished_at is not None


async def test_a_failure_burns_an_attempt_and_is_remembered(stores: Stores) -> None:
    session_id = await a_session(stores)
    job = await claimed(stores, session_id)
    await stores.jobs.acknowledge([failed(job, delay_s=10)])
    view = await stores.jobs.get(job.job_id)
    assert view is not None
    assert (view.state, view.label, view.attempt) == ("available", "retryable", 1)
    assert [(line["code"], line["reason"], line["attempt"]) for line in view.failures] == [
        ("boom", "it failed", 1)
    ]
    assert await stores.jobs.claim(ANY, 1, session_id) == []
    await stores.pass_time(11)
    (again,) = await stores.jobs.claim(ANY, 1, session_id)
    assert (again.attempt, dict(again.streaks)) == (2, {"transient_server": 1})
    assert again.lease_id != job.lease_id


async def test_the_history_keeps_the_traceback_of_the_latest_failure_alone(stores: Stores) -> None:
    session_id = await a_session(stores)
    job = await claimed(stores, session_id)
    for attempt in (1, 2, 3):
        ended = failed(job, delay_s=0)
        assert ended.failure is not None
        traced = {"why": "tested", "at": f"shop/jobs.py:{attempt}", "traceback": f"line {attempt}"}
        await stores.jobs.acknowledge([replace(ended, failure=replace(ended.failure, details=traced))])
        if attempt < 3:
            (job,) = await stores.jobs.claim(ANY, 1, session_id)
    view = await stores.jobs.get(job.job_id)
    assert view is not None
    assert [line["details"] for line in view.failures] == [
        {"why": "tested", "at": "shop/jobs.py:1"},
        {"why": "tested", "at": "shop/jobs.py:2"},
        {"why": "tested", "at": "shop/jobs.py:3", "traceback": "line 3"},
    ]


async def test_a_snooze_hands_the_attempt_back(stores: Stores) -> None:
    session_id = await a_session(stores)
    job = await claimed(stores, session_id)
    await stores.jobs.acknowledge([failed(job, delay_s=0)])
    for waits, counted in ((0, {}), (0, {"transient_server": 1, "waits": 1}), (1, {}), (1, {})):
        (job,) = await stores.jobs.claim(ANY, 1, session_id)
        assert (job.attempt, job.streaks["transient_server"], job.streaks.get("waits", 0)) == (2, 1, waits)
        await stores.jobs.acknowledge([Rescheduled(job.job_id, job.lease_id, 5.0, streaks=counted)])
        assert await stores.jobs.claim(ANY, 1, session_id) == []
        await stores.pass_time(6)


async def test_a_job_goes_on_with_what_its_run_left_for_it(stores: Stores) -> None:
    session_id = await a_session(stores)
    job = await claimed(stores, session_id, args={"of": "orders"})
    saved = {"of": "orders", "fairlead.saved": {"at": "page 2", "é": [1, None]}}
    for outcome in (
        Rescheduled(job.job_id, job.lease_id, 0.0, args=saved),
        Rescheduled(job.job_id, job.lease_id, 0.0),
        failed(job, delay_s=0),
    ):
        assert await stores.jobs.acknowledge([replace(outcome, lease_id=job.lease_id)]) == {job.job_id}
        (job,) = await stores.jobs.claim(ANY, 1, session_id)
        assert dict(job.args) == saved


async def test_cancelled_by_its_handler(stores: Stores) -> None:
    job = await claimed(stores, await a_session(stores))
    assert await stores.jobs.acknowledge([Cancelled(job.job_id, job.lease_id, "not wanted")]) == {job.job_id}
    view = await stores.jobs.get(job.job_id)
    assert view is not None
    assert view.state == "cancelled"
    assert await stores.dead_letters.counts() == {}


async def test_discarded_with_its_dead_letter(stores: Stores) -> None:
    session_id = await a_session(stores)
    job = await claimed(stores, session_id, provider="shopify", args={"a": 1}, unique_key="u", group_key="g")
    await stores.jobs.acknowledge([failed(job, delay_s=0)])
    (job,) = await stores.jobs.claim(ANY, 1, session_id)
    outcome = discarded(job)
    assert await stores.jobs.acknowledge([outcome]) == {job.job_id}
    view = await stores.jobs.get(job.job_id)
    assert view is not None
    assert view.state == "discarded"
    entry = await stores.dead_letters.get(outcome.dead_letter_id)
    assert entry is not None
    assert (entry.job_id, entry.kind, entry.tenant_id, entry.provider) == (
        job.job_id,
        "work",
        "acme",
        "shopify",
    )
    assert (entry.category, entry.code, entry.reason) == ("transient_server", "boom", "it failed")
    assert (dict(entry.args), entry.unique_key, entry.group_key) == ({"a": 1}, "u", "g")
    assert (entry.status, entry.replays, entry.replay_job_id) == ("pending_review", 0, None)
    assert dict(entry.details) == {"why": "tested"}
    assert [line["attempt"] for line in entry.history] == [1, 2]


# ---- the fence (R1, Q3) ----------------------------------------------------------------------------


async def test_only_the_lease_of_the_claim_may_write(stores: Stores) -> None:
    session_id = await a_session(stores)
    job = await claimed(stores, session_id)
    for outcome in (
        Completed(job.job_id, job.lease_id + 1),
        Rescheduled(job.job_id, job.lease_id + 1, 0.0),
        Cancelled(job.job_id, job.lease_id + 1, "x"),
        Discarded(job.job_id, job.lease_id + 1, NOBODY, failure(job)),
        Completed(NOBODY, job.lease_id),
    ):
        assert await stores.jobs.acknowledge([outcome]) == set()
    assert await stores.dead_letters.get(NOBODY) is None
    assert await stores.jobs.acknowledge([Completed(job.job_id, job.lease_id)]) == {job.job_id}
    assert await stores.jobs.acknowledge([Completed(job.job_id, job.lease_id)]) == set()


async def test_a_superseded_worker_changes_nothing(stores: Stores) -> None:
    session_id = await a_session(stores)
    job = await claimed(stores, session_id)
    await stores.jobs.acknowledge([Rescheduled(job.job_id, job.lease_id, 0.0)])
    (again,) = await stores.jobs.claim(ANY, 1, session_id)
    assert again.attempt == job.attempt  # the number is the same: only the lease tells them apart
    assert await stores.jobs.acknowledge([Completed(job.job_id, job.lease_id, "old")]) == set()
    assert await stores.jobs.acknowledge([Completed(again.job_id, again.lease_id, "new")]) == {job.job_id}
    view = await stores.jobs.get(job.job_id)
    assert view is not None
    assert view.result == "new"


async def test_acknowledge_batch_holds_every_kind_of_outcome(stores: Stores) -> None:
    session_id = await a_session(stores)
    await enqueued(stores, *(new_job() for _ in range(6)))
    a, b, c, d, e, f = await stores.jobs.claim(ANY, 6, session_id)
    accepted = await stores.jobs.acknowledge(
        [
            Completed(a.job_id, a.lease_id, {"ok": True}),
            Rescheduled(b.job_id, b.lease_id, 3.0),
            failed(c, delay_s=4.0),
            Cancelled(d.job_id, d.lease_id, "why"),
            discarded(e),
            Completed(f.job_id, f.lease_id + 1),
        ]
    )
    assert accepted == {a.job_id, b.job_id, c.job_id, d.job_id, e.job_id}
    views = [await stores.jobs.get(job.job_id) for job in (a, b, c, d, e, f)]
    assert [view.label for view in views if view] == [
        "completed",
        "scheduled",
        "retryable",
        "cancelled",
        "discarded",
        "running",
    ]
    assert await stores.jobs.acknowledge([]) == set()


# ---- housekeeping ------------------------------------------------------------------------------------


async def test_a_job_past_its_expiry_dies_and_is_not_silent(stores: Stores) -> None:
    session_id = await a_session(stores)
    (job_id, kept_id) = await enqueued(stores, new_job(expires_in_s=10), new_job(expires_in_s=100))
    assert await stores.jobs.expire_due(100) == 0
    await stores.pass_time(11)
    assert [job.job_id for job in await stores.jobs.claim(ANY, 9, session_id)] == [kept_id]
    assert await stores.jobs.expire_due(100) == 1
    assert await stores.jobs.expire_due(100) == 0
    (entry,) = await stores.dead_letters.search(
        status=None, category=None, tenant_id="acme", kind=None, limit=9
    )
    assert (entry.job_id, entry.code) == (job_id, "expired")
    assert entry.reason


async def test_when_the_next_job_is_due(stores: Stores) -> None:
    assert await stores.jobs.next_due_in_s(ANY) is None
    await enqueued(stores, new_job(delay_s=50), new_job(delay_s=20), new_job(delay_s=5, queue="mail"))
    due_s = await stores.jobs.next_due_in_s(ANY)
    assert due_s is not None
    assert 15 < due_s <= 20
    await stores.pass_time(25)
    assert await stores.jobs.next_due_in_s(ANY) == 0
    assert await stores.jobs.next_due_in_s(ClaimFilter(kinds=("other",))) is None


async def test_pruning_keeps_each_state_as_long_as_it_was_told(stores: Stores) -> None:
    session_id = await a_session(stores)
    await enqueued(stores, *(new_job() for _ in range(4)))
    a, b, c, _running = await stores.jobs.claim(ANY, 4, session_id)
    await stores.jobs.acknowledge(
        [Completed(a.job_id, a.lease_id), Cancelled(b.job_id, b.lease_id, "x"), discarded(c)]
    )
    keep = {"completed": 100.0, "cancelled": 200.0, "discarded": 300.0}
    await stores.pass_time(150)
    assert await stores.jobs.prune(keep, 100) == 1
    assert await stores.jobs.get(a.job_id) is None
    await stores.pass_time(200)
    assert await stores.jobs.prune(keep, 1) == 1
    assert await stores.jobs.prune(keep, 100) == 1
    await stores.pass_time(10_000)
    assert await stores.jobs.prune(keep, 100) == 0
    assert await stores.jobs.counts() == {"running": 1}


async def test_jobs_are_searched_and_counted(stores: Stores) -> None:
    session_id = await a_session(stores)
    await claimed(stores, session_id)
    soon, later = await enqueued(
        stores, new_job("mail", group_key="g", tags=("blue", "red")), new_job(delay_s=60)
    )
    assert await stores.jobs.counts() == {"running": 1, "available": 1, "scheduled": 1}
    everything = {"state": None, "kind": None, "tenant_id": None, "queue": None, "limit": 9}
    assert len(await stores.jobs.search(**everything)) == 3  # type: ignore[arg-type]
    for narrowed, matching_ids in (
        ({"kind": "mail"}, [soon]),
        ({"state": "scheduled"}, [later]),
        ({"queue": "x"}, []),
    ):
        views = await stores.jobs.search(**(everything | narrowed))  # type: ignore[arg-type]
        assert [view.job_id for view in views] == matching_ids
    view = await stores.jobs.get(soon)
    assert view is not None
    assert (view.group_key, list(view.tags)) == ("g", ["blue", "red"])
    assert len(await stores.jobs.search(**(everything | {"limit": 2}))) == 2  # type: ignore[arg-type]
    assert await stores.jobs.get(NOBODY) is None


async def test_retry_now(stores: Stores) -> None:
    session_id = await a_session(stores)
    job = await claimed(stores, session_id)
    assert not await stores.jobs.retry_now(job.job_id)
    await stores.jobs.acknowledge([failed(job, delay_s=600)])
    assert await stores.jobs.retry_now(job.job_id)
    (again,) = await stores.jobs.claim(ANY, 1, session_id)
    assert again.attempt == 2
    assert not await stores.jobs.retry_now(NOBODY)


@pytest.mark.parametrize("text", ["ü", "' OR 1=1 --", "x" * 2000])
async def test_texts_come_back_as_they_went(stores: Stores, text: str) -> None:
    job = await claimed(stores, await a_session(stores), args={text: text})
    assert dict(job.args) == {text: text}
