"""The fast path decides as the full path does (include/fast_path.lua).

Two gates on one server are asked the same. One writes down every event, which only the full path does;
the other does so where it has to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from random import Random
from secrets import token_hex
from typing import Any

import pytest

from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.redis.redis_gate import RedisGate
from fairlead.engine.ports import AdmitRequest, Admitted, Release
from fairlead.policy.limits.breaker import DestinationHealth
from fairlead.policy.limits.limit import BreakerRule, Domain, Plan, PoolLimit, QuotaLimit
from fairlead.policy.limits.pool import Holder
from tests.contract.gates import Timed, redis_gate
from tests.contract.histories import FAST, POOL, SLOW, WIDE

STEPS = 120
HERE, THERE = Domain(("tenant", "a")), Domain(("tenant", "b"))
CLASSES = replace(POOL, key="classes", capacity=3, classes=3, minimum={1: 1, 3: 1})
FENCED, LONG = replace(POOL, key="fenced", fencing=True), PoolLimit("long", 3, lease_s=4000, claim_s=5)
QUOTA, LARGER = QuotaLimit("t", 2), QuotaLimit("t", 3)
RULE = BreakerRule("host", failures=4, least=7, open_s=2, open_max_s=9, ramp_s=3)
PLANS = (
    Plan(HERE, buckets=(FAST,)),
    Plan(HERE, buckets=(FAST, SLOW)),
    Plan(HERE, pool=POOL),
    Plan(HERE, pool=CLASSES, quota=QUOTA),
    Plan(HERE, quota=QUOTA, pool=WIDE, buckets=(FAST,)),
    Plan(HERE, quota=LARGER, pool=WIDE),
    Plan(HERE, breaker=RULE),
    Plan(HERE, breaker=RULE, quota=QUOTA, pool=POOL, buckets=(FAST, SLOW)),
    Plan(HERE, breaker=RULE, quota=LARGER, pool=LONG),
    Plan(HERE, pool=FENCED, buckets=(FAST,)),
    Plan(THERE, breaker=RULE, quota=QUOTA, pool=POOL, buckets=(FAST, SLOW)),
    Plan(THERE, pool=LONG, quota=QUOTA),
)
NEWER = (
    Plan(HERE, pool=replace(POOL, capacity=1, version=2), buckets=(replace(FAST, capacity=4, version=2),)),
    Plan(HERE, pool=replace(POOL, capacity=4, version=3), buckets=(replace(FAST, capacity=20, version=3),)),
)
PAUSES_S = [1e-6, 0.001, 0.01, 0.137, 0.5, 1, 2.9, 3, 6, 40, 700]
BACK_S = [-5, -0.5]
Act = Callable[[int, Timed], Awaitable[Any]]
"""Of a side, on its gate."""
HEALTHS = (
    [DestinationHealth.HEALTHY] * 5
    + [DestinationHealth.UNHEALTHY] * 2
    + [DestinationHealth.UNREACHED] * 3
    + [DestinationHealth.NEUTRAL]
)


class Twins:
    """Both gates, and what they admitted: the same calls, in the same places."""

    def __init__(self, url: str, random: Random) -> None:
        name = f"test-{token_hex(6)}"
        self.gates = [redis_gate(url, f"{name}-{events}", lease_s=3.0, events=events) for events in (0, 100)]
        self._random = random
        self._plans = PLANS + NEWER if random.random() < 0.5 else PLANS
        self._admitted: list[tuple[Admitted, Admitted]] = []
        self._asks: list[AdmitRequest] = []
        self._lease_ids = 0

    async def step(self) -> None:
        """Time passes; or both are asked the same, several things at once."""
        random = self._random
        if random.random() < 0.3:
            pause_s = random.choice(PAUSES_S + (BACK_S if random.random() < 0.1 else []))
            for timed in self.gates:
                timed.tick(pause_s)
            return
        acts = [self._act() for _ in range(random.choice([1, 1, 2, 5]))]
        fast, full = [
            await asyncio.gather(*(act(side, timed) for act in acts)) for side, timed in enumerate(self.gates)
        ]
        assert list(map(shown, fast)) == list(map(shown, full))
        both = zip(fast, full, strict=True)
        self._admitted += [pair for pair in both if all(isinstance(answer, Admitted) for answer in pair)]

    def _act(self) -> Act:
        random = self._random
        kind = random.random()
        if kind < 0.5 or not self._admitted:
            ask = random.choice(self._asks) if self._asks and random.random() < 0.2 else self._ask()
            return lambda side, timed: timed.gate.admit(ask)
        if kind < 0.9:
            pair = random.choice(self._admitted)
            if random.random() < 0.9:  # else it ends once more
                self._admitted.remove(pair)
            health, actual, reporter = random.choice(HEALTHS), {}, random.choice([2, 2, 2, 3])
            if pair[0].spent and random.random() < 0.2:
                actual = {0: random.choice([0.0, 1.0, 2.0])}
            return lambda side, timed: timed.gate.release(
                Release(pair[side], health, actual, reporter=reporter)
            )
        given_up = random.choice(self._asks)
        return lambda side, timed: timed.gate.cancel(given_up)

    def _ask(self) -> AdmitRequest:
        random, plan = self._random, self._random.choice(self._plans)
        self._lease_ids += 1
        number = random.randint(1, plan.pool.classes if plan.pool else 1)
        holder = Holder(self._lease_ids, "p", "a", "j", number, plan.quota) if plan.pool is not None else None
        ask = AdmitRequest(
            plan,
            tuple(random.choice([0.001, 0.5, 1, 1, 3, 9.9]) for _ in plan.buckets),
            holder,
            wait_s=random.choice([0.0, 0.0, 2.0]),
            reservation_id=random.choice([0, 0, self._lease_ids]),
            reserve_ahead_s=random.choice([0.0, 0.0, 5.0]),
            call_s=2.0,
        )
        self._asks = [*self._asks[-11:], ask]
        return ask


def shown(answer: object) -> object:
    """What must be the same. Fences only grow."""
    return (answer.probe, answer.sent, answer.spent) if isinstance(answer, Admitted) else answer


@pytest.mark.parametrize("seed", range(20))
async def test_the_fast_path_decides_as_the_full_path(servers: Endpoints, seed: int) -> None:
    twins = Twins(servers.redis_url, Random(seed))
    try:
        for _ in range(STEPS):
            await twins.step()
    finally:
        for timed in twins.gates:
            assert isinstance(timed.gate, RedisGate)
            await timed.gate.close()
