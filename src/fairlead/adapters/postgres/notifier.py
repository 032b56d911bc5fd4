"""Notifies workers of new jobs, at a bounded rate, because NOTIFY takes a lock of the whole database.

    first job in 20 ms    > notified by the statement that stores it
    more within 20 ms     > one more NOTIFY at the end of the 20 ms, so that no job waits for the poll

Spec: Q13.
"""

from __future__ import annotations

import asyncio
from collections.abc import Set as AbstractSet
from contextlib import suppress

from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.statements import statement
from fairlead.errors import FairleadError

QUIET_S = 0.02
CLOSE_S = 2.0
"""Time that `close` gives to pending notifications. They are hints: workers also poll."""


class Notifier:
    """Decides which statement notifies. One per process.

    Args:
        enabled: False if workers only poll. Default True.
    """

    def __init__(self, database: Database, *, enabled: bool = True) -> None:
        self._database = database
        self._enabled = enabled
        self._quiet_until_mono: dict[str, float] = {}
        self._pending_queues = set[str]()
        self._tasks = set[asyncio.Task[None]]()

    def now(self, queues: AbstractSet[str]) -> bool:
        """Return whether the next statement must notify. If not, a later NOTIFY is scheduled."""
        if not self._enabled or not queues:
            return False
        now_mono = asyncio.get_running_loop().time()
        if any(self._quiet_until_mono.get(queue, 0.0) <= now_mono for queue in queues):
            self._quiet_until_mono.update(dict.fromkeys(queues, now_mono + QUIET_S))
            return True
        for queue in queues - self._pending_queues:
            self._pending_queues.add(queue)
            wait_s = self._quiet_until_mono[queue] - now_mono
            task = asyncio.create_task(self._notify_after(queue, wait_s), name="fairlead-notify")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return False

    async def close(self) -> None:
        """Send pending notifications, unless the database does not answer."""
        if not self._tasks:
            return
        _, unanswered = await asyncio.wait(self._tasks, timeout=CLOSE_S)
        for task in unanswered:
            task.cancel()
        await asyncio.gather(*unanswered, return_exceptions=True)

    async def _notify_after(self, queue: str, wait_s: float) -> None:
        await asyncio.sleep(wait_s)
        self._pending_queues.discard(queue)
        self._quiet_until_mono[queue] = asyncio.get_running_loop().time() + QUIET_S
        with suppress(FairleadError):  # workers also poll
            await self._database.fetch(statement("job_notify"), queue=queue)
