"""Who answers for a job whose unique key is taken (R20, R53)."""

from __future__ import annotations

import pytest

from fairlead.engine.ports import ClaimFilter, Completed, Enqueued, Rescheduled
from fairlead.policy.jobs.job import UniqueWhile
from tests.contract.stores import ANY, Stores, a_session, claimed, discarded
from tests.support.engine import new_job


async def test_unique_key_has_one_open_job_whose_priority_only_rises(stores: Stores) -> None:
    session_id = await a_session(stores)
    first, again = new_job(unique_key="k", priority=2), new_job(unique_key="k", priority=1)
    elsewhere = new_job(unique_key="k", tenant_id="other")
    assert (await stores.jobs.enqueue([first]))[0].inserted
    (enqueued,) = await stores.jobs.enqueue([again])
    assert (enqueued.job_id, enqueued.inserted) == (first.job_id, False)
    assert (await stores.jobs.enqueue([new_job(unique_key="k", priority=3)]))[0].job_id == first.job_id
    assert (await stores.jobs.enqueue([elsewhere]))[0].inserted
    assert (await stores.jobs.enqueue([new_job("other", unique_key="k")]))[0].inserted
    view = await stores.jobs.get(first.job_id)
    assert view is not None
    assert view.priority == 1
    jobs = await stores.jobs.claim(ClaimFilter(kinds=("work",)), 9, session_id)
    await stores.jobs.acknowledge([Completed(job.job_id, job.lease_id) for job in jobs])
    assert (await stores.jobs.enqueue([new_job(unique_key="k")]))[0].inserted


async def test_a_job_that_has_begun_hands_its_unique_key_on(stores: Stores) -> None:
    """It may have read before the caller's change (R53); what is ours says by its key what it is about."""
    session_id = await a_session(stores)
    running = await claimed(stores, session_id, unique_key="k")
    (follower,) = await stores.jobs.enqueue([new_job(unique_key="k")])
    assert follower.inserted
    assert (await stores.jobs.enqueue([new_job(unique_key="k")]))[0].job_id == follower.job_id
    assert await stores.jobs.claim(ANY, 9, session_id) == []  # it begins once that run has ended
    explanation = await stores.lanes.explain(follower.job_id)
    assert explanation is not None
    assert explanation.why == "follows"
    await stores.jobs.acknowledge([Rescheduled(running.job_id, running.lease_id, delay_s=0.0)])
    assert (await stores.jobs.enqueue([new_job(unique_key="k")]))[0].job_id == follower.job_id
    assert {job.job_id for job in await stores.jobs.claim(ANY, 9, session_id)} == {
        running.job_id,
        follower.job_id,
    }
    ours = await claimed(stores, session_id, kind="token.refresh", unique_key="k")
    assert not (await stores.jobs.enqueue([new_job("token.refresh", unique_key="k")]))[0].inserted
    held_job = await claimed(stores, session_id, unique_key="held", unique_for_s=60.0)
    assert (await stores.jobs.enqueue([new_job(unique_key="held")]))[0].job_id == held_job.job_id
    assert ours.job_id != held_job.job_id


@pytest.mark.parametrize("end", ["completed", "discarded", "closed", "lost"])
@pytest.mark.parametrize("first_delay_s", [0.0, 3600.0])
async def test_unique_job_enqueued_while_its_key_runs_begins_when_that_run_ends(
    stores: Stores, end: str, first_delay_s: float
) -> None:
    """Whichever way the run ends; and as soon as the soonest that was asked for."""
    session_id, other = await a_session(stores, 1), await a_session(stores, 2)
    running = await claimed(stores, session_id, unique_key="k")
    new_jobs = [
        new_job(unique_key="k", delay_s=first_delay_s),
        new_job(unique_key="k"),
        new_job(unique_key="k", delay_s=5.0),
    ]
    stored = [(await stores.jobs.enqueue([job]))[0].job_id for job in new_jobs]
    assert set(stored) == {new_jobs[0].job_id}
    await stores.pass_time(60)
    assert await stores.jobs.claim(ANY, 9, other) == []
    assert await stores.jobs.claim_suspect(ANY, other) is None
    if end == "completed":
        await stores.jobs.acknowledge([Completed(running.job_id, running.lease_id)])
    elif end == "discarded":
        await stores.jobs.acknowledge([discarded(running)])
    elif end == "closed":
        await stores.sessions.close(session_id)
    else:
        await stores.sessions.mark_dead([session_id])
        await stores.sessions.rescue(other, 0.0, 3, 100)
    job_ids = {job.job_id for job in await stores.jobs.claim(ANY, 9, other)}
    assert job_ids - {running.job_id} == {new_jobs[0].job_id}
    if end in ("completed", "discarded"):
        assert job_ids == {new_jobs[0].job_id}


