"""Runs: none missed and none doubled, through any number of deaths (T3, R4)."""

from __future__ import annotations

import random
from datetime import datetime, timedelta

import pytest

from fairlead.engine.jobs.schedules import no_handler_reason
from fairlead.engine.ports import Completed, Job, Schedule
from fairlead.events import ScheduleFired, ServiceFailed
from fairlead.policy.jobs.cron import run_times_between
from fairlead.policy.jobs.schedule import run_delay_s
from tests.support.process import FOREVER, Fleet, Process


def schedule(name: str, expression: str, **fields: object) -> Schedule:
    return Schedule(name, expression, "scan", "fairlead", **fields)  # type: ignore[arg-type]


async def done(fleet: Fleet) -> list[Job]:
    """The jobs that runs made; they are completed by this."""
    jobs = await fleet.claim()
    await fleet.jobs.acknowledge([Completed(job.job_id, job.lease_id) for job in jobs])
    return jobs


async def test_a_run_makes_its_job_on_time(fleet: Fleet) -> None:
    await fleet.schedule_store.sync_schedules(
        [schedule("scan", "* * * * *", priority=1, args={"deep": True})]
    )
    process = await fleet.start()
    await fleet.advance(59)
    assert process.emit.of(ScheduleFired) == []
    await fleet.advance(1)
    assert process.emit.of(ScheduleFired) == [ScheduleFired("scan", 0)]
    (job,) = await fleet.claim()
    assert (job.kind, job.tenant_id, job.priority) == ("scan", "fairlead", 1)
    assert dict(job.args) == {
        "deep": True,
        "schedule": "scan",
        "run_at": "2026-01-01T00:01:00+00:00",
        "coalesced": 0,
    }


async def test_seconds_work_too(fleet: Fleet) -> None:
    await fleet.schedule_store.sync_schedules([schedule("scan", "@every 5s")])
    process = await fleet.start()
    await fleet.advance(62)
    assert len(process.emit.of(ScheduleFired)) == 12


async def test_missed_runs_coalesce_into_one(fleet: Fleet) -> None:
    await fleet.schedule_store.sync_schedules([schedule("scan", "* * * * *")])
    await fleet.advance(600)
    process = await fleet.start()
    await fleet.advance(1)
    assert process.emit.of(ScheduleFired) == [ScheduleFired("scan", 9)]
    assert len(await done(fleet)) == 1


async def test_or_by_all_of_them(fleet: Fleet) -> None:
    await fleet.schedule_store.sync_schedules([schedule("scan", "* * * * *", missed="catch_up")])
    await fleet.advance(250 * 60)
    process = await fleet.start()
    await fleet.advance(1)
    assert len(process.emit.of(ScheduleFired)) == 250  # more than one pass takes
    run_times = [job.args["run_at"] for job in await done(fleet)]
    assert len(set(run_times)) == 250


async def test_a_paused_schedule_takes_nothing(fleet: Fleet) -> None:
    await fleet.schedule_store.sync_schedules([schedule("scan", "* * * * *", paused=True)])
    process = await fleet.start()
    await fleet.advance(300)
    assert process.emit.of(ScheduleFired) == []


async def test_a_person_s_pause_holds_until_it_is_lifted(fleet: Fleet) -> None:
    every_minute = schedule("scan", "* * * * *", missed="catch_up")
    await fleet.schedule_store.sync_schedules([every_minute])
    process = await fleet.start()
    await fleet.advance(120)
    assert await fleet.schedule_store.pause("scan", "ann", "not now")
    await fleet.advance(300)
    await fleet.schedule_store.sync_schedules([every_minute])  # as a process does that starts
    await fleet.advance(300)
    assert len(process.emit.of(ScheduleFired)) == 2
    assert await fleet.schedule_store.resume("scan", make_up=False)
    await fleet.advance(120)
    assert len(process.emit.of(ScheduleFired)) == 4  # what fell into the pause is let go
    assert await fleet.schedule_store.pause("scan", "ann", "once more")
    await fleet.advance(300)
    assert await fleet.schedule_store.resume("scan", make_up=True)
    await fleet.advance(60)
    assert len(process.emit.of(ScheduleFired)) == 10


