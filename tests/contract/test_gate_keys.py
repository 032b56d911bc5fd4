"""The keys of a real gate on a real server: told by kind, weighed, given back; those of others left alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from secrets import token_hex
from typing import Any

import pytest
from redis.asyncio import RedisCluster

from fairlead._core.secret import Secret
from fairlead.adapters.local.system import SystemClock
from fairlead.adapters.redis.inspector import RedisInspector
from fairlead.adapters.redis.keys import RedisKeys
from fairlead.adapters.redis.redis_gate import RedisGate
from fairlead.engine.ports import (
    UNKNOWN_KIND,
    AdmitRequest,
    Admitted,
    GateRefusal,
    Lease,
    Queued,
    Renewal,
    StoredLease,
)
from fairlead.errors import LimiterUnavailableError
from fairlead.policy.limits.key import KeyKind, Keyspace, Part
from fairlead.policy.limits.limit import BreakerRule, BucketLimit, Domain, Plan, PoolLimit, QuotaLimit
from fairlead.policy.limits.pool import Holder
from tests.contract.gates import STORES, client_of, store_of
from tests.faults.support.fleet import parsed
from tests.support.pool_verdict import verify_pool_log

DOMAIN = Domain(("tenant", "beta"))  # in a cluster of three on the last, and the second is asked
POOL = PoolLimit("pool", 1, classes=2)
QUOTA = QuotaLimit("acme", 3)
PLAN = Plan(DOMAIN, quota=QUOTA, pool=POOL, buckets=(BucketLimit("calls", 10, 10),))


@dataclass
class GateStore:
    """A gate under a prefix of its own."""

    url: str
    keyspace: Keyspace
    gate: RedisGate
    keys: RedisKeys
    redis: Any

    @property
    def in_cluster(self) -> bool:
        return isinstance(self.redis, RedisCluster)

    @property
    def marker(self) -> str:
        """What vouches for the keys of DOMAIN."""
        if self.in_cluster:
            return self.keyspace.key(KeyKind.MARKER, DOMAIN)
        return self.keyspace.marker


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest) -> AsyncIterator[GateStore]:
    keyspace = Keyspace(f"keys-{token_hex(6)}")
    address = store_of(request)
    url = Secret(address)
    gate = RedisGate(url, clock=SystemClock(), keys=keyspace, new=True, events=100)
    async with client_of(request, decode_responses=True) as redis:
        gate_store = GateStore(address, keyspace, gate, RedisKeys(url, keyspace), redis)
        yield gate_store
        await gate.close()
        await gate_store.keys.clear()


def holder(number: int, priority_class: int = 1) -> Holder:
    return Holder(number, "p1", "acme", f"job-{number}", priority_class, QUOTA)


async def fill(store: GateStore) -> Admitted:
    """One holds the slot, one stands in line, one has a turn."""
    first = await store.gate.admit(AdmitRequest(PLAN, holder=holder(1)))
    assert isinstance(first, Admitted)
    assert isinstance(await store.gate.admit(AdmitRequest(PLAN, holder=holder(2, 2), wait_s=30.0)), Queued)
    bare = Plan(DOMAIN, buckets=PLAN.buckets)
    await store.gate.admit(AdmitRequest(bare, (10.0,), reserve_ahead_s=60.0, reservation_id=7))
    return first


async def test_each_kind_is_counted_and_weighed(store: GateStore) -> None:
    await fill(store)
    survey = await store.keys.survey()
    assert survey.complete
    markers = 2 if store.in_cluster else 1  # of the domain, and of its server
    assert {use.kind: use.keys for use in survey.kinds} == {
        "marker": markers, "cells": 1, "leases": 1, "lines": 1, "waiters": 1, "turns": 1, "events": 1,
    }  # fmt: skip
    weights = {use.kind: use.size_bytes for use in survey.kinds}
    assert all(size is not None and 40 < size < 20_000 for size in weights.values()), weights
    assert survey.keys == 6 + markers
    assert survey.size_bytes == sum(size or 0 for size in weights.values())
    assert survey.used_bytes > survey.size_bytes
    assert survey.no_ttl == (), "all that the gate writes ends some day"


async def test_survey_skips_keys_of_other_programs_and_reports_unknown_ones(store: GateStore) -> None:
    prefix = store.keyspace.prefix
    await store.redis.set(f"{prefix}of-somebody", "x" * 5000)
    await store.redis.set(f"other-{prefix}m", "not ours", ex=60)
    (use,) = (await store.keys.survey()).kinds
    assert (use.kind, use.keys, use.no_ttl) == (UNKNOWN_KIND, 1, 1)
    assert use.size_bytes is not None
    assert use.size_bytes > 5000
    assert await store.keys.clear() == 1
    assert await store.redis.get(f"other-{prefix}m") == "not ours"
    await store.redis.delete(f"other-{prefix}m")


async def test_the_weight_of_many_is_computed_from_a_few(store: GateStore) -> None:
    for number in range(50):
        await store.redis.hset(
            store.keyspace.key(KeyKind.CELL, Domain(("tenant", str(number)))), "b", "x" * 100
        )
    full_survey, sampled = await store.keys.survey(sample=50), await store.keys.survey(sample=5)
    assert [use.keys for use in sampled.kinds] == [50]
    assert sampled.size_bytes == pytest.approx(full_survey.size_bytes, rel=0.05)


async def test_a_look_has_a_bound_and_says_so(store: GateStore) -> None:
    async with store.redis.pipeline(transaction=False) as pipe:
        for number in range(2000):
            pipe.set(f"{store.keyspace.prefix}{number}", "")
        await pipe.execute()
    survey = await store.keys.survey(max_keys=500, sample=1)
    assert not survey.complete
    assert survey.keys_scanned == 500
    assert survey.keys < 2000


async def test_keys_that_would_stay_for_ever_are_told_and_given_an_end(store: GateStore) -> None:
    await fill(store)
    cell = store.keyspace.key(KeyKind.CELL, DOMAIN)
    await store.redis.persist(cell)
    survey = await store.keys.survey()
    assert survey.no_ttl == (cell,)
    marker_ms = await store.redis.pttl(store.marker)
    assert await store.keys.set_ttl([cell, store.marker, "gone"], 500.0) == 1
    assert 0 < await store.redis.pttl(cell) <= 500_000
    assert await store.redis.pttl(store.marker) > marker_ms - 60_000, "it had one already"


async def leases(store: GateStore) -> list[StoredLease]:
    return list((await store.keys.survey(sample=0, leases=True)).leases)


async def test_a_lease_is_told_with_its_holder(store: GateStore) -> None:
    await fill(store)
    (lease,) = await leases(store)
    assert (lease.lease_id, lease.process, lease.tenant, lease.job) == (1, "p1", "acme", "job-1")
    assert lease.key == store.keyspace.key(KeyKind.POOL, DOMAIN, "pool") + Part.LEASES
    assert 25 < lease.ends_in_s <= 30


async def test_leases_whose_ends_are_no_times_are_shown_beside_ours(store: GateStore) -> None:
    await fill(store)
    key = store.keyspace.key(KeyKind.POOL, DOMAIN, POOL.key) + Part.LEASES
    await store.redis.zadd(key, {"x": float("-inf"), "y": float("inf")})
    until_by_holder = {lease.holder: lease.until_us for lease in await leases(store)}
    assert len(until_by_holder) == 3
    assert (until_by_holder["x"], until_by_holder["y"]) == (0, 2**53)


async def test_released_slot_is_free_at_once(store: GateStore) -> None:
    first = await fill(store)
    removed = await store.keys.remove_leases(await leases(store))
    assert [lease.lease_id for lease in removed] == [1]
    assert await leases(store) == []
    # who stood in line asks again, and has the slot; the orphan's end comes too late
    assert isinstance(
        await store.gate.admit(AdmitRequest(replace(PLAN, buckets=()), holder=holder(2, 2), wait_s=30.0)),
        Admitted,
    )
    (renewed,) = await store.gate.renew([Renewal(DOMAIN, POOL, holder(1), had_slot=True)])
    assert renewed is Lease.LOST
    assert first.holder == holder(1)
    base = store.keyspace.key(KeyKind.POOL, DOMAIN, "pool")
    log = verify_pool_log([parsed(fields) for _, fields in await store.redis.xrange(base + Part.EVENTS)])
    assert not log.violation
    assert (log.granted, log.held) == (2, 1)


async def test_released_slot_frees_the_quota_of_its_tenant_in_other_pools(store: GateStore) -> None:
    quota = QuotaLimit("acme", 1)
    asks = [
        AdmitRequest(replace(PLAN, quota=quota, pool=pool), holder=Holder(number, "p1", quota=quota))
        for number, pool in enumerate((POOL, replace(POOL, key="other")))
    ]
    assert isinstance(await store.gate.admit(asks[0]), Admitted)
    assert isinstance(await store.gate.admit(asks[1]), GateRefusal)
    assert len(await store.keys.remove_leases(await leases(store))) == 1
    assert isinstance(await store.gate.admit(asks[1]), Admitted)


async def test_a_lease_that_was_renewed_since_is_left_alone(store: GateStore) -> None:
    """The safeguard: a holder that lives loses nothing to somebody who took it for dead."""
    await fill(store)
    (stored_lease,) = await leases(store)
    assert await store.gate.renew([Renewal(DOMAIN, POOL, holder(1), had_slot=True)]) == [Lease.ACTIVE]
    assert await store.keys.remove_leases([stored_lease]) == []
    assert [lease.lease_id for lease in await leases(store)] == [1]
    assert await store.keys.remove_leases([replace(stored_lease, holder=stored_lease.holder + "x")]) == []


async def test_survey_counts_recent_events_from_the_logs(store: GateStore) -> None:
    await fill(store)
    survey = await store.keys.survey(sample=0, window_s=60.0)
    assert survey.event_counts == {"grant": 1, "wait": 1}
    base = store.keyspace.key(KeyKind.POOL, DOMAIN, "pool")
    await store.redis.xadd(base + Part.EVENTS, {"k": "expire"}, id="*")
    old = (await store.redis.time())[0] * 1000 - 90_000
    key = store.keyspace.key(KeyKind.POOL, DOMAIN, "older") + Part.EVENTS
    await store.redis.xadd(key, {"k": "promote"}, id=f"{old}-0")
    assert (await store.keys.survey(window_s=60.0)).event_counts == {"grant": 1, "wait": 1, "expire": 1}
    assert (await store.keys.survey(window_s=120.0)).event_counts == {
        "grant": 1, "wait": 1, "expire": 1, "promote": 1,
    }  # fmt: skip


async def test_a_server_that_is_away_is_a_word(store: GateStore) -> None:
    nowhere = RedisKeys(Secret("redis://127.0.0.1:1/0"), store.keyspace)
    with pytest.raises(LimiterUnavailableError):
        await nowhere.survey()


# ---- what people see of one plan -----------------------------------------------------------------


async def test_a_promotion_and_a_failure_are_shown_newest_first(store: GateStore) -> None:
    rule = BreakerRule("host")
    plan = Plan(DOMAIN, breaker=rule, pool=replace(POOL, max_wait_s=0.001))
    admission = await store.gate.admit(AdmitRequest(plan, holder=holder(1)))
    assert isinstance(admission, Admitted)
    await store.gate.admit(AdmitRequest(plan, holder=holder(2, 2), waited_s=10.0, wait_s=30.0))
    (lease,) = await leases(store)
    await store.keys.remove_leases([lease])
    assert isinstance(
        await store.gate.admit(AdmitRequest(plan, holder=holder(2, 2), waited_s=10.0, wait_s=30.0)), Admitted
    )
    failures = store.keyspace.key(KeyKind.BREAKER, DOMAIN, "host") + Part.FAILURES
    now_us = int((await store.redis.time())[0]) * 1_000_000
    member = "000000000000000a\x1fp1\x1f1\x1f\x1f\x1facme\x1fjob-a"
    await store.redis.xadd(failures, {"t": now_us - 5_000_000, "h": "", "o": 0})
    await store.redis.xadd(failures, {"t": now_us - 2_000_000, "h": member, "o": 60_000_000})
    view = await RedisInspector(Secret(store.url), store.keyspace).inspect(plan)
    assert [(promotion.lease_id, promotion.priority_class) for promotion in view.promotions] == [(2, 2)]
    newest, older = view.failures
    assert (newest.process, newest.tenant, newest.job, newest.opened_s) == ("p1", "acme", "job-a", 60.0)
    assert (older.process, older.opened_s) == ("", None)
    assert 1.0 < newest.ago_s < 3.5 < older.ago_s < 7.0
    quiet = await RedisInspector(Secret(store.url), store.keyspace).inspect(plan, events=0)
    assert (quiet.promotions, quiet.failures, quiet.events) == ((), (), ())
