"""The result of a job, by polling.

There is no signal for the end of a job, so that jobs without a waiting caller cost nothing. A caller polls,
soon at first and then each second.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from uuid import UUID

from fairlead._core.clock import Clock
from fairlead.engine.ports import JobStore, JobView
from fairlead.errors import InvalidInputError, JobFailedError, JobNotFinishedError, NotFoundError
from fairlead.policy.failures.category import Category
from fairlead.policy.jobs.job import check_delay
from fairlead.policy.jobs.states import JobState
from fairlead.policy.text.names import shown

FIRST_POLL_S, LAST_POLL_S = 0.02, 1.0
"""The first and the longest poll interval; it doubles."""


def checked_id(job_id: object) -> UUID:
    """Return *job_id* as a UUID; raise InvalidInputError if it is not one."""
    if isinstance(job_id, UUID):
        return job_id
    with suppress(ValueError, TypeError, AttributeError):
        if isinstance(job_id, str):
            return UUID(job_id)
    raise InvalidInputError(f"{shown(job_id)} is no job id", hint="pass the id that enqueue returned")


async def result_of(jobs: JobStore, clock: Clock, job_id: UUID, timeout_s: float) -> Any:
    """Return the result of a job: see `Fairlead.result`."""
    job_id = checked_id(job_id)
    deadline_mono = clock.monotonic() + check_delay("the end of a job", timeout_s)
    wait_s = FIRST_POLL_S
    while True:
        job = await jobs.get(job_id)
        if job is None:
            hint = "see `fairlead jobs list`; completed jobs are kept for 24 h, or as retention is set"
            raise NotFoundError(f"there is no job {job_id}", hint=hint)
        if job.finished_at is not None:
            return _ended(job)
        left_s = deadline_mono - clock.monotonic()
        if left_s <= 0:
            message = f"job {job.job_id} ({job.kind}) is {job.label}"
            raise JobNotFinishedError(
                message, tenant=job.tenant_id, provider=job.provider, retry_after_s=LAST_POLL_S
            )
        await clock.sleep(min(wait_s, left_s))
        wait_s = min(2 * wait_s, LAST_POLL_S)


def _ended(job: JobView) -> Any:
    if job.state == JobState.COMPLETED:
        return job.result
    last = job.failures[-1] if job.failures else {}
    text = last.get("reason") if job.state == JobState.DISCARDED else (job.result or {}).get("cancelled")
    reason, hint = str(text), ""
    if last.get("category") != Category.HANDLER_ERROR:  # an exception of a handler has no hint
        reason, _, hint = reason.partition(" hint: ")  # the hint of the failure, which is part of its text
    message = f"job {job.job_id} ({job.kind}) was {job.state}: {reason}"
    code = last.get("code")
    raise JobFailedError(message, tenant=job.tenant_id, provider=job.provider, reason=code, hint=hint or None)
