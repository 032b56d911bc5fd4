"""What only a gate in Redis can meet: keys that are lost one by one, clocks that jump far."""

from __future__ import annotations

import asyncio
import math
import struct
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest
from redis.asyncio import Redis

from fairlead._core.secret import Secret
from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.local.system import SystemClock
from fairlead.adapters.redis.codec import head
from fairlead.adapters.redis.connection import RedisConnection
from fairlead.adapters.redis.node import GateParams, Node, ScriptRun
from fairlead.adapters.redis.redis_gate import RedisGate
from fairlead.adapters.redis.scripts import script
from fairlead.engine.ports import (
    AdmitRequest,
    Admitted,
    GateRefusal,
    Lease,
    Queued,
    RefusedBy,
    Release,
    Renewal,
    Reserved,
)
from fairlead.errors import LimiterUnavailableError
from fairlead.policy.limits.key import KeyKind, Keyspace, Part
from fairlead.policy.limits.limit import BucketLimit, Domain, Plan, PoolLimit, QuotaLimit
from fairlead.policy.limits.pool import Holder
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


def ask(limit: PoolLimit, **settings: Any) -> AdmitRequest:
    """One more asker."""
    return AdmitRequest(
        Plan(DOMAIN, pool=limit), holder=Holder(next(_ids), "process", "a", "job", 1), **settings
    )


async def test_dead_waiter_in_the_line_gets_no_slot(place: Place) -> None:
    """With two slots to give to him, the script that gives them would never end."""
    limit, timed = PoolLimit("p", 1), place.timed
    first = await timed.admitted(ask(limit))
    assert isinstance(await timed.admit(ask(limit, wait_s=3.0)), Queued)
    assert await place.redis.delete(place.alive(limit)) == 1  # as `gate clear` may between two calls
    await timed.gate.release(Release(first))
    second = await timed.admitted(ask(limit))
    waiter = ask(limit, wait_s=3.0)
    assert isinstance(await timed.admit(waiter), Queued)
    await timed.gate.release(Release(second))
    assert isinstance(await timed.admit(waiter), Admitted)


async def test_a_short_lease_shortens_no_long_one(place: Place) -> None:
    """The key with all leases lives as long as the last of them, whatever was granted since."""
    limit, timed = PoolLimit("p", 2, lease_s=6 * HOUR_S, claim_s=5.0), place.timed
    await timed.admitted(ask(limit))
    second = await timed.admitted(ask(limit))
    timed.tick(HOUR_S)
    assert isinstance(await timed.admit(ask(limit, wait_s=3.0)), Queued)
    await timed.gate.release(Release(second))  # his place goes to who waits, for 5 s
    assert await place.redis.pttl(place.leases(limit)) > 5 * HOUR_S * 1000


async def test_a_turn_soon_forgets_no_later_one(place: Place) -> None:
    """Who waits for a slow limit, too, has a turn in the fast one just as far ahead; others come between."""
    fast, slow = BucketLimit("fast", 1, 1), BucketLimit("slow", 1, 0.002)
    both, one = Plan(DOMAIN, buckets=(fast, slow)), Plan(DOMAIN, buckets=(fast,))
    timed, ahead = place.timed, {"reserve_ahead_s": 900.0}
    await timed.admitted(AdmitRequest(both))
    late = AdmitRequest(both, reservation_id=1, **ahead)
    assert await timed.admit(late) == Reserved(500.0)
    assert isinstance(await timed.admit(AdmitRequest(one, reservation_id=2, **ahead)), Reserved)
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
    await timed.gate.release(Release(admitted))
    await jumps(place, servers, jump_s)
    answer = await timed.admit(ask(limit))
    assert (answer == GateRefusal(RefusedBy.RECOVERY, LEASE_S)) is lost
    assert isinstance(answer, Admitted) is not lost


