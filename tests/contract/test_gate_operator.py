"""What people do to the store by hand, held against the scripts that everybody else uses (G12)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import count
from secrets import token_hex
from typing import Any

import pytest
from redis.asyncio import RedisCluster

from fairlead._core.secret import Secret
from fairlead.adapters.redis.admin import RedisAdmin
from fairlead.adapters.redis.inspector import RedisInspector
from fairlead.adapters.redis.redis_gate import RedisGate
from fairlead.engine.ports import AdmitRequest, Admitted, GateRefusal, Queued, RefusedBy, Release
from fairlead.errors import LimiterUnavailableError
from fairlead.policy.limits.breaker import Destination, DestinationHealth, Mode
from fairlead.policy.limits.key import LAYOUT, KeyKind, Keyspace
from fairlead.policy.limits.limit import BreakerRule, BucketLimit, Domain, Plan, PoolLimit
from fairlead.policy.limits.pool import Holder
from tests.contract.gates import STORES, Timed, client_of, redis_gate, store_of

DOMAIN = Domain(("tenant", "beta"))  # in a cluster of three on the last, and the second is asked
BROKEN = Plan(DOMAIN, breaker=BreakerRule("connection|host"))
_ids = count(1)


@dataclass
class World:
    """A gate whose clock the test sets, and the hand at its store."""

    timed: Timed
    operator: RedisAdmin
    redis: Any
    name: str
    url: str

    def marker(self, domain: Domain) -> str:
        """What vouches for the keys of *domain*."""
        keys = Keyspace(self.name)
        return keys.key(KeyKind.MARKER, domain) if isinstance(self.redis, RedisCluster) else keys.marker

    async def let_through(self) -> int:
        """How many calls the breaker lets through now, at most ten."""
        sent = 0
        while sent < 10 and isinstance(await self.timed.admit(AdmitRequest(BROKEN)), Admitted):
            sent += 1
        return sent

    async def reset(self) -> Mode:
        self.operator.pinned_us = self.timed.now_us
        return await self.operator.reset_breaker(BROKEN)


@pytest.fixture(params=STORES)
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    url, name = store_of(request), f"hand-{token_hex(6)}"
    timed, client = redis_gate(url, name), client_of(request)
    operator = RedisAdmin(Secret(url), Keyspace(name), pinned_us=timed.now_us)
    yield World(timed, operator, client, name, url)
    assert isinstance(timed.gate, RedisGate)
    await timed.gate.close()
    await client.aclose()


async def opened(timed: Timed) -> None:
    for _ in range(10):
        done = await timed.gate.release(
            Release(await timed.admitted(AdmitRequest(BROKEN)), DestinationHealth.UNHEALTHY)
        )
    assert done.opened_s == 60.0


def waiting(limit: PoolLimit, number: int = 1) -> AdmitRequest:
    return AdmitRequest(
        Plan(DOMAIN, pool=limit), holder=Holder(next(_ids), "p", "a", "job", number), wait_s=60
    )


# ---- breakers ------------------------------------------------------------------------------------


async def test_an_open_breaker_closes_and_lets_calls_back_step_by_step(world: World) -> None:
    await opened(world.timed)
    assert await world.operator.reset_breaker(BROKEN, dry_run=True) is Mode.OPEN
    assert await world.let_through() == 0
    assert await world.reset() is Mode.OPEN
    ramp = []
    for _ in range(6):
        ramp.append(await world.let_through())
        world.timed.tick(1)
    assert ramp == [2, 4, 8, 10, 10, 10]


async def test_probe_result_after_a_reset_decides_nothing(world: World) -> None:
    await opened(world.timed)
    world.timed.tick(60)
    probe = await world.timed.admitted(AdmitRequest(BROKEN))
    assert probe.probe
    assert await world.reset() is Mode.HALF_OPEN
    await world.timed.gate.release(Release(probe, DestinationHealth.UNHEALTHY))
    assert await world.let_through() == 2


async def test_breaker_opens_after_a_reset_as_for_the_first_time(world: World) -> None:
    await opened(world.timed)
    await world.reset()
    world.timed.tick(30)
    await opened(world.timed)


async def test_a_closed_breaker_stays_as_it_is(world: World) -> None:
    """Nine failures are not forgotten by a reset that has nothing to do."""
    assert await world.reset() is Mode.CLOSED
    for _ in range(9):
        await world.timed.gate.release(
            Release(await world.timed.admitted(AdmitRequest(BROKEN)), DestinationHealth.UNHEALTHY)
        )
    assert await world.reset() is Mode.CLOSED
    done = await world.timed.gate.release(
        Release(await world.timed.admitted(AdmitRequest(BROKEN)), DestinationHealth.UNHEALTHY)
    )
    assert done.opened_s == 60.0


async def test_the_cause_of_a_failure_is_shown_with_its_breaker(world: World) -> None:
    destination = Destination("stripe", "default", "a|b", "api.test")
    plan = Plan(DOMAIN, breaker=BreakerRule(destination.name))
    for cause in ("http_500", "dns"):
        admitted = await world.timed.admitted(AdmitRequest(plan))
        await world.timed.gate.release(Release(admitted, DestinationHealth.UNHEALTHY, cause=cause))
    (view,) = await RedisInspector(Secret(world.url), Keyspace(world.name)).breakers(DOMAIN, failures=9)
    assert view.destination == destination
    assert [failure.cause for failure in view.failures] == ["dns", "http_500"]


# ---- lines ---------------------------------------------------------------------------------------


async def test_promoted_waiter_gets_the_next_slot_of_any_class(world: World) -> None:
    limit = PoolLimit("p", 1, classes=3)
    holder = await world.timed.admitted(waiting(limit))
    others = [waiting(limit, number) for number in (1, 1, 3)]
    last = waiting(limit, 3)
    for ask in (*others, last):
        assert isinstance(await world.timed.admit(ask), Queued)
    assert last.holder is not None
    assert await world.operator.promote(last.plan, last.holder.lease_id, dry_run=True)
    assert await world.operator.promote(last.plan, last.holder.lease_id)
    for ask in (*others, last):  # each asks again before a slot comes free
        assert isinstance(await world.timed.admit(ask), Queued)
    await world.timed.gate.release(Release(holder))
    assert isinstance(await world.timed.admit(others[0]), Queued)
    await world.timed.admitted(last)


async def test_a_promotion_that_is_only_tried_changes_nothing(world: World) -> None:
    limit = PoolLimit("p", 1)
    holder = await world.timed.admitted(waiting(limit))
    first, last = waiting(limit), waiting(limit)
    for ask in (first, last):
        assert isinstance(await world.timed.admit(ask), Queued)
        world.timed.tick(0.1)
    assert last.holder is not None
    assert await world.operator.promote(last.plan, last.holder.lease_id, dry_run=True)
    await world.timed.gate.release(Release(holder))
    await world.timed.admitted(first)


async def test_holder_or_unknown_lease_is_not_promoted(world: World) -> None:
    limit = PoolLimit("p", 1)
    holds, stays = waiting(limit), waiting(limit)
    await world.timed.admitted(holds)
    assert isinstance(await world.timed.admit(stays), Queued)
    for ask in (holds, waiting(limit)):
        assert ask.holder is not None
        assert not await world.operator.promote(ask.plan, ask.holder.lease_id)
    assert not await world.operator.promote(BROKEN, 1)


# ---- all of it -----------------------------------------------------------------------------------


async def test_clear_deletes_ours_and_leaves_what_is_others(world: World) -> None:
    """Also what only begins alike, and what other versions and installations keep.

    Of ours stays what says that all of it is gone.
    """
    name = world.name
    other, ours = LAYOUT - 1, f"{name}{LAYOUT}"
    foreign = [name, f"{name}:x", ours, f"{ours}1:m", f"{name}{other}:m", f"x{ours}:m", f"{ours[:-2]}1:m"]
    for key in foreign:
        await world.redis.set(key, "theirs")
    limit, bucket = PoolLimit("p", 1), BucketLimit("b", 5, 1)
    domains = [Domain(("tenant", str(number))) for number in range(12)]  # they lie on every server
    for domain in domains:
        plan = Plan(domain, breaker=BROKEN.breaker, pool=limit, buckets=(bucket,))
        await world.timed.admitted(AdmitRequest(plan, holder=Holder(next(_ids), "p")))
    stay = {world.marker(domain) for domain in domains}
    key_names = {key.decode() async for key in world.redis.scan_iter(f"{ours}:*")}
    mine = key_names - stay
    assert len(mine) >= 2 * len(domains)
    assert stay < key_names
    assert await world.operator.clear(dry_run=True) == len(mine)
    assert await world.redis.exists(*mine) == len(mine)
    assert await world.operator.clear() == len(mine)
    assert await world.redis.exists(*mine) == 0
    assert await world.redis.exists(*stay) == len(stay)
    assert await world.operator.clear(dry_run=True) == 0
    assert await world.redis.exists(*foreign) == len(foreign)
    await world.redis.delete(*foreign)


async def test_more_than_a_page_is_cleared(world: World) -> None:
    async with world.redis.pipeline() as many:
        for number in range(3_500):
            many.set(f"{world.name}{LAYOUT}:{{d}}:c{number}", "x")
        await many.execute()
    assert await world.operator.clear() == 3_500


async def test_after_it_was_cleared_nobody_gets_more_than_the_limits_allow(world: World) -> None:
    """Slots once every old lease must have ended, buckets from empty; who holds a slot has it back."""
    limit, bucket = PoolLimit("p", 1), BucketLimit("b", 5, 1)
    await world.timed.admitted(waiting(limit))
    assert await world.operator.clear() > 0
    admission = await world.timed.admit(AdmitRequest(Plan(DOMAIN, buckets=(bucket,))))
    assert admission == GateRefusal(RefusedBy.BUCKET, 1.0, 0)
    assert await world.timed.admit(
        AdmitRequest(Plan(DOMAIN, pool=limit), holder=Holder(next(_ids), "p"))
    ) == GateRefusal(RefusedBy.RECOVERY, 30.0)
    world.timed.tick(30)
    await world.timed.admitted(waiting(limit))


async def test_a_marker_that_is_nonsense_is_a_loss(world: World) -> None:
    limit, marker = PoolLimit("p", 1), world.marker(DOMAIN)
    await world.timed.admitted(waiting(limit))
    await world.redis.delete(marker)
    await world.redis.hset(marker, "not", "ours")
    request = AdmitRequest(Plan(DOMAIN, pool=limit), holder=Holder(next(_ids), "p"))
    assert await world.timed.admit(request) == GateRefusal(RefusedBy.RECOVERY, 30.0)


async def test_a_process_that_has_not_met_a_domain_learns_that_it_was_cleared(world: World) -> None:
    """It knows the server since long, and must not take what was deleted there for what never was."""
    other = redis_gate(world.url, world.name)
    assert isinstance(other.gate, RedisGate)
    await other.gate.ping()
    limit, bucket = PoolLimit("p", 1), BucketLimit("b", 5, 1)
    await world.timed.admitted(waiting(limit))
    assert await world.operator.clear() > 0
    request = AdmitRequest(Plan(DOMAIN, pool=limit), holder=Holder(next(_ids), "p"))
    assert await other.admit(request) == GateRefusal(RefusedBy.RECOVERY, 30.0)
    assert isinstance(await other.admit(AdmitRequest(Plan(DOMAIN, buckets=(bucket,)))), GateRefusal)
    await other.gate.close()


async def test_a_store_that_is_away_is_told() -> None:
    operator = RedisAdmin(Secret("redis://127.0.0.1:1/0"), Keyspace("away"))
    for operation in (
        operator.clear(),
        operator.reset_breaker(BROKEN),
        operator.promote(waiting(PoolLimit("p", 1)).plan, 1),
    ):
        with pytest.raises(LimiterUnavailableError):
            await operation
