"""Bulk operations after a loss of Redis: nobody new for a lease, and tokens have their places (R23)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from secrets import token_hex

import pytest
from redis.asyncio import Redis

from fairlead._core.secret import Secret
from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.redis.data_loss import RedisDataLoss
from fairlead.adapters.redis.redis_gate import RedisGate
from fairlead.engine.limits.bulk_slots import BulkRequest
from fairlead.engine.ports import AdmitRequest, GateRefusal, RefusedBy
from fairlead.errors import SlotLostError
from fairlead.policy.limits.key import Keyspace
from fairlead.policy.limits.pool import Holder
from fairlead.testing._kit.clock import ManualClock
from tests.contract.bulk import LEASE_S, PLANS, RUNNING, SHOP, Fleet
from tests.contract.gates import redis_gate


@dataclass
class Emptied(Fleet):
    """A fleet on a server that can lose everything."""

    url: str = ""
    prefix: str = ""

    async def lose_everything(self) -> None:
        async with Redis.from_url(self.url) as server:
            await server.delete(*[key async for key in server.scan_iter(f"{Keyspace(self.prefix).prefix}*")])


@pytest.fixture
async def emptied(servers: Endpoints) -> AsyncIterator[Emptied]:
    prefix = f"test-{token_hex(6)}"
    timed = redis_gate(servers.redis_url, prefix)
    losses = RedisDataLoss(Secret(servers.redis_url), Keyspace(prefix))
    yield Emptied(timed, ManualClock(start=1000.0), losses, servers.redis_url, prefix)
    assert isinstance(timed.gate, RedisGate)
    await timed.gate.close()


async def test_a_block_is_there_again_before_a_server_that_lost_all_grants_slots(emptied: Emptied) -> None:
    """Its lease is ten minutes, the server waits for thirty seconds: so it is renewed every ten (R23)."""
    holder = emptied.process("p1")
    plan = PLANS.bulk(await holder.connection(SHOP), "query", "2025-10").plan
    request = AdmitRequest(plan, holder=Holder(1, "somebody"))
    async with holder.bulks.enter(BulkRequest(SHOP, "query", "2025-10")):
        await emptied.lose_everything()
        answer = await emptied.timed.admit(request)
        assert isinstance(answer, GateRefusal)
        assert answer.by is RefusedBy.RECOVERY
        for _ in range(4):
            await emptied.tick(10)
            await holder.renewer.beat()
        answer = await emptied.timed.admit(request)
        assert isinstance(answer, GateRefusal)
        assert answer.by is RefusedBy.SLOT


async def test_after_a_loss_no_place_is_new_for_a_lease_and_tokens_have_theirs_again(
    emptied: Emptied,
) -> None:
    """The server itself grants slots after thirty seconds; a place that nobody renews now lasts longer."""
    first, other = emptied.process("p1"), emptied.process("p2")
    token = await first.begin()
    await emptied.lose_everything()
    assert not await other.is_free(), "the server does not grant yet"
    await emptied.tick(60)
    assert not await other.is_free(), "whose it is cannot be known yet"
    await emptied.tick(300)
    assert await first.come_back(token) == RUNNING, "the place is his again"
    await emptied.tick(LEASE_S - 1)
    assert not await other.is_free(), "and is taken as before"
    assert await first.come_back(token, done=True) == RUNNING
    assert await other.is_free()


async def test_a_loss_long_ago_makes_no_stale_token_good(emptied: Emptied) -> None:
    first, other = emptied.process("p1"), emptied.process("p2")
    old = await first.begin()
    await emptied.lose_everything()
    assert not await other.is_free()
    await emptied.tick(LEASE_S + 31)
    assert await other.is_free()
    with pytest.raises(SlotLostError):
        await first.come_back(old)
