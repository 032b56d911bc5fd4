"""The event that reports the end of one run of a job."""

from __future__ import annotations

from fairlead.engine.ports import Cancelled, Completed, Discarded, Job, Outcome, Rescheduled
from fairlead.events import JobFinished


def job_finished(job: Job, outcome: Outcome, ran_s: float) -> JobFinished:
    """Return the event for a run of *job* that took *ran_s* seconds and ended with *outcome*."""
    failure = outcome.failure if isinstance(outcome, Rescheduled | Discarded) else None
    delay_s, why = (outcome.delay_s, outcome.why) if isinstance(outcome, Rescheduled) else (None, "")
    return JobFinished(
        job_id=job.job_id,
        kind=job.kind,
        tenant=job.tenant_id,
        provider=job.provider,
        outcome=_outcome_label(outcome),
        attempt=job.attempt,
        ran_s=ran_s,
        category=failure.category if failure else None,
        code=failure.code if failure else None,
        reason=failure.reason if failure else why or None,
        next_retry_s=delay_s,
        traceback=failure.details.get("traceback") if failure else None,
    )


def _outcome_label(outcome: Outcome) -> str:
    match outcome:
        case Completed():
            return "completed"
        case Rescheduled(failure=None):
            return "snoozed"
        case Rescheduled():
            return "retried"
        case Cancelled():
            return "cancelled"
        case Discarded():
            return "discarded"
