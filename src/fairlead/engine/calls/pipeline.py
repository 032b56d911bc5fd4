"""The steps of one call, outermost first.

    deadline ─► retry ─► open breaker? ─► credential ─► admission ─► send ─► classify ─► decide
                  ▲                                                                        │
                  └── 401: a newer token, once · a transient failure: after its delay ◄────┘

An admission covers only the sending: no limit is held during a token refresh or a retry delay, and no wait
starts that cannot end before the deadline.

A RefusedError means that nothing was sent. Once a request was sent and failed, CallFailedError is raised; if a
retry could not be admitted, or the database was unavailable for it, that error is its `__cause__`. A 401
executes nothing: if there is no newer token, the reason is raised itself (ReauthRequiredError, ...).

Spec: R31.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

from fairlead._core.clock import Clock, Draw
from fairlead.engine.base.timing import with_deadline
from fairlead.engine.calls.attempt import AdmittedAttempt, classify_outcome
from fairlead.engine.calls.batch_retry import wait_for_items
from fairlead.engine.calls.buffered import BufferedStream, read_body, reads_no_response
from fairlead.engine.calls.call_events import CallEvents
from fairlead.engine.calls.call_state import AttemptResult, CallConfig, CallState
from fairlead.engine.calls.open_breakers import OpenBreakerCache
from fairlead.engine.calls.pages import Fetch, Page, has_time_for_page, pages
from fairlead.engine.calls.request import Call, CallResult, TokenSource
from fairlead.engine.jobs.handler import current_job
from fairlead.engine.limits.admission import Admission
from fairlead.engine.limits.call_admitter import CallAdmitter
from fairlead.engine.ports import (
    CallTransport,
    Connection,
    ConnectionKey,
    HttpResponse,
    HttpStream,
    NoResponse,
    StreamBrokenError,
)
from fairlead.errors import DeadlineExceededError, FairleadError, InvalidInputError
from fairlead.events import Emit
from fairlead.policy.calls.classify.status import is_success
from fairlead.policy.calls.classify.verdict import DONE, Result, Verdict
from fairlead.policy.calls.deadline import buffer_s
from fairlead.policy.calls.next_step import (
    RETURN,
    Decision,
    NextAction,
    decide_next,
)
from fairlead.policy.limits.feedback.dialect import parse_limits
from fairlead.policy.limits.feedback.raw_response import RawResponse
from fairlead.policy.providers.call_settings import DEADLINE_S
from fairlead.policy.providers.pagination import PageRequest, PaginationConfig

T = TypeVar("T")


class Pipeline:
    """The executor of calls; one per process.

    Args:
        config_for: Returns how calls of a connection are made, cached by the connection's version;
            InvalidConfigError for invalid settings.
        epoch_s: Returns the Unix time.
        draw: Returns a random number in [0, 1), for retry delays.
    """

    def __init__(
        self,
        tokens: TokenSource,
        admitter: CallAdmitter,
        transport: CallTransport,
        config_for: Callable[[Connection], CallConfig],
        *,
        clock: Clock,
        epoch_s: Callable[[], float],
        draw: Draw,
        emit: Emit,
    ) -> None:
        self._tokens = tokens
        self._admitter = admitter
        self._transport = transport
        self.config_for = config_for
        self._clock = clock
        self._epoch_s = epoch_s
        self._draw = draw
        self._events = CallEvents(clock=clock, emit=emit)
        self._open_breakers = OpenBreakerCache(clock)

    async def send(self, call: Call) -> CallResult:
        """Send *call*, with retries, until it succeeds at least in part or fails for good.

        Raises:
            CallFailedError: It was sent and failed.
            RefusedError: It was not sent: LimitExceededError, ReauthRequiredError, DeadlineExceededError, ...
            NotFoundError: There is no such connection.
            DependencyUnavailableError: PostgreSQL is unavailable, and no cached token is valid.
            InvalidInputError: The request cannot be sent, for example to this host.
        """
        state = await self._new_state(call)
        while True:
            # Find what refuses the call before it takes a place under any limit.
            await self._prepare(state)
            # Hold an admission while the request is in flight and its response is classified.
            async with self._attempt(state) as admission:
                outcome = await self._send(state, admission)
                result = classify_outcome(outcome, state, admission, now_epoch_s=self._epoch_s())
            # Return, or refresh the token or wait, and send again.
            if await self._handle_result(state, result):
                assert isinstance(outcome, HttpResponse)
                assert result.raw_response is not None
                return CallResult(
                    outcome, result.raw_response, result.verdict, state.attempts, state.waited_s
                )

    @asynccontextmanager
    async def stream(
        self, call: Call, *, read_whole: Callable[[HttpStream], bool] = reads_no_response
    ) -> AsyncIterator[HttpStream]:
        """Send *call* and yield the response once its headers have arrived; the body follows as it arrives.

        The call keeps its admission until the block ends. Until the headers of a success have arrived it
        behaves as `send`. A response that is read whole is classified by its body, too.

        Args:
            read_whole: Whether to read a response to its end before it is yielded. Default: no success is,
                and of a failure the first 64 KiB.

        Raises:
            CallFailedError: Also if the body of a success breaks off within the block.
        """
        state = await self._new_state(call)
        while True:
            await self._prepare(state)
            async with self._attempt(state) as admission, self._open_stream(state, admission) as stream:
                is_whole = not isinstance(stream, NoResponse) and read_whole(stream)
                if not isinstance(stream, NoResponse) and is_success(stream.status) and not is_whole:
                    self._record_headers(stream, state, admission)
                    try:
                        yield stream
                    except StreamBrokenError as broken:
                        if broken.stream is not stream:  # the stream of another call inside this block
                            raise
                        raise self._record_broken_body(broken.no_response, state, admission) from None
                    return
                outcome = (
                    stream if isinstance(stream, NoResponse) else await read_body(stream, is_whole=is_whole)
                )
                result = classify_outcome(outcome, state, admission, now_epoch_s=self._epoch_s())
            if await self._handle_result(state, result):
                assert isinstance(result.outcome, HttpResponse)
                yield BufferedStream(result.outcome)
                return

    def now_mono(self) -> float:
        """Return the time of the monotonic clock that deadlines are measured with."""
        return self._clock.monotonic()

    async def wait_for_items(
        self, connection: Connection, verdict: Verdict, attempt: int, started_mono: float
    ) -> bool:
        """Wait until the failed items of a batch may be retried; see `batch_retry.wait_for_items`."""
        config, clock = self.config_for(connection), self._clock
        return await wait_for_items(config, verdict, attempt, started_mono, clock=clock, draw=self._draw)

    def pages(
        self, key: ConnectionKey, fetch: Fetch, pagination: PaginationConfig, first: PageRequest
    ) -> AsyncIterator[Page]:
        """Yield the pages of a list, see `pages.pages`. A job starts no page for which it has no time."""
        may_wait = has_time_for_page(current_job.get())
        return pages(key, fetch, pagination, first, clock=self._clock, draw=self._draw, may_wait=may_wait)

    # ---- before the request is sent ------------------------------------------------------------

    async def connection(
        self, key: ConnectionKey, deadline_s: float | None, started_mono: float | None = None
    ) -> Connection:
        """Return the connection of *key*, from the cache or within *deadline_s* (default 60 s) of *started_mono*.

        Raises NotFoundError, or DeadlineExceededError if it could not be read in time.
        """
        connection = self._admitter.cached_connection(key)
        if connection is not None:
            return connection
        left_s, job = DEADLINE_S if deadline_s is None else deadline_s, current_job.get()
        if started_mono is not None:
            left_s += started_mono - self._clock.monotonic()
        if job is not None:
            left_s = min(left_s, job.remaining_s - buffer_s(job.timeout_s))
        return await self._within(left_s, self._admitter.connection(key), key, "its connection")

    async def _new_state(self, call: Call) -> CallState:
        """Return the state of a new call. In a job it ends early enough for the job to end. Spec: C6."""
        started_mono = self._clock.monotonic() if call.started_mono is None else call.started_mono
        connection = self._admitter.cached_connection(call.key)
        if connection is None:
            connection = await self.connection(call.key, call.deadline_s, started_mono)
        config = self.config_for(connection)
        host = config.host_of(call)
        total_s = config.settings.deadline_s if call.deadline_s is None else call.deadline_s
        deadline_mono, job = started_mono + total_s, current_job.get()
        if job is None:
            return CallState(call, host, config, started_mono, deadline_mono, math.inf, total_s)
        job_end_mono = self._clock.monotonic() + job.remaining_s - buffer_s(job.timeout_s)
        deadline_mono, max_inline_wait_s = min(deadline_mono, job_end_mono), config.settings.inline_wait_s
        state = CallState(call, host, config, started_mono, deadline_mono, max_inline_wait_s, total_s)
        state.job_id = job.job.job_id
        return state

    async def _within(self, left_s: float, awaitable: Awaitable[T], key: ConnectionKey, noun: str) -> T:
        """Await *awaitable* for up to *left_s* seconds, else raise DeadlineExceededError."""
        late = partial(_deadline_error, key, f"{noun} was not available before the call's deadline")
        return await with_deadline(awaitable, self._clock, left_s, late)

    async def _prepare(self, state: CallState) -> None:
        """Check the breaker and the deadline and get a token: whatever can refuse the call before admission."""
        call, host = state.call, state.host
        try:
            self._open_breakers.check(
                call.key, host, lambda: self._admitter.is_limited(call.key, call.api, host)
            )
            if state.token is None and (token := self._tokens.cached(call.key)) is not None:
                state.token = token
            state.left_s = state.deadline_mono - self._clock.monotonic()
            if state.token is None and state.left_s > 0:
                token_of = self._tokens.token(call.key)
                state.token = await self._within(state.left_s, token_of, call.key, "its credential")
                state.left_s = state.deadline_mono - self._clock.monotonic()
            if state.left_s <= 0:
                raise _deadline_error(call.key, "there is no time left to begin the call")
        except FairleadError as error:
            raise self._events.record_refusal(state, error)  # noqa: B904 (its cause is set)

    # ---- while an admission is held ------------------------------------------------------------

    def _attempt(self, state: CallState) -> AdmittedAttempt:
        return AdmittedAttempt(state, self._admitter, self._open_breakers, self._events, self._clock)

    async def _send(self, state: CallState, admission: Admission) -> HttpResponse | NoResponse:
        try:
            return await self._transport.send(state.http_request())
        except InvalidInputError as error:
            raise self._refuse_invalid(state, admission, error)  # noqa: B904 (its cause is set)

    @asynccontextmanager
    async def _open_stream(
        self, state: CallState, admission: Admission
    ) -> AsyncIterator[HttpStream | NoResponse]:
        is_open = False
        try:
            async with self._transport.stream(state.http_request()) as stream:
                is_open = True
                yield stream
        except InvalidInputError as error:
            if is_open:
                raise
            raise self._refuse_invalid(state, admission, error)  # noqa: B904 (its cause is set)

    def _refuse_invalid(
        self, state: CallState, admission: Admission, error: InvalidInputError
    ) -> FairleadError:
        """Record that the request is not valid HTTP, so that nothing was sent, and return the error to raise."""
        admission.not_sent()
        return self._events.record_refusal(state, error)

    def _record_headers(self, stream: HttpStream, state: CallState, admission: Admission) -> None:
        """Record the success of a streamed response; its body is not classified."""
        response = RawResponse(stream.status, stream.headers)
        observations = parse_limits(admission.dialect, response, now_epoch_s=self._epoch_s())
        admission.apply_observations(observations, DONE.health)
        if admission.report_responding is not None:
            admission.report_responding()
        state.headers_delivered = True
        head = AttemptResult(HttpResponse(stream.status, stream.headers, b"", 0.0), response, DONE)
        self._events.record_attempt(state, head, RETURN)

    def _record_broken_body(
        self, outcome: NoResponse, state: CallState, admission: Admission
    ) -> FairleadError:
        """Record that a body ended early, and return the error to raise. It cannot be retried any more."""
        now_epoch_s = self._epoch_s()
        result = classify_outcome(outcome, state, admission, now_epoch_s=now_epoch_s, headers_delivered=True)
        decision = Decision(NextAction.FAIL, why="its head was given")
        error = state.failure_error(result, decision)
        self._events.record_attempt(state, result, decision, error)
        return error

    # ---- between attempts ----------------------------------------------------------------------

    async def _handle_result(self, state: CallState, result: AttemptResult) -> bool:
        """Return True to return the response, or False to send again, after the refresh or delay it needs.

        Raises CallFailedError or NotSentError if the call failed for good.
        """
        now_mono, decision = self._clock.monotonic(), RETURN
        error: FairleadError | None = None
        if result.verdict.result is Result.FAILED:
            decision = decide_next(
                state.attempt(now_mono),
                result.verdict,
                status=result.status,
                draw=self._draw(),
                factor=state.config.profile.backoff_factor,
            )
            error = state.failure_error(result, decision) if decision.action is NextAction.FAIL else None
        self._events.record_attempt(state, result, decision, error)
        if error is not None:
            raise error
        match decision.action:
            case NextAction.RETURN:
                return True
            case NextAction.REFRESH:
                state.record_failed_attempt(result)
                await self._refresh(state)
            case NextAction.RETRY:
                state.record_failed_attempt(result)
                state.retries += 1
                await self._clock.sleep(decision.delay_s)
        return False

    async def _refresh(self, state: CallState) -> None:
        """Get a newer token. Its error is raised as it is if no attempt can have acted at the provider."""
        assert state.token is not None
        key = state.call.key
        try:
            newer_token = self._tokens.refreshed_after(key, state.token.generation)
            left_s = state.deadline_mono - self._clock.monotonic()
            state.token = await self._within(left_s, newer_token, key, "a newer credential")
        except FairleadError as error:
            rejected = state.rejection_error(error)
            raised = state.error_after_refusal(rejected) if state.may_have_acted else rejected
            self._events.record_refused(state, rejected, raised)
            raise raised  # noqa: B904 (its cause is set)
        state.refreshed = True


def _deadline_error(key: ConnectionKey, message: str) -> DeadlineExceededError:
    """Return the error without a `retry_after_s`, so that in a job the attempt counts."""
    return DeadlineExceededError(message, tenant=key.tenant, provider=key.provider)