async def test_a_job_that_follows_a_run_is_hurried_by_hand(stores: Stores) -> None:
    session_id = await a_session(stores)
    running = await claimed(stores, session_id, unique_key="k")
    ((follower),) = await stores.jobs.enqueue([new_job(unique_key="k")])
    assert await stores.jobs.retry_now(follower.job_id)
    assert [job.job_id for job in await stores.jobs.claim(ANY, 9, session_id)] == [follower.job_id]
    await stores.jobs.acknowledge([Completed(running.job_id, running.lease_id)])
    assert await stores.jobs.claim(ANY, 9, session_id) == []


async def test_a_job_that_has_expired_hands_its_unique_key_on(stores: Stores) -> None:
    """Whether it was swept into the dead letters yet or not."""
    first = new_job(unique_key="k", expires_in_s=10.0)
    await stores.jobs.enqueue([first])
    await stores.pass_time(11.0)
    assert (await stores.jobs.enqueue([new_job(unique_key="k", expires_in_s=60.0)]))[0].inserted
    assert await stores.jobs.expire_due(10) == 1
    assert not (await stores.jobs.enqueue([new_job(unique_key="k")]))[0].inserted


@pytest.mark.parametrize("together", [False, True])
async def test_a_job_that_waits_is_run_as_soon_and_kept_as_long_as_the_second_asks(
    stores: Stores, *, together: bool
) -> None:
    """Else it would answer for work that it does too late, or not at all (R53)."""
    session_id = await a_session(stores)
    late, soon = new_job(unique_key="k", delay_s=3600.0, expires_in_s=3605.0), new_job(unique_key="k")
    for batch in [[late, soon]] if together else [[late], [soon]]:
        assert (await stores.jobs.enqueue(batch))[-1].job_id == late.job_id
    (job,) = await stores.jobs.claim(ANY, 9, session_id)
    assert job.job_id == late.job_id
    view = await stores.jobs.get(late.job_id)
    assert view is not None
    assert view.expires_at is None


async def test_a_job_that_has_begun_before_is_not_run_sooner_for_another(stores: Stores) -> None:
    """It is held back by a retry or a snooze; its expiry moves all the same."""
    session_id = await a_session(stores)
    job = await claimed(stores, session_id, unique_key="k", expires_in_s=120.0)
    await stores.jobs.acknowledge([Rescheduled(job.job_id, job.lease_id, delay_s=60.0)])
    again = new_job(unique_key="k", priority=0, expires_in_s=240.0)
    assert (await stores.jobs.enqueue([again]))[0].job_id == job.job_id
    assert await stores.jobs.claim(ANY, 9, session_id) == []
    await stores.pass_time(130.0)
    assert await stores.jobs.expire_due(9) == 0
    assert [each_job.job_id for each_job in await stores.jobs.claim(ANY, 9, session_id)] == [job.job_id]


async def test_a_batch_may_hold_one_key_twice(stores: Stores) -> None:
    first, two = await stores.jobs.enqueue([new_job(unique_key="k"), new_job(unique_key="k")])
    assert first.job_id == two.job_id
    assert {first.inserted, two.inserted} == {True, False}


async def test_a_unique_key_may_outlive_its_job(stores: Stores) -> None:
    session_id = await a_session(stores)
    job = await claimed(stores, session_id, unique_key="outbox-1", unique_for_s=100_000)
    await stores.jobs.acknowledge([Completed(job.job_id, job.lease_id)])
    await stores.pass_time(90_000)
    assert await stores.jobs.prune({"completed": 1.0}, 100) == 0
    (enqueued,) = await stores.jobs.enqueue([new_job(unique_key="outbox-1")])
    assert (enqueued.job_id, enqueued.inserted) == (job.job_id, False)
    await stores.pass_time(110_000)
    assert (await stores.jobs.enqueue([new_job(unique_key="outbox-1")]))[0].inserted


async def enqueue_unique(
    stores: Stores, unique_while: UniqueWhile = "follow_up", **fields: object
) -> Enqueued:
    """What one more enqueue of the key ``k`` gives."""
    (enqueued,) = await stores.jobs.enqueue([new_job(unique_key="k", unique_while=unique_while, **fields)])
    return enqueued


