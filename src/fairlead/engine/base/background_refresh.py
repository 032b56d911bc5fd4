"""Looks at the database that nobody waits for: what is in use is read again before it is too old.

Without them each of many connections has one of its callers wait for the database every few seconds, and
these are the slowest of all calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress

from fairlead.errors import FairleadError


class BackgroundRefresh:
    """One look for a key at a time. What it meets is no matter: whoever waits for a look later is told."""

    def __init__(self) -> None:
        self._under_way: dict[Hashable, asyncio.Task[None]] = {}

    def start(self, key: Hashable, read: Callable[[], Awaitable[object]]) -> None:
        """Begin to *read*, unless that is under way for *key*."""
        if key in self._under_way:
            return
        task = self._under_way[key] = asyncio.create_task(_quietly(read), name="fairlead-look-ahead")
        task.add_done_callback(lambda done: self._over(key, done))

    def cancel(self, key: Hashable) -> None:
        """What is under way for *key* was begun too early to be right."""
        if (task := self._under_way.pop(key, None)) is not None:
            task.cancel()

    def _over(self, key: Hashable, done: asyncio.Task[None]) -> None:
        if self._under_way.get(key) is done:
            del self._under_way[key]


async def _quietly(read: Callable[[], Awaitable[object]]) -> None:
    with suppress(FairleadError):
        await read()
