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


class GateStore:
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
async def store(servers: Endpoints) -> AsyncIterator[GateStore]:
    gate_store = GateStore(servers.redis_url)
    yield gate_store
    await gate_store.close()


def ask(limit: PoolLimit, **settings: Any) -> AdmitRequest:
    """One more asker."""
    return AdmitRequest(
        Plan(DOMAIN, pool=limit), holder=Holder(next(_ids), "process", "a", "job", 1), **settings
    )


async def test_dead_waiter_in_the_line_gets_no_slot(store: GateStore) -> None:
    """With two slots to give to him, the script that gives them would never end."""
    limit, timed = PoolLimit("p", 1), store.timed
    first = await timed.admitted(ask(limit))
    assert isinstance(await timed.admit(ask(limit, wait_s=3.0)), Queued)
    assert await store.redis.delete(store.alive(limit)) == 1  # as `gate clear` may between two calls
    await timed.gate.release(Release(first))
    second = await timed.admitted(ask(limit))
    waiter = ask(limit, wait_s=3.0)
    assert isinstance(await timed.admit(waiter), Queued)
    await timed.gate.release(Release(second))
    assert isinstance(await timed.admit(waiter), Admitted)


async def test_a_short_lease_shortens_no_long_one(store: GateStore) -> None:
    """The key with all leases lives as long as the last of them, whatever was granted since."""
    limit, timed = PoolLimit("p", 2, lease_s=6 * HOUR_S, claim_s=5.0), store.timed
    await timed.admitted(ask(limit))
    second = await timed.admitted(ask(limit))
    timed.tick(HOUR_S)
    assert isinstance(await timed.admit(ask(limit, wait_s=3.0)), Queued)
    await timed.gate.release(Release(second))  # his place goes to who waits, for 5 s
    assert await store.redis.pttl(store.leases(limit)) > 5 * HOUR_S * 1000


async def test_a_turn_soon_forgets_no_later_one(store: GateStore) -> None:
    """Who waits for a slow limit, too, has a turn in the fast one just as far ahead; others come between."""
    fast, slow = BucketLimit("fast", 1, 1), BucketLimit("slow", 1, 0.002)
    both, fast_only = Plan(DOMAIN, buckets=(fast, slow)), Plan(DOMAIN, buckets=(fast,))
    timed, ahead = store.timed, {"reserve_ahead_s": 900.0}
    await timed.admitted(AdmitRequest(both))
    late = AdmitRequest(both, reservation_id=1, **ahead)
    assert await timed.admit(late) == Reserved(500.0)
    assert isinstance(await timed.admit(AdmitRequest(fast_only, reservation_id=2, **ahead)), Reserved)
    turns = store.keys.key(KeyKind.BUCKET, DOMAIN, fast.key) + Part.BOOKINGS
    assert await store.redis.zcard(turns) == 2
    assert await store.redis.pttl(turns) > 500_000
    timed.tick(500)
    assert isinstance(await timed.admit(late), Admitted)


async def test_an_ask_that_a_stopping_process_gave_up_leaves_no_slot_taken(store: GateStore) -> None:
    """It was under way when its caller was cancelled: its answer comes while the gate closes."""
    limit = PoolLimit("p", 1, lease_s=HOUR_S)
    await store.timed.admitted(ask(PoolLimit("other", 1)))
    task = asyncio.create_task(store.timed.gate.admit(ask(limit)))
    await asyncio.sleep(0)  # it has asked
    task.cancel()
    assert isinstance(store.timed.gate, RedisGate)
    await store.timed.gate.close()
    assert task.cancelled()
    assert await store.redis.hexists(store.keys.key(KeyKind.CELL, DOMAIN), Keyspace.field("p", limit.key))
    assert await store.redis.zcard(store.leases(limit)) == 0


