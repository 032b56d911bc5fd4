"""What happened, as values. The engine emits these and knows nothing of who listens.

Logs, metrics, the audit trail and a user's ``@fl.on(...)`` subscribe. No event holds a secret.
``name`` is the stable word users see in logs and subscribe to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events."""

    name: ClassVar[str] = "event"
    level: ClassVar[str] = "info"


Emit = Callable[[Event], None]
"""Hands an event to whoever listens; never raises, never waits."""


@dataclass(frozen=True, slots=True)
class TokenRefreshed(Event):
    """A new generation is stored; *waited_s* from the ask, *sent_s* for the provider's part."""

    name = "token_refreshed"
    tenant: str
    provider: str
    bucket: str
    connection_id: UUID
    generation: int
    waited_s: float
    recovered: bool = False


@dataclass(frozen=True, slots=True)
class TokenRefreshFailed(Event):
    """A refresh did not succeed this time; *category* and *next_retry_s* say what follows."""

    name = "token_refresh_failed"
    level = "warning"
    tenant: str
    provider: str
    bucket: str
    connection_id: UUID
    code: str
    category: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class TokenOutcomeUnknown(Event):
    """A refresh was sent and its outcome is not known; the replay policy decides what follows."""

    name = "token_outcome_unknown"
    level = "warning"
    tenant: str
    provider: str
    bucket: str
    connection_id: UUID
    generation: int
    reason: str


@dataclass(frozen=True, slots=True)
class NeedsReauth(Event):
    """Only the customer can heal this connection; *link* is where to send them."""

    name = "needs_reauth"
    level = "warning"
    tenant: str
    provider: str
    bucket: str
    connection_id: UUID
    reason: str
    link: str | None = None


@dataclass(frozen=True, slots=True)
class EndpointStateChanged(Event):
    """The token endpoint of the app or host in *client_id* is open, paused, or closed (healthy again).

    Attributes:
        open_s: Seconds until the next attempt may be made.
        said_by: The first connections or hosts whose responses closed it.
    """

    name = "endpoint_state"
    level = "warning"
    provider: str
    client_id: str
    state: str
    reason: str
    open_s: float | None = None
    said_by: tuple[str, ...] = ()


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
class StaleWriteRefused(Event):
    """A superseded worker tried to write outcomes; they were refused."""

    name = "stale_write_refused"
    level = "warning"
    kind: str
    count: int


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
class StoreUnreachable(Event):
    """The database does not answer; work waits and nothing is dropped."""

    name = "store_unreachable"
    level = "warning"
    store: str
    reason: str


@dataclass(frozen=True, slots=True)
class TimelineChanged(Event):
    """The database was failed over, restored or restarted; *settled* responses came from the journal."""

    name = "timeline_changed"
    level = "warning"
    before: str
    now: str
    settled: int


@dataclass(frozen=True, slots=True)
class ServiceFailed(Event):
    """A background service's pass failed; it goes on with its next one."""

    name = "service_failed"
    level = "error"
    service: str
    reason: str


@dataclass(frozen=True, slots=True)
class ProcessUnhealthy(Event):
    """This process cannot connect because of a *fault* of its own, and claims no jobs until a check passes.

    *places* are some of the destinations that it tried.
    """

    name = "process_unhealthy"
    level = "error"
    fault: str
    places: tuple[str, ...]
    hint: str


@dataclass(frozen=True, slots=True)
class ProcessRecovered(Event):
    """This process can connect again after *away_s* seconds, and claims jobs."""

    name = "process_recovered"
    fault: str
    away_s: float
