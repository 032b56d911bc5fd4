"""Looks after the gate's keys: what there is, what it weighs, which leases stand (G9).

SCAN passes the whole server a page at a time, so calls of others come in between; of keys that have not our
prefix nothing but the name is seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fairlead.adapters.redis.asking import asking, told, who
from fairlead.adapters.redis.scripts import script
from fairlead.engine.ports.gate_keys import UNKNOWN, HeldLease, KeySurvey, KindUse
from fairlead.policy.gate.key import Keyspace
from fairlead.policy.gate.limit import MICRO
from fairlead.secret import Secret

PAGE = 250
TIMEOUT_S = 10.0
MOST_TOLD = 1000
_LEASES = ("leases", "quotas")
_FOR_EVER = -1


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
    """What a survey has found so far."""

    now_us: int
    weighed: int
    kinds: dict[str, _Kind] = field(default_factory=dict)
    no_ttl: list[str] = field(default_factory=list)
    leases: dict[tuple[str, str], HeldLease] = field(default_factory=dict)
    happened: Counter[str] = field(default_factory=Counter)
    passed: int = 0
    complete: bool = False


class RedisKeys:
    """See the port."""

    def __init__(self, url: Secret, keys: Keyspace) -> None:
        self._url = url
        self._keys = keys

    async def survey(
        self, *, most: int = 100_000, weighed: int = 200, leases: bool = False, since_s: float = 0.0
    ) -> KeySurvey:
        """See the port."""
        async with asking(self._url, timeout_s=TIMEOUT_S) as client:
            memory = await client.info("memory")
            seconds, micros = await client.time()
            look = _Look(seconds * MICRO + micros, weighed)
            async for page in self._pages(client, look, most):
                named = [(key, self._keys.named(key) or UNKNOWN) for key in page]
                await _weigh(client, look, named)
                if leases:
                    await _read_leases(client, look, [key for key, kind in named if kind in _LEASES])
                if since_s > 0:
                    since_ms = look.now_us // 1000 - round(since_s * 1000)
                    await _read_events(
                        client, look, [key for key, kind in named if kind == "events"], since_ms
                    )
            server_keys = await client.dbsize()
        return KeySurvey(
            kinds=tuple(kept.use(kind) for kind, kept in sorted(look.kinds.items())),
            looked_at=min(look.passed, server_keys) if look.complete else look.passed,
            complete=look.complete,
            server_keys=server_keys,
            used_bytes=int(memory.get("used_memory", 0)),
            max_bytes=int(memory.get("maxmemory", 0)),
            no_ttl=tuple(look.no_ttl[:MOST_TOLD]),
            leases=tuple(look.leases.values()),
            happened=dict(look.happened) if since_s > 0 else None,
        )

    async def give_back(self, leases: Sequence[HeldLease]) -> list[HeldLease]:
        """See the port."""
        text = script("recover").text
        async with asking(self._url, timeout_s=TIMEOUT_S) as client:
            return [
                lease
                for lease in leases
                if await client.eval(text, len(lease.keys), *lease.keys, lease.holder, lease.until_us)
            ]

    async def give_ttl(self, keys: Sequence[str], ttl_s: float) -> int:
        """See the port."""
        given = 0
        async with asking(self._url, timeout_s=TIMEOUT_S) as client:
            for key in keys:
                if await client.pttl(key) == _FOR_EVER:
                    given += await client.pexpire(key, round(ttl_s * 1000))
        return given

    async def clear(self) -> int:
        """See the port."""
        gone = 0
        async with asking(self._url, timeout_s=TIMEOUT_S) as client:
            async for page in self._pages(client, _Look(0, 0), None):
                gone += await client.unlink(*page)
        return gone

    async def _pages(self, client: Any, look: _Look, most: int | None) -> AsyncIterator[list[str]]:
        """Our keys, page by page; none twice within a page."""
        cursor = 0
        while most is None or look.passed < most:
            cursor, found = await client.scan(cursor, match=f"{self._keys.prefix}*", count=PAGE)
            look.passed += PAGE
            look.complete = cursor == 0
            if found:
                yield sorted({told(key) for key in found})
            if look.complete:
                return


async def _weigh(client: Any, look: _Look, named: Iterable[tuple[str, str]]) -> None:
    """Time to live of each, and the weight of the first of its kind."""
    asked = list(named)
    async with client.pipeline(transaction=False) as pipe:
        for key, _ in asked:
            pipe.pttl(key)
        lives = await pipe.execute()
    heavy: list[_Kind] = []
    async with client.pipeline(transaction=False) as pipe:
        for (key, kind), ttl_ms in zip(asked, lives, strict=True):
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
        elif size is not None:  # managed servers refuse the command; None: the key is gone by now
            kept.refused = True


async def _read_leases(client: Any, look: _Look, keys: Iterable[str]) -> None:
    """A holder stands in its pool and in its tenant's quota: these are one lease."""
    for key in keys:
        domain = key.partition("}")[0]
        for member, until_us in await client.zrange(key, 0, -1, withscores=True):
            holder = told(member)
            lease_id, process, tenant, job, _ = who(holder)
            before = look.leases.get((domain, holder))
            latest_us = max(int(until_us), before.until_us if before else 0)
            look.leases[domain, holder] = HeldLease(
                tuple(sorted({*(before.keys if before else ()), key})),
                holder,
                lease_id,
                process,
                tenant,
                job,
                latest_us,
                (latest_us - look.now_us) / MICRO,
            )


async def _read_events(client: Any, look: _Look, keys: Iterable[str], since_ms: int) -> None:
    for key in keys:
        for _, fields in await client.xrange(key, min=since_ms):
            look.happened[told(fields[b"k"])] += 1