@pytest.mark.parametrize(("jump_s", "lost"), [(2 * HOUR_S, True), (600.0, False), (-2 * HOUR_S, False)])
async def test_a_clock_put_far_forward_is_a_loss(
    store: GateStore, servers: Endpoints, jump_s: float, lost: bool
) -> None:
    """Keys end with it, those of leases that others hold, too: so nobody is given a slot for a lease."""
    limit, timed = PoolLimit("p", 2), store.timed
    admitted = await timed.admitted(ask(limit))
    await timed.gate.release(Release(admitted))
    await jumps(store, servers, jump_s)
    answer = await timed.admit(ask(limit))
    assert (answer == GateRefusal(RefusedBy.RECOVERY, LEASE_S)) is lost
    assert isinstance(answer, Admitted) is not lost


async def jumps(store: GateStore, servers: Endpoints, jump_s: float) -> None:
    """The server's clock is set, and a caller is sure of it."""
    before_us = store.timed.now_us
    store.timed.tick(jump_s)
    run_id = (await store.redis.info("server"))["run_id"].encode()
    (birth_us,) = struct.unpack_from("<d", await store.redis.get(store.keys.marker))
    script_head = head(
        expected_us=before_us,
        pinned_us=store.timed.now_us,
        lease_s=LEASE_S,
        doubted_us=int(birth_us),
        run_ids=run_id,
    )
    link = RedisConnection(Secret(servers.redis_url))
    await link.run(script("gate"), [([store.keys.marker.encode()], [script_head, b""])])
    await link.disconnect()


@pytest.mark.parametrize("jump_s", [600.0, 2 * HOUR_S])
async def test_a_clock_put_forward_pays_no_debt(store: GateStore, servers: Endpoints, jump_s: float) -> None:
    """No time went by. After the jump it is paid again, and a restart later on pays what came after it."""
    plan = Plan(DOMAIN, buckets=(BucketLimit("b", 50, 1),))
    timed = store.timed
    admitted = await timed.admitted(AdmitRequest(plan, (50.0,)))
    await timed.gate.release(Release(admitted, actual={0: 90.0}))
    await jumps(store, servers, jump_s)
    assert await timed.admit(AdmitRequest(plan)) == GateRefusal(RefusedBy.BUCKET, 41.0, 0)
    timed.tick(30.0)
    assert await timed.admit(AdmitRequest(plan)) == GateRefusal(RefusedBy.BUCKET, 11.0, 0)


async def test_a_restart_after_a_clock_was_put_forward_pays_what_came_after_it(
    store: GateStore, servers: Endpoints
) -> None:
    plan = Plan(DOMAIN, buckets=(BucketLimit("b", 100, 1),))
    timed = store.timed
    admitted = await timed.admitted(AdmitRequest(plan, (100.0,)))
    await timed.gate.release(Release(admitted, actual={0: 190.0}))
    await jumps(store, servers, 600.0)
    timed.tick(LEASE_S + 20.0)
    await timed.replace()
    assert await timed.admit(AdmitRequest(plan)) == GateRefusal(RefusedBy.BUCKET, 71.0, 0)


async def test_a_debt_from_before_a_restart_is_paid_off_by_the_time_since(store: GateStore) -> None:
    plan = Plan(DOMAIN, buckets=(BucketLimit("b", 50, 1),))
    timed = store.timed
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


async def test_turns_that_were_promised_before_a_restart_are_no_debt_after_it(store: GateStore) -> None:
    """Jobs book fifteen minutes ahead: who comes back afterwards does not wait for turns of nobody."""
    plan = Plan(DOMAIN, buckets=(BucketLimit("b", 10, 1),))
    timed = store.timed
    await timed.admitted(AdmitRequest(plan, (10.0,)))
    for reservation_id in range(1, 801):
        assert isinstance(
            await timed.admit(AdmitRequest(plan, reservation_id=reservation_id, reserve_ahead_s=900.0)),
            Reserved,
        )
    timed.tick(0.001)
    await timed.replace()
    assert await timed.admit(AdmitRequest(plan)) == GateRefusal(RefusedBy.BUCKET, 1.0, 0)


