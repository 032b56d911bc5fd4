"""One side of the gate's benchmark in its own process: ``python -m bench.gate_child MODULE ACT URL OPTIONS``.

The benchmark of calls uses it too; there a decision is a call.

rate     many tasks in closed loops: decisions per second
serial   one task: the time of a decision
herd     all tasks at once, once each: the time of a decision, from the start of the first one
arrive   an open loop of evenly spaced arrivals: the time of a decision, from when it was due
flood    the server alone, by the module's own raw clients (``bench.limits.gate_script``)
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from importlib import metadata
from typing import Any

from bench.gate_sides import Decide, GateSide
from bench.sides import SkippedError

WARM_UP = 50
LAP_S = 0.25
Options = Mapping[str, Any]


def say(**fields: Any) -> None:
    """Print one line for the benchmark."""
    print(json.dumps(fields), flush=True)


async def _rate(side: GateSide, url: str, options: Options) -> None:
    """Run *tasks* in closed loops for *for_s* seconds. Print decisions per second and CPU for each.

    A side that must clear admissions does so between laps, outside of the measurement.
    """
    async with side.opened(url, options) as decide:
        clear = getattr(decide, "clear", None)
        lap_s = min(options["for_s"], LAP_S) if clear else options["for_s"]
        await _lap(decide, options["tasks"], options["keys"], min(options["warm_s"], lap_s))
        done, took_s, cpu_s = 0, 0.0, 0.0
        while took_s < options["for_s"]:
            if clear is not None:
                await clear()
            gc.collect()
            cpu_before_s, start_mono = time.process_time(), time.perf_counter()
            done += await _lap(decide, options["tasks"], options["keys"], lap_s)
            took_s += time.perf_counter() - start_mono
            cpu_s += time.process_time() - cpu_before_s
    say(
        per_s=done / took_s,
        cpu_us=cpu_s / done * 1e6,
        version=metadata.version(side.PACKAGE) if side.PACKAGE else None,
        settings=dict(side.SETTINGS),
    )


async def _lap(decide: Decide, tasks: int, keys: int, for_s: float) -> int:
    """Run *tasks* for *for_s* seconds and return the number of decisions. Together they visit all keys."""
    stop_at, done = time.perf_counter() + for_s, 0

    async def loop(number: int) -> None:
        nonlocal done
        while time.perf_counter() < stop_at:
            await decide(number % keys)
            done += 1
            number += tasks

    async with asyncio.TaskGroup() as group:
        for number in range(tasks):
            group.create_task(loop(number))
    return done


async def _serial(side: GateSide, url: str, options: Options) -> None:
    answered, totals = [], []
    async with side.opened(url, options) as decide:
        for number in range(WARM_UP + options["count"]):
            start_mono = time.perf_counter()
            answered.append(await decide(number % options["keys"]) - start_mono)
            totals.append(time.perf_counter() - start_mono)
    say(
        p50_ms=_ms(answered[WARM_UP:], 50),
        p95_ms=_ms(answered[WARM_UP:], 95),
        whole_ms=_ms(totals[WARM_UP:], 50),
    )


async def _herd(side: GateSide, url: str, options: Options) -> None:
    """Start *tasks* at once, *herds* times, and print the percentiles of the median herd."""
    herds = []
    async with side.opened(url, options) as decide:
        await _lap(decide, options["tasks"], options["keys"], options["warm_s"])
        for _ in range(options["herds"]):
            gc.collect()
            start_mono = time.perf_counter()
            ends = await asyncio.gather(
                *(decide(number % options["keys"]) for number in range(options["tasks"]))
            )
            herds.append([end - start_mono for end in ends])
    say(**{f"p{part}_ms": statistics.median(_ms(herd, part) for herd in herds) for part in (50, 95, 99)})


async def _arrive(side: GateSide, url: str, options: Options) -> None:
    """Start *rate* decisions a second for *for_s* seconds. A late start of a busy process counts as waiting."""
    rate, took = options["rate"], []

    async def arrive(number: int, due: float) -> None:
        took.append(await decide(number % options["keys"]) - due)

    async with side.opened(url, options) as decide:
        await _lap(decide, options["tasks"], options["keys"], options["warm_s"])
        gc.collect()
        start_mono, sent = time.perf_counter(), 0
        async with asyncio.TaskGroup() as group:
            while sent < rate * options["for_s"]:
                while (due := start_mono + sent / rate) <= time.perf_counter():
                    group.create_task(arrive(sent, due))
                    sent += 1
                await asyncio.sleep(due - time.perf_counter())
    say(**{f"p{part}_ms": _ms(took, part) for part in (50, 95, 99)}, arrivals=len(took))


async def _flood(side: Any, url: str, options: Options) -> None:
    say(**await asyncio.to_thread(side.flood, url, options))


def _ms(times_s: Sequence[float], part: int) -> float:
    """Return the percentile *part* in milliseconds."""
    return statistics.quantiles(times_s, n=100)[part - 1] * 1000


ACTS: Mapping[str, Callable[[Any, str, Options], Coroutine[Any, Any, None]]] = {
    "rate": _rate,
    "serial": _serial,
    "herd": _herd,
    "arrive": _arrive,
    "flood": _flood,
}


def main(module: str, act: str, url: str, options: str) -> None:
    """Do one thing, then exit at once. All sides run on asyncio's loop, as in their documentation."""
    try:
        asyncio.run(ACTS[act](importlib.import_module(module), url, json.loads(options)))
    except ImportError as error:
        say(skipped=f"{error.name} is not installed")
    except SkippedError as error:
        say(skipped=str(error))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
