"""The few methods of asyncpg that fairlead uses, typed: asyncpg itself ships no types."""

# ruff: noqa: ASYNC109 (asyncpg names its timeouts so)

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol


class Row(Protocol):
    """One row of an answer, read by column name or position."""

    def __getitem__(self, key: str | int) -> Any: ...

    def items(self) -> Iterable[tuple[str, Any]]: ...

    def values(self) -> Iterable[Any]: ...


class Connection(Protocol):
    """One connection to PostgreSQL."""

    async def fetch(self, query: str, *args: object) -> list[Row]: ...

    async def execute(self, query: str, *args: object) -> str: ...

    def transaction(self, *, isolation: str) -> AbstractAsyncContextManager[None]: ...

    async def add_listener(
        self, channel: str, callback: Callable[[Connection, int, str, str], None]
    ) -> None: ...

    def add_termination_listener(self, callback: Callable[[Connection], None]) -> None: ...

    def is_closed(self) -> bool: ...

    def terminate(self) -> None: ...

    async def close(self, *, timeout: float | None = None) -> None: ...


class Pool(Protocol):
    """Connections that are lent."""

    async def acquire(self, *, timeout: float | None = None) -> Connection: ...

    async def release(self, connection: Connection, *, timeout: float | None = None) -> None: ...

    def get_idle_size(self) -> int: ...

    async def expire_connections(self) -> None: ...

    async def close(self) -> None: ...

    def terminate(self) -> None: ...
