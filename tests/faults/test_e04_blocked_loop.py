"""E04: a handler blocks the event loop of its process for two leases, heartbeat and all (P2).

Beside others its work is rescued, its neighbours in that process with it, and what it writes on waking is
refused. Alone it may find on waking that nobody took its work away: then nothing has happened. In no case two
runs of a job are accepted, and the process tells how long it stood still.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.faults.support.child import Child
from tests.faults.support.load import ENDED, Load, run_began
from tests.faults.support.report import Figures, quantiles, sized
from tests.faults.support.sink import Runs
from tests.faults.support.stage import Stage

pytestmark = pytest.mark.slow

ROUNDS = sized(1, 20)
LEASE_S = sized(1.5, 2.0)
BLOCKED_S = 2 * LEASE_S
NEIGHBOURS = 2
TOLD_WITHIN = 0.1
"""The stall as it is told may be off by this share."""
NUMBERS = {"lease_s": LEASE_S, "concurrency": 8, "poll_s": 0.1}


async def _blocked(stage: Stage, load: Load, sink: Path, unsafe: Sequence[str]) -> tuple[Child, list[int]]:
    """A process that blocks, with *NEIGHBOURS* jobs beside the one that does it; their numbers."""
    child = await stage.born(sink=str(sink), worker=NUMBERS, unsafe=unsafe)
    beside = await load.ask(NEIGHBOURS, work_s=LEASE_S)
    await run_began(sink, beside)
    blocker = await load.ask(1, kind="fault.block", work_s=BLOCKED_S)
    await run_began(sink, blocker)
    return child, [*beside, *blocker]


async def _woken(child: Child, sink: Path, blocker: int, errors: list[float]) -> int:
    """Once it has woken and written what it had: how many of its writes were refused."""
    await child.ask("idle")
    events = await child.ask("told")
    run = next(run for run in Runs(sink).by_lease.values() if run.n == blocker and run.pid == child.pid)
    assert run.ended_s is not None
    stood_s = run.ended_s - run.began_s
    errors.append(abs(max(events["stalls_s"], default=0.0) - stood_s) / stood_s)
    return int(events["stale"])


async def _judge(stage: Stage, sink: Path, stale: set[str]) -> None:
    """An accepted result is that of the newest run; a job whose newest run goes on has none."""
    newest = Runs(sink).newest()
    for row in await stage.rows(ENDED):
        if row["state"] == "completed" and row["lease"] != newest[row["id"]].lease:
            stale.add(row["id"])


async def _beside_others(
    stage: Stage, load: Load, folder: Path, stale: set[str], errors: list[float], *unsafe: str
) -> int:
    """All of its work runs a second time elsewhere, and is held open until it has woken and tried to write.

    There is an heir for each job: what was in flight at a crash is run alone.
    """
    sink, gate = folder / "sink.ndjson", folder / "gate"
    child, numbers = await _blocked(stage, load, sink, unsafe)
    order = {"sink": str(sink), "worker": NUMBERS, "gate": str(gate), "unsafe": unsafe}
    heirs = await stage.all_born(len(numbers), **order)
    await run_began(sink, numbers, times=2)
    refused = await _woken(child, sink, numbers[-1], errors)
    await _judge(stage, sink, stale)
    await child.stop()
    gate.touch()
    await load.all_ended(stage)
    await _judge(stage, sink, stale)
    await asyncio.gather(*(heir.stop() for heir in heirs))
    gate.unlink()
    return refused


async def _degraded(stage: Stage, load: Load, folder: Path, stale: set[str], errors: list[float]) -> None:
    """Nobody else is there who could rescue."""
    sink = folder / "sink.ndjson"
    child, numbers = await _blocked(stage, load, sink, ())
    await load.desk.stop()
    await _woken(child, sink, numbers[-1], errors)
    await load.all_ended(stage)
    await _judge(stage, sink, stale)
    await child.stop()
    load.desk = await stage.born()


def _note(figures: Figures, stale: set[str], errors: list[float]) -> None:
    figures.note(lease_s=LEASE_S, blocked_s=BLOCKED_S, stall_told_off_by=quantiles(errors))
    figures.zero(stale_accepted=len(stale))
    figures.holds(max(errors) <= TOLD_WITHIN, f"a stall was told wrong by {max(errors):.0%}")


async def test_E04_blocked_loop(stage: Stage, tmp_path: Path) -> None:
    figures, stale, errors, refused = Figures("E04"), set[str](), list[float](), 0
    load = Load(await stage.born(), figures)
    for _ in range(ROUNDS):
        refused += await _beside_others(stage, load, tmp_path, stale, errors)
        await _degraded(stage, load, tmp_path, stale, errors)
    rows, runs = await stage.rows(ENDED), Runs(tmp_path / "sink.ndjson")
    figures.note(n=len(load.acknowledged), runs=len(runs), late_writes_refused=refused)
    _note(figures, stale, errors)
    figures.zero(
        lost=len(load.acknowledged.keys() - {row["n"] for row in rows}),
        unfinished=sum(row["state"] != "completed" for row in rows),
    )
    figures.holds(refused >= ROUNDS, "whoever was blocked has tried to write")
    figures.conclude()


@pytest.mark.parametrize("unsafe", ["no_lease_check", "no_meter"])
async def test_E04_ablation(stage: Stage, tmp_path: Path, unsafe: str) -> None:
    sees = {"no_lease_check": "stale_accepted", "no_meter": "a stall was told wrong"}[unsafe]
    figures, stale, errors = Figures("E04", ablation=unsafe, sees=sees), set[str](), list[float]()
    load = Load(await stage.born(), figures)
    await _beside_others(stage, load, tmp_path, stale, errors, unsafe)
    _note(figures, stale, errors)
    figures.conclude()
