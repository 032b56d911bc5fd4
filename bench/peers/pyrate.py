"""PyrateLimiter: ``try_acquire_async`` of a limiter that has a Redis bucket for each key.

``options["bucket"]`` is ``log`` (`RedisBucket`: the exact one) or ``state`` (`StateBucket` with GCRA, which
its README recommends for high volume). Its limiter holds a lock during the request, so more tasks make it
no faster.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from pyrate_limiter import (
    GCRA,
    AbstractBucket,
    BucketFactory,
    Duration,
    Limiter,
    Rate,
    RateItem,
    RedisBucket,
    RedisStateStore,
    StateBucket,
)
from redis.asyncio import Redis

from bench.gate_sides import PLENTY, Decide, must

PACKAGE = "pyrate-limiter"
SETTINGS: Mapping[str, Any] = {"max_connections": "as many as tasks"}


class _Buckets(BucketFactory):
    def __init__(self, buckets: Mapping[str, AbstractBucket]) -> None:
        self._buckets = buckets

    def wrap_item(self, name: str, weight: int = 1) -> RateItem:
        return RateItem(name, time.time_ns() // 1_000_000, weight=weight)

    def get(self, item: RateItem) -> AbstractBucket:
        return self._buckets[item.name]


@asynccontextmanager
async def opened(url: str, options: Mapping[str, Any]) -> AsyncIterator[Decide]:
    """Yield a function that decides through one limiter, with a bucket for each key."""
    client = Redis.from_url(url, max_connections=options["tasks"])
    rates = [Rate(PLENTY, Duration.SECOND)]
    buckets: dict[str, AbstractBucket] = {}
    for name in (f"tenant-{number}" for number in range(options["keys"])):
        if options["bucket"] == "log":
            buckets[name] = await RedisBucket.init(rates, client, name)
        else:
            buckets[name] = StateBucket(rates, algorithm=GCRA(), store=RedisStateStore(client, name))
    limiter = Limiter(_Buckets(buckets))

    async def decide(number: int) -> float:
        must(await limiter.try_acquire_async(f"tenant-{number}", blocking=False), PACKAGE)
        return time.perf_counter()

    yield decide
    await client.aclose()
