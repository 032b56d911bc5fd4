"""Jobs that keep coming while something breaks, and what became of them.

Each ask is one batch: *acknowledged* where its answer was yes, else *doubtful*: it may have been stored.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.support.child import Asked, Child
from tests.faults.support.report import Figures, quantiles
from tests.faults.support.sink import Run, Runs
from tests.faults.support.stage import Stage, until
from tests.support.standstill import all_ran_s

TENANTS = 5
OPEN = "SELECT count(*) AS jobs FROM job WHERE kind LIKE 'fault.%' AND state IN ('available', 'running')"
ENDED = (
    "SELECT job_id::text AS id, state, result->>'lease' AS lease, (args->>'n')::int AS n, attempt,"
    " crash_count AS crashes, args ? 'when' AS waits FROM job WHERE kind LIKE 'fault.%'"
)


@dataclass
class Load:
    """Asks *desk* for *batch* jobs each *every_s* seconds; a job works for a time within *work_s*."""

    desk: Child
    figures: Figures
    work_s: tuple[float, float] = (0.0, 0.02)
    batch: int = 5
    every_s: float = 0.01
    queue: str = "default"
    more: dict[str, Any] = field(default_factory=dict)  # args of the jobs that keep coming
    acknowledged: dict[int, str] = field(default_factory=dict)
    doubtful: set[int] = field(default_factory=set)
    told: Counter[str] = field(default_factory=Counter)
    asks: list[tuple[float, float]] = field(default_factory=list)  # from when until when
    asked_s: dict[int, float] = field(default_factory=dict)
    acknowledged_at_s: float = 0.0
    _next: int = 0

    async def ask(self, count: int, *, kind: str = "fault.work", **args: Any) -> range:
        """One batch, and its numbers; *args* to each job, in place of a drawn ``work_s``."""
        numbers = range(self._next, self._next + count)
        self._next += count
        jobs = [
            {
                "kind": kind,
                "queue": self.queue,
                "tenant_id": f"tenant-{n % TENANTS}",
                "args": {"n": n, "work_s": self.figures.draw.uniform(*self.work_s)} | args,
            }
            for n in numbers
        ]
        began_s = time.monotonic()
        self.asked_s |= dict.fromkeys(numbers, began_s)
        try:
            ids = (await self.desk.ask("enqueue", jobs=jobs))["ids"]
        except Asked as failed:
            self.told[failed.error] += 1
            self.doubtful |= set(numbers)
        else:
            self.told["stored"] += 1
            self.acknowledged |= dict(zip(numbers, ids, strict=True))
            self.acknowledged_at_s = time.monotonic()
        self.asks.append((began_s, time.monotonic()))
        return numbers

    @property
    def took_s(self) -> list[float]:
        """Each ask."""
        return all_ran_s(self.asks)

    @asynccontextmanager
    async def coming(self) -> AsyncIterator[None]:
        """One batch after the other for as long as the block lasts; the last one is waited for."""
        over = asyncio.Event()

        async def feed() -> None:
            while not over.is_set():
                await self.ask(self.batch, **self.more)
                await asyncio.sleep(self.every_s)

        feeding = asyncio.create_task(feed())
        try:
            yield
        finally:
            over.set()
            await feeding

    async def acknowledged_after(self, moment_s: float) -> None:
        """Return once something was acknowledged after *moment_s*."""

        async def is_acknowledged() -> bool:
            return self.acknowledged_at_s > moment_s

        await until(is_acknowledged, "something is stored again")

    async def all_ended(self, stage: Stage, within_s: float = 60.0) -> None:
        """Return once no job is open."""

        async def none_open() -> bool:
            return bool((await stage.rows(OPEN))[0]["jobs"] == 0)

        await until(none_open, "every job has ended", within_s)

    async def judge(
        self, stage: Stage, sink: Path, *, silent_s: float = math.inf, until_s: float = math.inf
    ) -> Runs:
        """As `judge_kept`; and where nobody was killed at work, what had its effect did not run again.

        But for what a process did before *until_s* that then began nothing for *silent_s*: to the others it
        is dead, and what it could not write runs again (P3). Those are told apart.
        """
        runs = await self.judge_kept(stage, sink)
        again = finished_run_again(runs)
        lost = [pair for pair in again if was_silent(runs, *pair, silent_s, until_s)]
        if silent_s < math.inf:
            self.figures.note(run_again_of_a_lost_process=len(lost))
        self.figures.zero(finished_run_again=len(again) - len(lost))
        return runs

    async def judge_kept(self, stage: Stage, sink: Path) -> Runs:
        """P1 and P2: what was acknowledged is there, and what is done had its effect in its newest run."""
        runs, figures = Runs(sink), self.figures
        newest, effects = runs.newest(), runs.effects
        rows = await stage.rows(ENDED)
        stored = {row["n"] for row in rows}
        done = [row for row in rows if row["state"] == "completed"]
        figures.note(n=len(self.acknowledged), told=dict(self.told), runs=len(runs))
        figures.note(ask_ms=quantiles(self.took_s, 1000, 1), done_ms=quantiles(self.done_s(runs), 1000, 1))
        figures.zero(
            lost=len(self.acknowledged.keys() - stored) + sum(row["n"] not in effects for row in done),
            unfinished=len(rows) - len(done),
            stale_accepted=sum(row["lease"] != newest[row["id"]].lease for row in done),
            duplicates=len(rows) - len(stored),
        )
        return runs

    def done_s(self, runs: Runs) -> list[float]:
        """From the ask for a job to its effect."""
        ended = ((run.n, run.ended_s) for run in runs.by_lease.values())
        return [ended_s - self.asked_s[n] for n, ended_s in ended if ended_s is not None]


# ---- what the sink tells


def began_since(runs: Runs, since_s: float) -> dict[int, float]:
    """When each process began its first run after a moment, by pid."""
    first: dict[int, float] = {}
    for run in runs.by_lease.values():
        if run.began_s > since_s:
            first.setdefault(run.pid, run.began_s)
    return first


async def all_begin(sink: Path, workers: Iterable[Child], since_s: float | None = None) -> dict[int, float]:
    """When each of *workers* began something first since a moment (default now), by pid, once all have."""
    since_s = time.monotonic() if since_s is None else since_s
    pids, runs = {worker.pid for worker in workers}, Runs(sink)

    async def have_begun() -> bool:
        return pids <= began_since(runs.look(), since_s).keys()

    await until(have_begun, "every process works")
    return began_since(runs, since_s)


async def run_began(sink: Path, numbers: Iterable[int], times: int = 1) -> None:
    """Return once each job of *numbers* has begun *times*."""
    runs = Runs(sink)

    async def have_begun() -> bool:
        started = Counter(run.n for run in runs.look().by_lease.values())
        return all(started[n] >= times for n in numbers)

    await until(have_begun, f"jobs {numbers} run")


def finished_run_again(runs: Runs) -> list[tuple[Run, Run]]:
    """Runs that began although an earlier run of their job had had its effect: the last such, and the run."""
    ended: dict[str, list[tuple[float, Run]]] = {}
    for run in runs:
        if run.ended_s is not None:
            ended.setdefault(run.job_id, []).append((run.ended_s, run))
    overlaps = []
    for run in runs:
        earlier = [ended_run for ended_run in ended.get(run.job_id, ()) if ended_run[0] < run.began_s]
        if earlier:
            overlaps.append((max(earlier, key=lambda pair: pair[0])[1], run))
    return overlaps


def was_silent(runs: Runs, first: Run, again: Run, least_s: float, until_s: float = math.inf) -> bool:
    """Whether the process of *first* began nothing from its effect until *again* began, and that for so long.

    The effect must have come before *until_s*.
    """
    assert first.ended_s is not None
    starts = (run.began_s for run in runs if run.pid == first.pid)
    long_enough = first.ended_s < until_s and again.began_s - first.ended_s >= least_s
    return long_enough and not any(first.ended_s < began_s < again.began_s for began_s in starts)
