"""The tables, their clock, and the failures of a database."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar
from uuid import UUID

from fairlead._core.clock import Clock
from fairlead._core.ids import Ids
from fairlead.errors import DependencyUnavailableError
from fairlead.testing._memory.lane_rows import LaneTables
from fairlead.testing._memory.rows import DeadLetterRow, JobRow, ScheduleRow, ScheduleRunRow, SessionRow
from fairlead.testing._memory.token_rows import TokenTables

STARTED = datetime(2026, 1, 1, tzinfo=UTC)

P = ParamSpec("P")
R = TypeVar("R")
Hook = Callable[[str], Awaitable[None]]
"""Gets the name of an operation; it can wait, or raise an error in its place."""


class MemoryDatabase:
    """Tables in memory; its time starts at *started* and advances with *clock*."""

    def __init__(self, clock: Clock, ids: Ids, *, started: datetime = STARTED) -> None:
        self.clock = clock
        self.ids = ids
        self.jobs: dict[UUID, JobRow] = {}
        self.sessions: dict[UUID, SessionRow] = {}
        self.schedules: dict[str, ScheduleRow] = {}
        self.schedule_runs: dict[tuple[str, datetime], ScheduleRunRow] = {}
        self.dead_letters: dict[UUID, DeadLetterRow] = {}
        self.fair = LaneTables()
        self.tokens = TokenTables()
        self.listeners: list[Callable[[str], None]] = []
        self.handled_at: dict[tuple[str, str], datetime] = {}
        """When a worker last reported a kind, by queue and kind."""
        self.rescued_at: datetime | None = None
        self.uninterrupted_since: datetime | None = None
        self._started = started
        self._zero = clock.monotonic()

    @property
    def now(self) -> datetime:
        """The database's clock."""
        return self._started + timedelta(seconds=self.clock.monotonic() - self._zero)

    def is_open(self, session_id: UUID) -> bool:
        """Return whether a session was not declared lost and has not stopped."""
        session = self.sessions.get(session_id)
        return session is not None and session.open

    def notify(self, queue: str) -> None:
        """Notify the listeners that *queue* has work."""
        for listener in list(self.listeners):
            listener(queue)

    def link(self) -> MemoryLink:
        """Return a new link to this database."""
        return MemoryLink(self)


class MemoryLink:
    """One process's connection to the database, with its failures.

    ``on_arrival`` is awaited when an operation arrives, ``on_answer`` when it has taken effect and has no answer yet:
    an error of ``on_answer`` is a lost answer. While ``is_down`` every operation fails.
    """

    def __init__(self, database: MemoryDatabase) -> None:
        self.database = database
        self.is_down = False
        self.on_arrival: Hook | None = None
        self.on_answer: Hook | None = None

    async def arrive(self, operation: str) -> None:
        """Let an operation arrive at the database, or raise."""
        if self.is_down:
            raise DependencyUnavailableError("the database does not answer")
        if self.on_arrival is not None:
            await self.on_arrival(operation)

    async def answer(self, operation: str) -> None:
        """Let its answer arrive at the caller, or raise."""
        if self.on_answer is not None:
            await self.on_answer(operation)


class MemoryStore:
    """The base of the stores: operations on the tables behind a link."""

    def __init__(self, link: MemoryLink) -> None:
        self.link = link
        self.database = link.database


S = TypeVar("S", bound=MemoryStore)


def statement(
    method: Callable[Concatenate[S, P], R],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
    """Make a store's method one atomic operation of its database."""

    @wraps(method)
    async def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        await self.link.arrive(method.__name__)
        result = method(self, *args, **kwargs)
        await self.link.answer(method.__name__)
        return result

    return run


def seconds(delay_s: float) -> timedelta:
    """Return *delay_s* seconds as a timedelta."""
    return timedelta(seconds=delay_s)
