"""E20 for jobs: the wall clock of one worker is set ten minutes forward and back while it has jobs.

Leases, and when a job is due, go by the database's clock alone: what a worker takes the time to be ends no
lease early, neither its own nor another's, and has no job run before its time. The others' clocks are right,
and so is the server's: whoever went by his own would be seen at once.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.faults.support.child import Child
from tests.faults.support.clocks import COMPILER, Clock
from tests.faults.support.load import ENDED, OPEN, TENANTS
from tests.faults.support.nursery import Nursery
from tests.faults.support.report import Figures, sized
from tests.faults.support.sink import Runs
from tests.faults.support.stage import Stage, until
from tests.support.tools import needs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="a clock is set by a preloaded library"),
    needs(COMPILER),
]

TEN_MINUTES_S = 600.0
JUMPS_S = sized((TEN_MINUTES_S, -TEN_MINUTES_S, 0.0), (TEN_MINUTES_S, -TEN_MINUTES_S, 0.0) * 10)
LEASE_S = sized(1.5, 2.0)
HOLD_LEASES = (1.5, 2.5)  # of one clock: longer than a silent process is waited for
WORK_LEASES, DELAY_LEASES = (0.5, 2.5), (0.5, 2.0)
OTHERS, SLOTS, OTHER_SLOTS = 2, 16, 4
"""Most places are the odd worker's, and more jobs come than the others have room for."""
BATCH = 5
URGENT, NORMAL = 1, 2  # what was delayed goes first: were it due early, nothing would hold it up
NEAR_S = 60.0

RUNNING_JOBS = "SELECT count(*) AS jobs FROM job WHERE state = 'running' AND session_id = $1"
LOST = "SELECT count(*) AS sessions FROM worker_session WHERE lost_at IS NOT NULL"


@dataclass
class _Fleet:
    """Workers, alive all the time; the clock of the *odd* one jumps. *due_s*: when each job is due."""

    stage: Stage
    figures: Figures
    clock: Clock
    sink: Path
    odd: Child
    others: list[Child]
    due_s: dict[int, float] = field(default_factory=dict)
    held: list[int] = field(default_factory=list)  # by the odd one, at each jump

    def __post_init__(self) -> None:
        self.runs = Runs(self.sink)

    async def ask(self, desk: Child) -> float:
        """Jobs for now and for later, stored by *desk*; how far its wall clock is ahead of the true time."""
        draw, jobs = self.figures.draw, []
        asked_s = time.monotonic()
        for n in range(len(self.due_s), len(self.due_s) + 2 * BATCH):
            delay_s = draw.uniform(*DELAY_LEASES) * LEASE_S if n % 2 else 0.0
            jobs.append(
                {
                    "kind": "fault.work",
                    "tenant_id": f"tenant-{n % TENANTS}",
                    "delay_s": delay_s,
                    "args": {"n": n, "work_s": draw.uniform(*WORK_LEASES) * LEASE_S},
                    "priority": URGENT if delay_s else NORMAL,
                }
            )
            self.due_s[n] = asked_s + delay_s
        stored = await desk.ask("enqueue", jobs=jobs)
        return float(stored["wall_s"]) - time.time()

    async def jump(self, jump_s: float) -> None:
        """Set the odd one's clock so far ahead while it has jobs; return when over a lease has passed."""
        jobs_held = 0

        async def at_work() -> bool:
            nonlocal jobs_held
            jobs_held = int((await self.stage.rows(RUNNING_JOBS, UUID(self.odd.session_id)))[0]["jobs"])
            if not jobs_held and await self._none_open():  # the others had the rest of them
                await self.ask(self.others[0])
            return jobs_held > 0

        await until(at_work, "the odd one has jobs")
        self.held.append(jobs_held)
        self.clock.set(jump_s)
        ahead_s, other_s = await self.ask(self.odd), await self.ask(self.others[0])
        self.figures.holds(abs(ahead_s - jump_s) < NEAR_S, f"the odd clock is {ahead_s:.0f} s ahead")
        self.figures.holds(abs(other_s) < NEAR_S, f"another clock is {other_s:.0f} s ahead")
        await asyncio.sleep(self.figures.draw.uniform(*HOLD_LEASES) * LEASE_S)

    async def ended(self) -> None:
        """Return once no job is open."""
        await until(self._none_open, "every job has ended", within_s=60.0)

    async def _none_open(self) -> bool:
        return bool((await self.stage.rows(OPEN))[0]["jobs"] == 0)

    async def harms(self) -> dict[str, int]:
        """What must be 0, by name."""
        rows = {row["n"]: row for row in await self.stage.rows(ENDED)}
        done = {n for n, row in rows.items() if row["state"] == "completed"}
        lost = await self.stage.rows(LOST)
        runs = self.runs.look()
        return {
            "lost": len(self.due_s.keys() - rows.keys()) + len(done - runs.effects),
            "unfinished": len(rows) - len(done),
            "early_rescues": sum(row["crashes"] for row in rows.values()) + lost[0]["sessions"],
            "run_again": len(runs) - len(runs.newest()),
            "run_early": sum(run.began_s < self.due_s[run.n] for run in runs.by_lease.values()),
        }


