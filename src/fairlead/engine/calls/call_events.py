"""What is told of each attempt of a call, and of each refusal (C11).

Each is an event. Under load those of successes and refusals are sampled, and say for how many they stand;
what was sent and failed is always told. That calls failed for good is told once more, loud, not too often;
so is how many answers no rule knew.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from fairlead._core.clock import Clock
from fairlead.engine.calls.call_state import Progress, Tried
from fairlead.engine.calls.unclassified import Unclassified
from fairlead.errors import CallFailedError, FairleadError, SlotLostError
from fairlead.events import CallAttempted, CallsFailed, Emit
from fairlead.policy.calls.next_step import Follow, Then
from fairlead.policy.jobs.job import Snooze, outcome_of_exception

ALL_PER_S = 100
"""Of so many in a second each is told; of those above it one of SAMPLE."""
SAMPLE = 20
FAILED_EACH_S = 10.0
"""How often it is told at most that calls of a connection to a host fail by the same rule."""
_MOST = 10_000


class Records:
    """One per process."""

    def __init__(self, *, clock: Clock, emit: Emit) -> None:
        self._clock = clock
        self._emit = emit
        self._unclassified = Unclassified(emit)
        self._second_ends_s = 0.0
        self._seen = 0
        self._failed: dict[Hashable, tuple[float, int]] = {}

    def attempt(
        self, on_way: Progress, tried: Tried, after: Follow, failed: FairleadError | None = None
    ) -> None:
        """It was sent; what came was judged. *failed*: what is raised for it."""
        now_s = self._clock.monotonic()
        on_way.look(now_s)
        verdict = tried.verdict
        if verdict.unclassified:
            self._unclassified.count(on_way.call.key.provider, tried.status, verdict.code)
        if now_s >= self._unclassified.due_s:
            self._unclassified.tell(now_s)
        stands_for = self._stands_for(now_s) if after.then is Then.GIVE else 1
        if not stands_for:
            return
        event = on_way.event(
            tried.status,
            verdict.rule,
            str(verdict.category) if verdict.category else None,
            verdict.code,
            after,
            unclassified=verdict.unclassified,
            stands_for=stands_for,
        )
        self._emit(event)
        if failed is not None and not _is_wait(on_way, failed):
            self._tell_failed(event, now_s)

    def slot_lost(self, on_way: Progress, lost: SlotLostError) -> None:
        """Record a call that was sent and lost its slot, and set in *lost* whether it may be repeated."""
        lost.idempotent = on_way.call.is_idempotent
        self._tell_failed(self._ended(on_way, "slot lost", lost.category, lost.code), self._clock.monotonic())

    def cancelled(self, on_way: Progress) -> None:
        """It was sent, and its caller waits no more: what became of it nobody knows."""
        self._ended(on_way, "cancelled", None, "cancelled")

    def _ended(self, on_way: Progress, rule: str, category: str | None, code: str) -> CallAttempted:
        on_way.look(self._clock.monotonic())
        event = on_way.event(None, rule, category, code, Follow(Then.FAIL))
        self._emit(event)
        return event

    def refused(self, on_way: Progress, error: FairleadError, raised: FairleadError) -> None:
        """It was not sent, because of *error*; *raised*: what its caller is told.

        Where it may have been sent before, the call has failed with that.
        """
        now_s = self._clock.monotonic()
        on_way.look(now_s)
        then = Then.FAIL if on_way.may_have_left else Then.REFUSED
        stands_for = self._stands_for(now_s) if then is Then.REFUSED else 1
        if not stands_for:
            return
        code = error.reason or error.code
        on_way.gate = code if error.code == "limit_exceeded" else ""
        after = Follow(then, error.retry_after_s or 0.0)
        event = on_way.event(None, "refused", error.category, code, after, stands_for=stands_for)
        self._emit(event)
        if then is Then.FAIL and not _is_wait(on_way, raised):
            self._tell_failed(_of_last(on_way, event, raised), now_s)

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


def _of_last(on_way: Progress, refusal: CallAttempted, raised: FairleadError) -> CallAttempted:
    """Return *refusal* with the failure of the last attempt, if it only prevented another attempt."""
    if on_way.last is None or not isinstance(raised, CallFailedError):
        return refusal
    verdict = on_way.last.verdict
    category = str(verdict.category or "")
    if not category.startswith("transient"):  # a 401, after which *refusal* is the cause
        return refusal
    return replace(refusal, rule=verdict.rule, code=verdict.code, category=category)


def _is_wait(on_way: Progress, raised: FairleadError) -> bool:
    """In a job it is no failure, but a wait: the job comes back, and nobody need look."""
    return on_way.job_id is not None and isinstance(outcome_of_exception(raised, draw=0.0), Snooze)
