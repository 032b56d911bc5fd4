"""E13: the database crashes at its peak, by ``stop -m immediate`` or by SIGKILL of its postmaster.

What it had acknowledged is there after its recovery (P1), what was finished meanwhile is written then (P14),
and work goes on by itself. On a server that acknowledges before it has written, the same run loses jobs:
that is why fairlead refuses one.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults.support.load import Load, all_begin
from tests.faults.support.report import Figures, quantiles, sized
from tests.faults.support.server import End, OwnServer
from tests.faults.support.stage import Stage
from tests.support.standstill import ran_s

pytestmark = pytest.mark.slow

PROCESSES, SLOTS = 2, 16
ENDS: tuple[End, ...] = ("immediate", "killed")
CRASHES = sized(1, 10)  # of each
PEAK_S = sized(0.5, 2.0)
DOWN_S = 0.2
RESUME_BOUND_S = 5.0
DRAINED_S = 300.0  # on a fast machine more is stored than done
ABLATION_CRASHES = 5  # at most; the first mostly does

STORED = "SELECT (args->>'n')::int AS n FROM job WHERE kind = 'fault.work'"


async def _crash(shaky: Stage, server: OwnServer, how: End) -> float:
    """The moment when it answers again."""
    await server.end(how)
    await asyncio.sleep(DOWN_S)
    await server.start()
    back_s = time.monotonic()
    await shaky.look_again()
    return back_s


async def _crashes(shaky: Stage, server: OwnServer, figures: Figures, sink: Path) -> Load:
    order = {"child": "command", "sink": str(sink), "worker": {"concurrency": SLOTS, "poll_s": 0.2}}
    workers = await shaky.all_born(PROCESSES, **order)
    load = Load(await shaky.born(), figures, batch=20)
    resumed_s: list[float] = []
    async with load.coming():
        for how in ENDS * CRASHES:
            await all_begin(sink, workers)
            await asyncio.sleep(PEAK_S)
            back_s = await _crash(shaky, server, how)
            await load.acknowledged_after(back_s)
            resumed_s.append(ran_s(back_s, load.acknowledged_at_s))
            began_s = await all_begin(sink, workers, back_s)
            resumed_s += [ran_s(back_s, moment_s) for moment_s in began_s.values()]
    await load.all_ended(shaky, DRAINED_S)
    figures.note(crashes=dict.fromkeys(ENDS, CRASHES), resume_s=quantiles(resumed_s))
    figures.holds(max(resumed_s) <= RESUME_BOUND_S, f"resumed after {max(resumed_s):.1f} s")
    return load


async def test_E13_database_crash(shaky: Stage, server: OwnServer, tmp_path: Path) -> None:
    figures, sink = Figures("E13"), tmp_path / "sink.ndjson"
    load = await _crashes(shaky, server, figures, sink)
    await load.judge(shaky, sink)
    figures.conclude()


async def test_E13_ablation_asynchronous_commit(shaky: Stage, server: OwnServer) -> None:
    figures = Figures("E13", ablation="asynchronous commit", sees="lost")
    name = (await shaky.rows("SELECT quote_ident(current_database()) AS name"))[0]["name"]
    await shaky.run(f"ALTER DATABASE {name} SET synchronous_commit = off")
    shaky.database.settings = replace(shaky.database.settings, allow_async_commit=True)
    load = Load(await shaky.born(database={"allow_async_commit": True}), figures)
    lost: set[int] = set()
    for _ in range(ABLATION_CRASHES):
        async with load.coming():
            await asyncio.sleep(PEAK_S)
            await _crash(shaky, server, "killed")
        lost = load.acknowledged.keys() - {row["n"] for row in await shaky.rows(STORED)}
        if lost:
            break
    figures.note(n=len(load.acknowledged))
    figures.zero(lost=len(lost))
    figures.conclude()
