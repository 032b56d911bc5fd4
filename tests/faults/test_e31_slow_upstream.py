"""E31: hundreds of calls at once to vendors that answer byte by byte, or not at all (P11, C6, C10).

Each call ends by its deadline, whether it was sent or still stood in line for a slot, and nothing of it
stays: no slot, no connection.

``took_s`` is what the calls took by the clock. ``took_alone_s``, which is judged, leaves out the time in
which other processes had the processors while the calls were to end.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.http import transport as transport_module
from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.app.client import Response
from fairlead.errors import CallFailedError, DeadlineExceededError, LimitExceededError, NotSentError
from fairlead.testing.api import MalformedApi
from tests.faults.support.calls import Callers, calling, settings_of, slots_taken, starved_s
from tests.faults.support.report import Figures, quantiles, sized
from tests.support.standstill import all_ran_s

pytestmark = pytest.mark.slow

HOSTS = ("127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4")
AT_ONCE = 200
DEADLINE_S = sized(2.0, 10.0)
LATE_S, SHORTLY_S = 0.5, 0.1
ROUNDS = sized(1, 5)
LIES = ("liar/slow_head?pace_s=0.2", "liar/slow_body?pace_s=2", "liar/silent", "liar/slow_body?pace_s=60")
ROOMY, NARROW = AT_ONCE // len(HOSTS), 10


class _Ground:
    """One tenant for each host."""

    def __init__(self, callers: Callers, liars: list[MalformedApi], figures: Figures) -> None:
        self.callers, self.liars, self.figures = callers, liars, figures
        self.calls: list[tuple[float, float]] = []
        self.others_s: list[float] = []
        self.told: Counter[str] = Counter()
        self.tenants: list[str] = []
        self.in_flight: list[int] = []
        self.starved_s = math.inf
        """What `starved_s` told at the deadline."""
        self.slots_stuck = self.taken = self.number = 0

    async def ready(self, number: int, slots: int) -> None:
        """New tenants, one for each host: the breakers of those before are open."""
        self.number = number
        self.tenants = [f"tenant-{number}-{index}" for index in range(len(HOSTS))]
        for tenant, liar in zip(self.tenants, self.liars, strict=True):
            await self.callers.connect(tenant, concurrency_limit=slots)
            await self.callers.call(tenant, f"{liar.url}/polite")

    async def crowd(self) -> None:
        """All at once, each tenant to its own host."""
        calls = [self._once(number % len(HOSTS), LIES[number % 7 % len(LIES)]) for number in range(AT_ONCE)]
        self.starved_s = math.inf
        loop = asyncio.get_running_loop()
        loop.call_later(DEADLINE_S - SHORTLY_S, self._look)
        loop.call_later(DEADLINE_S, self._due)
        await asyncio.gather(*calls)

    def _look(self) -> None:
        """Whoever gets a slot at the deadline itself is served for nobody; so it is before it."""
        round_ = str(self.number)
        self.in_flight.append(sum(liar.ledger.in_flight(round_) for liar in self.liars))

    def _due(self) -> None:
        self.starved_s = starved_s()

    async def _once(self, index: int, lie: str) -> None:
        began_s = time.monotonic()
        url = f"{self.liars[index].url}/{self.number}/{lie}"  # the ledger counts each round by itself
        outcome = await self.callers.call(self.tenants[index], url, deadline_s=DEADLINE_S)
        others_s = max(0.0, starved_s() - self.starved_s)  # had the processors while it was to end
        self.calls.append((began_s, time.monotonic()))
        self.others_s.append(others_s)
        match outcome:
            case CallFailedError(reason=reason) | NotSentError(reason=reason):
                self.told[f"failed {reason}"] += 1
            case LimitExceededError(reason=reason):
                self.told[f"closed {reason}"] += 1
            case Response():
                self.told["answered"] += 1
            case _:
                self.told[type(outcome).__name__] += 1

    async def rest(self, slots: int) -> None:
        """What is left of it, once all have come back."""
        self.slots_stuck += sum(
            await asyncio.gather(*(self.callers.stuck(tenant, slots) for tenant in self.tenants))
        )
        self.taken += slots_taken(self.callers)

    def note(self) -> None:
        figures, reasons = self.figures, {"failed timeout", "failed pool", "closed slot", "closed breaker"}
        reasons.add(
            DeadlineExceededError.__name__
        )  # the gate's answer came after the call's time, and nothing left
        took_s = all_ran_s(self.calls)
        by_clock_s = [ended_s - began_s for began_s, ended_s in self.calls]
        others_s = zip(took_s, by_clock_s, self.others_s, strict=True)
        took_alone_s = [min(ran, by_clock - others) for ran, by_clock, others in others_s]
        figures.note(n=len(took_s), deadline_s=DEADLINE_S, told=dict(self.told))
        figures.note(took_s=quantiles(took_s), took_alone_s=quantiles(took_alone_s))
        figures.zero(slots_stuck=self.slots_stuck, connections_taken=self.taken)
        figures.zero(otherwise=sum(count for name, count in self.told.items() if name not in reasons))
        longest_s = max(took_alone_s)
        figures.holds(longest_s <= DEADLINE_S + LATE_S, f"a call took {longest_s:.2f} s")


@asynccontextmanager
async def _ground(settings: dict[str, Any], figures: Figures) -> AsyncIterator[_Ground]:
    async with AsyncExitStack() as stack:
        liars = [await stack.enter_async_context(MalformedApi(host=host)) for host in HOSTS]
        callers = await stack.enter_async_context(calling(settings))
        yield _Ground(callers, liars, figures)


@pytest.fixture
def settings(servers: Endpoints, database_settings: DatabaseSettings, tmp_path: Path) -> dict[str, Any]:
    return settings_of(servers, database_settings, tmp_path)


@pytest.mark.parametrize("slots", [ROOMY, NARROW])
async def test_E31_slow_upstream(settings: dict[str, Any], slots: int) -> None:
    """With a slot for everyone, and with most of them in line."""
    figures = Figures("E31")
    figures.note(slots=slots * len(HOSTS), at_once=AT_ONCE)
    async with _ground(settings, figures) as ground:
        for number in range(ROUNDS):
            await ground.ready(number, slots)
            await ground.crowd()
            await ground.rest(slots)
    ground.note()
    figures.note(in_flight=ground.in_flight)
    figures.holds(set(ground.in_flight) == {slots * len(HOSTS)}, f"{ground.in_flight} were in flight")
    figures.conclude()


async def test_E31_ablation_time_is_not_kept(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transport goes by another clock than the call's."""
    figures = Figures("E31", ablation="deadline_not_passed_on", sees="a call took")

    original = transport_module._in_flight_of

    def longer(request: Any) -> Any:
        flight = original(request)
        flight.deadline_mono += 4 * LATE_S
        return flight

    monkeypatch.setattr(transport_module, "_in_flight_of", longer)
    async with _ground(settings, figures) as ground:
        await ground.ready(0, ROOMY)
        await ground.crowd()
    ground.note()
    figures.conclude()
