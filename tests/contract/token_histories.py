"""Random histories of credentials: memory and PostgreSQL tell the same, step by step, on one clock.

    python -m tests.contract.token_histories 10000        more than a test has; exit 1 where one differs

A history is data, so it can be cut down and told (as tests/contract/histories.py does it for the gate).
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from random import Random
from typing import Any, NamedTuple

from fairlead.adapters.postgres.pool import Database
from fairlead.testing.clock import ManualClock
from fairlead.testing.memory import MemoryCredentialStore, MemoryEndpointGate
from fairlead.testing.memory.database import STARTED
from tests.contract.postgres import PostgresStores, postgres_stores
from tests.contract.stores import MemoryStores, memory_stores
from tests.contract.token_steps import ENDPOINTS, KEYS, LIFETIMES, LIMITS, Do, Pass, Side, Step
from tests.support.rows import rows, run
from tests.support.servers import drop_database, running_servers
from tests.support.still_clock import set_clock, still_database

STEPS = 60
PROCESSES = 3
RECENT = 4
"""Of so many latest refreshes one is taken up again."""
PAUSES_S = (0.000_001, 0.5, 5.0, 10.0, 20.0, 45.0, 100.0, 3000.0)
IDS_EACH = 10_000
QUIET = ("begin", "read", "due", "left_behind", "notices")
"""Acts that change nothing which a credential shows by itself."""
LOOK_EACH = 10
"""Steps after which all is compared that is stored; what most steps change is compared after each."""

_TABLES = (
    *("connection", "rotation", "dead_letter", "job", "pause", "worker_session", "endpoint_gate"),
    *("lane_wake", "lane", "lane_name", "lane_floor"),
)
_EMPTY = f"WITH {', '.join(f'gone_{table} AS (DELETE FROM {table})' for table in _TABLES)} DELETE FROM audit"
_NO_GUARD = "ALTER TABLE audit DISABLE TRIGGER audit_append_only"


# ---- what happens ----------------------------------------------------------------------------------


class Draft:
    """A history as it is drawn. Steps that mean nothing in their place are wasted: most mean something."""

    def __init__(self, draw: Random) -> None:
        self._draw = draw
        self._numbers = itertools.count(1)
        self._recent: deque[int] = deque(maxlen=RECENT)
        self.steps: list[Step] = []

    def begin(self) -> None:
        """Processes that know each connection."""
        for process in range(PROCESSES):
            self._do("begin", process)
        for connection in range(len(KEYS)):
            self._do("create", connection, self._lifetime(), next(self._numbers))
            for process in range(PROCESSES):
                self._do("read", process, connection)

    def refresh(self) -> None:
        """As it should go, up to some point."""
        who, number = self._who(), next(self._numbers)
        if self._draw.random() < 0.8:
            self._do("read", *who)
        lease_s = self._draw.choice([0.0, 10.0, 60.0, 1e6])
        self._do("claim", number, *who, lease_s, self._draw.random() < 0.3)
        self._recent.append(number)
        if self._draw.random() < 0.75:
            self._do("send", number)
            if self._draw.random() < 0.5:
                self._end(number)

    def follow_up(self) -> None:
        """Something about a refresh that is under way, or was."""
        if not self._recent:
            return
        number = self._draw.choice(self._recent)
        kind = self._draw.random()
        if kind < 0.25:
            self._do("send" if kind < 0.15 else "ask_again", number)
        else:
            self._end(number)

    def _end(self, number: int) -> None:
        draw = self._draw
        [act] = draw.choices(["settle", "lose", "release", "condemn", "withhold"], [30, 30, 15, 20, 5])
        match act:
            case "settle":
                self._do(act, number, self._lifetime(), draw.randrange(30))
            case "lose":
                self._do(act, number, draw.choice([None, 0.0, 5.0, 30.0]))
            case "condemn":
                self._do(act, number, draw.random() < 0.7)
            case _:
                self._do(act, number)

    def person(self) -> None:
        """A new grant, other settings, an end."""
        draw, who = self._draw, self._who()
        [act] = draw.choices(["replace", "configure", "postpone", "revoke", "remove"], [8, 3, 3, 1, 1])
        if draw.random() < 0.7:
            self._do("read", *who)
        match act:
            case "replace":
                self._do(act, *who, self._lifetime(), next(self._numbers))
            case "configure":
                self._do(act, *who, next(self._numbers))
            case "postpone":
                self._do(act, *who, draw.choice([None, 0.0, 15.0]))
            case _:
                self._do(act, *who)

    def create(self) -> None:
        """One that is gone comes back, or is there already."""
        process, connection = self._who()
        self._do("create", connection, self._lifetime(), next(self._numbers))
        self._do("read", process, connection)

    def process(self) -> None:
        """One ends, and what it left is looked for; mostly another begins."""
        process = self._draw.randrange(PROCESSES)
        self._do("end", process, self._draw.random() < 0.5)
        if self._draw.random() < 0.5:
            self._do("left_behind", 9)
        if self._draw.random() < 0.7:
            self._do("begin", process)

    def scan(self) -> None:
        """Somebody looks for what there is to do."""
        draw = self._draw
        match draw.randrange(3):
            case 0:
                cool_down_s = draw.choice([0.0, 10.0, 1000.0])
                self._do("due", draw.random() < 0.3, cool_down_s, draw.choice([1, 2, 9]))
            case 1:
                self._do("left_behind", draw.choice([1, 9]))
            case 2:
                self._do("notices")

    def work(self) -> None:
        """Other work of a connection comes, or is run."""
        if self._draw.random() < 0.4:
            self._do("work")
        else:
            self._do("enqueue", self._who()[1], self._draw.choice([0.0, 0.0, 5.0]))

    def death(self) -> None:
        """Of a job that was to refresh."""
        self._do("refresh_dies", *self._who())

    def endpoint(self) -> None:
        """One is asked, and tells how it is."""
        draw, number = self._draw, next(self._numbers)
        endpoint, limits, secret = (
            draw.randrange(len(ENDPOINTS)),
            draw.randrange(len(LIMITS)),
            draw.choice("fg"),
        )
        kind = draw.random()
        if kind < 0.8:
            self._do("admit", number, endpoint, limits, secret)
            self._recent.append(number)
            self._do("record", draw.choice(self._recent), endpoint, limits, draw.random() < 0.3)
        elif kind < 0.88:
            self._do("penalise", endpoint, limits, draw.choice([0.0, 3.0, 60.0]))
        elif kind < 0.94:
            self._do("pause", endpoint, secret)
        else:
            self._do("resume", endpoint)

    def time(self) -> None:
        """It passes."""
        self.steps.append(Pass(self._draw.choice(PAUSES_S)))

    def _do(self, act: str, *args: object) -> None:
        self.steps.append(Do(act, args))

    def _who(self) -> tuple[int, int]:
        """A process and a connection; one of these is busier than the others."""
        return self._draw.randrange(PROCESSES), self._draw.choice([0, 0, 0, 1, 2])

    def _lifetime(self) -> int:
        return self._draw.randrange(len(LIFETIMES))


_ACTS: dict[Callable[[Draft], None], int] = {
    Draft.refresh: 30,
    Draft.follow_up: 30,
    Draft.person: 8,
    Draft.create: 2,
    Draft.process: 6,
    Draft.scan: 6,
    Draft.work: 6,
    Draft.death: 1,
    Draft.time: 14,
}
_ENDPOINT_ACTS: dict[Callable[[Draft], None], int] = {Draft.endpoint: 3, Draft.time: 1}


def history(draw: Random, steps: int = STEPS) -> list[Step]:
    """*steps* steps about credentials or, one in six, about token endpoints."""
    draft = Draft(draw)
    acts = _ENDPOINT_ACTS if draw.random() < 1 / 6 else _ACTS
    if acts is _ACTS:
        draft.begin()
    while len(draft.steps) < steps:
        [act] = draw.choices(list(acts), list(acts.values()))
        act(draft)
    return draft.steps[:steps]


# ---- two sides -------------------------------------------------------------------------------------


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


class Pair:
    """Memory and a database whose clock stands still, for one history after another."""

    def __init__(
        self,
        database: Database,
        credentials: type[MemoryCredentialStore] = MemoryCredentialStore,
        endpoints: type[MemoryEndpointGate] = MemoryEndpointGate,
    ) -> None:
        self._database = database
        self._made = credentials, endpoints
        real = postgres_stores(database)
        names = (name for name in PostgresStores.__slots__ if name != "passed_s")
        self._real = StillStores(**{name: getattr(real, name) for name in names}, passed_s=[])
        self._runs = itertools.count()

    async def difference(self, steps: Sequence[Step]) -> Difference | None:
        """Where the two first differ in what they answer, or in what can be seen to be stored."""
        start, epoch = await self._begin()
        memory, real = Side(self._memory(), start, 0), Side(self._real, start, epoch)
        for number, step in enumerate(steps):
            looks = [] if isinstance(step, Pass) or step.act in QUIET else [Side.glance]
            if number % LOOK_EACH == 0 or number == len(steps) - 1:
                looks.append(Side.state)
            for act in (lambda side, step=step: side.take(step), *looks):
                told = await act(memory), await act(real)
                if told[0] != told[1]:
                    return Difference(number, *told)
        return None

    async def _begin(self) -> tuple[int, int]:
        """Forget the history before; the first id of this one, and the number of the last send."""
        await run(self._database, _EMPTY)
        self._real.passed_s.clear()
        await set_clock(self._database, STARTED)
        [last] = await rows(
            self._database, "SELECT CASE WHEN is_called THEN last_value ELSE 0 END AS sent FROM send_epoch"
        )
        return next(self._runs) * IDS_EACH, last["sent"]

    def _memory(self) -> MemoryStores:
        stores, (credentials, endpoints) = memory_stores(Hands()), self._made
        link = stores.credentials.link
        return replace(stores, credentials=credentials(link), endpoints=endpoints(link))

    async def shortest(self, steps: Sequence[Step]) -> tuple[list[Step], Difference]:
        """*steps* without those that the difference does not need (delta debugging), and the difference."""
        first = await self.difference(steps)
        assert first is not None
        kept = list(steps[: first.step + 1])
        size = len(kept) // 2
        while size:
            at = 0
            while at < len(kept):
                shorter = kept[:at] + kept[at + size :]
                found = await self.difference(shorter)
                if found is None:
                    at += size
                else:
                    kept, first = shorter[: found.step + 1], found
            size //= 2
        return kept, first

    async def first_difference(self, seeds: Sequence[int]) -> tuple[int, list[Step]] | None:
        """The first of *seeds* whose history differs."""
        for seed in seeds:
            steps = history(Random(seed))
            if await self.difference(steps) is not None:
                return seed, steps
        return None

    async def told(self, seed: int, steps: Sequence[Step]) -> str:
        """A difference as a person reads it."""
        kept, found = await self.shortest(steps)
        lines = [f"seed {seed}, cut down to {len(kept)} steps:", *map(str, kept)]
        return "\n".join([*lines, *_apart(found.memory, found.postgres)])


def _apart(memory: object, real: object, where: str = "") -> list[str]:
    """The leaves on which two values differ."""
    if isinstance(memory, dict) and isinstance(real, dict) and memory.keys() == real.keys():
        return [line for name in memory for line in _apart(memory[name], real[name], f"{where}.{name}")]
    if isinstance(memory, list) and isinstance(real, list) and len(memory) == len(real):
        pairs = enumerate(zip(memory, real, strict=True))
        return [line for place, pair in pairs for line in _apart(*pair, f"{where}[{place}]")]
    return [] if memory == real else [f"{where or 'answer'}: memory {memory!r}, postgres {real!r}"]


@asynccontextmanager
async def still(admin_url: str) -> AsyncIterator[Database]:
    """A database for many histories."""
    settings = await still_database(admin_url)
    database = await Database.open(settings)
    await run(database, _NO_GUARD)
    try:
        yield database
    finally:
        await database.close()
        await drop_database(admin_url, settings.dsn)


async def _main(admin_url: str, count: int) -> int:
    async with still(admin_url) as database:
        pair = Pair(database)
        found: Any = await pair.first_difference(range(count))
        if found is None:
            print(f"{count} histories of {STEPS} steps: the same in memory and on PostgreSQL")
            return 0
        print(await pair.told(*found))
        return 1


if __name__ == "__main__":
    with running_servers() as servers:
        sys.exit(asyncio.run(_main(servers.database_url, int(sys.argv[1]))))