async def test_a_clock_that_was_set_back_is_told_and_runs_go_on(fleet: Fleet) -> None:
    await fleet.schedule_store.sync_schedules([schedule("scan", "* * * * *")])
    fleet.database.schedules["scan"].last_run_at += timedelta(hours=3)
    process = await fleet.start()
    await fleet.advance(300)
    assert len(process.emit.of(ScheduleFired)) == 5
    (event,) = process.emit.of(ServiceFailed)
    assert "'scan'" in event.reason


async def test_jobs_are_spread_after_their_runs(fleet: Fleet) -> None:
    spread = [schedule(f"scan{n}", "@every 30s", jitter_s=10.0, missed="catch_up") for n in range(20)]
    await fleet.schedule_store.sync_schedules(spread)
    await fleet.start()
    start_at = fleet.database.now
    await fleet.advance(300)
    rows = list(fleet.database.jobs.values())
    assert len(rows) == 20 * 10
    waits_s = []
    for row in rows:
        run_at = datetime.fromisoformat(row.args["run_at"])
        assert (run_at - start_at).total_seconds() % 30 == 0
        expected_s = run_delay_s(spread[int(row.args["schedule"].removeprefix("scan"))], run_at)
        waits_s.append((row.run_at - run_at).total_seconds())
        assert waits_s[-1] == pytest.approx(expected_s, abs=1e-6)
    assert 0 <= min(waits_s) < 1 < 9 < max(waits_s) < 10


async def test_a_schedule_whose_job_cannot_be_made_stops_no_other_and_is_told_once(fleet: Fleet) -> None:
    await fleet.schedule_store.sync_schedules(
        [schedule("bad", "* * * * *", args=7), schedule("good", "* * * * *")]
    )
    process = await fleet.start()
    await fleet.advance(300)
    assert [event.schedule for event in process.emit.of(ScheduleFired)] == ["good"] * 5
    (service_failure,) = process.emit.of(ServiceFailed)
    assert "'bad'" in service_failure.reason


async def test_an_outage_is_no_fault_of_a_schedule(fleet: Fleet) -> None:
    await fleet.schedule_store.sync_schedules([schedule("scan", "* * * * *", missed="catch_up")])
    process = await fleet.start()
    process.link.is_down = True
    await fleet.advance(150)
    process.link.is_down = False
    await fleet.advance(30)
    assert len(process.emit.of(ScheduleFired)) == 3
    assert process.emit.of(ServiceFailed) == []


async def test_a_schedule_that_cannot_be_read_stops_no_other_and_is_told_once(fleet: Fleet) -> None:
    await fleet.schedule_store.sync_schedules(
        [schedule("bad", "every now and then"), schedule("good", "* * * * *")]
    )
    process = await fleet.start()
    await fleet.advance(300)
    assert len(process.emit.of(ScheduleFired)) == 5
    (event,) = process.emit.of(ServiceFailed)
    assert "'bad'" in event.reason


async def test_an_open_job_stands_for_later_runs(fleet: Fleet) -> None:
    await fleet.schedule_store.sync_schedules([schedule("scan", "* * * * *")])
    process = await fleet.start()
    await fleet.advance(300)
    assert len(process.emit.of(ScheduleFired)) == 5
    assert len(await done(fleet)) == 1


async def test_catch_up_schedule_removed_from_the_code_is_coalesced_then_stopped(fleet: Fleet) -> None:
    """It was removed from the code: its jobs would pile up for ever."""
    await fleet.schedule_store.sync_schedules([schedule("gone", "* * * * *", missed="catch_up")])
    fleet.database.handled_at["default", "scan"] = fleet.database.now
    process = await fleet.start()
    await fleet.advance(3 * 3600)
    jobs = await done(fleet)
    assert len(jobs) <= 4  # three minutes' worth, and one for all later ones
    (state,) = await fleet.schedule_store.schedules()
    assert state.pause is not None
    assert (
        state.pause.reason
        == no_handler_reason(state)
        == "no_handler: no worker takes kind 'scan' from queue 'default'"
    )
    assert [event.reason for event in process.emit.of(ServiceFailed)] == [
        f"schedule 'gone' is paused: {state.pause.reason}"
    ]
    fired_count = len(process.emit.of(ScheduleFired))
    assert fired_count in (59, 60)  # of the first hour
    fleet.database.handled_at["default", "scan"] = FOREVER
    await fleet.advance(120)
    assert len(await done(fleet)) in (1, 2)  # what fell into the pause is let go
    assert [state.pause for state in await fleet.schedule_store.schedules()] == [None]


