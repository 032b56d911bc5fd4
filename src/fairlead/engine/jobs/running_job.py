"""A job that runs, and the outcome that hands a job back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from fairlead.engine.jobs.handler import JobContext
from fairlead.engine.jobs.suspects import longest_run_s
from fairlead.engine.ports import Job, Json, Outcome, Rescheduled


@dataclass(slots=True)
class RunningJob:
    """A job that runs, under the session of its claim."""

    context: JobContext
    session_id: UUID
    task: asyncio.Task[Outcome]

    @property
    def job(self) -> Job:
        return self.context.job

    def cancel(self) -> None:
        """Cancel the run from outside."""
        self.context._stopped_by_worker = True
        self.task.cancel()

    def max_remaining_s(self) -> float:
        """Return the most seconds that it may still run; an internal kind is assumed to end sooner."""
        timeout_s = self.context.timeout_s
        return max(0.0, self.context.remaining_s - timeout_s + longest_run_s(self.job.kind, timeout_s))


def hand_back_outcome(job: Job, args: Mapping[str, Json] | None = None) -> Rescheduled:
    """Return the outcome that makes a job available again at once, with what its run saved (*args*)."""
    return Rescheduled(job.job_id, job.lease_id, 0.0, call_waited_s=job.call_waited_s, args=args)
