"""The queue: jobs, the outcomes of their runs, and the store that holds them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol
from uuid import UUID

from fairlead.engine.ports.values import Json
from fairlead.policy.jobs.job import KeyState, UniqueWhile


@dataclass(slots=True)  # frozen, making one would cost three times as much
class NewJob:
    """A job to enqueue. Its fields are validated already (policy/jobs/job.py).

    Attributes:
        group_key: The jobs of one group share pauses and caps; "" without a group.
        priority: 0 is the most urgent; see `Priority`.
        delay_s: Seconds until it is due.
        unique_key: A job with the key of a waiting job is not stored.
        expires_in_s: Seconds after which it is no longer run. None: never.
        replay_of: The dead letter that it replays.
    """

    job_id: UUID
    kind: str
    tenant_id: str
    queue: str = "default"
    provider: str | None = None
    group_key: str = ""
    priority: int = 2
    delay_s: float = 0.0
    args: Mapping[str, Json] = field(default_factory=dict)
    unique_key: str | None = None
    unique_for_s: float | None = None  # whatever its state (R20); None: until it has begun (R53)
    unique_while: UniqueWhile = "follow_up"
    expires_in_s: float | None = None
    tags: tuple[str, ...] = ()
    replay_of: UUID | None = None
    args_json: str | None = field(
        default=None, compare=False, repr=False
    )  # the same args, if they are encoded already


@dataclass(frozen=True, slots=True)
class Enqueued:
    """The result of an enqueue.

    Attributes:
        job_id: The new job; if it was not inserted, the earlier one with its unique key.
        inserted: Whether a new job was stored.
        key_state: The state of the job that had the unique key before.
    """

    job_id: UUID
    inserted: bool
    key_state: KeyState = "none"


@dataclass(slots=True)
class Job:
    """A claimed job: *lease_id* is the fence that every write of its outcome presents (R1)."""

    job_id: UUID
    lease_id: int
    queue: str
    kind: str
    tenant_id: str
    provider: str | None
    group_key: str
    priority: int
    attempt: int  # 1 on the first run
    crash_count: int
    args: Mapping[str, Json]
    streaks: Mapping[str, int]  # failures so far by category (R14)
    replay_of: UUID | None
    created_at: datetime
    waited_s: float  # from due to claimed
    call_waited_s: float | None = None  # since a call was refused a slot, over all runs; None: none was (R26)


@dataclass(frozen=True, slots=True)
class ClaimFilter:
    """The selection of jobs that a worker claims; an empty tuple means any."""

    queues: tuple[str, ...] = ("default",)
    kinds: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FailureRecord:
    """One failed attempt in the history of a job. Its text is safe to show.

    Attributes:
        ran_s: How long the attempt took.
        next_retry_s: Seconds until the next attempt. None: there was none.
    """

    category: str
    code: str
    reason: str
    ran_s: float
    attempt: int
    next_retry_s: float | None = None
    details: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Completed:
    """The job succeeded; *result* is JSON or None."""

    job_id: UUID
    lease_id: int
    result: Json = None


@dataclass(frozen=True, slots=True)
class Rescheduled:
    """The job is available again after *delay_s*; None: in its old place, as due as it was.

    Attributes:
        failure: Set if the attempt counts. Without it (snooze, drain) the attempt is handed back.
        streaks: The new counts of failures; empty without a failure: unchanged.
        call_waited_s: How long a call of the job has waited for a slot; None: none waits.
        args: The args of its next run, valid for ``encode_args``; None: unchanged.
    """

    job_id: UUID
    lease_id: int
    delay_s: float | None
    failure: FailureRecord | None = None
    streaks: Mapping[str, int] = field(default_factory=dict)
    call_waited_s: float | None = None
    args: Mapping[str, Json] | None = None
    why: str = field(default="", compare=False)
    """Why a job without *failure* waits, for the log; it is not stored."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The job ended without success and without a dead letter."""

    job_id: UUID
    lease_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class Discarded:
    """The job failed for good; its dead letter is written in the same transaction.

    Attributes:
        dead_letter_id: The id of the new dead letter. A replay returns to the one that it came from.
        connection_id: The connection that the job used, if known.
        token_expires_at: When that connection's token expires, if known.
        args: The args for its replay, valid for ``encode_args``. None: unchanged.

    Spec: Q9, R19.
    """

    job_id: UUID
    lease_id: int
    dead_letter_id: UUID
    failure: FailureRecord
    connection_id: UUID | None = None
    token_expires_at: datetime | None = None
    action_in_s: float | None = None  # when the processor acts; None: only an operator can
    args: Mapping[str, Json] | None = None


