"""E10: an older and a newer version work together over a migration, there and back.

The older one is this version. The newer one is made up (support/versions.py): two migrations more, and a
column that it alone writes. While jobs come all the time, and somebody reads the table of jobs in a long
transaction, the ``pre`` migration is applied, newer processes join, an older one starts anew, all newer ones
leave again, come back, and only when the last older one is gone ``post`` follows. No job fails, and nobody
waits for a lock for over a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fairlead.adapters.postgres import migration_steps
from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.migrate import Migrator
from fairlead.errors import InvalidConfigError
from fairlead.policy.jobs.states import JobState
from tests.faults.support.child import Child
from tests.faults.support.load import ENDED, Load, all_begin
from tests.faults.support.report import Figures, sized
from tests.faults.support.stage import Stage
from tests.faults.support.versions import newer_migrations
from tests.support.beside import a_long_report
from tests.support.rows import rows

pytestmark = pytest.mark.slow

PROCESSES, SLOTS = 2, 4
ROUNDS_APART_S = sized(0.3, 5.0)  # of work between two steps
READER_S = sized(1.5, 10.0)
LOCK_BOUND_S = 1.0
LOOK_S = 0.005
WAITED = (
    "SELECT extract(epoch FROM max(clock_timestamp() - waitstart))::float8 AS s"
    " FROM pg_locks WHERE NOT granted"
)
SETTLED_S = 1.0  # a job that is done is written long before
COMPLETED_BY = "SELECT completed_by, count(*) AS jobs FROM job WHERE state = 'completed' GROUP BY 1"


@asynccontextmanager
async def _lock_waits(settings: DatabaseSettings) -> AsyncIterator[list[float]]:
    """The longest wait for a lock at each look, in seconds, for as long as the block lasts."""
    waits_s: list[float] = []
    eyes = await Database.open(settings)

    async def look() -> None:
        while True:
            waits_s.append((await rows(eyes, WAITED))[0]["s"] or 0.0)
            await asyncio.sleep(LOOK_S)

    looking = asyncio.create_task(look())
    try:
        yield waits_s
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        await eyes.close()


class _Fleet:
    """Processes of two versions on one stage."""

    def __init__(self, stage: Stage, sink: Path, load: Load) -> None:
        self.stage, self.load, self._sink = stage, load, sink
        self.older: list[Child] = []
        self.newer: list[Child] = []
        self.migrator = Migrator(stage.database.settings, newer_migrations())

    async def start(self, *, newer: bool) -> None:
        order = {"sink": str(self._sink), "worker": {"concurrency": SLOTS, "poll_s": 0.1}}
        born = await self.stage.all_born(PROCESSES, newer=newer, **order)
        (self.newer if newer else self.older).extend(born)

    async def leave(self, children: list[Child]) -> None:
        """Drain these."""
        await asyncio.gather(*(child.stop() for child in children))
        children.clear()

    async def work(self) -> None:
        """All that are there take part."""
        await asyncio.sleep(ROUNDS_APART_S)
        await all_begin(self._sink, [*self.older, *self.newer])

    async def there_and_back(self) -> None:
        """Both ways, and there for good; the last step, ``post``, is left to the caller."""
        await self.start(newer=False)
        await self.work()
        async with a_long_report(self.stage.database.settings, READER_S):
            await self.migrator.apply(upto="pre")
        await self.work()
        await self.start(newer=True)
        await self.work()
        await self.leave(self.older)
        await self.start(newer=False)
        await self.work()
        await self.leave(self.newer)
        await self.work()
        await self.start(newer=True)
        await self.work()

    async def older_ones_leave(self) -> None:
        await self.leave(self.older)
        desk, self.load.desk = self.load.desk, await self.stage.born(newer=True)
        await desk.stop()


async def _judge(stage: Stage, figures: Figures, waits_s: list[float]) -> None:
    states = {str(state) for state in JobState}
    rows_found = await stage.rows(ENDED)
    figures.note(n=len(rows_found), longest_lock_ms=round(max(waits_s) * 1000, 1))
    figures.note(completed_by={row["completed_by"]: row["jobs"] for row in await stage.rows(COMPLETED_BY)})
    figures.zero(
        failed=sum(
            row["state"] != "completed" or row["attempt"] > 1 or row["crashes"] > 0 for row in rows_found
        ),
        unknown_states=sum(row["state"] not in states for row in rows_found),
    )
    figures.holds(max(waits_s) <= LOCK_BOUND_S, f"a lock was waited for {max(waits_s):.2f} s")


async def test_E10_mixed_versions(stage: Stage, tmp_path: Path) -> None:
    figures, sink = Figures("E10"), tmp_path / "sink.ndjson"
    load = Load(await stage.born(), figures)
    fleet = _Fleet(stage, sink, load)
    async with _lock_waits(stage.database.settings) as waits_s:
        async with load.coming():
            await fleet.there_and_back()
            await fleet.older_ones_leave()
            await fleet.migrator.apply()
            await fleet.work()
        await load.all_ended(stage)
    await load.judge(stage, sink)
    figures.note(rollouts=1)
    await _judge(stage, figures, waits_s)
    figures.holds(await _older_is_refused(stage), "the older version would start after post")
    figures.conclude()


async def _older_is_refused(stage: Stage) -> bool:
    try:
        await Migrator(stage.database.settings).check()
    except InvalidConfigError:
        return True
    return False


async def test_E10_ablation_a_patient_migration(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = Figures("E10", ablation="a migration waits for its locks", sees="a lock was waited for")
    monkeypatch.setattr(migration_steps, "PATIENCE_MS", 60_000)
    migrator = Migrator(stage.database.settings, newer_migrations())
    async with (
        _lock_waits(stage.database.settings) as waits_s,
        a_long_report(stage.database.settings, READER_S),
    ):
        await migrator.apply(upto="pre")
    await _judge(stage, figures, waits_s)
    figures.conclude()


async def test_E10_ablation_post_comes_too_early(stage: Stage, tmp_path: Path) -> None:
    figures, sink = (
        Figures("E10", ablation="post while older ones work", sees="failed ="),
        tmp_path / "sink.ndjson",
    )
    load = Load(await stage.born(), figures)
    fleet = _Fleet(stage, sink, load)
    await fleet.start(newer=False)
    await fleet.migrator.apply()
    async with _lock_waits(stage.database.settings) as waits_s, load.coming():
        await all_begin(sink, fleet.older)
        await asyncio.sleep(ROUNDS_APART_S)
    await asyncio.sleep(SETTLED_S)
    await _judge(stage, figures, waits_s)
    figures.conclude()
