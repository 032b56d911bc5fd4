"""Cron entries and their runs, on PostgreSQL: see fairlead.engine.ports.ScheduleStore."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.driver import Row
from fairlead.adapters.postgres.job_rows import RUN_JOB_FIELDS, args_text, job_values, with_values
from fairlead.adapters.postgres.statements import statement
from fairlead.engine.ports import NewJob, Pause, Schedule, ScheduleRun, ScheduleState


class PostgresScheduleStore:
    """The ScheduleStore port on PostgreSQL."""

    def __init__(self, database: Database, *, notify: bool = True) -> None:
        self._database = database
        self._notify = notify

    async def sync_schedules(self, schedules: Sequence[Schedule]) -> None:
        columns = {
            "names": [s.name for s in schedules],
            "expressions": [s.expression for s in schedules],
            "kinds": [s.kind for s in schedules],
            "tenant_ids": [s.tenant_id for s in schedules],
            "timezones": [s.timezone for s in schedules],
            "missed": [s.missed for s in schedules],
            "queues": [s.queue for s in schedules],
            "priorities": [s.priority for s in schedules],
            "args": [args_text(s.args, s.tenant_id) for s in schedules],
            "jitters_s": [s.jitter_s for s in schedules],
            "paused": [s.paused for s in schedules],
        }
        await self._database.resolve_doubt(
            lambda: self._database.fetch(statement("schedule_sync"), **columns)
        )

    async def schedules(self) -> list[ScheduleState]:
        return [_state(row) for row in await self._database.fetch(statement("schedule_list"))]

    async def pause(self, name: str, by: str, reason: str) -> bool:
        return await self._changed("schedule_pause", name=name, by=by, reason=reason)

    async def resume(self, name: str, *, make_up: bool) -> bool:
        return await self._changed("schedule_resume", name=name, make_up=make_up)

    async def remove(self, name: str) -> None:
        await self._changed("schedule_remove", name=name)

    async def _changed(self, act: str, **values: object) -> bool:
        """Run an idempotent statement, repeated if in doubt; return whether there was such a schedule."""
        row = await self._database.resolve_doubt(lambda: self._database.first(statement(act), **values))
        return row is not None

    async def rewind(self) -> list[str]:
        rows = await self._database.resolve_doubt(lambda: self._database.fetch(statement("schedule_rewind")))
        return sorted(row["name"] for row in rows)

    async def record_run(
        self,
        name: str,
        last_run_at: datetime,
        run_at: datetime,
        coalesced: int,
        session_id: UUID,
        job: NewJob,
    ) -> bool:
        values = {
            "name": name,
            "seen": last_run_at,
            "run_at": run_at,
            "coalesced": coalesced,
            "session_id": session_id,
            "notify": self._notify,
            **job_values(job, RUN_JOB_FIELDS),
        }

        async def take() -> bool:
            return await self._database.first(statement("schedule_run_take"), **values) is not None

        async def take_or_taken() -> bool:
            """Repeat the statement, which waits for a first one still running, then read its effect."""
            run = {"name": name, "run_at": run_at, "session_id": session_id}
            return (
                await take() or await self._database.first(statement("schedule_run_taken"), **run) is not None
            )

        return await self._database.resolve_doubt(take, take_or_taken)

    async def runs(self, name: str, limit: int) -> list[ScheduleRun]:
        rows = await self._database.fetch(statement("schedule_run_search"), schedule=name, limit=limit)
        return [ScheduleRun(**dict(row.items())) for row in rows]

    async def prune(self, older_than_s: float, limit: int) -> int:
        row = await self._database.first(
            statement("schedule_run_prune"), older_than_s=older_than_s, limit=limit
        )
        return int(row["deleted"]) if row else 0


def _state(row: Row) -> ScheduleState:
    fields = with_values(row, "args")
    last_run_at, now, unhandled_s = (fields.pop(name) for name in ("last_run_at", "now", "unhandled_s"))
    at, by, reason = fields.pop("pause_at"), fields.pop("pause_by"), fields.pop("pause_reason")
    return ScheduleState(
        Schedule(**fields), last_run_at, now, None if at is None else Pause(at, by, reason), unhandled_s
    )
