"""Reads the stored state of the gate for the operator. Its form is in include/record_formats.lua."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Any

from fairlead._core.secret import Secret
from fairlead.adapters.redis.admin_client import (
    UNREADABLE,
    Servers,
    admin_clients,
    pages,
    parse_holder,
    skip_unreadable,
    text_of,
    unpack_numbers,
)
from fairlead.adapters.redis.codec import CAUSE_SEPARATOR
from fairlead.engine.ports import (
    BreakerView,
    BucketView,
    DestinationView,
    FailureView,
    GateView,
    HolderView,
    PromotionView,
    WaiterView,
)
from fairlead.policy.limits.breaker import Destination, Mode
from fairlead.policy.limits.key import KeyKind, Keyspace, Part
from fairlead.policy.limits.limit import MICRO, BucketLimit, Domain, Plan, PoolLimit

MOST_EVENTS = 1000
"""How many of the latest events of a pool are searched for promotions."""
MOST_FAILURES = 20
PAGE = 1000
"""Keys that one step of a search visits: about a millisecond of the server's time."""
_BUCKET = Struct("<ddddddddd")
_BREAKER = Struct("<22d")
_POOL = Struct("<dIddBd")


class RedisInspector:
    """The GateViewer port on Redis."""

    def __init__(self, url: Secret, keys: Keyspace) -> None:
        self._url = url
        self._keys = keys

    async def inspect(self, plan: Plan, *, events: int = 50) -> GateView:
        return (await self.inspect_many([plan], events=events))[0]

    async def inspect_many(self, plans: Sequence[Plan], *, events: int = 0) -> list[GateView]:
        async with admin_clients(self._url) as servers:
            return [await self._view(servers, plan, events) for plan in plans]

    async def breakers(self, domain: Domain | None = None, *, failures: int = 1) -> list[DestinationView]:
        prefix = self._keys.prefix if domain is None else self._keys.key(KeyKind.BREAKER, domain) + ":"
        views: list[DestinationView] = []
        async with admin_clients(self._url) as servers:
            clients = servers.clients.values() if domain is None else (servers.client_for(prefix),)
            for client in clients:
                async for page in pages(client, prefix, PAGE):
                    keys = [key for key in map(text_of, page) if self._keys.named(key) == "failures"]
                    views += [
                        view for key in keys if (view := await self._destination(client, key, failures))
                    ]
        return sorted(views, key=lambda view: view.destination)

    async def _destination(self, client: Any, key: str, most: int) -> DestinationView | None:
        """Return the breaker with its failures at *key*; None if they do not name it."""
        latest = await _newest(client, key, max(1, most))
        named = Destination.of(latest[0].get("n", "").partition(CAUSE_SEPARATOR)[0]) if latest else None
        if named is None:
            return None
        seconds, micros = await client.time()
        now_us = seconds * MICRO + micros
        with skip_unreadable():
            stored = await client.hget(*self._keys.breaker_at(key))
            state = unpack_numbers(_BREAKER, stored) or (0.0,) * 20
            shown = tuple(_failure(event, now_us) for event in latest[:most])
            return DestinationView(named, _breaker(state, now_us), shown)
        return None

    async def _view(self, servers: Servers, plan: Plan, events: int) -> GateView:
        cell_key = self._keys.key(KeyKind.CELL, plan.domain)
        client = servers.client_for(cell_key)
        seconds, micros = await client.time()
        now_us = seconds * MICRO + micros
        unreadable: list[str] = []
        cell: Mapping[bytes, bytes] | None = None
        with skip_unreadable():
            cell = await client.hgetall(cell_key)
        if cell is None:
            cell, unreadable = {}, ["cell"]
        capacity: int | None = None
        holders: tuple[HolderView, ...] = ()
        waiters: tuple[WaiterView, ...] = ()
        latest: Sequence[Mapping[str, str]] = ()
        promoted: Sequence[PromotionView] = ()
        if plan.pool:
            state = _part(cell, "p", plan.pool.key, _POOL, "slots", unreadable)
            capacity = int(state[1]) if state else plan.pool.capacity
            base = self._keys.key(KeyKind.POOL, plan.domain, plan.pool.key)
            holders = await _holders(client, base, now_us)
            waiters = await _waiters(client, base, plan.pool, now_us)
            if events:
                log = await _newest(client, base + Part.EVENTS, MOST_EVENTS)
                latest = log[:events]
                promoted = [_promotion(event, now_us) for event in log if event.get("k") == "promote"][
                    :events
                ]
        breaker, failures = await self._breaker(client, plan, cell, now_us, events, unreadable)
        buckets = tuple(_bucket(limit, cell, now_us, unreadable) for limit in plan.buckets)
        return GateView(
            breaker, capacity, holders, waiters, buckets, tuple(latest), tuple(promoted), failures,
            tuple(unreadable),
        )  # fmt: skip

    async def _breaker(
        self,
        client: Any,
        plan: Plan,
        cell: Mapping[bytes, bytes],
        now_us: int,
        events: int,
        unreadable: list[str],
    ) -> tuple[BreakerView | None, tuple[FailureView, ...]]:
        if plan.breaker is None:
            return None, ()
        state = _part(cell, "k", plan.breaker.key, _BREAKER, "breaker", unreadable)
        failures: Sequence[Mapping[str, str]] = ()
        if events:
            key = self._keys.key(KeyKind.BREAKER, plan.domain, plan.breaker.key) + Part.FAILURES
            failures = await _newest(client, key, MOST_FAILURES)
        shown = tuple(_failure(event, now_us) for event in failures)
        return None if state is None else _breaker(state, now_us), shown


