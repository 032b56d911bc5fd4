"""Who is held up on the way changes nothing for the others; a server's clock that is set does (E20)."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from secrets import token_hex
from typing import Any

import pytest
from redis.asyncio import Redis

from fairlead._core.secret import Secret
from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.local.system import SystemClock
from fairlead.adapters.redis.codec import Codec, add_arguments, head, read_stamp
from fairlead.adapters.redis.connection import RedisConnection
from fairlead.adapters.redis.redis_gate import RedisGate
from fairlead.adapters.redis.scripts import script
from fairlead.engine.ports import AdmitRequest, Admitted, GateRefusal, Queued, RefusedBy, Release
from fairlead.policy.limits.key import KeyKind, Keyspace, Part
from fairlead.policy.limits.limit import MICRO, BucketLimit, Domain, Plan, PoolLimit, QuotaLimit
from fairlead.policy.limits.pool import Holder
from fairlead.testing._kit.clock import ManualClock
from tests.contract.gates import Timed, redis_gate
from tests.faults.support.faultproxy import tcp_proxy
from tests.faults.support.valkey import own_valkey

DOMAIN = Domain(("tenant", "a"))
BUCKET = Plan(DOMAIN, buckets=(BucketLimit("b", 10, 1 / 8640),))  # ten a day
LEASE_S = 30.0
POOL = PoolLimit("p", 1, lease_s=LEASE_S)
LATE_S = 3.0
_ids = count(1)


def ask(wait_s: float = 0.0) -> AdmitRequest:
    """One more who wants the slot."""
    return AdmitRequest(Plan(DOMAIN, pool=POOL), holder=Holder(next(_ids), "p", "a", "job", 1), wait_s=wait_s)


class GateStore:
    """A gate whose clock the test sets, and what another process sends to the same server."""

    def __init__(self, url: str) -> None:
        self.keys = Keyspace(f"test-{token_hex(6)}")
        self.timed: Timed = redis_gate(url, self.keys.name)
        self.redis: Any = Redis.from_url(url)
        self._link = RedisConnection(Secret(url))

    async def close(self) -> None:
        assert isinstance(self.timed.gate, RedisGate)
        await self.timed.gate.close()
        await self._link.disconnect()
        await self.redis.aclose()

    def of_pool(self, part: Part) -> str:
        """A key of the pool."""
        return self.keys.key(KeyKind.POOL, DOMAIN, POOL.key) + part

    async def marker(self) -> tuple[float, float, float]:
        """Its birth, since when slots are granted, and since when leases are reaped."""
        marker: tuple[float, float, float] = struct.unpack_from(
            "<ddd", await self.redis.get(self.keys.marker)
        )
        return marker

    async def other(
        self, expected_us: int, *asks: AdmitRequest, doubted_us: int = 0, known_s: float = 0.0
    ) -> Any:
        """What the script tells a process that thinks it is *expected_us*, and has done so for *known_s*."""
        run_id = (await self.redis.info("server"))["run_id"].encode()
        start = head(
            expected_us=expected_us,
            pinned_us=self.timed.now_us,
            lease_s=LEASE_S,
            doubted_us=doubted_us,
            known_us=round(known_s * MICRO),
            run_ids=run_id,
        )
        keys, args = [self.keys.marker.encode()], [start, self.keys.prefix.encode()]
        add_arguments([Codec(self.keys).pack(request) for request in asks], keys, args)
        (reply,) = await self._link.run(script("gate"), [(keys, args)])
        return reply

    async def late(self) -> None:
        """A batch of another process is here, three seconds after it was sent."""
        reply = await self.other(self.timed.now_us - round(LATE_S * MICRO), AdmitRequest(BUCKET))
        assert isinstance(reply, bytes), "it was done all the same"
        assert read_stamp(reply) == (self.timed.now_us, (await self.marker())[0])


@pytest.fixture
async def store(servers: Endpoints) -> AsyncIterator[GateStore]:
    gate_store = GateStore(servers.redis_url)
    yield gate_store
    await gate_store.close()


async def test_delayed_batch_leaves_all_buckets_unchanged(store: GateStore) -> None:
    """A limit by the day without feedback would take a day to fill up again."""
    timed = store.timed
    await timed.admitted(AdmitRequest(BUCKET, (4.0,)))
    marker_before = await store.marker()
    await store.late()
    assert await store.marker() == marker_before
    await timed.admitted(AdmitRequest(BUCKET, (6.0,)))
    assert isinstance(await timed.admit(AdmitRequest(BUCKET)), GateRefusal)


@pytest.mark.parametrize("held_up_at_s", [[0.0], [29.0], [5.0 * times for times in range(6)]])
async def test_slots_of_the_dead_come_back_whoever_is_held_up(
    store: GateStore, held_up_at_s: Sequence[float]
) -> None:
    timed = store.timed
    await timed.admitted(ask())
    began_us = timed.now_us
    for at_s in held_up_at_s:
        timed.tick(began_us / MICRO + at_s - timed.now_us / MICRO)
        await store.late()
    timed.tick(began_us / MICRO + LEASE_S + 1 - timed.now_us / MICRO)
    await store.late()
    await timed.admitted(ask())


async def test_expired_waiter_blocks_no_other_call(store: GateStore) -> None:
    timed = store.timed
    admitted = await timed.admitted(ask())
    assert isinstance(await timed.admit(ask(wait_s=3.0)), Queued)
    timed.tick(4.0)
    await store.late()
    assert isinstance(await timed.admit(ask(wait_s=3.0)), Queued)
    await timed.gate.release(Release(admitted))
    assert await store.redis.zcard(store.of_pool(Part.ALIVE)) == 0
    assert await store.redis.zcard(store.of_pool(Part.LEASES)) == 1, "the slot is the living one's"


@pytest.mark.parametrize("jump_s", [600.0, -600.0])
async def test_clock_change_is_recorded_once_for_all_processes(store: GateStore, jump_s: float) -> None:
    """Nobody's lease is ended early; the next who finds it out changes nothing more."""
    timed = store.timed
    admitted = await timed.admitted(ask())
    await timed.admitted(AdmitRequest(BUCKET, (10.0,)))
    before_us = timed.now_us
    (birth_us, _, _) = await store.marker()
    timed.tick(jump_s)
    assert isinstance(await store.other(before_us, AdmitRequest(BUCKET)), bytes)
    assert (await store.marker())[0] == birth_us
    answer = await store.other(before_us, AdmitRequest(BUCKET), doubted_us=int(birth_us))
    assert read_stamp(answer[0]) == (timed.now_us, timed.now_us)
    marker = await store.marker()
    assert marker == (timed.now_us, marker[1], timed.now_us + LEASE_S * MICRO)
    assert isinstance(await timed.admit(ask()), GateRefusal), "a slot was given twice"
    assert isinstance(await timed.admit(AdmitRequest(BUCKET)), GateRefusal), (
        "time that did not pass filled a bucket"
    )
    timed.tick(1.0)
    assert len(await store.other(before_us, AdmitRequest(BUCKET), doubted_us=int(birth_us))) == 2
    assert await store.marker() == marker
    assert (await timed.gate.release(Release(admitted))).was_held