async def jumps(place: Place, servers: Endpoints, jump_s: float) -> None:
    """The server's clock is set, and a caller is sure of it."""
    before_us = place.timed.now_us
    place.timed.tick(jump_s)
    run_id = (await place.redis.info("server"))["run_id"].encode()
    (birth_us,) = struct.unpack_from("<d", await place.redis.get(place.keys.marker))
    told = head(
        expected_us=before_us,
        pinned_us=place.timed.now_us,
        lease_s=LEASE_S,
        doubted_us=int(birth_us),
        run_ids=run_id,
    )
    link = RedisConnection(Secret(servers.redis_url))
    await link.run(script("gate"), [([place.keys.marker.encode()], [told, b""])])
    await link.disconnect()


@pytest.mark.parametrize("jump_s", [600.0, 2 * HOUR_S])
async def test_a_clock_put_forward_pays_no_debt(place: Place, servers: Endpoints, jump_s: float) -> None:
    """No time went by. After the jump it is paid again, and a restart later on pays what came after it."""
    plan = Plan(DOMAIN, buckets=(BucketLimit("b", 50, 1),))
    timed = place.timed
    admitted = await timed.admitted(AdmitRequest(plan, (50.0,)))
    await timed.gate.release(Release(admitted, actual={0: 90.0}))
    await jumps(place, servers, jump_s)
    assert await timed.admit(AdmitRequest(plan)) == GateRefusal(RefusedBy.BUCKET, 41.0, 0)
    timed.tick(30.0)
    assert await timed.admit(AdmitRequest(plan)) == GateRefusal(RefusedBy.BUCKET, 11.0, 0)


async def test_a_restart_after_a_clock_was_put_forward_pays_what_came_after_it(
    place: Place, servers: Endpoints
) -> None:
    plan = Plan(DOMAIN, buckets=(BucketLimit("b", 100, 1),))
    timed = place.timed
    admitted = await timed.admitted(AdmitRequest(plan, (100.0,)))
    await timed.gate.release(Release(admitted, actual={0: 190.0}))
    await jumps(place, servers, 600.0)
    timed.tick(LEASE_S + 20.0)
    await timed.replace()
    assert await timed.admit(AdmitRequest(plan)) == GateRefusal(RefusedBy.BUCKET, 71.0, 0)


async def test_a_debt_from_before_a_restart_is_paid_off_by_the_time_since(place: Place) -> None:
    plan = Plan(DOMAIN, buckets=(BucketLimit("b", 50, 1),))
    timed = place.timed
    admitted = await timed.admitted(AdmitRequest(plan, (50.0,)))
    await timed.gate.release(Release(admitted, actual={0: 90.0}))
    timed.tick(30.0)
    await timed.replace()
    assert await timed.admit(AdmitRequest(plan)) == GateRefusal(RefusedBy.BUCKET, 11.0, 0)
    timed.tick(100.0)
    await timed.replace()
    assert await timed.admit(AdmitRequest(plan)) == GateRefusal(RefusedBy.BUCKET, 1.0, 0), (
        "and nothing is left"
    )


async def test_turns_that_were_promised_before_a_restart_are_no_debt_after_it(place: Place) -> None:
    """Jobs book fifteen minutes ahead: who comes back afterwards does not wait for turns of nobody."""
    plan = Plan(DOMAIN, buckets=(BucketLimit("b", 10, 1),))
    timed = place.timed
    await timed.admitted(AdmitRequest(plan, (10.0,)))
    for reservation_id in range(1, 801):
        assert isinstance(
            await timed.admit(AdmitRequest(plan, reservation_id=reservation_id, reserve_ahead_s=900.0)),
            Reserved,
        )
    timed.tick(0.001)
    await timed.replace()
    assert await timed.admit(AdmitRequest(plan)) == GateRefusal(RefusedBy.BUCKET, 1.0, 0)


