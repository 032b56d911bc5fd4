"""E46: one tenant is a nuisance, and fifty quiet ones hardly notice (P9, Q6, Q7).

First the quiet tenants are alone; then beside one with a hundred times their load, which is more than can be
done, one whose jobs take five times as long (as it is, and with a cap), and one that meets a 429 at each of
its jobs. Their dwell, from the ask to the start, stays within twice what it was at the 99th percentile, plus
one job: whoever finds all places taken must wait until one is free. And where all of them have more work than
can be done, all get the same. One process with ten slots does it all.

Beside the loud one the quiet ones ask for half of what that process can do, beside the others for a fifth: at
half, jobs of 500 ms that hold the other slots cost them a little more than the bound.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fairlead.adapters.postgres.lanes import PostgresLaneStore
from fairlead.engine.ports import TenantShare
from tests.faults.support.child import Child
from tests.faults.support.report import Figures, quantiles, sized
from tests.faults.support.sink import Runs
from tests.faults.support.stage import Stage, until

pytestmark = pytest.mark.slow

QUIET = [f"quiet-{number}" for number in range(50)]
NOISE = "noise"
SLOTS = 10
WORK_S, SLOW_S = (0.05, 0.15), 0.5
FIFTH = 2.5, sized(1, 12)
"""One job of each quiet tenant in so many seconds is a fifth of what the worker can do; how often that is."""
HALF = sized((2.5, 1), (1.0, 30))
"""The same for half of it; in small size as above."""
JUDGED = sized(0.95, 0.99)  # the highest quantile that so few jobs have
HICCUP_S = sized(0.3, 0.0)  # of a machine that has other things to do; many jobs do without
WAITING = "SELECT count(*)::int AS jobs FROM job WHERE state = 'available'"
LOUD = 100  # times that, and as much at once before
PAUSE_S = 0.5
BUSY_EACH = sized(12, 60)  # jobs of each tenant, on an average, until they are counted


@dataclass
class _Street:
    """Tenants that ask one process for work that another does. *alike*: all under one name, in one line."""

    stage: Stage
    figures: Figures
    sink: Path
    desk: Child
    alike: bool
    asks: tuple[float, int] = FIFTH
    left: int = 0
    """Jobs that waited when the quiet tenants had asked for their last."""
    asked: dict[int, tuple[str, float]] = field(default_factory=dict)
    _next: int = 0

    async def work(self, **order: Any) -> Child:
        """Begin to work."""
        worker = {"concurrency": SLOTS, "lease_s": 30.0}
        return await self.stage.born(child="limited", sink=str(self.sink), worker=worker, **order)

    async def ask(
        self, tenant: str, count: int = 1, *, kind: str = "work", group: str = "", **args: Any
    ) -> None:
        """Store jobs."""
        numbers = range(self._next, self._next + count)
        self._next += count
        self.asked |= dict.fromkeys(numbers, (tenant, time.monotonic()))
        job_fields = {
            "kind": f"fault.{kind}",
            "tenant_id": "all" if self.alike else tenant,
            "group_key": group,
        }
        work_s = self.figures.draw.uniform
        jobs = [{**job_fields, "args": {"n": n, "work_s": work_s(*WORK_S)} | args} for n in numbers]
        for start in range(0, count, 500):
            await self.desk.ask("enqueue", jobs=jobs[start : start + 500])

    async def dwells(self, beside: Callable[[_Street], Awaitable[None]] | None = None) -> list[float]:
        """Of the quiet tenants' jobs, while each of them asks for one in each interval. Then all is still."""
        (each_s, intervals), since = self.asks, self._next
        noise = asyncio.create_task(beside(self)) if beside else None
        moments = sorted(
            ((interval + self.figures.draw.random()) * each_s, tenant)
            for tenant in QUIET
            for interval in range(intervals)
        )
        began_s = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for moment_s, tenant in moments:
                await asyncio.sleep(max(0.0, began_s + moment_s - time.monotonic()))
                group.create_task(self.ask(tenant))
        if noise is not None:
            noise.cancel()
            with suppress(asyncio.CancelledError):
                await noise
        dwells = self._dwells(since)
        self.left = (await self.stage.rows(WAITING))[0]["jobs"]
        await self._silence()
        return dwells

    def _dwells(self, since: int) -> list[float]:
        """One that did not begin yet counts as if it did now."""
        now_s, began_s = time.monotonic(), dict[int, float]()
        for run in Runs(self.sink):
            began_s.setdefault(run.n, run.began_s)
        return [
            began_s.get(n, now_s) - asked_s
            for n, (tenant, asked_s) in self.asked.items()
            if n >= since and tenant != NOISE
        ]

    async def _silence(self) -> None:
        async def none_left() -> bool:
            await self.stage.run("DELETE FROM job WHERE state = 'available'")
            return not await self.stage.rows("SELECT FROM job WHERE state IN ('available', 'running')")

        await until(none_left, "nothing runs")

    def begun(self) -> Counter[str]:
        """How many jobs of each tenant began."""
        return Counter(self.asked[run.n][0] for run in Runs(self.sink))


async def _street(stage: Stage, figures: Figures, folder: Path, *, alike: bool = False) -> _Street:
    return _Street(stage, figures, folder / "sink.ndjson", await stage.born(), alike)


# ---- nuisances


