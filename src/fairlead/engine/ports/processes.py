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
    trouble: str | None = None
    """What keeps it from claiming jobs, in its own words; None: nothing."""
    app_version: str | None = None
    """The version of the application, from the setting `app_version`; None: not set."""


@dataclass(frozen=True, slots=True)
class Renewed:
    """A session that was renewed.

    Attributes:
        cancelled: Lease ids of running jobs that were cancelled.
        data_keys_renewed_at: When a key rotation last asked this process to look up the current data keys;
            None: never.
    """

    cancelled: frozenset[int] = frozenset()
    data_keys_renewed_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class KeyHolder:
    """A live process and the master keys it holds.

    Attributes:
        master_ids: None: an older version, which does not report them.
        is_behind: Whether it was asked to look up the data keys, and has not renewed its session since.
    """

    session_id: UUID
    host: str
    pid: int
    master_ids: tuple[str, ...] | None
    is_behind: bool = False


class SessionStore(Protocol):
    """Who is alive. One heartbeat a process, not one a job (R2)."""

    async def open(
        self,
        session_id: UUID,
        identity: ProcessIdentity,
        lease_s: float,
        version: str,
        master_keys: Sequence[str] | None = None,
        app_version: str | None = None,
    ) -> None:
        """Begin a session. A second call for the same session changes nothing.

        Args:
            session_id: The id of the new session.
            identity: The process.
            lease_s: How long the session lives without a heartbeat.
            version: The version of fairlead.
            master_keys: Ids of the master keys that the process holds; None: not stated.
            app_version: The version of the application; None: not stated.
        """
        ...

    async def heartbeat(
        self, session_id: UUID, running: Sequence[UUID] = (), trouble: str | None = None
    ) -> Renewed | None:
        """Renew the session, report *trouble*, and return which of the *running* jobs must stop.

        Returns:
            None if this session was declared lost or stopped: the process must stop its work.
        """
        ...

    async def close(self, session_id: UUID) -> None:
        """Mark as stopped; its leases are free at once."""
        ...

    async def key_holders(self, seen_within_s: float = 0.0) -> list[KeyHolder]:
        """Return the live processes with their master keys, by host and pid.

        Args:
            seen_within_s: Also return those that ended at most so many seconds ago. Default 0.
        """
        ...

    async def data_keys_renewed(self) -> None:
        """Ask every live process to look up the current data keys with its next renewal."""
        ...

    async def local_sessions(self, identity: ProcessIdentity) -> list[tuple[UUID, ProcessIdentity]]:
        """Open sessions of the same boot and pid namespace, but for the caller's own pid."""
        ...

    async def mark_dead(self, session_ids: Sequence[UUID]) -> int:
        """Declare sessions of provably dead processes lost."""
        ...

    async def rescue(self, session_id: UUID, every_s: float, max_crashes: int, limit: int) -> Rescue | None:
        """One fleet-wide pass: give back the jobs of lost sessions. None: another process just did it."""
        ...

    async def search(self) -> list[SessionView]: ...

    async def prune(self, older_than_s: float, limit: int) -> int: ...


@dataclass(frozen=True, slots=True)
class Schedule:
    """A cron entry as a program declares it: what to enqueue at each tick (see policy/jobs/schedule.py)."""

    name: str
    expression: str
    kind: str
    tenant_id: str
    timezone: str = "UTC"
    missed: str = "coalesce"
    """``coalesce`` (one job stands for all missed ticks) or ``catch_up`` (a job for each)."""
    queue: str = "default"
    priority: int = 2
    args: Mapping[str, Json] = field(default_factory=dict)
    jitter_s: float = 0.0
    """A job runs up to so much later than its tick, never past the next one; default 0."""
    paused: bool = False
    """Switched off by the program; a person's pause is apart from it, and either suffices."""


@dataclass(frozen=True, slots=True)
class Pause:
    """A person's pause: it outlives every restart, until somebody resumes the schedule."""

    at: datetime
    by: str
    why: str


@dataclass(frozen=True, slots=True)
class ScheduleState:
    """A schedule with the last tick that was taken and the database's now."""

    schedule: Schedule
    last_tick: datetime
    now: datetime
    pause: Pause | None = None
    unhandled_s: float = 0.0
    """Since a worker last reported that it takes its kind from its queue."""

    @property
    def paused(self) -> bool:
        """True while it takes no ticks, by whoever's will."""
        return self.schedule.paused or self.pause is not None


@dataclass(frozen=True, slots=True)
class ScheduleRun:
    """The record of one tick. *job_id* None: an open job stood for it, no further one was made."""

    tick: datetime
    taken_at: datetime
    session_id: UUID
    coalesced: int
    job_id: UUID | None


class ScheduleStore(Protocol):
    """Cron ticks, each taken once by compare-and-set (R4)."""

    async def sync_schedules(self, schedules: Sequence[Schedule]) -> None:
        """Insert or update these schedules. Last ticks and pauses set by an operator stay as they are.

        A new schedule begins now. So does one that its program no longer pauses, and one whose expression or
        time zone has changed.
        """
        ...

    async def schedules(self) -> list[ScheduleState]:
        """All of them, by name."""
        ...

    async def pause(self, name: str, by: str, why: str) -> bool:
        """Take no more ticks of it. False: there is none; a pause that stands is left as it is."""
        ...

    async def resume(self, name: str, *, make_up: bool) -> bool:
        """Lift a person's pause; False: there is no such schedule.

        What fell into the pause is let go, or with *make_up* counts as missed.
        """
        ...

    async def remove(self, name: str) -> None:
        """Forget it; the record of its ticks stays. Gone already: nothing."""
        ...

    async def rewind(self) -> list[str]:
        """Restart schedules whose last tick is over a minute in the future, and return their names.

        Their clock was set back. Ticks that were taken before that are not taken again.
        """
        ...

    async def record_run(
        self, name: str, seen: datetime, tick: datetime, coalesced: int, session_id: UUID, job: NewJob
    ) -> bool:
        """Move last_tick from *seen* to *tick*, record the duty and enqueue *job*, all or nothing.

        The job is due ``job.delay_s`` after *tick*, at the latest that long from now.
        """
        ...

    async def runs(self, name: str, limit: int) -> list[ScheduleRun]:
        """The latest ticks of a schedule, the newest first."""
        ...

    async def prune(self, older_than_s: float, limit: int) -> int: ...
