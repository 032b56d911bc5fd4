"""Processes as the command line shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fairlead.cli.kit.output import Record, fields_of

if TYPE_CHECKING:
    from fairlead.assembly.runtime import Runtime


async def processes(runtime: Runtime) -> list[Record]:
    """Return the processes that are alive or late, without this one."""
    own_id = runtime.heartbeat.session_id
    return [
        {
            "session_id": session.session_id,
            **fields_of(session.identity, "host pid"),
            **fields_of(session, "state running_jobs started_at version app_version trouble"),
            "heartbeat_age_s": round(session.heartbeat_age_s, 1),
        }
        for session in await runtime.sessions.search()
        if session.session_id != own_id and session.state in {"alive", "late"}
    ]


def with_trouble(processes: Sequence[Record]) -> list[Record]:
    """Return *processes* for a table: one that claims no jobs has the state ``unhealthy``."""
    return [{**process, "state": "unhealthy"} if process["trouble"] else process for process in processes]