async def _loud(street: _Street) -> None:
    await street.ask(NOISE, 2 * LOUD)
    while True:
        await asyncio.sleep(street.asks[0] / 10)
        await street.ask(NOISE, LOUD // 10)


async def _slow(street: _Street) -> None:
    await street.ask(NOISE, 100 * street.asks[1], work_s=SLOW_S)


async def _slow_with_a_cap(street: _Street) -> None:
    lanes = PostgresLaneStore(street.stage.database)
    await lanes.set_tenant(TenantShare(NOISE, max_running=SLOTS // 2))
    await _slow(street)


async def _limited(street: _Street) -> None:
    await street.ask(NOISE, LOUD, kind="limited", group="account", for_s=PAUSE_S)


NUISANCES = {
    "loud": (_loud, WORK_S[1]),
    "slow": (_slow, SLOW_S),
    "slow_capped": (_slow_with_a_cap, WORK_S[1]),
    "limited": (_limited, WORK_S[1]),
}
"""What they do, and how long at most a place is taken that a quiet tenant may wait for."""


async def _experiment(street: _Street, *names: str) -> None:
    figures = street.figures
    await street.ask(QUIET[0])  # the first of all is slow
    await street.dwells()
    dwells_alone = await street.dwells()
    beside, jobs_left = {}, {}
    for name in names:
        beside[name] = await street.dwells(NUISANCES[name][0])
        jobs_left[name] = street.left
    dwells_alone += await street.dwells()
    figures.note(quiet=len(QUIET), slots=SLOTS, n=len(dwells_alone) + sum(map(len, beside.values())))
    figures.note(left=jobs_left, alone_n=len(dwells_alone), alone_ms=quantiles(dwells_alone, 1000, 1))
    bounds_s = {name: 2 * _judged(dwells_alone) + NUISANCES[name][1] + HICCUP_S for name in names}
    figures.note(bounds_ms={name: round(bound_s * 1000, 1) for name, bound_s in bounds_s.items()})
    for name, dwells in beside.items():
        figures.note(**{f"{name}_n": len(dwells), f"{name}_ms": quantiles(dwells, 1000, 1)})
        figures.holds(
            _judged(dwells) <= bounds_s[name], f"{name}: {_judged(dwells):.3f} s of {bounds_s[name]:.3f} s"
        )


def _judged(dwells: list[float]) -> float:
    return sorted(dwells)[math.ceil(JUDGED * len(dwells)) - 1]


async def test_E46_quiet_tenants_hardly_notice(stage: Stage, tmp_path: Path) -> None:
    street = await _street(stage, Figures("E46"), tmp_path)
    await street.work()
    began_s = time.monotonic()
    await _experiment(street, "slow", "slow_capped", "limited")
    pauses = (time.monotonic() - began_s) / PAUSE_S + 1
    limited = sum(run.n in street.asked and run.ended_s is None for run in Runs(street.sink))
    street.figures.note(limited_runs=limited)
    street.figures.holds(0 < limited <= SLOTS * pauses, "a pause is kept by all of its group")
    street.figures.conclude()


async def test_E46_beside_more_than_can_be_done(stage: Stage, tmp_path: Path) -> None:
    figures = Figures("E46")
    figures.note(what="a standing backlog")
    street = await _street(stage, figures, tmp_path)
    street.asks = HALF
    await street.work()
    await _experiment(street, "loud")
    loud_left = figures.counters["left"]["loud"]
    figures.holds(loud_left > SLOTS, f"{loud_left} jobs waited at the end")
    figures.conclude()


async def test_E46_ablation_one_line_for_all(stage: Stage, tmp_path: Path) -> None:
    figures = Figures("E46", ablation="one_line_for_all", sees="loud:")
    street = await _street(stage, figures, tmp_path, alike=True)
    street.asks = HALF
    await street.work()
    await _experiment(street, "loud")
    street.figures.conclude()


# ---- everybody is busy


def jain(values: Iterable[float]) -> float:
    """1 where all are alike, 1/n where one has it all."""
    all_values = list(values)
    return round(sum(all_values) ** 2 / (len(all_values) * sum(value * value for value in all_values)), 3)


async def _busy(street: _Street) -> None:
    """All tenants have twice as much as is done until they are counted, the nuisance ten times that."""
    await street.ask(NOISE, 20 * BUSY_EACH, work_s=0.0)
    await asyncio.gather(*(street.ask(tenant, 2 * BUSY_EACH, work_s=0.0) for tenant in QUIET))
    worker = await street.work()

    async def are_done() -> bool:
        return street.begun().total() >= BUSY_EACH * len(QUIET)

    await until(are_done, "so many jobs began")
    await worker.kill()
    started = street.begun()
    fairness = jain(started[tenant] for tenant in [NOISE, *QUIET])
    street.figures.note(n=started.total(), most=max(started.values()), jain=fairness)
    street.figures.holds(fairness >= 0.95, "jain >= 0.95")


async def test_E46_all_get_the_same(stage: Stage, tmp_path: Path) -> None:
    street = await _street(stage, Figures("E46-busy"), tmp_path)
    await _busy(street)
    street.figures.conclude()


async def test_E46_busy_ablation_one_line_for_all(stage: Stage, tmp_path: Path) -> None:
    figures = Figures("E46-busy", ablation="one_line_for_all", sees="jain")
    street = await _street(stage, figures, tmp_path, alike=True)
    await _busy(street)
    street.figures.conclude()
