"""LISTEN on a connection of its own, which comes back by itself.

A notification is a hint and may be lost with its connection, so whoever listens is told "" each time the
connection was made anew: something may have happened meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from fairlead.adapters.postgres.driver import Connection
from fairlead.adapters.postgres.postgres_errors import DRIVER_ERRORS
from fairlead.adapters.postgres.statements import statement
from fairlead.errors import SetupError

OnPayload = Callable[[str], None]

_PAUSE_S = (0.1, 0.5, 1.0, 2.0)
"""Between two connections; the last one repeats. One that served for longer than that begins anew: a server
that lets everybody in and nobody listen, a stand-by, is not asked all the time."""
_PROBE_EVERY_S = 10.0  # a peer that fell silent is noticed by this question, within 30 s (E16)


class Listener:
    """Serves all channels of a process with one connection, made when the first one is added."""

    def __init__(self, connect: Callable[[], Awaitable[Connection]]) -> None:
        self._connect = connect
        self._heard: dict[str, list[OnPayload]] = {}
        self._task: asyncio.Task[None] | None = None
        self._connection: Connection | None = None
        self._changed = asyncio.Event()  # a channel was added, or the connection is gone

    async def add(self, channel: str, on_payload: OnPayload) -> Callable[[], Awaitable[None]]:
        """Call *on_payload* from now on; the function given back ends that."""
        self._heard.setdefault(channel, []).append(on_payload)
        self._changed.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="fairlead-listen")

        async def stop() -> None:
            self._heard[channel].remove(on_payload)

        return stop

    def renew(self) -> None:
        """Give the connection up for a new one: it leads to a server that nobody writes to any more."""
        if self._connection is not None:
            self._connection.terminate()

    async def close(self) -> None:
        """End the connection."""
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
                began_s = loop.time()
                await self._serve(connection)
                served_s = loop.time() - began_s
            if served_s > _PAUSE_S[-1]:
                tries = 0
            await asyncio.sleep(_PAUSE_S[min(tries, len(_PAUSE_S) - 1)])
            tries += 1

    async def _serve(self, connection: Connection) -> None:
        """Until the connection breaks."""
        self._connection = connection
        connection.add_termination_listener(self._on_gone)
        try:
            with suppress(*DRIVER_ERRORS):
                await self._hear(connection)
        finally:
            self._connection = None
            connection.terminate()

    async def _hear(self, connection: Connection) -> None:
        served: set[str] = set()
        while not connection.is_closed():
            self._changed.clear()
            for channel in [name for name in self._heard if name not in served]:
                await connection.add_listener(channel, self._on_notify)
                served.add(channel)
                self._tell(channel, "")
            with suppress(TimeoutError):
                async with asyncio.timeout(_PROBE_EVERY_S):
                    await self._changed.wait()
                    continue
            await connection.execute(statement("server_probe").text)

    def _on_gone(self, _connection: Connection) -> None:
        self._changed.set()

    def _on_notify(self, _connection: Connection, _pid: int, channel: str, payload: str) -> None:
        self._tell(channel, payload)

    def _tell(self, channel: str, payload: str) -> None:
        for on_payload in list(self._heard[channel]):
            on_payload(payload)
