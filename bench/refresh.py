"""The cost of a safe refresh: intent, SENT mark, journal and compare-and-set, over a bare POST and UPDATE.

Both sides are those of `bench.refresh_world`, with fsync on. They run in short slices in turns, so that a
machine that slows down slows both; a ratio is the median over pairs of neighbouring slices, with quartiles.
Beside it: CPU of the process per refresh, its memory, and what a scan of due connections reads at 10^3 and
10^6 rows.
"""

from __future__ import annotations

import asyncio
import resource
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench import journal_files
from bench.databases import servers
from bench.due import due_buffers
from bench.refresh_world import World, bare, opened, safe
from bench.report import Row, quartiles

PROVIDERS = {"refresh": "strict", "refresh.kept": "stable"}
"""Row and replay policy: under strict each request opens a connection, under stable it is kept."""
GOALS = {"refresh": 0.55, "refresh.kept": 0.5}
"""Least share of the bare loop's rate."""
CONCURRENCY = 100
SLICES = 12
"""Pairs of slices a round."""


@dataclass(slots=True)
class Side:
    """One way of refreshing: *once* takes a number of a connection."""

    once: Callable[[int], Awaitable[None]]
    rates: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)

    async def measure(self, connections: int, seconds: float, *, warm_up: bool) -> None:
        """Refresh for one slice of *seconds*, and record it unless it is a *warm_up*."""
        rate, cpu_ms = await measure(self.once, connections, seconds)
        if not warm_up:
            self.rates.append(rate)
            self.cpu_ms.append(cpu_ms)


async def run(*, rounds: int, quick: bool) -> list[Row]:
    """Measure and return all rows."""
    connections, seconds = (100, 0.25) if quick else (1_000, 0.5)
    with servers() as endpoints, tempfile.TemporaryDirectory(prefix="fl-bench-", dir="/tmp") as top:
        async with opened(endpoints, Path(top), connections) as world:
            rows = [await _compare(world, name, rounds, connections, seconds) for name in PROVIDERS]
        rows.append(_memory(rounds))
    for count in (100,) if quick else (1_000, 10_000):
        async with journal_files.opened_beside(count, connections) as world:
            row = await _compare(world, "refresh", rounds, connections, seconds)
            rows.append(replace(row, bench=f"refresh.files_{count}"))
    rows += await journal_files.start_rows(100 if quick else 10_000)
    small, large = await due_buffers(1_000, 10_000 if quick else 1_000_000)
    rows.append(
        Row(
            bench="refresh.scan_buffers",
            ours=large,
            unit="buffers",
            limit=small,
            goal={"ratio_limit": 1.5},
            at_most=True,
            n=1,
            more={"rows": [1_000, 10_000 if quick else 1_000_000]},
        )
    )
    return rows


async def _compare(world: World, name: str, rounds: int, connections: int, seconds: float) -> Row:
    policy = PROVIDERS[name]
    ours = Side(lambda number: safe(world, policy, number))
    limit = Side(lambda number: bare(world, policy, number))
    for turn in range(rounds * SLICES + 2):
        for side in (ours, limit)[:: -1 if turn % 2 else 1]:
            await side.measure(connections, seconds, warm_up=turn < 2)
    ratios = [rate / bare_rate for rate, bare_rate in zip(ours.rates, limit.rates, strict=True)]
    cpu_pairs = zip(ours.cpu_ms, limit.cpu_ms, strict=True)
    return Row(
        bench=name,
        ours=statistics.median(ours.rates),
        unit="refreshes/s",
        limit=statistics.median(limit.rates),
        paired_ratio=statistics.median(ratios),
        goal={"ratio_limit": GOALS[name]},
        aim={"ratio_limit": 0.6},
        n=len(ratios),
        more={
            "policy": policy,
            "ratio_quartiles": quartiles(ratios),
            "cpu_ratio": round(statistics.median(theirs / mine for mine, theirs in cpu_pairs), 3),
            "cpu_ms": round(statistics.median(ours.cpu_ms), 3),
            "cpu_ms_limit": round(statistics.median(limit.cpu_ms), 3),
        },
    )


async def measure(
    once: Callable[[int], Awaitable[object]], connections: int, seconds: float
) -> tuple[float, float]:
    """Return operations per second and CPU milliseconds of this process for one.

    A hundred loops call *once*, each with numbers of its own among *connections*.
    """
    stop_at = time.perf_counter() + seconds
    cpu, started, done = _cpu_s(), time.perf_counter(), 0

    async def loop(first: int) -> None:
        nonlocal done
        number = first
        while time.perf_counter() < stop_at:
            await once(number)
            done += 1
            number = (number + CONCURRENCY) % connections

    async with asyncio.TaskGroup() as group:
        for first in range(min(CONCURRENCY, connections)):
            group.create_task(loop(first))
    took = time.perf_counter() - started
    return done / took, (_cpu_s() - cpu) / done * 1000


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _memory(rounds: int) -> Row:
    used_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Row(bench="refresh.rss", ours=used_mb, unit="MiB", n=rounds)