def _part(
    cell: Mapping[bytes, bytes], letter: str, key: str, form: Struct, part: str, unreadable: list[str]
) -> tuple[float, ...] | None:
    """Return the stored value of a part; add its name to *unreadable* if it cannot be read."""
    stored = cell.get(Keyspace.field(letter, key).encode())
    state = unpack_numbers(form, stored)
    if state is None and stored is not None:
        unreadable.append(part)
    return state


def _bucket(
    limit: BucketLimit, cell: Mapping[bytes, bytes], now_us: int, unreadable: list[str]
) -> BucketView:
    state = _part(cell, "b", limit.key, _BUCKET, f"limit {limit.name or limit.key}", unreadable)
    if state is None:
        return BucketView(limit.name or limit.key, limit.capacity, limit.capacity, limit.per_s, 0.0, 0.0)
    level, rest, at_us, blocked_us, _, booked, capacity, rate, _ = state
    grown = level + max(0.0, now_us - max(at_us, min(blocked_us, now_us))) * rate / MICRO + rest / MICRO
    return BucketView(
        limit.name or limit.key,
        min(grown, capacity - booked) / MICRO,
        capacity / MICRO,
        rate / MICRO,
        booked / MICRO,
        max(0.0, blocked_us - now_us) / MICRO,
    )


def _breaker(state: Sequence[float], now_us: int) -> BreakerView:
    mode, in_a_row, times, until_us, *rest = state
    return BreakerView(
        Mode(int(mode)).name.lower().replace("_", "-") if mode in list(Mode) else UNREADABLE,
        int(in_a_row),
        int(times),
        max(0.0, until_us - now_us) / MICRO,
        int(sum(rest[4:10])),
        int(sum(rest[10:16])),
    )


async def _holders(client: Any, base: str, now_us: int) -> tuple[HolderView, ...]:
    """Return the holders of a pool's slots, with the seconds until their leases expire."""
    leases = await _sorted(client, base + Part.LEASES)
    return tuple(
        HolderView(*parse_holder(text_of(member)), (until_us - now_us) / MICRO) for member, until_us in leases
    )


async def _waiters(client: Any, base: str, pool: PoolLimit, now_us: int) -> tuple[WaiterView, ...]:
    alive = dict(await _sorted(client, base + Part.ALIVE))
    views: list[WaiterView] = []
    for number in range(1, pool.classes + 1):
        for member, since_us in await _sorted(client, f"{base}{Part.LINE}{number}"):
            alive_s = (alive.get(member, now_us) - now_us) / MICRO
            views.append(WaiterView(*parse_holder(text_of(member)), (now_us - since_us) / MICRO, alive_s))
    return tuple(views)


async def _sorted(client: Any, key: str) -> Sequence[tuple[bytes, float]]:
    """Return members and scores; none if *key* is not a sorted set."""
    members: list[tuple[bytes, float]] = []
    with skip_unreadable():
        members += await client.zrange(key, 0, -1, withscores=True)
    return members


def _promotion(event: Mapping[str, str], now_us: int) -> PromotionView:
    return PromotionView(*parse_holder(event.get("h", "")), (now_us - _number(event, "t")) / MICRO)


def _number(event: Mapping[str, str], name: str) -> float:
    """Return a number in an entry of a stream; 0 if it is missing or malformed."""
    try:
        return float(event.get(name, 0))
    except ValueError:
        return 0.0


def _failure(event: Mapping[str, str], now_us: int) -> FailureView:
    ago_s, opened_s = (now_us - _number(event, "t")) / MICRO, _number(event, "o") / MICRO
    cause = event.get("n", "").partition(CAUSE_SEPARATOR)[2]
    if not event.get("h"):
        return FailureView(ago_s, opened_s or None, cause=cause)
    _, process, tenant, job, _ = parse_holder(event["h"])
    return FailureView(ago_s, opened_s or None, process, tenant, job, cause)


async def _newest(client: Any, key: str, most: int) -> list[Mapping[str, str]]:
    """Return the latest entries of a stream, newest first; none if it is not a stream."""
    entries: Sequence[tuple[bytes, Mapping[bytes, bytes]]] = ()
    with skip_unreadable():
        entries = await client.xrevrange(key, count=most)
    return [{text_of(name): text_of(value) for name, value in fields.items()} for _, fields in entries]
