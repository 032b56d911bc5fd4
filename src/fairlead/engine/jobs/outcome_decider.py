"""Decides the outcome to store for a run that has ended. Retries and dead letters are decided by policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from fairlead._core.clock import Draw
from fairlead._core.ids import Ids
from fairlead.engine.jobs.grant_waits import RunEnd
from fairlead.engine.jobs.handler import Handler
from fairlead.engine.jobs.stored_results import (
    connection_id_in_args,
    failure_record,
    to_storable,
    unclassified_failure,
)
from fairlead.engine.ports import Cancelled, Completed, Discarded, Job, Outcome, Rescheduled
from fairlead.policy.failures.category import Category, Failure
from fairlead.policy.failures.retry import DEFAULT_POLICY, DiscardJob, decide
from fairlead.policy.jobs import job as outcomes
from fairlead.policy.jobs.dead_letter import DeadLetterRules, action_in_s, first_action
from fairlead.policy.reasons import job_reasons, token_reasons
from fairlead.policy.text.safe import safe_text

_ANY_MOMENT = datetime(2000, 1, 1, tzinfo=UTC)  # first_action counts from it; only the distance is used


class OutcomeDecider:
    """The decision between completed, rescheduled, cancelled and discarded, for jobs of all kinds.

    Args:
        delay_factor: Returns by how much a provider's retry delays are multiplied.
        dead_letters: Decides when a discarded job is first replayed or given up.
    """

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        *,
        draw: Draw,
        ids: Ids,
        delay_factor: Callable[[str | None], float],
        dead_letters: DeadLetterRules,
    ) -> None:
        self._handlers = handlers
        self._draw = draw
        self._ids = ids
        self._delay_factor = delay_factor
        self._dead_letters = dead_letters

    def decide(self, job: Job, run_end: RunEnd, ran_s: float) -> Outcome:
        """Return the outcome to store for a run of *job* that took *ran_s* seconds."""
        try:
            return self._to_stored_outcome(job, run_end, ran_s)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 (an outcome built by a handler may hold anything)
            return self._to_stored_outcome(job, outcomes.Retry(unclassified_failure(error)), ran_s)

    def _to_stored_outcome(self, job: Job, run_end: RunEnd, ran_s: float) -> Outcome:
        """Return the outcome to store. Raise what an outcome with impossible values raises."""
        match run_end:
            case outcomes.Complete(result):
                return Completed(job.job_id, job.lease_id, to_storable(result))
            case outcomes.Snooze(delay_s, reason, in_place, counted):
                after_s = float(outcomes.check_delay("snooze", delay_s))
                wait_s = None if in_place else after_s
                streaks, why = _updated_waits(job, counted), safe_text(reason)
                return Rescheduled(job.job_id, job.lease_id, wait_s, streaks=streaks, why=why)
            case outcomes.Cancel(reason):
                return Cancelled(job.job_id, job.lease_id, safe_text(reason))
            case outcomes.Discard(reason, category):
                failure = Failure(Category(category), job_reasons.DISCARDED.code, safe_text(reason))
                return self._discarded(job, failure, ran_s, why="its handler discarded it")
            case outcomes.RequireReauth(reason):
                failure = Failure(Category.PERMANENT_AUTH, token_reasons.NEEDS_REAUTH.code, safe_text(reason))
                return self._discarded(job, failure, ran_s, why="only the customer can help")
            case outcomes.Retry(failure):
                return self._retried(job, failure, ran_s)
            case _:  # an object of a handler that poses as an outcome
                raise TypeError(f"{type(run_end).__name__} is no outcome")

    def _retried(self, job: Job, failure: Failure, ran_s: float) -> Outcome:
        """Return the outcome of a failed attempt: another one after a delay, or a dead letter."""
        handler = self._handlers.get(job.kind)
        policy = handler.retry if handler else DEFAULT_POLICY
        factor = self._delay_factor(job.provider) if handler else 1.0
        decision = decide(failure, job.streaks, job.attempt, draw=self._draw(), factor=factor, policy=policy)
        if isinstance(decision, DiscardJob):
            return self._discarded(job, failure, ran_s, why=decision.why)
        record = failure_record(job, failure, ran_s, next_retry_s=decision.delay_s)
        return Rescheduled(job.job_id, job.lease_id, decision.delay_s, record, decision.streaks)

    def _discarded(self, job: Job, failure: Failure, ran_s: float, *, why: str) -> Discarded:
        """Return the outcome that ends a job with a dead letter. *why*: what decided that."""
        first = first_action(failure.category, failure.code, _ANY_MOMENT, self._dead_letters)
        return Discarded(
            job.job_id,
            job.lease_id,
            dead_letter_id=self._ids.uuid7(),
            failure=failure_record(job, failure, ran_s, details={"why": why}),
            connection_id=connection_id_in_args(job),
            action_in_s=action_in_s(first, _ANY_MOMENT),
        )


def _updated_waits(job: Job, counted: bool) -> Mapping[str, int]:
    """Return the counts of failures and waits after a wait; empty if they did not change.

    Args:
        job: The job that waits.
        counted: Whether this wait counts; otherwise a count of 0, set after progress, is stored.
    """
    waits = job.streaks.get(outcomes.WAITS)
    if counted:
        return {**job.streaks, outcomes.WAITS: (waits or 0) + 1}
    return job.streaks if waits == 0 else {}
