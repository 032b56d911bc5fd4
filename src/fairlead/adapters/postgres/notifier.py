"""Telling workers that there is work, not too often: a NOTIFY takes a lock of the whole database (Q13).

the first in a while   > goes out with the statement that stored the job
more within 20 ms      > one more at the end of these 20 ms, so that the last job is never left to the poll
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
"""These are hints: workers poll, too."""


class Notifier:
    """One per process. *enabled* False: workers poll."""

    def __init__(self, database: Database, *, enabled: bool = True) -> None:
        self._database = database
        self._enabled = enabled
        self._quiet_until: dict[str, float] = {}
        self._late = set[str]()
        self._telling = set[asyncio.Task[None]]()

    def now(self, queues: AbstractSet[str]) -> bool:
        """Whether the statement that is about to be sent shall notify; if not, it will be made up for."""
        if not self._enabled or not queues:
            return False
        moment = asyncio.get_running_loop().time()
        if any(self._quiet_until.get(queue, 0.0) <= moment for queue in queues):
            self._quiet_until.update(dict.fromkeys(queues, moment + QUIET_S))
            return True
        for queue in queues - self._late:
            self._late.add(queue)
            wait_s = self._quiet_until[queue] - moment
            task = asyncio.create_task(self._tell(queue, wait_s), name="fairlead-notify")
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)
        return False

    async def close(self) -> None:
        """Send what is still to be told, unless the database is silent."""
        if not self._telling:
            return
        _, silent = await asyncio.wait(self._telling, timeout=CLOSE_S)
        for task in silent:
            task.cancel()
        await asyncio.gather(*silent, return_exceptions=True)

    async def _tell(self, queue: str, wait_s: float) -> None:
        await asyncio.sleep(wait_s)
        self._late.discard(queue)
        self._quiet_until[queue] = asyncio.get_running_loop().time() + QUIET_S
        with suppress(FairleadError):  # a hint only: polling stays the truth
            await self._database.fetch(statement("job_notify"), queue=queue)
