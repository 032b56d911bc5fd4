"""The way of one call, outermost first (R31).

    deadline ─► retry ─► a breaker known open? ─► credential ─► one admission ─► send ─► classify ─► settle
       │          ▲                                                                          │
       │          └── 401: a newer token, once · a failure that may pass: after its delay ◄──┘
       └── no wait is begun that cannot end in time

Nothing is held while a token is refreshed or a delay is slept: admission covers the sending and no more. A
refusal before the send costs nothing at the provider, and says so by its type (Refused); what was sent and
failed is a CallFailedError, also where a refusal, or a database that is away, stands against another try: that is
its cause. After a 401, which acted on nothing, a grant that is found to be gone is told as what it is
(ReauthRequiredError), and so is every other reason why there is no newer token.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

from fairlead._core.clock import Clock, Draw
from fairlead._core.secret import Secret
from fairlead.engine.base.timing import with_deadline
from fairlead.engine.calls.buffered import WholeStream, never, read
from fairlead.engine.calls.call_events import Records
from fairlead.engine.calls.call_state import Manners, Progress, Tried
from fairlead.engine.calls.open_breakers import KnownOpen
from fairlead.engine.calls.pages import Fetch, Page, pages, time_of
from fairlead.engine.calls.request import Call, Came, Tokens
from fairlead.engine.jobs.handler import current_job
from fairlead.engine.limits.admission import Admission
from fairlead.engine.limits.call_admitter import CallAdmitter, CallRequest
from fairlead.engine.ports import Connection, ConnectionKey
from fairlead.engine.ports.http import (
    HttpAnswer,
    HttpRequest,
    HttpStream,
    NoAnswer,
    StreamBroken,
    Transport,
)
from fairlead.errors import DeadlineExceededError, FairleadError, InvalidInputError, SlotLostError
from fairlead.events import Emit
from fairlead.policy.calls.classify.body import Unread
from fairlead.policy.calls.classify.classifier import judge
from fairlead.policy.calls.classify.status import is_success
from fairlead.policy.calls.classify.verdict import DONE, Result, Verdict
from fairlead.policy.calls.deadline import buffer_s, is_hurried
from fairlead.policy.calls.next_step import GIVE, MAX_RETRYING_S, Attempt, Follow, Then, follow, follow_items
from fairlead.policy.calls.no_response import lost
from fairlead.policy.limits.feedback.dialect import parse_limits
from fairlead.policy.limits.feedback.raw_response import RawResponse
from fairlead.policy.providers.call_settings import DEADLINE_S
from fairlead.policy.providers.pagination import Asked, Pages

T = TypeVar("T")


class Pipeline:
    """One per process. *manners*: of a connection, derived once per version of it."""

    def __init__(
        self,
        tokens: Tokens,
        entrance: CallAdmitter,
        transport: Transport,
        manners: Callable[[Connection], Manners],
        *,
        clock: Clock,
        epoch_s: Callable[[], float],
        draw: Draw,
        emit: Emit,
    ) -> None:
        self._tokens = tokens
        self._entrance = entrance
        self._transport = transport
        self._manners = manners
        self._clock = clock
        self._epoch_s = epoch_s
        self._draw = draw
        self._records = Records(clock=clock, emit=emit)
        self._open = KnownOpen(clock)

    async def send(self, call: Call) -> Came:
        """The answer to *call*, whole or in part done.

        Raises CallFailedError for what was sent and failed; a Refused (LimitExceededError, ReauthRequiredError,
        NotSentError, DeadlineExceededError...) for what never left, or NotFoundError,
        DependencyUnavailableError, InvalidInputError.
        """
        on_way = await self._begin(call)
        while True:
            await self._make_ready(on_way)
            began_s: float | None = None
            try:  # as `_admitted` does it, whose generator would cost every call 3 us more
                async with self._entrance.enter(self._wish(on_way), wait_end=False) as admission:
                    began_s = on_way.leaves(self._clock.monotonic(), admission.admitted)
                    try:
                        came = await self._transport.send(self._request(on_way, began_s))
                    except InvalidInputError:  # it cannot be put into HTTP
                        admission.not_sent()
                        raise
                    except asyncio.CancelledError:
                        admission.record_cancelled(self._clock.monotonic() - began_s, on_way.whole_s)
                        raise
                    finally:
                        on_way.ended(self._clock.monotonic())
                    tried = self._judged(came, on_way, admission)
            except asyncio.CancelledError:
                if began_s is not None:
                    self._records.cancelled(on_way)
                raise
            except SlotLostError as lost:
                self._records.slot_lost(on_way, lost)
                raise
            except FairleadError as error:
                raise self._kept_out(on_way, error)  # noqa: B904 (see there)
            if await self._is_over(on_way, tried):
                assert isinstance(came, HttpAnswer)
                assert tried.reply is not None
                return Came(came, tried.reply, tried.verdict, on_way.sends, on_way.waited_s)

    @asynccontextmanager
    async def stream(
        self, call: Call, *, read_whole: Callable[[HttpStream], bool] = never
    ) -> AsyncIterator[HttpStream]:
        """The answer's head, and its body as it comes; the call is in flight for as long as the block lasts.

        As `send` until the head of a success is there; a body that breaks off after it raises CallFailedError.
        A success that is to be *read_whole* (default none) is judged by its body, too, as `send` does it; of
        a failure that is not, the first 64 KiB are read.
        """
        on_way = await self._begin(call)
        while True:
            await self._make_ready(on_way)
            async with self._admitted(on_way) as admission, self._streamed(on_way, admission) as came:
                whole = not isinstance(came, NoAnswer) and read_whole(came)
                if not isinstance(came, NoAnswer) and is_success(came.status) and not whole:
                    self._note_head(came, on_way, admission)
                    try:
                        yield came
                    except StreamBroken as broken:
                        if broken.stream is not came:  # another call's, which is read within this one's block
                            raise
                        tried = self._judged(broken.no_answer, on_way, admission, head_given=True)
                        after = Follow(Then.FAIL, why="its head was given")
                        failed = on_way.failed(tried, after)
                        self._records.attempt(on_way, tried, after, failed)
                        raise failed from None
                    return
                answer = came if isinstance(came, NoAnswer) else await read(came, whole=whole)
                tried = self._judged(answer, on_way, admission)
            if await self._is_over(on_way, tried):
                assert isinstance(tried.came, HttpAnswer)
                yield WholeStream(tried.came)
                return

    def now_s(self) -> float:
        """Of the clock that deadlines are kept by."""
        return self._clock.monotonic()

    async def wait_for_items(
        self, connection: Connection, verdict: Verdict, attempt: int, began_s: float
    ) -> bool:
        """Wait until the items that *verdict* would have sent again may be; False where they may not.

        *attempt* 0: they were sent once. *began_s*: when their batch was begun, by ``now_s``.
        """
        manners = self._manners(connection)
        left_s, inline_s = MAX_RETRYING_S + began_s - self._clock.monotonic(), math.inf
        if (job := current_job.get()) is not None:
            left_s = min(left_s, job.remaining_s - buffer_s(job.timeout_s))
            inline_s = manners.settings.inline_wait_s
        tried = Attempt(attempt, False, True, left_s, inline_s)
        after = follow_items(tried, verdict, draw=self._draw(), factor=manners.profile.backoff_factor)
        if after.then is Then.AGAIN:
            await self._clock.sleep(after.delay_s)
        return after.then is Then.AGAIN

    def manners(self, connection: Connection) -> Manners:
        """How calls of *connection* are made; InvalidConfigError for settings that cannot be."""
        return self._manners(connection)

    def pages(self, key: ConnectionKey, fetch: Fetch, way: Pages, first: Asked) -> AsyncIterator[Page]:
        """The pages of a list; see engine/calls/pages.py. In a job none is waited for past its time."""
        may_wait = time_of(current_job.get())
        return pages(key, fetch, way, first, clock=self._clock, draw=self._draw, may_wait=may_wait)

    # ---- before it is sent ---------------------------------------------------------------------

    async def connection(
        self, key: ConnectionKey, deadline_s: float | None, began_s: float | None = None
    ) -> Connection:
        """What is known of it, for a call that is to end *deadline_s* (None: 60 s) after *began_s* (now).

        NotFoundError where there is no such connection, DeadlineExceededError where it cannot be read in time.
        """
        known = self._entrance.known(key)
        if known is not None:
            return known
        left_s, job = DEADLINE_S if deadline_s is None else deadline_s, current_job.get()
        if began_s is not None:
            left_s += began_s - self._clock.monotonic()
        if job is not None:
            left_s = min(left_s, job.remaining_s - buffer_s(job.timeout_s))
        return await self._within(left_s, self._entrance.connection(key), key, "its connection")

    async def _begin(self, call: Call) -> Progress:
        """Its deadline; in a job with what the job needs to end (C6)."""
        began_s = self._clock.monotonic() if call.began_s is None else call.began_s
        known = self._entrance.known(call.key)
        manners = self._manners(known or await self.connection(call.key, call.deadline_s, began_s))
        host = manners.host_of(call)
        deadline_s = manners.settings.deadline_s if call.deadline_s is None else call.deadline_s
        ends_s, job = began_s + deadline_s, current_job.get()
        if job is None:
            return Progress(call, host, manners, began_s, ends_s, math.inf, deadline_s)
        ends_s = min(ends_s, self._clock.monotonic() + job.remaining_s - buffer_s(job.timeout_s))
        on_way = Progress(call, host, manners, began_s, ends_s, manners.settings.inline_wait_s, deadline_s)
        on_way.job_id = job.job.job_id
        return on_way

    async def _within(self, left_s: float, asked: Awaitable[T], key: ConnectionKey, what: str) -> T:
        """What is *asked* for, in time; DeadlineExceededError where it is not. What others share goes on."""
        late = partial(_no_time, key, f"{what} was not available before the call's deadline")
        return await with_deadline(asked, self._clock, left_s, late)

    async def _make_ready(self, on_way: Progress) -> None:
        """All that can be refused before a place is held."""
        call, host = on_way.call, on_way.host
        try:
            self._open.check(call.key, host, lambda: self._entrance.is_limited(call.key, call.api, host))
            if on_way.token is None and (served := self._tokens.served(call.key)) is not None:
                on_way.token = served
            on_way.left_s = on_way.ends_s - self._clock.monotonic()
            if on_way.token is None and on_way.left_s > 0:
                asked = self._tokens.token(call.key)
                on_way.token = await self._within(on_way.left_s, asked, call.key, "its credential")
                on_way.left_s = on_way.ends_s - self._clock.monotonic()
            if on_way.left_s <= 0:
                raise _no_time(call.key, "there is no time left to begin the call")
        except FairleadError as error:
            raise self._refused(on_way, error)  # noqa: B904 (see there)

    def _wish(self, on_way: Progress) -> CallRequest:
        call, left_s = on_way.call, on_way.left_s
        wait_s = on_way.inline_s if call.wait_s is None else call.wait_s
        return CallRequest(
            call.key,
            call.api,
            on_way.host,
            call.cost,
            call.class_number,
            min(wait_s, left_s),
            left_s,
            retry=on_way.retries > 0 or None,
            operation=call.operation,
        )

    @asynccontextmanager
    async def _admitted(self, on_way: Progress) -> AsyncIterator[Admission]:
        """Inside of every limit; what came is told to the gate before its place is given back."""
        began_s: float | None = None
        foreign = False  # of another call, within the caller's block
        try:
            async with self._entrance.enter(self._wish(on_way), wait_end=False) as admission:
                began_s = on_way.leaves(self._clock.monotonic(), admission.admitted)
                try:
                    yield admission
                except SlotLostError:
                    foreign = True
                    raise
                except asyncio.CancelledError:
                    if not on_way.head_given:
                        admission.record_cancelled(self._clock.monotonic() - began_s, on_way.whole_s)
                    raise
                finally:
                    on_way.ended(self._clock.monotonic())
        except asyncio.CancelledError:
            if began_s is not None and not on_way.head_given:  # else it was told, and came
                self._records.cancelled(on_way)
            raise
        except SlotLostError as lost:
            if not foreign:
                self._records.slot_lost(on_way, lost)
            raise
        except FairleadError as error:
            if began_s is not None:  # the caller's own, of another call, or told already
                raise
            raise self._kept_out(on_way, error)  # noqa: B904 (see there)

    @asynccontextmanager
    async def _streamed(self, on_way: Progress, admission: Admission) -> AsyncIterator[HttpStream | NoAnswer]:
        begun = False
        try:
            async with self._transport.stream(self._request(on_way, self._clock.monotonic())) as came:
                begun = True
                yield came
        except InvalidInputError as invalid:
            if begun:
                raise
            admission.not_sent()  # it cannot be put into HTTP
            raise self._refused(on_way, invalid)  # noqa: B904 (see there)

    def _kept_out(self, on_way: Progress, error: FairleadError) -> FairleadError:
        self._open.note(on_way.call.key, on_way.host, error)
        return self._refused(on_way, error)

    def _refused(self, on_way: Progress, error: FairleadError) -> FairleadError:
        """What to raise where *error* kept it from being sent (again). It says itself what caused it."""
        raised = on_way.refused(error)
        self._records.refused(on_way, error, raised)
        return raised

    def _request(self, on_way: Progress, now_s: float) -> HttpRequest:
        call, carried = on_way.call, on_way.manners.profile.credential_header
        assert on_way.token is not None
        value = Secret(carried.format.replace("{token}", on_way.token.access_token.reveal()), remember=False)
        said: Mapping[str, str | Secret] = {**carried.fixed, **call.headers, carried.name: value}
        on_way.given_s = on_way.ends_s - now_s
        most, whose = call.max_body_bytes, call.key.tenant
        return HttpRequest(call.method, call.url, said, call.body, on_way.given_s, most, whose)

    # ---- after it came -------------------------------------------------------------------------

    def _judged(
        self, came: HttpAnswer | NoAnswer, on_way: Progress, admission: Admission, *, head_given: bool = False
    ) -> Tried:
        """*head_given*: its reader has it already, and may be what was slow."""
        rules = on_way.manners.rules
        if isinstance(came, NoAnswer):
            hurried = head_given or is_hurried(on_way.given_s, on_way.whole_s)
            verdict = lost(came.kind, sent=came.sent, why=came.why, rules=rules, hurried=hurried)
            admission.record_no_response(verdict.health, came.kind, sent=came.sent, hurried=hurried)
            return Tried(came, None, verdict)
        reply, now_epoch_s = Unread(came.status, came.headers, came.body), self._epoch_s()
        judged = reply.judged()
        told = parse_limits(admission.dialect, judged, now_epoch_s=now_epoch_s)
        verdict = judge(rules, judged, told, now_epoch_s=now_epoch_s)
        admission.apply_observations(told, verdict.health, verdict.code)
        return Tried(came, reply, verdict)

    def _note_head(self, came: HttpStream, on_way: Progress, admission: Admission) -> None:
        reply = RawResponse(came.status, came.headers)
        admission.apply_observations(
            parse_limits(admission.dialect, reply, now_epoch_s=self._epoch_s()), DONE.health
        )
        if admission.report_responding is not None:
            admission.report_responding()
        on_way.head_given = True
        head = Tried(HttpAnswer(came.status, came.headers, b"", 0.0), reply, DONE)
        self._records.attempt(on_way, head, GIVE)

    async def _is_over(self, on_way: Progress, tried: Tried) -> bool:
        """Whether its answer is to be given; else it may be sent once more. Raises what it failed of."""
        now_s, after = self._clock.monotonic(), GIVE
        failed: FairleadError | None = None
        if tried.verdict.result is Result.FAILED:
            after = follow(
                on_way.attempt(now_s),
                tried.verdict,
                status=tried.status,
                draw=self._draw(),
                factor=on_way.manners.profile.backoff_factor,
            )
            failed = on_way.failed(tried, after) if after.then is Then.FAIL else None
        self._records.attempt(on_way, tried, after, failed)
        if failed is not None:
            raise failed
        match after.then:
            case Then.GIVE:
                return True
            case Then.REFRESH:
                on_way.note_failed(tried)
                await self._refresh(on_way)
            case Then.AGAIN:
                on_way.note_failed(tried)
                on_way.retries += 1
                await self._clock.sleep(after.delay_s)
        return False

    async def _refresh(self, on_way: Progress) -> None:
        """A newer token. What stands against it is told as it is, as long as nothing can have been done."""
        assert on_way.token is not None
        key = on_way.call.key
        try:
            asked = self._tokens.newer(key, on_way.token.generation)
            left_s = on_way.ends_s - self._clock.monotonic()
            on_way.token = await self._within(left_s, asked, key, "a newer credential")
        except FairleadError as error:
            told = on_way.turned_away(error)
            raised = on_way.refused(told) if on_way.may_have_acted else told
            self._records.refused(on_way, told, raised)
            raise raised  # noqa: B904 (it says itself what caused it)
        on_way.refreshed = True


def _no_time(key: ConnectionKey, what: str) -> DeadlineExceededError:
    """In a job, too, without a time to come back: its attempt counts."""
    return DeadlineExceededError(what, tenant=key.tenant, provider=key.provider)
