"""A queue while somebody holds an old snapshot: dead rows cannot be removed, and claims must not slow down.

800 no-op jobs a second are offered for ten minutes to one worker process, both in processes of their own. A
connection beside them holds a REPEATABLE READ transaction with a snapshot from before the first job, as a
report or a forgotten session does. Then the load ends, the snapshot is let go, and the rest is worked off.

    bloat.claim_p99   a claim in the last minute, over one in the first; asked of the claims themselves, empty
                      ones too, in the worker
    bloat.backlog     at the end of the load, in seconds of load: jobs whose end is not stored
    bloat.drained     from then until nothing is left
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
from bench.sides import Child, SideFailed, Skipped, ask, started

RATE = 800
LOAD_S, QUICK_S = 600.0, 4.0
START_S = 60.0
DRAIN_S, DRAINED_S = 120.0, 10.0
"""The longest that is waited for, and the longest that will do."""
SIDES = {"fairlead": "bench.ours", "pgqueuer": "bench.peers.pgqueuer"}
SNAPSHOT = "SELECT count(*) FROM pg_class"
DEAD = """
SELECT relname, n_dead_tup FROM pg_stat_user_tables WHERE n_dead_tup > 0 ORDER BY n_dead_tup DESC LIMIT 4
"""


@dataclass(slots=True)
class Run:
    """What was seen of one side, by *minutes*."""

    minutes: int
    minute_s: float
    began: float = 0.0
    sent: list[tuple[float, int]] = field(default_factory=list)
    """Moment, jobs enqueued until then; *runs* likewise."""
    runs: list[tuple[float, int]] = field(default_factory=list)
    claims: Sequence[tuple[float, float, int]] = ()
    dead: list[dict[str, int]] = field(default_factory=list)
    left: int = 0
    drained_s: float = DRAIN_S

    @property
    def rate(self) -> float:
        """Jobs a second that were really enqueued."""
        at, jobs = self.sent[-1]
        return round(jobs / (at - self.began), 1)

    def claim_times(self) -> list[dict[str, float]]:
        """Claims of each minute: how many, how many of them empty, and milliseconds."""
        told = []
        for number in range(self.minutes):
            starts = self.began + number * self.minute_s
            found = [claim for claim in self.claims if 0 <= claim[0] - starts < self.minute_s]
            times = sorted(took_s * 1000 for _, took_s, _ in found) or [0.0]
            empty = sum(not jobs for _, _, jobs in found)
            told.append(
                {"claims": len(found), "empty": empty, "p50": share(times, 0.5), "p99": share(times, 0.99)}
            )
        return told

    def backlog_s(self) -> list[float]:
        """The most of each minute in seconds of load: jobs enqueued that had not begun to run."""
        most = [0.0] * self.minutes
        before = self._runs_at(self.began)
        for at, sent in self.sent:
            minute = min(int((at - self.began) / self.minute_s), self.minutes - 1)
            waiting = sent - (self._runs_at(at) - before)
            most[minute] = max(most[minute], round(waiting / RATE, 2))
        return most

    def _runs_at(self, moment: float) -> float:
        for (at, before), (then, after) in zip(self.runs, self.runs[1:], strict=False):
            if at <= moment <= then:
                return before + (after - before) * (moment - at) / (then - at)
        return self.runs[-1][1]


def share(ordered: Sequence[float], part: float) -> float:
    """The value below which *part* of them lie."""
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * part))], 3)


async def run(*, rounds: int, quick: bool, peers: bool = True, seconds: float | None = None) -> list[Row]:
    """All rows. It is one long run: *rounds* says nothing here."""
    load_s = seconds or (QUICK_S if quick else LOAD_S)
    seen: dict[str, Run] = {}
    skipped: dict[str, str] = {}
    with server() as url:
        for name, module in SIDES.items():
            if name == "fairlead":
                seen[name] = await _run(url, module, load_s)
            elif peers:
                try:
                    seen[name] = await _run(url, module, load_s)
                except (Skipped, SideFailed) as error:
                    skipped[name] = str(error)
    return _rows(seen, skipped, load_s)


# ---- one side ----------------------------------------------------------------------------------


async def _run(server_url: str, module: str, load_s: float) -> Run:
    minutes = max(4, round(load_s / 60.0))
    seen = Run(minutes, minute_s=load_s / minutes)
    async with fresh_database(server_url, "bench") as url:
        open_sql = (await ask(module, "prepare", url, START_S))["open_sql"]
        async with started(module, "serve", url) as worker, connected(url) as observer:
            await worker.line()
            await ask(module, "enqueue", url, START_S, singles=RATE // 10, bulk=RATE)  # it is warm before
            await _drained(observer, open_sql, START_S)
            async with connected(url) as holder:
                await holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
                await holder.fetchval(SNAPSHOT)
                async with started(module, "load", url, rate=RATE) as load:
                    await _loaded(load, worker, observer, seen)
                    seen.left = await observer.fetchval(open_sql)
                    load.stop()
                    while "at" in await load.line():
                        pass
            seen.drained_s = await _drained(observer, open_sql, DRAIN_S)
            worker.stop()
            while "claims" not in (told := await worker.line()):
                pass
            seen.claims = told["claims"]
    return seen


async def _loaded(load: Child, worker: Child, observer: Any, seen: Run) -> None:
    """Let the load last, and note what both processes and the database tell meanwhile."""
    seen.began = (await load.line())["at"]
    noting = [
        asyncio.create_task(_note(worker, "runs", seen.runs)),
        asyncio.create_task(_note(load, "sent", seen.sent)),
    ]
    try:
        for minute in range(seen.minutes):
            ends = seen.began + (minute + 1) * seen.minute_s
            limit_s = ends - time.perf_counter()
            done, _ = await asyncio.wait(noting, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            for task in done:  # only a child that died ends its notes
                task.result()
            seen.dead.append({row["relname"]: row["n_dead_tup"] for row in await observer.fetch(DEAD)})
    finally:
        for task in noting:
            task.cancel()
        await asyncio.wait(noting)


async def _note(child: Child, what: str, told: list[tuple[float, int]]) -> None:
    while True:
        line = await child.line()
        told.append((line["at"], line[what]))


async def _drained(observer: Any, open_sql: str, limit_s: float) -> float:
    """Seconds until nothing is open, at most *limit_s*."""
    began = time.perf_counter()
    while await observer.fetchval(open_sql):
        if time.perf_counter() - began > limit_s:
            return limit_s
        await asyncio.sleep(0.05)
    return time.perf_counter() - began


# ---- rows --------------------------------------------------------------------------------------


def _rows(seen: Mapping[str, Run], skipped: Mapping[str, str], load_s: float) -> list[Row]:
    ours = seen["fairlead"]
    claims = ours.claim_times()
    peers = {name: each for name, each in seen.items() if each is not ours}
    run = {
        "seconds": load_s,
        "rate": {name: each.rate for name, each in seen.items()},
        "minute_s": round(ours.minute_s, 3),
        "skipped": skipped,
    }

    def beside(of: Callable[[Run], object]) -> dict[str, object]:
        return {name: of(each) for name, each in peers.items()}

    return [
        Row(
            bench="bloat.claim_p99",
            ours=claims[-1]["p99"],
            unit="ms",
            n=1,
            limit=claims[0]["p99"],
            goal={"ratio_limit": 2.0},
            at_most=True,
            more={"minutes": claims, "beside": beside(lambda each: each.claim_times()), **run},
        ),
        Row(
            bench="bloat.backlog",
            ours=ours.left / RATE,
            unit="s of load",
            n=1,
            goal={"ours": 1.0},
            at_most=True,
            more={
                "minutes": ours.backlog_s(),
                "beside": beside(lambda each: {"end": each.left / RATE, "minutes": each.backlog_s()}),
            },
        ),
        Row(
            bench="bloat.drained",
            ours=ours.drained_s,
            unit="s",
            n=1,
            goal={"ours": DRAINED_S},
            at_most=True,
            more={"beside": beside(lambda each: round(each.drained_s, 2))},
        ),
        Row(
            bench="bloat.dead",
            ours=max(ours.dead[-1].values(), default=0),
            unit="rows",
            n=1,
            more={"minutes": ours.dead, "beside": beside(lambda each: each.dead)},
        ),
    ]
