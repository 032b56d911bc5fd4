"""The events of calls: one for each attempt and each refusal.

Under load the events of successes and refusals are sampled, and say how many they stand for; a failed attempt
is always reported. Calls that failed for good and responses that no rule matched are also reported by a
warning, at a limited rate. Spec: C11.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from fairlead._core.clock import Clock
from fairlead.engine.calls.call_state import AttemptResult, CallState
from fairlead.engine.calls.unclassified import UnclassifiedCounter
from fairlead.errors import CallFailedError, FairleadError, SlotLostError
from fairlead.events import CallAttempted, CallsFailed, Emit
from fairlead.policy.calls.next_step import Decision, NextAction
from fairlead.policy.jobs.job import Snooze, outcome_of_exception

ALL_PER_S = 100
"""Events per second above which only one of SAMPLE is emitted."""
SAMPLE = 20
WARN_EVERY_S = 10.0
"""The least time between two warnings about one connection, host and rule."""
_MAX_ENTRIES = 10_000


class CallEvents:
    """The emitter of call events; one per process."""

    def __init__(self, *, clock: Clock, emit: Emit) -> None:
        self._clock = clock
        self._emit = emit
        self._unclassified = UnclassifiedCounter(emit)
        self._second_ends_mono = 0.0
        self._event_count = 0
        self._failed: dict[Hashable, tuple[float, int]] = {}
        """By connection, host and rule: when the next warning may follow, and the failures since the last."""

    def record_attempt(
        self, state: CallState, result: AttemptResult, decision: Decision, failed: FairleadError | None = None
    ) -> None:
        """Record an attempt that was sent and classified. *failed*: the error that is raised for it."""
        now_mono = self._clock.monotonic()
        state.update_timers(now_mono)
        verdict = result.verdict
        if verdict.unclassified:
            self._unclassified.count(state.call.key.provider, result.status, verdict.code)
        if now_mono >= self._unclassified.due_mono:
            self._unclassified.emit_due(now_mono)
        stands_for = self._stands_for(now_mono) if decision.action is NextAction.RETURN else 1
        if not stands_for:
            return
        event = state.event(
            result.status,
            verdict.rule,
            str(verdict.category) if verdict.category else None,
            verdict.code,
            decision,
            unclassified=verdict.unclassified,
            stands_for=stands_for,
        )
        self._emit(event)
        if failed is not None and not _is_wait(state, failed):
            self._emit_failed(event, now_mono)

    def record_slot_lost(self, state: CallState, lost: SlotLostError) -> None:
        """Record a call that was sent and lost its slot, and set in *lost* whether it may be repeated."""
        lost.idempotent = state.call.is_idempotent
        self._emit_failed(
            self._emit_ended(state, "slot lost", lost.category, lost.code), self._clock.monotonic()
        )

    def record_cancelled(self, state: CallState) -> None:
        """Record that the caller of an attempt was cancelled; the outcome is unknown."""
        self._emit_ended(state, "cancelled", None, "cancelled")

    def _emit_ended(self, state: CallState, rule: str, category: str | None, code: str) -> CallAttempted:
        state.update_timers(self._clock.monotonic())
        event = state.event(None, rule, category, code, Decision(NextAction.FAIL))
        self._emit(event)
        return event

    def record_refusal(self, state: CallState, error: FairleadError) -> FairleadError:
        """Record that *error* prevented an attempt, and return the error to raise. Its cause is set."""
        raised = state.error_after_refusal(error)
        self.record_refused(state, error, raised)
        return raised

    def record_refused(self, state: CallState, error: FairleadError, raised: FairleadError) -> None:
        """Record that *error* prevented an attempt, and that the caller gets *raised*.

        If an earlier attempt may have been sent, the call counts as failed.
        """
        now_mono = self._clock.monotonic()
        state.update_timers(now_mono)
        action = NextAction.FAIL if state.may_have_been_sent else NextAction.REFUSED
        stands_for = self._stands_for(now_mono) if action is NextAction.REFUSED else 1
        if not stands_for:
            return
        code = error.reason or error.code
        state.gate = code if error.code == "limit_exceeded" else ""
        decision = Decision(action, error.retry_after_s or 0.0)
        event = state.event(None, "refused", error.category, code, decision, stands_for=stands_for)
        self._emit(event)
        if action is NextAction.FAIL and not _is_wait(state, raised):
            self._emit_failed(_of_last(state, event, raised), now_mono)

    def _stands_for(self, now_mono: float) -> int:
        """Return how many events the next one stands for; 0: it is not emitted."""
        if now_mono >= self._second_ends_mono:
            self._second_ends_mono, self._event_count = now_mono + 1.0, 0
        self._event_count += 1
        if self._event_count <= ALL_PER_S:
            return 1
        return 0 if (self._event_count - ALL_PER_S) % SAMPLE else SAMPLE

    def _emit_failed(self, event: CallAttempted, now_mono: float) -> None:
        """Emit the warning of a failed call, at most one in 10 s for each connection, host and rule."""
        key = (event.tenant, event.provider, event.account, event.host, event.rule)
        next_mono, silent = self._failed.get(key, (now_mono, 0))
        if now_mono < next_mono:
            self._failed[key] = next_mono, silent + 1
            return
        if len(self._failed) >= _MAX_ENTRIES:
            self._failed.clear()
        self._failed[key] = now_mono + WARN_EVERY_S, 0
        self._emit(CallsFailed(*key, event.code, event.category, silent + 1, event.unclassified))


def _of_last(state: CallState, refusal: CallAttempted, raised: FairleadError) -> CallAttempted:
    """Return *refusal* with the failure of the last attempt, if it only prevented another attempt."""
    if state.last is None or not isinstance(raised, CallFailedError):
        return refusal
    verdict = state.last.verdict
    category = str(verdict.category or "")
    if not category.startswith("transient"):  # a 401, after which *refusal* is the cause
        return refusal
    return replace(refusal, rule=verdict.rule, code=verdict.code, category=category)


def _is_wait(state: CallState, raised: FairleadError) -> bool:
    """Return whether *raised* only reschedules a job, which is no failure."""
    return state.job_id is not None and isinstance(outcome_of_exception(raised, draw=0.0), Snooze)
