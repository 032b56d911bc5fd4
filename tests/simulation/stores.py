"""The memory stores, watched: they tell which lease a job got, lost and ended under."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import Any
from uuid import UUID

from fairlead.engine.ports import Job, Outcome, ProcessIdentity, Renewed, Rescheduled
from fairlead.testing._memory import MemoryJobStore, MemoryLink, MemorySessionStore
from fairlead.testing._memory.database import statement
from fairlead.testing._memory.rows import JobRow
from tests.simulation.redis import SimRedis
from tests.simulation.watch import (
    Accepted,
    Beat,
    CalledOff,
    Claimed,
    Closed,
    DeclaredLost,
    Freed,
    Opened,
    Watch,
)
from tests.support.memory_credentials import MemoryCredentialStore

WORK = "work"
"""The argument of a job that names its piece of work."""


def plain(method: Any) -> Any:
    """A store's operation without its link."""
    return method.__wrapped__


class WatchedJobs(MemoryJobStore):
    """Jobs, and what becomes of their leases."""

    def __init__(self, link: MemoryLink, watch: Watch) -> None:
        super().__init__(link)
        self.watch = watch

    def _claimed(self, row: JobRow, session_id: UUID) -> Job:
        job = super()._claimed(row, session_id)
        claimed = Claimed(job.job_id, job.lease_id, session_id, job.tenant_id, job.kind, job.waited_s)
        self.watch.tell(claimed)
        return job

    def _hand_back_lost(self) -> None:
        lost = [(job, self._leased(job.job_id, job.lease_id)) for job in self._lost]
        super()._hand_back_lost()
        for job, row in lost:
            if row is not None:
                self.watch.tell(Freed(job.job_id, job.lease_id, crash=False))

    @statement
    def cancel(
        self, job_id: UUID, reason: str, *, tenant_id: str | None = None, state: str | None = None
    ) -> str | None:
        became: str | None = plain(MemoryJobStore.cancel)(
            self, job_id, reason, tenant_id=tenant_id, state=state
        )
        if became:
            self.watch.tell(CalledOff(job_id))
        return became

    def _write(self, row: JobRow, outcome: Outcome) -> None:
        handed_back = isinstance(outcome, Rescheduled) and outcome.failure is None
        name = "handed_back" if handed_back else type(outcome).__name__.lower()
        category = outcome.failure.category if isinstance(outcome, Rescheduled) and outcome.failure else None
        work = row.args.get(WORK)
        super()._write(row, outcome)
        assert work is None or isinstance(work, int)
        self.watch.tell(Accepted(outcome.job_id, outcome.lease_id, name, work, category))


class WatchedSessions(MemorySessionStore):
    """Sessions, and whose jobs are taken from them."""

    def __init__(self, link: MemoryLink, watch: Watch) -> None:
        super().__init__(link)
        self.watch = watch

    @statement
    def open(
        self,
        session_id: UUID,
        identity: ProcessIdentity,
        lease_s: float,
        version: str,
        *about: Any,
    ) -> None:
        plain(MemorySessionStore.open)(self, session_id, identity, lease_s, version, *about)
        self.watch.tell(Opened(session_id, lease_s))

    @statement
    def heartbeat(self, session_id: UUID, *more: Any) -> Renewed | None:
        renewed: Renewed | None = plain(MemorySessionStore.heartbeat)(self, session_id, *more)
        if renewed is not None:
            self.watch.tell(Beat(session_id))
        return renewed

    @statement
    def close(self, session_id: UUID) -> None:
        held_rows = [row for row in self.database.jobs.values() if row.session_id == session_id]
        leases = [(row.job_id, row.lease_id) for row in held_rows]
        plain(MemorySessionStore.close)(self, session_id)
        self.watch.tell(Closed(session_id))
        for job_id, lease_id in leases:
            self.watch.tell(Freed(job_id, lease_id, crash=False))

    @statement
    def mark_dead(self, session_ids: Sequence[UUID]) -> int:
        open_ones = [session_id for session_id in session_ids if self.database.is_open(session_id)]
        buried: int = plain(MemorySessionStore.mark_dead)(self, session_ids)
        for session_id in open_ones:
            self.watch.tell(DeclaredLost(session_id, proven=True))
        return buried

    def _declare_lost(self, since: datetime) -> int:
        were_open = [row.session_id for row in self.database.sessions.values() if row.open]
        count = super()._declare_lost(since)
        for session_id in were_open:
            if not self.database.is_open(session_id):
                self.watch.tell(DeclaredLost(session_id, proven=False))
        return count

    def _rescue_one(self, row: JobRow, max_crashes: int) -> bool:
        freed = Freed(row.job_id, row.lease_id, crash=row.started_at is not None)
        dead = super()._rescue_one(row, max_crashes)
        self.watch.tell(freed)
        return dead


def as_it_is(program: object) -> None:
    """Change nothing."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What the world is built from; an ablation puts another part in the place of one.

    *alter* is given each program once it is put together, before it runs. *lacks*: the safeguard that is
    missing then, as `ablations` calls it.
    """

    lacks: str = ""
    jobs: Callable[[MemoryLink, Watch], MemoryJobStore] = WatchedJobs
    sessions: Callable[[MemoryLink, Watch], MemorySessionStore] = WatchedSessions
    credentials: Callable[[MemoryLink], MemoryCredentialStore] = MemoryCredentialStore
    redis: Callable[[Callable[[], int], Random, Watch], SimRedis] = SimRedis
    alter: Callable[[Any], None] = as_it_is
