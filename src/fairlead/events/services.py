"""Events of processes, their services and the stores."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.events.base import Event


@dataclass(frozen=True, slots=True)
class StoreUnreachable(Event):
    """The database does not respond; work waits and nothing is dropped."""

    name = "store_unreachable"
    level = "warning"
    store: str
    reason: str


@dataclass(frozen=True, slots=True)
class StoreReachable(Event):
    """The database responds again, after *outage_s* seconds, and work resumes."""

    name = "store_reachable"
    store: str
    outage_s: float


@dataclass(frozen=True, slots=True)
class ServiceFailed(Event):
    """One pass of a background service failed; the service continues with its next pass."""

    name = "service_failed"
    level = "error"
    service: str
    reason: str


@dataclass(frozen=True, slots=True)
class ServiceRecovered(Event):
    """A background service works again, after *failed_s* seconds."""

    name = "service_recovered"
    service: str
    failed_s: float


@dataclass(frozen=True, slots=True)
class MemoryPressure(Event):
    """Memory use crossed a soft limit.

    Attributes:
        stage: ``warn``, ``full`` (no new jobs are claimed) or ``eased`` (below the limits again).
    """

    name = "memory_pressure"
    level = "warning"
    stage: str
    used_bytes: int
    limit_bytes: int


@dataclass(frozen=True, slots=True)
class LoopStalled(Event):
    """The event loop did not run for *stall_s* seconds: a handler blocks it."""

    name = "loop_stalled"
    level = "warning"
    stall_s: float


@dataclass(frozen=True, slots=True)
class ProcessUnhealthy(Event):
    """This process cannot connect because of a *fault* of its own, and claims no jobs until a check passes.

    Attributes:
        destinations: Some of the destinations that it tried.
    """

    name = "process_unhealthy"
    level = "error"
    fault: str
    destinations: tuple[str, ...]
    hint: str


@dataclass(frozen=True, slots=True)
class ProcessRecovered(Event):
    """This process can connect again, after *outage_s* seconds, and claims jobs."""

    name = "process_recovered"
    fault: str
    outage_s: float


@dataclass(frozen=True, slots=True)
class RowSecurityMissing(Event):
    """Row-level security does not separate tenants for this process; only its statements do. See *advice*."""

    name = "row_security_missing"
    level = "warning"
    advice: str


@dataclass(frozen=True, slots=True)
class RowSecurityEnabled(Event):
    """Row-level security separates tenants in this process from now on."""

    name = "row_security_enabled"


@dataclass(frozen=True, slots=True)
class DatabaseFailedOver(Event):
    """The database was failed over, restored or restarted.

    Attributes:
        previous: The timeline before.
        current: The timeline now.
        recovered: Token responses that were written again from the journal.
    """

    name = "database_failed_over"
    level = "warning"
    previous: str
    current: str
    recovered: int
