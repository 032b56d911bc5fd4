"""Events of jobs, workers, lanes, schedules and dead letters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from fairlead.events.base import Event


@dataclass(frozen=True, slots=True)
class JobFinished(Event):
    """One run of a job ended, with any outcome."""

    name = "job_finished"
    job_id: UUID
    kind: str
    tenant: str
    provider: str | None
    outcome: str
    attempt: int
    ran_s: float
    category: str | None = None
    code: str | None = None
    reason: str | None = None
    next_retry_s: float | None = None
    traceback: str | None = None


@dataclass(frozen=True, slots=True)
class JobDiscarded(Event):
    """A job was discarded and has a dead letter."""

    name = "job_discarded"
    level = "error"
    job_id: UUID
    kind: str
    tenant: str
    provider: str | None
    category: str
    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class JobsRescued(Event):
    """Jobs of lost sessions are available again.

    Attributes:
        rescued: Jobs that are available again.
        discarded: Jobs that reached the crash limit and were discarded.
        sessions: Sessions with an expired lease.
    """

    name = "jobs_rescued"
    level = "warning"
    rescued: int
    discarded: int
    sessions: int


@dataclass(frozen=True, slots=True)
class LeaseLost(Event):
    """This process was presumed dead, or could not renew its lease in time, and stopped its jobs."""

    name = "lease_lost"
    level = "error"
    session_id: UUID
    reason: str


@dataclass(frozen=True, slots=True)
class ScheduleFired(Event):
    """This process fired a schedule and enqueued its job.

    Attributes:
        coalesced: Earlier missed runs that this one stands for.
    """

    name = "schedule_fired"
    level = "debug"
    schedule: str
    coalesced: int


@dataclass(frozen=True, slots=True)
class ScheduleReplaced(Event):
    """A program declared a schedule under an existing name with another kind of job.

    Attributes:
        kind_before: The kind of job that it enqueued until now.
        kind: The kind of job that it enqueues from now on.
    """

    name = "schedule_replaced"
    level = "warning"
    schedule: str
    kind_before: str
    kind: str


@dataclass(frozen=True, slots=True)
class WorkerDraining(Event):
    """A worker stopped claiming jobs.

    Attributes:
        running: Jobs that still run.
        grace_s: Seconds that they have to end.
    """

    name = "worker_draining"
    running: int
    grace_s: float


@dataclass(frozen=True, slots=True)
class JobsHandedBack(Event):
    """Running jobs were stopped and made available again, without using up an attempt.

    Attributes:
        reason: ``drain`` or ``lease_lost``.
    """

    name = "jobs_handed_back"
    level = "warning"
    count: int
    reason: str


@dataclass(frozen=True, slots=True)
class HandlersStuck(Event):
    """Handlers of these *kinds* kept running after cancellation; their jobs were handed back."""

    name = "handlers_stuck"
    level = "error"
    kinds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TimeoutIgnored(Event):
    """A handler still runs *over_s* seconds after its timeout; emitted at 5 s and each time that doubles.

    The job stays running, and counts under caps, until its handler or its process ends.
    """

    name = "timeout_ignored"
    level = "error"
    job_id: UUID
    tenant: str
    provider: str | None
    kind: str
    timeout_s: float
    over_s: float


@dataclass(frozen=True, slots=True)
class GroupPaused(Event):
    """A handler requested a pause, for example after a 429: no worker starts jobs of *scope* for *for_s* seconds."""

    name = "group_paused"
    tenant: str
    provider: str | None
    kind: str
    scope: str
    for_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class GroupPauseFailed(Event):
    """A pause that a handler requested could not be stored; only its own job waits."""

    name = "group_pause_failed"
    level = "warning"
    tenant: str
    provider: str | None
    kind: str
    reason: str


@dataclass(frozen=True, slots=True)
class LanesPromoted(Event):
    """Lanes that had waited too long moved to a more urgent priority class."""

    name = "lanes_promoted"
    lanes: int


@dataclass(frozen=True, slots=True)
class LanesRepaired(Event):
    """A sweep repaired lanes. A few after a crash, or after other programs enqueued jobs, are normal.

    Attributes:
        opened: Lanes with runnable jobs that no worker would have found.
        parked: Lanes that were open although a pause covers them.
        woken: Lanes with a pause or wait that had ended.
    """

    name = "lanes_repaired"
    opened: int
    parked: int
    woken: int


@dataclass(frozen=True, slots=True)
class DeadLettersProcessed(Event):
    """The dead-letter processor completed a run.

    Attributes:
        counts: Dead letters by the action taken.
    """

    name = "dead_letters_processed"
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class DeadLetterFailed(Event):
    """The dead-letter processor could not handle one dead letter; it handled the others."""

    name = "dead_letter_failed"
    level = "error"
    dead_letter_id: str
    tenant: str
    provider: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class DeadLettersFull(Event):
    """A queue has reached its bound of open dead letters, and new jobs for it are refused.

    Attributes:
        open: Open dead letters of the queue.
        bound: How many it may have.
    """

    name = "dead_letters_full"
    level = "error"
    queue: str
    open: int
    bound: int
