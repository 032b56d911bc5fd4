"""Measures a Redis server for `fairlead doctor`: round trips, clock, scripts and memory."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fairlead._core.secret import Secret
from fairlead.adapters.redis.admin_client import admin_clients, text_of
from fairlead.adapters.redis.cluster import HASH_SLOTS
from fairlead.adapters.redis.scripts import script, script_names


@dataclass(frozen=True, slots=True)
class ClusterState:
    """A cluster as one of its servers reports it. *slots*: how many of the 16,384 have an owner."""

    state: str
    slots: int

    @property
    def is_whole(self) -> bool:
        """Whether every hash slot has an owner."""
        return self.state == "ok" and self.slots == HASH_SLOTS


@dataclass(frozen=True, slots=True)
class RedisProbe:
    """One measurement. *clock_at* is the server's time when ours was *read_at*, within *doubt_s*."""

    cluster: ClusterState | None
    scripts: Mapping[str, bool]
    """Whether the server has each of our scripts; a missing one is loaded at its first call."""
    appended: bool
    """Whether its last write to the append-only file succeeded; True without such a file."""
    used_bytes: int
    max_bytes: int
    pings_s: tuple[float, ...]
    clock_at: float
    read_at: float
    doubt_s: float


async def probe_redis(url: Secret, pings: int = 100) -> dict[str, RedisProbe]:
    """Measure every primary, with *pings* round trips each; return the results by address.

    Raises:
        InvalidConfigError: *url* is not a Redis URL.
        LimiterUnavailableError: A server does not respond.
    """
    async with admin_clients(url) as servers:
        return {
            name: await _probe(client, servers.in_cluster, pings) for name, client in servers.clients.items()
        }


async def _probe(client: Any, in_cluster: bool, pings: int) -> RedisProbe:
    info = await client.info("all")
    cluster = await _cluster(client) if in_cluster else None
    times = [await _ping_s(client) for _ in range(pings)]
    read_at = time.time()
    seconds, micros = await client.time()
    response_at = time.time()
    names = script_names()
    loaded = await client.script_exists(*(script(name).sha for name in names))
    return RedisProbe(
        cluster=cluster,
        scripts=dict(zip(names, map(bool, loaded), strict=True)),
        appended=info.get("aof_last_write_status", "ok") == "ok",
        used_bytes=int(info.get("used_memory", 0)),
        max_bytes=int(info.get("maxmemory", 0)),
        pings_s=tuple(times),
        clock_at=seconds + micros / 1e6,
        read_at=(read_at + response_at) / 2,
        doubt_s=(response_at - read_at) / 2,
    )


async def _cluster(client: Any) -> ClusterState:
    lines = text_of(await client.execute_command("CLUSTER", "INFO")).split()
    fields = dict(line.split(":", 1) for line in lines)
    return ClusterState(fields.get("cluster_state", "unknown"), int(fields.get("cluster_slots_assigned", 0)))


async def _ping_s(client: Any) -> float:
    start_mono = time.monotonic()
    await client.ping()
    return time.monotonic() - start_mono