async def test_after_a_loss_nobody_in_line_is_handed_what_seems_free(store: GateStore) -> None:
    """A replica that took over knows the line, and not all who hold a slot: they have a lease to say so."""
    limit, timed = PoolLimit("p", 2), store.timed
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
    assert await store.redis.zcard(store.leases(limit)) == 0
    assert await store.redis.zcard(store.alive(limit)) == 2
    assert isinstance(await timed.admit(waiter), GateRefusal)
    assert await store.redis.zcard(store.alive(limit)) == 1, "who is refused leaves nothing behind"
    timed.tick(LEASE_S)
    assert isinstance(await timed.admit(waiter), Admitted)
    assert isinstance(await timed.admit(renewed), Admitted)


@pytest.mark.parametrize("program", [None, oldest_redis()], ids=["valkey", "redis_62"])
async def test_a_full_server_and_a_replica_are_called_what_they_are(program: Path | None) -> None:
    """Whatever words the server has for it: one needs memory, the other is not the one to talk to."""
    with own_valkey(program=program) as primary, own_valkey(program=program) as server:
        store = GateStore(server.url)
        link = RedisConnection(Secret(server.url))
        await server.tell("CONFIG", "SET", "maxmemory", "1")
        with pytest.raises(LimiterUnavailableError, match="no memory left"):
            await store.timed.gate.admit(ask(PoolLimit("p", 1)))
        await server.tell("CONFIG", "SET", "maxmemory", "0")
        await server.tell("REPLICAOF", "127.0.0.1", primary.port)
        await link.ready()
        script_head = head(pinned_us=T0_US, lease_s=LEASE_S)
        (answer,) = await link.run(script("gate"), [([store.keys.marker.encode()], [script_head, b""])])
        assert isinstance(answer, LimiterUnavailableError)
        assert not link.is_ready, "behind the address there may be another server by now"
        await store.close()


async def test_a_server_may_be_asked_several_things_at_once(servers: Endpoints) -> None:
    """As one of a cluster is, while slots are on their way to it."""
    keys = Keyspace(f"test-{token_hex(6)}")
    terms = GateParams(keys.prefix.encode(), LEASE_S, 0, 0, 0)
    node = Node(Secret(servers.redis_url), keys.marker.encode(), terms, SystemClock())
    await node.ready()
    results = await asyncio.gather(*(node.run([ScriptRun(node.marker, 0, ())]) for _ in range(5)))
    assert results == [[[]]] * 5
    await node.close()


async def test_a_lost_cell_leaves_no_room_beyond_a_quota(store: GateStore) -> None:
    """The leases are there still; what they say of the quota counts."""
    pools = [PoolLimit("p", 5), PoolLimit("o", 5)]
    quotas = [QuotaLimit("t", 1), QuotaLimit("u", 2)]

    def request_of(quota: QuotaLimit, limit: PoolLimit) -> AdmitRequest:
        holder = Holder(next(_ids), "process", quota=quota)
        return AdmitRequest(Plan(DOMAIN, quota=quota, pool=limit), holder=holder)

    for quota in quotas:
        await store.timed.admitted(request_of(quota, pools[0]))
    await store.redis.delete(store.keys.key(KeyKind.CELL, DOMAIN))
    assert isinstance(await store.timed.admit(request_of(quotas[0], pools[0])), GateRefusal)
    assert isinstance(await store.timed.admit(request_of(quotas[0], pools[1])), GateRefusal)
    await store.timed.admitted(request_of(quotas[1], pools[0]))
    assert isinstance(await store.timed.admit(request_of(quotas[1], pools[0])), GateRefusal)


