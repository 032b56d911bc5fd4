"""limits: a strategy on its async Redis storage, as in its quickstart for asyncio.

``options["strategy"]`` is one of three; it has no token bucket. ``options["client"]`` is the client library:
redis-py, or coredis, its default.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from limits import RateLimitItemPerSecond
from limits.aio.storage import RedisStorage
from limits.aio.strategies import (
    FixedWindowRateLimiter,
    MovingWindowRateLimiter,
    SlidingWindowCounterRateLimiter,
)
from limits.errors import ConfigurationError

from bench.gate_sides import PLENTY, Decide, must
from bench.sides import SkippedError

PACKAGE = "limits"
SETTINGS: Mapping[str, Any] = {"max_connections": "as many as tasks"}
STRATEGIES = {
    "moving": MovingWindowRateLimiter,
    "sliding": SlidingWindowCounterRateLimiter,
    "fixed": FixedWindowRateLimiter,
}


@asynccontextmanager
async def opened(url: str, options: Mapping[str, Any]) -> AsyncIterator[Decide]:
    """Yield a function that decides through one limiter, with the keys as identifiers."""
    scheme, address = url.split("://")
    kind = {"unix": "redis+unix"}.get(scheme, scheme)
    try:
        storage = RedisStorage(
            f"async+{kind}://{address}", implementation=options["client"], max_connections=options["tasks"]
        )
    except ConfigurationError as error:
        raise SkippedError(str(error)) from None
    limiter = STRATEGIES[options["strategy"]](storage)
    item = RateLimitItemPerSecond(PLENTY)

    async def decide(number: int) -> float:
        must(await limiter.hit(item, f"tenant-{number}"), PACKAGE)
        return time.perf_counter()

    yield decide
