"""A child that goes by its own wall clock where the product goes by the server's: what ablations of E20 run.

Else as support/worker.py. Among what is ``unsafe``:
renews_by_own_clock     its session was renewed when its own clock says so
judges_by_own_clock     it judges by that clock who has been silent for a lease
schedules_by_own_clock  a job that it stores is due when that clock says so
"""

from __future__ import annotations

import socket
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any
from uuid import UUID

from fairlead.adapters.postgres import worker_sessions as sessions_module
from fairlead.adapters.postgres.jobs import PostgresJobStore
from fairlead.adapters.postgres.statements import Statement
from fairlead.engine.ports import Enqueued, NewJob
from tests.faults.support import worker
from tests.support.rows import rows

_RENEW = (
    "UPDATE worker_session SET heartbeat_at = to_timestamp($2)"
    " WHERE session_id = $1 AND lost_at IS NULL AND stopped_at IS NULL RETURNING session_id"
)
_SILENT = "w.heartbeat_at NOT BETWEEN now() - w.lease AND now() + w.lease"


def main(channel: socket.socket, order: dict[str, Any]) -> None:
    """As support/worker.py."""
    unsafe = order.get("unsafe", ())
    if "renews_by_own_clock" in unsafe:
        sessions_module.PostgresSessionStore.heartbeat = _renewed  # type: ignore[assignment,method-assign]
    if "judges_by_own_clock" in unsafe:
        _judge_by_own_clock(sessions_module)
    if "schedules_by_own_clock" in unsafe:
        PostgresJobStore.enqueue = _scheduling(PostgresJobStore.enqueue)  # type: ignore[method-assign]
    worker.main(channel, order)


async def _renewed(store: Any, session_id: UUID) -> bool:
    return bool(await rows(store._database, _RENEW, session_id, time.time()))


def _judge_by_own_clock(module: Any) -> None:
    original = module.statement

    def judging(name: str) -> Statement:
        sql: Statement = original(name)
        if name != "session_rescue":
            return sql
        assert _SILENT in sql.text, f"{name} does not say {_SILENT!r} any more"
        heartbeat_sql = _SILENT.replace("now()", f"to_timestamp({time.time()!r})")
        return replace(sql, text=sql.text.replace(_SILENT, heartbeat_sql))

    module.statement = judging


def _scheduling(original: Callable[..., Awaitable[list[Enqueued]]]) -> Callable[..., Any]:
    async def enqueue(store: Any, jobs: Iterable[NewJob]) -> list[Enqueued]:
        now = await rows(store._database, "SELECT date_part('epoch', clock_timestamp()) AS s")
        ahead_s = time.time() - now[0]["s"]
        return await original(store, [replace(job, delay_s=max(0.0, job.delay_s + ahead_s)) for job in jobs])

    return enqueue
