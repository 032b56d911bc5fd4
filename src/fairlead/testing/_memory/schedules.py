"""Schedules and their runs in memory; see ``fairlead.engine.ports.ScheduleStore``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from fairlead.engine.ports import NewJob, Pause, Schedule, ScheduleRun, ScheduleState
from fairlead.testing._memory.database import MemoryStore, seconds, statement
from fairlead.testing._memory.enqueue import covering, insert
from fairlead.testing._memory.rows import ScheduleRow, ScheduleRunRow


class MemoryScheduleStore(MemoryStore):
    """Schedules of a `MemoryDatabase`."""

    @statement
    def sync_schedules(self, schedules: Sequence[Schedule]) -> None:
        for schedule in schedules:
            row = self.database.schedules.get(schedule.name)
            if row is None:
                now = self.database.now
                self.database.schedules[schedule.name] = ScheduleRow(schedule, now, now)
            elif row.schedule != schedule:
                previous = row.schedule
                moved = (previous.expression, previous.timezone) != (schedule.expression, schedule.timezone)
                if moved or (previous.paused and not schedule.paused):
                    row.last_run_at = max(row.last_run_at, self.database.now)
                row.schedule, row.declared_at = schedule, self.database.now

    @statement
    def schedules(self) -> list[ScheduleState]:
        now = self.database.now
        rows = sorted(self.database.schedules.items())
        return [
            ScheduleState(row.schedule, row.last_run_at, now, row.pause, self._unhandled_s(row))
            for _, row in rows
        ]

    def _unhandled_s(self, row: ScheduleRow) -> float:
        schedule = row.schedule
        handled_at = self.database.handled_at.get((schedule.queue, schedule.kind), row.declared_at)
        return max(0.0, (self.database.now - handled_at).total_seconds())

    @statement
    def pause(self, name: str, by: str, reason: str) -> bool:
        row = self.database.schedules.get(name)
        if row is not None and row.pause is None:
            row.pause = Pause(self.database.now, by, reason)
        return row is not None

    @statement
    def resume(self, name: str, *, make_up: bool) -> bool:
        row = self.database.schedules.get(name)
        if row is not None and row.pause is not None:
            row.pause = None
            row.last_run_at = row.last_run_at if make_up else max(row.last_run_at, self.database.now)
        return row is not None

    @statement
    def remove(self, name: str) -> None:
        self.database.schedules.pop(name, None)

    @statement
    def rewind(self) -> list[str]:
        now, rows = self.database.now, sorted(self.database.schedules.items())
        ahead = [(name, row) for name, row in rows if row.last_run_at > now + seconds(60)]
        for _, row in ahead:
            row.last_run_at = now
        return [name for name, _ in ahead]

    @statement
    def record_run(
        self,
        name: str,
        last_run_at: datetime,
        run_at: datetime,
        coalesced: int,
        session_id: UUID,
        job: NewJob,
    ) -> bool:
        row = self.database.schedules.get(name)
        if row is None or row.last_run_at != last_run_at or row.schedule.paused or row.pause is not None:
            return False
        row.last_run_at = run_at
        if (name, run_at) in self.database.schedule_runs:  # from before the clock was set back
            return True
        late_s = max(0.0, (self.database.now - run_at).total_seconds())
        holder = covering(self.database, job)
        if holder is None:
            insert(
                self.database, replace(job, delay_s=max(0.0, job.delay_s - late_s), unique_while="waiting")
            )
        elif not holder.attempt and not holder.settled_lease_id and holder.follow_at is None:
            holder.run_at = min(
                holder.run_at, self.database.now
            )  # the waiting job runs in place of the run's
        job_id = job.job_id if holder is None else None
        self.database.schedule_runs[name, run_at] = ScheduleRunRow(
            name, run_at, session_id, coalesced, job_id, self.database.now
        )
        return True

    @statement
    def runs(self, name: str, limit: int) -> list[ScheduleRun]:
        rows = [run for run in self.database.schedule_runs.values() if run.schedule == name]
        rows.sort(key=lambda run: run.run_at, reverse=True)
        return [
            ScheduleRun(run.run_at, run.taken_at, run.session_id, run.coalesced, run.job_id)
            for run in rows[:limit]
        ]

    @statement
    def prune(self, older_than_s: float, limit: int) -> int:
        horizon_at = self.database.now - seconds(older_than_s)
        old = [key for key, run in self.database.schedule_runs.items() if run.taken_at < horizon_at][:limit]
        for key in old:
            del self.database.schedule_runs[key]
        return len(old)