@contextmanager
def _nursery_at(clock: Clock) -> Iterator[Nursery]:
    """One whose processes go by *clock*."""
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as around:
            for name, text in clock.env.items():
                around.setenv(name, text)
            nursery = stack.enter_context(Nursery())
        yield nursery


@asynccontextmanager
async def _fleet(stage: Stage, figures: Figures, folder: Path, *unsafe: str) -> AsyncIterator[_Fleet]:
    """At work; *unsafe* is the odd one alone."""
    clock, sink = Clock(folder), folder / "sink.ndjson"
    numbers = {"lease_s": LEASE_S, "poll_s": 0.1}
    with _nursery_at(clock) as nursery:
        elsewhere = replace(stage, nursery=nursery, children=[])
        order: dict[str, Any] = {"sink": str(sink), "worker": numbers | {"concurrency": OTHER_SLOTS}}
        others = await stage.all_born(OTHERS, **order)
        order["worker"] = numbers | {"concurrency": SLOTS}
        odd = await elsewhere.born(child="owntime", unsafe=unsafe, **order)
        fleet = _Fleet(stage, figures, clock, sink, odd, others)
        try:
            await fleet.ask(odd)
            await fleet.ask(others[0])
            yield fleet
        finally:
            await odd.kill()  # before its nursery goes


async def test_E20_worker_with_jobs(stage: Stage, tmp_path: Path) -> None:
    figures = Figures("E20")
    async with _fleet(stage, figures, tmp_path) as fleet:
        for jump_s in JUMPS_S:
            await fleet.jump(jump_s)
        await fleet.ended()
        figures.note(n=len(fleet.due_s), faults=len(JUMPS_S), jumps_s=list(JUMPS_S), lease_s=LEASE_S)
        figures.note(held_at_jumps=fleet.held, runs=len(fleet.runs.look()))
        figures.zero(**await fleet.harms())
    figures.conclude()


@pytest.mark.parametrize(
    ("unsafe", "expected"),
    [
        ("renews_by_own_clock", "early_rescues"),
        ("judges_by_own_clock", "early_rescues"),
        ("schedules_by_own_clock", "run_early"),
    ],
)
async def test_E20_ablation_own_clock(stage: Stage, tmp_path: Path, unsafe: str, expected: str) -> None:
    figures = Figures("E20", ablation=unsafe, sees=f"{expected} =")
    async with _fleet(stage, figures, tmp_path, unsafe) as fleet:
        await fleet.jump(-TEN_MINUTES_S)

        async def is_harmed() -> bool:
            return bool((await fleet.harms())[expected])

        await until(is_harmed, f"{expected} is not 0")
        figures.note(n=len(fleet.due_s), faults=1)
        figures.zero(**await fleet.harms())
    figures.conclude()
