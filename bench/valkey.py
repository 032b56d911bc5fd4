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
    """A connection."""
    client = Redis.from_url(url)
    try:
        yield client
    finally:
        await client.aclose()


@asynccontextmanager
async def apart(url: str) -> AsyncIterator[None]:
    """For the block one core is the server's alone; the others are this process's and what it starts.

    A server elsewhere never waits for our core. Beside us the kernel likes to wake it where whoever asks it
    runs, and it has to wait there for milliseconds while another core is idle. Without two cores, or where
    nobody can choose them, they share what there is.
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
    """Leave nothing of the past for the next measurement: no keys, no scripts, a new append-only file.

    With a new file, what one measurement writes stays below the size at which the server begins to write it
    anew by itself: that would fall on whoever is measured then.
    """
    async with connected(url) as client:
        await client.execute_command("FLUSHALL", "SYNC")  # else it is freed beside the next measurement
        await client.script_flush()
    await rewrite(url)


async def rewrite(url: str) -> None:
    """A new append-only file now, and nothing under way: a fork makes every first write to a page slow."""
    async with connected(url) as client:
        await _rewritten(client)  # one that the server began by itself
        await client.bgrewriteaof()
        await _rewritten(client)


async def _rewritten(client: Redis) -> None:
    while True:
        told: dict[str, Any] = await client.info("persistence")
        if not told["aof_rewrite_in_progress"] and not told["aof_rewrite_scheduled"]:
            return
        await asyncio.sleep(LOOK_S)
