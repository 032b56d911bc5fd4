"""S06: whatever tenants, connections and limits are called, no two of them meet in one key."""

from __future__ import annotations

import itertools
import re
from secrets import token_hex

from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio import Redis

from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.redis.redis_gate import RedisGate
from fairlead.engine.ports import AdmitRequest, Admitted
from fairlead.policy.limits.key import KeyKind, Keyspace, digest
from fairlead.policy.limits.limit import BreakerRule, BucketLimit, Domain, Plan, PoolLimit, QuotaLimit
from fairlead.policy.limits.pool import Holder
from tests.contract.gates import redis_gate
from tests.security.figures import tell
from tests.security.vectors import ATTACKED_NAMES, V8

KEYS = Keyspace()
TEXT = st.text(st.characters(), max_size=12) | st.sampled_from(V8)
NAMES = st.lists(TEXT, min_size=1, max_size=4).map(tuple)
_OURS = re.compile(rf"{re.escape(KEYS.prefix)}\{{[\w-]{{22}}\}}:[a-z](:[\w-]{{22}})?", re.ASCII)


def test_S06_no_two_names_of_v8_meet() -> None:
    """All pairs (domain, name), so also "a:b" with "c" and "a" with "b:c"."""
    names = [name for name in V8 if len(name) < 1000]
    pairs = list(itertools.product(names, names))
    for kind in (KeyKind.BUCKET, KeyKind.POOL, KeyKind.BREAKER):
        keys = {KEYS.key(kind, Domain(("tenant", tenant)), name) for tenant, name in pairs}
        assert len(keys) == len(pairs)
        assert all(_OURS.fullmatch(key) for key in keys)
    assert len({digest(pair) for pair in pairs} | {digest([name]) for name in names}) == len(pairs) + len(
        names
    )
    tell("S06", n=len(pairs) * (len(pairs) - 1) // 2, collisions=0)


@given(NAMES, NAMES)
def test_S06_keys_are_as_different_as_their_names(first: tuple[str, ...], other: tuple[str, ...]) -> None:
    assert (digest(first) == digest(other)) is (first == other)
    keys = [KEYS.key(KeyKind.CELL, Domain(names)) for names in (first, other)]
    assert (keys[0] == keys[1]) is (first == other)
    assert all(_OURS.fullmatch(key) and key.count("{") == 1 for key in keys)


async def test_S06_every_tenant_has_keys_of_its_own_and_as_many_as_others(servers: Endpoints) -> None:
    name = f"s06-{token_hex(4)}"
    timed = redis_gate(servers.redis_url, name)
    client = Redis.from_url(servers.redis_url)
    counts = {}
    try:
        keys_seen: set[bytes] = set()
        for number, tenant in enumerate(ATTACKED_NAMES, 1):
            assert isinstance(await timed.admit(ask_of(tenant, number)), Admitted)
            keys = {key async for key in client.scan_iter(match=f"{name}*", count=1000)}
            counts[tenant] = len(keys - keys_seen)
            keys_seen |= keys
        first = counts.pop(ATTACKED_NAMES[0]) - 1  # the marker of the server came with it
        assert set(counts.values()) == {first}
        assert all(key.startswith(Keyspace(name).prefix.encode()) for key in keys_seen)
        assert not [key async for key in client.scan_iter(match="*evil*")]
    finally:
        assert isinstance(timed.gate, RedisGate)
        await timed.gate.close()
        await client.delete(*keys_seen)
        await client.aclose()


def ask_of(tenant: str, number: int) -> AdmitRequest:
    """A call with a limit of each kind, all of them called as their tenant is."""
    plan = Plan(
        Domain(("tenant", tenant)),
        buckets=(BucketLimit(tenant, 3, 1),),
        pool=PoolLimit(tenant, 2),
        quota=QuotaLimit(tenant, 2),
        breaker=BreakerRule(tenant),
    )
    return AdmitRequest(plan, holder=Holder(number, "p", tenant, "job", 1, plan.quota))
