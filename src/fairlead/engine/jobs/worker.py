"""Claims jobs as capacity allows, runs them, and hands back those it may not finish.

    claim free capacity > run each in its own task > acknowledge in batches

While there is work and capacity, the next claim is under way before the jobs of the last one start, so that
the store finds jobs while this process runs some. There is never more than one claim at a time.

A process has one worker. A job that was running when its process crashed is retried with nothing else
running, so that a second crash costs no other job; see `suspects`. A job's task is cancelled for three
reasons only. After a lost lease or a drain the job goes back with its attempt restored, and a job that a
person cancelled ends (R3). Everything else that ends a run is an outcome under the lease id of its claim.

Over 400 lines because claim loop, drain and suspects have not been split yet.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from uuid import UUID

from fairlead._core.clock import Clock, Draw
from fairlead._core.faultpoint import faultpoint
from fairlead.engine.base.process_watch import ProcessWatch
from fairlead.engine.base.service import FailureReporter
from fairlead.engine.base.timing import LEAVE_S, TimeLimit, wait_event
from fairlead.engine.jobs.acknowledger import Acknowledger
from fairlead.engine.jobs.executor import Executor
from fairlead.engine.jobs.handler import JobContext
from fairlead.engine.jobs.heartbeat import Heartbeat
from fairlead.engine.jobs.memory_limits import MemoryGuard
from fairlead.engine.jobs.running_job import (
    CANCELLED,
    PendingClaim,
    RunningJob,
    hand_back_outcome,
    raise_from,
)
from fairlead.engine.jobs.suspects import SuspectSchedule, longest_run_s
from fairlead.engine.jobs.worker_settings import WorkerSettings, runnable
from fairlead.engine.ports import ClaimFilter, Completed, Job, JobStore, MemoryGauge, Outcome
from fairlead.events import Emit, HandlersStuck, JobsHandedBack, ServiceFailed, WorkerDraining

SOON_SHARE = 0.02  # of the poll interval: the shortest wait for due jobs that could not be claimed
MOST_EMPTY_LOOKS = 3
"""How often that wait is multiplied by four."""
RUN_SHARE, CANCEL_SHARE = 0.75, 0.9
"""Of the grace: when running jobs are cancelled, and when even those that ignore it are handed back. With the
default of 60 s the leases are free after 45 s, and 6 s are left to write what ended last."""
CANCEL_FORCED_S, WRITE_FORCED_S, LAST_WRITE_S = 1.0, 2.0, 1.0
"""The same after a second stop, in seconds from it; and how long the last write has at least."""


class Worker:
    """A claim loop that runs jobs until ``stop``.

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
        self._jobs = jobs
        self._executor = executor
        self._heartbeat = heartbeat
        self._clock = clock
        self._draw = draw
        self._emit = emit
        self._settings = settings or WorkerSettings()
        self.claims = runnable(self._settings.claims, executor.kinds)
        self._half = self._settings.concurrency // 2
        self._memory = MemoryGuard(memory, clock=clock, emit=emit) if memory else None
        self._watch = watch
        self._reporter = FailureReporter("worker", clock=clock, draw=draw, emit=emit)
        self._woken = asyncio.Event()
        self._acks = Acknowledger(
            jobs, clock=clock, draw=draw, emit=emit, refused=executor.refused, on_flushed=self._flushed
        )
        self._running: dict[int, RunningJob] = {}  # by lease id: after a lost lease a job may be here twice
        self._handed_back: set[int] = set()
        self._cancelled_by_us: dict[int, str] = {}  # runs that this worker cancelled, with the reason
        self._claiming: PendingClaim | None = None
        self._current_step: TimeLimit | None = None
        self._suspect: tuple[Job, UUID] | None = None
        self._more_work_hinted = True
        self._empty_looks = 0  # checks in a row that found due jobs but could not claim them
        self._next_claim = clock.monotonic()
        self._suspects = SuspectSchedule(self._next_claim, self._settings.poll_s)
        self._stopped_at: float | None = None
        self._forced_at: float | None = None
        self._failure: asyncio.Future[None] | None = None
        heartbeat.on_lost(self._lease_lost)
        heartbeat.on_opened(self.wake)
        if watch is not None:
            watch.on_well(self.wake)
        heartbeat.on_cancelled(
            lambda: [run.job.job_id for run in self._running.values()], self._end_cancelled
        )

    # ---- from outside --------------------------------------------------------------------------

    @property
    def running(self) -> int:
        """Jobs that run now."""
        return len(self._running)

    def wake(self) -> None:
        """Check for jobs now; a hint that there may be some."""
        self._more_work_hinted = True
        self._woken.set()

    def stop(self) -> None:
        """Claim no more, let jobs end within the grace, then hand back the rest. A second call: at once."""
        if self._stopped_at is None:
            self._stopped_at = self._clock.monotonic()
            if self._current_step is not None:
                self._clock.call_later(LEAVE_S, self._current_step.expire)
        elif self._forced_at is None:
            self._forced_at = self._clock.monotonic()
        self._woken.set()

    async def run(self) -> None:
        """Work until stopped and drained. Handlers that ignore cancellation are not waited for. Spec: E05."""
        self._failure = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.TaskGroup() as group:
                beside = (group.create_task(self._acks.run()), group.create_task(raise_from(self._failure)))
                while self._stopped_at is None:
                    self._woken.clear()
                    wait_s = await self._guarded_step()
                    if self._claiming is None and self._stopped_at is None:
                        await wait_event(self._woken, self._clock, wait_s)
                if self._claiming is not None:
                    await self._guarded_step()
                await self._drain()
                for task in beside:
                    task.cancel()
        finally:
            if self._claiming is not None:
                self._claiming.jobs.cancel()
            for run in self._running.values():
                run.cancel()

    # ---- working -------------------------------------------------------------------------------

    async def _guarded_step(self) -> float:
        """Run one step, and return the seconds until the next, unless the worker is woken.

        After a stop the step has 2 s left: jobs of an unfinished claim are released with the session.
        """
        self._current_step = limit = TimeLimit(self._clock, None if self._stopped_at is None else LEAVE_S)
        try:
            async with limit:
                return await self._claim_once()
        except Exception as error:  # noqa: BLE001 (the store may be unavailable; running jobs continue)
            return 0.0 if limit.expired else self._reporter.failure(error)

    async def _claim_once(self) -> float:
        if self._claiming is None:
            self._release_late_suspect()
            session_id = self._heartbeat.session_id
            if session_id is None or not self._may_begin():
                return self._poll_s()
            if self._suspect is None and self._should_claim_suspect():
                await self._reserve_suspect(session_id)
            if self._suspect is not None:
                await self._serve_suspect()
                return self._poll_s()
            gap_s = self._next_claim - self._clock.monotonic()
            if gap_s > 0:
                await self._clock.sleep(gap_s)
            self._begin_claim()
            if self._claiming is None:
                return 0.0 if self._is_idle() else self._poll_s()  # any change of this wakes the worker
        return await self._start_claimed(self._claiming)

    def _may_begin(self) -> bool:
        is_free = self._memory is None or self._memory.may_claim()
        return is_free and self._acks.accepting and (self._watch is None or self._watch.may_claim())

    def _begin_claim(self, arriving: int = 0) -> None:
        """Start a claim for the free capacity beside *arriving* jobs, at most half of all."""
        free = self._settings.concurrency - len(self._running) - arriving
        session_id = self._heartbeat.session_id
        claims = self._current_filter()
        if free <= 0 or claims is None or session_id is None or self._stopped_at is not None:
            return
        self._next_claim = self._clock.monotonic() + self._settings.claim_gap_s
        demand = min(free, self._settings.concurrency - self._half)
        answer = asyncio.create_task(self._jobs.claim(claims, demand, session_id))
        self._claiming = PendingClaim(answer, demand, session_id)

    async def _start_claimed(self, claim: PendingClaim) -> float:
        """Start the jobs of *claim*, and return the seconds until the next step."""
        try:
            jobs = await claim.jobs
        finally:
            self._claiming = None
        self._reporter.success()
        if not jobs:
            self._more_work_hinted = False
            return 0.0 if self._is_idle() else await self._idle_s()
        faultpoint("job.after_claim")
        self._suspects.other_work_started()
        self._more_work_hinted = True
        self._empty_looks = 0
        free = self._settings.concurrency - len(self._running) - len(jobs)
        in_time = not self._suspects.should_claim(self._clock.monotonic())
        if len(jobs) >= claim.demand and free >= self._half and in_time and self._may_begin():
            self._begin_claim(arriving=len(jobs))
        for job in jobs:
            self._start(job, claim.session_id)
        return self._poll_s() if len(self._running) >= self._settings.concurrency else 0.0

    async def _idle_s(self) -> float:
        """Return the seconds until the next job is due, at most a poll interval."""
        claims = self._current_filter()
        wait_s = None if claims is None else await self._jobs.next_due_s(claims)
        poll_s = self._poll_s()
        if wait_s is None:
            return poll_s
        if wait_s <= 0:  # due but not claimed: other workers serve these lanes, or it is a suspect
            wait_s = self._settings.poll_s * SOON_SHARE * 4**self._empty_looks * (0.5 + self._draw())
            self._empty_looks = min(self._empty_looks + 1, MOST_EMPTY_LOOKS)
        return min(poll_s, max(wait_s, self._settings.poll_s * SOON_SHARE))

    def _poll_s(self) -> float:
        poll_s = self._settings.poll_s * (0.5 + self._draw())
        return min(poll_s, self._suspects.next_check_s(self._clock.monotonic()))

    def _start(self, job: Job, session_id: UUID) -> None:
        if session_id != self._heartbeat.session_id:  # lost while the claim was under way
            self._acks.put(job, hand_back_outcome(job))
            return
        context = self._executor.begin(job, self._end_by)
        task = asyncio.create_task(self._executor.run_claimed(context, self._end_by))
        self._running[job.lease_id] = RunningJob(context, session_id, task)
        task.add_done_callback(partial(self._ended, context))  # not in it: it may be cancelled unstarted

    def _ended(self, context: JobContext, task: asyncio.Task[Outcome]) -> None:
        job = context.job
        del self._running[job.lease_id]
        outcome = self._outcome(context, task)
        if job.lease_id in self._handed_back:
            self._handed_back.discard(job.lease_id)
        else:
            self._acks.put(job, outcome)
        if self._suspect is not None and self._suspect[0] is job:
            self._end_suspect()
        is_alone = self._suspects.has_pending and not self._running
        if self._more_work_hinted or is_alone or self._suspect is not None or self._stopped_at is not None:
            self._woken.set()

    def _outcome(self, context: JobContext, task: asyncio.Task[Outcome]) -> Outcome:
        """Return the outcome of a run that has ended in any way."""
        cut = self._cancelled_by_us.pop(context.job.lease_id, None)
        if (
            task.cancelled() and cut is None
        ):  # by itself: a job that was handed back would repeat that for ever
            return self._executor.cancelled_itself(context)
        error = None if task.cancelled() else task.exception()
        if error is not None and self._failure is not None and not self._failure.done():
            self._failure.set_exception(error)  # raised in the task group of `run`
        outcome = None if task.cancelled() or error is not None else task.result()
        if cut == CANCELLED and error is None and not isinstance(outcome, Completed):
            return self._executor.cancelled(context)
        return outcome or hand_back_outcome(context.job, context._next_args)

    def _flushed(self) -> None:
        if self._suspect is not None or self._stopped_at is not None:
            self._woken.set()

    # ---- suspects ------------------------------------------------------------------------------

    def _should_claim_suspect(self) -> bool:
        now = self._clock.monotonic()
        self._suspects.observe(
            now, lambda: max((run.max_remaining_s() for run in self._running.values()), default=0.0)
        )
        return self._suspects.should_claim(now)

    def _current_filter(self) -> ClaimFilter | None:
        """Return what may start beside waiting suspects; None: nothing."""
        limit_s = self._suspects.max_run_s(self._clock.monotonic())
        if limit_s == math.inf:
            return self.claims
        kinds = self.claims.kinds
        short = tuple(
            kind for kind in kinds if longest_run_s(kind, self._executor.timeout_s(kind)) <= limit_s
        )
        return replace(self.claims, kinds=short) if short else None

    def _is_idle(self) -> bool:
        return not self._running and self._suspects.worker_idle(self._clock.monotonic())

    async def _reserve_suspect(self, session_id: UUID) -> None:
        """Claim one suspect. It does not start yet, and nothing else starts before it."""
        asked_at = self._clock.monotonic()
        self._suspects.claim_sent(asked_at)
        job = await self._jobs.claim_suspect(self.claims, session_id)
        if job is None:
            self._suspects.none_claimed(asked_at)
            return
        self._suspect = job, session_id
        if not self._suspects.suspect_claimed(asked_at):
            self._return_suspect()

    def _release_late_suspect(self) -> None:
        now = self._clock.monotonic()
        if self._suspect is not None and self._suspects.is_late(now):
            self._suspects.timed_out(now, self._draw())
            self._return_suspect()

    async def _serve_suspect(self) -> None:
        """Start the suspect once no other run and no unwritten result can be lost with it."""
        assert self._suspect is not None
        job, session_id = self._suspect
        if self._running or self._acks.pending:
            return
        self._suspects.suspect_started(self._clock.monotonic())  # counts although the response may be lost
        started = await self._jobs.start_suspect(job.job_id, job.lease_id)
        if self._suspect is None:  # the lease was lost meanwhile, and the job handed back
            return
        if started:
            self._start(job, session_id)
        if job.lease_id not in self._running:
            self._end_suspect()

    def _end_suspect(self) -> None:
        self._suspect = None
        self._suspects.suspect_ended(self._clock.monotonic())
        self.wake()

    def _return_suspect(self) -> None:
        """Hand back a suspect that was claimed and not started, to its place."""
        if self._suspect is not None and self._suspect[0].lease_id not in self._running:
            job, self._suspect = self._suspect[0], None
            self._suspects.suspect_released()
            self._acks.put(job, replace(hand_back_outcome(job), delay_s=None))

    # ---- losing and leaving --------------------------------------------------------------------

    def _end_by(self) -> float | None:
        """Return when running jobs are cancelled; None before a stop."""
        if self._stopped_at is None:
            return None
        return self._stopped_at + self._settings.grace_s * RUN_SHARE

    def _lease_lost(self, session_id: UUID, reason: str) -> None:
        """Cancel the runs of *session_id*, because another process may already run their jobs."""
        lost = [run for run in self._running.values() if run.session_id == session_id]
        self._return_suspect()
        self._cancel(lost, "lease_lost")

    def _end_cancelled(self, lease_ids: frozenset[int]) -> None:
        """Cancel runs of jobs that an operator cancelled; they count as running until they end. Spec: R55."""
        runs = [self._running[lease_id] for lease_id in lease_ids & self._running.keys()]
        self._cancel([run for run in runs if run.job.lease_id not in self._cancelled_by_us], CANCELLED)

    def _cancel(self, runs: list[RunningJob], reason: str) -> None:
        for run in runs:
            self._cancelled_by_us.setdefault(run.job.lease_id, reason)
            run.cancel()
        if runs and reason != CANCELLED:
            self._emit(JobsHandedBack(len(runs), reason))

    async def _drain(self) -> None:
        self._emit(WorkerDraining(len(self._running), self._settings.grace_s))
        self._return_suspect()
        await self._wait_while(lambda: bool(self._running), RUN_SHARE, forced_s=0.0)
        self._cancel(list(self._running.values()), "drain")
        await self._wait_while(lambda: bool(self._running), CANCEL_SHARE, forced_s=CANCEL_FORCED_S)
        self._give_up_on_stuck()
        await self._wait_while(
            lambda: self._acks.pending > 0, 1.0, forced_s=WRITE_FORCED_S, at_least_s=LAST_WRITE_S
        )
        if self._acks.pending:
            message = (
                f"{self._acks.pending} results could not be written before the stop; their jobs run again"
            )
            self._emit(ServiceFailed("worker", message))

    async def _wait_while(
        self, busy: Callable[[], bool], share: float, *, forced_s: float, at_least_s: float = 0.0
    ) -> None:
        """Wait while *busy*, until *share* of the grace is over, or *forced_s* after a second stop."""
        started = self._clock.monotonic()
        while busy():
            assert self._stopped_at is not None
            end = self._stopped_at + self._settings.grace_s * share
            if self._forced_at is not None:
                end = min(end, self._forced_at + forced_s)
            left_s = max(end, started + at_least_s) - self._clock.monotonic()
            if left_s <= 0:
                return
            self._woken.clear()
            await wait_event(self._woken, self._clock, left_s)

    def _give_up_on_stuck(self) -> None:
        """Hand back the jobs of handlers that ignore their cancellation."""
        for run in self._running.values():
            self._handed_back.add(run.job.lease_id)
            self._acks.put(run.job, hand_back_outcome(run.job, run.context._next_args))
        if self._running:
            self._emit(HandlersStuck(tuple(sorted({run.job.kind for run in self._running.values()}))))
