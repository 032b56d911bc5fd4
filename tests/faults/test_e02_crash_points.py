"""E02: a process dies at each named point of the product, on its first, second and third pass (P1-P3, P6).

Jobs of each outcome, hand-backs, refreshes and runs; what the next process makes of it is legal from every
point: each job has ended as it was ordered, with as many runs as that point costs; no slot of a tenant's cap
is missing; each connection has one live token, or has lost it where it must; each run was taken once.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from fairlead._core.faultpoint import POINTS
from fairlead.adapters.postgres.lanes import PostgresLaneStore
from fairlead.adapters.postgres.schedule_runs import PostgresScheduleStore
from fairlead.engine.ports import Schedule, TenantShare
from fairlead.policy.jobs.cron import run_times_between
from fairlead.testing.ledger import posts_of
from tests.faults.support.child import Child, Gone
from tests.faults.support.refreshes import die_at, expected, proven, recover
from tests.faults.support.report import FULL, Figures, sized
from tests.faults.support.sink import Run, Runs
from tests.faults.support.stage import FAMILY, Stage, until
from tests.faults.test_cron_kills import DUTIES, caught_up

pytestmark = pytest.mark.slow

TIMES = sized(1, 20)
PASSES = (1, 2, 3)
LANES = 6
LEASE_S = 3.0
TOGETHER = 4
WITHIN_S = sized(60.0, 300.0)

RUNS = {"work": 1, "fail": 2, "die": 1, "snooze": 2, "mixed": 1, "drain": 1}
"""What a job does, and in how many runs if nobody dies or hands it back."""
AGAIN = {"job.after_run": 1, "job.before_ack": 1}
"""Runs that a death at a point costs; none where nothing was begun yet or all is written."""
POLICIES = (FAMILY, "grace")
TICKS, EVERY = "crash.points", "@every 70ms"

ROWS = (
    "SELECT job_id::text AS id, queue, (args->>'n')::int AS n, state, attempt, result->>'lease' AS lease,"
    " (SELECT count(*)::int FROM jsonb_array_elements(failures) f WHERE f->>'code' = 'crashed') AS crashes,"
    " (SELECT count(*)::int FROM dead_letter d WHERE d.job_id = job.job_id) AS dead_letters"
    " FROM job WHERE queue LIKE 'e02 %'"
)
OPEN = "SELECT FROM job WHERE queue LIKE 'e02 %' AND state IN ('available', 'running')"


@dataclass(frozen=True, slots=True)
class Cell:
    """A process that dies at *point* on its *nth* pass, while its jobs do what *kind* says."""

    point: str
    kind: str
    nth: int
    round: int = 0

    @property
    def queue(self) -> str:
        """Its own, and its tenant's name."""
        return f"e02 {self.point} {self.kind} {self.nth} {self.round}"

    @property
    def at_once(self) -> int:
        """How many of its jobs run together."""
        return TOGETHER if self.kind in ("mixed", "drain") else 1

    @property
    def jobs(self) -> int:
        """One for each pass and one more; of mixed ones many, as only some share a write."""
        return 60 if self.kind == "mixed" else (self.nth + 1) * self.at_once


def _cells() -> list[Cell]:
    ends = ("job.before_ack", "job.after_ack")
    alone_points = ("job.after_claim", "job.before_run", "job.after_run", *ends)
    cells = [
        Cell(point, kind, nth)
        for point in alone_points
        for kind in ("work", "fail", "die", "snooze")
        for nth in PASSES
    ]
    cells += [Cell("job.within_ack", "mixed", nth) for nth in PASSES]
    return cells + [Cell(point, "drain", 1) for point in ends]  # all are handed back in one write


def _of_this_run(figures: Figures) -> list[list[Cell]]:
    """Every cell, so many times; in a smoke run each point once, and each kind."""
    if FULL:
        return [[Cell(c.point, c.kind, c.nth, number) for c in _cells()] for number in range(TIMES)]
    cells_left = _cells()
    figures.draw.shuffle(cells_left)
    points, kinds, cells_chosen = {cell.point for cell in cells_left}, set(RUNS), list[Cell]()
    for cell in cells_left:
        if cell.point in points or cell.kind in kinds:
            cells_chosen.append(cell)
            points.discard(cell.point)
            kinds.discard(cell.kind)
    return [cells_chosen]


