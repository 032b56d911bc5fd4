"""One worker: it claims jobs as capacity allows, runs them, and hands back those it may not finish.

    claim_loop ─► job_runs ─► acknowledger      claim free capacity, run each job in a task, write in batches
    suspect_runner                              jobs that were running at a crash run alone
    drain                                       after a stop: wait, cancel, hand back, write

A process has one worker. This file only connects the parts.
"""

from __future__ import annotations

import asyncio
from uuid import UUID

from fairlead._core.clock import Clock, Draw
from fairlead.engine.base.process_watch import ProcessWatch
from fairlead.engine.jobs.acknowledger import Acknowledger
from fairlead.engine.jobs.claim_loop import ClaimLoop
from fairlead.engine.jobs.drain import Drain
from fairlead.engine.jobs.executor import Executor
from fairlead.engine.jobs.heartbeat import Heartbeat
from fairlead.engine.jobs.job_runs import JobRuns
from fairlead.engine.jobs.memory_limits import MemoryGuard
from fairlead.engine.jobs.suspect_runner import SuspectRunner
from fairlead.engine.jobs.worker_settings import WorkerSettings, limit_to_handled_kinds
from fairlead.engine.ports import Job, JobStore, MemoryGauge
from fairlead.events import Emit


class Worker:
    """The worker of one process, which runs jobs until ``stop``.

    Args:
        memory: Measures memory use. Default None: no limit.
        watch: Watches the health of the process. Default None.
    """

    def __init__(
        self,
        jobs: JobStore,
        executor: Executor,
        heartbeat: Heartbeat,
        *,
        clock: Clock,
        draw: Draw,
        emit: Emit,
        settings: WorkerSettings | None = None,
        memory: MemoryGauge | None = None,
        watch: ProcessWatch | None = None,
    ) -> None:
        settings = settings or WorkerSettings()
        self.claims = limit_to_handled_kinds(settings.claims, executor.kinds)
        self._memory = MemoryGuard(memory, clock=clock, emit=emit) if memory else None
        self._watch = watch
        self.drain = Drain(grace_s=settings.grace_s, clock=clock, emit=emit)
        self.acks = Acknowledger(
            jobs,
            clock=clock,
            draw=draw,
            emit=emit,
            refused_outcome=executor.refused_outcome,
            on_flushed=self._flushed,
        )
        self.runs = JobRuns(
            executor,
            heartbeat,
            self.acks,
            emit=emit,
            cancel_at_mono=self.drain.cancel_at_mono,
            on_ended=self._run_ended,
        )
        self.suspects = SuspectRunner(
            jobs,
            self.runs,
            self.acks,
            claims=self.claims,
            timeout_s=executor.timeout_s,
            poll_s=settings.poll_s,
            clock=clock,
            draw=draw,
            wake=self.wake,
        )
        self.claim_loop = ClaimLoop(
            jobs,
            self.runs,
            self.suspects,
            self.drain,
            heartbeat=heartbeat,
            settings=settings,
            may_claim=self._may_claim,
            clock=clock,
            draw=draw,
            emit=emit,
        )
        self._subscribe(heartbeat, watch)

    @property
    def running(self) -> int:
        """The number of jobs that run now."""
        return len(self.runs)

    def wake(self) -> None:
        """Claim now, because there may be new jobs."""
        self.claim_loop.wake()

    def stop(self) -> None:
        """Claim no more jobs, let the running ones end within the grace, then hand back the rest.

        A second call ends the grace at once.
        """
        if not self.drain.is_requested:
            self.claim_loop.stop()
        self.drain.request()
        self.claim_loop.woken.set()

    async def run(self) -> None:
        """Work until stopped and drained. Handlers that ignore cancellation are not waited for. Spec: E05."""
        failure = self.runs.open_failure()
        try:
            async with asyncio.TaskGroup() as group:
                tasks = (group.create_task(self.acks.run()), group.create_task(_raise_from(failure)))
                await self.claim_loop.run()
                self.suspects.release()
                await self.drain.run(self.runs, self.acks, self.claim_loop.woken)
                for task in tasks:
                    task.cancel()
        finally:
            self.claim_loop.abandon()
            self.runs.abandon()

    def _subscribe(self, heartbeat: Heartbeat, watch: ProcessWatch | None) -> None:
        """Connect the worker to the changes of its session and of the process's health."""
        heartbeat.on_lost(lambda session_id, _reason: self._lose_session(session_id))
        heartbeat.on_opened(self.wake)
        heartbeat.on_cancelled(self.runs.job_ids, self.runs.end_cancelled)
        if watch is not None:
            watch.on_well(self.wake)

    def _may_claim(self) -> bool:
        """Return whether memory, unwritten outcomes and the process's health allow new jobs."""
        has_memory = self._memory is None or self._memory.may_claim()
        return has_memory and self.acks.is_accepting and (self._watch is None or self._watch.may_claim())

    def _lose_session(self, session_id: UUID) -> None:
        """Stop the work of a lost session."""
        self.suspects.release()
        self.runs.lose_session(session_id)

    def _run_ended(self, job: Job) -> None:
        """Wake the claim loop if a run's end lets something start."""
        suspect_may_start = self.suspects.run_ended(job)
        if self.claim_loop.more_work_hinted or suspect_may_start or self.drain.is_requested:
            self.claim_loop.woken.set()

    def _flushed(self) -> None:
        """Wake the claim loop if it waits until all outcomes are written."""
        if self.suspects.has_suspect or self.drain.is_requested:
            self.claim_loop.woken.set()


async def _raise_from(failure: asyncio.Future[None]) -> None:
    """Raise the error of *failure* once it has one, which ends the worker's task group."""
    await failure
