"""Claims jobs as capacity allows, and starts them.

While there is work and capacity, the next claim is under way before the jobs of the last one start, so that
the store finds jobs while this process runs some. There is never more than one claim at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from fairlead._core.clock import Clock, Draw
from fairlead._core.faultpoint import faultpoint
from fairlead.engine.base.service import FailureReporter
from fairlead.engine.base.timing import LEAVE_S, TimeLimit, wait_event
from fairlead.engine.jobs.drain import Drain
from fairlead.engine.jobs.heartbeat import Heartbeat
from fairlead.engine.jobs.job_runs import JobRuns
from fairlead.engine.jobs.suspect_runner import SuspectRunner
from fairlead.engine.jobs.worker_settings import WorkerSettings
from fairlead.engine.ports import Job, JobStore
from fairlead.events import Emit

MIN_WAIT_SHARE = 0.02
"""The shortest wait for due jobs that could not be claimed, as a share of the poll interval."""
MAX_BACKOFF_STEPS = 3
"""How often that wait is multiplied by four while claims find due jobs and return none."""


@dataclass(slots=True)
class PendingClaim:
    """A claim that is under way, for *demand* jobs at most."""

    jobs: asyncio.Task[list[Job]]
    demand: int
    session_id: UUID


class ClaimLoop:
    """The loop of one worker that claims jobs until the worker is stopped.

    Args:
        may_claim: Returns whether the process can take more jobs now.
    """

    def __init__(
        self,
        jobs: JobStore,
        runs: JobRuns,
        suspects: SuspectRunner,
        drain: Drain,
        *,
        heartbeat: Heartbeat,
        settings: WorkerSettings,
        may_claim: Callable[[], bool],
        clock: Clock,
        draw: Draw,
        emit: Emit,
    ) -> None:
        self._jobs = jobs
        self._runs = runs
        self._suspects = suspects
        self._drain = drain
        self._heartbeat = heartbeat
        self._settings = settings
        self._may_claim = may_claim
        self._clock = clock
        self._draw = draw
        self._reporter = FailureReporter("worker", clock=clock, draw=draw, emit=emit)
        self._half_capacity = settings.concurrency // 2
        self._claiming: PendingClaim | None = None
        self._step_limit: TimeLimit | None = None
        self._empty_claims = 0  # claims in a row that returned no job although some were due
        self._next_claim_mono = clock.monotonic()
        self.woken = asyncio.Event()
        """Set when there may be something to do."""
        self.more_work_hinted = True
        """False after a claim without jobs, until the next `wake`."""

    def wake(self) -> None:
        """Claim now, because there may be new jobs."""
        self.more_work_hinted = True
        self.woken.set()

    def stop(self) -> None:
        """Limit the current step to 2 s after the worker was stopped, because the store may not respond."""
        if self._step_limit is not None:
            self._clock.call_later(LEAVE_S, self._step_limit.expire)

    async def run(self) -> None:
        """Claim and start jobs until the worker is stopped, then start those of the last claim."""
        while not self._drain.is_requested:
            self.woken.clear()
            wait_s = await self._guarded_step()
            if self._claiming is None and not self._drain.is_requested:
                await wait_event(self.woken, self._clock, wait_s)
        if self._claiming is not None:
            await self._guarded_step()

    def abandon(self) -> None:
        """Cancel a claim that is under way; its jobs are released with the session."""
        if self._claiming is not None:
            self._claiming.jobs.cancel()

    async def _guarded_step(self) -> float:
        """Run one step, and return the seconds until the next, unless the worker is woken.

        After a stop the step has 2 s left: jobs of an unfinished claim are released with the session.
        """
        self._step_limit = limit = TimeLimit(self._clock, LEAVE_S if self._drain.is_requested else None)
        try:
            async with limit:
                return await self._step()
        except Exception as error:  # noqa: BLE001 (the store may be unavailable; running jobs continue)
            return 0.0 if limit.expired else self._reporter.failure(error)

    async def _step(self) -> float:
        """Serve a suspect if one is due, else claim and start jobs; return the seconds to the next step."""
        if self._claiming is None:
            self._suspects.release_if_late()
            session_id = self._heartbeat.session_id
            if session_id is None or not self._may_claim():
                return self._next_poll_s()
            if self._suspects.is_due() and await self._suspects.claim_and_start(session_id):
                return self._next_poll_s()
            gap_s = self._next_claim_mono - self._clock.monotonic()
            if gap_s > 0:
                await self._clock.sleep(gap_s)
            self._begin_claim()
            if self._claiming is None:  # the worker is woken when anything of this changes
                return 0.0 if self._suspects.skip_rest_if_idle() else self._next_poll_s()
        return await self._start_claimed(self._claiming)

    def _begin_claim(self, arriving: int = 0) -> None:
        """Start a claim for the free capacity, at most half of the worker's.

        Args:
            arriving: Jobs that were claimed and are about to start.
        """
        free = self._settings.concurrency - len(self._runs) - arriving
        session_id = self._heartbeat.session_id
        claims = self._suspects.current_filter()
        if free <= 0 or claims is None or session_id is None or self._drain.is_requested:
            return
        self._next_claim_mono = self._clock.monotonic() + self._settings.claim_gap_s
        demand = min(free, self._settings.concurrency - self._half_capacity)
        jobs = asyncio.create_task(self._jobs.claim(claims, demand, session_id))
        self._claiming = PendingClaim(jobs, demand, session_id)

    async def _start_claimed(self, claim: PendingClaim) -> float:
        """Start the jobs of *claim*, and return the seconds until the next step."""
        try:
            jobs = await claim.jobs
        finally:
            self._claiming = None
        self._reporter.success()
        if not jobs:
            self.more_work_hinted = False
            return 0.0 if self._suspects.skip_rest_if_idle() else await self._idle_wait_s()
        faultpoint("job.after_claim")
        self._suspects.schedule.record_other_work()
        self.more_work_hinted = True
        self._empty_claims = 0
        free = self._settings.concurrency - len(self._runs) - len(jobs)
        is_suspects_turn = self._suspects.schedule.should_claim(self._clock.monotonic())
        if (
            len(jobs) >= claim.demand
            and free >= self._half_capacity
            and not is_suspects_turn
            and self._may_claim()
        ):
            self._begin_claim(arriving=len(jobs))
        for job in jobs:
            self._runs.start(job, claim.session_id)
        return self._next_poll_s() if len(self._runs) >= self._settings.concurrency else 0.0

    async def _idle_wait_s(self) -> float:
        """Return how long to wait after an empty claim, until a job is due: at most a poll interval."""
        claims = self._suspects.current_filter()
        wait_s = None if claims is None else await self._jobs.next_due_in_s(claims)
        poll_s = self._next_poll_s()
        if wait_s is None:
            return poll_s
        if wait_s <= 0:  # due but not claimed: other workers serve these lanes, or it is a suspect
            wait_s = self._settings.poll_s * MIN_WAIT_SHARE * 4**self._empty_claims * (0.5 + self._draw())
            self._empty_claims = min(self._empty_claims + 1, MAX_BACKOFF_STEPS)
        return min(poll_s, max(wait_s, self._settings.poll_s * MIN_WAIT_SHARE))

    def _next_poll_s(self) -> float:
        """Return the seconds until the next step of a worker that is not woken."""
        poll_s = self._settings.poll_s * (0.5 + self._draw())
        return min(poll_s, self._suspects.schedule.seconds_to_next_check(self._clock.monotonic()))