Outcome = Completed | Rescheduled | Cancelled | Discarded


@dataclass(frozen=True, slots=True)
class Rescue:
    """The result of one rescue pass.

    Attributes:
        ready: False until the database has run for a full lease without a gap; nothing is rescued before.
        sessions: How many sessions were declared lost.
        rescued: How many jobs are available again.
        dead: How many jobs became dead letters, because they crashed their process too often.

    Spec: R2.
    """

    ready: bool
    sessions: int = 0
    rescued: int = 0
    dead: int = 0


@dataclass(frozen=True, slots=True)
class JobView:
    """A job as commands show it."""

    job_id: UUID
    queue: str
    kind: str
    tenant_id: str
    provider: str | None
    group_key: str
    tags: Sequence[str]
    state: str
    label: str  # state, or scheduled / retryable (R18)
    priority: int
    attempt: int
    crash_count: int
    run_at: datetime
    created_at: datetime
    finished_at: datetime | None
    expires_at: datetime | None
    unique_key: str | None
    args: Mapping[str, Json]
    failures: Sequence[Mapping[str, Json]]
    result: Json


class JobStore(Protocol):
    """The store of jobs. All times are the database's."""

    async def enqueue(self, jobs: Iterable[NewJob]) -> list[Enqueued]:
        """Store *jobs*, all or none, and return a result for each, in order.

        An error while iterating over them is raised, and nothing is stored.

        A waiting job stands for a new one of the same unique key, and becomes as urgent. A job that has begun
        or expired passes its key on, unless the key holds for a time or the kind is fairlead's own.

        Spec: R20, R53.
        """
        ...

    async def claim(self, claims: ClaimFilter, demand: int, session_id: UUID) -> list[Job]:
        """Claim up to *demand* due jobs, most urgent first, each under a new lease id.

        Suspects (see claim_suspect) are left out. A session that was declared lost gets nothing. If the
        response to a claim is lost, its jobs are handed back.
        """
        ...

    async def claim_suspect(self, claims: ClaimFilter, session_id: UUID) -> Job | None:
        """Claim one suspect: a job that was running when its process crashed. None: there is none.

        It counts as started only after start_suspect. Spec: R3.
        """
        ...

    async def start_suspect(self, job_id: UUID, lease_id: int) -> bool:
        """Mark a suspect as started. Return False if its lease is gone."""
        ...

    async def acknowledge(self, outcomes: Sequence[Outcome]) -> set[UUID]:
        """Write outcomes with a valid lease id, and return the ids of these jobs; the others are superseded.

        If a response was lost, the same call returns what had been accepted.
        """
        ...

    async def expire_due(self, limit: int) -> int:
        """Discard available jobs past their expires_at as ``expired``, and return how many."""
        ...

    async def next_due_in_s(self, claims: ClaimFilter) -> float | None:
        """Return the seconds until the next available job is due (0 if one is), None if there is none."""
        ...

    async def prune(self, retention_s: Mapping[str, float], limit: int) -> int:
        """Delete at most *limit* finished jobs older than their state's retention, and return how many."""
        ...

    async def listen(self, on_wake: Callable[[str], None]) -> Callable[[], Awaitable[None]]:
        """Call *on_wake* with a queue that has new jobs, or "" if a notification may have been missed.

        A notification is a hint; polling decides. The returned function ends the subscription. Spec: Q13.
        """
        ...

    async def get(self, job_id: UUID) -> JobView | None:
        """Return the job with this id, or None."""
        ...

    async def search(
        self, *, state: str | None, kind: str | None, tenant_id: str | None, queue: str | None, limit: int
    ) -> list[JobView]:
        """Return the newest jobs that match every value; None matches all."""
        ...

    async def retry_now(self, job_id: UUID, *, tenant_id: str | None = None) -> bool:
        """Make an available job due now, and return whether there was one.

        Args:
            job_id: The job.
            tenant_id: The tenant that the job must be of. None: any.
        """
        ...

    async def cancel(
        self, job_id: UUID, reason: str, *, tenant_id: str | None = None, state: str | None = None
    ) -> str | None:
        """Cancel a job: an available one ends now, a running one once its handler has ended.

        Until then it counts under its caps as running. It is completed if the handler completes after all,
        and is not run again.

        Args:
            tenant_id: The tenant that the job must be of. None: any.
            state: The state that the job must be in, ``available`` or ``running``. None: either.

        Returns:
            ``cancelled``; ``running`` if its worker has yet to stop it; None if there is no such job.

        Spec: R55.
        """
        ...

    async def counts(self) -> Mapping[str, int]:
        """Return the number of jobs by label."""
        ...
