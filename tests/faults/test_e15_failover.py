"""E15: the primary dies, or is left running read-only, and a streaming stand-by takes its place.

With a synchronous stand-by nothing that was acknowledged is lost (P1). With an asynchronous one what it had
not been sent is lost, and that is counted: here the sending stops a moment before the death. A former primary
that goes on answers every write with 25006; whoever is connected to it must look for the other one. Where
there is no other one for long, the fleet does not storm it with sessions.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fairlead.adapters.postgres.database import Database
from tests.faults.support.faultproxy import FaultProxy, postgres_proxy
from tests.faults.support.load import Load, all_begin
from tests.faults.support.nursery import Nursery
from tests.faults.support.pgpair import Cluster, Pair, migrated_cluster, pair_of
from tests.faults.support.report import Figures, conclude, quantiles, sized, with_retries
from tests.faults.support.sink import Runs
from tests.faults.support.stage import Stage, staged
from tests.support.databases import settings_of
from tests.support.standstill import patience, ran_s

pytestmark = pytest.mark.slow

PROCESSES, SLOTS = 2, 8
ROUNDS = sized(1, 10)
PEAK_S = sized(0.3, 2.0)
UNSENT_S = sized(0.2, 0.5)
RESUME_BOUND_S = 5.0
ABLATION_S = sized(2.0, RESUME_BOUND_S)
ALONE_S = sized(6.0, 30.0)
COUNTED_S = 1.5  # a session is counted a second after it begins
SESSIONS_BOUND_PER_S = 3.0  # a process: a pool of 4 and a LISTEN, anew every 2 s at most
SESSIONS = "SELECT sessions FROM pg_stat_database WHERE datname = current_database()"
NUMBERS = {"concurrency": SLOTS, "poll_s": 0.2, "lease_s": 30.0}
STORED = "SELECT (args->>'n')::int AS n FROM job WHERE kind = 'fault.work'"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with migrated_cluster() as cluster:
        yield cluster


@dataclass
class _Ground:
    """A stage before a pair, and the road to it."""

    stage: Stage
    pair: Pair
    proxy: FaultProxy
    sink: Path
    load: Load

    async def at_work(self, *unsafe: str) -> None:
        """Every process works, and jobs come; to be called within ``load.coming()``."""
        order = {"child": "command", "sink": str(self.sink), "worker": NUMBERS}
        workers = await self.stage.all_born(PROCESSES, **order, unsafe=unsafe)
        await all_begin(self.sink, workers)
        await asyncio.sleep(PEAK_S)

    async def killed(self) -> float:
        """Some of the last moments is not sent, then the primary dies; when the other one takes its place."""
        sender = await self.pair.stop_sending()
        await asyncio.sleep(UNSENT_S)
        await self.pair.kill_primary(sender)
        self.proxy.away()
        await self.pair.promote()
        self.proxy.lead_to(self.pair.standby.url)
        self.proxy.heal()
        return time.monotonic()

    async def demoted(self) -> float:
        """The primary takes no more writes, and those who are connected stay so; when the other one does."""
        await self.pair.demote()
        return await self.replaced()

    async def left_alone(self) -> float:
        """The primary takes no more writes, and for *ALONE_S* nobody does; new sessions per second."""
        await self.pair.demote()
        await asyncio.sleep(COUNTED_S)
        sessions_before, began_s = await self.pair.ask(self.pair.primary, SESSIONS), time.monotonic()
        await asyncio.sleep(ALONE_S)
        more = await self.pair.ask(self.pair.primary, SESSIONS) - sessions_before
        return float(more / (time.monotonic() - began_s))

    async def replaced(self) -> float:
        """The stand-by takes the place of a primary that takes no more writes; when it does."""
        await self.pair.in_step()
        await self.pair.promote()
        self.proxy.lead_to(self.pair.standby.url)
        return time.monotonic()

    async def resumed_s(self, back_s: float, within_s: float = 2 * RESUME_BOUND_S) -> list[float]:
        """How long after *back_s* each process, and whoever stores jobs, was at work again."""
        again_s = await self.at_work_again(back_s, within_s)
        await self.stage.look_again()
        return [ran_s(back_s, moment_s) for moment_s in again_s]

    async def at_work_again(self, back_s: float, within_s: float) -> list[float]:
        """When each was; TimeoutError if one is not within *within_s*."""
        async with patience(within_s):
            began_s = await all_begin(self.sink, self.stage.children[1:], back_s)
            await self.load.acknowledged_after(back_s)
        return [*began_s.values(), self.load.acknowledged_at_s]

    async def lost(self) -> int:
        """Acknowledged jobs that are not there."""
        return len(self.load.acknowledged.keys() - {row["n"] for row in await self.stage.rows(STORED)})


@dataclass
class _Rounds:
    """What the loads of all rounds came to: a line tells of them together."""

    counts: Counter[str] = field(default_factory=Counter)
    told: Counter[str] = field(default_factory=Counter)
    asks_s: list[float] = field(default_factory=list)
    done_s: list[float] = field(default_factory=list)

    def add(self, load: Load, runs: Runs) -> None:
        """One that was judged."""
        zeros = {name: load.figures.counters[name] for name in load.figures.zeros}
        self.counts.update(zeros | {"n": len(load.acknowledged), "runs": len(runs)})
        self.told.update(load.told)
        self.asks_s += load.took_s
        self.done_s += load.done_s(runs)

    def note(self, figures: Figures) -> None:
        """In the place of what the last one told."""
        figures.note(**self.counts, told=dict(self.told))
        figures.note(ask_ms=quantiles(self.asks_s, 1000, 1), done_ms=quantiles(self.done_s, 1000, 1))


@asynccontextmanager
async def _ground(
    nursery: Nursery, cluster: Cluster, folder: Path, figures: Figures, *, synchronous: bool
) -> AsyncIterator[_Ground]:
    folder.mkdir()
    async with pair_of(cluster, synchronous=synchronous) as pair, postgres_proxy(pair.primary.url) as road:
        proxy, url = road
        async with staged(nursery, await Database.open(settings_of(url)), folder) as stage:
            load = Load(await stage.born(), figures, batch=10, every_s=0.02)
            yield _Ground(stage, pair, proxy, folder / "sink.ndjson", load)
            for child in stage.children:
                await child.kill()
            await stage.database.close()


@pytest.mark.parametrize("failover", ["killed", "demoted"])
async def test_E15_failover(nursery: Nursery, cluster: Cluster, tmp_path: Path, failover: str) -> None:
    figures, resumed_s, rounds = Figures("E15"), list[float](), _Rounds()
    figures.note(what=f"synchronous, {failover}")
    for number in range(ROUNDS):
        folder = tmp_path / str(number)
        async with _ground(nursery, cluster, folder, figures, synchronous=True) as ground:
            async with ground.load.coming():
                await ground.at_work()
                back_s = await getattr(ground, failover)()
                resumed_s += await ground.resumed_s(back_s)
            await ground.load.all_ended(ground.stage, 60.0)
            rounds.add(ground.load, await ground.load.judge(ground.stage, ground.sink))
    rounds.note(figures)
    figures.note(failovers=ROUNDS, resume_s=quantiles(resumed_s))
    figures.holds(max(resumed_s) <= RESUME_BOUND_S, f"resumed after {max(resumed_s):.1f} s")
    figures.conclude()


async def test_E15_no_primary_for_long(nursery: Nursery, cluster: Cluster, tmp_path: Path) -> None:
    figures = Figures("E15")
    figures.note(what="no primary for long", alone_s=ALONE_S)
    async with _ground(nursery, cluster, tmp_path / "0", figures, synchronous=True) as ground:
        async with ground.load.coming():
            await ground.at_work()
            _judge_sessions(figures, await ground.left_alone())
            resumed_s = await ground.resumed_s(await ground.replaced())
        await ground.load.all_ended(ground.stage, 60.0)
        await ground.load.judge(ground.stage, ground.sink)
        figures.note(n=len(ground.load.acknowledged), failovers=1, resume_s=quantiles(resumed_s))
    figures.holds(max(resumed_s) <= RESUME_BOUND_S, f"resumed after {max(resumed_s):.1f} s")
    figures.conclude()


def _judge_sessions(figures: Figures, per_s: float) -> None:
    processes = PROCESSES + 1  # and whoever stores jobs
    figures.note(sessions_per_s=round(per_s, 1), processes=processes)
    figures.holds(per_s <= processes * SESSIONS_BOUND_PER_S, f"{per_s:.0f} new sessions a second")


async def test_E15_ablation_each_refusal_looks_anew(
    nursery: Nursery, cluster: Cluster, tmp_path: Path
) -> None:
    figures = Figures("E15", ablation="looks_anew_each_time", sees="new sessions a second")

    async def run_alone(folder: Path) -> None:
        there = _ground(nursery, cluster, folder / "0", figures, synchronous=True)
        async with there as ground, ground.load.coming():
            await ground.at_work("looks_anew_each_time")
            _judge_sessions(figures, await ground.left_alone())

    await with_retries(figures, run_alone, tmp_path)
    figures.conclude()


async def test_E15_ablation_asynchronous(nursery: Nursery, cluster: Cluster, tmp_path: Path) -> None:
    """It acknowledges before the stand-by has it. What is lost then is counted, and told: many run one so."""
    figures, lost, stored = Figures("E15", ablation="asynchronous stand-by", sees="lost ="), 0, 0
    for number in range(ROUNDS):
        folder = tmp_path / str(number)
        async with _ground(nursery, cluster, folder, figures, synchronous=False) as ground:
            async with ground.load.coming():
                await ground.at_work()
                await ground.resumed_s(await ground.killed())
            lost += await ground.lost()
            stored += len(ground.load.acknowledged)
    counted = {"n": stored, "failovers": ROUNDS, "unsent_s": UNSENT_S}
    figures.note(**counted)
    figures.zero(lost=lost)
    own_figures = Figures("E15", seed=figures.seed)
    own_figures.note(what="asynchronous, killed", lost_with_an_asynchronous_standby=lost, **counted)
    conclude(figures, own_figures)


async def test_E15_ablation_connections_are_kept(nursery: Nursery, cluster: Cluster, tmp_path: Path) -> None:
    figures = Figures("E15", ablation="keeps_read_only", sees="not at work again")
    there = _ground(nursery, cluster, tmp_path / "0", figures, synchronous=True)
    async with there as ground, ground.load.coming():
        await ground.at_work("keeps_read_only")
        back_s = await ground.demoted()
        try:
            await ground.at_work_again(back_s, ABLATION_S)
        except TimeoutError:  # that of the wait alone: any other failure is no violation
            figures.holds(False, f"not at work again within {ABLATION_S:g} s")
    figures.conclude()
