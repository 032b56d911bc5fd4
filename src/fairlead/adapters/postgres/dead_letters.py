"""Dead letters on PostgreSQL: see fairlead.engine.ports.DeadLetterStore.

The statements that discard jobs (job_discard, job_expire, session_rescue) write them by one function of the
schema. This module reads, redrives and closes them. Every change is a compare-and-set on the open entry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from uuid import UUID

from fairlead.adapters.postgres.database import Database, Transaction
from fairlead.adapters.postgres.driver import Row
from fairlead.adapters.postgres.job_rows import RUN_JOB_FIELDS, cancel_text, job_values, with_values
from fairlead.adapters.postgres.statements import statement
from fairlead.engine.ports import DeadLetter, DeadLetterFilter, DeadLetterGroup, NewJob
from fairlead.errors import RefusedError
from fairlead.policy.jobs.lane import is_internal_kind
from fairlead.policy.reasons.job_reasons import DEAD_LETTERS_FULL

REFRESH_INTERVAL_S = 5.0


class DeadLetterBound:
    """Refuses new work of a kind, or of one tenant, that has too many open dead letters.

    Each enqueue checks this, so the result of the query is cached for 5 s per queue. The number of entries is
    thus bounded by *bound* and the failures within these seconds. Runs of schedules and redrives are exempt,
    because they empty a full queue. So are fairlead's own kinds: a tenant's dead letters must not stop the
    refreshes of others, and each connection has only one open job of these kinds. Spec: Q10, R19.
    """

    def __init__(self, database: Database, bound: int) -> None:
        self._database = database
        self._bound = bound
        self._full: dict[str, frozenset[tuple[str, str | None]]] = {}
        self._refresh_at: dict[str, float] = {}

    async def check(self, jobs: Sequence[NewJob], within: Transaction | None = None) -> None:
        """Raise RefusedError if one of *jobs* may not be stored now; then none of them may be.

        Args:
            within: The transaction for the query. Default None: outside of any.
        """
        moment = asyncio.get_running_loop().time()
        for queue in {job.queue for job in jobs}:
            if self._refresh_at.get(queue, moment) <= moment:
                self._refresh_at[queue] = moment + REFRESH_INTERVAL_S  # first: other callers need not ask too
                rows = await (within or self._database).fetch(
                    statement("dead_letter_refusals"), queue=queue, bound=self._bound
                )
                self._full[queue] = frozenset((row["kind"], row["tenant_id"]) for row in rows)
        for job in jobs:
            if is_internal_kind(job.kind):
                continue
            full = self._full.get(job.queue, frozenset())
            if (job.kind, None) in full or (job.kind, job.tenant_id) in full:
                raise RefusedError(
                    f"queue {job.queue!r} takes no new {job.kind!r}: {self._bound} dead letters are open",
                    tenant=job.tenant_id,
                    provider=job.provider,
                    hint="heal the cause, then `fairlead dlq redrive`, `resolve` or `abandon`",
                    retry_after_s=60.0,
                    reason=DEAD_LETTERS_FULL.code,
                )


class PostgresDeadLetterStore:
    """The DeadLetterStore port on PostgreSQL."""

    def __init__(self, database: Database, *, notify: bool = True) -> None:
        self._database = database
        self._notify = notify

    async def due(self, limit: int) -> list[DeadLetter]:
        return _entries(await self._database.fetch(statement("dead_letter_due"), limit=limit))

    async def get(self, dead_letter_id: UUID) -> DeadLetter | None:
        row = await self._database.first(statement("dead_letter_get"), dead_letter_id=dead_letter_id)
        return _entry(row) if row else None

    async def search(
        self, *, status: str | None, category: str | None, tenant_id: str | None, kind: str | None, limit: int
    ) -> list[DeadLetter]:
        filters = DeadLetterFilter(status=status, category=category, tenant_id=tenant_id, kind=kind)
        return await self.find(filters, limit=limit)

    async def find(
        self,
        filters: DeadLetterFilter,
        *,
        limit: int,
        cursor: UUID | None = None,
        oldest_first: bool = False,
        at_rest: bool = False,
    ) -> list[DeadLetter]:
        page = {"after": cursor, "oldest_first": oldest_first, "at_rest": at_rest, "limit": limit}
        find = statement("dead_letter_find")
        rows = await self._database.for_tenants(filters.tenant_id).fetch(find, **asdict(filters), **page)
        return _entries(rows)

    async def group(self, filters: DeadLetterFilter, by: str, limit: int) -> list[DeadLetterGroup]:
        group = statement("dead_letter_group")
        rows = await self._database.for_tenants(filters.tenant_id).fetch(
            group, **asdict(filters), by=by, limit=limit
        )
        return [DeadLetterGroup(**dict(row.items())) for row in rows]

    async def closed_count(self, older_than_s: float) -> int:
        return await self._number("dead_letter_closed_count", "entries", older_than_s=older_than_s)

    async def redrive(
        self, dead_letter_id: UUID, job: NewJob, *, last_at: datetime | None = None, by: str | None = None
    ) -> bool:
        return await self._database.resolve_doubt(
            lambda: self._redrive(dead_letter_id, job, last_at, by),
            lambda: self._redriven(dead_letter_id, job, last_at, by),
        )

    async def _redriven(
        self, dead_letter_id: UUID, job: NewJob, last_at: datetime | None, by: str | None
    ) -> bool:
        """Redrive unless the first statement, with its commit in doubt, has done so."""
        if await self._redrive(dead_letter_id, job, last_at, by):
            return True
        entry = await self.get(dead_letter_id)
        return entry is not None and entry.replay_job_id == job.job_id

    async def _redrive(
        self, dead_letter_id: UUID, job: NewJob, last_at: datetime | None, by: str | None
    ) -> bool:
        row = await self._database.for_tenants(job.tenant_id).first(
            statement("dead_letter_redrive"),
            dead_letter_id=dead_letter_id,
            last_at=last_at,
            notify=self._notify,
            replayed_by=by,
            **job_values(job, f"{RUN_JOB_FIELDS} provider group_key expires_in_s tags"),
        )
        return row is not None

    async def resolve(
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
        row = await self._database.for_tenants(tenant_id).first(
            statement("dead_letter_resolve"),
            dead_letter_id=dead_letter_id,
            tenant_id=tenant_id,
            last_at=last_at,
            status=status,
            resolution=resolution,
            by=by,
            reason=reason,
            result=cancel_text(f"its dead letter was closed by {by}: {reason}"),
        )
        return (row["replay"] or "closed") if row else None

    async def postpone(
        self,
        dead_letter_id: UUID,
        action_in_s: float | None,
        *,
        last_at: datetime | None = None,
        reauth_started: bool = False,
        notified: bool = False,
    ) -> None:
        await self._database.fetch(
            statement("dead_letter_postpone"),
            dead_letter_id=dead_letter_id,
            last_at=last_at,
            action_in_s=action_in_s,
            reauth_started=reauth_started,
            notified=notified,
        )

    async def open_count(self, queue: str) -> int:
        return await self._number("dead_letter_open_count", "entries", queue=queue)

    async def counts(self) -> Mapping[str, int]:
        rows = await self._database.fetch(statement("dead_letter_counts"))
        return {row["category"]: row["entries"] for row in rows}

    async def prune(self, older_than_s: float, bound: int, limit: int) -> int:
        return await self._number(
            "dead_letter_prune", "deleted", older_than_s=older_than_s, bound=bound, limit=limit
        )

    async def _number(self, name: str, column: str, **values: object) -> int:
        row = await self._database.first(statement(name), **values)
        return int(row[column]) if row else 0


def _entry(row: Row) -> DeadLetter:
    return DeadLetter(**with_values(row, "details", "history", "args"))


def _entries(rows: Sequence[Row]) -> list[DeadLetter]:
    return [_entry(row) for row in rows]