# ---- jobs


async def _feed(desk: Child, cell: Cell, first: int, gate: Path) -> None:
    """Its jobs."""
    kind = "work" if cell.kind in ("mixed", "drain") else cell.kind
    common: dict[str, Any] = {"work_s": 0.05, "when": str(gate)} if cell.kind == "drain" else {"work_s": 0.0}
    jobs = []
    for n in range(first, first + cell.jobs):
        more = {"cancel": n % 2 == 1} if cell.kind == "mixed" else {}
        args = {"n": n, **common, **more}
        jobs.append({"kind": f"fault.{kind}", "tenant_id": cell.queue, "queue": cell.queue, "args": args})
    await desk.ask("enqueue", jobs=jobs)


async def _die(stage: Stage, desk: Child, cell: Cell, first: int, folder: Path, *unsafe: str) -> None:
    """One process for one cell, dead at the end."""
    numbers = {"concurrency": cell.at_once, "queues": [cell.queue], "lease_s": LEASE_S, "poll_s": 0.05}
    await PostgresLaneStore(stage.database).set_tenant(TenantShare(cell.queue, max_running=cell.at_once))
    order: dict[str, Any] = {"worker": numbers | {"shutdown_grace_s": 1.0}, "unsafe": unsafe}
    order |= {"sink": str(folder / "sink.ndjson"), "fault": f"{cell.point}:{cell.nth}:kill"}
    child = await stage.born(**order)
    await _feed(desk, cell, first, folder / "gate")
    if cell.kind == "drain":
        await _all_at_work(stage, child, cell.at_once)
        with pytest.raises(Gone):
            await child.ask("stop")
    await child.died()
    assert child.code == -9, child.words()


async def _all_at_work(stage: Stage, child: Child, jobs: int) -> None:
    sql = "SELECT FROM job JOIN worker_session USING (session_id) WHERE state = 'running' AND pid = $1"

    async def are_running() -> bool:
        return len(await stage.rows(sql, child.pid)) == jobs

    await until(are_running, f"{jobs} jobs run")


async def _round(stage: Stage, cells: list[Cell], folder: Path, first: int, *unsafe: str) -> dict[int, Cell]:
    """Every cell's process dies; then one that nobody kills does what is left. Whose each job was."""
    desk, lanes = await stage.born(worker={"lease_s": LEASE_S}, unsafe=unsafe), asyncio.Semaphore(LANES)
    cell_by_number: dict[int, Cell] = {}
    (folder / "gate").unlink(missing_ok=True)

    async def run_cell(cell: Cell, first: int) -> None:
        async with lanes:
            await _die(stage, desk, cell, first, folder, *unsafe)

    async with asyncio.TaskGroup() as group:
        for cell in cells:
            group.create_task(run_cell(cell, first))
            numbers = range(first, first + cell.jobs)
            cell_by_number |= dict.fromkeys(numbers, cell)
            first = numbers.stop
    (folder / "gate").touch()
    queues = [cell.queue for cell in cells]
    worker = {"concurrency": 16, "queues": queues, "lease_s": LEASE_S, "poll_s": 0.05}
    heir = await stage.born(sink=str(folder / "sink.ndjson"), worker=worker, unsafe=unsafe)
    if not unsafe:
        await until(lambda: _none_open(stage), "every job has ended", WITHIN_S)
    else:
        await asyncio.sleep(LEASE_S)
    await heir.stop()
    await desk.stop()
    return cell_by_number


async def _none_open(stage: Stage) -> bool:
    return not await stage.rows(OPEN)


