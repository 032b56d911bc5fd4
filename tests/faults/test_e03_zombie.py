"""E03: a worker is frozen for three leases in mid-job, its job runs again elsewhere, and then it wakes (P2).

What it writes then is refused, whether it wakes in the middle of its handler or just before its write, and
whether or not its handler heeds that it was cancelled. The second run is held open until the late write has
been tried, so there is no race to be lucky in.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.faults.support.child import Child
from tests.faults.support.report import Figures, sized
from tests.faults.support.sink import Runs
from tests.faults.support.stage import Stage, until

pytestmark = pytest.mark.slow

ROUNDS = sized(1, 25)
LEASE_S = sized(0.8, 1.5)
WORK_S = 1.0  # long enough to be frozen in, and over when three leases have passed
MODES = (
    ("fault.work", "", WORK_S),
    ("fault.deaf", "", WORK_S),
    ("fault.work", "job.before_ack:1:stop", 0.0),
)
ROWS = "SELECT job_id::text AS id, state, result->>'lease' AS lease FROM job"


async def _zombies(stage: Stage, desk: Child, sink: Path, unsafe: Sequence[str]) -> list[Child]:
    """Processes that took one job each and froze at it, in the middle or at its end.

    *desk* stores the jobs: who takes one may freeze before it could say that it has stored it.
    """
    numbers = {"lease_s": LEASE_S, "concurrency": 1}
    ages, zombies = len(Runs(sink)), []
    for n, (kind, fault, work_s) in enumerate(MODES, ages):
        zombie = await stage.born(sink=str(sink), worker=numbers, unsafe=unsafe, fault=fault)
        job = {"kind": kind, "tenant_id": "acme", "args": {"n": n, "work_s": work_s}}
        await desk.ask("enqueue", jobs=[job])

        async def begun(count: int = n + 1) -> bool:
            return len(Runs(sink)) == count

        await until(begun, f"job {n} runs")
        await (zombie.frozen() if fault else zombie.freeze())
        zombies.append(zombie)
    return zombies


async def _round(stage: Stage, stale: set[str], sink: Path, gate: Path, unsafe: Sequence[str]) -> int:
    """Freeze, have the jobs run again, wake; how many late writes were refused."""
    numbers = {"lease_s": LEASE_S, "concurrency": 1}
    before = len(Runs(sink))
    desk = await stage.born()
    zombies = await _zombies(stage, desk, sink, unsafe)
    frozen_s = time.monotonic()
    order = {"sink": str(sink), "worker": numbers, "gate": str(gate), "unsafe": unsafe}
    heirs = await stage.all_born(len(zombies), **order)

    async def all_again() -> bool:
        return len(Runs(sink)) == before + 2 * len(zombies)

    await until(all_again, "every job runs a second time")
    await asyncio.sleep(max(0.0, frozen_s + 3 * LEASE_S - time.monotonic()))
    for zombie in zombies:
        zombie.thaw()
    refused = sum([(await zombie.ask("idle"))["stale"] for zombie in zombies])
    await _judge(stage, sink, stale)
    gate.touch()
    await asyncio.gather(*(heir.ask("idle") for heir in heirs))
    await _judge(stage, sink, stale)
    for child in (desk, *zombies, *heirs):
        await child.stop()
    gate.unlink()
    return refused


async def _judge(stage: Stage, sink: Path, stale: set[str]) -> None:
    """An accepted result is that of the newest run; a job whose newest run goes on has none."""
    newest = Runs(sink).newest()
    for row in await stage.rows(ROWS):
        if row["state"] == "completed" and row["lease"] != newest[row["id"]].lease:
            stale.add(row["id"])


async def _experiment(stage: Stage, figures: Figures, folder: Path, rounds: int, *unsafe: str) -> None:
    refused, stale = 0, set[str]()
    for _ in range(rounds):
        refused += await _round(stage, stale, folder / "sink.ndjson", folder / "gate", unsafe)
    jobs = rounds * len(MODES)
    figures.note(n=jobs, lease_s=LEASE_S, frozen_s=round(3 * LEASE_S, 3), late_writes_refused=refused)
    figures.zero(stale_accepted=len(stale))


async def test_E03_zombie(stage: Stage, tmp_path: Path) -> None:
    figures = Figures("E03")
    await _experiment(stage, figures, tmp_path, ROUNDS)
    jobs = ROUNDS * len(MODES)
    states = [row["state"] for row in await stage.rows(ROWS)]
    figures.zero(unfinished=jobs - states.count("completed"))
    figures.holds(figures.counters["late_writes_refused"] >= jobs, "each zombie tried to write")
    figures.conclude()


async def test_E03_ablation_no_lease_check(stage: Stage, tmp_path: Path) -> None:
    figures = Figures("E03", ablation="no_lease_check", sees="stale_accepted")
    await _experiment(stage, figures, tmp_path, 1, "no_lease_check")
    figures.conclude()
