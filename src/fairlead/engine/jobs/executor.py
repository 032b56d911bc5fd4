"""Run one job and decide its outcome: the handler under its timeout, then one decision by policy.

    the handler's result or exception > outcome (jobs/job.py) > decision (failures/retry.py) > write (ports)

Whatever a handler returns or raises becomes an outcome to write, so no job can end its worker. Only a
cancellation from outside (a lost lease, a drain) passes through. It is no failure, and the canceller hands the
job back.

Over 400 lines because one run of a job is read in one place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from fairlead._core.clock import Clock, Draw
from fairlead._core.faultpoint import faultpoint
from fairlead._core.ids import Ids
from fairlead.engine.base.timing import TimeLimit
from fairlead.engine.base.traces import place_of, traceback_text
from fairlead.engine.jobs.grant_waits import Grants, GrantWaits, RefusedRun, credential_of, with_connection
from fairlead.engine.jobs.group_holds import GroupHolds, Pauses
from fairlead.engine.jobs.handler import Handler, JobContext, RequestedPause, by_kind, current_job
from fairlead.engine.jobs.job_events import job_finished
from fairlead.engine.jobs.stored_results import connection_of, failure_record, storable, unclassified
from fairlead.engine.ports import (
    Cancelled,
    Completed,
    Discarded,
    Job,
    Outcome,
    Rescheduled,
)
from fairlead.events import Emit, GroupPaused, GroupPauseFailed, ServiceFailed, TimeoutIgnored
from fairlead.policy.failures.category import Category, Failure, job_timeout
from fairlead.policy.failures.retry import DEFAULT_POLICY, DeadLetter, decide
from fairlead.policy.jobs import job as outcomes
from fairlead.policy.jobs.dead_letter import (
    DEFAULT_DEAD_LETTER_RULES,
    DeadLetterRules,
    action_in_s,
    first_action,
)
from fairlead.policy.jobs.job import budget_snooze, check_delay, outcome_of_exception
from fairlead.policy.text.safe import safe_text

UNKNOWN_KIND_SNOOZE_S = 60.0

_ANY_MOMENT = datetime(2000, 1, 1, tzinfo=UTC)  # first_action counts from it; only the distance is kept

EndBy = Callable[[], float | None]
"""When the run is ended from outside, on the monotonic clock; None: nobody means to. Asked anew each time."""


def _never() -> None:
    return None


class Executor:
    """The runner of jobs, by their kind. One serves all workers of a process and keeps no state between jobs.

    Args:
        factor_of: Returns the provider's factor for retry delays. Default 1.0 for all.
        pauses: Stores what ``ctx.pause`` requests. Default None: only the job itself waits.
        grants: Knows which connections need a new grant. Default None: errors are believed.
    """

    def __init__(
        self,
        handlers: Iterable[Handler],
        *,
        clock: Clock,
        draw: Draw,
        ids: Ids,
        emit: Emit,
        factor_of: Callable[[str | None], float] = lambda provider: 1.0,
        dead_letters: DeadLetterRules = DEFAULT_DEAD_LETTER_RULES,
        pauses: Pauses | None = None,
        grants: Grants | None = None,
    ) -> None:
        self._handlers = by_kind(handlers)
        self._clock = clock
        self._draw = draw
        self._ids = ids
        self._emit = emit
        self._factor_of = factor_of
        self._dead_letters = dead_letters
        self._pauses = pauses
        self._holds = GroupHolds(pauses, clock)
        self._grant_waits = GrantWaits(grants, self._holds)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds that can be run here."""
        return tuple(self._handlers)

    def timeout_s(self, kind: str) -> float:
        """Return the timeout of *kind* in seconds."""
        return self._handlers[kind].timeout_s

    def begin(self, job: Job, end_by: EndBy = _never) -> JobContext:
        """Return the context of one run of *job*. Its time starts now."""
        started = self._clock.monotonic()
        handler = self._handlers.get(job.kind)
        waiting_s = None if job.call_waited_s is None else started - job.call_waited_s
        timeout_s = handler.timeout_s if handler else 0.0
        return JobContext(job, _remaining(self._clock, handler, end_by), waiting_s, timeout_s=timeout_s)

    async def run(self, job: Job, end_by: EndBy = _never) -> Outcome:
        """Run *job* once and return the outcome to write. Only a cancellation from outside is raised."""
        return await self.run_claimed(self.begin(job, end_by), end_by)

    async def run_claimed(self, context: JobContext, end_by: EndBy) -> Outcome:
        """Run the job of a context from `begin`, and return the outcome to write."""
        job, started = context.job, self._clock.monotonic()
        handler = self._handlers.get(job.kind)
        if handler is None:  # another version of the program knows it: give it back, and burn nothing
            answer: outcomes.Outcome | RefusedRun = outcomes.Snooze(
                UNKNOWN_KIND_SNOOZE_S, f"no handler for kind {job.kind!r}"
            )
        else:
            end = end_by()
            left_s = None if end is None else end - started
            answer = budget_snooze(left_s, handler.timeout_s) or await self._attempt(handler, context)
        if type(answer) is outcomes.Snooze and answer.in_place:  # type: what a handler gave may lie
            answer = await self._holds.hold_group(job, answer)
        ran_s = self._clock.monotonic() - started
        if handler is not None and (type(answer) is RefusedRun or type(answer) is outcomes.RequireReauth):
            outcome = await self._without_credential(context, handler, answer, ran_s)
        else:
            outcome = self._decide(_with_effective_waits(context), handler, answer, ran_s)
        outcome = _with_saved(outcome, context)
        if isinstance(outcome, Rescheduled) and context._call_waiting_since is not None:
            outcome = replace(outcome, call_waited_s=started + ran_s - context._call_waiting_since)
        self._emit(job_finished(job, outcome, ran_s))
        return outcome

    async def _without_credential(
        self,
        context: JobContext,
        handler: Handler,
        answer: RefusedRun | outcomes.RequireReauth,
        ran_s: float,
    ) -> Outcome:
        """Return the outcome of a run with a refused credential, after reading the state of its grant."""
        job = _with_effective_waits(context)
        ended, connection_id = await self._grant_waits.resolve(job, answer, ran_s)
        if type(ended) is RefusedRun:
            ended = self._traced(context, handler, ended.error, ended.outcome)
        outcome = self._decide(job, handler, ended, ran_s)
        return with_connection(outcome, connection_id)

    def cancelled_itself(self, context: JobContext) -> Outcome:
        """Return the outcome of a run that was cancelled, but not by this process."""
        job = context.job
        reason = "its handler cancelled its own task"
        failure = Failure(Category.TRANSIENT_NETWORK, "unclassified", reason, unclassified=True)
        answer = outcomes.Retry(failure)
        outcome = _with_saved(
            self._decide(_with_effective_waits(context), self._handlers.get(job.kind), answer, 0.0), context
        )
        self._emit(job_finished(job, outcome, 0.0))
        return outcome

    def refused(self, job: Job, error: Exception) -> Outcome:
        """Return a failed attempt in place of an outcome that the store refused with *error*.

        The text is plain ASCII, so that no database refuses it as well.
        """
        text = safe_text(error).encode("ascii", "backslashreplace").decode()
        reason = f"the result or error of its run cannot be stored: {text}"
        failure = Failure(Category.TRANSIENT_SERVER, "outcome_refused", reason)
        outcome = self._decide(job, self._handlers.get(job.kind), outcomes.Retry(failure), 0.0)
        self._emit(job_finished(job, outcome, 0.0))
        return outcome

    def cancelled(self, context: JobContext) -> Outcome:
        """Return the outcome to write for a run that was stopped because its job was cancelled."""
        outcome = Cancelled(context.job.job_id, context.job.lease_id, "cancelled while it ran")
        self._emit(job_finished(context.job, outcome, 0.0))
        return outcome

    # ---- one attempt ---------------------------------------------------------------------------

    async def _attempt(self, handler: Handler, context: JobContext) -> outcomes.Outcome | RefusedRun:
        started = self._clock.monotonic()

        def ignored(over_s: float) -> None:
            job = context.job
            about = (job.job_id, job.tenant_id, job.provider, job.kind)
            self._emit(TimeoutIgnored(*about, timeout_s=handler.timeout_s, over_s=over_s))

        limit = TimeLimit(self._clock, handler.timeout_s, ignored=ignored)
        faultpoint("job.before_run")
        answer = await self._invoke(handler, context, limit, started)
        faultpoint("job.after_run")
        try:  # before the outcome, so that the group's next job meets the pause
            for asked_pause in context._requested_pauses:
                await self._pause_scope(context.job, asked_pause)
        except asyncio.CancelledError:  # the work is done, and must not run again because of a pause
            job = context.job
            self._emit(
                GroupPauseFailed(job.tenant_id, job.provider, job.kind, "its run was stopped meanwhile")
            )
        return answer

    async def _invoke(
        self, handler: Handler, context: JobContext, limit: TimeLimit, started: float
    ) -> outcomes.Outcome | RefusedRun:
        running = current_job.set(context)
        try:
            async with limit:
                result = await handler.run(context)
            return _answer(result, context)
        except asyncio.CancelledError as error:
            if context._stopped_by_worker or (_is_cancelled() and not limit.expired):
                raise
            if limit.expired:
                return outcomes.Retry(job_timeout(self._now() - started, handler.timeout_s))
            return outcomes.Retry(unclassified(error))  # it awaited something that was cancelled
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if context._stopped_by_worker:  # an error of its clean-up is not a failure of the job
                raise asyncio.CancelledError from error
            if limit.expired:  # whatever the cut-off handler made of it
                return outcomes.Retry(job_timeout(self._now() - started, handler.timeout_s))
            return self._failed(context, handler, error)
        finally:
            current_job.reset(running)

    def _now(self) -> float:
        return self._clock.monotonic()

    async def _pause_scope(self, job: Job, pause: RequestedPause) -> None:
        """Store a pause. If it cannot be stored the run does not fail, because the job itself waits too."""
        why_not = await self._why_not_paused(job, pause)
        about = (job.tenant_id, job.provider, job.kind)
        if why_not is None:
            self._emit(GroupPaused(*about, str(pause.scope), pause.for_s, safe_text(pause.reason)))
        else:
            self._emit(GroupPauseFailed(*about, why_not))

    async def _why_not_paused(self, job: Job, pause: RequestedPause) -> str | None:
        if pause.scope is None:
            return "the job names nothing to pause: enqueue it with group= or provider="
        if self._pauses is None:
            return "no pauses are kept here"
        by = f"job {job.job_id} ({job.kind})"
        try:
            await self._pauses.pause(pause.scope, pause.for_s, reason=safe_text(pause.reason), by=by)
        except Exception as error:  # noqa: BLE001 (whatever the store says, the outcome is written)
            return safe_text(error)
        return None

    def _failed(
        self, context: JobContext, handler: Handler, error: BaseException
    ) -> outcomes.Outcome | RefusedRun:
        try:
            if isinstance(error, Exception):
                outcome = outcome_of_exception(
                    error,
                    draw=self._draw(),
                    waits=_with_effective_waits(context).streaks.get(outcomes.WAITS, 0),
                    transient=handler.transient,
                )
                if isinstance(outcome, outcomes.Retry) and (credential := credential_of(context.job, error)):
                    return RefusedRun(outcome, error, credential)
                return self._traced(context, handler, error, outcome)
            return outcomes.Retry(_placed(unclassified(error), error))  # it called sys.exit(), say
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001, S110 (an error may be hostile in any of its attributes, E08)
            pass
        return outcomes.Retry(unclassified(error))

    def _traced(
        self,
        context: JobContext,
        handler: Handler,
        error: Exception,
        outcome: outcomes.Retry | outcomes.Snooze,
    ) -> outcomes.Outcome:
        """Call the hook, and return *outcome* with the place where the handler raised its error."""
        if isinstance(outcome, outcomes.Snooze):
            return outcome
        if handler.on_error is not None:
            try:
                handler.on_error(error, context)
            except Exception as broken:  # noqa: BLE001 (an error of a hook fails no job)
                self._emit(ServiceFailed("on_error", safe_text(broken)))
        return outcomes.Retry(_placed(outcome.failure, error))

    # ---- what becomes of it --------------------------------------------------------------------

    def _decide(
        self, job: Job, handler: Handler | None, answer: outcomes.Outcome | RefusedRun, ran_s: float
    ) -> Outcome:
        try:
            return self._to_stored_outcome(job, handler, answer, ran_s)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 (an outcome built by a handler may hold anything)
            return self._to_stored_outcome(job, handler, outcomes.Retry(unclassified(error)), ran_s)

    def _to_stored_outcome(
        self, job: Job, handler: Handler | None, answer: outcomes.Outcome | RefusedRun, ran_s: float
    ) -> Outcome:
        match answer:
            case outcomes.Complete(result):
                return Completed(job.job_id, job.lease_id, storable(result))
            case outcomes.Snooze(delay_s, reason, in_place, counted):
                after_s = float(check_delay("snooze", delay_s))
                wait_s = None if in_place else after_s
                streaks, why = _updated_waits(job, counted), safe_text(reason)
                return Rescheduled(job.job_id, job.lease_id, wait_s, streaks=streaks, why=why)
            case outcomes.Cancel(reason):
                return Cancelled(job.job_id, job.lease_id, safe_text(reason))
            case outcomes.Discard(reason, category):
                failure = Failure(Category(category), "discarded", safe_text(reason))
                return self._discarded(job, failure, ran_s, why="its handler discarded it")
            case outcomes.RequireReauth(reason):
                failure = Failure(Category.PERMANENT_AUTH, "needs_reauth", safe_text(reason))
                return self._discarded(job, failure, ran_s, why="only the customer can help")
            case outcomes.Retry(failure):
                return self._retried(job, handler, failure, ran_s)
            case _:  # it said that it was one of these, and is none
                raise TypeError(f"{type(answer).__name__} is no outcome")

    def _retried(self, job: Job, handler: Handler | None, failure: Failure, ran_s: float) -> Outcome:
        policy = handler.retry if handler else DEFAULT_POLICY
        factor = self._factor_of(job.provider) if handler else 1.0
        decision = decide(failure, job.streaks, job.attempt, draw=self._draw(), factor=factor, policy=policy)
        if isinstance(decision, DeadLetter):
            return self._discarded(job, failure, ran_s, why=decision.why)
        record = failure_record(job, failure, ran_s, next_retry_s=decision.delay_s)
        return Rescheduled(job.job_id, job.lease_id, decision.delay_s, record, decision.streaks)

    def _discarded(self, job: Job, failure: Failure, ran_s: float, *, why: str) -> Discarded:
        first = first_action(failure.category, failure.code, _ANY_MOMENT, self._dead_letters)
        return Discarded(
            job.job_id,
            job.lease_id,
            dead_letter_id=self._ids.uuid7(),
            failure=failure_record(job, failure, ran_s, details={"why": why}),
            connection_id=connection_of(job),
            action_in_s=action_in_s(first, _ANY_MOMENT),
        )


