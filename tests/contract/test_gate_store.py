"""What only a gate in Redis can meet: keys that are lost one by one, clocks that jump far."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest
from redis.asyncio import Redis

from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.local.system import SystemClock
from fairlead.adapters.redis.codec import head
from fairlead.adapters.redis.gate import RedisGate
from fairlead.adapters.redis.link import Link
from fairlead.adapters.redis.node import Call, Node, Terms
from fairlead.adapters.redis.scripts import script
from fairlead.engine.ports.gate import Admitted, Ask, Booked, Finish, GateRefusal, Queued, RefusedBy
from fairlead.errors import GateUnavailable
from fairlead.policy.gate.key import KeyKind, Keyspace, Part
from fairlead.policy.gate.limit import BucketLimit, Domain, Plan, PoolLimit
from fairlead.policy.gate.pool import Holder
from fairlead.secret import Secret
from tests.contract.gates import T0_US, Timed, redis_gate
from tests.faults.support.valkey import oldest_redis, own_valkey

DOMAIN = Domain(("tenant", "a"))
HOUR_S = 3600.0
LEASE_S = 30.0
_ids = count(1)


class Place:
    """A gate on the server of the tests, and a look behind it."""

    def __init__(self, url: str) -> None:
        self.keys = Keyspace(f"test-{token_hex(6)}")
        self.timed: Timed = redis_gate(url, self.keys.name)
        self.redis: Any = Redis.from_url(url)

    async def close(self) -> None:
        assert isinstance(self.timed.gate, RedisGate)
        await self.timed.gate.close()
        await self.redis.aclose()

    def leases(self, limit: PoolLimit) -> str:
        return self.keys.key(KeyKind.POOL, DOMAIN, limit.key) + Part.LEASES

    def alive(self, limit: PoolLimit) -> str:
        return self.keys.key(KeyKind.POOL, DOMAIN, limit.key) + Part.ALIVE


@pytest.fixture
async def place(servers: Endpoints) -> AsyncIterator[Place]:
    made = Place(servers.redis_url)
    yield made
    await made.close()


def ask(limit: PoolLimit, **settings: Any) -> Ask:
    """One more asker."""
    return Ask(Plan(DOMAIN, pool=limit), holder=Holder(next(_ids), "process", "a", "job", 1), **settings)


async def test_who_stands_in_a_line_without_living_is_given_no_slot(place: Place) -> None:
    """With two slots to give to him, the script that gives them would never end."""
    limit, timed = PoolLimit("p", 1), place.timed
    first = await timed.admitted(ask(limit))
    assert isinstance(await timed.admit(ask(limit, wait_s=3.0)), Queued)
    assert await place.redis.delete(place.alive(limit)) == 1  # as `gate clear` may between two calls
    await timed.gate.finish(Finish(first))
    second = await timed.admitted(ask(limit))
    waiter = ask(limit, wait_s=3.0)
    assert isinstance(await timed.admit(waiter), Queued)
    await timed.gate.finish(Finish(second))
    assert isinstance(await timed.admit(waiter), Admitted)


async def test_a_short_lease_shortens_no_long_one(place: Place) -> None:
    """The key with all leases lives as long as the last of them, whatever was granted since."""
    limit, timed = PoolLimit("p", 2, lease_s=6 * HOUR_S, claim_s=5.0), place.timed
    await timed.admitted(ask(limit))
    second = await timed.admitted(ask(limit))
    timed.tick(HOUR_S)
    assert isinstance(await timed.admit(ask(limit, wait_s=3.0)), Queued)
    await timed.gate.finish(Finish(second))  # his place goes to who waits, for 5 s
    assert await place.redis.pttl(place.leases(limit)) > 5 * HOUR_S * 1000


async def test_a_turn_soon_forgets_no_later_one(place: Place) -> None:
    """Who waits for a slow limit, too, has a turn in the fast one just as far ahead; others come between."""
    fast, slow = BucketLimit("fast", 1, 1), BucketLimit("slow", 1, 0.002)
    both, one = Plan(DOMAIN, buckets=(fast, slow)), Plan(DOMAIN, buckets=(fast,))
    timed, ahead = place.timed, {"book_s": 900.0}
    await timed.admitted(Ask(both))
    late = Ask(both, booking=1, **ahead)
    assert await timed.admit(late) == Booked(500.0)
    assert isinstance(await timed.admit(Ask(one, booking=2, **ahead)), Booked)
    turns = place.keys.key(KeyKind.BUCKET, DOMAIN, fast.key) + Part.BOOKINGS
    assert await place.redis.zcard(turns) == 2
    assert await place.redis.pttl(turns) > 500_000
    timed.tick(500)
    assert isinstance(await timed.admit(late), Admitted)


async def test_an_ask_that_a_stopping_process_gave_up_leaves_no_slot_taken(place: Place) -> None:
    """It was under way when its caller was cancelled: its answer comes while the gate closes."""
    limit = PoolLimit("p", 1, lease_s=HOUR_S)
    await place.timed.admitted(ask(PoolLimit("other", 1)))
    asked = asyncio.create_task(place.timed.gate.admit(ask(limit)))
    await asyncio.sleep(0)  # it has asked
    asked.cancel()
    assert isinstance(place.timed.gate, RedisGate)
    await place.timed.gate.close()
    assert asked.cancelled()
    assert await place.redis.hexists(place.keys.key(KeyKind.CELL, DOMAIN), Keyspace.field("p", limit.key))
    assert await place.redis.zcard(place.leases(limit)) == 0


@pytest.mark.parametrize(("jump_s", "lost"), [(2 * HOUR_S, True), (600.0, False), (-2 * HOUR_S, False)])
async def test_a_clock_put_far_forward_is_a_loss(
    place: Place, servers: Endpoints, jump_s: float, lost: bool
) -> None:
    """Keys end with it, those of leases that others hold, too: so nobody is given a slot for a lease."""
    limit, timed = PoolLimit("p", 2), place.timed
    admitted = await timed.admitted(ask(limit))
    await timed.gate.finish(Finish(admitted))
    link = Link(Secret(servers.redis_url))
    timed.tick(jump_s)
    run_id = (await place.redis.info("server"))["run_id"].encode()
    told = head(expected_us=T0_US, pinned_us=timed.now_us, lease_s=LEASE_S, run_ids=run_id)
    await link.run(script("gate"), [([place.keys.marker.encode()], [told, b""])])
    await link.drop()
    answer = await timed.admit(ask(limit))
    assert (answer == GateRefusal(RefusedBy.RECOVERY, LEASE_S)) is lost
    assert isinstance(answer, Admitted) is not lost


@pytest.mark.parametrize("program", [None, oldest_redis()], ids=["valkey", "redis_62"])
async def test_a_full_server_and_a_replica_are_called_what_they_are(program: Path | None) -> None:
    """Whatever words the server has for it: one needs memory, the other is not the one to talk to."""
    with own_valkey(program=program) as primary, own_valkey(program=program) as server:
        place = Place(server.url)
        link = Link(Secret(server.url))
        await server.tell("CONFIG", "SET", "maxmemory", "1")
        with pytest.raises(GateUnavailable, match="no memory left"):
            await place.timed.gate.admit(ask(PoolLimit("p", 1)))
        await server.tell("CONFIG", "SET", "maxmemory", "0")
        await server.tell("REPLICAOF", "127.0.0.1", primary.port)
        await link.ready()
        told = head(pinned_us=T0_US, lease_s=LEASE_S)
        (answer,) = await link.run(script("gate"), [([place.keys.marker.encode()], [told, b""])])
        assert isinstance(answer, GateUnavailable)
        assert not link.is_ready, "behind the address there may be another server by now"
        await place.close()


async def test_a_server_may_be_asked_several_things_at_once(servers: Endpoints) -> None:
    """As one of a cluster is, while slots are on their way to it."""
    keys = Keyspace(f"test-{token_hex(6)}")
    terms = Terms(keys.prefix.encode(), LEASE_S, 0, 0, 0)
    node = Node(Secret(servers.redis_url), keys.marker.encode(), terms, SystemClock())
    await node.ready()
    told = await asyncio.gather(*(node.judge([Call(node.marker, 0, ())]) for _ in range(5)))
    assert told == [[[]]] * 5
    await node.close()
