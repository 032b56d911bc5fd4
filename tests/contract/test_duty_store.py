"""ScheduleStore: schedules keep their last run, and a run is taken once, with its job (R4)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from fairlead.engine.jobs.dead_letter import replay_job
from fairlead.engine.ports import Completed, DeadLetterFilter, Job, Rescheduled, Schedule
from tests.contract.stores import ANY, Stores, a_session, claimed, discarded
from tests.support.engine import IDS, NOBODY, new_job

HOURLY = Schedule("scan", "0 * * * *", "token.scan", "fairlead", args={"a": 1})


async def test_a_new_schedule_begins_now_and_an_old_one_keeps_its_run(stores: Stores) -> None:
    await stores.schedule_store.sync_schedules([HOURLY])
    (state,) = await stores.schedule_store.schedules()
    assert state.schedule == HOURLY
    assert abs((state.now - state.last_run_at).total_seconds()) < 60
    await stores.pass_time(100)
    changed = replace(
        HOURLY,
        expression="*/5 * * * *",
        missed="catch_up",
        timezone="Europe/Berlin",
        jitter_s=0.25,
        paused=True,
        priority=0,
        args={},
    )
    await stores.schedule_store.sync_schedules([changed, replace(HOURLY, name="other")])
    states = {state.schedule.name: state for state in await stores.schedule_store.schedules()}
    assert set(states) == {"scan", "other"}
    assert states["scan"].schedule == changed
    waited_s = (states["scan"].now - states["scan"].last_run_at).total_seconds()
    assert waited_s < 60, "the new expression makes up no runs of before it was there"
    await stores.pass_time(100)
    await stores.schedule_store.sync_schedules([replace(changed, args={"a": 2})])
    states = {state.schedule.name: state for state in await stores.schedule_store.schedules()}
    waited_s = (states["scan"].now - states["scan"].last_run_at).total_seconds()
    assert 100 <= waited_s < 160


async def test_after_the_clock_was_set_back_a_schedule_goes_on_and_takes_no_run_twice(
    stores: Stores,
) -> None:
    session_id = await a_session(stores)
    await stores.schedule_store.sync_schedules([HOURLY])
    (state,) = await stores.schedule_store.schedules()
    assert await stores.schedule_store.rewind() == []
    ahead = state.now + timedelta(hours=3)
    assert await stores.schedule_store.record_run(
        "scan", state.last_run_at, ahead, 0, session_id, new_job("token.scan")
    )
    assert await stores.schedule_store.rewind() == ["scan"]
    (state,) = await stores.schedule_store.schedules()
    assert abs((state.now - state.last_run_at).total_seconds()) < 60
    counts_before = await stores.jobs.counts()
    assert await stores.schedule_store.record_run(
        "scan", state.last_run_at, ahead, 0, session_id, new_job("token.scan")
    )
    assert await stores.jobs.counts() == counts_before
    assert len(await stores.schedule_store.runs("scan", 9)) == 1


async def test_a_replay_that_waits_for_its_turn_runs_for_the_run(stores: Stores) -> None:
    """Spread over hours, it would stand for all runs until then."""
    session_id = await a_session(stores)
    await stores.schedule_store.sync_schedules([HOURLY])
    dead = discarded(await claimed(stores, session_id, kind="token.scan", unique_key="schedule:scan"))
    await stores.jobs.acknowledge([dead])
    entry = await stores.dead_letters.get(dead.dead_letter_id)
    assert entry is not None
    replay = replay_job(entry, IDS, delay_s=5 * 3600.0)
    assert await stores.dead_letters.redrive(dead.dead_letter_id, replay)

    async def run_at(after_s: float) -> list[Job]:
        (state,) = await stores.schedule_store.schedules()
        job = new_job("token.scan", unique_key="schedule:scan")
        at = state.last_run_at + timedelta(seconds=after_s)
        assert await stores.schedule_store.record_run("scan", state.last_run_at, at, 0, session_id, job)
        return await stores.jobs.claim(ANY, 9, session_id)

    (first,) = await run_at(1.0)
    assert first.job_id == replay.job_id
    assert await stores.jobs.acknowledge([Rescheduled(first.job_id, first.lease_id, 600.0)])
    assert await run_at(2.0) == [], "what has begun waits as it was told to"


async def test_a_run_is_taken_once_with_its_job(stores: Stores) -> None:
    session_id = await a_session(stores)
    await stores.schedule_store.sync_schedules([HOURLY])
    (state,) = await stores.schedule_store.schedules()
    run_at = state.last_run_at + timedelta(hours=1)
    takes = [
        stores.schedule_store.record_run(
            "scan", state.last_run_at, run_at, 0, session_id, new_job("token.scan")
        )
        for _ in range(8)
    ]
    assert sorted(await asyncio.gather(*takes)) == [False] * 7 + [True]
    assert len(await stores.jobs.claim(ANY, 99, session_id)) == 1
    (state,) = await stores.schedule_store.schedules()
    assert state.last_run_at == run_at
    later = run_at + timedelta(hours=1)
    assert await stores.schedule_store.record_run("scan", run_at, later, 3, session_id, new_job("token.scan"))
    assert not await stores.schedule_store.record_run(
        "scan", run_at, later, 3, session_id, new_job("token.scan")
    )
    assert not await stores.schedule_store.record_run("none", run_at, later, 0, NOBODY, new_job("token.scan"))


async def test_a_run_whose_job_is_still_open_is_taken_all_the_same(stores: Stores) -> None:
    session_id = await a_session(stores)
    await stores.schedule_store.sync_schedules([HOURLY])
    (state,) = await stores.schedule_store.schedules()
    first = state.last_run_at + timedelta(hours=1)
    second = first + timedelta(hours=1)
    job = new_job("token.scan", unique_key="schedule:scan")
    again = new_job("token.scan", unique_key="schedule:scan")
    assert await stores.schedule_store.record_run("scan", state.last_run_at, first, 0, session_id, job)
    assert await stores.schedule_store.record_run("scan", first, second, 0, session_id, again)
    assert [job.job_id for job in await stores.jobs.claim(ANY, 9, session_id)] == [job.job_id]


async def test_a_paused_schedule_gives_no_run(stores: Stores) -> None:
    session_id = await a_session(stores)
    await stores.schedule_store.sync_schedules([replace(HOURLY, paused=True)])
    (state,) = await stores.schedule_store.schedules()
    run_at = state.last_run_at + timedelta(hours=1)
    assert not await stores.schedule_store.record_run(
        "scan", state.last_run_at, run_at, 0, session_id, new_job()
    )
    assert await stores.jobs.counts() == {}


async def test_a_person_s_pause_outlives_every_declaration(stores: Stores) -> None:
    session_id = await a_session(stores)
    await stores.schedule_store.sync_schedules([HOURLY])
    assert await stores.schedule_store.pause("scan", "ann", "the vendor is down")
    assert await stores.schedule_store.pause("scan", "bob", "me too")  # the first one stands
    for declared in (HOURLY, replace(HOURLY, expression="@daily"), replace(HOURLY, paused=True), HOURLY):
        await stores.schedule_store.sync_schedules([declared])
        (state,) = await stores.schedule_store.schedules()
        assert state.paused
        assert state.pause is not None
        assert (state.pause.by, state.pause.reason) == ("ann", "the vendor is down")
    run_at = state.last_run_at + timedelta(hours=1)
    assert not await stores.schedule_store.record_run(
        "scan", state.last_run_at, run_at, 0, session_id, new_job()
    )
    assert await stores.schedule_store.resume("scan", make_up=False)
    (state,) = await stores.schedule_store.schedules()
    assert (state.paused, state.pause) == (False, None)
    assert await stores.schedule_store.record_run("scan", state.last_run_at, run_at, 0, session_id, new_job())
    assert not await stores.schedule_store.pause("none", "ann", "why")
    assert not await stores.schedule_store.resume("none", make_up=False)


@pytest.mark.parametrize("make_up", [False, True])
async def test_ticks_during_a_pause_are_skipped_or_made_up(stores: Stores, make_up: bool) -> None:
    await stores.schedule_store.sync_schedules([HOURLY])
    await stores.schedule_store.pause("scan", "ann", "not now")
    await stores.pass_time(5000)
    assert await stores.schedule_store.resume("scan", make_up=make_up)
    (state,) = await stores.schedule_store.schedules()
    assert ((state.now - state.last_run_at).total_seconds() >= 5000) is make_up
    await stores.pass_time(1000)
    assert await stores.schedule_store.resume("scan", make_up=False)  # there was no pause: nothing is let go
    (state,) = await stores.schedule_store.schedules()
    assert (state.now - state.last_run_at).total_seconds() >= 1000


async def test_schedule_paused_in_code_starts_when_the_code_unpauses_it(stores: Stores) -> None:
    await stores.schedule_store.sync_schedules([replace(HOURLY, paused=True)])
    await stores.pass_time(5000)
    await stores.schedule_store.sync_schedules([replace(HOURLY, paused=True, priority=0)])
    (state,) = await stores.schedule_store.schedules()
    assert (state.now - state.last_run_at).total_seconds() >= 5000
    await stores.schedule_store.sync_schedules([HOURLY])
    (state,) = await stores.schedule_store.schedules()
    assert not state.paused
    assert (state.now - state.last_run_at).total_seconds() < 60


async def test_a_spread_job_is_due_after_its_run_and_not_later_for_being_taken_late(stores: Stores) -> None:
    session_id = await a_session(stores)
    await stores.schedule_store.sync_schedules([HOURLY])
    await stores.pass_time(100)
    (state,) = await stores.schedule_store.schedules()
    run_at, seen_at = state.last_run_at + timedelta(seconds=60), state.last_run_at
    due = []
    for after_s in (30.0, 70.0, 0.0):  # 40 s have passed since the run
        job = new_job("token.scan", delay_s=after_s)
        assert await stores.schedule_store.record_run("scan", seen_at, run_at, 0, session_id, job)
        view = await stores.jobs.get(job.job_id)
        assert view is not None
        due.append((view.run_at - run_at).total_seconds())
        seen_at, run_at = run_at, run_at + timedelta(microseconds=1)
    assert 39 < due[0] < 60
    assert due[1] == pytest.approx(70)
    assert 39 < due[2] < 60
    assert {job.kind for job in await stores.jobs.claim(ANY, 9, session_id)} == {"token.scan"}
    assert (await stores.jobs.counts()) == {"running": 2, "scheduled": 1}


async def test_removing_forgets_the_schedule_and_keeps_its_record(stores: Stores) -> None:
    session_id = await a_session(stores)
    await stores.schedule_store.sync_schedules([HOURLY, replace(HOURLY, name="other")])
    state = (await stores.schedule_store.schedules())[1]
    run_at = state.last_run_at + timedelta(hours=1)
    assert await stores.schedule_store.record_run("scan", state.last_run_at, run_at, 0, session_id, new_job())
    await stores.schedule_store.remove("scan")
    await stores.schedule_store.remove("scan")
    assert [state.schedule.name for state in await stores.schedule_store.schedules()] == ["other"]
    assert len(await stores.schedule_store.runs("scan", 9)) == 1


async def test_the_record_tells_the_latest_runs_first(stores: Stores) -> None:
    session_id = await a_session(stores)
    await stores.schedule_store.sync_schedules([HOURLY, replace(HOURLY, name="other")])
    state = (await stores.schedule_store.schedules())[1]
    seen_at = state.last_run_at
    jobs = [new_job("token.scan", unique_key="one") for _ in range(3)]
    for coalesced, job in enumerate(jobs):
        run_at = seen_at + timedelta(hours=1)
        assert await stores.schedule_store.record_run("scan", seen_at, run_at, coalesced, session_id, job)
        seen_at = run_at
    runs = await stores.schedule_store.runs("scan", 2)
    assert [(run.run_at, run.coalesced, run.job_id) for run in runs] == [
        (seen_at, 2, None),
        (seen_at - timedelta(hours=1), 1, None),
    ]
    assert (await stores.schedule_store.runs("scan", 9))[2].job_id == jobs[0].job_id
    assert {run.session_id for run in runs} == {session_id}
    assert await stores.schedule_store.runs("other", 9) == await stores.schedule_store.runs("scan", 0) == []


async def test_pruning_forgets_old_runs(stores: Stores) -> None:
    session_id = await a_session(stores)
    await stores.schedule_store.sync_schedules([HOURLY])
    (state,) = await stores.schedule_store.schedules()
    run_at = state.last_run_at + timedelta(hours=1)
    await stores.schedule_store.record_run("scan", state.last_run_at, run_at, 0, session_id, new_job())
    assert await stores.schedule_store.prune(100, 10) == 0
    await stores.pass_time(101)
    assert await stores.schedule_store.prune(100, 10) == 1


async def test_a_key_that_has_lapsed_covers_no_run(stores: Stores) -> None:
    """A job of that key was finished long ago: nothing stands for the run but a job of its own."""
    session_id = await a_session(stores, lease_s=1e6)
    await stores.schedule_store.sync_schedules([HOURLY])
    (state,) = await stores.schedule_store.schedules()
    job = await claimed(stores, session_id, kind="token.scan", unique_key="one", unique_for_s=60.0)
    assert await stores.jobs.acknowledge([Completed(job.job_id, job.lease_id)])
    await stores.pass_time(61)
    (state,) = await stores.schedule_store.schedules()
    again = new_job("token.scan", tenant_id=job.tenant_id, unique_key="one")
    run_at = state.last_run_at + timedelta(seconds=1)
    assert await stores.schedule_store.record_run("scan", state.last_run_at, run_at, 1, session_id, again)
    (run,) = await stores.schedule_store.runs("scan", 9)
    assert run.job_id == again.job_id


async def test_a_job_that_expired_covers_no_run_and_keeps_no_replay_out(stores: Stores) -> None:
    """It will not run, whether it was swept into the dead letters yet or not (R53)."""
    session_id = await a_session(stores)
    await stores.schedule_store.sync_schedules([HOURLY])
    job = await claimed(stores, session_id, unique_key="work")
    await stores.jobs.acknowledge([discarded(job)])
    await stores.jobs.enqueue([new_job(unique_key="work", expires_in_s=10.0)])
    await stores.jobs.enqueue([new_job("token.scan", unique_key="scan", expires_in_s=10.0)])
    await stores.pass_time(11.0)
    (state,) = await stores.schedule_store.schedules()
    run_at = state.last_run_at + timedelta(hours=1)
    follower = new_job("token.scan", unique_key="scan")
    assert await stores.schedule_store.record_run("scan", state.last_run_at, run_at, 0, session_id, follower)
    assert await stores.jobs.get(follower.job_id) is not None
    (entry,) = await stores.dead_letters.find(DeadLetterFilter(kind="work"), limit=9)
    assert await stores.dead_letters.redrive(entry.dead_letter_id, replay_job(entry, IDS))


async def test_a_job_that_covers_a_run_is_not_later_than_the_tick(stores: Stores) -> None:
    """Else one that was put off by an hour covers all runs until then (R53)."""
    session_id = await a_session(stores)
    await stores.schedule_store.sync_schedules([HOURLY])
    later = new_job("token.scan", unique_key="scan", delay_s=3600.0)
    await stores.jobs.enqueue([later])
    (state,) = await stores.schedule_store.schedules()
    run_at = state.last_run_at + timedelta(hours=1)
    job = new_job("token.scan", unique_key="scan")
    assert await stores.schedule_store.record_run("scan", state.last_run_at, run_at, 0, session_id, job)
    assert [each_job.job_id for each_job in await stores.jobs.claim(ANY, 9, session_id)] == [later.job_id]
