"""What a stranger wrote to Redis costs the one domain at most, and heals by itself (R23, R50)."""

from __future__ import annotations

import asyncio
import math
import struct
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from secrets import token_hex
from typing import Any

import pytest
from redis.asyncio import Redis

from fairlead._core.secret import Secret
from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.redis import listener as listener_module
from fairlead.adapters.redis.inspector import RedisInspector
from fairlead.adapters.redis.listener import GrantListener
from fairlead.adapters.redis.redis_gate import RedisGate
from fairlead.engine.ports import AdmitRequest, Admitted, GateRefusal, Queued, RefusedBy, Release
from fairlead.policy.limits.breaker import DestinationHealth
from fairlead.policy.limits.key import KeyKind, Keyspace, Part
from fairlead.policy.limits.limit import BreakerRule, BucketLimit, Domain, Plan, PoolLimit, QuotaLimit
from fairlead.policy.limits.pool import Holder
from fairlead.testing._kit.clock import ManualClock
from tests.contract.gates import Timed, redis_gate

POISON: dict[str, Callable[[bytes], bytes]] = {
    "short": lambda old: old[: len(old) // 2],
    "empty": lambda old: b"",
    "long": lambda old: old + b"\0" * 64,
    "0xff": lambda old: b"\xff" * len(old),
    "nan": lambda old: (struct.pack("<d", float("nan")) * 20)[: len(old)],
    "inf": lambda old: (struct.pack("<d", float("inf")) * 20)[: len(old)],
    "2^53": lambda old: (struct.pack("<d", 2.0**53) * 20)[: len(old)],
}
SLOTS, BURST = 2, 3


def plan_of(tenant: str) -> Plan:
    return Plan(
        Domain(("tenant", tenant)),
        breaker=BreakerRule("host"),
        quota=QuotaLimit("q", SLOTS),
        pool=PoolLimit("p", SLOTS),
        buckets=(BucketLimit("b", BURST, 1),),
    )


class Ground:
    def __init__(self, url: str) -> None:
        self.url, self.keys = url, Keyspace(f"test-{token_hex(6)}")
        self.timed: Timed = redis_gate(url, self.keys.name, events=50)
        self.redis: Any = Redis.from_url(url)
        self.plans = {tenant: plan_of(tenant) for tenant in ("good", "bad")}
        self._number = 0

    def ask(self, tenant: str, **settings: Any) -> AdmitRequest:
        self._number += 1
        plan = self.plans[tenant]
        return AdmitRequest(plan, holder=Holder(self._number, "p", tenant, quota=plan.quota), **settings)

    async def together(self, *tenants: str) -> list[Any]:
        """One batch."""
        asks = [self.timed.gate.admit(self.ask(tenant)) for tenant in tenants]
        return await asyncio.gather(*asks, return_exceptions=True)

    async def end(self, *admitted: Any) -> None:
        for answer in admitted:
            await self.timed.gate.release(Release(answer, DestinationHealth.HEALTHY))


@pytest.fixture
async def ground(servers: Endpoints) -> AsyncIterator[Ground]:
    new_ground = Ground(servers.redis_url)
    await new_ground.end(*await new_ground.together("good", "bad"))
    new_ground.timed.tick(60)
    yield new_ground
    assert isinstance(new_ground.timed.gate, RedisGate)
    await new_ground.timed.gate.close()
    await new_ground.redis.aclose()


@pytest.mark.parametrize("poison", POISON)
async def test_numbers_that_cannot_be_ours_are_unknown_and_hurt_nobody_else(
    poison: str, ground: Ground
) -> None:
    cell = ground.keys.key(KeyKind.CELL, ground.plans["bad"].domain)
    for name, old in (await ground.redis.hgetall(cell)).items():
        await ground.redis.hset(cell, name, POISON[poison](old))
    answers = await ground.together(*["bad", "good"] * 6)
    assert sum(isinstance(answer, Admitted) for answer in answers[1::2]) == SLOTS
    assert not [answer for answer in answers if isinstance(answer, Exception)]
    assert not [answer for answer in answers[::2] if isinstance(answer, Admitted)], (
        "its bucket is empty from now on"
    )
    ground.timed.tick(2)
    assert isinstance((await ground.together("bad"))[0], Admitted)


@pytest.mark.parametrize("poison", [*POISON, "gone"])
async def test_a_damaged_count_of_a_quota_is_counted_again(poison: str, ground: Ground) -> None:
    """By the leases of all pools: none is granted beyond the quota, and an end frees a place as ever."""
    admissions = [await ground.timed.admitted(ground.ask("bad")) for _ in range(SLOTS)]
    plan = ground.plans["bad"]
    cell, name = ground.keys.key(KeyKind.CELL, plan.domain), Keyspace.field("q", "q").encode()
    if poison == "gone":
        await ground.redis.hdel(cell, name)
    else:
        await ground.redis.hset(cell, name, POISON[poison](await ground.redis.hget(cell, name)))
    ground.plans["bad"] = Plan(plan.domain, quota=plan.quota, pool=PoolLimit("other", SLOTS))
    assert await ground.timed.admit(ground.ask("bad")) == GateRefusal(RefusedBy.QUOTA, 30.0)
    await ground.end(admissions[0])
    await ground.timed.admitted(ground.ask("bad"))
    assert isinstance(await ground.timed.admit(ground.ask("bad")), GateRefusal)


@pytest.mark.parametrize("kind", ["set", "rpush", "hset", "zadd"])
async def test_keys_of_another_type_begin_anew(kind: str, ground: Ground) -> None:
    base = ground.keys.key(KeyKind.CELL, ground.plans["bad"].domain)[:-1]
    admission = await ground.timed.admitted(ground.ask("bad"))
    assert isinstance(
        await ground.timed.admit(ground.ask("bad", wait_s=30, reservation_id=99, reserve_ahead_s=30)),
        Admitted,
    )
    keys = [key async for key in ground.redis.scan_iter(f"{base}*")]
    for key in keys:
        await ground.redis.delete(key)
        value = {"set": "x", "rpush": "x", "hset": None, "zadd": {"x": 1}}[kind]
        await (getattr(ground.redis, kind)(key, value) if value else ground.redis.hset(key, "f", "x"))
    answers = await ground.together("bad", "good", "bad", "good")
    assert not [answer for answer in answers if isinstance(answer, Exception)]
    assert all(isinstance(answer, Admitted) for answer in answers[1::2])
    await ground.end(admission, *(answer for answer in answers if isinstance(answer, Admitted)))
    ground.timed.tick(2)
    assert isinstance((await ground.together("bad"))[0], Admitted)


async def test_leases_of_another_type_hold_neither_slot_nor_quota(ground: Ground) -> None:
    for _ in range(SLOTS):
        await ground.timed.admitted(ground.ask("bad"))
    leases = ground.keys.key(KeyKind.POOL, ground.plans["bad"].domain, "p") + Part.LEASES
    await ground.redis.set(leases, "x")
    await ground.timed.admitted(ground.ask("bad"))


@pytest.mark.parametrize(
    ("field", "shape", "index", "value"),
    [
        (("b", "b"), "<9d", 6, 5e-324),  # a capacity
        (("b", "b"), "<9d", 6, 999.0),
        (("b", "b"), "<9d", 7, 5e-324),  # a rate
        (("b", "b"), "<9d", 5, 1e15),  # more promised than there is
        (("p", "p"), "<dIddBd", 1, 0),  # slots
    ],
)
async def test_numbers_too_small_or_large_for_ours_shut_no_gate(
    field: tuple[str, str], shape: str, index: int, value: float, ground: Ground
) -> None:
    """Neither on the fast path, which is only taken if no events are stored, nor on the full one."""
    assert isinstance(ground.timed.gate, RedisGate)
    await ground.timed.gate.close()
    ground.timed = redis_gate(ground.url, ground.keys.name)
    ground.timed.tick(60)
    plan = ground.plans["bad"]
    cell, name = ground.keys.key(KeyKind.CELL, plan.domain), Keyspace.field(*field).encode()
    await ground.redis.zadd(
        ground.keys.key(KeyKind.BUCKET, plan.domain, "b") + Part.BOOKINGS, {"x": math.inf}
    )
    numbers = list(struct.unpack(shape, await ground.redis.hget(cell, name)))
    numbers[index] = value
    await ground.redis.hset(cell, name, struct.pack(shape, *numbers))
    await ground.end(*[answer for answer in await ground.together("bad") if isinstance(answer, Admitted)])
    ground.timed.tick(2)
    assert isinstance((await ground.together("bad"))[0], Admitted)
    assert struct.unpack(shape, await ground.redis.hget(cell, name))[index] != value


async def test_waiter_in_line_of_another_class_stops_no_server(ground: Ground) -> None:
    plan = ground.plans["bad"]
    base = ground.keys.key(KeyKind.POOL, plan.domain, "p")
    admissions = [await ground.timed.admitted(ground.ask("bad")) for _ in range(SLOTS)]
    assert isinstance(await ground.timed.admit(ground.ask("bad", wait_s=30)), Queued)
    await ground.redis.zadd(base + Part.LINE + "1", {"zz\x1fp\x1f9\x1f\x1f\x1faaa\x1f": 0})
    await ground.end(*admissions)
    assert isinstance((await ground.together("good"))[0], Admitted)


async def test_a_hold_that_no_vendor_was_ever_obeyed_for_is_not_believed(ground: Ground) -> None:
    cell = ground.keys.key(KeyKind.CELL, ground.plans["bad"].domain)
    name = Keyspace.field("b", "b").encode()
    numbers = list(struct.unpack("<9d", await ground.redis.hget(cell, name)))
    numbers[3] = 2.0**52
    await ground.redis.hset(cell, name, struct.pack("<9d", *numbers))
    assert isinstance((await ground.together("bad"))[0], Admitted)


async def test_holders_that_are_none_of_ours_hold_for_nobody(ground: Ground) -> None:
    pool = ground.keys.key(KeyKind.POOL, ground.plans["bad"].domain, "p") + Part.LEASES
    await ground.redis.zadd(pool, {"x": 4e15, "\x1f\x1f": 4e15})
    classes = replace(
        ground.plans["bad"], quota=None, pool=PoolLimit("p", SLOTS, classes=2, minimum={1: 1}, version=2)
    )
    ground.plans["bad"] = classes
    assert isinstance((await ground.together("bad"))[0], Admitted)


async def test_people_see_what_cannot_be_read(ground: Ground) -> None:
    plan = ground.plans["bad"]
    admission = await ground.timed.admitted(ground.ask("bad"))
    cell = ground.keys.key(KeyKind.CELL, plan.domain)
    for name, old in (await ground.redis.hgetall(cell)).items():
        await ground.redis.hset(cell, name, old[:5])
    await ground.redis.zadd(ground.keys.key(KeyKind.POOL, plan.domain, "p") + Part.LEASES, {"x": 4e15})
    view = await RedisInspector(Secret(ground.url), ground.keys).inspect(plan)
    assert view.unreadable == ("slots", "breaker", "limit b")
    assert {holder.process for holder in view.holders} == {"p", "unreadable"}
    await ground.end(admission)


async def test_a_hand_over_is_told_in_the_answer_of_its_batch(ground: Ground) -> None:
    """No subscription need be heard for what this process hands to itself."""
    woken: list[int] = []
    assert isinstance(ground.timed.gate, RedisGate)
    ground.timed.gate.params.wake = woken.append
    first, second = [await ground.timed.admitted(ground.ask("good")) for _ in range(2)]
    waiting = ground.ask("good", wait_s=30)
    assert isinstance(await ground.timed.admit(waiting), Queued)
    await ground.end(first)
    assert waiting.holder is not None
    assert woken == [waiting.holder.lease_id]
    await ground.timed.admitted(waiting)
    await ground.end(second)


async def test_a_subscription_that_says_nothing_is_asked_and_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As behind a firewall that has forgotten the connection."""
    connected: asyncio.Queue[bytes] = asyncio.Queue()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received = b""
        while data := await reader.read(1024):
            received += data
            if b"SUBSCRIBE" not in received:  # what is asked before
                writer.write(b"-ERR unknown\r\n" * data.count(b"*"))
        writer.close()
        await writer.wait_closed()
        connected.put_nowait(received)

    monkeypatch.setattr(listener_module, "PING_AFTER_S", 0.01)
    monkeypatch.setattr(listener_module, "RESPONSE_TIMEOUT_S", 0.05)
    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        url = Secret(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0")
        listener = GrantListener(url, "channel", lambda _lease: None, ManualClock())
        listening = asyncio.create_task(listener.run())
        wake = await asyncio.wait_for(connected.get(), 10)
        listening.cancel()
        await asyncio.wait((listening,))
    assert b"SUBSCRIBE" in wake
    assert b"PING" in wake
