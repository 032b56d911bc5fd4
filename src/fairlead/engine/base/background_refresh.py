"""Refresh cached rows in the background, before they are too old to use.

Without this, one caller of every connection would wait for the database every few seconds, and those would
be the slowest of all calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress

from fairlead.errors import FairleadError


class BackgroundRefresh:
    """The reads that are under way, one for each key at most.

    Errors are ignored: the next read in the foreground reports them.
    """

    def __init__(self) -> None:
        self._under_way: dict[Hashable, asyncio.Task[None]] = {}

    def start(self, key: Hashable, read: Callable[[], Awaitable[object]]) -> None:
        """Start *read*, unless a read for *key* is under way."""
        if key in self._under_way:
            return
        task = self._under_way[key] = asyncio.create_task(_quietly(read), name="fairlead-background-refresh")
        task.add_done_callback(lambda task: self._remove(key, task))

    def cancel(self, key: Hashable) -> None:
        """Cancel the read for *key*, because it started before a change."""
        if (task := self._under_way.pop(key, None)) is not None:
            task.cancel()

    def _remove(self, key: Hashable, task: asyncio.Task[None]) -> None:
        if self._under_way.get(key) is task:
            del self._under_way[key]


async def _quietly(read: Callable[[], Awaitable[object]]) -> None:
    with suppress(FairleadError):
        await read()