async def test_a_schedule_waits_for_workers_that_begin_after_the_scheduler(fleet: Fleet) -> None:
    """The whole fleet was away for a day: that no worker reported meanwhile says nothing."""
    await fleet.schedule_store.sync_schedules([schedule("scan", "@every 600s", missed="catch_up")])
    fleet.database.handled_at.clear()
    await fleet.advance(24 * 3600)
    process = await fleet.start()
    await fleet.advance(60)
    assert len(process.emit.of(ScheduleFired)) == 144
    assert len(await done(fleet)) == 144


async def test_a_person_s_pause_is_no_want_of_a_handler(fleet: Fleet) -> None:
    await fleet.schedule_store.sync_schedules([schedule("scan", "* * * * *")])
    await fleet.schedule_store.pause("scan", "ann", "no_handler: I say so")
    process = await fleet.start()
    await fleet.advance(300)
    assert process.emit.of(ScheduleFired) == []


class Deaths:
    """Three processes that dawdle in every statement, killed at random moments, now and then all at once."""

    def __init__(self, fleet: Fleet, seed: int) -> None:
        self.fleet, self.chance = fleet, random.Random(seed)
        self.alive: list[Process] = []
        self.made: list[Job] = []

    async def dawdle(self, operation: str) -> None:
        """So that a death may come before a statement, or between it and its answer."""
        if self.chance.random() < 0.5:
            await self.fleet.clock.sleep(self.chance.uniform(0, 4))

    async def round(self) -> None:
        for _ in range(3 - len(self.alive)):
            process = self.fleet.new()
            process.link.on_arrival = process.link.on_answer = self.dawdle
            self.alive.append(process)
        await self.fleet.advance(self.chance.uniform(0, 20))
        self.chance.shuffle(self.alive)
        for _ in range(3 if self.chance.random() < 0.1 else 1):
            await self.alive.pop().kill()
        await self.fleet.advance(self.chance.choice([0.0, 0.0, self.chance.uniform(0, 90)]))
        self.made += await done(self.fleet)


@pytest.mark.slow
@pytest.mark.parametrize("missed", ["coalesce", "catch_up"])
@pytest.mark.parametrize("seed", range(3))
async def test_no_run_is_missed_or_doubled_through_many_deaths(missed: str, seed: int) -> None:
    fleet = Fleet()
    deaths = Deaths(fleet, seed)
    expression = "@every 20s"
    await fleet.schedule_store.sync_schedules([schedule("scan", expression, missed=missed)])
    start_at = fleet.database.now
    for _ in range(80):
        await deaths.round()
    await fleet.start()  # the last one may end in peace
    await fleet.advance(1)
    ended = fleet.database.now
    jobs = deaths.made + await done(fleet)
    await fleet.close()
    expected = run_times_between(expression, "UTC", start_at, ended, 100_000)
    runs = sorted(fleet.database.schedule_runs.values(), key=lambda duty: duty.run_at)
    assert len(fleet.processes) > 80
    assert {duty.run_at for duty in runs} <= set(expected)
    assert sum(1 + duty.coalesced for duty in runs) == len(expected)
    assert {duty.job_id for duty in runs if duty.job_id} == {job.job_id for job in jobs}
    if missed == "catch_up":
        assert [duty.run_at for duty in runs] == expected
        assert sorted(job.args["run_at"] for job in jobs) == [run_at.isoformat() for run_at in expected]
    else:
        assert any(duty.coalesced for duty in runs)