async def test_unique_while_decides_what_becomes_of_a_job_while_one_runs(stores: Stores) -> None:
    session_id = await a_session(stores)
    run = await claimed(stores, session_id, unique_key="k")
    enqueued = await enqueue_unique(stores, "open")
    assert (enqueued.job_id, enqueued.inserted, enqueued.key_state) == (run.job_id, False, "running")
    beside = await enqueue_unique(stores, "waiting")
    assert (beside.inserted, beside.key_state) == (True, "running")
    for unique_while in ("waiting", "open", "follow_up"):
        enqueued = await enqueue_unique(stores, unique_while)
        assert (enqueued.job_id, enqueued.inserted, enqueued.key_state) == (beside.job_id, False, "waiting")
    assert [job.job_id for job in await stores.jobs.claim(ANY, 9, session_id)] == [beside.job_id]
    follower = await enqueue_unique(stores)
    assert (follower.inserted, follower.key_state) == (True, "running")
    assert await stores.jobs.claim(ANY, 9, session_id) == []
    for unique_while in ("waiting", "open", "follow_up"):
        enqueued = await enqueue_unique(stores, unique_while)
        assert (enqueued.job_id, enqueued.inserted, enqueued.key_state) == (follower.job_id, False, "waiting")
    assert await stores.jobs.claim(ANY, 9, session_id) == []


async def test_an_enqueue_says_what_its_unique_key_met(stores: Stores) -> None:
    session_id = await a_session(stores)
    assert (await stores.jobs.enqueue([new_job()]))[0].key_state == "none"
    ended = await claimed(stores, session_id, queue="default", priority=0, unique_key="k")
    await stores.jobs.acknowledge([Completed(ended.job_id, ended.lease_id)])
    assert (await enqueue_unique(stores)).key_state == "none"
    first, second = await stores.jobs.enqueue([new_job(unique_key="two"), new_job(unique_key="two")])
    assert (first.key_state, second.key_state, second.job_id) == ("none", "waiting", first.job_id)
    kept_job = await claimed(stores, session_id, priority=0, unique_key="kept", unique_for_s=60.0)
    again = new_job(unique_key="kept")
    assert (await stores.jobs.enqueue([again]))[0].key_state == "running"
    await stores.jobs.acknowledge([Completed(kept_job.job_id, kept_job.lease_id)])
    assert (await stores.jobs.enqueue([again]))[0].key_state == "finished"
    await stores.pass_time(61.0)
    assert (await stores.jobs.enqueue([again]))[0].key_state == "none"


@pytest.mark.parametrize("end", ["cancelled", "expired", "expired unseen"])
async def test_a_run_whose_follower_is_gone_is_followed_by_the_next(stores: Stores, end: str) -> None:
    """It has handed its unique key on, and nobody holds that now: yet it runs."""
    session_id = await a_session(stores)
    run = await claimed(stores, session_id, unique_key="k")
    expired = await enqueue_unique(stores, expires_in_s=5.0)
    if end == "cancelled":
        await stores.jobs.cancel(expired.job_id, "no longer wanted")
    else:
        await stores.pass_time(6.0)
        if end == "expired":
            assert await stores.jobs.expire_due(9) == 1
    assert (await enqueue_unique(stores, "open")).job_id == run.job_id
    follower = await enqueue_unique(stores)
    assert (follower.inserted, follower.key_state) == (True, "running")
    assert await stores.jobs.claim(ANY, 9, session_id) == []
    await stores.jobs.acknowledge([Completed(run.job_id, run.lease_id)])
    assert [job.job_id for job in await stores.jobs.claim(ANY, 9, session_id)] == [follower.job_id]


async def test_a_run_that_is_being_cancelled_does_not_answer(stores: Stores) -> None:
    session_id = await a_session(stores)
    run = await claimed(stores, session_id, unique_key="k")
    await stores.jobs.cancel(run.job_id, "no longer wanted")
    enqueued = await enqueue_unique(stores, "open")
    assert (enqueued.inserted, enqueued.key_state) == (True, "running")


@pytest.mark.parametrize("choices", [("open", "follow_up"), ("follow_up", "open", "waiting")])
async def test_jobs_of_one_key_in_one_call_choose_what_asks_for_most(
    stores: Stores, choices: tuple[UniqueWhile, ...]
) -> None:
    session_id = await a_session(stores)
    await claimed(stores, session_id, unique_key="k")
    jobs = [new_job(unique_key="k", unique_while=choice) for choice in choices]
    results = await stores.jobs.enqueue(jobs)
    assert {result.job_id for result in results} == {jobs[0].job_id}
    assert [result.key_state for result in results] == ["running"] + ["waiting"] * (len(jobs) - 1)
    free = {job.job_id for job in await stores.jobs.claim(ANY, 9, session_id)}
    assert free == ({jobs[0].job_id} if "waiting" in choices else set())
