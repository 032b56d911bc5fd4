"""Dead letters in memory; see ``fairlead.engine.ports.DeadLetterStore``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from datetime import datetime
from uuid import UUID

from fairlead.engine.ports import DeadLetter, DeadLetterFilter, DeadLetterGroup, NewJob
from fairlead.policy.failures.category import Category
from fairlead.policy.jobs.states import DeadLetterStatus, JobState
from fairlead.testing._memory.database import MemoryStore, seconds, statement
from fairlead.testing._memory.enqueue import covering, insert
from fairlead.testing._memory.rows import OPEN, DeadLetterRow, copied


class MemoryDeadLetterStore(MemoryStore):
    """Dead letters of a `MemoryDatabase`."""

    @statement
    def due(self, limit: int) -> list[DeadLetter]:
        now = self.database.now
        due = [(row.action_due_at, row) for row in self._open() if row.action_due_at is not None]
        rows = [row for at, row in sorted(due, key=lambda pair: (pair[0], pair[1].first_at)) if at <= now]
        return [replace(self._view(row), regranted=self._is_regranted(row)) for row in rows[:limit]]

    def _is_regranted(self, row: DeadLetterRow) -> bool:
        grant = self.database.tokens.credentials.get(row.connection_id) if row.connection_id else None
        if grant is None or grant.granted_at is None or grant.key.tenant != row.tenant_id:
            return False
        newer = grant.state == "active" and grant.granted_at > row.last_at
        return newer and row.category == Category.PERMANENT_AUTH

    @statement
    def get(self, dead_letter_id: UUID) -> DeadLetter | None:
        row = self.database.dead_letters.get(dead_letter_id)
        return None if row is None else self._view(row)

    async def search(
        self, *, status: str | None, category: str | None, tenant_id: str | None, kind: str | None, limit: int
    ) -> list[DeadLetter]:
        criteria = DeadLetterFilter(status=status, category=category, tenant_id=tenant_id, kind=kind)
        return await self.find(criteria, limit=limit)

    @statement
    def find(
        self,
        criteria: DeadLetterFilter,
        *,
        limit: int,
        cursor: UUID | None = None,
        oldest_first: bool = False,
        at_rest: bool = False,
    ) -> list[DeadLetter]:
        rows = sorted(
            self._matching_rows(criteria), key=lambda row: row.dead_letter_id, reverse=not oldest_first
        )
        if cursor is not None:
            rows = [row for row in rows if (row.dead_letter_id > cursor) == oldest_first]
            rows = [row for row in rows if row.dead_letter_id != cursor]
        if at_rest:
            rows = [row for row in rows if not self._is_under_way(row)]
        return [self._view(row) for row in rows[:limit]]

    def _is_under_way(self, row: DeadLetterRow) -> bool:
        work = (row.kind, row.tenant_id, row.unique_key)
        return row.replay_job_id is not None or any(
            job.state in OPEN and job.unique_key is not None and job.unique_live
            for job in self.database.jobs.values()
            if (job.kind, job.tenant_id, job.unique_key) == work
        )

    @statement
    def group(self, criteria: DeadLetterFilter, by: str, limit: int) -> list[DeadLetterGroup]:
        ages: dict[str | None, list[float]] = {}
        for row in self._matching_rows(criteria):
            ages.setdefault(getattr(row, by), []).append((self.database.now - row.first_at).total_seconds())
        groups = [DeadLetterGroup(value, len(ages_s), max(ages_s)) for value, ages_s in ages.items()]
        return sorted(groups, key=lambda group: (-group.entries, str(group.value)))[:limit]

    @statement
    def closed_count(self, older_than_s: float) -> int:
        horizon_at = self.database.now - seconds(older_than_s)
        rows = self.database.dead_letters.values()
        return sum(row.resolved_at is not None and row.resolved_at < horizon_at for row in rows)

    def _matching_rows(self, criteria: DeadLetterFilter) -> list[DeadLetterRow]:
        fields = {name: value for name, value in asdict(criteria).items() if value is not None}
        older_than_s = fields.pop("older_than_s", 0.0)
        horizon_at = self.database.now - seconds(older_than_s)
        return [
            row
            for row in self.database.dead_letters.values()
            if row.first_at <= horizon_at
            and all(getattr(row, name) == value for name, value in fields.items())
        ]

    @statement
    def redrive(
        self, dead_letter_id: UUID, job: NewJob, *, last_at: datetime | None = None, by: str | None = None
    ) -> bool:
        row = self._open_one(dead_letter_id, last_at)
        if row is None or row.replay_job_id is not None or row.tenant_id != job.tenant_id:
            return False
        kept_until = self._give_up_key(row.job_id)
        if covering(self.database, job) is not None:
            return False
        insert(self.database, replace(job, replay_of=dead_letter_id, unique_while="waiting"))
        self.database.jobs[job.job_id].unique_until = kept_until
        row.replay_job_id, row.action_due_at = job.job_id, None
        row.replays += 1
        row.replayed_by = by
        return True

    def _give_up_key(self, job_id: UUID) -> datetime | None:
        """Take the unique key from a discarded job for its replay, and return until when it lasts."""
        discarded = self.database.jobs.get(job_id)
        if discarded is None or discarded.state is not JobState.DISCARDED:
            return None
        kept_until, discarded.unique_until = discarded.unique_until, None
        return kept_until

    @statement
    def resolve(
        self,
        dead_letter_id: UUID,
        *,
        status: str,
        resolution: str,
        by: str,
        reason: str,
        tenant_id: str | None = None,
        last_at: datetime | None = None,
    ) -> str | None:
        row = self._open_one(dead_letter_id, last_at)
        if row is None or tenant_id not in (None, row.tenant_id):
            return None
        row.close(DeadLetterStatus(status), resolution, by, reason, self.database.now)
        replay = self.database.jobs.get(row.replay_job_id) if row.replay_job_id else None
        if replay is None or replay.state not in OPEN or row.status is not DeadLetterStatus.ABANDONED:
            return "closed"
        return replay.cancel(f"its dead letter was closed by {by}: {reason}", self.database.now)

    @statement
    def postpone(
        self,
        dead_letter_id: UUID,
        action_in_s: float | None,
        *,
        last_at: datetime | None = None,
        reauth_started: bool = False,
        notified: bool = False,
    ) -> None:
        row, now = self._open_one(dead_letter_id, last_at), self.database.now
        if row is None:
            return
        row.action_due_at = None if action_in_s is None else now + seconds(action_in_s)
        if reauth_started:
            row.reauth_started_at = row.reauth_started_at or now
        if notified:
            row.last_notice_at = now

    @statement
    def open_count(self, queue: str) -> int:
        return sum(row.queue == queue for row in self._open())

    @statement
    def counts(self) -> Mapping[str, int]:
        return Counter(row.category for row in self._open())

    @statement
    def prune(self, older_than_s: float, bound: int, limit: int) -> int:
        horizon_at = self.database.now - seconds(older_than_s)
        rows = list(self.database.dead_letters.values())
        size = Counter(row.queue for row in rows)
        closed = [(row.resolved_at, row) for row in rows if row.resolved_at is not None]
        count = 0
        for at, row in sorted(closed, key=lambda pair: pair[0]):
            if count < limit and (at < horizon_at or size[row.queue] > bound):
                del self.database.dead_letters[row.dead_letter_id]
                size[row.queue] -= 1
                count += 1
        return count

    def _open(self) -> Iterable[DeadLetterRow]:
        return [row for row in self.database.dead_letters.values() if row.open]

    def _open_one(self, dead_letter_id: UUID, last_at: datetime | None) -> DeadLetterRow | None:
        row = self.database.dead_letters.get(dead_letter_id)
        return row if row is not None and row.open and last_at in (None, row.last_at) else None

    def _view(self, row: DeadLetterRow) -> DeadLetter:
        age_s = (self.database.now - row.first_at).total_seconds()
        return copied(DeadLetter, row, status=row.status.value, age_s=age_s)
