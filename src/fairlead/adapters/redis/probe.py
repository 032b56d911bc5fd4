"""What one learns of a Redis by using it: how fast it answers, what time it has, what it runs as."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fairlead._core.secret import Secret
from fairlead.adapters.redis.admin_client import asking, told
from fairlead.adapters.redis.cluster import SLOTS
from fairlead.adapters.redis.scripts import script, script_names


@dataclass(frozen=True, slots=True)
class ClusterState:
    """What one of its servers says of a cluster. *slots*: how many have a server, of 16,384."""

    state: str
    slots: int

    @property
    def is_whole(self) -> bool:
        """Whether every key has a place."""
        return self.state == "ok" and self.slots == SLOTS


@dataclass(frozen=True, slots=True)
class RedisProbe:
    """One look. *clock_s* is the server's time of day when ours was *asked_s*, give or take *doubt_s*."""

    cluster: ClusterState | None
    scripts: Mapping[str, bool]
    """Whether it has each of ours; what it lacks it is given at the first call."""
    appended: bool
    """Whether its last write to the append-only file was done; True without such a file."""
    used_bytes: int
    max_bytes: int
    pings_s: tuple[float, ...]
    clock_s: float
    asked_s: float
    doubt_s: float


async def probe_redis(url: Secret, pings: int = 100) -> dict[str, RedisProbe]:
    """Ask every primary a few things and *pings* times nothing; by address.

    LimiterUnavailableError, InvalidConfigError.
    """
    async with asking(url) as servers:
        return {
            name: await _probe(client, servers.in_cluster, pings) for name, client in servers.each.items()
        }


async def _probe(client: Any, in_cluster: bool, pings: int) -> RedisProbe:
    info = await client.info("all")
    cluster = await _cluster(client) if in_cluster else None
    times = [await _ping_s(client) for _ in range(pings)]
    asked_s = time.time()
    seconds, micros = await client.time()
    answered_s = time.time()
    names = script_names()
    known = await client.script_exists(*(script(name).sha for name in names))
    return RedisProbe(
        cluster=cluster,
        scripts=dict(zip(names, map(bool, known), strict=True)),
        appended=info.get("aof_last_write_status", "ok") == "ok",
        used_bytes=int(info.get("used_memory", 0)),
        max_bytes=int(info.get("maxmemory", 0)),
        pings_s=tuple(times),
        clock_s=seconds + micros / 1e6,
        asked_s=(asked_s + answered_s) / 2,
        doubt_s=(answered_s - asked_s) / 2,
    )


async def _cluster(client: Any) -> ClusterState:
    lines = told(await client.execute_command("CLUSTER", "INFO")).split()
    found = dict(line.split(":", 1) for line in lines)
    return ClusterState(found.get("cluster_state", "unknown"), int(found.get("cluster_slots_assigned", 0)))


async def _ping_s(client: Any) -> float:
    began_s = time.monotonic()
    await client.ping()
    return time.monotonic() - began_s