async def test_after_a_loss_nobody_in_line_is_handed_what_seems_free(place: Place) -> None:
    """A replica that took over knows the line, and not all who hold a slot: they have a lease to say so."""
    limit, timed = PoolLimit("p", 2), place.timed
    first, second = [await timed.admitted(ask(limit)) for _ in range(2)]
    waiter, renewed = ask(limit, wait_s=60.0), ask(limit, wait_s=60.0)
    for waits in (waiter, renewed):
        assert isinstance(await timed.admit(waits), Queued)
    await timed.replace()
    assert (await timed.gate.release(Release(first))).was_held
    await timed.gate.cancel(AdmitRequest(Plan(DOMAIN, pool=limit), holder=second.holder))
    assert renewed.holder is not None
    place_kept = Renewal(DOMAIN, limit, renewed.holder, wait_s=60.0)
    assert await timed.gate.renew([place_kept]) == [Lease.WAITING]
    assert await place.redis.zcard(place.leases(limit)) == 0
    assert await place.redis.zcard(place.alive(limit)) == 2
    assert isinstance(await timed.admit(waiter), GateRefusal)
    assert await place.redis.zcard(place.alive(limit)) == 1, "who is refused leaves nothing behind"
    timed.tick(LEASE_S)
    assert isinstance(await timed.admit(waiter), Admitted)
    assert isinstance(await timed.admit(renewed), Admitted)


@pytest.mark.parametrize("program", [None, oldest_redis()], ids=["valkey", "redis_62"])
async def test_a_full_server_and_a_replica_are_called_what_they_are(program: Path | None) -> None:
    """Whatever words the server has for it: one needs memory, the other is not the one to talk to."""
    with own_valkey(program=program) as primary, own_valkey(program=program) as server:
        place = Place(server.url)
        link = RedisConnection(Secret(server.url))
        await server.tell("CONFIG", "SET", "maxmemory", "1")
        with pytest.raises(LimiterUnavailableError, match="no memory left"):
            await place.timed.gate.admit(ask(PoolLimit("p", 1)))
        await server.tell("CONFIG", "SET", "maxmemory", "0")
        await server.tell("REPLICAOF", "127.0.0.1", primary.port)
        await link.ready()
        told = head(pinned_us=T0_US, lease_s=LEASE_S)
        (answer,) = await link.run(script("gate"), [([place.keys.marker.encode()], [told, b""])])
        assert isinstance(answer, LimiterUnavailableError)
        assert not link.is_ready, "behind the address there may be another server by now"
        await place.close()


async def test_a_server_may_be_asked_several_things_at_once(servers: Endpoints) -> None:
    """As one of a cluster is, while slots are on their way to it."""
    keys = Keyspace(f"test-{token_hex(6)}")
    terms = GateParams(keys.prefix.encode(), LEASE_S, 0, 0, 0)
    node = Node(Secret(servers.redis_url), keys.marker.encode(), terms, SystemClock())
    await node.ready()
    told = await asyncio.gather(*(node.run([ScriptRun(node.marker, 0, ())]) for _ in range(5)))
    assert told == [[[]]] * 5
    await node.close()


async def test_a_lost_cell_leaves_no_room_beyond_a_quota(place: Place) -> None:
    """The leases are there still; what they say of the quota counts."""
    pools = [PoolLimit("p", 5), PoolLimit("o", 5)]
    quotas = [QuotaLimit("t", 1), QuotaLimit("u", 2)]

    def asked(quota: QuotaLimit, limit: PoolLimit) -> AdmitRequest:
        holder = Holder(next(_ids), "process", quota=quota)
        return AdmitRequest(Plan(DOMAIN, quota=quota, pool=limit), holder=holder)

    for quota in quotas:
        await place.timed.admitted(asked(quota, pools[0]))
    await place.redis.delete(place.keys.key(KeyKind.CELL, DOMAIN))
    assert isinstance(await place.timed.admit(asked(quotas[0], pools[0])), GateRefusal)
    assert isinstance(await place.timed.admit(asked(quotas[0], pools[1])), GateRefusal)
    await place.timed.admitted(asked(quotas[1], pools[0]))
    assert isinstance(await place.timed.admit(asked(quotas[1], pools[0])), GateRefusal)