async def test_a_renewal_after_a_lost_cell_counts_for_the_quota_again(store: GateStore) -> None:
    pools, quota = [PoolLimit("p", 5), PoolLimit("o", 5)], QuotaLimit("t", 2)
    first, other, third = (Holder(next(_ids), "process", quota=quota) for _ in range(3))
    plans = [Plan(DOMAIN, quota=quota, pool=limit) for limit in pools]
    await store.timed.admitted(AdmitRequest(plans[0], holder=first))
    await store.redis.delete(store.keys.key(KeyKind.CELL, DOMAIN))
    await store.timed.admitted(AdmitRequest(plans[1], holder=other))
    assert await store.timed.gate.renew([Renewal(DOMAIN, pools[0], first, had_slot=True)]) == [Lease.ACTIVE]
    assert isinstance(await store.timed.admit(AdmitRequest(plans[1], holder=third)), GateRefusal)


async def test_a_lease_that_is_told_of_lives_no_longer_than_others(store: GateStore) -> None:
    """Its set may be a new key then."""
    pool, quota = PoolLimit("p", 5), QuotaLimit("t", 5)
    holder = Holder(next(_ids), "process", quota=quota)
    answer = await store.timed.admitted(AdmitRequest(Plan(DOMAIN, quota=quota, pool=pool), holder=holder))
    await store.timed.gate.release(Release(answer))
    adopted = Renewal(DOMAIN, pool, Holder(next(_ids), "process", quota=quota), adopt=True, had_slot=True)
    assert await store.timed.gate.renew([adopted]) == [Lease.ACTIVE]
    keys = [key async for key in store.redis.scan_iter(f"{store.keys.prefix}*")]
    assert len(keys) == 4, "marker, cell, leases and log"
    assert [key for key in keys if await store.redis.pttl(key) < 0] == []


async def test_impossible_admission_fails_alone_in_its_batch(store: GateStore) -> None:
    limit = BucketLimit("b", 5, 1)
    good = AdmitRequest(Plan(DOMAIN, buckets=(limit,)))
    bad = [
        good._replace(costs=(math.nan,)),
        AdmitRequest(Plan(DOMAIN, pool=PoolLimit("p", 1)), holder=Holder(1, "\udc80")),
    ]
    answers = await asyncio.gather(
        *map(store.timed.gate.admit, (good, bad[0], good, bad[1], good)), return_exceptions=True
    )
    assert [isinstance(answer, Admitted) for answer in answers] == [True, False, True, False, True]
    assert [type(answers[1]), type(answers[3])] == [ValueError, UnicodeEncodeError]


@pytest.mark.parametrize("tenants", [1, 500])
async def test_a_crowd_that_asks_again_costs_others_little(store: GateStore, tenants: int) -> None:
    """A script runs alone: 128 asks of a crowd at its quotas, behind which the slots are free."""
    limit, gate = PoolLimit("p", 10_000, lease_s=300.0), store.timed.gate
    quotas = [QuotaLimit(f"t{number}", 1) for number in range(tenants)]

    def request_of(quota: QuotaLimit) -> AdmitRequest:
        holder = Holder(next(_ids), "process", quota=quota)
        return AdmitRequest(Plan(DOMAIN, quota=quota, pool=limit), holder=holder, wait_s=60.0)

    first = [request_of(quota) for quota in quotas]
    assert all(isinstance(answer, Admitted) for answer in await asyncio.gather(*map(gate.admit, first)))
    crowd = [request_of(quota) for quota in quotas for _ in range(500 // tenants)]
    assert all(isinstance(answer, Queued) for answer in await asyncio.gather(*map(gate.admit, crowd)))
    others = [request_of(QuotaLimit(f"other{number}", 1)) for number in range(128)]
    for asks, kind in ((crowd[-128:], Queued), (others, Admitted)):
        await store.redis.config_resetstat()
        assert all(isinstance(answer, kind) for answer in await asyncio.gather(*map(gate.admit, asks)))
        calls = await store.redis.info("commandstats")
        looked_at = calls["cmdstat_zrange"]["calls"] if "cmdstat_zrange" in calls else 0
        assert looked_at <= 5 * 128, "the line is looked through again for each ask"