async def test_a_quota_is_free_a_lease_after_the_clock_was_set_back(store: GateStore) -> None:
    """Its holder is dead; what was counted by the clock as it was ends with the lease that was cut."""
    timed, quota = store.timed, QuotaLimit("t", 1)

    def of_tenant(pool: str) -> AdmitRequest:
        limit = PoolLimit(pool, 5, lease_s=LEASE_S)
        return AdmitRequest(
            Plan(DOMAIN, quota=quota, pool=limit), holder=Holder(next(_ids), "p", "a", "job", 1, quota)
        )

    await timed.admitted(of_tenant("p"))
    before_us = timed.now_us
    timed.tick(-600.0)
    assert await accused(store, before_us)
    assert isinstance(await timed.admit(of_tenant("p")), GateRefusal)
    timed.tick(LEASE_S + 1)
    await timed.admitted(of_tenant("other"))


async def accused(store: GateStore, expected_us: int) -> bool:
    """Somebody is sure that the clock was set: whether that moves the marker."""
    (birth_us, _, _) = await store.marker()
    answer = await store.other(expected_us, AdmitRequest(BUCKET), doubted_us=int(birth_us))
    assert isinstance(answer, list), "it was not done"
    return (await store.marker())[0] != birth_us


@pytest.mark.parametrize(("known_s", "moves"), [(60.0, False), (59.0, True)])
async def test_a_machine_that_was_paused_empties_no_buckets_where_others_were_awake(
    store: GateStore, known_s: float, moves: bool
) -> None:
    """Its own clock stood still: it cannot know, but they do who have known the time for long."""
    timed = store.timed
    await timed.admitted(AdmitRequest(BUCKET, (2.0,)))
    paused_us = timed.now_us
    timed.tick(3000.0)
    await store.other(timed.now_us, known_s=known_s)
    timed.tick(1.0)
    assert await accused(store, paused_us) is moves
    assert isinstance(await timed.admit(AdmitRequest(BUCKET, (7.0,))), GateRefusal) is moves


