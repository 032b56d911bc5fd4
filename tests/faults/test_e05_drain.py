"""E05: processes of `fairlead run` are told to end while they work: under load, twice, and in a refresh.

Whoever is told to end takes nothing new, lets end what can, hands back the rest with its attempt restored,
and is gone within its grace. A second SIGTERM means now. What was finished never runs again, and a refresh
whose request has left lands, with or without its job.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fairlead.testing.issuer import Hold
from tests.faults.support.child import Child
from tests.faults.support.load import ENDED, Load, all_begin, run_began
from tests.faults.support.report import Figures, quantiles, sized
from tests.faults.support.sink import Runs
from tests.faults.support.stage import FAMILY, Stage, until
from tests.support.standstill import ran_s

pytestmark = pytest.mark.slow

PROCESSES, SLOTS = 3, 8
DRAINS = sized(2, 20)
GRACE_S = sized(2.0, 8.0)
BRIEF_GRACE_S = 1.0  # of a process that has one thing to do
SHORT_S = (0.0, GRACE_S * 0.15)  # a job that ends within the grace, whenever it began
LATE_S = 1.0  # after the grace
LEASE_S = sized(8.0, 30.0)
HURRIED_BOUND_S = 5.0
TERMINATED = 143
REFRESHES = sized(4, 32)

HELD_JOBS = (
    "SELECT count(*) AS jobs FROM job j JOIN worker_session s USING (session_id)"
    " WHERE j.state = 'running' AND s.pid = $1"
)


@dataclass
class _Fleet:
    """Processes that are told to end, one after the other, each with a successor that runs already."""

    stage: Stage
    sink: Path
    unsafe: tuple[str, ...] = ()
    grace_s: float = GRACE_S
    slots: int = SLOTS
    workers: list[Child] = field(default_factory=list)
    exits_s: list[float] = field(default_factory=list)
    codes: list[int | None] = field(default_factory=list)
    held: int = 0

    async def start(self, count: int = 1, **order: Any) -> None:
        numbers = {
            "concurrency": self.slots,
            "lease_s": LEASE_S,
            "shutdown_grace_s": self.grace_s,
            "poll_s": 0.1,
        }
        order |= {
            "child": "command",
            "timeout_s": 2.5 * self.grace_s,
            "worker": numbers,
            "sink": str(self.sink),
            "unsafe": self.unsafe,
        }
        self.workers += await self.stage.all_born(count, **order)

    async def end(self, worker: Child, times: int = 1) -> None:
        """SIGTERM, a second one once the first was heard, and wait for the end."""
        self.workers.remove(worker)
        worker.terminate()
        told_s = time.monotonic()
        if times == 2:
            await wait_for_word(worker, "draining")
            worker.terminate()
            told_s = time.monotonic()
        await worker.died()
        self.exits_s.append(ran_s(told_s))
        self.codes.append(worker.code)
        self.held += (await self.stage.rows(HELD_JOBS, worker.pid))[0]["jobs"]

    def judge(self, figures: Figures, code: int = 0, bound_s: float | None = None) -> None:
        bound_s = self.grace_s + LATE_S if bound_s is None else bound_s
        figures.note(drains=len(self.codes), grace_s=self.grace_s, exit_s=quantiles(self.exits_s))
        figures.zero(held_after_exit=self.held)
        figures.holds(self.codes == [code] * len(self.codes), f"exit codes {self.codes}")
        figures.holds(
            max(self.exits_s) <= bound_s, f"gone after {max(self.exits_s):.2f} s, not {bound_s:g} s"
        )


async def wait_for_word(child: Child, word: str) -> None:
    async def is_said() -> bool:
        return any(word in line for line in child.lines())

    await until(is_said, f"process {child.pid} says {word}")


async def _drains(
    stage: Stage, figures: Figures, sink: Path, times: int, *unsafe: str, drains: int = DRAINS
) -> tuple[_Fleet, Load]:
    """With short jobs, and with some that wait until the process they ran in is gone."""
    fleet = _Fleet(stage, sink, unsafe)
    await fleet.start(PROCESSES)
    load = Load(await stage.born(), figures, work_s=SHORT_S, batch=SLOTS, every_s=SHORT_S[1] / PROCESSES)
    async with load.coming():
        for number in range(drains):
            marker = sink.with_name(f"gone-{number}")
            waiting = await load.ask(PROCESSES, when=str(marker))
            await run_began(sink, waiting)
            await all_begin(sink, fleet.workers)
            worker = figures.draw.choice(fleet.workers)
            await asyncio.gather(fleet.start(), fleet.end(worker, times))
            marker.touch()
    await load.all_ended(stage)
    figures.note(waiting_jobs=drains * PROCESSES)
    return fleet, load


async def _judge(stage: Stage, load: Load, sink: Path) -> list[dict[str, Any]]:
    await load.judge(stage, sink)
    rows = await stage.rows(ENDED)
    load.figures.zero(
        attempts_consumed=sum(row["attempt"] != 1 for row in rows),
        crashes_counted=sum(row["crashes"] for row in rows),
    )
    return rows


def _short_run_again(rows: list[dict[str, Any]], sink: Path) -> int:
    """Jobs that could have ended within the grace, and began more than once."""
    times = Counter(run.job_id for run in Runs(sink).by_lease.values())
    return sum(not row["waits"] and times[row["id"]] > 1 for row in rows)


async def test_E05_drain_under_load(stage: Stage, tmp_path: Path) -> None:
    figures, sink = Figures("E05"), tmp_path / "sink.ndjson"
    figures.note(what="SIGTERM under load")
    fleet, load = await _drains(stage, figures, sink, 1)
    fleet.judge(figures)
    rows = await _judge(stage, load, sink)
    figures.zero(short_jobs_run_again=_short_run_again(rows, sink))
    figures.conclude()


async def test_E05_drain_second_sigterm(stage: Stage, tmp_path: Path) -> None:
    figures, sink = Figures("E05"), tmp_path / "sink.ndjson"
    figures.note(what="second SIGTERM")
    fleet, load = await _drains(stage, figures, sink, 2, drains=sized(1, DRAINS))
    fleet.judge(figures, TERMINATED, HURRIED_BOUND_S)
    await _judge(stage, load, sink)
    figures.conclude()


async def test_E05_ablation_no_drain(stage: Stage, tmp_path: Path) -> None:
    figures, sink = Figures("E05", ablation="no_drain", sees="short_jobs_run_again"), tmp_path / "sink.ndjson"
    fleet, load = await _drains(stage, figures, sink, 1, "no_drain", drains=1)
    fleet.judge(figures)
    rows = await _judge(stage, load, sink)
    figures.zero(short_jobs_run_again=_short_run_again(rows, sink))
    figures.broken = [claim for claim in figures.broken if claim.startswith("short_jobs")]
    figures.conclude()


async def test_E05_drain_stuck_handlers(stage: Stage, tmp_path: Path) -> None:
    """What ignores its cancellation, or left a thread behind, holds up neither its process nor its job."""
    figures, sink = Figures("E05"), tmp_path / "sink.ndjson"
    figures.note(what="SIGTERM with stuck handlers", n=2)
    fleet = _Fleet(stage, sink, grace_s=BRIEF_GRACE_S)
    await fleet.start()
    load = Load(await stage.born(), figures)
    stuck = [
        *await load.ask(1, kind="fault.stuck", work_s=4.0),
        *await load.ask(1, kind="fault.thread", work_s=4.0),
    ]
    await run_began(sink, stuck)
    await asyncio.gather(fleet.start(), fleet.end(fleet.workers[0]))
    fleet.judge(figures)
    await run_began(sink, stuck, times=2)
    figures.conclude()


# ---- refreshing


async def _refreshing(stage: Stage, worker: Child, desk: Child) -> tuple[list[str], Hold]:
    """Connections whose refresh jobs run in *worker*; the issuer has processed all, and answers none."""
    connections = await stage.connect(desk, FAMILY, [f"acme-{number}" for number in range(REFRESHES)])
    hold = stage.issuer.hold("answering", provider=FAMILY, times=REFRESHES)
    jobs = [
        {
            "kind": "token.refresh",
            "tenant_id": f"acme-{number}",
            "provider": FAMILY,
            "group_key": connection,
            "unique_key": connection,
            "args": {"connection_id": connection, "generation": 1},
        }
        for number, connection in enumerate(connections)
    ]
    await desk.ask("enqueue", jobs=jobs)
    await hold.reached(REFRESHES)
    return connections, hold


@pytest.mark.parametrize("answered", ["in time", "after its job was handed back", "after a second SIGTERM"])
async def test_E05_drain_in_a_refresh(stage: Stage, tmp_path: Path, answered: str) -> None:
    figures, sink = Figures("E05"), tmp_path / "sink.ndjson"
    figures.note(what=f"SIGTERM in a refresh, answered {answered}", n=REFRESHES)
    fleet = _Fleet(stage, sink, grace_s=BRIEF_GRACE_S, slots=REFRESHES)
    await fleet.start(numbers={"request_deadline_s": 10.0, "total_deadline_s": 20.0})
    worker = fleet.workers[0]
    desk = await stage.born()
    connections, hold = await _refreshing(stage, worker, desk)
    hurried = "second" in answered
    ending = asyncio.create_task(fleet.end(worker, 2 if hurried else 1))
    await wait_for_word(worker, "draining" if answered == "in time" else "jobs_handed_back")
    hold.release()
    await ending
    fleet.judge(figures, TERMINATED if hurried else 0)
    stored = [await stage.generation(connection) for connection in connections]
    await fleet.start()
    await until(_none_open(stage), "the jobs have ended")
    verdict = stage.verdict()
    jobs = await stage.rows("SELECT state, attempt, crash_count FROM job WHERE kind = 'token.refresh'")
    figures.zero(
        unsaved_at_exit=sum(generation != 2 for generation in stored),
        second_sends=verdict.provider_posts - REFRESHES,
        burnt=verdict.burnt,
        attempts_consumed=sum(job["attempt"] != 1 for job in jobs),
        crashes_counted=sum(job["crash_count"] for job in jobs),
        unfinished=sum(job["state"] != "completed" for job in jobs),
    )
    figures.conclude()


def _none_open(stage: Stage) -> Callable[[], Awaitable[bool]]:
    sql = "SELECT count(*) AS jobs FROM job WHERE state IN ('available', 'running')"

    async def none_open() -> bool:
        return bool((await stage.rows(sql))[0]["jobs"] == 0)

    return none_open
