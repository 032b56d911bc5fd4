"""A child that is ``fairlead run`` and talks much: all that happens, to where its order's ``outputs`` leads.

Its ledger (``ledger``) tells every few ms for how long its loop stood still since the line before, by its own
doing; how many lines were to be logged; and how many of these were dropped. ``queued_bytes`` is how many may
wait. ``unsafe`` "waits_for_the_reader": each line is written at once, by whoever logs it.
"""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from typing import Any

from fairlead.adapters.local.line_writer import LineWriter
from fairlead.assembly.runtime import Roles
from tests.faults.support import command
from tests.faults.support.calls import Watch, watched
from tests.faults.support.sink import Sink

TELL_EVERY_S = 0.02


class _Counted(LineWriter):
    """Counts what it is given."""

    last: _Counted | None = None

    def __init__(self, *args: Any, **named: Any) -> None:
        self.given = 0
        super().__init__(*args, **named)
        _Counted.last = self

    def put(self, line: bytes) -> bool:
        self.given += 1
        return super().put(line)


class _Waits(_Counted):
    def put(self, line: bytes) -> bool:
        self.given += 1
        os.write(self._fd, line)
        return True


class _Watched(command._Program):
    ledger = ""

    async def run(self, roles: Roles | None = None) -> None:
        async with watched() as watch:
            telling = asyncio.create_task(_tell(watch, Sink(Path(self.ledger))))
            try:
                await super().run(roles)
            finally:
                telling.cancel()


async def _tell(watch: Watch, ledger: Sink) -> None:
    try:
        while True:
            _tell_once(watch, ledger)
            await asyncio.sleep(TELL_EVERY_S)
    finally:
        _tell_once(watch, ledger)


def _tell_once(watch: Watch, ledger: Sink) -> None:
    writer = _Counted.last
    counts = {"given": writer.given, "dropped": writer.dropped} if writer else {"given": 0, "dropped": 0}
    ledger.write(stall_s=watch.stall_s, **counts)
    watch.stall_s = 0.0


def main(channel: socket.socket, order: dict[str, Any]) -> None:
    """As support/command.py."""
    from fairlead.assembly import logs

    outputs = os.open(order["outputs"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for descriptor in (1, 2):
        os.dup2(outputs, descriptor)
    os.close(outputs)
    order["settings"]["log"] = {"level": "debug", "format": "json"}
    LineWriter.__init__.__kwdefaults__["max_bytes"] = order["queued_bytes"]
    logs.LineWriter = _Waits if "waits_for_the_reader" in order.get("unsafe", ()) else _Counted  # type: ignore[misc]
    _Watched.ledger = order["ledger"]
    command._Program = _Watched  # type: ignore[misc]
    command.main(channel, order)
