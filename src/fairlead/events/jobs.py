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
class JobDead(Event):
    """A job went to the dead letters."""

    name = "job_dead"
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
    """Jobs of lost sessions are available again; *dead* of them reached the crash limit."""

    name = "jobs_rescued"
    level = "warning"
    rescued: int
    dead: int
    sessions: int


@dataclass(frozen=True, slots=True)
class LeaseLost(Event):
    """This process was presumed dead, or could not renew in time; it stopped its work."""

    name = "lease_lost"
    level = "error"
    session_id: UUID
    reason: str


@dataclass(frozen=True, slots=True)
class TickTaken(Event):
    """This process took a tick of a schedule; *coalesced* earlier ticks were made up by it."""

    name = "tick_taken"
    level = "debug"
    schedule: str
    coalesced: int


@dataclass(frozen=True, slots=True)
class ScheduleReplaced(Event):
    """A program declared a schedule under a name in use: its jobs are now of *kind*, not *kind_before*."""

    name = "schedule_replaced"
    level = "warning"
    schedule: str
    kind_before: str
    kind: str


@dataclass(frozen=True, slots=True)
class WorkerDraining(Event):
    """A worker stopped claiming; *running* jobs have *grace_s* seconds to end."""

    name = "worker_draining"
    running: int
    grace_s: float


@dataclass(frozen=True, slots=True)
class JobsHandedBack(Event):
    """Jobs were stopped and given back with their attempt; *reason* is ``drain`` or ``lease_lost``."""

    name = "jobs_handed_back"
    level = "warning"
    count: int
    reason: str


@dataclass(frozen=True, slots=True)
class HandlersStuck(Event):
    """Handlers of these *kinds* go on after they were cancelled; their jobs were handed back all the same."""

    name = "handlers_stuck"
    level = "error"
    kinds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TimeoutIgnored(Event):
    """A handler still runs *over_s* seconds after its timeout; reported at 5 s, and each time that doubles.

    Its job stays running, and counts under caps, until the handler or its process ends.
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
    """A handler asked for a pause (after a 429): no worker begins work of *scope* for *for_s* seconds."""

    name = "group_paused"
    tenant: str
    provider: str | None
    kind: str
    scope: str
    for_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class GroupNotPaused(Event):
    """A pause that a handler asked for could not be made; its own job waits all the same."""

    name = "group_not_paused"
    level = "warning"
    tenant: str
    provider: str | None
    kind: str
    reason: str


@dataclass(frozen=True, slots=True)
class LanesAged(Event):
    """This many lanes waited so long for their turn that they moved into a more urgent class."""

    name = "lanes_aged"
    lanes: int


@dataclass(frozen=True, slots=True)
class LanesMended(Event):
    """A sweep put lanes right: *opened* for work that nobody would have found, *parked* for a pause, *woken*.

    A few after a crash, or after jobs that other programs enqueued, are nothing to worry about.
    """

    name = "lanes_mended"
    opened: int
    parked: int
    woken: int


@dataclass(frozen=True, slots=True)
class DeadLettersProcessed(Event):
    """One run of the dead-letter processor; *counts* by what was done."""

    name = "dead_letters_processed"
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class DeadLetterFailed(Event):
    """The processor could not handle one entry; the others were handled."""

    name = "dead_letter_failed"
    level = "error"
    dead_letter_id: str
    tenant: str
    provider: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class DeadLettersFull(Event):
    """A queue's bound is full of open dead letters; new work of it is refused until somebody acts."""

    name = "dead_letters_full"
    level = "error"
    queue: str
    open: int
    bound: int
