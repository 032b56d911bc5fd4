"""How a statement or its answer gets lost on the way, on both sides alike.

request    nothing was done; the caller is told so
answer     all was done; the store reads back what stands, and its caller notices nothing
answers    all was done, and nobody answers any more: the caller is told that it may be or not
caller     all was done, and its caller is gone before it hears
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from typing import Literal, Protocol, TypeVar

from fairlead.adapters.postgres.database import Database, Transaction
from fairlead.adapters.postgres.driver import Row
from fairlead.adapters.postgres.postgres_errors import CommitInDoubtError
from fairlead.adapters.postgres.statements import Statement
from fairlead.errors import DependencyUnavailableError
from fairlead.testing._memory import MemoryLink

Loss = Literal["request", "answer", "answers", "caller"]
LOST = (DependencyUnavailableError, asyncio.CancelledError)
"""What a caller meets."""
_BESIDE = ("dead_letter_refusals", "dead_letter_find")
"""Statements beside that which an act is about."""
_WITH_A_CLAIM = "job_hand_back"
"""In memory this and the claim that follows are one: none of its answers is lost by itself."""
_READS = ("find",)
"""What is beside an act in memory."""

T = TypeVar("T")


class Road(Protocol):
    """The way to one implementation."""

    def losing(self, loss: Loss) -> AbstractContextManager[None]:
        """What is asked first within this block meets *loss*."""
        ...


class MemoryRoad:
    """The way to the stores in memory: what they cannot tell from one another is one thing there."""

    def __init__(self, link: MemoryLink) -> None:
        self._link = link

    @contextmanager
    def losing(self, loss: Loss) -> Iterator[None]:
        async def before_operation(operation: str) -> None:
            if loss == "request" and operation not in _READS:
                raise DependencyUnavailableError("it did not get there")

        async def after_operation(operation: str) -> None:
            if operation in _READS:
                return
            if loss == "answers":
                raise DependencyUnavailableError("nobody answers")
            if loss == "caller":
                raise asyncio.CancelledError

        self._link.on_arrival, self._link.on_answer = before_operation, after_operation
        try:
            yield
        finally:
            self._link.on_arrival = self._link.on_answer = None


class LossyDatabase(Database):
    """A database whose answers get lost when a test says so."""

    _loss: Loss | None = None
    _struck = False

    @contextmanager
    def losing(self, loss: Loss) -> Iterator[None]:
        """See `Road`."""
        self._loss, self._struck = loss, False
        try:
            yield
        finally:
            self._loss = None

    async def run(
        self,
        statement: Statement,
        values: dict[str, object],
        tenants: tuple[str, ...] | None,
        *,
        urgent: bool = False,
    ) -> list[Row]:
        if statement.name in _BESIDE:
            return await super().run(statement, values, tenants, urgent=urgent)
        self._arrive()
        rows = await super().run(statement, values, tenants, urgent=urgent)
        if statement.name != _WITH_A_CLAIM:
            self._depart()
        return rows

    @asynccontextmanager
    async def transaction(self, tenants: tuple[str, ...] | None = None) -> AsyncIterator[Transaction]:
        self._arrive()
        async with super().transaction(tenants) as transaction:
            yield transaction
        self._depart()

    async def resolve_doubt(
        self,
        work: Callable[[], Awaitable[T]],
        in_doubt: Callable[[], Awaitable[T]] | None = None,
        within_s: float = 5.0,
    ) -> T:
        """It is away for longer than anybody waits: nobody needs to wait for so long to know it."""
        return await super().resolve_doubt(work, in_doubt, 0.0 if self._loss == "answers" else within_s)

    def _arrive(self) -> None:
        if self._loss == "request" or (self._loss == "answers" and self._struck):
            raise DependencyUnavailableError("it did not get there")

    def _depart(self) -> None:
        if self._loss is None or self._struck:
            return
        self._struck = True
        if self._loss == "caller":
            raise asyncio.CancelledError
        raise CommitInDoubtError("its answer was lost")
