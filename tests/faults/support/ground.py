"""The servers that the gate's experiments run on: the newest and the oldest, alone and in a cluster.

FAIRLEAD_FAULTS_ON says which (default valkey). What is done to a server is done to the one that has the keys
of the experiment; in a cluster that is one primary of three, and an experiment's address leads to it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from fairlead.adapters.redis.cluster import hash_slot_of
from fairlead.policy.limits.key import KeyKind, Keyspace
from tests.faults.support.caller import DOMAIN, PREFIX
from tests.faults.support.cluster import OwnCluster, own_cluster
from tests.faults.support.redispair import Pair, pair
from tests.faults.support.report import Figures
from tests.faults.support.valkey import OwnValkey, oldest_redis, own_valkey

VALKEY = "valkey"
KINDS = (VALKEY, "redis62", "cluster", "redis62_cluster")
ON = os.environ.get("FAIRLEAD_FAULTS_ON", VALKEY)
assert ON in KINDS, f"FAIRLEAD_FAULTS_ON is none of {', '.join(KINDS)}"
CLUSTERED = ON.endswith("cluster")
SLOT = hash_slot_of(Keyspace(PREFIX).key(KeyKind.CELL, DOMAIN).encode())

one_server = pytest.mark.skipif(
    CLUSTERED, reason="all goes over one wire here, and members of a cluster are met at their own addresses"
)

smoke_elsewhere = pytest.mark.parametrize(
    "on",
    [
        pytest.param(on, marks=pytest.mark.skipif(ON != VALKEY, reason=f"all runs on {ON}"))
        for on in KINDS[1:3]
    ],
)
"""A few seconds of an experiment on the oldest server and on a cluster, while all runs on the newest."""


@contextmanager
def own_ground(
    figures: Figures,
    settings: Mapping[str, str] | None = None,
    *,
    env: Mapping[str, str] | None = None,
    on: str = ON,
) -> Iterator[OwnValkey]:
    """The server with the experiment's keys, alone or among others; *figures* tell which it is."""
    figures.note(on=on)
    program = _program(on)
    if not on.endswith("cluster"):
        with own_valkey(settings, env=env, program=program) as server:
            yield server
        return
    with own_cluster(settings=settings, env=env, program=program) as cluster:
        yield cluster.owner(SLOT)


def _program(on: str) -> Path | None:
    return oldest_redis() if on.startswith("redis62") else None


# ---- fail-over -----------------------------------------------------------------------------------


class ClusterPair:
    """The primary that has the experiment's keys, and its replica: whoever is left of them leads.

    As `Pair`, but that the cluster itself finds out, takes its time, and copies as fast as it can.
    """

    def __init__(self, cluster: OwnCluster) -> None:
        self._cluster = cluster
        self.leader = cluster.owner(SLOT)
        self.follower = cluster.replica_of(self.leader)
        self.url = cluster.servers[1].url if cluster.servers[0] is self.leader else cluster.url

    async def fail_over(self, _down_s: float, *, behind: bool) -> None:
        """The leader dies; return once the other leads."""
        self.leader.kill()
        await self._until(self.follower, "master")
        self.leader, self.follower = self.follower, self.leader

    async def pair_again(self) -> None:
        """The dead one comes back, and follows."""
        self.follower.start()
        await self._until(self.follower, "slave", master_link_status="up")

    @staticmethod
    async def _until(server: OwnValkey, role: str, **state: str) -> None:
        until_s = time.monotonic() + 30.0
        while True:
            info = await server.tell("INFO", "replication")
            if info["role"] == role and state.items() <= info.items():
                return
            assert time.monotonic() < until_s, server.words()
            await asyncio.sleep(0.02)


@asynccontextmanager
async def own_pair(figures: Figures) -> AsyncIterator[Pair | ClusterPair]:
    """A server and who takes over from it."""
    figures.note(on=ON)
    if CLUSTERED:
        with own_cluster(replicas=True, program=_program(ON)) as cluster:
            yield ClusterPair(cluster)
        return
    async with pair(_program(ON)) as made_pair:
        yield made_pair
