"""A child that is ``fairlead run``: the command with its signals, its logs and its exit code.

It has the jobs of support/worker.py and the same order; it takes none later. What it logs is in its log.
Its order may say ``roles`` (default "worker"), and "no_drain" among what is ``unsafe``: it just ends.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import Any

from fairlead import app, cli
from fairlead.assembly.config import Config
from fairlead.assembly.runtime import Roles, Runtime
from fairlead.assembly.settings import Settings
from fairlead.cli import run as _loaded_before_the_fork  # noqa: F401
from tests.faults.support import roads, worker
from tests.faults.support.unsafe import FaultRuntime

fl: app.Fairlead  # what the command is told to run


def main(channel: socket.socket, order: dict[str, Any]) -> None:
    """Run the command, and end as it ends."""
    global fl  # noqa: PLW0603 (the command looks for it by name)
    roads.prepare(order)
    FaultRuntime.order = order
    original_open = Runtime.open.__func__  # type: ignore[attr-defined]
    Runtime.open = classmethod(lambda _cls, *args: original_open(FaultRuntime, *args))  # type: ignore[assignment]
    fl = _Program(channel, order)
    code = cli.main(["run", "--app", f"{__name__}:fl", "--role", order.get("roles", "worker"), "--json"])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


class _Program(app.Fairlead):
    """A user's program. It says on *channel* when it works."""

    def __init__(self, channel: socket.socket, order: dict[str, Any]) -> None:
        super().__init__(Config(Settings.model_validate(order["settings"]), {}))
        self._channel = channel
        self._unsafe = order.get("unsafe", ())
        for handler in worker._Worker(order).handlers():
            self.job(handler.kind, timeout_s=handler.timeout_s)(handler.run)

    async def run(self, roles: Roles | None = None) -> None:
        ready_fields = {"number": 0, "session_id": str(self.runtime.heartbeat.session_id)}
        self._channel.sendall(json.dumps(ready_fields).encode() + b"\n")
        await super().run(roles)

    def stop(self) -> None:
        if "no_drain" in self._unsafe:
            os._exit(0)
        super().stop()
