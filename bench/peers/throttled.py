"""throttled-py: ``Throttled.limit`` on its async Redis store. ``options["using"]`` names the algorithm."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from throttled.asyncio import Throttled, rate_limiter
from throttled.asyncio.store import RedisStore

from bench.gate_sides import PLENTY, Decide, must

PACKAGE = "throttled-py"
SETTINGS: Mapping[str, Any] = {"max_connections": "as many as tasks"}


@asynccontextmanager
async def opened(url: str, options: Mapping[str, Any]) -> AsyncIterator[Decide]:
    """Yield a function that decides through one throttle for all keys."""
    pool = {"max_connections": options["tasks"]}
    throttle = Throttled(
        using=options["using"],
        quota=rate_limiter.per_sec(PLENTY, burst=PLENTY),
        store=RedisStore(server=url, options={"CONNECTION_POOL_KWARGS": pool}),
    )

    async def decide(number: int) -> float:
        must(not (await throttle.limit(f"tenant-{number}")).limited, PACKAGE)
        return time.perf_counter()

    yield decide
