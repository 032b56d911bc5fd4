"""E11: a backend of the database is ended every 200 ms while jobs come and run, mostly one that is at work.

What was acknowledged is there and done (P1), nothing is done twice, no late write is accepted (P2). Callers
are told the truth: an enqueue is acknowledged, or it is in doubt and few of them are.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tests.faults.support.load import Load
from tests.faults.support.report import Figures, sized
from tests.faults.support.stage import Stage

pytestmark = pytest.mark.slow

PROCESSES, SLOTS = 3, 8
FOR_S = sized(2.0, 60.0)
EVERY_S, LOOK_S = 0.2, 0.001
ABLATION_EVERY_S, ABLATION_PATIENCE_S = 0.01, 10.0
ERRORS_BOUND = 0.05  # of the asks: a caller that is cut off mostly gets its answer all the same

AT_WORK = 0.8
"""Of the blows; the others meet whichever they meet, and that is mostly one that rests in a pool."""
END = (
    "SELECT pg_terminate_backend(pid) AS ended, state <> 'idle' AS at_work FROM ("
    " SELECT pid, state FROM pg_stat_activity WHERE datname = current_database()"
    " AND backend_type = 'client backend' AND pid <> pg_backend_pid() AND application_name = 'fairlead'"
    " ORDER BY $1 AND state = 'idle', md5(pid::text || $2) LIMIT 1) AS struck"
    " WHERE state <> 'idle' OR NOT $1"
)


async def _kill_backends(stage: Stage, figures: Figures, every_s: float) -> None:
    """Until cancelled."""
    figures.note(backends_ended=0, at_work=0)
    while True:
        await asyncio.sleep(every_s)
        wants_one_at_work, draw = figures.draw.random() < AT_WORK, str(figures.draw.random())
        while not (struck := await stage.rows(END, wants_one_at_work, draw)):
            await asyncio.sleep(LOOK_S)  # all rest at this moment
        if struck[0]["ended"]:
            figures.counters["backends_ended"] += 1
            figures.counters["at_work"] += struck[0]["at_work"]


async def _experiment(stage: Stage, figures: Figures, sink: Path, *unsafe: str) -> Load:
    order = {"child": "command", "sink": str(sink), "worker": {"concurrency": SLOTS, "poll_s": 0.2}}
    await stage.all_born(PROCESSES, **order)
    load = Load(await stage.born(unsafe=unsafe), figures)
    killing = asyncio.create_task(_kill_backends(stage, figures, ABLATION_EVERY_S if unsafe else EVERY_S))
    async with load.coming():
        if unsafe:
            await _until_one_is_lost(stage, load)
        else:
            await asyncio.sleep(FOR_S)
    killing.cancel()
    await asyncio.gather(killing, return_exceptions=True)
    await load.all_ended(stage)
    await load.judge(stage, sink)
    return load


async def _until_one_is_lost(stage: Stage, load: Load) -> None:
    """Or until it is plain that none will be."""
    until_s = time.monotonic() + ABLATION_PATIENCE_S
    while time.monotonic() < until_s:
        numbers = set(load.acknowledged)
        stored = await stage.rows("SELECT (args->>'n')::int AS n FROM job WHERE kind = 'fault.work'")
        if numbers - {row["n"] for row in stored}:
            return


async def test_E11_backend_kills(stage: Stage, tmp_path: Path) -> None:
    figures = Figures("E11")
    load = await _experiment(stage, figures, tmp_path / "sink.ndjson")
    errors = sum(load.told.values()) - load.told["stored"]
    rate = errors / sum(load.told.values())
    figures.note(asks=sum(load.told.values()), every_s=EVERY_S, error_rate=round(rate, 4))
    figures.holds(figures.counters["at_work"] > 0, "backends were ended at their work")
    figures.holds(rate <= ERRORS_BOUND, f"{errors} asks came back with an error")
    figures.conclude()


async def test_E11_ablation_believes(stage: Stage, tmp_path: Path) -> None:
    figures = Figures("E11", ablation="believes", sees="lost")
    await _experiment(stage, figures, tmp_path / "sink.ndjson", "believes")
    figures.broken = [claim for claim in figures.broken if claim.startswith("lost")]
    figures.conclude()
