"""A child of the soak: a user's program that does everything at once, for as long as it lives.

As support/client.py, whose ``targets`` it calls all the time. Besides it has the jobs of support/worker.py,
jobs ``soak.call`` and ``soak.tick``, and refreshes ``refreshes`` (ids of connections) again and again, one
every ``refresh_every_s``. Its ``seed`` draws which.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from random import Random
from typing import Any
from uuid import UUID

from fairlead import JobContext
from fairlead.assembly.runtime import Runtime
from fairlead.errors import FairleadError
from fairlead.events import Event, JobsHandedBack
from tests.faults.support import client, worker
from tests.faults.support.unsafe import FaultRuntime


def main(channel: socket.socket, order: dict[str, Any]) -> None:
    """As support/client.py, with a runtime from which a safeguard may be taken (support/unsafe.py)."""
    FaultRuntime.order = order
    original_open = Runtime.open.__func__  # type: ignore[attr-defined]
    Runtime.open = classmethod(lambda _cls, *args: original_open(FaultRuntime, *args))  # type: ignore[assignment]
    asyncio.run(_Soaker(order).live(channel))


class _Soaker(client._Program):
    def __init__(self, order: dict[str, Any]) -> None:
        super().__init__(order)
        self._draw = Random(order["seed"])
        self._refreshed: Counter[str] = Counter()
        self._handed_back = 0
        for handler in worker._Worker(order).handlers():
            self._fl.job(handler.kind, timeout_s=handler.timeout_s)(handler.run)
        self._fl.job(kind="soak.call")(self._job)
        self._fl.job(kind="soak.tick")(self._tick)

    async def _begun(self, working: asyncio.Task[None]) -> None:
        """It works: what breaks while it starts is E06's, and ends a process."""
        runtime: Any = self._fl.runtime
        started = asyncio.create_task(runtime.begun.event.wait())
        await asyncio.wait((working, started), return_when=asyncio.FIRST_COMPLETED)
        started.cancel()

    async def _tick(self, context: JobContext) -> None:
        """Nothing: what counts is that it came, and once."""

    def _hear(self, event: Event) -> None:
        super()._hear(event)
        if isinstance(event, JobsHandedBack):
            self._handed_back += event.count

    async def _run(self) -> dict[str, Any]:
        await super()._run()
        self._loops.append(asyncio.create_task(self._refresh_on()))
        return {}

    async def _refresh_on(self) -> None:
        while not self._resting:
            await asyncio.sleep(self._order["refresh_every_s"])
            connection = UUID(self._draw.choice(self._order["refreshes"]))
            runtime = self._fl.runtime
            try:
                credential = await runtime.credentials.read_id(connection)
                assert credential is not None
                await runtime.tokens.coordinator.refresh(connection, credential.generation)
            except FairleadError as error:
                self._refreshed[type(error).__name__] += 1
            else:
                self._refreshed["refreshed"] += 1

    async def _figures(self) -> dict[str, Any]:
        figures = await super()._figures()
        return figures | {"refreshed": self._refreshed, "handed_back": self._handed_back}
