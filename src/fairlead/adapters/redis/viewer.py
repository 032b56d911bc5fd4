"""Reads what the scripts wrote, for people. See include/cell.lua, pool.lua and codec.py for the forms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from fairlead.adapters.redis.link import unavailable
from fairlead.engine.ports.gate_view import (
    BreakerView,
    BucketView,
    GateView,
    HolderView,
    WaiterView,
)
from fairlead.policy.gate.breaker import Mode
from fairlead.policy.gate.key import KeyKind, Keyspace, Part
from fairlead.policy.gate.limit import MICRO, BucketLimit, Plan, PoolLimit
from fairlead.secret import Secret

TIMEOUT_S = 2.0
_BUCKET = Struct("<ddddddddd")
_BREAKER = Struct("<20d")
_POOL = Struct("<dddddd")


class RedisViewer:
    """See the port."""

    def __init__(self, url: Secret, keys: Keyspace) -> None:
        self._url = url
        self._keys = keys

    async def look(self, plan: Plan, *, events: int = 50) -> GateView:
        """See the port."""
        client = Redis.from_url(
            self._url.reveal(), socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S, protocol=2
        )
        try:
            return await self._look(client, plan, events)
        except (RedisError, OSError, TimeoutError) as error:
            raise unavailable(error) from None
        finally:
            await client.aclose()

    async def _look(self, client: Any, plan: Plan, events: int) -> GateView:
        seconds, micros = await client.time()
        now_us = seconds * MICRO + micros
        cell = await client.hgetall(self._keys.key(KeyKind.CELL, plan.domain))
        breaker = cell.get(Keyspace.field("k", plan.breaker.key).encode()) if plan.breaker else None
        capacity: int | None = None
        holders: tuple[HolderView, ...] = ()
        waiters: tuple[WaiterView, ...] = ()
        told: tuple[Mapping[str, str], ...] = ()
        if plan.pool:
            kept = cell.get(Keyspace.field("p", plan.pool.key).encode())
            capacity = int(_POOL.unpack(kept)[1]) if kept else plan.pool.capacity
            base = self._keys.key(KeyKind.POOL, plan.domain, plan.pool.key)
            holders = await _holders(client, base, now_us)
            waiters = await _waiters(client, base, plan.pool, now_us)
            told = tuple(await _events(client, base, events))
        buckets = (_bucket(limit, cell, now_us) for limit in plan.buckets)
        return GateView(
            None if breaker is None else _breaker(breaker, now_us),
            capacity,
            holders,
            waiters,
            tuple(buckets),
            told,
        )


def _bucket(limit: BucketLimit, cell: Mapping[bytes, bytes], now_us: int) -> BucketView:
    kept = cell.get(Keyspace.field("b", limit.key).encode())
    if kept is None:
        return BucketView(limit.name or limit.key, limit.capacity, limit.capacity, limit.per_s, 0.0, 0.0)
    level, rest, at_us, blocked_us, _, booked, capacity, rate, _ = _BUCKET.unpack(kept)
    grown = level + max(0.0, now_us - max(at_us, min(blocked_us, now_us))) * rate / MICRO + rest / MICRO
    return BucketView(
        limit.name or limit.key,
        min(grown, capacity - booked) / MICRO,
        capacity / MICRO,
        rate / MICRO,
        booked / MICRO,
        max(0.0, blocked_us - now_us) / MICRO,
    )


def _breaker(kept: bytes, now_us: int) -> BreakerView:
    mode, in_a_row, times, until_us, *rest = _BREAKER.unpack(kept)
    return BreakerView(
        Mode(int(mode)).name.lower().replace("_", "-"),
        int(in_a_row),
        int(times),
        max(0.0, until_us - now_us) / MICRO,
        int(sum(rest[4:10])),
        int(sum(rest[10:16])),
    )


async def _holders(client: Any, base: str, now_us: int) -> tuple[HolderView, ...]:
    found: Sequence[tuple[bytes, float]] = await client.zrange(base + Part.LEASES, 0, -1, withscores=True)
    return tuple(HolderView(*_who(member), (until_us - now_us) / MICRO) for member, until_us in found)


async def _waiters(client: Any, base: str, pool: PoolLimit, now_us: int) -> tuple[WaiterView, ...]:
    alive = dict(await client.zrange(base + Part.ALIVE, 0, -1, withscores=True))
    found: list[WaiterView] = []
    for number in range(1, pool.classes + 1):
        line = await client.zrange(f"{base}{Part.LINE}{number}", 0, -1, withscores=True)
        for member, since_us in line:
            alive_s = (alive.get(member, now_us) - now_us) / MICRO
            found.append(WaiterView(*_who(member), (now_us - since_us) / MICRO, alive_s))
    return tuple(found)


def _who(member: bytes) -> tuple[int, str, str, str, int]:
    """The fields of a holder's text: lease id, process, tenant, job, class."""
    lease_id, process, number, _, _, tenant, job = member.decode("utf-8", "replace").split("\x1f")
    return int(lease_id, 16), process, tenant, job, int(number)


async def _events(client: Any, base: str, most: int) -> list[Mapping[str, str]]:
    return [
        {name.decode(): value.decode("utf-8", "replace") for name, value in fields.items()}
        for _, fields in (await client.xrevrange(base + Part.EVENTS, count=most) if most else [])
    ]
