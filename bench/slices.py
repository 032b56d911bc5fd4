"""A benchmark that measures one slice at a time: ``python -m bench.slices NAME CONNECTIONS``.

It opens its servers, prints that it is ready, and measures a slice for each number of seconds on its standard
input, with which it ends. `bench.compare` runs two of them in turns.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from bench import our_call, our_gate
from bench.databases import servers
from bench.refresh import measure
from bench.refresh_world import opened, safe
from bench.sides import started
from fairlead import Fairlead, JobContext, JobRequest

Once = Callable[[int], Awaitable[object]]
BATCH = 100
"""Jobs that are enqueued together."""


@asynccontextmanager
async def refreshes(policy: str, connections: int) -> AsyncIterator[Once]:
    """Yield a function that refreshes one of *connections* under a replay policy."""
    with servers() as endpoints, tempfile.TemporaryDirectory(prefix="fl-bench-", dir="/tmp") as top:
        async with opened(endpoints, Path(top), connections) as world:
            yield lambda number: safe(world, policy, number)


@asynccontextmanager
async def calls(connections: int) -> AsyncIterator[Once]:
    """Yield a function that makes one call for one of as many tenants."""
    async with started("api", "serve", "", program="bench.call_server") as server:
        api_url = (await server.line())["url"]
        with servers() as endpoints:
            urls = {"api_url": api_url, "database_url": endpoints.database_url}
            async with our_call.opened(endpoints.redis_url, {**urls, "keys": connections}) as call:
                yield call


@asynccontextmanager
async def admitter(connections: int) -> AsyncIterator[Once]:
    """Yield a function that admits one call of one of as many tenants, and ends it."""
    with servers() as endpoints:
        async with our_gate.opened(endpoints.redis_url, {"plan": "pair", "keys": connections}) as decide:
            yield decide


@asynccontextmanager
async def jobs(connections: int) -> AsyncIterator[Once]:
    """Yield a function that enqueues a batch of jobs for one of as many tenants and waits for their runs."""
    remaining: dict[int, int] = {}
    run: dict[int, asyncio.Event] = {}

    def declare(fl: Fairlead) -> None:
        @fl.job("noop")
        async def noop(_context: JobContext, batch: int) -> None:
            remaining[batch] -= 1
            if not remaining[batch]:
                run[batch].set()

    with servers() as endpoints, tempfile.TemporaryDirectory(prefix="fl-bench-", dir="/tmp") as top:
        async with opened(endpoints, Path(top), 1, declare=declare) as world:
            working = asyncio.create_task(world.fl.run())

            async def batch(number: int) -> None:
                remaining[number], run[number] = BATCH, asyncio.Event()
                request = JobRequest("noop", {"batch": number}, tenant=f"tenant {number % connections}")
                await world.fl.enqueue_many([request] * BATCH)
                await run[number].wait()

            yield batch
            world.fl.stop()
            await working


SLICES: Mapping[str, Callable[[int], AbstractAsyncContextManager[Once]]] = {
    "refresh": lambda connections: refreshes("strict", connections),
    "refresh.kept": lambda connections: refreshes("stable", connections),
    "call": calls,
    "queue": jobs,
    "gate": admitter,
}
"""Each yields a function that makes one operation for one of this many connections."""
COUNTED_AS: Mapping[str, int] = {"queue": BATCH}
"""How many operations one call counts as; default 1."""


async def _serve(name: str, connections: int) -> None:
    loop, counted_as = asyncio.get_running_loop(), COUNTED_AS.get(name, 1)
    async with SLICES[name](connections) as once:
        print(json.dumps({"ready": True}), flush=True)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            rate, cpu_ms = await measure(once, connections, float(line))
            figures = {"per_s": rate * counted_as, "cpu_ms": cpu_ms / counted_as}
            print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], int(sys.argv[2])))
