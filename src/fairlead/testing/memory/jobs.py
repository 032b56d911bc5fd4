"""The queue in memory; see ``fairlead.engine.ports.JobStore``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from uuid import UUID

from fairlead.engine.ports import (
    Cancelled,
    ClaimFilter,
    Completed,
    Discarded,
    Enqueued,
    Job,
    JobView,
    NewJob,
    Outcome,
    Rescheduled,
)
from fairlead.policy.job import job_label
from fairlead.policy.states import JobState
from fairlead.testing.memory.burial import bury, bury_unrun, failure_json, replay_ended
from fairlead.testing.memory.database import MemoryStore, seconds, statement
from fairlead.testing.memory.enqueue import holds_key, insert
from fairlead.testing.memory.rows import OPEN, JobRow


class MemoryJobStore(MemoryStore):
    """Jobs of a `MemoryDatabase`."""

    @statement
    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return [insert(self.database, job) for job in jobs]

    # ---- claiming ------------------------------------------------------------------------------

    @statement
    def claim(self, wanted: ClaimFilter, demand: int, session_id: UUID) -> list[Job]:
        ready = [row for row in self._due(wanted) if row.crash_count == 0]
        ready.sort(key=lambda row: (row.priority, row.run_at, row.job_id))
        for row in ready[:demand]:
            row.started_at = self.database.now
        return [self._claimed(row, session_id) for row in ready[:demand]]

    @statement
    def claim_suspect(self, wanted: ClaimFilter, session_id: UUID) -> Job | None:
        suspects = [row for row in self._due(wanted) if row.crash_count > 0]
        if not suspects:
            return None
        return self._claimed(min(suspects, key=lambda row: (row.run_at, row.job_id)), session_id)

    @statement
    def start_suspect(self, job_id: UUID, lease_id: int) -> bool:
        row = self._leased(job_id, lease_id)
        if row is None:
            return False
        row.started_at = self.database.now
        return True

    def _due(self, wanted: ClaimFilter) -> Iterator[JobRow]:
        now = self.database.now
        for row in self._available(wanted):
            if row.run_at <= now and (row.expires_at is None or row.expires_at > now):
                yield row

    def _available(self, wanted: ClaimFilter) -> Iterator[JobRow]:
        for row in self.database.jobs.values():
            if (
                row.state is JobState.AVAILABLE
                and (not wanted.queues or row.queue in wanted.queues)
                and (not wanted.kinds or row.kind in wanted.kinds)
                and (not wanted.providers or row.provider in wanted.providers)
            ):
                yield row

    def _claimed(self, row: JobRow, session_id: UUID) -> Job:
        row.state, row.session_id = JobState.RUNNING, session_id
        row.lease_id = lease_id = self.database.ids.lease_id()
        row.attempt += 1
        return Job(
            job_id=row.job_id,
            lease_id=lease_id,
            queue=row.queue,
            kind=row.kind,
            tenant_id=row.tenant_id,
            provider=row.provider,
            group_key=row.group_key,
            priority=row.priority,
            attempt=row.attempt,
            crash_count=row.crash_count,
            args=dict(row.args),
            streaks=dict(row.streaks),
            replay_of=row.replay_of,
            created_at=row.created_at,
            waited_s=(self.database.now - row.run_at).total_seconds(),
        )

    # ---- outcomes ------------------------------------------------------------------------------

    @statement
    def acknowledge(self, outcomes: Sequence[Outcome]) -> set[UUID]:
        accepted: set[UUID] = set()
        for outcome in outcomes:
            row = self._leased(outcome.job_id, outcome.lease_id)
            if row is not None:
                self._write(row, outcome)
                accepted.add(outcome.job_id)
        return accepted

    def _leased(self, job_id: UUID, lease_id: int) -> JobRow | None:
        row = self.database.jobs.get(job_id)
        return row if row is not None and row.lease_id == lease_id else None

    def _write(self, row: JobRow, outcome: Outcome) -> None:
        now = self.database.now
        if row.started_at is not None:  # any end without a crash clears the count (R3)
            row.crash_count = 0
        match outcome:
            case Completed():
                row.result = outcome.result
                row.end(JobState.COMPLETED, now)
                replay_ended(self.database, row)
            case Cancelled():
                row.result = {"cancelled": outcome.reason}
                row.end(JobState.CANCELLED, now)
                replay_ended(self.database, row)
            case Rescheduled(failure=None):
                row.attempt -= 1
                row.give_back(now + seconds(outcome.delay_s))
            case Rescheduled():
                assert outcome.failure is not None
                row.failures.append(failure_json(outcome.failure, now))
                row.streaks = dict(outcome.streaks)
                row.give_back(now + seconds(outcome.delay_s))
            case Discarded():
                bury(
                    self.database,
                    row,
                    outcome.failure,
                    dead_letter_id=outcome.dead_letter_id,
                    action_s=outcome.action_in_s,
                    connection_id=outcome.connection_id,
                    token_expires_at=outcome.token_expires_at,
                )

    # ---- keeping house -------------------------------------------------------------------------

    @statement
    def expire_due(self, limit: int) -> int:
        now = self.database.now
        late = [
            row
            for row in self.database.jobs.values()
            if row.state is JobState.AVAILABLE and row.expires_at is not None and row.expires_at <= now
        ]
        for row in late[:limit]:
            bury_unrun(self.database, row, "expired", "it was not run before it expired")
        return len(late[:limit])

    @statement
    def next_due_s(self, wanted: ClaimFilter) -> float | None:
        waits = [(row.run_at - self.database.now).total_seconds() for row in self._available(wanted)]
        return max(0.0, min(waits)) if waits else None

    @statement
    def prune(self, retention_s: Mapping[str, float], limit: int) -> int:
        old = [row for row in self.database.jobs.values() if self._is_old(row, retention_s)][:limit]
        for row in old:
            del self.database.jobs[row.job_id]
        return len(old)

    def _is_old(self, row: JobRow, retention_s: Mapping[str, float]) -> bool:
        keep_s = retention_s.get(row.state.value)
        if row.finished_at is None or keep_s is None or holds_key(self.database, row):
            return False
        return row.finished_at + seconds(keep_s) < self.database.now

    # ---- for people ----------------------------------------------------------------------------

    @statement
    def get(self, job_id: UUID) -> JobView | None:
        row = self.database.jobs.get(job_id)
        return None if row is None else self._view(row)

    @statement
    def search(
        self, *, state: str | None, kind: str | None, tenant_id: str | None, queue: str | None, limit: int
    ) -> list[JobView]:
        wanted = {"kind": kind, "tenant_id": tenant_id, "queue": queue}
        views = [
            self._view(row)
            for row in sorted(self.database.jobs.values(), key=lambda row: row.job_id, reverse=True)
            if all(value is None or getattr(row, name) == value for name, value in wanted.items())
        ]
        return [view for view in views if state is None or state in (view.state, view.label)][:limit]

    @statement
    def retry_now(self, job_id: UUID) -> bool:
        row = self.database.jobs.get(job_id)
        if row is None or row.state is not JobState.AVAILABLE:
            return False
        row.run_at = min(row.run_at, self.database.now)
        return True

    @statement
    def cancel(self, job_id: UUID, reason: str) -> bool:
        row = self.database.jobs.get(job_id)
        if row is None or row.state not in OPEN:
            return False
        row.result = {"cancelled": reason}
        row.end(JobState.CANCELLED, self.database.now)
        replay_ended(self.database, row)
        return True

    @statement
    def counts(self) -> Mapping[str, int]:
        return Counter(self._view(row).label for row in self.database.jobs.values())

    def _view(self, row: JobRow) -> JobView:
        return JobView(
            job_id=row.job_id,
            queue=row.queue,
            kind=row.kind,
            tenant_id=row.tenant_id,
            provider=row.provider,
            state=row.state.value,
            label=job_label(row.state, due=row.run_at <= self.database.now, attempt=row.attempt),
            priority=row.priority,
            attempt=row.attempt,
            crash_count=row.crash_count,
            run_at=row.run_at,
            created_at=row.created_at,
            finished_at=row.finished_at,
            expires_at=row.expires_at,
            unique_key=row.unique_key,
            args=dict(row.args),
            failures=list(row.failures),
            result=row.result,
        )
