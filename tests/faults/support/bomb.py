"""A child with a job that takes more memory than its process may have (support/membox.py).

``fault.bomb`` waits for the file ``args.when`` and then takes ``args.bytes``, bit by bit; it has its effect
only if nobody kills it for that. ``fault.neighbour`` waits for its file, and then works for ``args.work_s``.
Among what is ``unsafe``: "no_crash_count", a crash is counted against no job.
"""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from typing import Any

from fairlead.adapters.postgres import worker_sessions as sessions_module
from fairlead.engine.jobs.handler import Handler, JobContext
from tests.faults.support import worker
from tests.faults.support.unsafe import _alter

BIT_BYTES = 4 << 20
HELD_S = 20.0


def main(channel: socket.socket, order: dict[str, Any]) -> None:
    """As support/worker.py, in the box that *order* names."""
    if "memory_group" in order:
        (Path(order["memory_group"]) / "cgroup.procs").write_text(str(os.getpid()))
    if "no_crash_count" in order.get("unsafe", ()):
        _alter(
            sessions_module,
            "session_rescue",
            "crash_count + crashed::integer AS crash_total",
            "0 AS crash_total",
        )
        _alter(sessions_module, "session_rescue", "crash_count + 1 >=", "0 >=")
    worker._Worker = _Worker  # type: ignore[misc]
    worker.main(channel, order)


class _Worker(worker._Worker):
    def handlers(self) -> list[Handler]:
        jobs = {"bomb": self._bomb, "neighbour": self._neighbour}
        return [*super().handlers(), *(Handler(f"fault.{name}", run) for name, run in jobs.items())]

    async def _bomb(self, context: JobContext) -> object:
        fields = self._began(context)
        await _report(context)
        blocks = [b"x" * BIT_BYTES for _ in range(context.args["bytes"] // BIT_BYTES)]
        await asyncio.sleep(HELD_S)  # time to be seen, where the kernel does not look
        blocks.clear()
        return self._effect(fields)

    async def _neighbour(self, context: JobContext) -> object:
        fields = self._began(context)
        await _report(context)
        await asyncio.sleep(context.args["work_s"])
        return self._effect(fields)


async def _report(context: JobContext) -> None:
    while not Path(context.args["when"]).exists():
        await asyncio.sleep(worker.LOOK_S)
