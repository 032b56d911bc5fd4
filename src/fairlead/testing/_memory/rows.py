"""Rows as the tables of schema/ have them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import TypeVar
from uuid import UUID

from fairlead.engine.ports import Json, Pause, ProcessIdentity, Schedule
from fairlead.policy.jobs.states import DeadLetterStatus, JobState

OPEN = (JobState.AVAILABLE, JobState.RUNNING)
MOST_FAILURES = 20
"""Entries of a job's history that are stored; the oldest are dropped."""

T = TypeVar("T")


def copied(of: Callable[..., T], row: object, **others: object) -> T:
    """Return an instance of *of* with the fields *others*, and the other fields copied from *row*."""
    names = {row_field.name for row_field in fields(of)} - others.keys()  # type: ignore[arg-type]
    return of(**{name: getattr(row, name) for name in names if hasattr(row, name)}, **others)


@dataclass(slots=True)
class JobRow:
    """Table ``job``."""

    job_id: UUID
    queue: str
    kind: str
    tenant_id: str
    provider: str | None
    group_key: str
    priority: int
    run_at: datetime
    created_at: datetime
    expires_at: datetime | None
    unique_key: str | None
    unique_until: datetime | None
    replay_of: UUID | None
    args: dict[str, Json]
    tags: tuple[str, ...]
    state: JobState = JobState.AVAILABLE
    attempt: int = 0
    crash_count: int = 0
    lease_id: int | None = None
    settled_lease_id: int | None = None
    session_id: UUID | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    streaks: dict[str, int] = field(default_factory=dict)
    failures: list[dict[str, Json]] = field(default_factory=list)
    result: Json = None
    call_waits_since: datetime | None = None
    follow_at: datetime | None = None  # its run_at, once the run that it follows has ended
    follower: JobRow | None = field(default=None, compare=False, repr=False)
    unique_live: bool = True  # False: it has passed its unique key on to a later job

    @property
    def cancelling(self) -> bool:
        """Whether it is open and was cancelled while it ran."""
        return self.result is not None and self.state in OPEN

    def cancel(self, reason: str, now: datetime) -> str:
        """End now if it waits; otherwise expire, so that it ends when its run returns it."""
        self.result = self.result or {"cancelled": reason}
        if self.state is JobState.AVAILABLE:
            self.crash_count = 0
            self.end(JobState.CANCELLED, now)
        else:
            self.expires_at = min(self.expires_at or now, now)
        return self.state.value

    def end(self, state: JobState, now: datetime) -> None:
        """Reach a final state."""
        self.state, self.finished_at = state, now
        self._release_follower()
        self.lease_id = self.session_id = self.started_at = None

    def give_back(self, run_at: datetime) -> None:
        """Make it available again."""
        self.state, self.run_at = JobState.AVAILABLE, run_at
        self.lease_id = self.session_id = self.started_at = None
        self._release_follower()

    def follow(self, runs: Iterable[JobRow], later: datetime) -> None:
        """Wait until one of *runs* has ended, as the trigger job_release_follow_up does."""
        self.follow_at, self.run_at = self.run_at, later
        for run in runs:
            run.follower = self

    def _release_follower(self) -> None:
        row, self.follower = self.follower, None
        if row is not None and row.follow_at is not None and row.state is JobState.AVAILABLE:
            row.run_at, row.follow_at = row.follow_at, None

    def restore(self) -> None:
        """Make it available as before the claim, except for a crash count that a run has cleared."""
        self.attempt -= 1
        if self.started_at is not None:
            self.crash_count = 0
        self.give_back(self.run_at)

    def add_failure(self, failure: dict[str, Json]) -> None:
        """Add one line to its history."""
        self.failures = [*map(_without_traceback, self.failures), failure][-MOST_FAILURES:]


def _without_traceback(failure: dict[str, Json]) -> dict[str, Json]:
    details = failure.get("details")
    if not isinstance(details, dict) or "traceback" not in details:
        return failure
    return {**failure, "details": {name: value for name, value in details.items() if name != "traceback"}}


@dataclass(slots=True)
class SessionRow:
    """Table ``worker_session``."""

    session_id: UUID
    identity: ProcessIdentity
    version: str
    lease_s: float
    started_at: datetime
    heartbeat_at: datetime
    lost_at: datetime | None = None
    stopped_at: datetime | None = None
    master_keys: tuple[str, ...] | None = None
    data_keys_renewed_at: datetime | None = None
    trouble: str | None = None
    app_version: str | None = None

    @property
    def open(self) -> bool:
        return self.lost_at is None and self.stopped_at is None


@dataclass(slots=True)
class ScheduleRow:
    """Table ``schedule``."""

    schedule: Schedule
    last_run_at: datetime
    declared_at: datetime
    pause: Pause | None = None


@dataclass(frozen=True, slots=True)
class ScheduleRunRow:
    """Table ``schedule_run``."""

    schedule: str
    run_at: datetime
    session_id: UUID
    coalesced: int
    job_id: UUID | None  # None: an open job stood for it
    taken_at: datetime


@dataclass(slots=True)
class DeadLetterRow:
    """Table ``dead_letter``."""

    dead_letter_id: UUID
    job_id: UUID
    lineage_id: UUID
    queue: str
    kind: str
    tenant_id: str
    provider: str | None
    connection_id: UUID | None
    group_key: str
    priority: int
    category: str
    code: str
    reason: str
    details: dict[str, Json]
    history: list[dict[str, Json]]
    args: dict[str, Json]
    unique_key: str | None
    token_expires_at: datetime | None
    action_due_at: datetime | None
    first_at: datetime
    last_at: datetime
    status: DeadLetterStatus = DeadLetterStatus.PENDING_REVIEW
    resolution: str | None = None
    resolved_by: str | None = None
    resolution_reason: str | None = None
    resolved_at: datetime | None = None
    replays: int = 0
    replay_job_id: UUID | None = None
    replayed_by: str | None = None
    reauth_started_at: datetime | None = None
    last_notice_at: datetime | None = None

    @property
    def open(self) -> bool:
        return self.status is DeadLetterStatus.PENDING_REVIEW

    def close(self, status: DeadLetterStatus, resolution: str, by: str, reason: str, now: datetime) -> None:
        """End as *status*."""
        self.status, self.resolution = status, resolution
        self.resolved_by, self.resolution_reason, self.resolved_at = by, reason, now
        self.action_due_at = None