async def test_a_renewal_after_a_lost_cell_counts_for_the_quota_again(place: Place) -> None:
    pools, quota = [PoolLimit("p", 5), PoolLimit("o", 5)], QuotaLimit("t", 2)
    held, other, third = (Holder(next(_ids), "process", quota=quota) for _ in range(3))
    plans = [Plan(DOMAIN, quota=quota, pool=limit) for limit in pools]
    await place.timed.admitted(AdmitRequest(plans[0], holder=held))
    await place.redis.delete(place.keys.key(KeyKind.CELL, DOMAIN))
    await place.timed.admitted(AdmitRequest(plans[1], holder=other))
    assert await place.timed.gate.renew([Renewal(DOMAIN, pools[0], held, had_slot=True)]) == [Lease.ACTIVE]
    assert isinstance(await place.timed.admit(AdmitRequest(plans[1], holder=third)), GateRefusal)


async def test_a_lease_that_is_told_of_lives_no_longer_than_others(place: Place) -> None:
    """Its set may be a new key then."""
    pool, quota = PoolLimit("p", 5), QuotaLimit("t", 5)
    holder = Holder(next(_ids), "process", quota=quota)
    answer = await place.timed.admitted(AdmitRequest(Plan(DOMAIN, quota=quota, pool=pool), holder=holder))
    await place.timed.gate.release(Release(answer))
    adopted = Renewal(DOMAIN, pool, Holder(next(_ids), "process", quota=quota), adopt=True, had_slot=True)
    assert await place.timed.gate.renew([adopted]) == [Lease.ACTIVE]
    keys = [key async for key in place.redis.scan_iter(f"{place.keys.prefix}*")]
    assert len(keys) == 4, "marker, cell, leases and log"
    assert [key for key in keys if await place.redis.pttl(key) < 0] == []


async def test_impossible_admission_fails_alone_in_its_batch(place: Place) -> None:
    limit = BucketLimit("b", 5, 1)
    good = AdmitRequest(Plan(DOMAIN, buckets=(limit,)))
    bad = [
        good._replace(costs=(math.nan,)),
        AdmitRequest(Plan(DOMAIN, pool=PoolLimit("p", 1)), holder=Holder(1, "\udc80")),
    ]
    told = await asyncio.gather(
        *map(place.timed.gate.admit, (good, bad[0], good, bad[1], good)), return_exceptions=True
    )
    assert [isinstance(each, Admitted) for each in told] == [True, False, True, False, True]
    assert [type(told[1]), type(told[3])] == [ValueError, UnicodeEncodeError]


@pytest.mark.parametrize("tenants", [1, 500])
async def test_a_crowd_that_asks_again_costs_others_little(place: Place, tenants: int) -> None:
    """A script runs alone: 128 asks of a crowd at its quotas, behind which the slots are free."""
    limit, gate = PoolLimit("p", 10_000, lease_s=300.0), place.timed.gate
    quotas = [QuotaLimit(f"t{number}", 1) for number in range(tenants)]

    def asked(quota: QuotaLimit) -> AdmitRequest:
        holder = Holder(next(_ids), "process", quota=quota)
        return AdmitRequest(Plan(DOMAIN, quota=quota, pool=limit), holder=holder, wait_s=60.0)

    first = [asked(quota) for quota in quotas]
    assert all(isinstance(each, Admitted) for each in await asyncio.gather(*map(gate.admit, first)))
    crowd = [asked(quota) for quota in quotas for _ in range(500 // tenants)]
    assert all(isinstance(each, Queued) for each in await asyncio.gather(*map(gate.admit, crowd)))
    others = [asked(QuotaLimit(f"other{number}", 1)) for number in range(128)]
    for asks, kind in ((crowd[-128:], Queued), (others, Admitted)):
        await place.redis.config_resetstat()
        assert all(isinstance(each, kind) for each in await asyncio.gather(*map(gate.admit, asks)))
        calls = await place.redis.info("commandstats")
        looked_at = calls["cmdstat_zrange"]["calls"] if "cmdstat_zrange" in calls else 0
        assert looked_at <= 5 * 128, "the line is looked through again for each ask"
