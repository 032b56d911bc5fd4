"""Cron: processes that take the runs of a schedule are killed at it, again and again (Q8, R4, T3).

Each dies at a taking: before it, after it, or at some moment within, its statement unsent, under way or
answered. Others are at the same runs. What the duty table and the jobs say in the end is the truth: each
run of the expression was taken once, with its job; a missed one was made up, by a job of its own
(``catch_up``) or by one for all (``coalesce``).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fairlead.adapters.postgres.schedule_runs import PostgresScheduleStore
from fairlead.engine.ports import Schedule
from fairlead.policy.jobs.cron import run_times_between
from tests.faults.support.duty import OURS
from tests.faults.support.report import Figures, sized
from tests.faults.support.sink import Runs
from tests.faults.support.stage import Stage, until

pytestmark = pytest.mark.slow

KILLS = sized(30, 1000)
ABLATION_KILLS = sized(15, 60)
PROCESSES = 3
TAKES = (1, 4)  # lived through, at the most
WITHIN_S = ((0.0, 0.001), (0.0, 0.008))  # a taking is answered after some 2 to 5 ms
DAWDLE_S = 0.05
KILL_POINTS = ("before", "within", "within", "after")
QUIET_S = 600.0  # a whole fleet may be dead for a while, not for ever
EVERY = "@every 70ms"
NAME = f"{OURS}runs"
LEASE_S = 5.0
AT_WORK = timedelta(seconds=1.0)  # from a statement's begin to its writing, on a busy machine

DUTIES = (
    "SELECT run_at, taken_at, coalesced, job_id, session_id::text AS session FROM schedule_run"
    " WHERE schedule = $1 ORDER BY run_at"
)
JOBS = "SELECT job_id, args->>'run_at' AS run_at, state, created_at, finished_at FROM job WHERE kind = 'fault.work'"


@dataclass
class _Duty:
    """A fleet on duty, of which each process dies at it. *died*: how many at which place."""

    stage: Stage
    figures: Figures
    takes: Path
    unsafe: tuple[str, ...] = ()
    places: tuple[str, ...] = KILL_POINTS
    died: Counter[str] = field(default_factory=Counter)
    within: list[str] = field(default_factory=list)

    async def rage(self, kills: int) -> None:
        """Until so many have died; who is left is killed then, wherever it is."""
        async with asyncio.TaskGroup() as group:
            for _ in range(PROCESSES):
                group.create_task(self._one_after_the_other(kills))

    async def _one_after_the_other(self, kills: int) -> None:
        while sum(self.died.values()) < kills:
            kill_point = self.figures.draw.choice(self.places)
            child = await self.stage.born(**self._order(kill_point))
            async with asyncio.timeout(QUIET_S):
                await child.died()
            self.stage.children.remove(child)
            self.figures.holds(child.code == -9, f"a process ended with {child.code}: {child.words()}")
            self.died[kill_point] += 1
            if kill_point == "within":
                self.within.append(child.session_id)

    def _order(self, kill_point: str) -> dict[str, Any]:
        take = self.figures.draw.randint(*TAKES)
        order: dict[str, Any] = {
            "child": "duty",
            "scheduler": True,
            "takes": str(self.takes),
            "dawdle_s": DAWDLE_S,
            "seed": self.figures.draw.getrandbits(32),
            "unsafe": self.unsafe,
            "worker": {"lease_s": LEASE_S},
        }
        if kill_point == "within":
            within_s = self.figures.draw.uniform(*self.figures.draw.choice(WITHIN_S))
            return order | {"dies": {"take": take, "within_s": within_s}}
        return order | {"fault": f"schedule_run.{kill_point}_take:{take}:kill"}


async def _experiment(
    stage: Stage, figures: Figures, folder: Path, missed: str, kills: int, *unsafe: str
) -> tuple[_Duty, datetime]:
    """A fleet that dies, and a worker that nobody kills; the last run before it began."""
    store, sink = PostgresScheduleStore(stage.database), folder / "sink.ndjson"
    await store.sync_schedules([Schedule(NAME, EVERY, "fault.work", "acme", missed=missed, args={"n": 0})])
    start_at = await _last_run_at(stage)
    hand = await stage.born(sink=str(sink), worker={"concurrency": 16, "poll_s": 0.05, "lease_s": LEASE_S})
    duty = _Duty(stage, figures, folder / "takes.ndjson", unsafe)
    if "two_transactions" in unsafe:
        duty.places = ("within",)  # only there something lies between the two
    began_s = time.monotonic()
    await duty.rage(kills)
    figures.note(what=missed, n=sum(duty.died.values()), died=dict(duty.died))
    figures.note(took_s=round(time.monotonic() - began_s, 1))

    async def none_open() -> bool:
        return not [row for row in await stage.rows(JOBS) if row["state"] in {"available", "running"}]

    await until(none_open, "every job has ended", 60.0)
    await hand.stop()
    return duty, start_at


async def _judge(duty: _Duty, missed: str, start_at: datetime, folder: Path) -> None:
    stage, figures = duty.stage, duty.figures
    last = await _last_run_at(stage)
    expected = run_times_between(EVERY, "UTC", start_at, last, 10**6)
    run_rows, jobs_made = await stage.rows(DUTIES, NAME), await stage.rows(JOBS)
    judged = coalesced if missed == "coalesce" else caught_up
    lost, doubled = judged(expected, run_rows, jobs_made)
    runs = Counter(run.job_id for run in Runs(folder / "sink.ndjson").by_lease.values())
    figures.note(ticks=len(expected), taken=len(run_rows), jobs=len(jobs_made))
    figures.note(
        made_up_by_another=sum(row["coalesced"] for row in run_rows),
        late_ends=by_a_late_end(run_rows, jobs_made),
    )
    figures.holds(by_a_late_end(run_rows, jobs_made) <= 1 + len(run_rows) // 1000, "hardly a job ends late")
    figures.zero(
        missed=lost,
        doubled=doubled,
        run_again=sum(count - 1 for count in runs.values()),
        unfinished=sum(row["state"] != "completed" for row in jobs_made),
    )


async def _last_run_at(stage: Stage) -> datetime:
    rows_found = await stage.rows("SELECT last_run_at FROM schedule WHERE name = $1", NAME)
    last: datetime = rows_found[0]["last_run_at"]
    return last


def caught_up(
    expected: list[datetime], runs: list[dict[str, Any]], jobs_made: list[dict[str, Any]]
) -> tuple[int, int]:
    """A record and a job for each run; (missed, doubled)."""
    run_times, jobs = Counter(row["run_at"] for row in runs), Counter(row["run_at"] for row in jobs_made)
    of_record = {row["job_id"] for row in runs}
    missed = sum(run_at not in run_times or run_at.isoformat() not in jobs for run_at in expected)
    strange = sum(row["job_id"] not in of_record for row in jobs_made) + len(run_times.keys() - set(expected))
    return missed, sum(count - 1 for count in (*run_times.values(), *jobs.values())) + strange


def coalesced(
    expected: list[datetime], runs: list[dict[str, Any]], jobs_made: list[dict[str, Any]]
) -> tuple[int, int]:
    """A record stands for the runs since the one before it, and has a job, or one that was open then."""
    index_by_time = {run_at: index for index, run_at in enumerate(expected)}
    jobs = {row["job_id"]: row for row in jobs_made}
    missed, doubled, previous = 0, len(jobs_made) - len({row["run_at"] for row in jobs_made}), -1
    for row in runs:
        run_index = index_by_time.get(row["run_at"], previous)
        missed += run_index - previous - 1 - row["coalesced"] if run_index > previous else 0
        doubled += run_index <= previous
        previous = run_index
        if row["job_id"] is None:
            missed += not any(_was_open(job, row["taken_at"]) for job in jobs_made)
        else:
            missed += row["job_id"] not in jobs
    return missed + len(expected) - 1 - previous, doubled


def _was_open(job: dict[str, Any], moment: datetime, late: timedelta = AT_WORK) -> bool:
    """Both moments are those at which a statement began. That a job's end began first, and was carried out
    after a run had met the job open, is no miss; so *late* it may be."""
    return bool(job["created_at"] <= moment <= job["finished_at"] + late)


def by_a_late_end(runs: list[dict[str, Any]], jobs_made: list[dict[str, Any]]) -> int:
    """Runs without a job, of which a late end alone says that one was open: rare, or runs are missed."""
    without = [row["taken_at"] for row in runs if row["job_id"] is None]
    return sum(not any(_was_open(job, moment, timedelta(0)) for job in jobs_made) for moment in without)


async def _deaths_within(duty: _Duty) -> None:
    """Of those that died within a taking: whose run was taken all the same."""
    last = {line["session"]: line["run_at"] for line in map(json.loads, duty.takes.read_text().splitlines())}
    keys_kept = {(row["session"], row["run_at"].isoformat()) for row in await duty.stage.rows(DUTIES, NAME)}
    runs_kept = sum((session, last[session]) in keys_kept for session in duty.within)
    duty.figures.note(died_within_and_took_it=runs_kept, died_within_and_did_not=len(duty.within) - runs_kept)
    duty.figures.holds(0 < runs_kept < len(duty.within), "deaths came on both sides of the commit")


@pytest.mark.parametrize("missed", ["coalesce", "catch_up"])
async def test_cron_kills(stage: Stage, tmp_path: Path, missed: str) -> None:
    figures = Figures("CRON")
    duty, start_at = await _experiment(stage, figures, tmp_path, missed, KILLS)
    await _judge(duty, missed, start_at, tmp_path)
    await _deaths_within(duty)
    figures.conclude()


@pytest.mark.parametrize(
    ("without", "harm"), [("no_compare", "doubled"), ("two_transactions", "missed")], ids=lambda word: word
)
async def test_cron_kills_ablation(stage: Stage, tmp_path: Path, without: str, harm: str) -> None:
    figures = Figures("CRON", ablation=without, sees=f"{harm} =")
    duty, start_at = await _experiment(stage, figures, tmp_path, "catch_up", ABLATION_KILLS, without)
    await _judge(duty, "catch_up", start_at, tmp_path)
    figures.conclude()
