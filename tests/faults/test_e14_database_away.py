"""E14: the database is stopped for a minute, longer than any lease, while jobs end.

Processes stay up, keep what was finished and write it when the database is back (P14). They are at work again
within 5 s, and say little meanwhile: each service tells that it fails, and that it works again. What still
runs when a lease has passed is cancelled, for its process is dead to the others by then, and runs again.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.faults.support.child import Child
from tests.faults.support.load import ENDED, Load, all_begin, run_began
from tests.faults.support.report import Figures, quantiles, sized
from tests.faults.support.server import OwnServer
from tests.faults.support.sink import Run, Runs
from tests.faults.support.stage import Stage
from tests.support.standstill import ran_s

pytestmark = pytest.mark.slow

PROCESSES, SLOTS = 2, sized(8, 16)
LEASE_S = sized(3.0, 30.0)
AWAY_S = sized(5.0, 60.0)
ROUNDS = sized(1, 3)
WORK_S = (0.0, LEASE_S / 2)  # ends before its process gives itself up
LONG, LONG_WORK_S = PROCESSES, 1.5 * LEASE_S  # these do not, as AWAY_S is longer than a lease
PATIENCE = sized({"within_s": AWAY_S / 10}, {})
"""A write in doubt is looked for, for 5 s; here that ends within the time away, as it does in a minute."""
RESUME_BOUND_S = 5.0
ENDED_WITHIN_S = sized(30.0, 180.0)
LINES_PER_S = 1.0


async def _away(
    shaky: Stage, server: OwnServer, workers: list[Child]
) -> tuple[float, float, list[list[str]]]:
    """Stop, wait, start: when it was gone, when it is back, and what each process said in between."""
    said_before = [len(worker.lines()) for worker in workers]
    await server.end("fast")
    gone_s = time.monotonic()
    await asyncio.sleep(AWAY_S)
    lines_said = [
        worker.lines()[line_count:] for worker, line_count in zip(workers, said_before, strict=True)
    ]
    await server.start()
    back_s = time.monotonic()
    await shaky.look_again()
    return gone_s, back_s, lines_said


async def _experiment(
    shaky: Stage, server: OwnServer, figures: Figures, sink: Path, *unsafe: str, rounds: int = 1
) -> Load:
    numbers = {"concurrency": SLOTS, "poll_s": 0.2, "lease_s": LEASE_S}
    order = {"child": "command", "sink": str(sink), "worker": numbers, "unsafe": unsafe, **PATIENCE}
    workers = await shaky.all_born(PROCESSES, roles="worker,scheduler", **order)
    load = Load(await shaky.born(), figures, work_s=WORK_S, every_s=0.05)
    long, resumed_s, lines_said, finished, lost = list[int](), list[float](), list[list[str]](), 0, 0
    for _ in range(rounds):
        long += await load.ask(LONG, work_s=LONG_WORK_S)
        await load.ask(3 * PROCESSES * SLOTS)
        await run_began(sink, long)
        await all_begin(sink, workers)
        gone_s, back_s, words = await _away(shaky, server, workers)
        lines_said += words
        async with load.coming():
            began_s = await all_begin(sink, workers, back_s)
        resumed_s += [ran_s(back_s, moment_s) for moment_s in began_s.values()]
        meanwhile = [run for run in Runs(sink).by_lease.values() if gone_s < (run.ended_s or 0.0) < back_s]
        figures.holds(bool(meanwhile), "jobs ended while it was away")
        if not unsafe:
            await load.all_ended(shaky, ENDED_WITHIN_S)
        finished += len(meanwhile)
        lost += await _not_accepted(shaky, meanwhile)
    figures.note(away_s=AWAY_S, lease_s=LEASE_S, finished_meanwhile=finished)
    figures.note(outages=rounds, resume_s=quantiles(resumed_s))
    again = Counter(run.n for run in Runs(sink).by_lease.values())
    figures.note(long_jobs=len(long), long_jobs_run_again=sum(again[n] > 1 for n in long))
    figures.holds(max(resumed_s) <= RESUME_BOUND_S, f"resumed after {max(resumed_s):.1f} s")
    _judge_words(figures, lines_said)
    figures.zero(finished_results_lost=lost)
    return load


async def _not_accepted(shaky: Stage, finished: list[Run]) -> int:
    rows = {row["id"]: row for row in await shaky.rows(ENDED)}
    return sum(rows[run.job_id]["lease"] != run.lease for run in finished)


def _judge_words(figures: Figures, lines_said: list[list[str]]) -> None:
    """The first word of each service is free where the time is short; over a minute nothing is."""
    free, most, repeated = (0 if AWAY_S >= 60.0 else None), 0, 0
    for lines in lines_said:
        records = [json.loads(line) for line in lines]
        outage = [(line["event"], *line.get("reason", "").split(":")[:1]) for line in records]
        outage = [words for words in outage if words[0] != "job_finished"]
        most = max(most, len(outage))
        repeated = max(repeated, len(outage) - (len(set(outage)) if free is None else free))
    figures.note(lines_said=most, lines_per_s=round(most / AWAY_S, 2))
    figures.holds(repeated <= AWAY_S * LINES_PER_S, f"flood: {most} lines in {AWAY_S:g} s")


async def test_E14_database_away(shaky: Stage, server: OwnServer, tmp_path: Path) -> None:
    figures, sink = Figures("E14"), tmp_path / "sink.ndjson"
    load = await _experiment(shaky, server, figures, sink, rounds=ROUNDS)
    await load.judge(shaky, sink)
    figures.zero(ended=sum(not worker.alive for worker in shaky.children))
    figures.conclude()


async def test_E14_ablation_drops_results_and_tells_each(
    shaky: Stage, server: OwnServer, tmp_path: Path
) -> None:
    figures = Figures("E14", ablation="drops_results, tells_each", sees="finished_results_lost")
    await _experiment(shaky, server, figures, tmp_path / "sink.ndjson", "drops_results", "tells_each")
    for sign in ("finished_results_lost", "flood"):
        assert any(claim.startswith(sign) for claim in figures.broken), f"{sign} was not seen: {figures.line}"
    figures.conclude()
