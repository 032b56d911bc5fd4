"""Random histories of a gate: what its kinds answer to the same one, and the shortest on which they differ.

The scripts, the model in memory (LocalGate) and the simulation's server are driven side by side. Where all
that is known gets lost the model has no say: one process knows nothing of that. A history is data, so it can be
cut down and printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from secrets import token_hex
from typing import NamedTuple

from fairlead.adapters.redis.redis_gate import RedisGate
from fairlead.engine.ports import (
    AdmitRequest,
    Admitted,
    GateRefusal,
    Observation,
    Queued,
    Release,
    Renewal,
)
from fairlead.policy.limits.breaker import DestinationHealth
from fairlead.policy.limits.limit import BreakerRule, BucketLimit, Domain, Plan, PoolLimit, QuotaLimit
from fairlead.policy.limits.pool import Holder
from tests.contract.gates import Timed, local_gate, redis_gate, simulated_gate
from tests.simulation.shared_gate import SharedGate

DOMAIN = Domain(("tenant", "a"))
FAST = BucketLimit("fast", 10, 7.3)
SLOW = BucketLimit("slow", 100, 1 / 3)
POOL = PoolLimit("pool", 2, lease_s=3, claim_s=1, max_wait_s=5, max_waiters=4)
CLASSES = PoolLimit(
    "classes", 3, lease_s=3, claim_s=1, max_wait_s=5, max_waiters=6, classes=3, minimum={1: 1, 3: 1}
)
WIDE = replace(POOL, key="wide", capacity=5)
QUOTA, OTHER = QuotaLimit("t", 2), QuotaLimit("u", 1)
RULE = BreakerRule("host", failures=3, least=6, open_s=2, open_max_s=9, ramp_s=3)
PLANS = (
    Plan(DOMAIN, buckets=(FAST,)),
    Plan(DOMAIN, buckets=(FAST, SLOW)),
    Plan(DOMAIN, pool=POOL),
    Plan(DOMAIN, pool=CLASSES, quota=QUOTA),
    Plan(DOMAIN, quota=QUOTA, pool=WIDE, buckets=(FAST,)),
    Plan(DOMAIN, breaker=RULE),
    Plan(DOMAIN, breaker=RULE, quota=QUOTA, pool=POOL, buckets=(FAST, SLOW)),
    Plan(DOMAIN, pool=replace(POOL, capacity=1, version=2), buckets=(replace(FAST, capacity=4, version=2),)),
    Plan(DOMAIN, pool=replace(POOL, capacity=4, version=3), buckets=(replace(FAST, capacity=20, version=3),)),
)
OF_TENANT = Plan(DOMAIN, quota=QUOTA, pool=WIDE, buckets=(FAST,))
WORLDS = (
    PLANS,
    (OF_TENANT,),
    (OF_TENANT, OF_TENANT, OF_TENANT, Plan(DOMAIN, pool=WIDE)),
    (OF_TENANT, OF_TENANT, OF_TENANT, Plan(DOMAIN, quota=OTHER, pool=WIDE)),
    (OF_TENANT, OF_TENANT, OF_TENANT, Plan(DOMAIN, quota=QUOTA, pool=POOL)),
    (OF_TENANT, Plan(DOMAIN, quota=OTHER, pool=POOL), Plan(DOMAIN, quota=OTHER, pool=CLASSES)),
)
"""What one history asks for."""
PAUSES_S = (0.000_001, 0.01, 0.137, 0.5, 1.0, 2.9, 3.0, 6.0, 40.0)
COSTS = (0.001, 0.5, 1.0, 3.0, 9.999, 15.0)
NUMBERS = (0.0, 0.4, 2.0, 8.5, 30.0)
BUSY = 8
"""Of so many latest asks one is taken up again."""


class Pass(NamedTuple):
    """Time passes."""

    seconds: float


class AskFor(NamedTuple):
    """The ask of this number is made."""

    number: int
    ask: AdmitRequest


class Again(NamedTuple):
    """It is made once more."""

    number: int


class GiveUp(NamedTuple):
    """It is cancelled."""

    number: int


class Renew(NamedTuple):
    """Its lease or place is renewed."""

    number: int
    held: bool


class End(NamedTuple):
    """The call that it led to ends."""

    number: int
    health: DestinationHealth
    actual: dict[int, float]
    observed: dict[int, Observation]
    reporter: int = 2


class Lose(NamedTuple):
    """All that is known is gone, so long after the step before: no server is emptied while it judges.

    *kept*: another server takes over that knows all of it, though nobody can be sure of that.
    """

    kept: bool = False
    seconds: float = 0.000_001


Step = Pass | AskFor | Again | GiveUp | Renew | End | Lose


class Difference(NamedTuple):
    """The step at which the answers differ, whose it is that differs from the script's, and both."""

    step: int
    whose: str
    other: object
    script: object


