"""E06: every connection to the database is reset and its name does not resolve, while jobs fail.

All processes meet that in the same moment. Each works again soon after, or ends with an exit code that its
supervisor heeds; none is alive and idle. The failures of the jobs themselves are kept and written later.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tests.faults.support.child import Child
from tests.faults.support.load import Load, all_begin, began_since, run_began
from tests.faults.support.report import Figures, quantiles, sized
from tests.faults.support.sink import Runs
from tests.faults.support.stage import Stage
from tests.faults.support.tcpwire import TcpWire, postgres_over_tcp

pytestmark = pytest.mark.slow

PROCESSES, SLOTS = sized(3, 4), 12  # more slots than failing jobs: whoever took all of these works on
FAILING = 8
BATCH, WORK_S = 5, (0.6, 1.0)
BATCH_EVERY_S = BATCH * 0.8 / (0.9 * PROCESSES * SLOTS)  # all are needed: without one the others fall behind
ROUNDS = sized(1, 20)
AWAY_S = sized(1.2, 3.0)
RESUME_BOUND_S = 5.0
DRAINED_S = 300.0  # what came while all were away, round after round
ABLATION_PATIENCE_S = 2.0
NAME = "database.test"


async def _die_at_once(
    load: Load, workers: list[Child], sink: Path, wire: TcpWire, stalled: Path, patience_s: float
) -> list[float | None]:
    """One round; when each process worked again, in seconds (None: it lives and does nothing)."""
    now = stalled.with_name(f"now-{time.monotonic_ns()}")
    await all_begin(sink, workers)
    await run_began(sink, await load.ask(FAILING, kind="fault.fail", when=str(now)))
    stalled.touch()
    wire.away()
    now.touch()
    await asyncio.sleep(AWAY_S)
    stalled.unlink()
    wire.heal()
    return await _resumed_s(workers, sink, time.monotonic(), patience_s)


async def _resumed_s(
    workers: list[Child], sink: Path, healed_s: float, patience_s: float
) -> list[float | None]:
    """Of those that live. Each is given its time, and not a moment longer."""
    runs = Runs(sink)
    while True:
        first = began_since(runs.look(), healed_s)
        living = [worker for worker in workers if worker.alive]
        patient = time.monotonic() < healed_s + patience_s
        if all(worker.pid in first for worker in living) or not patient:
            return [first[worker.pid] - healed_s if worker.pid in first else None for worker in living]
        await asyncio.sleep(0.02)


async def _experiment(stage: Stage, figures: Figures, sink: Path, rounds: int, *unsafe: str) -> Load:
    stalled = sink.with_name("stalled")
    order = {
        "child": "command",
        "sink": str(sink),
        "worker": {"concurrency": SLOTS, "poll_s": 0.1, "lease_s": 30.0},
        "within_s": AWAY_S / 10,
        "unsafe": unsafe,
    }
    stalls = {"name": NAME, "stalled": str(stalled)}
    resolvers = [stalls, stalls | {"fails": True}]  # every other process waits for a name, or gets an error
    load = Load(await stage.born(), figures, batch=BATCH, every_s=BATCH_EVERY_S, work_s=WORK_S)
    resumed_s: list[float | None] = []
    workers: list[Child] = []
    patience_s = ABLATION_PATIENCE_S if unsafe else RESUME_BOUND_S
    async with postgres_over_tcp(stage.database.settings.dsn, NAME) as (wire, url):
        async with load.coming():
            for _ in range(rounds):
                workers = [worker for worker in workers if worker.alive]
                births = [
                    stage.born(url=url, resolver=resolvers[number % 2], **order)
                    for number in range(len(workers), PROCESSES)
                ]
                workers += await asyncio.gather(*births)
                resumed_s += await _die_at_once(load, workers, sink, wire, stalled, patience_s)
        worked = [s for s in resumed_s if s is not None]
        figures.note(processes=PROCESSES, rounds=rounds, away_s=AWAY_S, resume_s=quantiles(worked))
        figures.zero(alive_but_idle=resumed_s.count(None))
        figures.zero(ended_with_0=await _ended_with_0(stage.children))
        if not unsafe:
            await load.all_ended(stage, DRAINED_S)
    return load


async def _ended_with_0(children: list[Child]) -> int:
    """Processes that ended as if all were well: a supervisor would leave them so."""
    ended = [child for child in children if not child.alive]
    for child in ended:
        await child.died()
    return sum(child.code == 0 for child in ended)


async def test_E06_all_die_at_once(stage: Stage, tmp_path: Path) -> None:
    figures, sink = Figures("E06"), tmp_path / "sink.ndjson"
    load = await _experiment(stage, figures, sink, ROUNDS)
    await load.judge(stage, sink)
    figures.conclude()


async def test_E06_ablation_loop_ends(stage: Stage, tmp_path: Path) -> None:
    figures = Figures("E06", ablation="loop_ends", sees="alive_but_idle")
    await _experiment(stage, figures, tmp_path / "sink.ndjson", 1, "loop_ends")
    figures.conclude()
