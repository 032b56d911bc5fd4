"""The jobs that run in this process, and the outcome of each run.

A run is cancelled from outside for three reasons only. After a lost lease or a drain its job goes back with
its attempt restored, and a job that an operator cancelled ends. Everything else that ends a run is an outcome
under the lease id of its claim. Spec: R3, R55.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from uuid import UUID

from fairlead.engine.jobs.acknowledger import Acknowledger
from fairlead.engine.jobs.executor import CancelTime, Executor
from fairlead.engine.jobs.handler import JobContext
from fairlead.engine.jobs.heartbeat import Heartbeat
from fairlead.engine.jobs.running_job import RunningJob, hand_back_outcome
from fairlead.engine.ports import Completed, Job, Outcome
from fairlead.events import Emit, HandlersStuck, JobsHandedBack
from fairlead.policy.reasons.job_reasons import LEASE_LOST

CANCELLED = "cancelled"
"""The reason of a run that was cancelled because its job was."""


class JobRuns:
    """The jobs that a worker runs now, each in its own task.

    Args:
        cancel_at_mono: Returns when a drain will cancel running jobs, on the monotonic clock. None: there
            is no drain.
        on_ended: Called with each job whose run has ended, after its outcome was handed to *acks*.
    """

    def __init__(
        self,
        executor: Executor,
        heartbeat: Heartbeat,
        acks: Acknowledger,
        *,
        emit: Emit,
        cancel_at_mono: CancelTime,
        on_ended: Callable[[Job], None],
    ) -> None:
        self._executor = executor
        self._heartbeat = heartbeat
        self._acks = acks
        self._emit = emit
        self._cancel_at_mono = cancel_at_mono
        self._on_ended = on_ended
        self._runs: dict[int, RunningJob] = {}  # by lease id: after a lost lease a job may be here twice
        self._handed_back: set[int] = set()
        self._cancel_reasons: dict[int, str] = {}
        self._failure: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._runs)

    def __contains__(self, lease_id: int) -> bool:
        return lease_id in self._runs

    def job_ids(self) -> list[UUID]:
        """Return the ids of the jobs that run."""
        return [run.job.job_id for run in self._runs.values()]

    def max_remaining_s(self) -> float:
        """Return within how many seconds all runs end, if their handlers respect their timeouts."""
        return max((run.max_remaining_s() for run in self._runs.values()), default=0.0)

    def open_failure(self) -> asyncio.Future[None]:
        """Return a future that gets the first error of a run that is a bug of fairlead, not of a handler."""
        self._failure = asyncio.get_running_loop().create_future()
        return self._failure

    def start(self, job: Job, session_id: UUID) -> None:
        """Run *job*, claimed under *session_id*, or hand it back if that session was lost meanwhile."""
        if session_id != self._heartbeat.session_id:
            self._acks.put(job, hand_back_outcome(job))
            return
        context = self._executor.begin(job, self._cancel_at_mono)
        task = asyncio.create_task(self._executor.run_with_context(context, self._cancel_at_mono))
        self._runs[job.lease_id] = RunningJob(context, session_id, task)
        task.add_done_callback(
            partial(self._ended, context)
        )  # not in the task: it may be cancelled unstarted

    def lose_session(self, session_id: UUID) -> None:
        """Cancel the runs of *session_id*, because another process may already run their jobs."""
        self._cancel([run for run in self._runs.values() if run.session_id == session_id], LEASE_LOST.code)

    def end_cancelled(self, lease_ids: frozenset[int]) -> None:
        """Cancel the runs with these lease ids, because an operator cancelled their jobs.

        They count as running until they end.
        """
        runs = [self._runs[lease_id] for lease_id in lease_ids & self._runs.keys()]
        self._cancel([run for run in runs if run.job.lease_id not in self._cancel_reasons], CANCELLED)

    def cancel_all(self, reason: str) -> None:
        """Cancel all runs, and hand back their jobs."""
        self._cancel(list(self._runs.values()), reason)

    def hand_back_stuck(self) -> None:
        """Hand back the jobs of handlers that ignore their cancellation."""
        for run in self._runs.values():
            self._handed_back.add(run.job.lease_id)
            self._acks.put(run.job, hand_back_outcome(run.job, run.context._next_args))
        if self._runs:
            self._emit(HandlersStuck(tuple(sorted({run.job.kind for run in self._runs.values()}))))

    def abandon(self) -> None:
        """Cancel all runs because the worker has ended; their outcomes are not written any more."""
        for run in self._runs.values():
            run.cancel()

    def _cancel(self, runs: list[RunningJob], reason: str) -> None:
        """Cancel *runs*, and remember the first reason of each for its outcome."""
        for run in runs:
            self._cancel_reasons.setdefault(run.job.lease_id, reason)
            run.cancel()
        if runs and reason != CANCELLED:
            self._emit(JobsHandedBack(len(runs), reason))

    def _ended(self, context: JobContext, task: asyncio.Task[Outcome]) -> None:
        """Pass the outcome of a run to the acknowledger, unless its job was handed back already."""
        job = context.job
        del self._runs[job.lease_id]
        outcome = self._outcome(context, task)
        if job.lease_id in self._handed_back:
            self._handed_back.discard(job.lease_id)
        else:
            self._acks.put(job, outcome)
        self._on_ended(job)

    def _outcome(self, context: JobContext, task: asyncio.Task[Outcome]) -> Outcome:
        """Return the outcome of a run that has ended in any way."""
        reason = self._cancel_reasons.pop(context.job.lease_id, None)
        if (
            task.cancelled() and reason is None
        ):  # it cancelled itself; handed back, it would do so again without end
            return self._executor.self_cancelled_outcome(context)
        error = None if task.cancelled() else task.exception()
        if error is not None and self._failure is not None and not self._failure.done():
            self._failure.set_exception(error)
        outcome = None if task.cancelled() or error is not None else task.result()
        if reason == CANCELLED and error is None and not isinstance(outcome, Completed):
            return self._executor.cancelled_outcome(context)
        return outcome or hand_back_outcome(context.job, context._next_args)