def history(random: Random, steps: int, losses: float = 0.0) -> list[Step]:
    """*steps* steps in one of the worlds; such a part of them *losses*."""
    plans = random.choice(WORLDS)
    made_steps: list[Step] = []
    admissions: list[AskFor] = []
    for _ in range(steps):
        if losses and random.random() < losses:
            made_steps.append(Lose(random.random() < 0.5))
            continue
        kind = random.random()
        if kind < 0.2:
            made_steps.append(Pass(random.choice(PAUSES_S)))
        elif kind < 0.5 or not admissions:
            admissions.append(
                AskFor(len(admissions) + 1, _ask(random, random.choice(plans), len(admissions) + 1))
            )
            made_steps.append(admissions[-1])
        else:
            made_steps.append(_follow_up(random, kind, random.choice(admissions[-BUSY:])))
    return made_steps


def _ask(random: Random, plan: Plan, number: int) -> AdmitRequest:
    classes = plan.pool.classes if plan.pool else 1
    holder = (
        Holder(number, "p1", "a", "j", random.randint(1, classes), plan.quota)
        if plan.pool is not None
        else None
    )
    return AdmitRequest(
        plan,
        tuple(random.choice(COSTS) for _ in plan.buckets),
        holder,
        waited_s=random.choice([0.0, 0.0, 2.0, 7.0]),
        wait_s=random.choice([0.0, 2.0]),
        reserve_ahead_s=random.choice([0.0, 3.0, 60.0]),
        reservation_id=10_000 + number,
        call_s=2.0,
    )


def _follow_up(random: Random, kind: float, admission: AskFor) -> Step:
    if kind < 0.62:
        return Again(admission.number)
    if kind < 0.7:
        return GiveUp(admission.number)
    if kind < 0.82:
        return Renew(admission.number, random.random() < 0.5)
    buckets = range(len(admission.ask.plan.buckets))
    actual = {index: random.choice(COSTS) for index in buckets if random.random() < 0.5}
    observed = {index: _observation(random) for index in buckets if random.random() < 0.4}
    health, reporter = random.choice(list(DestinationHealth)), random.choice((2, 2, 3))
    return End(admission.number, health, actual, observed, reporter)


def _observation(random: Random) -> Observation:
    numbers = (NUMBERS, (5.0, 40.0), (0.1, 50.0), NUMBERS, NUMBERS)
    return Observation(*(random.choice((None, *some)) for some in numbers))


class Side:
    """One gate, and the calls that it admitted."""

    def __init__(self, timed: Timed) -> None:
        self._timed = timed
        self._asks: dict[int, AdmitRequest] = {}
        self._admitted: dict[int, Admitted] = {}

    async def take(self, step: Step) -> object:
        """What the gate says to *step*; None: nothing, or nothing that counts."""
        if isinstance(step, Pass):
            return self._timed.tick(step.seconds)
        if isinstance(step, Lose):
            self._timed.tick(step.seconds)
            return await (self._timed.replace() if step.kept else self._timed.lose())
        return await self._told(step)

    async def _told(self, step: AskFor | Again | GiveUp | Renew | End) -> object:
        if isinstance(step, AskFor):
            self._asks[step.number] = step.ask
        ask = self._asks.get(step.number)
        if ask is None:
            return None
        if isinstance(step, AskFor | Again):
            answer = await self._timed.admit(ask)
            if isinstance(answer, Admitted):
                self._admitted[step.number] = answer
                return answer._replace(fence=0)  # two counters begin at two numbers
            return answer
        if isinstance(step, GiveUp):
            return await self._timed.gate.cancel(ask)
        if isinstance(step, Renew):
            if ask.plan.pool is None or ask.holder is None:
                return None
            return await self._timed.gate.renew(
                [Renewal(DOMAIN, ask.plan.pool, ask.holder, wait_s=2.0, had_slot=step.held)]
            )
        admitted = self._admitted.pop(step.number, None)
        if admitted is None:
            return None
        return await self._timed.gate.release(
            Release(admitted, step.health, step.actual, step.observed, reporter=step.reporter)
        )


def agree(script: object, other: object) -> bool:
    """Whether they say the same; for a tenant at its quota the script may have it ask again earlier."""
    if isinstance(script, Queued | GateRefusal) and type(script) is type(other):
        earlier = replace(script, retry_after_s=other.retry_after_s)
        return earlier == other and (script.retry_after_s or 0) <= (other.retry_after_s or 0)
    return script == other


async def difference(
    url: str, steps: Sequence[Step], simulated: type[SharedGate] = SharedGate
) -> Difference | None:
    """Return where the script on the server at *url* and one of the others first differ."""
    scripted = redis_gate(url, f"history-{token_hex(6)}")
    script, others = Side(scripted), {"simulation": Side(simulated_gate(simulated))}
    if not any(isinstance(step, Lose) for step in steps):
        others["model"] = Side(local_gate())
    try:
        for number, step in enumerate(steps):
            answer = await script.take(step)
            for side_name, side in others.items():
                if not agree(answer, other := await side.take(step)):
                    return Difference(number, side_name, other, answer)
    finally:
        assert isinstance(scripted.gate, RedisGate)
        await scripted.gate.close()
    return None
