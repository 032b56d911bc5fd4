"""Changes by hand to what the scripts keep: each by a script of its own, so that it is one step (G12)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from fairlead.adapters.redis.link import unavailable
from fairlead.adapters.redis.scripts import script
from fairlead.policy.gate.breaker import Mode
from fairlead.policy.gate.key import KeyKind, Keyspace, Part
from fairlead.policy.gate.limit import MICRO, Plan
from fairlead.secret import Secret

TIMEOUT_S = 5.0
PAGE = 1000
"""Keys that are looked at, and deleted, in one step: about a millisecond of the server."""


class RedisOperator:
    """See the port. *pinned_us* sets the clock for tests."""

    def __init__(self, url: Secret, keys: Keyspace, *, pinned_us: int = 0) -> None:
        self._url = url
        self._keys = keys
        self.pinned_us = pinned_us

    async def reset_breaker(self, plan: Plan, *, dry_run: bool = False) -> Mode:
        """See the port."""
        if plan.breaker is None:
            return Mode.CLOSED
        cell = self._keys.key(KeyKind.CELL, plan.domain)
        name = Keyspace.field("k", plan.breaker.key)
        async with self._client() as client:
            text = script("breaker_reset").text
            return Mode(await client.eval(text, 1, cell, name, int(dry_run), self.pinned_us))

    async def promote(self, plan: Plan, lease_id: int, *, dry_run: bool = False) -> bool:
        """See the port."""
        if plan.pool is None:
            return False
        base = self._keys.key(KeyKind.POOL, plan.domain, plan.pool.key)
        lines = [f"{base}{Part.LINE}{number}" for number in range(1, plan.pool.classes + 1)]
        async with self._client() as client:
            keys = (base + Part.ALIVE, *lines)
            args = (f"{lease_id:016x}", round(plan.pool.promote_s * MICRO), int(dry_run))
            return bool(await client.eval(script("line_promote").text, len(keys), *keys, *args))

    async def clear(self, *, dry_run: bool = False) -> int:
        """See the port."""
        marker, count = self._keys.marker.encode(), 0
        async with self._client() as client:
            # Without the marker no slot is granted for a lease: so it goes first. And it goes last: a bucket
            # that calls used meanwhile, and that this takes away, is then not taken for full.
            count += 0 if dry_run else await client.unlink(marker)
            async for page in self._pages(client):
                count += len(page) if dry_run else await client.unlink(*page)
            if not dry_run:
                await client.unlink(marker)
        return count

    async def _pages(self, client: Any) -> AsyncIterator[list[bytes]]:
        """Our keys. The prefix ends in ':', and none of its characters means anything in a pattern."""
        prefix = self._keys.prefix.encode()
        cursor = 0
        while True:
            cursor, found = await client.scan(cursor, match=prefix + b"*", count=PAGE)
            if ours := [key for key in found if key.startswith(prefix)]:
                yield ours
            if not cursor:
                return

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[Any]:
        client = Redis.from_url(
            self._url.reveal(), socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S, protocol=2
        )
        try:
            yield client
        except (RedisError, OSError, TimeoutError) as error:
            raise unavailable(error) from None
        finally:
            await client.aclose()
