"""The limit of redis-py: ``INCRBY`` from many tasks, each on its own connection. It limits nothing."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from redis.asyncio import Redis

from bench.gate_sides import Decide

PACKAGE = "redis"
SETTINGS: Mapping[str, Any] = {}


@asynccontextmanager
async def opened(url: str, options: Mapping[str, Any]) -> AsyncIterator[Decide]:
    """Yield a function that increments, through a client with one connection for each task."""
    client = Redis.from_url(url, max_connections=options["tasks"])

    async def decide(number: int) -> float:
        await client.incrby(f"count:{number}", 1)
        return time.perf_counter()

    yield decide
    await client.aclose()