def _illegal(cell: Cell, rows: list[dict[str, Any]], runs: list[Run]) -> list[str]:
    """What is not as it must be after a death of *cell*."""
    wrong = []
    for row in rows:
        ours = [run for run in runs if run.n == row["n"]]
        if problem := _wrong_end(cell, row, ours):
            wrong.append(f"{cell.queue}: job {row['n']} {problem}")
    least = len(rows) * RUNS[cell.kind]
    least += AGAIN.get(cell.point, 0) if cell.at_once == 1 else 0
    most = least + cell.at_once  # the next may have been begun, and together all of one write run again
    if not least <= len(runs) <= most:
        wrong.append(f"{cell.queue}: {len(runs)} runs, not {least} to {most}")
    crashed, in_flight = sum(row["crashes"] for row in rows), 0 if cell.point == "job.after_ack" else 1
    if not in_flight <= crashed <= in_flight + cell.at_once:
        wrong.append(f"{cell.queue}: {crashed} jobs were in flight")
    return wrong


def _wrong_end(cell: Cell, row: dict[str, Any], runs: list[Run]) -> str:
    cancelled = cell.kind == "mixed" and row["n"] % 2 == 1
    state = "discarded" if cell.kind == "die" else "cancelled" if cancelled else "completed"
    attempts = 2 if cell.kind == "fail" else 1
    if row["state"] != state:
        return f"is {row['state']}, not {state}"
    if row["attempt"] != attempts:
        return f"took {row['attempt']} attempts, not {attempts}"
    if row["dead_letters"] != (state == "discarded"):
        return f"has {row['dead_letters']} dead letters"
    if not runs or runs[-1].ended_s is None:
        return "had no effect in its last run"
    if state == "completed" and row["lease"] != runs[-1].lease:
        return "has the result of a superseded run"
    return ""


async def _judge_jobs(stage: Stage, figures: Figures, cell_by_number: dict[int, Cell], sink: Path) -> None:
    by_queue: dict[str, list[dict[str, Any]]] = {}
    for row in await stage.rows(ROWS):
        by_queue.setdefault(row["queue"], []).append(row)
    runs: dict[str, list[Run]] = {}
    for run in Runs(sink):
        runs.setdefault(cell_by_number[run.n].queue, []).append(run)
    wrong = [
        problem
        for cell in set(cell_by_number.values())
        for problem in _illegal(cell, by_queue.get(cell.queue, []), runs.get(cell.queue, []))
    ]
    lost = len(cell_by_number) - sum(map(len, by_queue.values()))
    deaths = len({cell.queue for cell in cell_by_number.values()})
    figures.note(
        what="jobs",
        n=deaths,
        points=len({cell.point for cell in cell_by_number.values()}),
        jobs=len(cell_by_number),
    )
    figures.note(first_illegal=sorted(wrong)[:5])
    figures.zero(illegal_states=len(wrong), lost=lost)


async def test_E02_crash_points_of_jobs(stage: Stage, tmp_path: Path) -> None:
    figures, cell_by_number = Figures("E02"), dict[int, Cell]()
    for cells in _of_this_run(figures):
        cell_by_number |= await _round(stage, cells, tmp_path, len(cell_by_number))
    await _judge_jobs(stage, figures, cell_by_number, tmp_path / "sink.ndjson")
    figures.conclude()


async def test_E02_ablation_nobody_looks_for_the_dead(stage: Stage, tmp_path: Path) -> None:
    figures = Figures("E02", ablation="no_rescue", sees="illegal_states")
    cell_by_number = await _round(stage, [Cell("job.after_claim", "work", 1)], tmp_path, 0, "no_rescue")
    await _judge_jobs(stage, figures, cell_by_number, tmp_path / "sink.ndjson")
    figures.conclude()


# ---- refreshes

TOKEN_POINTS = sorted(point.removeprefix("token.") for point in POINTS if point.startswith("token."))
Refresh = tuple[str, str, int, str]
"""The point at which its process dies, its policy, on which pass, and whose it is."""


