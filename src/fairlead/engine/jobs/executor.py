"""Run one job and decide its outcome: the handler under its timeout, then one decision by policy.

    the handler's result or exception > outcome (jobs/job.py) > decision (failures/retry.py) > write (ports)

Whatever a handler returns or raises becomes an outcome to write, so no job can end its worker. Only a
cancellation from outside (a lost lease, a drain) passes through. It is no failure, and the canceller hands
the job back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace

from fairlead._core.clock import Clock, Draw
from fairlead._core.faultpoint import faultpoint
from fairlead._core.ids import Ids
from fairlead.engine.base.timing import TimeLimit
from fairlead.engine.base.traces import place_of, traceback_text
from fairlead.engine.jobs.grant_waits import (
    GrantStore,
    GrantWaits,
    RefusedRun,
    RunEnd,
    refused_credential_in,
    with_connection,
)
from fairlead.engine.jobs.group_holds import GroupHolds, Pauses
from fairlead.engine.jobs.handler import Handler, JobContext, RequestedPause, by_kind, current_job
from fairlead.engine.jobs.job_events import job_finished
from fairlead.engine.jobs.outcome_decider import OutcomeDecider
from fairlead.engine.jobs.stored_results import unclassified_failure
from fairlead.engine.ports import Cancelled, Discarded, Job, Outcome, Rescheduled
from fairlead.events import Emit, GroupPaused, GroupPauseFailed, ServiceFailed, TimeoutIgnored
from fairlead.policy.failures.category import Category, Failure, job_timeout
from fairlead.policy.jobs import job as outcomes
from fairlead.policy.jobs.dead_letter import DEFAULT_DEAD_LETTER_RULES, DeadLetterRules
from fairlead.policy.jobs.job import budget_snooze, outcome_of_exception
from fairlead.policy.reasons import job_reasons
from fairlead.policy.text.safe import safe_text

UNKNOWN_KIND_SNOOZE_S = 60.0

CancelTime = Callable[[], float | None]
"""Returns when the worker's drain will cancel a run, on the monotonic clock; None: no drain is under way."""


def _never() -> None:
    return None


