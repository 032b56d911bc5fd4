"""fairlead's gate as a side: `RedisGate` with default settings, and the plans that it is measured with.

``options["plan"]`` is ``bucket`` (one bucket: admit), ``full`` (breaker, tenant quota, slot and two buckets:
admit; admissions end between the laps) or ``pair`` (the same, and each ends at once as healthy; the pair
counts as one).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

from bench.gate_sides import PLENTY, Decide, must
from fairlead._core.secret import Secret
from fairlead.adapters.local.system import SystemClock
from fairlead.adapters.redis.redis_gate import RedisGate
from fairlead.engine.ports import AdmitRequest, Admitted, Release
from fairlead.policy.limits.breaker import DestinationHealth
from fairlead.policy.limits.limit import (
    MAX_SLOTS,
    BreakerRule,
    BucketLimit,
    Domain,
    Plan,
    PoolLimit,
    QuotaLimit,
)
from fairlead.policy.limits.pool import Holder

PACKAGE = None
ENDED_AT_ONCE = 1_000
SETTINGS: Mapping[str, Any] = {}


@asynccontextmanager
async def opened(url: str, options: Mapping[str, Any]) -> AsyncIterator[Decide]:
    """Yield a function that decides through a gate of a new installation, with one tenant for each key."""
    gate = RedisGate(Secret(url), clock=SystemClock(), new=True)
    make, decide = _KINDS[options["plan"]]
    yield decide(gate, [make(number) for number in range(options["keys"])])
    await gate.close()


def bucket_plan(number: int) -> Plan:
    """Return a plan of one bucket for the tenant of this number."""
    return Plan(Domain(("tenant", f"tenant-{number}")), buckets=(_plenty("requests"),))


def full_plan(number: int) -> Plan:
    """Return a plan with every kind of limit for the tenant of this number."""
    return Plan(
        Domain(("tenant", f"tenant-{number}")),
        breaker=BreakerRule("api"),
        quota=QuotaLimit("tenant", MAX_SLOTS),
        pool=PoolLimit("calls", MAX_SLOTS),
        buckets=(_plenty("points"), _plenty("requests")),
    )


def _plenty(key: str) -> BucketLimit:
    return BucketLimit(key, capacity=PLENTY, per_s=PLENTY)


def _bucket(gate: RedisGate, plans: list[Plan]) -> Decide:
    async def decide(number: int) -> float:
        must(isinstance(await gate.admit(AdmitRequest(plans[number])), Admitted), "RedisGate")
        return time.perf_counter()

    return decide


class _Full:
    """Admissions without their ends. `clear` ends them, in batches that one call of the script takes."""

    def __init__(self, gate: RedisGate, plans: list[Plan]) -> None:
        self._gate = gate
        self._plans = plans
        self._lease_ids = count(1)
        self._admitted: list[Admitted] = []

    async def __call__(self, number: int) -> float:
        plan = self._plans[number]
        answer = await self._gate.admit(AdmitRequest(plan, holder=holder_of(plan, next(self._lease_ids))))
        must(isinstance(answer, Admitted), "RedisGate")
        self._admitted.append(answer)
        return time.perf_counter()

    async def clear(self) -> None:
        while ending := self._admitted[-ENDED_AT_ONCE:]:
            del self._admitted[-ENDED_AT_ONCE:]
            ends = await asyncio.gather(
                *(self._gate.release(Release(admission, DestinationHealth.HEALTHY)) for admission in ending)
            )
            must(all(end.was_held for end in ends), "RedisGate")


def _pair(gate: RedisGate, plans: list[Plan]) -> Decide:
    lease_ids = count(1)

    async def decide(number: int) -> float:
        plan = plans[number]
        holder = holder_of(plan, next(lease_ids))
        answer = await gate.admit(AdmitRequest(plan, holder=holder))
        answered = time.perf_counter()
        must(isinstance(answer, Admitted), "RedisGate")
        must((await gate.release(Release(answer, DestinationHealth.HEALTHY))).was_held, "RedisGate")
        return answered

    return decide


_KINDS: Mapping[str, Any] = {
    "bucket": (bucket_plan, _bucket),
    "full": (full_plan, _Full),
    "pair": (full_plan, _pair),
}


def holder_of(plan: Plan, lease_id: int) -> Holder:
    """Return the holder of the slot of one call."""
    return Holder(lease_id, "bench", tenant=plan.domain.parts[1], job="job", quota=plan.quota)
