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
    """The facts by which another process of the same host can prove that a process is dead.

    Attributes:
        boot_id: Of the host; it changes with each boot.
        process_started: When the process started, which distinguishes it from a later one with the same pid.

    Spec: R7.
    """

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
        data_keys_renewed_at: When a key rotation last requested all processes to read the data keys again.
            None: never.
    """

    cancelled: frozenset[int] = frozenset()
    data_keys_renewed_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class KeyHolder:
    """A live process and the master keys it holds.

    Attributes:
        master_ids: None: an older version, which does not report them.
        is_behind: Whether it has not renewed its session since it was requested to read the data keys again.
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
        """Request every live process to read the current data keys again, with its next renewal."""
        ...

    async def local_sessions(self, identity: ProcessIdentity) -> list[tuple[UUID, ProcessIdentity]]:
        """Return open sessions of the same boot and pid namespace, without the caller's own pid."""
        ...

    async def mark_dead(self, session_ids: Sequence[UUID]) -> int:
        """Declare the sessions of provably dead processes lost, and return how many."""
        ...

    async def rescue(self, session_id: UUID, every_s: float, max_crashes: int, limit: int) -> Rescue | None:
        """Declare sessions without a heartbeat lost, and make their jobs available again; once for the fleet.

        Args:
            session_id: The caller's session.
            every_s: The least seconds between two passes.
            max_crashes: How often a job may be running when its process dies, before it is discarded.
            limit: The most jobs of one pass.

        Returns:
            What was done; None if another process has just done it.
        """
        ...

    async def search(self) -> list[SessionView]:
        """Return all sessions that are stored, those that ended too."""
        ...

    async def prune(self, older_than_s: float, limit: int) -> int:
        """Delete at most *limit* sessions that ended *older_than_s* seconds ago, and return how many."""
        ...


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
        """Whether it does not fire, because its program or an operator has paused it."""
        return self.schedule.paused or self.pause is not None


@dataclass(frozen=True, slots=True)
class ScheduleRun:
    """The record of one run.

    Attributes:
        run_at: The time of the schedule; *taken_at*: when it was recorded.
        coalesced: How many missed runs this one stands for.
        job_id: Its job. None: an open job stood for it, and none was enqueued.
    """

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
        """Restart from now each schedule with a last run more than a minute in the future; return their names.

        Such a run means that the database's clock was set back. Earlier runs are not repeated.
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

        Args:
            name: The schedule.
            last_run_at: Its last run, as the caller read it.
            run_at: The time of this run.
            coalesced: How many missed runs this one stands for.
            session_id: The caller's session.
            job: The job of the run.

        Returns:
            False if another process was first.
        """
        ...

    async def runs(self, name: str, limit: int) -> list[ScheduleRun]:
        """Return the latest runs of a schedule, the newest first."""
        ...

    async def prune(self, older_than_s: float, limit: int) -> int:
        """Delete at most *limit* records of runs that are older, and return how many."""
        ...
