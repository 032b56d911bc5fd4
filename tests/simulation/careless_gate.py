"""Parts of the world without a safeguard of calls: gates that count, or tell the time, as they should not."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from typing import Any

from fairlead.engine.ports import AdmitRequest, AdmitResult, GateRefusal, Lease, Renewal
from fairlead.policy.limits.breaker import Mode, Pass
from fairlead.policy.limits.bucket import Bucket
from fairlead.policy.limits.limit import MICRO, Domain, Plan, PoolLimit
from fairlead.policy.limits.pool import Pool
from fairlead.policy.limits.retry_budget import RetryBudget
from tests.simulation.providers import LITTLE
from tests.simulation.redis import SimRedis
from tests.simulation.shared_gate import SharedGate
from tests.simulation.stores import Parts
from tests.simulation.watch import Watch
from tests.simulation.world import FLEET


class FullAfterLoss(SharedGate):
    """Nothing is known, so nothing was spent."""

    def __init__(self, now_us: Callable[[], int], *, birth_us: int = 0, grants_from_us: int = 0) -> None:
        super().__init__(now_us, grants_from_us=grants_from_us)


class SlotsOfEach(SharedGate):
    """Each process counts its own calls: the fleet has as many slots as all of them together."""

    def _pool(self, domain: Domain, limit: PoolLimit) -> Pool:
        assert LITTLE.slots is not None
        return super()._pool(domain, replace(limit, capacity=LITTLE.slots * len(FLEET)))


class EverybodyProbes(SharedGate):
    """While one call decides about a breaker, so may the next."""

    def _decide_breaker(self, ask: AdmitRequest, now_us: int) -> GateRefusal | Pass | None:
        rule = ask.plan.breaker
        if rule is not None:
            key = (ask.plan.domain, rule.key)
            breaker = self._breakers.get(key)
            if breaker is not None and breaker.mode is Mode.HALF_OPEN:
                self._breakers[key] = replace(breaker, mode=Mode.OPEN, until_us=now_us)
        return super()._decide_breaker(ask, now_us)


def redis_of(gate: type[SharedGate]) -> type[SimRedis]:
    """A server that judges as *gate* does."""
    return type(gate.__name__, (SimRedis,), {"kind": gate})


class LocalGate(SharedGate):
    """Knows the wall clock of the process that asks: its server tells it (`ClockOfWhoAsks`)."""

    local_us: Callable[[], int]

    @contextmanager
    def by_local_clock(self) -> Iterator[int]:
        """What is looked up meanwhile goes by it; its time."""
        shared, self._now_us = self._now_us, self.local_us
        try:
            yield self.local_us()
        finally:
            self._now_us = shared


class LeasesByLocalClock(LocalGate):
    """When a lease of a slot ends is for the clock of who asks; all else goes by the server's."""

    def _take_slot(self, ask: AdmitRequest, now_us: int) -> int | AdmitResult:
        with self.by_local_clock() as local_us:
            return super()._take_slot(ask, local_us)

    def _pool(self, domain: Domain, limit: PoolLimit) -> Pool:
        with self.by_local_clock():
            return super()._pool(domain, limit)

    def _grant_waiting(self, domain: Domain, pool: Pool) -> None:
        with self.by_local_clock():
            super()._grant_waiting(domain, pool)

    def _renew(self, renewal: Renewal) -> Lease:
        with self.by_local_clock():
            return super()._renew(renewal)


class RefillsByLocalClock(LocalGate):
    """How much has flowed into a bucket is for the clock of who asks; all else goes by the server's."""

    def _bucket(self, plan: Plan, index: int, *, full: bool = False) -> Bucket:
        with self.by_local_clock():
            return super()._bucket(plan, index, full=full)


class ClockOfWhoAsks(SimRedis):
    """Lets its gate know what time of day it is for the process that asks."""

    def __init__(self, now_us: Callable[[], int], draw: Random, watch: Watch) -> None:
        self.programs: dict[str, Any] = {}
        super().__init__(now_us, draw, watch)

    def _begun(self, state: SharedGate) -> SharedGate:
        assert isinstance(state, LocalGate)
        state.local_us = self._local_us
        return super()._begun(state)

    def _local_us(self) -> int:
        program = self.programs.get(self.asker)
        return self.time_us() + (0 if program is None else round(program.clock.wall_s * MICRO))


def by_local_clock(kind: type[LocalGate]) -> Callable[[], Parts]:
    """A store that asks each process for the time."""

    def parts() -> Parts:
        clocks: list[ClockOfWhoAsks] = []

        def redis(now_us: Callable[[], int], draw: Random, watch: Watch) -> SimRedis:
            clocks.append(type(kind.__name__, (ClockOfWhoAsks,), {"kind": kind})(now_us, draw, watch))
            return clocks[-1]

        def alter(program: Any) -> None:
            clocks[-1].programs[program.name] = program

        return Parts(redis=redis, alter=alter)

    return parts


class NoBudget(RetryBudget):
    """Every retry fits in."""

    def may_retry(self, connection: Hashable) -> bool:
        return True

    def take_retry(self, connection: Hashable, now_s: float) -> bool:
        return True


def without_a_budget(program: Any) -> None:
    """Retries of calls are not counted."""
    program.call_admitter._retries = NoBudget()
