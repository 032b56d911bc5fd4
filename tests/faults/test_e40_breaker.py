"""E40: an API flaps, dies, half returns and is well again, and three processes call it all the time (G6).

While it is dead one request at a time looks whether it lives, of all processes together. What the same
connection calls at another host, and what another connection calls at the same one, is not touched by it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from secrets import token_hex
from typing import Any

import pytest

from fairlead.adapters.embedded import Endpoints
from fairlead.testing.api.ledger import Arrival
from fairlead.testing.api.stripe import StripeApi
from tests.faults.support.child import Child
from tests.faults.support.report import Figures, sized
from tests.faults.support.stage import Stage, until

pytestmark = pytest.mark.slow

PROCESSES = 3
EVERY_S, DEADLINE_S, PATIENCE_S = 0.1, 1.0, 20.0
OPEN_S, PROBE_S = 0.1, 0.3  # a probe takes so long: another beside it would show
PHASE_S, PROBES = sized((2.0, 2), (20.0, 3))
BACK_S = sized(20.0, 60.0)
SICK, OTHER_HOST, OTHER_TENANT = "sick", "other host", "other tenant"
OVERLAY = {
    "allow_http": True,
    "apis": {"rest": {"url": "http://localhost/v1"}},
    "hosts": ["127.0.0.1", "localhost"],
}
WIDE = {"calls": {"requests": {"capacity": 10_000.0, "per_s": 10_000.0}}, "breaker_open_s": OPEN_S}


def _api() -> StripeApi:
    return StripeApi(per_s=1e6, endpoint_per_s=1e6)


def most_at_once(arrivals: Sequence[Arrival]) -> int:
    """The most of them that were served at one time."""
    ends = [(one.ended_s or float("inf"), -1) for one in arrivals]
    most = now = 0
    for _, step in sorted([*((one.begun_s, 1) for one in arrivals), *ends]):
        now += step
        most = max(most, now)
    return most


class _Street:
    """Three processes, an API that falls ill, and one that is well."""

    def __init__(self, stage: Stage, figures: Figures, sick: StripeApi, well: StripeApi) -> None:
        self.stage, self.figures, self.sick, self.well = stage, figures, sick, well
        self.children: list[Child] = []

    async def open(self, redis_url: str, *, alone: bool) -> None:
        """*alone*: each process has a gate of its own."""
        here, there = f"{self.well.url}/acme/v1/charges", self.well.url.replace("127.0.0.1", "localhost")
        targets: list[dict[str, Any]] = [
            {"name": SICK, "tenant": "acme", "url": f"{self.sick.url}/acme/v1/charges"},
            {"name": OTHER_HOST, "tenant": "acme", "url": f"{there}/acme/v1/charges"},
            {"name": OTHER_TENANT, "tenant": "beta", "url": here},
        ]
        for target in targets:  # those that are well have time: a busy machine is no violation
            target["deadline_s"] = DEADLINE_S if target["name"] == SICK else PATIENCE_S
        order: dict[str, Any] = {
            "child": "client",
            "overlays": {"stripe": OVERLAY},
            "targets": [{"provider": "stripe", **target} for target in targets],
            "every_s": EVERY_S,
        }
        prefix = f"e40-{token_hex(4)}"
        for number in range(PROCESSES):
            name = f"{prefix}-{number}" if alone else prefix
            self.children.append(await self.stage.born(**order, redis={"url": redis_url, "prefix": name}))
        who = [{"tenant": tenant, "provider": "stripe", "api_key": "sk_1"} for tenant in ("acme", "beta")]
        await self.children[0].ask("connect", connections=[{**one, "settings": WIDE} for one in who])
        await asyncio.gather(*(child.ask("run") for child in self.children))

    async def told(self) -> dict[str, Counter[str]]:
        """What became of the calls, by target, in all processes."""
        sums: dict[str, Counter[str]] = {name: Counter() for name in (SICK, OTHER_HOST, OTHER_TENANT)}
        for answer in await asyncio.gather(*(child.ask("figures") for child in self.children)):
            for name, counts in answer["told"].items():
                sums[name].update(counts)
        return sums

    async def breakers(self) -> Counter[tuple[str, str, str]]:
        """Events of breakers: what, whose, and at which host."""
        answers = await asyncio.gather(*(child.ask("figures") for child in self.children))
        return Counter(tuple(event[:3]) for answer in answers for event in answer["breakers"])

    async def dead(self) -> None:
        """It answers nobody for a while; what comes once all calls of before are over are probes."""
        self.sick.switch(failing=1.0, how="hang")
        dead_s = time.monotonic()

        async def is_open() -> bool:
            now_s = time.monotonic()
            return now_s - dead_s >= 1.0 and len(self._since(now_s - 1.0)) <= 1

        await until(is_open, "nobody calls it but to look")
        await asyncio.sleep(DEADLINE_S)  # the last of before end
        since_s = time.monotonic()
        self.sick.switch(failing=1.0, how=500, slow_s=PROBE_S, after=True)
        await asyncio.sleep(PHASE_S)

        async def looked() -> bool:
            return len(self._since(since_s)) >= PROBES

        await until(looked, "somebody looks")
        probes = self._since(since_s)
        self.figures.note(probes=len(probes), probes_at_once=most_at_once(probes))
        self.figures.holds(most_at_once(probes) <= 1, f"{most_at_once(probes)} probes at once")

    def _since(self, since_s: float) -> list[Arrival]:
        """What came to it."""
        return [one for one in self.sick.ledger.of("acme") if one.begun_s >= since_s]

    async def flaps(self) -> None:
        """Every other call fails, as long as nobody minds."""
        self.sick.switch(failing=0.5, how=500)
        await asyncio.sleep(PHASE_S)

    async def back(self) -> None:
        """It is well; how long until it is called as before."""
        self.sick.calm()
        began_s = time.monotonic()

        async def as_before() -> bool:
            return len(self._since(time.monotonic() - 1.0)) >= 0.9 * PROCESSES / EVERY_S

        await until(as_before, "it is called as before", within_s=BACK_S)
        self.figures.note(back_s=round(time.monotonic() - began_s, 2))


async def _experiment(stage: Stage, figures: Figures, redis_url: str, *, alone: bool = False) -> None:
    async with _api() as sick, _api() as well:
        street = _Street(stage, figures, sick, well)
        await street.open(redis_url, alone=alone)
        if not alone:
            await street.flaps()
        await street.dead()
        if not alone:
            await street.flaps()
            await street.back()
        told, breakers = await street.told(), await street.breakers()
    wrong = sum(count for (_, *whose), count in breakers.items() if whose != ["acme", "127.0.0.1"])
    others = told[OTHER_HOST] + told[OTHER_TENANT]
    figures.note(n=sum(counts.total() for counts in told.values()), told=told)
    figures.note(opened=sum(count for (name, *_), count in breakers.items() if name.endswith("opened")))
    figures.zero(wrong_opens=wrong, others_hurt=others.total() - others["done"])


async def test_E40_breaker(stage: Stage, servers: Endpoints) -> None:
    figures = Figures("E40")
    await _experiment(stage, figures, servers.redis_url)
    figures.conclude()


async def test_E40_ablation_each_process_has_its_own(stage: Stage, servers: Endpoints) -> None:
    figures = Figures("E40", ablation="breakers_not_shared")
    await _experiment(stage, figures, servers.redis_url, alone=True)
    figures.conclude()
