"""Insert jobs, once for each unique key.

Spec: R20.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from fairlead.engine.ports import Enqueued, NewJob
from fairlead.errors import InvalidInputError
from fairlead.policy.jobs.job import KeyState, UniqueWhile
from fairlead.policy.jobs.lane import is_internal_kind
from fairlead.policy.jobs.states import JobState
from fairlead.testing._memory.database import MemoryDatabase, seconds
from fairlead.testing._memory.lane_turns import note_work
from fairlead.testing._memory.rows import OPEN, JobRow, copied

FOLLOW_LATER_S = 400 * 86_400.0
"""Longer than every delay: the delay of a job that waits for the end of a run."""
HOLDER_STATES: dict[JobState, KeyState] = {JobState.AVAILABLE: "waiting", JobState.RUNNING: "running"}
"""What a new job reports of its key's holder in this state; any other has finished."""


def insert_all(database: MemoryDatabase, jobs: Iterable[NewJob]) -> list[Enqueued]:
    """Store *jobs*, all or none; raise InvalidInputError if a job that does not hold the key has one of the ids."""
    checked = list(_of_one_choice(list(jobs)))
    if any(job.job_id in database.jobs and answering(database, job) is None for job in checked):
        raise InvalidInputError(
            "the database refuses these values: a job of this id is there", reason="23505"
        )
    return [insert(database, job) for job in checked]


def _of_one_choice(jobs: Sequence[NewJob]) -> Iterator[NewJob]:
    """Yield *jobs*; all jobs of one key get the strongest of their choices."""
    most: dict[tuple[str, str, str | None], UniqueWhile] = {}
    for job in jobs:
        key = (job.kind, job.tenant_id, job.unique_key)
        choices = {job.unique_while, most.get(key, job.unique_while)}
        most[key] = choices.pop() if len(choices) == 1 else "waiting" if "waiting" in choices else "follow_up"
    for job in jobs:
        choice = most[job.kind, job.tenant_id, job.unique_key]
        yield job if job.unique_while == choice else replace(job, unique_while=choice)


def insert(database: MemoryDatabase, job: NewJob) -> Enqueued:
    """Store *job*, or return the one that holds its unique key and can still do the work. Spec: R53."""
    other = answering(database, job)
    if other is not None:
        if other.state is JobState.AVAILABLE:
            merge_into_holder(database, other, job)
        return Enqueued(other.job_id, False, HOLDER_STATES.get(other.state, "finished"))
    holder, runs = holder_of(database, job), runs_of(database, job)
    if holder is not None:
        holder.unique_live = False
    store(database, job)
    if runs and job.unique_while != "waiting":
        database.jobs[job.job_id].follow(runs, database.now + seconds(FOLLOW_LATER_S))
    elif job.delay_s <= 0:
        database.notify(job.queue)
    return Enqueued(job.job_id, True, "running" if runs else "none")


def merge_into_holder(database: MemoryDatabase, holder: JobRow, job: NewJob) -> None:
    """Let *holder*, the waiting job of the same unique key, do the work of *job*.

    It gets the more urgent priority, the earlier start and the later expiry of the two. The SQL function
    key_holder_merge does the same.
    """
    holder.priority = min(holder.priority, job.priority)
    asked_at = database.now + seconds(job.delay_s)
    if holder.follow_at is not None:
        holder.follow_at = min(holder.follow_at, asked_at)
    elif holder.attempt == 0 and holder.settled_lease_id is None:
        holder.run_at = min(holder.run_at, asked_at)
    if holder.expires_at is not None:
        until = None if job.expires_in_s is None else database.now + seconds(job.expires_in_s)
        holder.expires_at = until and max(holder.expires_at, until)
    note_work(database, holder)
    if holder.run_at <= database.now:
        database.notify(holder.queue)


def store(database: MemoryDatabase, job: NewJob) -> None:
    """Store *job*, which has a free unique key, and notify no listener."""
    now = database.now
    row = database.jobs[job.job_id] = copied(
        JobRow,
        job,
        run_at=now + seconds(job.delay_s),
        created_at=now,
        expires_at=None if job.expires_in_s is None else now + seconds(job.expires_in_s),
        unique_until=None if job.unique_for_s is None else now + seconds(job.unique_for_s),
        args=dict(job.args),
    )
    note_work(database, row)


def holder_of(database: MemoryDatabase, job: NewJob) -> JobRow | None:
    """Return the job that holds the unique key of *job*, or None."""
    if job.unique_key is None:
        return None
    work = (job.kind, job.tenant_id, job.unique_key)
    for row in database.jobs.values():
        if (row.kind, row.tenant_id, row.unique_key) == work and holds_key(database, row):
            return row
    return None


def runs_of(database: MemoryDatabase, job: NewJob) -> list[JobRow]:
    """Return the running jobs of *job*'s unique key, whether they have handed it on or not."""
    if job.unique_key is None:
        return []
    work = (job.kind, job.tenant_id, job.unique_key)
    return [
        row
        for row in database.jobs.values()
        if (row.kind, row.tenant_id, row.unique_key) == work and row.state is JobState.RUNNING
    ]


def covering(database: MemoryDatabase, job: NewJob) -> JobRow | None:
    """Return the holder of *job*'s key if it runs or will run."""
    row = holder_of(database, job)
    runs = row is not None and row.state is JobState.RUNNING
    return row if runs or is_answered(database, job) else None


def answering(database: MemoryDatabase, job: NewJob) -> JobRow | None:
    """Return the job that does the work of *job*: the holder of its key, or for an `open` one a run of it."""
    holder = holder_of(database, job)
    if holder is not None and is_answered(database, job):
        return holder
    if job.unique_while != "open":
        return None
    runs = sorted(runs_of(database, job), key=lambda run: not run.unique_live)
    return next((run for run in runs if run.result is None), None)


def is_answered(database: MemoryDatabase, job: NewJob) -> bool:
    """Return whether the holder of *job*'s key does its work, as the SQL function key_covers does."""
    row = holder_of(database, job)
    if row is None:
        return False
    if row.unique_until is not None and row.unique_until > database.now:
        return True
    if row.state is JobState.AVAILABLE:
        return row.expires_at is None or row.expires_at > database.now
    return is_internal_kind(row.kind)


def holds_key(database: MemoryDatabase, row: JobRow) -> bool:
    """Return whether *row* holds its unique key."""
    outlives = row.unique_until is not None and row.unique_until > database.now
    return row.unique_key is not None and row.unique_live and (row.state in OPEN or outlives)