class Executor:
    """The runner of jobs, by their kind. One serves all workers of a process and keeps no state between jobs.

    Args:
        delay_factor: Returns by how much a provider's retry delays are multiplied. Default 1.0 for all.
        pauses: Stores what ``ctx.pause`` requests. Default None: only the job itself waits.
        grants: Reads whether a connection needs a new grant. Default None: a refused credential is a failure.
    """

    def __init__(
        self,
        handlers: Iterable[Handler],
        *,
        clock: Clock,
        draw: Draw,
        ids: Ids,
        emit: Emit,
        delay_factor: Callable[[str | None], float] = lambda provider: 1.0,
        dead_letters: DeadLetterRules = DEFAULT_DEAD_LETTER_RULES,
        pauses: Pauses | None = None,
        grants: GrantStore | None = None,
    ) -> None:
        self._handlers = by_kind(handlers)
        self._decider = OutcomeDecider(
            self._handlers, draw=draw, ids=ids, delay_factor=delay_factor, dead_letters=dead_letters
        )
        self._clock = clock
        self._draw = draw
        self._emit = emit
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

    def begin(self, job: Job, cancel_at_mono: CancelTime = _never) -> JobContext:
        """Return the context of one run of *job*. Its timeout starts now.

        Args:
            job: The claimed job.
            cancel_at_mono: Returns when the run will be cancelled from outside.
        """
        handler = self._handlers.get(job.kind)
        waited_s = job.call_waited_s
        waiting_mono = None if waited_s is None else self._clock.monotonic() - waited_s
        timeout_s = handler.timeout_s if handler else 0.0
        return JobContext(
            job, _remaining(self._clock, handler, cancel_at_mono), waiting_mono, timeout_s=timeout_s
        )

    async def run(self, job: Job, cancel_at_mono: CancelTime = _never) -> Outcome:
        """Run *job* once and return the outcome to write. Only a cancellation from outside is raised."""
        return await self.run_with_context(self.begin(job, cancel_at_mono), cancel_at_mono)

    async def run_with_context(self, context: JobContext, cancel_at_mono: CancelTime) -> Outcome:
        """Run the job of a context from `begin`, and return the outcome to write."""
        job, started_mono = context.job, self._clock.monotonic()
        handler = self._handlers.get(job.kind)
        if handler is None:  # another version of the program may have one: snooze without using up an attempt
            run_end: RunEnd = outcomes.Snooze(UNKNOWN_KIND_SNOOZE_S, f"no handler for kind {job.kind!r}")
        else:
            end_mono = cancel_at_mono()
            left_s = None if end_mono is None else end_mono - started_mono
            run_end = budget_snooze(left_s, handler.timeout_s) or await self._attempt(handler, context)
        # `type() is`, because isinstance runs code of the object that a handler returned
        if type(run_end) is outcomes.Snooze and run_end.in_place:
            run_end = await self._holds.hold_group(job, run_end)
        ran_s = self._clock.monotonic() - started_mono
        if handler is not None and (type(run_end) is RefusedRun or type(run_end) is outcomes.RequireReauth):
            outcome = await self._without_credential(context, handler, run_end, ran_s)
        else:
            outcome = self._decider.decide(_with_effective_waits(context), run_end, ran_s)
        outcome = _with_saved(outcome, context)
        if isinstance(outcome, Rescheduled) and context._call_waiting_since is not None:
            outcome = replace(outcome, call_waited_s=started_mono + ran_s - context._call_waiting_since)
        self._emit(job_finished(job, outcome, ran_s))
        return outcome

    async def _without_credential(
        self,
        context: JobContext,
        handler: Handler,
        run_end: RefusedRun | outcomes.RequireReauth,
        ran_s: float,
    ) -> Outcome:
        """Return the outcome of a run with a refused credential: a wait for a new grant, or its failure."""
        job = _with_effective_waits(context)
        ended, connection_id = await self._grant_waits.resolve(job, run_end, ran_s)
        if type(ended) is RefusedRun:
            ended = self._report_error(context, handler, ended.error, ended.outcome)
        outcome = self._decider.decide(job, ended, ran_s)
        return with_connection(outcome, connection_id)

    def self_cancelled_outcome(self, context: JobContext) -> Outcome:
        """Return the outcome of a run that its own code cancelled, not the worker: a failed attempt."""
        job = context.job
        reason = "its handler cancelled its own task"
        failure = Failure(
            Category.TRANSIENT_NETWORK, job_reasons.UNCLASSIFIED.code, reason, unclassified=True
        )
        run_end = outcomes.Retry(failure)
        outcome = _with_saved(self._decider.decide(_with_effective_waits(context), run_end, 0.0), context)
        self._emit(job_finished(job, outcome, 0.0))
        return outcome

    def refused_outcome(self, job: Job, error: Exception) -> Outcome:
        """Return a failed attempt to write in place of an outcome that the store refused with *error*.

        The text is plain ASCII, so that no database refuses it as well.
        """
        text = safe_text(error).encode("ascii", "backslashreplace").decode()
        reason = f"the result or error of its run cannot be stored: {text}"
        failure = Failure(Category.TRANSIENT_SERVER, job_reasons.OUTCOME_REFUSED.code, reason)
        outcome = self._decider.decide(job, outcomes.Retry(failure), 0.0)
        self._emit(job_finished(job, outcome, 0.0))
        return outcome

    def cancelled_outcome(self, context: JobContext) -> Outcome:
        """Return the outcome to write for a run that was stopped because its job was cancelled."""
        outcome = Cancelled(context.job.job_id, context.job.lease_id, "cancelled while it ran")
        self._emit(job_finished(context.job, outcome, 0.0))
        return outcome

    # ---- one attempt ---------------------------------------------------------------------------

    async def _attempt(self, handler: Handler, context: JobContext) -> RunEnd:
        """Run the handler within its timeout, and store the pauses that it requested."""
        started_mono = self._clock.monotonic()

        def ignored(over_s: float) -> None:
            job = context.job
            about = (job.job_id, job.tenant_id, job.provider, job.kind)
            self._emit(TimeoutIgnored(*about, timeout_s=handler.timeout_s, over_s=over_s))

        limit = TimeLimit(self._clock, handler.timeout_s, ignored=ignored)
        faultpoint("job.before_run")
        run_end = await self._invoke(handler, context, limit, started_mono)
        faultpoint("job.after_run")
        try:  # before the outcome, so that the group's next job meets the pause
            for pause in context._requested_pauses:
                await self._pause_scope(context.job, pause)
        except asyncio.CancelledError:  # the work is done, and must not run again because of a pause
            job = context.job
            self._emit(
                GroupPauseFailed(job.tenant_id, job.provider, job.kind, "its run was stopped meanwhile")
            )
        return run_end

    async def _invoke(
        self, handler: Handler, context: JobContext, limit: TimeLimit, started_mono: float
    ) -> RunEnd:
        """Call the handler, and return its result or error as the end of the run.

        Raises:
            CancelledError: The worker cancelled the run.
        """
        running = current_job.set(context)
        try:
            async with limit:
                result = await handler.run(context)
            return _to_outcome(result, context)
        except asyncio.CancelledError as error:
            if context._stopped_by_worker or (_is_cancelled() and not limit.expired):
                raise
            if limit.expired:
                return outcomes.Retry(job_timeout(self._clock.monotonic() - started_mono, handler.timeout_s))
            return outcomes.Retry(unclassified_failure(error))  # it awaited something that was cancelled
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if context._stopped_by_worker:  # an error of its clean-up is not a failure of the job
                raise asyncio.CancelledError from error
            if limit.expired:  # whatever the cut-off handler made of it
                return outcomes.Retry(job_timeout(self._clock.monotonic() - started_mono, handler.timeout_s))
            return self._classify_error(context, handler, error)
        finally:
            current_job.reset(running)

    async def _pause_scope(self, job: Job, pause: RequestedPause) -> None:
        """Store a pause and emit an event. If that fails, the run does not: its job waits anyway."""
        why_not = await self._try_pause(job, pause)
        about = (job.tenant_id, job.provider, job.kind)
        if why_not is None:
            self._emit(GroupPaused(*about, str(pause.scope), pause.for_s, safe_text(pause.reason)))
        else:
            self._emit(GroupPauseFailed(*about, why_not))

    async def _try_pause(self, job: Job, pause: RequestedPause) -> str | None:
        """Store a pause. Return why it could not be stored, or None if it was."""
        if pause.scope is None:
            return "the job names nothing to pause: enqueue it with group= or provider="
        if self._pauses is None:
            return "no pauses are stored here"
        by = f"job {job.job_id} ({job.kind})"
        try:
            await self._pauses.pause(pause.scope, pause.for_s, reason=safe_text(pause.reason), by=by)
        except Exception as error:  # noqa: BLE001 (whatever the store says, the outcome is written)
            return safe_text(error)
        return None

    def _classify_error(self, context: JobContext, handler: Handler, error: BaseException) -> RunEnd:
        """Return how a run ended that raised *error*: a retry, a wait, or a refused credential."""
        try:
            if isinstance(error, Exception):
                outcome = outcome_of_exception(
                    error,
                    draw=self._draw(),
                    waits=_with_effective_waits(context).streaks.get(outcomes.WAITS, 0),
                    transient=handler.transient,
                )
                if isinstance(outcome, outcomes.Retry) and (
                    credential := refused_credential_in(context.job, error)
                ):
                    return RefusedRun(outcome, error, credential)
                return self._report_error(context, handler, error, outcome)
            return outcomes.Retry(_with_origin(unclassified_failure(error), error))  # sys.exit(), for example
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001, S110 (an error may be hostile in any of its attributes, E08)
            pass
        return outcomes.Retry(unclassified_failure(error))

    def _report_error(
        self,
        context: JobContext,
        handler: Handler,
        error: Exception,
        outcome: outcomes.Retry | outcomes.Snooze,
    ) -> outcomes.Outcome:
        """Call the handler's ``on_error``, and return *outcome* with the place where the error was raised."""
        if isinstance(outcome, outcomes.Snooze):
            return outcome
        if handler.on_error is not None:
            try:
                handler.on_error(error, context)
            except Exception as broken:  # noqa: BLE001 (an error of a hook fails no job)
                self._emit(ServiceFailed("on_error", safe_text(broken)))
        return outcomes.Retry(_with_origin(outcome.failure, error))


