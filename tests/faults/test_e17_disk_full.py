"""E17: the disk of the database is full: that of the data, that of the log written ahead, or one for both.

An enqueue then fails and says so; what was acknowledged is there when there is room again (P1), what ended
meanwhile is written then (P14), and work goes on. Where the log has no room the server goes down, and whoever
tends it starts it again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from fairlead.adapters.postgres.database import Database
from tests.faults.support.load import Load, all_begin
from tests.faults.support.nursery import Nursery
from tests.faults.support.pgpair import Cluster, migrated_cluster
from tests.faults.support.report import Figures, quantiles, sized
from tests.faults.support.smalldisk import Disk, small_disk, why_not
from tests.faults.support.stage import Stage, staged, until
from tests.support.databases import settings_of
from tests.support.standstill import ran_s

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why_not()), reason=why_not())]

SIZE_MIB, ROOMY_MIB = 256, 4096  # of the disk that is filled, and of the other
PROCESSES, SLOTS = 2, 8
ROUNDS = sized(1, 5)
FULL_S = sized(0.5, 15.0)
BATCHES_BEFORE = 20  # batches that are acknowledged before each fault
REFUSED = 3  # asks, before it counts as full
REFUSED_WITHIN_S = sized(30.0, 180.0)  # what was set aside for the log is used up first
PAD_BITS = 128_000
HANG_BOUND_S = 30.0
RESUME_BOUND_S = 5.0
NUMBERS = {"concurrency": SLOTS, "poll_s": 0.2, "lease_s": 60.0}
SMALL_LOG = {"min_wal_size": "32MB", "max_wal_size": "64MB"}
PATIENCE = sized({"within_s": 0.5}, {})
"""A write in doubt is looked for, for 5 s; here that ends while the disk is full, as it does there."""
STORED = "SELECT (args->>'n')::int AS n FROM job WHERE kind = 'fault.work'"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with migrated_cluster() as cluster:
        yield cluster


@dataclass
class _Ground:
    """A stage on a server whose disk can be filled: *disk* is the one that will be."""

    stage: Stage
    server: Cluster
    disk: Disk
    load: Load
    sink: Path

    async def full(self) -> float:
        """Until enqueues are refused and *FULL_S* longer; when there is room and the server answers.

        Before that some are acknowledged, which could be lost.
        """
        await self._acknowledged(BATCHES_BEFORE)
        self.disk.fill()
        refused_before = self._refused()

        async def is_refused() -> bool:
            return self._refused() >= refused_before + REFUSED

        await until(is_refused, "an enqueue is refused", REFUSED_WITHIN_S)
        await asyncio.sleep(FULL_S)
        self.disk.free()
        await asyncio.to_thread(self.server.start)
        back_s = time.monotonic()
        await self.stage.look_again()
        return back_s

    async def _acknowledged(self, more: int) -> None:
        """Return once so many batches more are stored."""
        least = self.load.told["stored"] + more

        async def are_stored() -> bool:
            return self.load.told["stored"] >= least

        await until(are_stored, f"{more} batches are stored")

    def _refused(self) -> int:
        return sum(count for outcome, count in self.load.told.items() if outcome != "stored")

    async def lost(self) -> int:
        """Acknowledged jobs that are not there."""
        return len(self.load.acknowledged.keys() - {row["n"] for row in await self.stage.rows(STORED)})


@asynccontextmanager
async def _ground(
    nursery: Nursery, cluster: Cluster, folder: Path, figures: Figures, fault: str, *unsafe: str
) -> AsyncIterator[_Ground]:
    async with AsyncExitStack() as stack:
        roomy = fault == "log", fault == "data"
        disk, wal = (
            stack.enter_context(small_disk(ROOMY_MIB if is_roomy else SIZE_MIB)) for is_roomy in roomy
        )
        server = Cluster(disk.folder / "root", settings=SMALL_LOG)
        server.take(cluster)
        if fault != "together":
            server.keep_wal_in(wal.folder / "wal")
        await asyncio.to_thread(server.start)
        stack.callback(server.stop)
        database = await Database.open(settings_of(server.url))
        stage = await stack.enter_async_context(staged(nursery, database, folder))
        pad = f"{figures.draw.getrandbits(PAD_BITS):x}"  # of chance: it cannot be pressed together
        desk = await stage.born(unsafe=unsafe, **PATIENCE)
        load = Load(desk, figures, batch=20, every_s=0.02, more={"pad": pad})
        try:
            yield _Ground(stage, server, wal if fault == "log" else disk, load, folder / "sink.ndjson")
        finally:
            await stage.database.close()


@pytest.mark.parametrize("fault", ["together", "data", "log"])
async def test_E17_disk_full(nursery: Nursery, cluster: Cluster, tmp_path: Path, fault: str) -> None:
    figures, resumed_s = Figures("E17"), list[float]()
    figures.note(what=f"full: {fault}", rounds=ROUNDS)
    async with _ground(nursery, cluster, tmp_path, figures, fault) as ground:
        order = {"child": "command", "sink": str(ground.sink), "worker": NUMBERS, **PATIENCE}
        workers = await ground.stage.all_born(PROCESSES, **order)
        async with ground.load.coming():
            for _ in range(ROUNDS):
                await all_begin(ground.sink, workers)
                back_s = await ground.full()
                began_s = await all_begin(ground.sink, workers, back_s)
                await ground.load.acknowledged_after(back_s)
                moments_s = (*began_s.values(), ground.load.acknowledged_at_s)
                resumed_s += [ran_s(back_s, moment_s) for moment_s in moments_s]
        await ground.load.all_ended(ground.stage, 60.0)
        await ground.load.judge(ground.stage, ground.sink)
    figures.note(resume_s=quantiles(resumed_s))
    figures.holds(max(resumed_s) <= RESUME_BOUND_S, f"resumed after {max(resumed_s):.1f} s")
    longest_s = max(ground.load.took_s)
    figures.holds(longest_s <= HANG_BOUND_S, f"an enqueue took {longest_s:.1f} s")
    figures.conclude()


async def test_E17_ablation_believes(nursery: Nursery, cluster: Cluster, tmp_path: Path) -> None:
    """Whoever takes what is in doubt for stored loses it with the server."""
    figures = Figures("E17", ablation="believes", sees="lost")
    async with _ground(nursery, cluster, tmp_path, figures, "log", "believes") as ground:
        async with ground.load.coming():
            await ground.full()
        figures.note(n=len(ground.load.acknowledged))
        figures.zero(lost=await ground.lost())
    figures.conclude()
