"""Two implementations of the stores side by side: one history after another, step by step, on one clock.

A history is data, so it can be cut down and told (as tests/contract/histories.py does it for the gate). What
happens, and how a side shows it, is for those who have histories: credentials (token_histories), jobs
(job_histories).
"""

from __future__ import annotations

import asyncio
import itertools
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from fairlead.testing._kit.clock import ManualClock
from fairlead.testing._memory.database import STARTED
from tests.contract.losses import LossyDatabase
from tests.contract.postgres import PostgresStores, postgres_stores
from tests.contract.shortest import shortest
from tests.contract.stores import MemoryStores, memory_stores
from tests.support.rows import run
from tests.support.servers import drop_database, running_servers
from tests.support.still_clock import set_clock, still_database

IDS_EACH = 10_000
"""Ids that one history may draw."""
BATCH = 50
"""Histories of one test: some ten seconds, so that a slow machine does not look like one that hangs."""

_TABLES = (
    *(
        "connection",
        "refresh_attempt",
        "dead_letter",
        "job",
        "pause",
        "worker_session",
        "endpoint_gate",
        "refresh_backoff",
        "maintenance_run",
    ),
    *("lane_wake", "lane", "lane_name", "lane_floor", "schedule", "schedule_run"),
)
_EMPTY = f"WITH {', '.join(f'gone_{table} AS (DELETE FROM {table})' for table in _TABLES)} DELETE FROM audit"
_NO_GUARD = "ALTER TABLE audit DISABLE TRIGGER audit_append_only"


class Pass(NamedTuple):
    """Time passes."""

    seconds: float


class Do(NamedTuple):
    """*act* of a side, with numbers of its own meaning."""

    act: str
    args: tuple[Any, ...]


Step = Pass | Do


class Taking(Protocol):
    """One implementation, and what its processes know."""

    async def take(self, step: Step) -> object:
        """What comes of *step*; the same on every side."""
        ...


S = TypeVar("S", bound=Taking)
Look = Callable[[S], Awaitable[object]]
"""What can be seen to be stored."""


class Difference(NamedTuple):
    """The step after which the sides differ, and what each tells."""

    step: int
    memory: object
    postgres: object


@dataclass(frozen=True, slots=True)
class StillStores(PostgresStores):
    """PostgreSQL on the clock of the test."""

    passed_s: list[float]

    async def pass_time(self, delay_s: float) -> None:
        self.passed_s.append(delay_s)
        await set_clock(self.database, STARTED + timedelta(seconds=sum(self.passed_s)))


class Hands(ManualClock):
    """A clock by which nobody sleeps: it need not wait for anybody to wake."""

    async def advance(self, delay_s: float) -> None:
        self._now += delay_s


class Histories(ABC, Generic[S]):
    """Memory and a database whose clock stands still, for one history after another."""

    def __init__(self, database: LossyDatabase) -> None:
        self.database = database
        real = postgres_stores(database)
        names = (name for name in PostgresStores.__slots__ if name != "passed_s")
        self.real = StillStores(**{name: getattr(real, name) for name in names}, passed_s=[])
        self._runs = itertools.count()

    @abstractmethod
    def history(self, draw: Random) -> list[Step]:
        """One, drawn."""

    @abstractmethod
    async def sides(self, start: int) -> tuple[S, S]:
        """Memory and the database, as they are at the beginning. *start*: the first id of this history."""

    @abstractmethod
    def looks(self, number: int, step: Step, *, last: bool) -> Iterable[Look[S]]:
        """What is compared after the step of this *number*, beside what came of it."""

    def memory(self) -> MemoryStores:
        """New ones."""
        return memory_stores(Hands())

    async def difference(self, steps: Sequence[Step]) -> Difference | None:
        """Where the two first differ in what they answer, or in what can be seen to be stored."""
        memory, real = await self._begin()
        for number, step in enumerate(steps):
            looks = self.looks(number, step, last=number == len(steps) - 1)
            for act in (lambda side, step=step: side.take(step), *looks):
                results = await act(memory), await act(real)
                if results[0] != results[1]:
                    return Difference(number, *results)
        return None

    async def _begin(self) -> tuple[S, S]:
        """Forget the history before."""
        await run(self.database, _EMPTY)
        self.real.passed_s.clear()
        await set_clock(self.database, STARTED)
        return await self.sides(next(self._runs) * IDS_EACH)

    async def first_difference(self, seeds: Sequence[int]) -> tuple[int, list[Step]] | None:
        """The first of *seeds* whose history differs."""
        for seed in seeds:
            steps = self.history(Random(seed))
            if await self.difference(steps) is not None:
                return seed, steps
        return None

    async def told(self, seed: int, steps: Sequence[Step]) -> str:
        """A difference as a person reads it."""
        kept_steps, difference = await shortest(steps, self.difference)
        lines = [f"seed {seed}, cut down to {len(kept_steps)} steps:", *map(str, kept_steps)]
        return "\n".join([*lines, *_differences(difference.memory, difference.postgres)])


def _differences(memory: object, real: object, where: str = "") -> list[str]:
    """The leaves on which two values differ."""
    if isinstance(memory, dict) and isinstance(real, dict) and memory.keys() == real.keys():
        return [line for name in memory for line in _differences(memory[name], real[name], f"{where}.{name}")]
    if isinstance(memory, list) and isinstance(real, list) and len(memory) == len(real):
        pairs = enumerate(zip(memory, real, strict=True))
        return [line for index, pair in pairs for line in _differences(*pair, f"{where}[{index}]")]
    return [] if memory == real else [f"{where or 'answer'}: memory {memory!r}, postgres {real!r}"]


def plain(method: Any) -> Any:
    """Return an operation of a store in memory without its link."""
    return method.__wrapped__


def batches(count: int) -> list[range]:
    """*count* seeds, a test for each *BATCH*."""
    return [range(first, min(first + BATCH, count)) for first in range(0, count, BATCH)]


@asynccontextmanager
async def still(admin_url: str) -> AsyncIterator[LossyDatabase]:
    """A database for many histories."""
    settings = await still_database(admin_url)
    database = await LossyDatabase.open(settings)
    await run(database, _NO_GUARD)
    try:
        yield database
    finally:
        await database.close()
        await drop_database(admin_url, settings.dsn)


def run_many(kind: Callable[[LossyDatabase], Histories[Any]], count: int) -> int:
    """Run *count* histories on servers of their own; 1 where one differs, which is told."""
    with running_servers() as servers:
        return asyncio.run(_run_many(kind, servers.database_url, count))


async def _run_many(kind: Callable[[LossyDatabase], Histories[Any]], admin_url: str, count: int) -> int:
    async with still(admin_url) as database:
        pair = kind(database)
        found_difference = await pair.first_difference(range(count))
        if found_difference is None:
            print(f"{count} histories: the same in memory and on PostgreSQL")
            return 0
        print(await pair.told(*found_difference))
        return 1
