"""A child that takes the runs of schedules, and dies of it.

Its order says ``dies``: {"take": n, "within_s": s}: SIGKILL to itself, s seconds into its n-th taking of a
run of a schedule that a test made. (Fault points before and after a taking are armed by ``fault``.) Each
taking is told to the sink named by ``takes`` before it begins, and begins up to ``dawdle_s`` late: by then
others may have been at it.

Among what is ``unsafe``:
no_compare         a run is taken whatever run was seen last, recorded or not
two_transactions   the run is recorded first, and its job stored after
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

from fairlead.adapters.postgres import schedule_runs as duties_module
from fairlead.assembly.runtime import Roles
from fairlead.engine.base.service import Service
from fairlead.engine.jobs.worker import Worker
from fairlead.engine.ports import NewJob
from tests.faults.support import worker as child
from tests.faults.support.careless import Around
from tests.faults.support.sink import Sink
from tests.faults.support.unsafe import FaultRuntime, _alter

OURS = "kills."
"""What the names of a test's schedules begin with."""

_COMPARE = "AND last_run_at = $3::timestamptz"
_UNRECORDED = (
    "WHERE NOT EXISTS (SELECT FROM schedule_run WHERE schedule = $2::text"
    "\n        AND run_at = $1::timestamptz)"
)
_RECORD = "FROM new_run\n        LEFT JOIN new_job ON true"


def main(channel: socket.socket, order: dict[str, Any]) -> None:
    """As support/worker.py."""
    child.FaultRuntime = _DutyRuntime  # type: ignore[misc]
    child.main(channel, order)


class _DutyRuntime(FaultRuntime):
    def __init__(self, config: Any) -> None:
        super().__init__(config)
        if "no_compare" in self.unsafe:
            _alter(duties_module, "schedule_run_take", _COMPARE, "AND $3::timestamptz IS NOT NULL")
            _alter(duties_module, "schedule_run_take", _UNRECORDED, "")
            _alter(duties_module, "schedule_run_take", _RECORD, f"{_RECORD} ON CONFLICT DO NOTHING")
        if "two_transactions" in self.unsafe:
            _alter(
                duties_module,
                "schedule_run_take",
                "WHERE (SELECT count(*) FROM released_key) >= 0",
                "WHERE false AND (SELECT count(*) FROM released_key) >= 0",
            )

    def _services(self, roles: Roles, worker: Worker | None) -> list[Service]:
        schedule_store: Any = self.schedule_store
        if "two_transactions" in self.unsafe:
            schedule_store = _Apart(schedule_store, self.jobs)
        self.stores.schedule_store = _Mortal(schedule_store, self.order)  # type: ignore[assignment]
        return super()._services(roles, worker)


class _Mortal(Around):
    """Tells of each taking of our runs, and dies in one of them."""

    def __init__(self, inner: Any, order: dict[str, Any]) -> None:
        super().__init__(inner)
        self._dies = order.get("dies") or {"take": 0}
        self._takes = Sink(Path(order["takes"]))
        self._dawdle_s, self._draw = order["dawdle_s"], Random(order["seed"])
        self._count = 0

    async def record_run(
        self, name: str, seen_at: datetime, run_at: datetime, coalesced: int, session_id: UUID, job: NewJob
    ) -> bool:
        arguments = (name, seen_at, run_at, coalesced, session_id, job)
        if not name.startswith(OURS):
            return bool(await self._inner.record_run(*arguments))
        await asyncio.sleep(self._draw.uniform(0.0, self._dawdle_s))
        self._takes.write(run_at=run_at.isoformat(), session=str(session_id))
        self._count += 1
        if self._count != self._dies["take"]:
            return bool(await self._inner.record_run(*arguments))
        until_s = time.perf_counter() + self._dies["within_s"]
        taking = asyncio.ensure_future(self._inner.record_run(*arguments))
        while time.perf_counter() < until_s:  # not a timer: those are too coarse
            await asyncio.sleep(0)
        os.kill(os.getpid(), signal.SIGKILL)
        return bool(await taking)


class _Apart(Around):
    """The record of a run here, its job there."""

    def __init__(self, inner: Any, jobs: Any) -> None:
        super().__init__(inner)
        self._jobs = jobs

    async def record_run(self, *args: Any) -> bool:
        is_recorded: bool = await self._inner.record_run(*args)
        if is_recorded:
            await self._jobs.enqueue([args[-1]])
        return is_recorded
