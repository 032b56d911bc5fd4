"""Events of processes, their services and the stores."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.events.base import Event


@dataclass(frozen=True, slots=True)
class StoreUnreachable(Event):
    """The database does not answer; work waits and nothing is dropped."""

    name = "store_unreachable"
    level = "warning"
    store: str
    reason: str


@dataclass(frozen=True, slots=True)
class StoreReachable(Event):
    """The database answers again after *away_s* seconds; work goes on."""

    name = "store_reachable"
    store: str
    away_s: float


@dataclass(frozen=True, slots=True)
class ServiceFailed(Event):
    """A background service's pass failed; it goes on with its next one."""

    name = "service_failed"
    level = "error"
    service: str
    reason: str


@dataclass(frozen=True, slots=True)
class ServiceRecovered(Event):
    """A background service works again after *failed_s* seconds."""

    name = "service_recovered"
    service: str
    failed_s: float


@dataclass(frozen=True, slots=True)
class MemoryPressure(Event):
    """Memory passed a soft limit: ``warn``, ``full`` (no new jobs are claimed) or ``eased`` again."""

    name = "memory_pressure"
    level = "warning"
    stage: str
    used_bytes: int
    limit_bytes: int


@dataclass(frozen=True, slots=True)
class LoopStalled(Event):
    """The event loop did not run for *stall_s* seconds: some handler blocks it."""

    name = "loop_stalled"
    level = "warning"
    stall_s: float


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


@dataclass(frozen=True, slots=True)
class TenantWallMissing(Event):
    """Only the statements keep tenants apart: row-level security does not, for this process. See *advice*."""

    name = "tenant_wall_missing"
    level = "warning"
    advice: str


@dataclass(frozen=True, slots=True)
class TenantWallRaised(Event):
    """Row-level security keeps tenants apart from now on, in this process, too."""

    name = "tenant_wall_raised"


@dataclass(frozen=True, slots=True)
class TimelineChanged(Event):
    """The database was failed over, restored or restarted; *settled* responses came from the journal."""

    name = "timeline_changed"
    level = "warning"
    before: str
    now: str
    settled: int
