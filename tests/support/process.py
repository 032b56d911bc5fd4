"""A process of the fleet inside a test: worker, heartbeat, rescuer and scheduler on a virtual clock.

Several of them share one MemoryDatabase, each over a link of its own. ``kill`` is what SIGKILL is: nothing
of the process reaches the database any more, nothing is cleaned up.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime
from typing import Any

from fairlead._core.clock import Draw
from fairlead.engine.base.process_watch import ProcessWatch
from fairlead.engine.jobs.executor import Executor
from fairlead.engine.jobs.handler import Handler, JobContext
from fairlead.engine.jobs.heartbeat import Heartbeat
from fairlead.engine.jobs.rescuer import Rescuer
from fairlead.engine.jobs.scheduler import Scheduler
from fairlead.engine.jobs.worker import Worker
from fairlead.engine.jobs.worker_settings import WorkerSettings
from fairlead.engine.ports import ClaimFilter, Job, JobView, MemoryGauge, NewJob, ProcessIdentity
from fairlead.testing._kit.clock import ManualClock
from fairlead.testing._kit.ids import CountedIds
from fairlead.testing._memory import (
    MemoryDatabase,
    MemoryDeadLetterStore,
    MemoryJobStore,
    MemoryScheduleStore,
    MemorySessionStore,
)
from tests.support.engine import IDS, Recorder, half, new_job

LEASE_S = 30.0


class Processes:
    """The probe of a test: knows which pids were killed."""

    def __init__(self, pid: int, dead: set[int]) -> None:
        self._pid = pid
        self._dead = dead

    def identity(self) -> ProcessIdentity:
        return ProcessIdentity("here", "boot", "pid:[1]", self._pid, "5")

    def is_dead(self, identity: ProcessIdentity) -> bool:
        return identity.pid in self._dead


class Gate:
    """A handler that a test can see in, and lets go."""

    def __init__(self, kind: str = "work", *, deaf: bool = False, timeout_s: float = 1000.0) -> None:
        self.open = asyncio.Event()
        self.started: list[str] = []
        self.cancelled: list[str] = []
        self.running = self.most = 0
        self._deaf = deaf
        self._moved = asyncio.Event()
        self.handler = Handler(kind, self._run, timeout_s=timeout_s)

    async def _run(self, context: JobContext) -> str:
        name = str(context.args.get("name", context.job.job_id))
        self.started.append(name)
        self.running += 1
        self.most = max(self.most, self.running)
        self._moved.set()
        try:
            await self._wait(name)
        finally:
            self.running -= 1
            self._moved.set()
        return name

    async def _wait(self, name: str) -> None:
        while not self.open.is_set():
            try:
                await self.open.wait()
            except asyncio.CancelledError:
                self.cancelled.append(name)
                if not self._deaf:
                    raise

    async def wait_running(self, count: int) -> None:
        while self.running != count:
            self._moved.clear()
            await self._moved.wait()


FOREVER = datetime.max.replace(tzinfo=UTC)


class Process:
    """One process; without handlers it has no worker and no rescuer, and only schedules."""

    def __init__(self, fleet: Fleet, pid: int, handlers: tuple[Handler, ...], **settings: Any) -> None:
        self.fleet, self.pid = fleet, pid
        self.emit = Recorder()
        self.link = fleet.database.link()
        self.operations: Counter[str] = Counter()
        self.link.on_answer = self._count
        clock, draw, ids = fleet.clock, fleet.draw, CountedIds(pid * 10_000_000)
        self.jobs, sessions = MemoryJobStore(self.link), MemorySessionStore(self.link)
        self.heartbeat = Heartbeat(
            sessions,
            Processes(pid, set()).identity(),
            version="1.0",
            clock=clock,
            draw=draw,
            ids=ids,
            emit=self.emit,
            lease_s=LEASE_S,
        )
        scheduler = Scheduler(MemoryScheduleStore(self.link), self.heartbeat, ids=ids, emit=self.emit)
        self.services = [scheduler.service(clock=clock, draw=draw)]
        if handlers:
            probe = Processes(pid, fleet.proven_dead)
            rescuer = Rescuer(sessions, self.jobs, probe, self.heartbeat, emit=self.emit)
            self.services.append(rescuer.service(clock=clock, draw=draw))
            executor = Executor(handlers, clock=clock, draw=draw, ids=ids, emit=self.emit)
            self.worker = self._worker(executor, **settings)
        self._works = bool(handlers)
        self.task = asyncio.create_task(self._run())

    def _worker(
        self,
        executor: Executor,
        *,
        memory: MemoryGauge | None = None,
        watch: ProcessWatch | None = None,
        **settings: Any,
    ) -> Worker:
        return Worker(
            self.jobs,
            executor,
            self.heartbeat,
            clock=self.fleet.clock,
            draw=self.fleet.draw,
            emit=self.emit,
            settings=WorkerSettings(**({"claim_gap_s": 0.0, "concurrency": 10} | settings)),
            memory=memory,
            watch=watch,
        )

    async def _count(self, operation: str) -> None:
        self.operations[operation] += 1

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.heartbeat.run())
            for service in self.services:
                group.create_task(service.run())
            if not self._works:
                return
            await self.worker.run()
            for service in self.services:
                service.stop()
            self.heartbeat.stop()

    def stop(self) -> None:
        """Do what SIGTERM does."""
        self.worker.stop()

    async def kill(self) -> None:
        """Do what SIGKILL does."""
        self.link.is_down = True
        self.task.cancel()
        await asyncio.wait([self.task])

    async def stopped(self) -> None:
        """Return once the process has ended by itself; its errors come out."""
        await self.task


class Fleet:
    """The database, its clock, and the processes of one test."""

    def __init__(self, draw: Draw = half) -> None:
        self.clock = ManualClock()
        self.draw = draw
        self.database = MemoryDatabase(self.clock, CountedIds())
        self.database.handled_at["default", "scan"] = FOREVER  # a caller of `claim` is a worker
        link = self.database.link()
        self.jobs = MemoryJobStore(link)
        self.dead_letters = MemoryDeadLetterStore(link)
        self.schedule_store = MemoryScheduleStore(link)
        self.proven_dead: set[int] = set()
        self.processes: list[Process] = []

    def new(self, *handlers: Handler, **settings: Any) -> Process:
        """Return a new process."""
        process = Process(self, len(self.processes) + 1, handlers, **settings)
        self.processes.append(process)
        return process

    async def start(self, *handlers: Handler, **settings: Any) -> Process:
        """Return a new process with an open session."""
        process = self.new(*handlers, **settings)
        await process.heartbeat.wait_until_open()
        return process

    async def enqueue(self, *jobs: NewJob) -> list[NewJob]:
        """Store jobs (default: one plain one); nobody is woken."""
        new_jobs = list(jobs) or [new_job()]
        await self.jobs.enqueue(new_jobs)
        return new_jobs

    async def claim(self, *kinds: str) -> list[Job]:
        """Claim all due jobs (of these kinds) for a session outside the fleet."""
        session_id, outsider = IDS.uuid7(), Processes(0, set()).identity()
        await MemorySessionStore(self.jobs.link).open(session_id, outsider, LEASE_S, "1.0")
        return await self.jobs.claim(ClaimFilter(kinds=kinds), 100_000, session_id)

    async def view(self, job: NewJob) -> JobView:
        """Return the job as stored."""
        view = await self.jobs.get(job.job_id)
        assert view is not None
        return view

    async def advance(self, delay_s: float) -> None:
        """Let virtual time pass; each sleep ends at its own instant."""
        await self.clock.advance(delay_s)

    async def settle(self) -> None:
        """Let everything that can go on without time passing go on."""
        await self.clock.advance(0)

    async def close(self) -> None:
        """End whatever still runs; an error of a process that nobody looked at comes out here."""
        for process in self.processes:
            if not process.task.done():
                await process.kill()
        for process in self.processes:
            if not process.task.cancelled() and process.task.exception():
                raise process.task.exception()  # type: ignore[misc]