async def test_E02_crash_points_of_refreshes(stage: Stage) -> None:
    figures = Figures("E02")
    passes = PASSES if FULL else (figures.draw.choice(PASSES),)
    cells = [
        (point, policy, nth, f"{point}-{nth}-{number}")
        for point in TOKEN_POINTS
        for policy in POLICIES
        for nth in passes
        for number in range(TIMES)
    ]

    await _die_refreshing(stage, figures, cells)
    figures.conclude()


async def test_E02_ablation_no_journal(stage: Stage) -> None:
    figures = Figures("E02", ablation="no_journal", sees="illegal_states")
    await _die_refreshing(stage, figures, [("after_journal", FAMILY, 1, "acme")], "no_journal")
    figures.conclude()


async def _die_refreshing(stage: Stage, figures: Figures, cells: list[Refresh], *unsafe: str) -> None:
    """A process dies for each of *cells*; the next one recovers what they left, and all is judged."""
    lanes = asyncio.Semaphore(LANES)

    async def crash_one(point: str, policy: str, nth: int, name: str) -> str:
        async with lanes:
            return (await die_at(stage, point, policy, name, nth=nth, unsafe=unsafe))[0]

    connections = await asyncio.gather(*(crash_one(*cell) for cell in cells))
    heir = await stage.born(unsafe=unsafe)
    for (_, policy, nth, _), connection in zip(cells, connections, strict=True):
        await recover(stage, heir, connection, policy, figures, generation=nth)
    await _judge_refreshes(stage, figures, heir, dict(zip(cells, connections, strict=True)))


async def _judge_refreshes(stage: Stage, figures: Figures, heir: Child, cells: dict[Refresh, str]) -> None:
    standing, posts = await stage.credentials(), posts_of(stage.issuer.ledger())
    wrong = []
    for (point, policy, nth, name), connection in cells.items():
        state = standing[f"{name} {policy}"]["state"]
        sent = sum((post.provider, post.connection) == (policy, name) for post in posts) - (nth - 1)
        if (state, sent) != expected(point, policy):
            wrong.append(f"{policy} killed {point} at pass {nth}: {state} after {sent} posts")
        if state == "active":
            await proven(stage, heir, connection, policy, name, nth + 1, figures)
    figures.note(what="refreshes", n=len(cells), points=len(TOKEN_POINTS), first_illegal=wrong[:5])
    figures.zero(illegal_states=len(wrong), violations=len(stage.verdict().violations))


# ---- runs


async def test_E02_crash_points_of_runs(stage: Stage) -> None:
    figures, deaths = Figures("E02"), 0
    store = PostgresScheduleStore(stage.database)
    await store.sync_schedules([Schedule(TICKS, EVERY, "fault.work", "acme", missed="catch_up")])
    start_at = await _last_run_at(stage)
    points = sorted(point for point in POINTS if point.startswith("schedule_run."))
    for point, nth in [(point, nth) for point in points for nth in PASSES] * TIMES:
        child = await stage.born(scheduler=True, fault=f"{point}:{nth}:kill")
        await child.died()
        assert child.code == -9, child.words()
        deaths += 1
    heir = await stage.born(scheduler=True)
    last = await _last_run_at(stage)

    async def goes_on() -> bool:
        return await _last_run_at(stage) > last

    await until(goes_on, "another takes the runs")
    await heir.stop()
    due = run_times_between(EVERY, "UTC", start_at, await _last_run_at(stage), 10**6)
    jobs_made = await stage.rows(
        "SELECT job_id, args->>'run_at' AS run_at FROM job WHERE kind = 'fault.work'"
    )
    missed, doubled = caught_up(due, await stage.rows(DUTIES, TICKS), jobs_made)
    figures.note(what="ticks", n=deaths, points=len(points), ticks=len(due))
    figures.zero(missed=missed, doubled=doubled)
    figures.conclude()


async def _last_run_at(stage: Stage) -> datetime:
    rows_found = await stage.rows("SELECT last_run_at FROM schedule WHERE name = $1", TICKS)
    last: datetime = rows_found[0]["last_run_at"]
    return last
