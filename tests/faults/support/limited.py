"""A child that meets a 429: ``fault.limited`` pauses its group for ``args.for_s`` seconds, each time it runs.

With "spins" among what is ``unsafe`` it just asks to run again.
"""

from __future__ import annotations

import socket
from typing import Any

from fairlead.engine.jobs.handler import Handler, JobContext
from tests.faults.support import worker


def main(channel: socket.socket, order: dict[str, Any]) -> None:
    """As support/worker.py."""
    worker._Worker = _Worker  # type: ignore[misc]
    worker.main(channel, order)


class _Worker(worker._Worker):
    def handlers(self) -> list[Handler]:
        return [*super().handlers(), Handler("fault.limited", self._limited)]

    async def _limited(self, context: JobContext) -> object:
        self._began(context)
        if "spins" in self._order.get("unsafe", ()):
            return context.snooze(0.0)
        return context.pause(context.args["for_s"], reason="429")