async def test_offset_from_before_a_clock_change_confirms_nothing_after_it(store: GateStore) -> None:
    """Nor is who has the time from the clock as it is now; back and forth, each jump is found."""
    timed = store.timed
    await timed.admitted(AdmitRequest(BUCKET))
    for jump_s in (600.0, -600.0, 600.0):
        await store.other(timed.now_us, known_s=3600.0)
        before_us = timed.now_us + MICRO
        timed.tick(1.0 + jump_s)
        await store.other(timed.now_us, known_s=1.0)
        assert await accused(store, before_us)


# ---- the same through a gate, on the server's own clock --------------------------------------------


@pytest.fixture
async def gate(servers: Endpoints) -> AsyncIterator[RedisGate]:
    gate = RedisGate(
        Secret(servers.redis_url), clock=ManualClock(), keys=Keyspace(f"t{token_hex(6)}"), new=True
    )
    await gate.admit(AdmitRequest(BUCKET, (4.0,)))
    yield gate
    await gate.close()


@contextmanager
def held_up(gate: RedisGate, late_s: float) -> Iterator[None]:
    """The next batch is so long under way, and what it meets is the server's clock by then."""
    node, clock = gate._seed, gate._clock
    link = node._idle[-1]
    run = link.run
    assert isinstance(clock, ManualClock)
    assert node._offset_us is not None
    node._offset_us -= late_s * MICRO

    async def late(*args: Any, **how: Any) -> Any:
        results = await run(*args, **how)
        link.run = run  # type: ignore[method-assign]
        await clock.advance(late_s)
        return results

    link.run = late  # type: ignore[method-assign]
    yield
    assert link.run is run


async def test_ends_and_asks_of_a_batch_that_was_held_up_are_done_when_it_is_sent_again(
    gate: RedisGate,
) -> None:
    admission = await gate.admit(ask())
    assert isinstance(admission, Admitted)
    birth_us = gate._seed.birth_us
    with held_up(gate, LATE_S):
        finished, again, spent = await asyncio.gather(
            gate.release(Release(admission)), gate.admit(ask()), gate.admit(AdmitRequest(BUCKET, (6.0,)))
        )
    assert finished.was_held
    assert isinstance(again, Admitted)
    assert isinstance(spent, Admitted)
    assert spent.sent == (10 * MICRO,), "it was done twice"
    assert gate._seed.birth_us == birth_us


async def test_a_clock_that_was_set_costs_nobody_an_answer(gate: RedisGate, servers: Endpoints) -> None:
    admission = await gate.admit(ask())
    assert isinstance(admission, Admitted)
    node = gate._seed
    assert node._offset_us is not None
    node._offset_us -= 600 * MICRO
    birth_us = node.birth_us
    refused, waits = await asyncio.gather(gate.admit(AdmitRequest(BUCKET)), gate.admit(ask()))
    assert isinstance(refused, GateRefusal)
    assert refused.by is RefusedBy.BUCKET
    assert isinstance(waits, GateRefusal)
    assert waits.by is RefusedBy.SLOT
    assert node.birth_us > birth_us
    assert (await gate.release(Release(admission))).was_held
    assert isinstance(await gate.admit(ask()), Admitted)


@pytest.mark.slow
async def test_a_network_that_stood_still_for_two_seconds_costs_its_own_process_alone() -> None:
    keys, spends = Keyspace(), AdmitRequest(BUCKET, (2.0,))
    with own_valkey() as valkey:
        async with tcp_proxy(valkey.url) as (wire, url):
            steady, stalled = (
                RedisGate(Secret(address), clock=SystemClock(), keys=keys, new=True)
                for address in (valkey.url, url)
            )
            try:
                assert isinstance(await steady.admit(spends), Admitted)
                assert isinstance(await stalled.admit(spends), Admitted)
                wire.stall()
                task = asyncio.create_task(stalled.admit(spends))
                await asyncio.sleep(LATE_S)
                wire.heal()
                assert isinstance(await task, Admitted)
                assert isinstance(await steady.admit(AdmitRequest(BUCKET, (4.0,))), Admitted)
                assert isinstance(await steady.admit(AdmitRequest(BUCKET)), GateRefusal)
            finally:
                await steady.close()
                await stalled.close()
