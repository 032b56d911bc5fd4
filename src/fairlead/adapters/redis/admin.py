"""The operator's changes of the stored state, each atomic in a script of its own. Spec: G12."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairlead._core.secret import Secret
from fairlead.adapters.redis.admin_client import Servers, admin_clients, pages, text_of, unlink
from fairlead.adapters.redis.scripts import script
from fairlead.policy.limits.breaker import Mode
from fairlead.policy.limits.key import KeyKind, Keyspace, Part
from fairlead.policy.limits.limit import MICRO, Plan

TIMEOUT_S = 5.0
PAGE = 1000
"""Keys read and deleted in one step: about a millisecond of the server's time."""


class RedisAdmin:
    """The GateOperator port on Redis.

    Args:
        lease_s: The longest lease of a slot.
        pinned_us: The time to use, for tests; 0: the server's clock.
    """

    def __init__(self, url: Secret, keys: Keyspace, *, lease_s: float = 30.0, pinned_us: int = 0) -> None:
        self._url = url
        self._keys = keys
        self._lease_s = lease_s
        self.pinned_us = pinned_us

    async def reset_breaker(self, plan: Plan, *, dry_run: bool = False) -> Mode:
        if plan.breaker is None:
            return Mode.CLOSED
        cell = self._keys.key(KeyKind.CELL, plan.domain)
        name = Keyspace.field("k", plan.breaker.key)
        text = script("breaker_reset").text
        async with admin_clients(self._url, timeout_s=TIMEOUT_S) as servers:
            return Mode(
                await servers.client_for(cell).eval(text, 1, cell, name, int(dry_run), self.pinned_us)
            )

    async def promote(self, plan: Plan, lease_id: int, *, dry_run: bool = False) -> bool:
        if plan.pool is None:
            return False
        base = self._keys.key(KeyKind.POOL, plan.domain, plan.pool.key)
        lines = [f"{base}{Part.LINE}{number}" for number in range(1, plan.pool.classes + 1)]
        keys = (base + Part.ALIVE, *lines)
        args = (f"{lease_id:016x}", round(plan.pool.max_wait_s * MICRO), int(dry_run))
        text = script("queue_promote").text
        async with admin_clients(self._url, timeout_s=TIMEOUT_S) as servers:
            return bool(await servers.client_for(base).eval(text, len(keys), *keys, *args))

    async def clear(self, *, dry_run: bool = False) -> int:
        count = 0
        async with admin_clients(self._url, timeout_s=TIMEOUT_S) as servers:
            for client in servers.clients.values():
                async for page in pages(client, self._keys.prefix, PAGE):
                    count += await self._forget(client, self._by_marker(servers, page), dry_run=dry_run)
        return count

    def _by_marker(self, servers: Servers, page: Sequence[bytes]) -> dict[str | None, list[bytes]]:
        """Group keys by the marker that covers them, which is not deleted.

        There is one marker, or one per domain in a cluster.

        Keys of no domain are under None. In a cluster these include the markers of servers, which cover only
        domains without a marker of their own.
        """
        groups: dict[str | None, list[bytes]] = {}
        for raw in page:
            key = text_of(raw)
            marker = self._keys.marker_of(key) if servers.in_cluster else self._keys.marker
            covered = groups.setdefault(marker, [])
            if key != marker:
                covered.append(raw)
        return groups

    async def _forget(self, client: Any, groups: dict[str | None, list[bytes]], *, dry_run: bool) -> int:
        if dry_run or not groups:
            return sum(map(len, groups.values()))
        deleted = await unlink(client, groups.pop(None, ()))
        # The deletion and the change of the marker are one step. Otherwise a process could take missing
        # state for new: buckets for full, and slots for free.
        sha = await client.script_load(script("forget").text)
        async with client.pipeline(transaction=False) as pipe:
            for marker, keys in groups.items():
                args = (round(self._lease_s * MICRO), self.pinned_us)
                pipe.evalsha(sha, 1 + len(keys), marker, *keys, *args)
            counts: list[int] = await pipe.execute()
        return deleted + sum(counts)
