"""Make dead letters of jobs, and update the entry of a replay when it ends.

Spec: Q9, R19.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from uuid import UUID

from fairlead.engine.ports import FailureRecord, Json
from fairlead.policy.failures.category import Category
from fairlead.policy.jobs.states import DeadLetterStatus, JobState, Resolution
from fairlead.testing._memory.database import MemoryDatabase, seconds
from fairlead.testing._memory.rows import MOST_FAILURES, OPEN, DeadLetterRow, JobRow, copied


def to_dead_letter(
    database: MemoryDatabase,
    row: JobRow,
    failure: FailureRecord,
    *,
    dead_letter_id: UUID,
    action_s: float | None,
    connection_id: UUID | None = None,
    token_expires_at: datetime | None = None,
) -> None:
    """End *row* as discarded, in the entry it replayed, the open one of the same work, or a new one."""
    now = database.now
    row.add_failure(failure_json(failure, now))
    if row.cancelling:  # cancelled by an operator: it has no entry
        end_cancelled(database, row)
        return
    row.end(JobState.DISCARDED, now)
    due_at = None if action_s is None else now + seconds(action_s)
    entry = database.dead_letters.get(row.replay_of) if row.replay_of else None
    same = _entry_of_same_work(database, row, entry)
    if same is not None:
        entry = same
        if row.replay_of is None:  # new work, with attempts of its own
            _renew(entry, row, connection_id, now)
        entry.job_id, entry.token_expires_at = row.job_id, token_expires_at
        entry.category, entry.code, entry.reason = failure.category, failure.code, failure.reason
        entry.details = dict(failure.details)
        entry.history = [*entry.history, *row.failures][-MOST_FAILURES:]
        entry.last_at, entry.action_due_at, entry.replay_job_id = now, due_at, None
        return
    database.dead_letters[dead_letter_id] = copied(
        DeadLetterRow,
        row,
        dead_letter_id=dead_letter_id,
        lineage_id=entry.lineage_id if entry else row.job_id,
        connection_id=connection_id,
        category=failure.category,
        code=failure.code,
        reason=failure.reason,
        details=dict(failure.details),
        history=list(row.failures),
        args=dict(row.args),
        token_expires_at=token_expires_at,
        action_due_at=due_at,
        first_at=now,
        last_at=now,
    )


def end_cancelled(database: MemoryDatabase, row: JobRow) -> None:
    """End *row*, which was cancelled while it ran."""
    row.end(JobState.CANCELLED, database.now)
    replay_ended(database, row)


def _renew(entry: DeadLetterRow, row: JobRow, connection_id: UUID | None, now: datetime) -> None:
    """Make *entry* about *row*, another job of its key."""
    entry.lineage_id, entry.queue, entry.provider = row.job_id, row.queue, row.provider
    entry.group_key, entry.priority, entry.args = row.group_key, row.priority, dict(row.args)
    entry.connection_id = connection_id or entry.connection_id
    entry.first_at, entry.replays = now, 0
    entry.reauth_started_at = entry.last_notice_at = None


def save_progress(database: MemoryDatabase, row: JobRow) -> None:
    """Copy the args of a replay, with its saved progress, to its entry before it is reopened."""
    entry = database.dead_letters.get(row.replay_of) if row.replay_of else None
    if entry is not None and entry.open and entry.replay_job_id == row.job_id:
        entry.args = dict(row.args)


def _entry_of_same_work(
    database: MemoryDatabase, row: JobRow, replayed: DeadLetterRow | None
) -> DeadLetterRow | None:
    """Return the open entry that *row* belongs to: the one that it replays, or one of its unique key; else None."""
    if row.replay_of is not None:
        mine = replayed is not None and replayed.open and replayed.replay_job_id == row.job_id
        return replayed if mine else None
    if row.unique_key is None:
        return None
    work = (row.kind, row.tenant_id, row.unique_key)
    for entry in database.dead_letters.values():
        same = (entry.kind, entry.tenant_id, entry.unique_key) == work
        if same and entry.open and entry.replay_job_id is None:
            return entry
    return None


def unrun_to_dead_letter(
    database: MemoryDatabase, row: JobRow, category: Category, code: str, reason: str, *, ran_s: float = 0.0
) -> None:
    """End a job that no handler gave up: ``expired``, or ``poison`` (it killed its worker too often)."""
    failure = FailureRecord(category.value, code, reason, ran_s=ran_s, attempt=row.attempt)
    to_dead_letter(database, row, failure, dead_letter_id=database.ids.uuid7(), action_s=0.0)


def replay_ended(database: MemoryDatabase, row: JobRow) -> None:
    """Close the entry of a replay that succeeded; make the entry of a cancelled one due again."""
    entry = database.dead_letters.get(row.replay_of) if row.replay_of else None
    if entry is None or not entry.open or entry.replay_job_id != row.job_id or row.state in OPEN:
        return
    if row.state is JobState.COMPLETED:
        by = entry.replayed_by
        status = DeadLetterStatus.MANUAL_RESOLVED if by else DeadLetterStatus.AUTO_RESOLVED
        entry.close(status, Resolution.REDRIVE.value, by or "fairlead", "its replay succeeded", database.now)
    else:
        entry.replay_job_id, entry.action_due_at = None, database.now


def failure_json(failure: FailureRecord, at: datetime) -> dict[str, Json]:
    """Return one line of a job's history."""
    return {"at": at.isoformat(), **asdict(failure)}
