"""E19: the server takes 20 connections, and 30 clients beside two processes of fairlead want more.

Whoever gets none is told so in time, also where he holds one connection of his pool and wants another. The
processes lose nothing, not even where their connections are ended and the others take these; once the others
are gone they are at work again. One that gets none for longer than its lease, while the other has one, is to
that one like a dead one: only what it had finished and could not write runs again.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import TypeVar

import pytest

from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.statements import statement
from fairlead.engine.jobs.heartbeat import RENEWALS_PER_LEASE
from fairlead.errors import DependencyUnavailableError
from tests.faults.support.load import Load, all_begin
from tests.faults.support.nursery import Nursery
from tests.faults.support.report import Figures, quantiles, sized
from tests.faults.support.server import OwnServer, own_server
from tests.faults.support.stage import Stage, staged, until
from tests.support.databases import settings_of
from tests.support.servers import close_admin_connections
from tests.support.standstill import all_ran_s, ran_s

T = TypeVar("T")

pytestmark = pytest.mark.slow

MOST, CLIENTS = 20, 30
PROCESSES, SLOTS, LEASE_S = 2, 4, 5.0
CUT_OFF_S = LEASE_S * (1 - 1 / RENEWALS_PER_LEASE)  # its last sign of life may be so old that less is left
AT_ONCE = 2  # of one client, which is as many connections as its pool may have
SCALE = sized(0.1, 1.0)
HANG_BOUND_S = sized(4.0, 30.0)
CROWDED_S = sized(2.0, 60.0)
LOCKED_S = 1.0  # by then all have met
RESUME_BOUND_S = 5.0
PAUSE_S = 0.01
CLIENT = "e19-client"
OTHERS = (
    "SELECT count(*) AS n FROM pg_stat_activity"
    " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
)
END = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'fairlead'"
LOOK = statement("server_clock")


@pytest.fixture(scope="module")
def small() -> Iterator[OwnServer]:
    with own_server({"max_connections": str(MOST)}) as server:
        yield server


@pytest.fixture
async def crowded(nursery: Nursery, small: OwnServer, tmp_path: Path) -> AsyncIterator[Stage]:
    url = await small.fresh_database()
    close_admin_connections()
    database = await Database.open(settings_of(url, min_size=1, max_size=1))
    async with staged(nursery, database, tmp_path) as stage:

        async def is_alone() -> bool:
            return (await stage.rows(OTHERS))[0]["n"] == 0

        await until(is_alone, "those of the test before are gone")
        yield stage
        await stage.database.close()


def _impatient(settings: DatabaseSettings) -> DatabaseSettings:
    """A client's: the waits of the product, shortened to the size of this run."""
    return replace(
        settings,
        application_name=CLIENT,
        max_size=AT_ONCE,
        acquire_timeout_s=10.0 * SCALE,
        connect_timeout_s=8.0 * SCALE,
    )


@dataclass
class _Crowd:
    """Clients that want connections again and again; the time of each wish, and what came of it."""

    settings: DatabaseSettings
    draw: Random
    wishes: list[tuple[float, float]] = field(default_factory=list)
    told: Counter[str] = field(default_factory=Counter)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def client(self) -> None:
        """Open, use, close; until it is over."""
        while not self.over.is_set():
            database = await self._timed(Database.open(self.settings))
            if database is not None:
                try:
                    await asyncio.gather(*(self._use(database) for _ in range(AT_ONCE)))
                finally:
                    await database.close()
            await asyncio.sleep(PAUSE_S)

    async def _use(self, database: Database) -> None:
        for _ in range(self.draw.randrange(5, 50)):
            if self.over.is_set():
                return
            await self._timed(self._nested(database) if self.draw.random() < 0.5 else database.fetch(LOOK))
            await asyncio.sleep(PAUSE_S)

    async def _nested(self, database: Database) -> None:
        """One connection in hand, another one wanted."""
        async with database.transaction() as transaction:
            await transaction.fetch(LOOK)
            await asyncio.sleep(PAUSE_S)
            await database.fetch(LOOK)

    async def _timed(self, operation: Awaitable[T]) -> T | None:
        """What came of *wish*; None where it was refused."""
        began_s, answer = time.monotonic(), None
        try:
            answer = await operation
            self.told["done"] += 1
        except DependencyUnavailableError as error:
            self.told[type(error).__name__] += 1
        self.wishes.append((began_s, time.monotonic()))
        return answer


@asynccontextmanager
async def _crowding(
    crowd: _Crowd, figures: Figures, *, clients: int = CLIENTS, bound_s: float = HANG_BOUND_S
) -> AsyncIterator[None]:
    """For as long as the block lasts they crowd; then each ends what it waits for, within the bound."""
    tasks = [asyncio.create_task(crowd.client()) for _ in range(clients)]
    try:
        yield
    finally:
        crowd.over.set()
        ended, hanging = await asyncio.wait(tasks, timeout=bound_s)
        for task in hanging:
            task.cancel()
        await asyncio.gather(*hanging, return_exceptions=True)
    for task in ended:
        task.result()
    figures.note(clients_told=dict(crowd.told), wish_ms=quantiles(all_ran_s(crowd.wishes), 1000, 1))
    figures.zero(hanging=len(hanging))


async def test_E19_connections_gone(crowded: Stage, tmp_path: Path) -> None:
    figures, sink = Figures("E19"), tmp_path / "sink.ndjson"
    waits = {"acquire_timeout_s": 10.0 * SCALE, "connect_timeout_s": 8.0 * SCALE}
    worker = {"concurrency": SLOTS, "poll_s": 0.2, "lease_s": LEASE_S}
    order = {"sink": str(sink), "worker": worker, "database": waits}
    workers = await crowded.all_born(PROCESSES, **order)
    load = Load(await crowded.born(database=waits), figures)
    crowd = _Crowd(_impatient(crowded.database.settings), figures.draw)
    async with load.coming():
        await all_begin(sink, workers)
        async with _crowding(crowd, figures):
            await asyncio.sleep(CROWDED_S / 2)
            await crowded.run(END)
            await asyncio.sleep(CROWDED_S / 2)
        back_s = time.monotonic()
        began_s = await all_begin(sink, workers, back_s)
        await load.acknowledged_after(back_s)
    await load.all_ended(crowded)
    await load.judge(crowded, sink, silent_s=CUT_OFF_S, until_s=back_s)
    resumed_s = [ran_s(back_s, moment_s) for moment_s in (*began_s.values(), load.acknowledged_at_s)]
    figures.note(outages=1, resume_s=quantiles(resumed_s))
    figures.holds(max(resumed_s) <= RESUME_BOUND_S, f"resumed after {max(resumed_s):.1f} s")
    figures.holds(crowd.told["DependencyUnavailableError"] > 0, "there were connections for all")
    longest_s = max([*all_ran_s(crowd.wishes), *load.took_s])
    figures.holds(longest_s <= HANG_BOUND_S, f"longest wait {longest_s:.1f} s")
    figures.conclude()


async def test_E19_ablation_waits_for_ever(crowded: Stage) -> None:
    """Two that hold a connection of a pool of two, and want another one, are enough.

    After twice the patience for a statement the server ends their transactions; that is too late.
    """
    figures = Figures("E19", ablation="no bound on the wait for a connection", sees="hanging")
    settings = replace(_impatient(crowded.database.settings), acquire_timeout_s=3600.0)
    few, crowd = MOST // AT_ONCE // 2, _Crowd(settings, figures.draw)
    async with _crowding(crowd, figures, clients=few, bound_s=HANG_BOUND_S / 2):
        await asyncio.sleep(LOCKED_S)
    figures.conclude()
