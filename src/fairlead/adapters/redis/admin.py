"""Changes by hand to what the scripts keep: each by a script of its own, so that it is one step (G12)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairlead._core.secret import Secret
from fairlead.adapters.redis.admin_client import Servers, asking, pages, told, unlink
from fairlead.adapters.redis.scripts import script
from fairlead.policy.limits.breaker import Mode
from fairlead.policy.limits.key import KeyKind, Keyspace, Part
from fairlead.policy.limits.limit import MICRO, Plan

TIMEOUT_S = 5.0
PAGE = 1000
"""Keys that are looked at, and deleted, in one step: about a millisecond of the server."""


class RedisAdmin:
    """See the port. *lease_s*: the longest lease of a slot. *pinned_us* sets the clock for tests."""

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
        async with asking(self._url, timeout_s=TIMEOUT_S) as servers:
            return Mode(await servers.of(cell).eval(text, 1, cell, name, int(dry_run), self.pinned_us))

    async def promote(self, plan: Plan, lease_id: int, *, dry_run: bool = False) -> bool:
        if plan.pool is None:
            return False
        base = self._keys.key(KeyKind.POOL, plan.domain, plan.pool.key)
        lines = [f"{base}{Part.LINE}{number}" for number in range(1, plan.pool.classes + 1)]
        keys = (base + Part.ALIVE, *lines)
        args = (f"{lease_id:016x}", round(plan.pool.max_wait_s * MICRO), int(dry_run))
        text = script("line_promote").text
        async with asking(self._url, timeout_s=TIMEOUT_S) as servers:
            return bool(await servers.of(base).eval(text, len(keys), *keys, *args))

    async def clear(self, *, dry_run: bool = False) -> int:
        count = 0
        async with asking(self._url, timeout_s=TIMEOUT_S) as servers:
            for client in servers.each.values():
                async for page in pages(client, self._keys.prefix, PAGE):
                    count += await self._forget(client, self._by_marker(servers, page), dry_run=dry_run)
        return count

    def _by_marker(self, servers: Servers, page: Sequence[bytes]) -> dict[str | None, list[bytes]]:
        """Keys by what vouches for them, which itself stays: one marker, or in a cluster one a domain.

        None: what belongs to no domain. In a cluster that are markers of servers, too; they vouch only for
        domains that have no marker yet.
        """
        found: dict[str | None, list[bytes]] = {}
        for raw in page:
            key = told(raw)
            marker = self._keys.marker_of(key) if servers.in_cluster else self._keys.marker
            vouched = found.setdefault(marker, [])
            if key != marker:
                vouched.append(raw)
        return found

    async def _forget(self, client: Any, found: dict[str | None, list[bytes]], *, dry_run: bool) -> int:
        if dry_run or not found:
            return sum(map(len, found.values()))
        gone = await unlink(client, found.pop(None, ()))
        # What is deleted, and the word that it was, are one step: nobody takes what is missing for new, and
        # for full, or for free.
        sha = await client.script_load(script("forget").text)
        async with client.pipeline(transaction=False) as pipe:
            for marker, keys in found.items():
                args = (round(self._lease_s * MICRO), self.pinned_us)
                pipe.evalsha(sha, 1 + len(keys), marker, *keys, *args)
            counts: list[int] = await pipe.execute()
        return gone + sum(counts)
