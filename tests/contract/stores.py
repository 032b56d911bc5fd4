"""The stores under test as one world, and the few steps that all suites share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from fairlead.engine.ports import (
    AuditRecord,
    ClaimFilter,
    CredentialStore,
    DeadLetterStore,
    Discarded,
    EndpointGate,
    FailureRecord,
    Job,
    JobStore,
    LaneStore,
    NewJob,
    ProcessIdentity,
    Rescheduled,
    ScheduleStore,
    SessionStore,
)
from fairlead.testing._kit.clock import ManualClock
from fairlead.testing._kit.ids import CountedIds
from fairlead.testing._memory import (
    MemoryDatabase,
    MemoryDeadLetterStore,
    MemoryJobStore,
    MemoryLaneStore,
    MemoryScheduleStore,
    MemorySessionStore,
)
from tests.support.engine import IDS, new_job
from tests.support.memory_credentials import MemoryCredentialStore
from tests.support.memory_endpoints import MemoryEndpointGate

LEASE_S = 30.0
ANY = ClaimFilter()


class Stores(Protocol):
    """One implementation's stores over one database."""

    @property
    def jobs(self) -> JobStore: ...
    @property
    def sessions(self) -> SessionStore: ...
    @property
    def schedule_store(self) -> ScheduleStore: ...
    @property
    def dead_letters(self) -> DeadLetterStore: ...
    @property
    def lanes(self) -> LaneStore: ...
    @property
    def credentials(self) -> CredentialStore: ...
    @property
    def endpoints(self) -> EndpointGate: ...

    def peer(self) -> CredentialStore:
        """The credentials as another process has them."""
        ...

    async def trail(self) -> list[AuditRecord]:
        """All acts so far, the oldest first."""
        ...

    async def pass_time(self, delay_s: float) -> None:
        """Let the database's clock move by *delay_s*, as seen from everything that is stored."""
        ...


@dataclass(frozen=True, slots=True)
class MemoryStores:
    """The stores of fairlead.testing."""

    clock: ManualClock
    jobs: MemoryJobStore
    sessions: MemorySessionStore
    schedule_store: MemoryScheduleStore
    dead_letters: MemoryDeadLetterStore
    lanes: MemoryLaneStore
    credentials: MemoryCredentialStore
    endpoints: MemoryEndpointGate

    def peer(self) -> MemoryCredentialStore:
        return MemoryCredentialStore(self.credentials.database.link())

    async def trail(self) -> list[AuditRecord]:
        return [row.record for row in self.credentials.database.tokens.audit]

    async def pass_time(self, delay_s: float) -> None:
        await self.clock.advance(delay_s)


def memory_stores(clock: ManualClock | None = None) -> MemoryStores:
    clock = clock or ManualClock()
    link = MemoryDatabase(clock, CountedIds()).link()
    return MemoryStores(
        clock,
        MemoryJobStore(link),
        MemorySessionStore(link),
        MemoryScheduleStore(link),
        MemoryDeadLetterStore(link),
        MemoryLaneStore(link),
        MemoryCredentialStore(link),
        MemoryEndpointGate(link),
    )


# ---- steps -----------------------------------------------------------------------------------------


def identity(pid: int = 1, **fields: str) -> ProcessIdentity:
    """A process of one host."""
    identity = {
        "host": "here",
        "boot_id": "boot",
        "pid_namespace": "pid:[1]",
        "process_started": "5",
    } | fields
    return ProcessIdentity(pid=pid, **identity)


async def a_session(stores: Stores, pid: int = 1, lease_s: float = LEASE_S) -> UUID:
    """An open session."""
    session_id = IDS.uuid7()
    await stores.sessions.open(session_id, identity(pid), lease_s, "1.0")
    return session_id


async def enqueued(stores: Stores, *jobs: NewJob) -> list[UUID]:
    """Their ids, stored in order."""
    return [stored.job_id for stored in await stores.jobs.enqueue(jobs)]


async def claimed(stores: Stores, session_id: UUID, **fields: object) -> Job:
    """One new job, running under *session_id*."""
    job = new_job(**fields)
    await stores.jobs.enqueue([job])
    (claimed,) = await stores.jobs.claim(ANY, 1, session_id)
    assert claimed.job_id == job.job_id
    return claimed


async def die_out(stores: Stores, survivor: UUID, *, max_crashes: int = 3) -> tuple[int, int]:
    """Every session but *survivor* falls silent until its lease has passed; (rescued, dead) jobs."""
    rescued = dead = 0
    for _ in range(25):  # passes at a steady pace, so that no gap delays them (R2)
        await stores.pass_time(LEASE_S / 10)
        assert await stores.sessions.heartbeat(survivor)
        done = await stores.sessions.rescue(survivor, 0.0, max_crashes, 1000)
        assert done is not None
        rescued, dead = rescued + done.rescued, dead + done.dead
    return rescued, dead


def failed(job: Job, *, delay_s: float = 10.0, category: str = "transient_server") -> Rescheduled:
    """A failure that is to be retried."""
    return Rescheduled(
        job.job_id, job.lease_id, delay_s, failure(job, category), {**job.streaks, category: 1}
    )


def failure(job: Job, category: str = "transient_server", code: str = "boom") -> FailureRecord:
    """What is kept of a failed attempt."""
    return FailureRecord(category, code, "it failed", 0.5, job.attempt, details={"why": "tested"})


def discarded(job: Job, *, action_in_s: float | None = 0.0, category: str = "transient_server") -> Discarded:
    """The end of *job* as a dead letter."""
    record = failure(job, category)
    return Discarded(job.job_id, job.lease_id, IDS.uuid7(), record, action_in_s=action_in_s)
