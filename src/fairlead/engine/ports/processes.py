"""Processes and their heartbeats, and cron ticks that are each taken once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol
from uuid import UUID

from fairlead.engine.ports.jobs import NewJob, Rescue
from fairlead.engine.ports.values import Json


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """Proves, on the same host, that a process is dead (R7)."""

    host: str
    boot_id: str
    pid_namespace: str
    pid: int
    process_started: str


@dataclass(frozen=True, slots=True)
class SessionView:
    """A process as the others see it."""

    session_id: UUID
    identity: ProcessIdentity
    version: str
    started_at: datetime
    heartbeat_age_s: float
    lease_s: float
    state: Literal["alive", "late", "lost", "stopped"]
    running_jobs: int


class SessionStore(Protocol):
    """Who is alive. One heartbeat a process, not one a job (R2)."""

    async def open(
        self, session_id: UUID, identity: ProcessIdentity, lease_s: float, version: str
    ) -> None: ...

    async def heartbeat(self, session_id: UUID) -> bool:
        """Renew; False if this session was declared lost or stopped: the process must stop its work."""
        ...

    async def close(self, session_id: UUID) -> None:
        """Mark as stopped; its leases are free at once."""
        ...

    async def local_sessions(self, identity: ProcessIdentity) -> list[tuple[UUID, ProcessIdentity]]:
        """Open sessions of the same boot and pid namespace, but for the caller's own pid."""
        ...

    async def bury(self, session_ids: Sequence[UUID]) -> int:
        """Declare sessions of provably dead processes lost."""
        ...

    async def rescue(self, session_id: UUID, every_s: float, max_crashes: int, limit: int) -> Rescue | None:
        """One fleet-wide pass: give back the jobs of lost sessions. None: another process just did it."""
        ...

    async def search(self) -> list[SessionView]: ...

    async def prune(self, older_than_s: float, limit: int) -> int: ...


@dataclass(frozen=True, slots=True)
class Schedule:
    """A cron entry: what to enqueue at each tick. *missed* is ``coalesce`` or ``catch_up``."""

    name: str
    expression: str
    kind: str
    tenant_id: str
    timezone: str = "UTC"
    missed: str = "coalesce"
    queue: str = "default"
    priority: int = 2
    args: Mapping[str, Json] = field(default_factory=dict)
    paused: bool = False


@dataclass(frozen=True, slots=True)
class ScheduleState:
    """A schedule with the last tick that was taken and the database's now."""

    schedule: Schedule
    last_tick: datetime
    now: datetime


class DutyStore(Protocol):
    """Cron ticks, each taken once by compare-and-set (R4)."""

    async def sync_schedules(self, schedules: Sequence[Schedule]) -> None:
        """Insert or update these entries; their last ticks stay as they are."""
        ...

    async def schedules(self) -> list[ScheduleState]: ...

    async def take_tick(
        self, name: str, seen: datetime, tick: datetime, coalesced: int, session_id: UUID, job: NewJob
    ) -> bool:
        """Move last_tick from *seen* to *tick*, record the duty and enqueue *job*, all or nothing."""
        ...

    async def prune(self, older_than_s: float, limit: int) -> int: ...
