"""A cluster of Valkeys (or Redis 6.2) of the test's own: primaries, and a replica of each where asked for."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from redis import Redis

from fairlead.adapters.redis.cluster import HASH_SLOTS
from tests.faults.support.valkey import OwnValkey, own_valkey

PATIENCE_S = 30.0
SETTINGS = {"cluster-enabled": "yes", "cluster-node-timeout": "1000", "cluster-allow-replica-migration": "no"}


class OwnCluster:
    """Made by `own_cluster`. The first *primaries* of *servers* began with the slots."""

    def __init__(self, servers: list[OwnValkey], primaries: int) -> None:
        self.servers = servers
        self.primaries = servers[:primaries]
        self.replicas = servers[primaries:]

    @property
    def url(self) -> str:
        """Of one of them: it tells of the others."""
        return self.servers[0].url

    def owner(self, slot: int) -> OwnValkey:
        """The primary that began with *slot*."""
        return self.primaries[slot // self._share]

    def replica_of(self, primary: OwnValkey) -> OwnValkey:
        """The one that began as its replica."""
        return self.replicas[self.primaries.index(primary)]

    @property
    def _share(self) -> int:
        return -(-HASH_SLOTS // len(self.primaries))

    def form(self) -> None:
        """Return when every server sees the whole."""
        with ExitStack() as stack:
            self._form([stack.enter_context(Redis(port=server.port)) for server in self.servers])

    def _form(self, clients: Sequence[Redis]) -> None:
        share = self._share
        for number, client in enumerate(clients):
            if number < len(self.primaries):
                last = min(HASH_SLOTS, (number + 1) * share) - 1
                client.execute_command("CLUSTER", "ADDSLOTS", *range(number * share, last + 1))
            for other in self.servers:
                client.execute_command("CLUSTER", "MEET", "127.0.0.1", other.port)
        until_s = time.monotonic() + PATIENCE_S
        while not all(_sees(client, len(clients)) for client in clients):
            assert time.monotonic() < until_s, self.servers[0].words()
            time.sleep(0.02)
        for number, client in enumerate(clients[len(self.primaries) :]):
            client.execute_command("CLUSTER", "REPLICATE", _id(clients[number]))
        while not all(_is_in_step(client) for client in clients[len(self.primaries) :]):
            assert time.monotonic() < until_s, self.servers[-1].words()
            time.sleep(0.02)


def _id(client: Redis) -> str:
    node_id = client.execute_command("CLUSTER", "MYID")
    return node_id.decode() if isinstance(node_id, bytes) else str(node_id)


def _sees(client: Redis, count: int) -> bool:
    info = client.execute_command("CLUSTER", "INFO")
    text = info if isinstance(info, dict) else dict(line.split(":") for line in info.decode().split())
    return text["cluster_state"] == "ok" and int(text["cluster_known_nodes"]) == count


def _is_in_step(client: Redis) -> bool:
    return client.info("replication").get("master_link_status") == "up"


@contextmanager
def own_cluster(
    primaries: int = 3,
    *,
    replicas: bool = False,
    settings: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    program: Path | None = None,
) -> Iterator[OwnCluster]:
    """One, formed; killed at the end."""
    of_each = SETTINGS | dict(settings or {})
    if program is not None:
        del of_each["cluster-allow-replica-migration"]  # from Redis 7 on
    with ExitStack() as stack:
        count = primaries * (2 if replicas else 1)
        servers = [stack.enter_context(own_valkey(of_each, env=env, program=program)) for _ in range(count)]
        cluster = OwnCluster(servers, primaries)
        cluster.form()
        yield cluster
