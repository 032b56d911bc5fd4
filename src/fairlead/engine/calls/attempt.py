"""One attempt of a call: from its admission to its release, whatever comes of it.

Buffered and streamed calls send within the same block. Its end records a cancellation and a lost slot, and
releases the admission with what the response says about the limits.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

from fairlead._core.clock import Clock
from fairlead.engine.calls.call_events import CallEvents
from fairlead.engine.calls.call_state import AttemptResult, CallState
from fairlead.engine.calls.open_breakers import OpenBreakerCache
from fairlead.engine.limits.admission import Admission, AdmittedCall
from fairlead.engine.limits.call_admitter import CallAdmitter
from fairlead.engine.ports import HttpResponse, NoResponse
from fairlead.errors import FairleadError
from fairlead.policy.calls.classify.body import LazyResponse
from fairlead.policy.calls.classify.classifier import classify
from fairlead.policy.calls.deadline import is_hurried
from fairlead.policy.calls.no_response import classify_no_response
from fairlead.policy.limits.feedback.dialect import parse_limits


class AdmittedAttempt:
    """The block in which one attempt is sent; its value is the admission."""

    # A generator in place of this class would cost every call 3 us.
    __slots__ = ("_admission", "_admitter", "_clock", "_events", "_open_breakers", "_state")

    def __init__(
        self,
        state: CallState,
        admitter: CallAdmitter,
        open_breakers: OpenBreakerCache,
        events: CallEvents,
        clock: Clock,
    ) -> None:
        self._state = state
        self._admitter = admitter
        self._open_breakers = open_breakers
        self._events = events
        self._clock = clock
        self._admission: AdmittedCall

    async def __aenter__(self) -> Admission:
        """Wait until every limit of the connection admits the attempt, or raise what refuses it."""
        state = self._state
        try:
            admission = self._admission = await self._admitter.admit(state.admission_request())
        except FairleadError as error:
            self._open_breakers.record(state.call.key, state.host, error)
            raise self._events.record_refusal(state, error)  # noqa: B904 (its cause is set)
        state.start_attempt(self._clock.monotonic(), admission.admitted)
        return admission

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the admission, and raise SlotLostError if the attempt was cancelled because of its slot."""
        state, admission, now_mono = self._state, self._admission, self._clock.monotonic()
        # After the headers of a success were delivered, the call was recorded as a success.
        was_cancelled = isinstance(error, asyncio.CancelledError) and not state.headers_delivered
        if was_cancelled:
            admission.record_cancelled(now_mono - state.sent_mono, state.total_deadline_s)
        state.end_attempt(now_mono)
        lost = self._admitter.release_soon(admission, error)
        if lost is not None:
            self._events.record_slot_lost(state, lost)
            raise lost from None
        if was_cancelled:
            self._events.record_cancelled(state)


def classify_outcome(
    outcome: HttpResponse | NoResponse,
    state: CallState,
    admission: Admission,
    *,
    now_epoch_s: float,
    headers_delivered: bool = False,
) -> AttemptResult:
    """Return what *outcome* means, and record in *admission* what it says about the limits.

    After *headers_delivered* a timeout says nothing about the destination: the reader may have been slow.
    """
    rules = state.config.rules
    if isinstance(outcome, NoResponse):
        hurried = headers_delivered or is_hurried(state.attempt_timeout_s, state.total_deadline_s)
        verdict = classify_no_response(
            outcome.kind, sent=outcome.sent, why=outcome.why, rules=rules, hurried=hurried
        )
        admission.record_no_response(verdict.health, outcome.kind, sent=outcome.sent, hurried=hurried)
        return AttemptResult(outcome, None, verdict)
    response = LazyResponse(outcome.status, outcome.headers, outcome.body)
    excerpt = response.excerpt()
    observations = parse_limits(admission.dialect, excerpt, now_epoch_s=now_epoch_s)
    verdict = classify(rules, excerpt, observations, now_epoch_s=now_epoch_s)
    admission.apply_observations(observations, verdict.health, verdict.code)
    return AttemptResult(outcome, response, verdict)
