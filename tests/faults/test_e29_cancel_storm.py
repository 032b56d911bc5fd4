"""E29 for the gate: callers are cancelled at any moment over a slow wire, and each answer is its asker's.

Each tenant's calls cost a prime number of its own, so what an answer says was ever spent of its bucket is a
multiple of it: an answer that went to another's question shows. What a cancelled ask was granted all the same
is undone, so at the end no slot and no unit is missing.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random

import pytest

from fairlead._core.secret import Secret
from fairlead.adapters.local.system import SystemClock, SystemIds
from fairlead.adapters.redis.redis_gate import RedisGate
from fairlead.engine.ports import AdmitRequest, Admitted, GateRefusal, Release
from fairlead.policy.limits.key import Keyspace
from fairlead.policy.limits.limit import MICRO, BucketLimit, Domain, Plan, PoolLimit
from fairlead.policy.limits.pool import Holder
from tests.faults.support import gateless
from tests.faults.support.faultproxy import FaultProxy, tcp_proxy
from tests.faults.support.fleet import LEASE_S
from tests.faults.support.ground import one_server, own_ground
from tests.faults.support.report import Figures, sized

pytestmark = [pytest.mark.slow, one_server]

ASKS = sized(6_000, 100_000)
ABLATION_ASKS = 1_500
ASKERS = 48
CANCELLED = 0.3
DELAY_S = 0.002
PRIMES = (1_000_003, 1_000_033, 1_000_037, 1_000_039, 1_000_081, 1_000_099, 1_000_117, 1_000_121)
SLOTS = 20
LONG_LEASE_S = 60.0
_ids = SystemIds()


def _plan(tenant: int) -> Plan:
    """A bucket that is never empty, and a pool that is: its leases outlast the experiment."""
    return Plan(
        Domain(("tenant", str(tenant))),
        pool=PoolLimit("pool", SLOTS, lease_s=LONG_LEASE_S),
        buckets=(BucketLimit("bucket", 500_000_000, 1e-6),),
    )


@dataclass
class Storm:
    """Askers of one gate."""

    gate: RedisGate
    draw: Random
    plans: list[Plan] = field(default_factory=lambda: [_plan(tenant) for tenant in range(len(PRIMES))])
    told: Counter[str] = field(default_factory=Counter)
    answers: int = 0
    spent: Counter[int] = field(default_factory=Counter)

    async def run(self, asks: int, askers: int = ASKERS) -> None:
        """Each of *askers* asks for any tenant, again and again."""
        ask_numbers = iter(range(asks))

        async def ask_on() -> None:
            for _ in ask_numbers:
                await self._once(self.draw.randrange(len(PRIMES)))

        await asyncio.gather(*(ask_on() for _ in range(askers)))

    async def _once(self, tenant: int) -> None:
        asking = asyncio.create_task(self._ask(tenant))
        if self.draw.random() < CANCELLED:
            after_s = self.draw.uniform(0.0, 4 * DELAY_S)
            timer = asyncio.get_running_loop().call_later(after_s, asking.cancel)
            await asyncio.wait([asking])
            timer.cancel()
        else:
            await asyncio.wait([asking])
        if asking.cancelled():
            self.told["cancelled"] += 1
        elif asking.exception() is not None:
            self.told[type(asking.exception()).__name__] += 1

    async def _ask(self, tenant: int) -> None:
        plan, prime = self.plans[tenant], PRIMES[tenant]
        holder = Holder(_ids.lease_id(), "storm", str(tenant))
        answer = await self.gate.admit(AdmitRequest(plan, (prime / MICRO,), holder, existed_s=0.0))
        self.answers += 1
        if not isinstance(answer, Admitted):
            self.told["full"] += 1
            return
        self.told["admitted"] += 1
        if answer.sent[0] % prime or answer.plan is not plan:
            self.told["wrong"] += 1
        finished = asyncio.ensure_future(self.gate.release(Release(answer)))
        self.spent[tenant] += prime
        assert (await asyncio.shield(finished)).was_held

    async def left_over(self) -> tuple[int, int]:
        """Slots that cannot be had, and calls that are paid for and were not made, of all tenants."""
        missing = lost = 0
        for tenant, plan in enumerate(self.plans):
            admissions: list[Admitted] = []
            while isinstance(answer := await self.gate.admit(self._probe(plan)), Admitted):
                admissions.append(answer)
            missing += SLOTS - len(admissions)
            for admitted in admissions:
                await self.gate.release(Release(admitted))
            lost += round((await self._spent(plan) - self.spent[tenant]) / PRIMES[tenant])
        return missing, lost

    @staticmethod
    def _probe(plan: Plan) -> AdmitRequest:
        return AdmitRequest(Plan(plan.domain, pool=plan.pool), holder=Holder(_ids.lease_id(), "probe"))

    async def _spent(self, plan: Plan) -> int:
        """Micro-units of the bucket: what it lacks now; one comes back each second."""
        limit = plan.buckets[0]
        answer = await self.gate.admit(AdmitRequest(Plan(plan.domain, buckets=(limit,)), (limit.capacity,)))
        assert isinstance(answer, GateRefusal)
        assert answer.retry_after_s is not None
        return round(answer.retry_after_s)


@asynccontextmanager
async def _storm(figures: Figures) -> AsyncIterator[tuple[Storm, FaultProxy]]:
    with own_ground(figures) as valkey:
        async with tcp_proxy(valkey.url) as (proxy, url):
            proxy.delay_s = lambda: figures.draw.uniform(0.0, DELAY_S)
            gate = RedisGate(
                Secret(url), clock=SystemClock(), process="storm", keys=Keyspace("fault"), new=True,
                lease_s=LONG_LEASE_S,
            )  # fmt: skip
            yield Storm(gate, figures.draw), proxy
            proxy.delay_s = lambda: 0.0
            await gate.close()


async def _settled(storm: Storm, proxy: FaultProxy) -> tuple[int, int]:
    proxy.delay_s = lambda: 0.0
    until_s = time.monotonic() + LEASE_S
    while (leftover := await storm.left_over()) != (0, 0) and time.monotonic() < until_s:
        await asyncio.sleep(0.05)
    return leftover


async def _experiment(figures: Figures, asks: int) -> None:
    async with _storm(figures) as (storm, proxy):
        began_s = time.monotonic()
        await storm.run(asks)
        took_s = time.monotonic() - began_s
        missing, lost = await _settled(storm, proxy)
    counts = storm.told
    failed = sum(
        count for name, count in counts.items() if name not in ("cancelled", "full", "admitted", "wrong")
    )
    figures.note(n=storm.answers, asks=asks, asks_per_s=round(asks / took_s), told=dict(counts))
    figures.zero(wrong_answers=counts["wrong"], failed=failed, slots_missing=missing, calls_lost=lost)


async def test_E29_cancel_storm() -> None:
    figures = Figures("E29")
    await _experiment(figures, ASKS)
    figures.holds(figures.counters["told"]["cancelled"] > 0.05 * ASKS, "hardly any ask was cancelled")
    figures.conclude()


async def test_E29_ablation_nothing_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = Figures("E29", ablation="no_undo", sees="slots_missing")
    monkeypatch.setattr(RedisGate, "_unclaimed", gateless.leaves_it)
    await _experiment(figures, ABLATION_ASKS)
    figures.conclude()


async def test_E29_ablation_a_cancelled_read_leaves_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asks go over the connection themselves, and one that is cancelled leaves it open: the next reads on."""
    figures = Figures("E29", ablation="careless_link", sees="wrong_answers")
    counts: Counter[str] = Counter()
    for _ in range(10):  # a storm soon ends: answers that went astray leave every slot taken
        async with _storm(figures) as (storm, _):
            with monkeypatch.context() as patch:
                gateless.careless_link(patch.setattr)
                await storm.run(ABLATION_ASKS // 3, askers=2)
        counts.update(storm.told)
        if counts["wrong"] + counts["TypeError"]:  # an answer of another kind is another's answer
            break
    figures.note(n=sum(counts.values()), told=dict(counts))
    figures.zero(wrong_answers=counts["wrong"] + counts["TypeError"])
    figures.conclude()
