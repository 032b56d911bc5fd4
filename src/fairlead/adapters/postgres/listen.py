"""LISTEN on a dedicated connection, which reconnects by itself.

A notification is a hint and may be lost with its connection. After each new connection every subscriber is
called with "", because it may have missed one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from fairlead.adapters.postgres.driver import DatabaseConnection
from fairlead.adapters.postgres.postgres_errors import DRIVER_ERRORS
from fairlead.adapters.postgres.statements import statement
from fairlead.errors import SetupError

OnPayload = Callable[[str], None]

_PAUSE_S = (0.1, 0.5, 1.0, 2.0)
"""Pauses before a new connection; the last one repeats. A connection that lasted longer than that starts the list
again, so that a standby, which accepts connections but no LISTEN, is not tried in a tight loop."""
_PROBE_EVERY_S = 10.0  # detects a silent peer within 30 s


class NotificationListener:
    """Serves all channels of a process with one connection, made when the first one is added."""

    def __init__(self, connect: Callable[[], Awaitable[DatabaseConnection]]) -> None:
        self._connect = connect
        self._subscribers: dict[str, list[OnPayload]] = {}
        self._task: asyncio.Task[None] | None = None
        self._connection: DatabaseConnection | None = None
        self._changed = asyncio.Event()  # a channel was added, or the connection is gone

    async def add(self, channel: str, on_payload: OnPayload) -> Callable[[], Awaitable[None]]:
        """Call *on_payload* for each notification, until the returned function is called."""
        self._subscribers.setdefault(channel, []).append(on_payload)
        self._changed.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="fairlead-listen")

        async def stop() -> None:
            self._subscribers[channel].remove(on_payload)

        return stop

    def renew(self) -> None:
        """Replace the connection: its server is no longer the primary."""
        if self._connection is not None:
            self._connection.terminate()

    async def close(self) -> None:
        """Close the connection."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        tries = 0
        while True:
            served_s = 0.0
            with suppress(SetupError):
                connection = await self._connect()
                started_mono = loop.time()
                await self._serve(connection)
                served_s = loop.time() - started_mono
            if served_s > _PAUSE_S[-1]:
                tries = 0
            await asyncio.sleep(_PAUSE_S[min(tries, len(_PAUSE_S) - 1)])
            tries += 1

    async def _serve(self, connection: DatabaseConnection) -> None:
        """Serve all channels until the connection breaks."""
        self._connection = connection
        connection.add_termination_listener(self._on_gone)
        try:
            with suppress(*DRIVER_ERRORS):
                await self._receive(connection)
        finally:
            self._connection = None
            connection.terminate()

    async def _receive(self, connection: DatabaseConnection) -> None:
        channels: set[str] = set()
        while not connection.is_closed():
            self._changed.clear()
            for channel in [name for name in self._subscribers if name not in channels]:
                await connection.add_listener(channel, self._on_notify)
                channels.add(channel)
                self._deliver(channel, "")
            with suppress(TimeoutError):
                async with asyncio.timeout(_PROBE_EVERY_S):
                    await self._changed.wait()
                    continue
            await connection.execute(statement("server_probe").text)

    def _on_gone(self, _connection: DatabaseConnection) -> None:
        self._changed.set()

    def _on_notify(self, _connection: DatabaseConnection, _pid: int, channel: str, payload: str) -> None:
        self._deliver(channel, payload)

    def _deliver(self, channel: str, payload: str) -> None:
        for on_payload in list(self._subscribers[channel]):
            on_payload(payload)
