"""E09: who lives is not rescued, however slow the database is, nor after a gap in its time (R2).

Four sweepers look for the dead while workers run jobs of ten leases. Between each process and the database
stands a wire that delays every answer by up to an eighth of a lease. Then the database is away for longer
than a lease: to the sweepers, who see it first again, every owner looks dead, and is not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.faults.support.child import Child
from tests.faults.support.faultproxy import Cut, FaultProxy, postgres_proxy
from tests.faults.support.load import Load, run_began
from tests.faults.support.report import Figures, sized
from tests.faults.support.sink import Runs
from tests.faults.support.stage import Stage, until

pytestmark = pytest.mark.slow

SWEEPERS, WORKERS = 4, sized(2, 4)
LEASE_S, DELAY_S = sized((1.5, 0.18), (4.0, 0.5))  # DELAY_S: at most, of each answer
JOBS = sized(300, 10_000)
AT_ONCE = sized(150, 250)  # in one process
LEASES = 10
WITHIN_S = sized(120.0, 1200.0)
GAP_LEASE_S, GAP_LEASES = sized(4.0, 10.0), 1.3
"""What has ended is written within 2 s of the return: sooner than a lease, on a busy machine too."""
GAP_JOBS = sized(100, 1000)
GAPS = sized(1, 5)
MIN_SEEN = 2
"""Passes of the sweepers over what looks dead, before the workers have their database back."""
BATCH = 500
_ENDLESS = 10**9

CRASHED = (
    "SELECT count(*) AS jobs FROM job WHERE kind = 'fault.work'"
    " AND (crash_count > 0 OR jsonb_path_exists(failures, '$[*] ? (@.code == \"crashed\")'))"
)
LOST = (
    "SELECT count(*) AS sessions FROM worker_session WHERE session_id::text = ANY($1) AND lost_at IS NOT NULL"
)


@dataclass
class _Fleet:
    """Processes with a wire each. *passes* are cuts that never cut: they count what goes by."""

    stage: Stage
    figures: Figures
    stack: AsyncExitStack
    lease_s: float
    unsafe: tuple[str, ...] = ()
    sweepers: list[Child] = field(default_factory=list)
    workers: list[Child] = field(default_factory=list)
    sweeping: list[FaultProxy] = field(default_factory=list)
    working: list[FaultProxy] = field(default_factory=list)
    passes: dict[FaultProxy, Cut] = field(default_factory=dict)

    async def born(self, wires: list[FaultProxy], **order: Any) -> Child:
        proxy, url = await self.stack.enter_async_context(postgres_proxy(self.stage.database.settings.dsn))
        wires.append(proxy)
        self.passes[proxy] = proxy.cut("/* session_rescue */", "before", skip=_ENDLESS)
        return await self.stage.born(child="sweep", url=url, unsafe=self.unsafe, **order)

    async def gather(self, sink: Path, concurrency: int, **order: Any) -> None:
        """Return once all are born and at work; workers look for the dead, too."""
        numbers = {"lease_s": self.lease_s, "poll_s": 0.1}
        for _ in range(SWEEPERS):
            self.sweepers.append(await self.born(self.sweeping, worker=numbers))
        numbers |= {"concurrency": concurrency}
        for _ in range(WORKERS):
            self.workers.append(await self.born(self.working, sink=str(sink), worker=numbers, **order))

        async def at_work() -> bool:
            return all(self.looks(proxy) for proxy in self.passes)

        await until(at_work, "all processes are at work")

    def delay(self, most_s: float) -> None:
        """From now on each answer comes up to so late: half of it on the way there, half on the way back."""
        for proxy in (*self.sweeping, *self.working):
            proxy.delay_s = lambda: self.figures.draw.uniform(0.0, most_s / 2)

    def looks(self, *proxies: FaultProxy) -> int:
        """How often those behind these wires have looked for the dead."""
        return sum(_ENDLESS - self.passes[proxy].skip for proxy in proxies)

    async def told(self, event: str) -> int:
        """How often the fleet told of *event*."""
        answers = [await child.ask("told") for child in (*self.sweepers, *self.workers)]
        return sum(answer["events"].get(event, 0) for answer in answers)

    async def judge(self) -> None:
        """No session of a worker was declared lost, no job was counted as crashed."""
        sessions = [child.session_id for child in self.workers]
        crashed, lost = await self.stage.rows(CRASHED), await self.stage.rows(LOST, sessions)
        self.figures.note(
            rescue_passes=self.looks(*self.passes), sweepers=SWEEPERS, workers=WORKERS, lease_s=self.lease_s
        )
        self.figures.zero(false_rescues=crashed[0]["jobs"], living_declared_lost=lost[0]["sessions"])


@asynccontextmanager
async def _fleet(
    stage: Stage, figures: Figures, lease_s: float, unsafe: tuple[str, ...]
) -> AsyncIterator[_Fleet]:
    async with AsyncExitStack() as stack:
        fleet = _Fleet(stage, figures, stack, lease_s, unsafe)
        yield fleet
        for child in (*fleet.sweepers, *fleet.workers):
            await child.kill()


async def _enqueue(stage: Stage, figures: Figures, jobs: int, work_s: float) -> tuple[Load, list[int]]:
    """By a process that is gone before the others come: it would see the database without a gap."""
    load = Load(await stage.born(), figures)
    numbers: list[int] = []
    while len(numbers) < jobs:
        numbers += await load.ask(min(BATCH, jobs - len(numbers)), work_s=work_s)
    await load.desk.stop()
    return load, numbers


# ---- a slow database


async def _slow(stage: Stage, figures: Figures, sink: Path, jobs: int, *unsafe: str) -> None:
    load, _ = await _enqueue(stage, figures, jobs, LEASES * LEASE_S)
    async with _fleet(stage, figures, LEASE_S, unsafe) as fleet:
        await fleet.gather(sink, concurrency=AT_ONCE)
        fleet.delay(DELAY_S)
        if unsafe:
            await _until_rescued(stage)
        else:
            await load.all_ended(stage, WITHIN_S)
            figures.note(
                leases_given_up=await fleet.told("lease_lost")
            )  # by a process that was held up itself
        figures.note(n=jobs, leases=LEASES, delay_s=[0.0, DELAY_S])
        await fleet.judge()
    figures.zero(run_again=len(Runs(sink)) - len(Runs(sink).newest()))


async def _until_rescued(stage: Stage) -> None:
    async def rescued() -> bool:
        return bool((await stage.rows(CRASHED))[0]["jobs"])

    await until(rescued, "living jobs are rescued")


async def test_E09_false_rescue_slow_database(stage: Stage, tmp_path: Path) -> None:
    figures = Figures("E09")
    figures.note(what="slow database")
    await _slow(stage, figures, tmp_path / "sink.ndjson", JOBS)
    figures.conclude()


async def test_E09_ablation_no_heartbeat(stage: Stage, tmp_path: Path) -> None:
    figures = Figures("E09", ablation="no_heartbeat", sees="false_rescues")
    await _slow(stage, figures, tmp_path / "sink.ndjson", 50, "no_heartbeat")
    figures.broken = [claim for claim in figures.broken if claim.startswith("false_rescues")]
    figures.conclude()


# ---- a database that was away


async def _gap(stage: Stage, figures: Figures, folder: Path, jobs: int, gaps: int, *unsafe: str) -> None:
    sink, gate = folder / "sink.ndjson", folder / "gate"
    load, numbers = await _enqueue(stage, figures, jobs, 0.0)
    async with _fleet(stage, figures, GAP_LEASE_S, unsafe) as fleet:
        await fleet.gather(sink, concurrency=jobs, gate=str(gate))
        for gap in range(1, gaps + 1):
            await run_began(sink, numbers, times=gap)
            await _settled(fleet)
            await _away(fleet)
        if unsafe:
            await _until_rescued(stage)
        else:
            await run_began(sink, numbers, times=gaps + 1)
            gate.touch()
            await load.all_ended(stage)
        figures.note(n=jobs * gaps, gaps=gaps)
        figures.note(gap_s=round(GAP_LEASES * GAP_LEASE_S, 3), leases_given_up=await fleet.told("lease_lost"))
        await fleet.judge()


async def _settled(fleet: _Fleet) -> None:
    """A full lease of uninterrupted database time has passed: what is rescued now, is."""
    sql = (
        "SELECT FROM maintenance_run"
        " WHERE name = 'rescue' AND uninterrupted_since <= now() - $1 * interval '1 second'"
    )

    async def settled() -> bool:
        return bool(await fleet.stage.rows(sql, fleet.lease_s))

    await until(settled, "a lease of database time has passed")


async def _away(fleet: _Fleet) -> None:
    """The database is away for all, and the sweepers have it back first."""
    for proxy in (*fleet.sweeping, *fleet.working):
        proxy.away()
    await asyncio.sleep(GAP_LEASES * fleet.lease_s)
    looks = fleet.looks(*fleet.sweeping)
    for proxy in fleet.sweeping:
        proxy._refusing = False

    async def looked() -> bool:
        return fleet.looks(*fleet.sweeping) >= looks + MIN_SEEN

    await until(looked, "the sweepers look for the dead")
    for proxy in fleet.working:
        proxy._refusing = False


async def test_E09_false_rescue_after_a_gap(stage: Stage, tmp_path: Path) -> None:
    figures = Figures("E09")
    figures.note(what="database away")
    await _gap(stage, figures, tmp_path, GAP_JOBS, GAPS)
    figures.conclude()


async def test_E09_ablation_no_gap_rule(stage: Stage, tmp_path: Path) -> None:
    figures = Figures("E09", ablation="no_gap_rule", sees="false_rescues")
    await _gap(stage, figures, tmp_path, 20, 1, "no_gap_rule")
    figures.broken = [claim for claim in figures.broken if claim.startswith("false_rescues")]
    figures.conclude()