def _remaining(clock: Clock, handler: Handler | None, end_by: EndBy) -> Callable[[], float]:
    """Return a function that returns how many seconds a run that starts now has left."""
    timed_out = clock.monotonic() + (handler.timeout_s if handler else 0.0)

    def remaining_s() -> float:
        ended = end_by()
        return (timed_out if ended is None else min(timed_out, ended)) - clock.monotonic()

    return remaining_s


def _with_saved(outcome: Outcome, context: JobContext) -> Outcome:
    """Return *outcome* with the args that the run saved for the next run."""
    if context._next_args is None or not isinstance(outcome, Rescheduled | Discarded):
        return outcome
    return replace(outcome, args=context._next_args)


def _with_effective_waits(context: JobContext) -> Job:
    """Return the job without counted waits if this run made progress."""
    job = context.job
    if not (context._progressed and job.streaks.get(outcomes.WAITS)):
        return job
    return replace(job, streaks={**job.streaks, outcomes.WAITS: 0})


def _updated_waits(job: Job, counted: bool) -> Mapping[str, int]:
    """Return the streaks after a wait; empty if they did not change."""
    waits = job.streaks.get(outcomes.WAITS)
    if counted:
        return {**job.streaks, outcomes.WAITS: (waits or 0) + 1}
    return job.streaks if waits == 0 else {}


def _placed(failure: Failure, error: BaseException) -> Failure:
    """Return *failure* with the traceback of *error* and its place, if it is an error of the handler."""
    if failure.category is not Category.HANDLER_ERROR:
        return failure
    at = place_of(error)
    reason = f"{failure.reason} ({at})" if at else failure.reason
    return replace(failure, reason=reason, traceback=traceback_text(error), at=at)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _answer(result: object, context: JobContext) -> outcomes.Outcome:
    if isinstance(result, outcomes.Outcome):
        return result
    if result is None and context._requested_outcome is not None:
        return context._requested_outcome
    return outcomes.Complete(result)
