"""Parts of the world without a safeguard of calls: gates that count, or tell the time, as they should not."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from random import Random
from typing import Any

from fairlead.engine.ports.gate import Ask, GateRefusal
from fairlead.policy.gate.breaker import Mode, Pass
from fairlead.policy.gate.limit import MICRO, Domain, PoolLimit
from fairlead.policy.gate.pool import Pool
from fairlead.policy.gate.retries import RetryBudget
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

    def _judge_breaker(self, ask: Ask, now_us: int) -> GateRefusal | Pass | None:
        rule = ask.plan.breaker
        if rule is not None:
            key = (ask.plan.domain, rule.key)
            known = self._breakers.get(key)
            if known is not None and known.mode is Mode.HALF_OPEN:
                self._breakers[key] = replace(known, mode=Mode.OPEN, until_us=now_us)
        return super()._judge_breaker(ask, now_us)


def redis_of(gate: type[SharedGate]) -> type[SimRedis]:
    """A server that judges as *gate* does."""
    return type(gate.__name__, (SimRedis,), {"kind": gate})


class ClockOfWhoAsks(SimRedis):
    """Leases and refills go by the wall clock of the process that asks."""

    def __init__(self, now_us: Callable[[], int], draw: Random, watch: Watch) -> None:
        self.programs: dict[str, Any] = {}
        super().__init__(now_us, draw, watch)

    def time_us(self) -> int:
        program = self.programs.get(self.asker)
        return super().time_us() + (0 if program is None else round(program.clock.wall_s * MICRO))


def by_local_clocks() -> Parts:
    """A store that asks each process for the time."""
    made: list[ClockOfWhoAsks] = []

    def redis(now_us: Callable[[], int], draw: Random, watch: Watch) -> SimRedis:
        made.append(ClockOfWhoAsks(now_us, draw, watch))
        return made[-1]

    def alter(program: Any) -> None:
        made[-1].programs[program.name] = program

    return Parts(redis=redis, alter=alter)


class NoBudget(RetryBudget):
    """Every retry fits in."""

    def may_retry(self, connection: Hashable) -> bool:
        return True

    def takes_retry(self, connection: Hashable, now_s: float) -> bool:
        return True


def without_a_budget(program: Any) -> None:
    """Retries of calls are not counted."""
    program.entrance._retries = NoBudget()
