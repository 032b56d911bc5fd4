"""E38: an API loses nine tenths of its capacity for a while; its callers let it recover (P10).

Calls through the real client, in an open loop at 80 % of what the API can do. One API puts what it cannot do
in line, also for those who have gone: only a breaker keeps that line short. The other refuses it at once:
only the budget keeps retries from becoming the load. Without its safeguard each violates P10, and callers
that know of nothing but retries violate it as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from bench import storm as bench
from fairlead import Fairlead
from fairlead.adapters.embedded import Endpoints
from tests.faults.support.report import FULL, Figures, conclude, sized
from tests.support.databases import SCHEMA
from tests.support.servers import database_name, drop_database, fresh_database

pytestmark = pytest.mark.slow

SIZE = sized(bench.SMALL, bench.FULL)
RECOVERY_S = sized(11.0, bench.MOST_RECOVERY_S)
OPENINGS = 2
"""Of the breaker, while an API is gone for long; in small size, where each is short, there are more."""
RAMP_S = sized(9.0, 10.0)
REMOVED_PARTS = {
    "briefly": (replace(SIZE, trigger_s=sized(2, 5)), SIZE.open_s + RAMP_S),
    "for long": (
        replace(SIZE, trigger_s=sized(6, 90), after_s=sized(16, 140)),
        OPENINGS * SIZE.open_s + RAMP_S,
    ),
}
"""For less than the first opening, and for more; and how long after it all is well again at the latest, as
nobody looks before an opening is over."""


@dataclass(frozen=True)
class Weather:
    """One storm: over an API of this kind, and what its callers lack."""

    kind: str
    ablation: str | None = None


STORMS = (
    *(Weather(kind) for kind in bench.KINDS),
    Weather("queues", "no_breaker"),
    Weather("sheds", "no_budget"),
    *(Weather(kind, "retries_only") for kind in bench.KINDS),
)
SEES = {"retries_only": "requests a call", "no_breaker": "good again", "no_budget": "requests a call"}


async def test_E38_metastable(servers: Endpoints, migrated_url: str, tmp_path: Path) -> None:
    """In smoke size side by side, each with an API, stores and a process of its own; else one by one."""
    figures = [
        Figures(f"E38-{weather.kind}", weather.ablation, SEES.get(weather.ablation or "", ""))
        for weather in STORMS
    ]

    async def blow(number: int) -> None:
        weather, it = STORMS[number], figures[number]
        folder = tmp_path / str(number)
        folder.mkdir()
        async with _storm(weather, servers, migrated_url, folder, it.seed) as result:
            _judge(it, result)
            it.note(recovery_s=result.recovery_s)
            _judge_recovery(it, result, RECOVERY_S)
        if weather.ablation is None:
            it.holds(result.share(0, SIZE.before_s - 1) >= bench.GOOD, "it was well before")
            it.holds(result.share(SIZE.before_s, SIZE.before_s + SIZE.trigger_s) < bench.GOOD, "it was ill")

    if FULL:
        for number in range(len(STORMS)):
            await blow(number)
            figures[number].conclude()
        return
    await asyncio.gather(*(blow(number) for number in range(len(STORMS))))
    conclude(*figures)


@asynccontextmanager
async def _storm(
    weather: Weather, servers: Endpoints, migrated_url: str, folder: Path, seed: int, size: bench.Size = SIZE
) -> AsyncIterator[bench.StormResult]:
    async with bench.stripe(weather.kind, size) as api:
        if weather.ablation == "retries_only":
            async with bench.with_retries_only(api.url, size, seed) as call:
                yield await bench.storm(api, size, call)
            return
        url = await fresh_database(servers.database_url, template=database_name(migrated_url))
        stores = {"DATABASE_URL": url, "REDIS_URL": servers.redis_url}
        environ = {**stores, "FAIRLEAD_DATABASE__SCHEMA_NAME": SCHEMA}
        async with bench.house(folder, api.url, environ) as fl:
            if weather.ablation is not None:
                _ABLATIONS[weather.ablation](fl)
            async with bench.through_fairlead(fl, size, weather.kind) as call:
                yield await bench.storm(api, size, call)
        await drop_database(servers.database_url, url)


def _no_breaker(fl: Fairlead) -> None:
    plans = fl.runtime.gate.call_admitter._plans
    planned, plans_made = plans.of, dict[Any, Any]()

    def without(*args: Any) -> Any:
        call = planned(*args)
        return plans_made.setdefault(id(call), replace(call, plan=replace(call.plan, breaker=None)))

    plans.of = without  # type: ignore[method-assign]


def _no_budget(fl: Fairlead) -> None:
    fl.runtime.gate.call_admitter._retries.take_retry = lambda *_: True  # type: ignore[method-assign]


_ABLATIONS = {"no_breaker": _no_breaker, "no_budget": _no_budget}


def _judge(figures: Figures, result: bench.StormResult) -> None:
    share_before = result.share(0, result.size.before_s - 1)  # later ones may end after it
    figures.note(triggers=1, n=result.calls.total(), sent=result.sent, requests=result.requests)
    figures.note(amplification=round(result.amplification, 3), good_before=round(share_before, 3))
    figures.note(slipped_s=round(result.slipped_s, 2))
    figures.note(
        good_by_second=[round(result.share(second, second + 1), 2) for second in sorted(result.calls)]
    )
    figures.holds(result.amplification <= bench.MOST_AMPLIFIED, f"{result.amplification:.2f} requests a call")


def _judge_recovery(figures: Figures, result: bench.StormResult, bound_s: float) -> None:
    recovery_s = result.recovery_s
    figures.holds(recovery_s is not None and recovery_s <= bound_s, f"good again after {recovery_s} s")


@pytest.mark.parametrize("removed", REMOVED_PARTS)
async def test_E38_gone_for_less_or_more(
    servers: Endpoints, migrated_url: str, tmp_path: Path, removed: str
) -> None:
    """A breaker that is open looks again when its time is over, and not before."""
    figures, (size, bound_s) = Figures("E38-queues"), REMOVED_PARTS[removed]
    async with _storm(Weather("queues"), servers, migrated_url, tmp_path, figures.seed, size) as result:
        _judge(figures, result)
        figures.note(what=f"gone {removed}", trigger_s=size.trigger_s, again_s=result.recovery_s)
        _judge_recovery(figures, result, bound_s)
    figures.conclude()
