"""Processes with their heartbeats, and schedules that fire once for each time."""

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
    """Why it claims no jobs; None: it does."""
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
    """The store of processes. Each sends one heartbeat, not one for each job. Spec: R2."""

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
        """Mark the session as stopped; its leases are free at once."""
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
        """Return open sessions of the same boot and pid namespace, without the caller's own pid."""
        ...

    async def mark_dead(self, session_ids: Sequence[UUID]) -> int:
        """Declare the sessions of provably dead processes lost, and return how many."""
        ...

    async def rescue(self, session_id: UUID, every_s: float, max_crashes: int, limit: int) -> Rescue | None:
        """Run one pass for the fleet that hands back the jobs of lost sessions.

        Returns:
            What was done; None if another process has just done it.
        """
        ...

    async def search(self) -> list[SessionView]: ...

    async def prune(self, older_than_s: float, limit: int) -> int: ...


@dataclass(frozen=True, slots=True)
class Schedule:
    """A cron entry as a program declares it: what to enqueue at each time (see policy/jobs/schedule.py)."""

    name: str
    expression: str
    kind: str
    tenant_id: str
    timezone: str = "UTC"
    missed: str = "coalesce"
    """``coalesce`` (one job stands for all missed runs) or ``catch_up`` (a job for each)."""
    queue: str = "default"
    priority: int = 2
    args: Mapping[str, Json] = field(default_factory=dict)
    jitter_s: float = 0.0
    """The most by which a job is delayed, never past the next run; default 0."""
    paused: bool = False
    """Paused by the program, beside any pause of an operator; either suffices."""


@dataclass(frozen=True, slots=True)
class Pause:
    """An operator's pause. It survives restarts until the schedule is resumed."""

    at: datetime
    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class ScheduleState:
    """A schedule with its last run and the database's time."""

    schedule: Schedule
    last_run_at: datetime
    now: datetime
    pause: Pause | None = None
    unhandled_s: float = 0.0
    """Seconds since a worker last reported that it takes its kind from its queue."""

    @property
    def paused(self) -> bool:
        """True while it does not fire, by its program's or an operator's choice."""
        return self.schedule.paused or self.pause is not None


@dataclass(frozen=True, slots=True)
class ScheduleRun:
    """The record of one run. *job_id* None: an open job stood for it, and none was enqueued."""

    run_at: datetime
    taken_at: datetime
    session_id: UUID
    coalesced: int
    job_id: UUID | None


class ScheduleStore(Protocol):
    """The store of schedules and their runs, each recorded once by compare-and-set. Spec: R4."""

    async def sync_schedules(self, schedules: Sequence[Schedule]) -> None:
        """Insert or update these schedules. Last runs and operators' pauses stay as they are.

        A new schedule starts now. So does one that its program no longer pauses, or that has a new expression
        or time zone.
        """
        ...

    async def schedules(self) -> list[ScheduleState]:
        """Return all schedules, by name."""
        ...

    async def pause(self, name: str, by: str, reason: str) -> bool:
        """Pause a schedule; return False if there is none. An existing pause stays as it is."""
        ...

    async def resume(self, name: str, *, make_up: bool) -> bool:
        """End an operator's pause; return False if there is no such schedule.

        Runs during the pause are skipped, or with *make_up* count as missed.
        """
        ...

    async def remove(self, name: str) -> None:
        """Delete a schedule, if it exists. The record of its runs stays."""
        ...

    async def rewind(self) -> list[str]:
        """Restart schedules with a last run over a minute in the future, and return their names.

        Their clock was set back. Earlier runs are not repeated.
        """
        ...

    async def record_run(
        self,
        name: str,
        last_run_at: datetime,
        run_at: datetime,
        coalesced: int,
        session_id: UUID,
        job: NewJob,
    ) -> bool:
        """Move the last run from *last_run_at* to *run_at*, record the run and enqueue *job*, all or nothing.

        The job is due ``job.delay_s`` after *run_at*, at the latest that long from now.

        Returns:
            False if another process was first.
        """
        ...

    async def runs(self, name: str, limit: int) -> list[ScheduleRun]:
        """Return the latest runs of a schedule, the newest first."""
        ...

    async def prune(self, older_than_s: float, limit: int) -> int: ...
