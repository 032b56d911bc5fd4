"""Schedules and their ticks in memory; see ``fairlead.engine.ports.DutyStore``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from fairlead.engine.ports import NewJob, Schedule, ScheduleState
from fairlead.testing.memory.database import MemoryStore, seconds, statement
from fairlead.testing.memory.enqueue import insert
from fairlead.testing.memory.rows import DutyRow, ScheduleRow


class MemoryDutyStore(MemoryStore):
    """Schedules of a `MemoryDatabase`."""

    @statement
    def sync_schedules(self, schedules: Sequence[Schedule]) -> None:
        for schedule in schedules:
            row = self.database.schedules.get(schedule.name)
            if row is None:
                self.database.schedules[schedule.name] = ScheduleRow(schedule, self.database.now)
            else:
                row.schedule = schedule

    @statement
    def schedules(self) -> list[ScheduleState]:
        now = self.database.now
        return [ScheduleState(row.schedule, row.last_tick, now) for row in self.database.schedules.values()]

    @statement
    def take_tick(
        self, name: str, seen: datetime, tick: datetime, coalesced: int, session_id: UUID, job: NewJob
    ) -> bool:
        row = self.database.schedules.get(name)
        if row is None or row.last_tick != seen or row.schedule.paused:
            return False
        row.last_tick = tick
        stored = insert(self.database, job)
        job_id = stored.job_id if stored.inserted else None
        self.database.duties[name, tick] = DutyRow(
            name, tick, session_id, coalesced, job_id, self.database.now
        )
        return True

    @statement
    def prune(self, older_than_s: float, limit: int) -> int:
        before = self.database.now - seconds(older_than_s)
        old = [key for key, duty in self.database.duties.items() if duty.taken_at < before][:limit]
        for key in old:
            del self.database.duties[key]
        return len(old)
