"""The Valkey of a benchmark: the embedded one with its default settings, append-only file and all."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from redis.asyncio import Redis

LOOK_S = 0.01


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Redis]:
    """Yield a connection."""
    client = Redis.from_url(url)
    try:
        yield client
    finally:
        await client.aclose()


@asynccontextmanager
async def pinned_cores(url: str) -> AsyncIterator[None]:
    """Pin the server to one core and this process and its children to the others, for the block.

    A remote server never waits for our core. On the same machine the kernel often wakes it on the core of its
    client, where it waits for milliseconds while another core is idle. With one core, or on a system without
    affinity, nothing is pinned.
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(cores) < 2:
        yield
        return
    async with connected(url) as client:
        server: int = (await client.info("server"))["process_id"]
    try:
        os.sched_setaffinity(server, cores[-1:])
        os.sched_setaffinity(0, cores[:-1])
        yield
    finally:
        os.sched_setaffinity(0, cores)
        os.sched_setaffinity(server, cores)


async def settle(url: str) -> None:
    """Remove keys and scripts and start a new append-only file, so that measurements do not affect each other.

    With a new file, one measurement stays below the size at which the server rewrites the file by itself.
    """
    async with connected(url) as client:
        await client.execute_command(
            "FLUSHALL", "SYNC"
        )  # otherwise the memory is freed during the next measurement
        await client.script_flush()
    await rewrite(url)


async def rewrite(url: str) -> None:
    """Rewrite the append-only file and wait for it, because a fork slows the first write to each page."""
    async with connected(url) as client:
        await _rewritten(client)  # a rewrite that the server started by itself
        await client.bgrewriteaof()
        await _rewritten(client)


async def _rewritten(client: Redis) -> None:
    while True:
        info: dict[str, Any] = await client.info("persistence")
        if not info["aof_rewrite_in_progress"] and not info["aof_rewrite_scheduled"]:
            return
        await asyncio.sleep(LOOK_S)
