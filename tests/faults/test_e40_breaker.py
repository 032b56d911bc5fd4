"""E40: an API flaps, dies, half returns and is well again, and three processes call it all the time (G6).

Several connections call it, and each has a breaker of its own. While it is dead one request of a connection
at a time looks whether it lives, of all processes together; so it is when it is half back, some of these
requests do well and others do not, until the breaker closes. What the same connection calls at another host,
and what another connection calls at the same one, is not touched by it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import takewhile
from math import inf
from secrets import token_hex
from typing import Any

import pytest

from fairlead.adapters.embedded import Endpoints
from fairlead.testing.api.request_log import Arrival
from fairlead.testing.api.stripe import StripeApi
from fairlead.testing.api.vendor_api import ApiRequest, ApiResponse, Handler, Route
from tests.faults.support.child import Child
from tests.faults.support.report import Figures, conclude, sized
from tests.faults.support.stage import Stage, until
from tests.support.standstill import ran_s

pytestmark = pytest.mark.slow

PROCESSES = 3
EVERY_S, DEADLINE_S, PATIENCE_S = 0.1, 1.0, 20.0
OPEN_S, PROBE_S = 0.005, 0.3  # soon tried again, and a probe takes so long: another beside it would show
CONNECTIONS, ROUNDS = sized((2, 1), (8, 8))
PHASE_S, LOOKS = sized((2.0, 2), (3.0, 4))  # LOOKS: probes of each breaker while the API is dead
PROBES = sized(6, 300)
"""As many are judged at least: in each round those of the dead API, one that fails and one that does well."""
BACK_S = sized(20.0, 60.0)
WINDOW_S = 2.0
SICK, OTHER_HOST, OTHER_TENANT = "sick", "other host", "other tenant"
TENANTS = [f"acme-{number}" for number in range(CONNECTIONS)]
OVERLAY = {
    "allow_http": True,
    "apis": {"rest": {"url": "http://localhost/v1"}},
    "hosts": ["127.0.0.1", "localhost"],
}
WIDE = {"calls": {"requests": {"capacity": 10_000.0, "per_s": 10_000.0}}, "breaker_open_s": OPEN_S}


class _Api(StripeApi):
    """One without limits. While it *flaps* every other call of an account fails, the first one too."""

    def __init__(self) -> None:
        super().__init__(per_s=1e6, endpoint_per_s=1e6)
        self._turns: Counter[str] | None = None

    def flap(self, slow_s: float = 0.0) -> None:
        """Until `calm`; each call takes *slow_s* longer."""
        self.calm()
        self.switch(slow_s=slow_s)
        self._turns = Counter()

    def calm(self) -> None:
        super().calm()
        self._turns = None

    def routes(self) -> Iterable[Route]:
        return [(method, path, self._or_fails(handler)) for method, path, handler in super().routes()]

    def _or_fails(self, handler: Handler) -> Handler:
        async def answer(call: ApiRequest) -> ApiResponse:
            fails = self._has_bad_turn(call.account)
            response = await handler(call)
            return ApiResponse(status=500) if fails else response

        return answer

    def _has_bad_turn(self, account: str) -> bool:
        if self._turns is None:
            return False
        self._turns[account] += 1
        return self._turns[account] % 2 == 1


# ---- probes


def until_well(arrivals: Sequence[Arrival]) -> list[Arrival]:
    """Those that came before one had done well: while they do, the breaker is not closed."""
    well_s = min((arrival.ended_mono or inf for arrival in arrivals if arrival.status == 200), default=inf)
    return [arrival for arrival in arrivals if arrival.begun_mono < well_s]


def most_at_once(arrivals: Sequence[Arrival]) -> int:
    """The most of them that were served at one time."""
    ends = [(arrival.ended_mono or inf, -1) for arrival in arrivals]
    most = now = 0
    for _, step in sorted([*((arrival.begun_mono, 1) for arrival in arrivals), *ends]):
        now += step
        most = max(most, now)
    return most


def begun_beside_another(arrivals: Sequence[Arrival]) -> int:
    """How many of them, oldest first, came while an earlier one was served."""
    count, busy_s = 0, -inf
    for arrival in arrivals:
        count += arrival.begun_mono < busy_s
        busy_s = max(busy_s, arrival.ended_mono or inf)
    return count


# ---- the street


@dataclass
class _Street:
    """Three processes, an API that falls ill, and one that is well.

    *breakers*: how many a connection has at the sick API. *probes*: those of one connection in one round.
    *bad_half_back*: those of all that failed while the API was half back.
    """

    stage: Stage
    sick: _Api
    well: _Api
    breakers: int
    children: list[Child] = field(default_factory=list)
    probes: list[list[Arrival]] = field(default_factory=list)
    back_s: list[float] = field(default_factory=list)
    bad_half_back: int = 0
    _open_s: float = inf  # since when nothing but probes comes
    _half_s: float = inf

    async def open(self, redis_url: str) -> None:
        """Where a connection has several breakers each process has a gate of its own."""
        here, there = f"{self.well.url}/beta/v1/charges", self.well.url.replace("127.0.0.1", "localhost")
        targets: list[dict[str, Any]] = [
            {"name": SICK, "tenant": tenant, "url": f"{self.sick.url}/{tenant}/v1/charges"}
            for tenant in TENANTS
        ]
        targets += [
            {"name": OTHER_HOST, "tenant": TENANTS[0], "url": f"{there}/{TENANTS[0]}/v1/charges"},
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
            name = f"{prefix}-{number % self.breakers}"
            self.children.append(await self.stage.born(**order, redis={"url": redis_url, "prefix": name}))
        grants = [
            {"tenant": tenant, "provider": "stripe", "api_key": "sk_1"} for tenant in (*TENANTS, "beta")
        ]
        await self.children[0].ask(
            "connect", connections=[{**grant_fields, "settings": WIDE} for grant_fields in grants]
        )
        await asyncio.gather(*(child.ask("run") for child in self.children))

    def _since(self, since_s: float) -> dict[str, list[Arrival]]:
        """What came to the sick API, oldest first, by connection."""
        arrivals_by_tenant: dict[str, list[Arrival]] = {tenant: [] for tenant in TENANTS}
        newest_first = takewhile(
            lambda arrival: arrival.begun_mono >= since_s, reversed(self.sick.ledger.arrivals)
        )
        for recent in reversed([*newest_first]):
            arrivals_by_tenant[recent.account].append(recent)
        return arrivals_by_tenant

    def _looks(self) -> list[list[Arrival]]:
        """What came since nothing but probes did, of each connection."""
        return [*self._since(self._open_s).values()]

    # ---- phases

    async def flaps(self) -> None:
        """Every other call fails, as long as nobody minds."""
        self.sick.flap()
        await asyncio.sleep(PHASE_S)

    async def dead(self) -> None:
        """It answers nobody, and then badly; what comes once all calls of before are over are probes."""
        self.sick.calm()
        self.sick.switch(failing=1.0, how="hang")
        dead_s = time.monotonic()

        async def is_open() -> bool:
            now_s = time.monotonic()
            most = max(map(len, self._since(now_s - 1.0).values()))
            return now_s - dead_s >= 1.0 and most <= self.breakers

        await until(is_open, "nobody calls it but to look")
        await asyncio.sleep(DEADLINE_S)  # the last of before end
        self._open_s = time.monotonic()
        self.sick.switch(failing=1.0, how=500, slow_s=PROBE_S, after_effect=True)

        async def looked() -> bool:
            ended = [sum(arrival.status is not None for arrival in looks) for looks in self._looks()]
            return bool(min(ended) >= LOOKS * self.breakers)

        await until(looked, "somebody looks for each connection")

    async def half_returns(self) -> None:
        """It answers every other call well, probes too: until each connection had one that did well."""
        self._half_s = time.monotonic()
        self.sick.flap(slow_s=PROBE_S)

        async def did_well() -> bool:
            return all(any(arrival.status == 200 for arrival in looks) for looks in self._looks())

        await until(did_well, "each connection had a probe that did well", within_s=BACK_S)

    def keep_probes(self) -> None:
        """Those of the round that has been."""
        probes = [until_well(looks) for looks in self._looks()]
        half_back = [arrival for ours in probes for arrival in ours if arrival.begun_mono >= self._half_s]
        self.bad_half_back += sum(arrival.status == 500 for arrival in half_back)
        self.probes += probes

    async def back(self) -> None:
        """It is well; how long until it is called as before."""
        self.sick.calm()
        began_s = time.monotonic()

        async def as_before() -> bool:
            fewest = min(map(len, self._since(time.monotonic() - WINDOW_S).values()))
            return fewest >= 0.9 * PROCESSES / EVERY_S * WINDOW_S

        await until(as_before, "it is called as before", within_s=BACK_S)
        self.back_s.append(round(ran_s(began_s), 2))

    # ---- what must hold

    def judge_probes(self, figures: Figures) -> None:
        """One at a time, of each connection."""
        probes = [arrival for ours in self.probes for arrival in ours]
        at_once = max(map(most_at_once, self.probes))
        did_well = sum(arrival.status == 200 for arrival in probes)
        figures.note(n=len(probes), did_well=did_well, bad_half_back=self.bad_half_back)
        figures.note(connections=CONNECTIONS, probes_at_once=at_once)
        figures.zero(two_probes=sum(map(begun_beside_another, self.probes)))
        figures.holds(at_once <= 1, f"{at_once} probes at once")

    async def judge_calls(self, figures: Figures) -> None:
        """Nobody else is hurt, and no breaker opens but those of the sick API."""
        counts_by_name: dict[str, Counter[str]] = {
            name: Counter() for name in (SICK, OTHER_HOST, OTHER_TENANT)
        }
        breakers: Counter[tuple[str, str, str]] = Counter()  # what, whose, and at which host
        for answer in await asyncio.gather(*(child.ask("figures") for child in self.children)):
            for name, counts in answer["told"].items():
                counts_by_name[name].update(counts)
            breakers.update(tuple(event[:3]) for event in answer["breakers"])
        wrong = sum(
            count
            for (_, tenant, host), count in breakers.items()
            if tenant not in TENANTS or host != "127.0.0.1"
        )
        others = counts_by_name[OTHER_HOST] + counts_by_name[OTHER_TENANT]
        figures.note(n=others.total(), told=counts_by_name, back_s=max(self.back_s))
        figures.note(opened=sum(count for (name, *_), count in breakers.items() if name.endswith("opened")))
        figures.zero(wrong_opens=wrong, others_hurt=others.total() - others["done"])


@asynccontextmanager
async def _street(stage: Stage, redis_url: str, *, breakers: int = 1) -> AsyncIterator[_Street]:
    async with _Api() as sick, _Api() as well:
        street = _Street(stage, sick, well, breakers)
        await street.open(redis_url)
        yield street


async def test_E40_breaker(stage: Stage, servers: Endpoints) -> None:
    figures, probes = Figures("E40"), Figures("E40")
    figures.note(what="the others")
    async with _street(stage, servers.redis_url) as street:
        for _ in range(ROUNDS):
            await street.flaps()
            await street.dead()
            await street.half_returns()
            street.keep_probes()
            await street.back()
        await street.judge_calls(figures)
    probes.note(what="probes")
    street.judge_probes(probes)
    counters = probes.counters
    probes.holds(counters["n"] >= PROBES, f"{counters['n']} probes are too few")
    probes.holds(counters["did_well"] >= CONNECTIONS * ROUNDS, "not each breaker was closed by a probe")
    probes.holds(counters["bad_half_back"] >= ROUNDS, "no probe failed while the API was half back")
    conclude(figures, probes)


async def test_E40_ablation_each_process_has_its_own(stage: Stage, servers: Endpoints) -> None:
    figures = Figures("E40", ablation="breakers_not_shared", sees="two_probes =")
    async with _street(stage, servers.redis_url, breakers=PROCESSES) as street:
        await street.dead()
        street.keep_probes()
    street.judge_probes(figures)
    figures.conclude()
