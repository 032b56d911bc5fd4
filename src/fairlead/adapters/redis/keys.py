"""Looks after the gate's keys: what there is, what it weighs, which leases stand (G9).

SCAN passes each server a page at a time, so calls of others come in between; of keys that have not our
prefix nothing but the name is seen. What moves to another server of a cluster meanwhile may be missed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fairlead._core.secret import Secret
from fairlead.adapters.redis.admin_client import MOVING, asking, pages, passing_over, told, unlink, who
from fairlead.adapters.redis.scripts import script
from fairlead.engine.ports import UNKNOWN_KIND, KeySurvey, KindUse, StoredLease
from fairlead.policy.limits.key import Keyspace
from fairlead.policy.limits.limit import MICRO

PAGE = 250
TIMEOUT_S = 10.0
MOST_TOLD = 1000
_FOR_EVER = -1
NEVER_US = 2.0**53
"""Ends beyond it are no times of ours, but numbers that somebody wrote."""


@dataclass(slots=True)
class _Kind:
    keys: int = 0
    no_ttl: int = 0
    weighed: int = 0
    size_bytes: int = 0
    refused: bool = False

    def use(self, kind: str) -> KindUse:
        size = round(self.size_bytes / self.weighed * self.keys) if self.weighed else 0
        return KindUse(kind, self.keys, None if self.refused else size, self.no_ttl)


@dataclass(slots=True)
class _Look:
    """What a survey is to find, and has found so far."""

    weighed: int
    leases: bool
    window_s: float
    kinds: dict[str, _Kind] = field(default_factory=dict)
    no_ttl: list[str] = field(default_factory=list)
    held: list[StoredLease] = field(default_factory=list)
    happened: Counter[str] = field(default_factory=Counter)
    passed: int = 0
    complete: bool = True


class RedisKeys:
    """See the port."""

    def __init__(self, url: Secret, keys: Keyspace) -> None:
        self._url = url
        self._keys = keys

    async def survey(
        self, *, max_keys: int = 100_000, sample: int = 200, leases: bool = False, window_s: float = 0.0
    ) -> KeySurvey:
        look = _Look(sample, leases, window_s)
        used_bytes, bounds, server_keys = 0, [], 0
        async with asking(self._url, timeout_s=TIMEOUT_S) as servers:
            for client in servers.each.values():
                memory = await client.info("memory")
                used_bytes += int(memory.get("used_memory", 0))
                bounds.append(int(memory.get("maxmemory", 0)))
                await self._pass(client, look, max_keys)
                server_keys += await client.dbsize()
        return KeySurvey(
            kinds=tuple(kept.use(kind) for kind, kept in sorted(look.kinds.items())),
            keys_scanned=min(look.passed, server_keys) if look.complete else look.passed,
            complete=look.complete,
            server_keys=server_keys,
            used_bytes=used_bytes,
            max_bytes=sum(bounds) if all(bounds) else 0,
            no_ttl=tuple(look.no_ttl[:MOST_TOLD]),
            leases=tuple(look.held),
            event_counts=dict(look.happened) if window_s > 0 else None,
        )

    async def _pass(self, client: Any, look: _Look, max_keys: int) -> None:
        """Look at the keys of one server, by its clock."""
        seconds, micros = await client.time()
        now_us = seconds * MICRO + micros
        look.complete = look.complete and look.passed < max_keys
        if not look.complete:
            return
        async for page in pages(client, self._keys.prefix, PAGE):
            if look.passed >= max_keys:
                look.complete = False
                return
            look.passed += PAGE
            named = [(key, self._keys.named(key) or UNKNOWN_KIND) for key in map(told, page)]
            await _weigh(client, look, named)
            if look.leases:
                await _read_leases(client, look, [key for key, kind in named if kind == "leases"], now_us)
            if look.window_s > 0:
                since_ms = now_us // 1000 - round(look.window_s * 1000)
                await _read_events(client, look, [key for key, kind in named if kind == "events"], since_ms)

    async def remove_leases(self, leases: Sequence[StoredLease]) -> list[StoredLease]:
        text = script("recover").text
        async with asking(self._url, timeout_s=TIMEOUT_S) as servers:
            return [
                lease
                for lease in leases
                if await servers.of(lease.key).eval(text, 1, lease.key, lease.holder, lease.until_us)
            ]

    async def set_ttl(self, keys: Sequence[str], ttl_s: float) -> int:
        given = 0
        async with asking(self._url, timeout_s=TIMEOUT_S) as servers:
            for key in keys:
                client = servers.of(key)
                if await client.pttl(key) == _FOR_EVER:
                    given += await client.pexpire(key, round(ttl_s * 1000))
        return given

    async def clear(self) -> int:
        gone = 0
        async with asking(self._url, timeout_s=TIMEOUT_S) as servers:
            for client in servers.each.values():
                async for page in pages(client, self._keys.prefix, PAGE):
                    gone += await unlink(client, page)
        return gone


async def _weigh(client: Any, look: _Look, named: Iterable[tuple[str, str]]) -> None:
    """Time to live of each, and the weight of the first of its kind."""
    asked = list(named)
    async with client.pipeline(transaction=False) as pipe:
        for key, _ in asked:
            pipe.pttl(key)
        lives = await pipe.execute(raise_on_error=False)
    heavy: list[_Kind] = []
    async with client.pipeline(transaction=False) as pipe:
        for (key, kind), ttl_ms in zip(asked, lives, strict=True):
            if isinstance(ttl_ms, MOVING):
                continue
            if isinstance(ttl_ms, Exception):
                raise ttl_ms
            kept = look.kinds.setdefault(kind, _Kind())
            kept.keys += 1
            if ttl_ms == _FOR_EVER:
                kept.no_ttl += 1
                look.no_ttl.append(key)
            if kept.weighed + heavy.count(kept) < look.weighed and not kept.refused:
                heavy.append(kept)
                pipe.execute_command("MEMORY USAGE", key)
        sizes = await pipe.execute(raise_on_error=False) if heavy else []
    for kept, size in zip(heavy, sizes, strict=True):
        if isinstance(size, int):
            kept.weighed, kept.size_bytes = kept.weighed + 1, kept.size_bytes + size
        elif size is not None and not isinstance(size, MOVING):
            # Managed servers refuse the command. None: the key is gone by now.
            kept.refused = True


async def _read_leases(client: Any, look: _Look, keys: Iterable[str], now_us: int) -> None:
    for key in keys:
        with passing_over(*MOVING):
            for member, score in await client.zrange(key, 0, -1, withscores=True):
                holder, until_us = told(member), round(min(max(score, 0.0), NEVER_US))
                lease_id, process, tenant, job, _ = who(holder)
                ends_in_s = (until_us - now_us) / MICRO
                look.held.append(
                    StoredLease(key, holder, lease_id, process, tenant, job, until_us, ends_in_s)
                )


async def _read_events(client: Any, look: _Look, keys: Iterable[str], since_ms: int) -> None:
    for key in keys:
        with passing_over(*MOVING):
            for _, fields in await client.xrange(key, min=since_ms):
                look.happened[told(fields.get(b"k", b""))] += 1
