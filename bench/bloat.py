"""A queue while an old snapshot is open: dead rows cannot be removed, and claims must not slow down.

800 no-op jobs a second are offered for ten minutes to one worker process, both in processes of their own. A
connection beside them holds a REPEATABLE READ transaction with a snapshot from before the first job, as a
report or a forgotten session does. Then the load ends, the snapshot is released, and the rest is drained.

    bloat.claim_p99   p99 of a claim in the last minute, over that in the first; measured in the worker, with
                      empty claims
    bloat.backlog     jobs without a stored end when the load ends, in seconds of load
    bloat.drained     seconds from then until no job is open
    bloat.dead        dead rows of the fullest table at the end of the load

Beside them in each row stands PgQueuer under the same load, on its own database, after ours. Autovacuum runs
as the server's defaults and each side's own migrations set it. A *minute* is a quarter of a shorter run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.databases import connected, fresh_database, server
from bench.report import Row
from bench.sides import Child, SideFailedError, SkippedError, ask, started

RATE = 800
LOAD_S, QUICK_S = 600.0, 4.0
START_S = 60.0
DRAIN_S, DRAINED_S = 120.0, 10.0
"""Seconds after which the wait for the drain ends, and the goal."""
SIDES = {"fairlead": "bench.ours", "pgqueuer": "bench.peers.pgqueuer"}
SNAPSHOT = "SELECT count(*) FROM pg_class"
DEAD = """
SELECT relname, n_dead_tup FROM pg_stat_user_tables WHERE n_dead_tup > 0 ORDER BY n_dead_tup DESC LIMIT 4
"""


@dataclass(slots=True)
class Run:
    """The measurements of one side, by *minutes*."""

    minutes: int
    minute_s: float
    start_mono: float = 0.0
    sent: list[tuple[float, int]] = field(default_factory=list)
    """Instant, and jobs enqueued until then. *runs* likewise."""
    runs: list[tuple[float, int]] = field(default_factory=list)
    claims: Sequence[tuple[float, float, int]] = ()
    dead: list[dict[str, int]] = field(default_factory=list)
    open_jobs: int = 0
    drained_s: float = DRAIN_S

    @property
    def rate(self) -> float:
        """Jobs enqueued per second."""
        at, jobs = self.sent[-1]
        return round(jobs / (at - self.start_mono), 1)

    def claim_times(self) -> list[dict[str, float]]:
        """Return for each minute the number of claims, of empty claims, and percentiles in milliseconds."""
        rows = []
        for number in range(self.minutes):
            starts = self.start_mono + number * self.minute_s
            claims = [claim for claim in self.claims if 0 <= claim[0] - starts < self.minute_s]
            times = sorted(took_s * 1000 for _, took_s, _ in claims) or [0.0]
            empty = sum(not jobs for _, _, jobs in claims)
            rows.append(
                {"claims": len(claims), "empty": empty, "p50": share(times, 0.5), "p99": share(times, 0.99)}
            )
        return rows

    def backlog_s(self) -> list[float]:
        """Return for each minute the most jobs that were enqueued and not started, in seconds of load."""
        most = [0.0] * self.minutes
        runs_before = self._runs_at(self.start_mono)
        for at, sent in self.sent:
            minute = min(int((at - self.start_mono) / self.minute_s), self.minutes - 1)
            waiting = sent - (self._runs_at(at) - runs_before)
            most[minute] = max(most[minute], round(waiting / RATE, 2))
        return most

    def _runs_at(self, moment: float) -> float:
        for (at, runs), (next_at, next_runs) in zip(self.runs, self.runs[1:], strict=False):
            if at <= moment <= next_at:
                return runs + (next_runs - runs) * (moment - at) / (next_at - at)
        return self.runs[-1][1]


def share(ordered: Sequence[float], part: float) -> float:
    """Return the value below which *part* of the *ordered* values lie."""
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * part))], 3)


async def run(*, rounds: int, quick: bool, peers: bool = True, seconds: float | None = None) -> list[Row]:
    """Measure each side in one long run and return all rows. *rounds* is ignored."""
    load_s = seconds or (QUICK_S if quick else LOAD_S)
    runs: dict[str, Run] = {}
    skipped: dict[str, str] = {}
    with server() as url:
        for name, module in SIDES.items():
            if name == "fairlead":
                runs[name] = await _run(url, module, load_s)
            elif peers:
                try:
                    runs[name] = await _run(url, module, load_s)
                except (SkippedError, SideFailedError) as error:
                    skipped[name] = str(error)
    return _rows(runs, skipped, load_s)


# ---- one side ----------------------------------------------------------------------------------


async def _run(server_url: str, module: str, load_s: float) -> Run:
    minutes = max(4, round(load_s / 60.0))
    result = Run(minutes, minute_s=load_s / minutes)
    async with fresh_database(server_url, "bench") as url:
        open_sql = (await ask(module, "prepare", url, START_S))["open_sql"]
        async with started(module, "serve", url) as worker, connected(url) as observer:
            await worker.line()
            await ask(module, "enqueue", url, START_S, singles=RATE // 10, bulk=RATE)  # warm up
            await _drained(observer, open_sql, START_S)
            async with connected(url) as holder:
                await holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
                await holder.fetchval(SNAPSHOT)
                async with started(module, "load", url, rate=RATE) as load:
                    await _loaded(load, worker, observer, result)
                    result.open_jobs = await observer.fetchval(open_sql)
                    load.stop()
                    while "at" in await load.line():
                        pass
            result.drained_s = await _drained(observer, open_sql, DRAIN_S)
            worker.stop()
            while "claims" not in (line := await worker.line()):
                pass
            result.claims = line["claims"]
    return result


async def _loaded(load: Child, worker: Child, observer: Any, result: Run) -> None:
    """Wait until the load ends, and record what both processes and the database report meanwhile."""
    result.start_mono = (await load.line())["at"]
    noting = [
        asyncio.create_task(_note(worker, "runs", result.runs)),
        asyncio.create_task(_note(load, "sent", result.sent)),
    ]
    try:
        for minute in range(result.minutes):
            ends = result.start_mono + (minute + 1) * result.minute_s
            limit_s = ends - time.perf_counter()
            done, _ = await asyncio.wait(noting, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            for task in done:  # a task ends only if its child died
                task.result()
            result.dead.append({row["relname"]: row["n_dead_tup"] for row in await observer.fetch(DEAD)})
    finally:
        for task in noting:
            task.cancel()
        await asyncio.wait(noting)


async def _note(child: Child, key: str, notes: list[tuple[float, int]]) -> None:
    while True:
        line = await child.line()
        notes.append((line["at"], line[key]))


async def _drained(observer: Any, open_sql: str, limit_s: float) -> float:
    """Wait until no job is open and return the seconds that took, at most *limit_s*."""
    start_mono = time.perf_counter()
    while await observer.fetchval(open_sql):
        if time.perf_counter() - start_mono > limit_s:
            return limit_s
        await asyncio.sleep(0.05)
    return time.perf_counter() - start_mono


# ---- rows --------------------------------------------------------------------------------------


def _rows(runs: Mapping[str, Run], skipped: Mapping[str, str], load_s: float) -> list[Row]:
    ours = runs["fairlead"]
    claims = ours.claim_times()
    peers = {name: run for name, run in runs.items() if run is not ours}
    context = {
        "seconds": load_s,
        "rate": {name: run.rate for name, run in runs.items()},
        "minute_s": round(ours.minute_s, 3),
        "skipped": skipped,
    }

    def beside(of: Callable[[Run], object]) -> dict[str, object]:
        return {name: of(run) for name, run in peers.items()}

    return [
        Row(
            bench="bloat.claim_p99",
            ours=claims[-1]["p99"],
            unit="ms",
            n=1,
            limit=claims[0]["p99"],
            goal={"ratio_limit": 2.0},
            at_most=True,
            more={"minutes": claims, "beside": beside(lambda run: run.claim_times()), **context},
        ),
        Row(
            bench="bloat.backlog",
            ours=ours.open_jobs / RATE,
            unit="s of load",
            n=1,
            goal={"ours": 1.0},
            at_most=True,
            more={
                "minutes": ours.backlog_s(),
                "beside": beside(lambda run: {"end": run.open_jobs / RATE, "minutes": run.backlog_s()}),
            },
        ),
        Row(
            bench="bloat.drained",
            ours=ours.drained_s,
            unit="s",
            n=1,
            goal={"ours": DRAINED_S},
            at_most=True,
            more={"beside": beside(lambda run: round(run.drained_s, 2))},
        ),
        Row(
            bench="bloat.dead",
            ours=max(ours.dead[-1].values(), default=0),
            unit="rows",
            n=1,
            more={"minutes": ours.dead, "beside": beside(lambda run: run.dead)},
        ),
    ]
