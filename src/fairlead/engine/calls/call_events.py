"""What is told of each attempt of a call, and of each refusal (C11).

Each is an event. Under load those of successes and refusals are sampled, and say for how many they stand;
what was sent and failed is always told. That calls failed for good is told once more, loud, not too often;
so is how many answers no rule knew.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from fairlead._core.clock import Clock
from fairlead.engine.calls.call_state import AttemptResult, CallState
from fairlead.engine.calls.unclassified import Unclassified
from fairlead.errors import CallFailedError, FairleadError, SlotLostError
from fairlead.events import CallAttempted, CallsFailed, Emit
from fairlead.policy.calls.next_step import Decision, NextAction
from fairlead.policy.jobs.job import Snooze, outcome_of_exception

ALL_PER_S = 100
"""Of so many in a second each is told; of those above it one of SAMPLE."""
SAMPLE = 20
FAILED_EACH_S = 10.0
"""How often it is told at most that calls of a connection to a host fail by the same rule."""
_MOST = 10_000


class CallEvents:
    """One per process."""

    def __init__(self, *, clock: Clock, emit: Emit) -> None:
        self._clock = clock
        self._emit = emit
        self._unclassified = Unclassified(emit)
        self._second_ends_s = 0.0
        self._seen = 0
        self._failed: dict[Hashable, tuple[float, int]] = {}

    def attempt(
        self, state: CallState, result: AttemptResult, decision: Decision, failed: FairleadError | None = None
    ) -> None:
        """It was sent; what came was judged. *failed*: what is raised for it."""
        now_s = self._clock.monotonic()
        state.update_timers(now_s)
        verdict = result.verdict
        if verdict.unclassified:
            self._unclassified.count(state.call.key.provider, result.status, verdict.code)
        if now_s >= self._unclassified.due_s:
            self._unclassified.tell(now_s)
        stands_for = self._stands_for(now_s) if decision.action is NextAction.RETURN else 1
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
            self._tell_failed(event, now_s)

    def slot_lost(self, state: CallState, lost: SlotLostError) -> None:
        """Record a call that was sent and lost its slot, and set in *lost* whether it may be repeated."""
        lost.idempotent = state.call.is_idempotent
        self._tell_failed(self._ended(state, "slot lost", lost.category, lost.code), self._clock.monotonic())

    def cancelled(self, state: CallState) -> None:
        """It was sent, and its caller waits no more: what became of it nobody knows."""
        self._ended(state, "cancelled", None, "cancelled")

    def _ended(self, state: CallState, rule: str, category: str | None, code: str) -> CallAttempted:
        state.update_timers(self._clock.monotonic())
        event = state.event(None, rule, category, code, Decision(NextAction.FAIL))
        self._emit(event)
        return event

    def refused(self, state: CallState, error: FairleadError, raised: FairleadError) -> None:
        """It was not sent, because of *error*; *raised*: what its caller is told.

        Where it may have been sent before, the call has failed with that.
        """
        now_s = self._clock.monotonic()
        state.update_timers(now_s)
        action = NextAction.FAIL if state.may_have_been_sent else NextAction.REFUSED
        stands_for = self._stands_for(now_s) if action is NextAction.REFUSED else 1
        if not stands_for:
            return
        code = error.reason or error.code
        state.gate = code if error.code == "limit_exceeded" else ""
        decision = Decision(action, error.retry_after_s or 0.0)
        event = state.event(None, "refused", error.category, code, decision, stands_for=stands_for)
        self._emit(event)
        if action is NextAction.FAIL and not _is_wait(state, raised):
            self._tell_failed(_of_last(state, event, raised), now_s)

    def _stands_for(self, now_s: float) -> int:
        """For how many the next record is to stand; 0: there is to be none."""
        if now_s >= self._second_ends_s:
            self._second_ends_s, self._seen = now_s + 1.0, 0
        self._seen += 1
        if self._seen <= ALL_PER_S:
            return 1
        return 0 if (self._seen - ALL_PER_S) % SAMPLE else SAMPLE

    def _tell_failed(self, event: CallAttempted, now_s: float) -> None:
        what = (event.tenant, event.provider, event.account, event.host, event.rule)
        again_s, silent = self._failed.get(what, (now_s, 0))
        if now_s < again_s:
            self._failed[what] = again_s, silent + 1
            return
        if len(self._failed) >= _MOST:
            self._failed.clear()
        self._failed[what] = now_s + FAILED_EACH_S, 0
        self._emit(CallsFailed(*what, event.code, event.category, silent + 1, event.unclassified))


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
    """In a job it is no failure, but a wait: the job comes back, and nobody need look."""
    return state.job_id is not None and isinstance(outcome_of_exception(raised, draw=0.0), Snooze)
