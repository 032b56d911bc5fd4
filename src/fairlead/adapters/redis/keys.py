"""Surveys and cleans up the gate's keys: how many, their size, and the leases in them.

SCAN reads each server page by page, so other clients are served in between. Of keys without our prefix only
the name is read. Keys that move to another cluster node meanwhile may be missed.

Spec: G9.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fairlead._core.secret import Secret
from fairlead.adapters.redis.admin_client import (
    MOVING,
    admin_clients,
    pages,
    parse_holder,
    skip_unreadable,
    text_of,
    unlink,
)
from fairlead.adapters.redis.scripts import script
from fairlead.engine.ports import UNKNOWN_KIND, KeySurvey, KindUse, StoredLease
from fairlead.policy.limits.key import Keyspace
from fairlead.policy.limits.limit import MICRO

PAGE = 250
TIMEOUT_S = 10.0
MAX_LISTED = 1000
_NO_TTL = -1
MAX_END_US = 2.0**53
"""The latest end that is shown; a larger stored number was not written by the gate."""


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
class _Survey:
    """What a survey has to find, and what it has found so far."""

    weighed: int
    leases: bool
    window_s: float
    kinds: dict[str, _Kind] = field(default_factory=dict)
    no_ttl: list[str] = field(default_factory=list)
    leases_found: list[StoredLease] = field(default_factory=list)
    event_counts: Counter[str] = field(default_factory=Counter)
    scanned: int = 0
    complete: bool = True


class RedisKeys:
    """The GateKeys port on Redis."""

    def __init__(self, url: Secret, keys: Keyspace) -> None:
        self._url = url
        self._keys = keys

    async def survey(
        self, *, max_keys: int = 100_000, sample: int = 200, leases: bool = False, window_s: float = 0.0
    ) -> KeySurvey:
        survey = _Survey(sample, leases, window_s)
        used_bytes, bounds, server_keys = 0, [], 0
        async with admin_clients(self._url, timeout_s=TIMEOUT_S) as servers:
            for client in servers.clients.values():
                memory = await client.info("memory")
                used_bytes += int(memory.get("used_memory", 0))
                bounds.append(int(memory.get("maxmemory", 0)))
                await self._scan(client, survey, max_keys)
                server_keys += await client.dbsize()
        return KeySurvey(
            kinds=tuple(kind_use.use(kind) for kind, kind_use in sorted(survey.kinds.items())),
            keys_scanned=min(survey.scanned, server_keys) if survey.complete else survey.scanned,
            complete=survey.complete,
            server_keys=server_keys,
            used_bytes=used_bytes,
            max_bytes=sum(bounds) if all(bounds) else 0,
            no_ttl=tuple(survey.no_ttl[:MAX_LISTED]),
            leases=tuple(survey.leases_found),
            event_counts=dict(survey.event_counts) if window_s > 0 else None,
        )

    async def _scan(self, client: Any, survey: _Survey, max_keys: int) -> None:
        """Read the keys of one server into *survey*, by the server's clock."""
        seconds, micros = await client.time()
        now_us = seconds * MICRO + micros
        survey.complete = survey.complete and survey.scanned < max_keys
        if not survey.complete:
            return
        async for page in pages(client, self._keys.prefix, PAGE):
            if survey.scanned >= max_keys:
                survey.complete = False
                return
            survey.scanned += PAGE
            named = [(key, self._keys.named(key) or UNKNOWN_KIND) for key in map(text_of, page)]
            await _measure(client, survey, named)
            if survey.leases:
                await _read_leases(client, survey, [key for key, kind in named if kind == "leases"], now_us)
            if survey.window_s > 0:
                since_ms = now_us // 1000 - round(survey.window_s * 1000)
                await _read_events(client, survey, [key for key, kind in named if kind == "events"], since_ms)

    async def remove_leases(self, leases: Sequence[StoredLease]) -> list[StoredLease]:
        text = script("recover").text
        async with admin_clients(self._url, timeout_s=TIMEOUT_S) as servers:
            return [
                lease
                for lease in leases
                if await servers.client_for(lease.key).eval(text, 1, lease.key, lease.holder, lease.until_us)
            ]

    async def set_ttl(self, keys: Sequence[str], ttl_s: float) -> int:
        changed = 0
        async with admin_clients(self._url, timeout_s=TIMEOUT_S) as servers:
            for key in keys:
                client = servers.client_for(key)
                if await client.pttl(key) == _NO_TTL:
                    changed += await client.pexpire(key, round(ttl_s * 1000))
        return changed

    async def clear(self) -> int:
        deleted = 0
        async with admin_clients(self._url, timeout_s=TIMEOUT_S) as servers:
            for client in servers.clients.values():
                async for page in pages(client, self._keys.prefix, PAGE):
                    deleted += await unlink(client, page)
        return deleted


async def _measure(client: Any, survey: _Survey, named: Iterable[tuple[str, str]]) -> None:
    """Count the keys and those without a time to live, and measure the first of each kind."""
    pairs = list(named)
    async with client.pipeline(transaction=False) as pipe:
        for key, _ in pairs:
            pipe.pttl(key)
        lives = await pipe.execute(raise_on_error=False)
    sampled: list[_Kind] = []
    async with client.pipeline(transaction=False) as pipe:
        for (key, kind), ttl_ms in zip(pairs, lives, strict=True):
            if isinstance(ttl_ms, MOVING):
                continue
            if isinstance(ttl_ms, Exception):
                raise ttl_ms
            kind_use = survey.kinds.setdefault(kind, _Kind())
            kind_use.keys += 1
            if ttl_ms == _NO_TTL:
                kind_use.no_ttl += 1
                survey.no_ttl.append(key)
            if kind_use.weighed + sampled.count(kind_use) < survey.weighed and not kind_use.refused:
                sampled.append(kind_use)
                pipe.execute_command("MEMORY USAGE", key)
        sizes = await pipe.execute(raise_on_error=False) if sampled else []
    for kind_use, size in zip(sampled, sizes, strict=True):
        if isinstance(size, int):
            kind_use.weighed, kind_use.size_bytes = kind_use.weighed + 1, kind_use.size_bytes + size
        elif size is not None and not isinstance(size, MOVING):
            # Managed servers refuse the command. None: the key is deleted by now.
            kind_use.refused = True


async def _read_leases(client: Any, survey: _Survey, keys: Iterable[str], now_us: int) -> None:
    for key in keys:
        with skip_unreadable(*MOVING):
            for member, score in await client.zrange(key, 0, -1, withscores=True):
                holder, until_us = text_of(member), round(min(max(score, 0.0), MAX_END_US))
                lease_id, process, tenant, job, _ = parse_holder(holder)
                ends_in_s = (until_us - now_us) / MICRO
                survey.leases_found.append(
                    StoredLease(key, holder, lease_id, process, tenant, job, until_us, ends_in_s)
                )


async def _read_events(client: Any, survey: _Survey, keys: Iterable[str], since_ms: int) -> None:
    for key in keys:
        with skip_unreadable(*MOVING):
            for _, fields in await client.xrange(key, min=since_ms):
                survey.event_counts[text_of(fields.get(b"k", b""))] += 1