def _remaining(clock: Clock, handler: Handler | None, cancel_at_mono: CancelTime) -> Callable[[], float]:
    """Return the function that a run which starts now uses to read how many seconds it has left."""
    timeout_mono = clock.monotonic() + (handler.timeout_s if handler else 0.0)

    def remaining_s() -> float:
        end_mono = cancel_at_mono()
        return (timeout_mono if end_mono is None else min(timeout_mono, end_mono)) - clock.monotonic()

    return remaining_s


def _with_saved(outcome: Outcome, context: JobContext) -> Outcome:
    """Return *outcome* with the args that the run saved for the next run."""
    if context._next_args is None or not isinstance(outcome, Rescheduled | Discarded):
        return outcome
    return replace(outcome, args=context._next_args)


def _with_effective_waits(context: JobContext) -> Job:
    """Return the job, with its count of waits reset to 0 if this run made progress."""
    job = context.job
    if not (context._progressed and job.streaks.get(outcomes.WAITS)):
        return job
    return replace(job, streaks={**job.streaks, outcomes.WAITS: 0})


def _with_origin(failure: Failure, error: BaseException) -> Failure:
    """Return *failure* with the traceback of *error* and its place, if it is an error of the handler."""
    if failure.category is not Category.HANDLER_ERROR:
        return failure
    at = place_of(error)
    reason = f"{failure.reason} ({at})" if at else failure.reason
    return replace(failure, reason=reason, traceback=traceback_text(error), at=at)


def _is_cancelled() -> bool:
    """Return whether the current task was cancelled from outside."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _to_outcome(result: object, context: JobContext) -> outcomes.Outcome:
    """Return what a handler returned as an outcome.

    After None it is the last outcome that it requested through its context, if any.
    """
    if isinstance(result, outcomes.Outcome):
        return result
    if result is None and context._requested_outcome is not None:
        return context._requested_outcome
    return outcomes.Complete(result)
