"""A bulk operation from its beginning to its last row (G5, C1).

    a place ─► runs one already? adopt it : begin it ─► look after it, with patience ─► its rows, line by line
                                                            │
                                                            └─ in a job: come back later, into the same place

A job saves the token of its operation for its next run. A run that died has saved nothing: so whether one
runs already is asked before another is begun, since the vendor knows. Only an operation of the same kind and
text is adopted, as anything else gives other rows. Its rows lie in a file at another host, whose address is
its own permission: it is fetched without the credential.
"""

from __future__ import annotations

import json
import math
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from fairlead._core.clock import Clock, Draw
from fairlead.engine.calls.bulk_note import BulkNote
from fairlead.engine.calls.line_splitter import LONGEST_LINE_BYTES, LineTooLong, lines_of, steady
from fairlead.engine.jobs.handler import current_job
from fairlead.engine.limits.bulk_slots import BulkAdmitter, BulkOperation, BulkRequest
from fairlead.engine.ports import ConnectionKey, HttpRequest, NoResponse, StreamBroken, Transport
from fairlead.errors import BulkLimitReachedError, BulkStillRunningError, CallFailedError
from fairlead.policy.calls.bulk.protocol import BulkProtocol, BulkQuery, BulkRejection, BulkState, BulkStatus
from fairlead.policy.calls.classify.status import category_of_status, is_success
from fairlead.policy.calls.deadline import buffer_s, has_time
from fairlead.policy.failures.backoff import Jitter, backoff_s
from fairlead.policy.failures.category import Category
from fairlead.policy.limits.bulk_token import BulkToken, parse_token
from fairlead.policy.limits.feedback.raw_response import RawResponse
from fairlead.policy.providers.call_settings import INLINE_WAIT_S
from fairlead.policy.reasons import call_reasons
from fairlead.policy.text.charset import as_utf_8, declared_codec
from fairlead.policy.text.safe import safe_text

FOLLOW_S = 86_400.0
"""How long one is followed at most, unless the caller says otherwise."""
RESULT_BYTES = 64 << 30
_LOOK_BASE_S, _LOOK_CAP_S = 1.0, 30.0
_RETRIES, _BASE_S, _CAP_S = 3, 1.0, 30.0  # of the fetch of its rows
_IDLE_S = 60.0
_CLOCKS_APART_S = 60.0  # the clocks of the vendor and of the database
_CATEGORIES: Mapping[str, Category] = {
    "ACCESS_DENIED": Category.PERMANENT_PERMISSION,
    "INTERNAL_SERVER_ERROR": Category.TRANSIENT_SERVER,
    "TIMEOUT": Category.TRANSIENT_SERVER,
}

Asking = Callable[[BulkQuery], Awaitable[RawResponse]]
"""One question to the vendor, as a call with everything around it."""


@dataclass(frozen=True, slots=True)
class BulkOrder:
    """What is to be run. *again_s*: how long a job waits that finds it running."""

    key: ConnectionKey
    way: BulkProtocol
    kind: str
    version: str
    again_s: float
    text: str = field(repr=False)
    variables: Mapping[str, Any] = field(default_factory=dict, repr=False)
    token: str | None = None
    wait_s: float = 0.0
    deadline_s: float = FOLLOW_S
    inline_wait_s: float = INLINE_WAIT_S
    """The longest wait that is spent inside of a job."""

    @property
    def named(self) -> tuple[str, ...]:
        """What distinguishes it from other operations of the same job, which may serve several tenants."""
        return *self.key, self.kind, self.text, repr(sorted(self.variables.items()))


class BulkRun:
    """A bulk operation that runs or has ended; see `Client.bulk`."""

    def __init__(
        self, place: BulkOperation, order: BulkOrder, ask: Asking, runs: BulkRuns, seen: BulkStatus
    ) -> None:
        self._place = place
        self._order = order
        self._ask = ask
        self._runs = runs
        self._seen = seen
        self._ends_s = runs.clock.monotonic() + order.deadline_s
        self.adopted = False
        """Whether it ran already when its block was entered."""
        self._rows_lost = False

    @property
    def id(self) -> str:
        """The vendor's name of it."""
        return self._seen.id

    @property
    def status(self) -> str:
        """The vendor's word for how it is doing, as it was told last."""
        return self._seen.status

    @property
    def count(self) -> int | None:
        """How many objects it has found so far; None: not told."""
        return self._seen.count

    @property
    def ended(self) -> bool:
        """Whether it runs no more, as was told last."""
        return self._seen.state is not BulkState.RUNNING

    @property
    def failed(self) -> bool:
        """Whether it ended without a result, as was told last."""
        return self._seen.state is BulkState.ENDED

    @property
    def of_no_more_use(self) -> bool:
        """Whether its rows can only be had from a new operation."""
        return self.failed or self._rows_lost

    @property
    def token(self) -> str:
        """With it another block, in any process, goes on: ``api.bulk(..., token=...)``."""
        return self._place.token

    async def wait(self) -> None:
        """Return once it has completed; look again after 1 s, then ever less often, up to each 30 s.

        Raises CallFailedError where it has failed or was cancelled (`reason` is the vendor's word),
        BulkStillRunningError
        where it runs on after `deadline_s`; in a job as soon as a wait would be longer than its connection's
        `inline_wait_s`, 2 s, or leave no time for a look after it: the job comes back, and its next run finds
        it.
        """
        looks = 0
        while not self.ended:
            delay_s = backoff_s(
                looks, base_s=_LOOK_BASE_S, cap_s=_LOOK_CAP_S, jitter=Jitter.EQUAL, draw=self._runs.draw()
            )
            if not self._may_wait(delay_s):
                raise self._unfinished(self._order.again_s)
            if self._runs.clock.monotonic() + delay_s > self._ends_s:
                raise self._unfinished(delay_s)
            await self._runs.clock.sleep(delay_s)
            await self.look()
            looks += 1
        if self.failed:
            self._place.finished()
            raise self._failed(f"the bulk operation ended as {safe_text(self.status, 64)}", self._seen)

    async def look(self) -> None:
        """Ask the vendor how it is doing now."""
        reply = await self._ask(self._order.way.status_query(self.id, self._order.version))
        found = next((one for one in self._order.way.parse_operations(reply) if one.id == self.id), None)
        if found is None:
            self._place.finished()
            self._seen = BulkStatus(self.id, BulkState.ENDED, "unknown")
            raise self._failed("the vendor knows the bulk operation no more", self._seen)
        self._seen = found

    async def rows(self, *, longest_bytes: int = LONGEST_LINE_BYTES) -> AsyncIterator[Any]:
        """Wait for its end, then give its rows, each the JSON value of a line; none is kept here.

        A fetch that breaks off is made again, up to three times, and goes on after the last row that was
        given. Raises what `wait` does; CallFailedError where the rows cannot be had, or one is no JSON or longer
        than *longest_bytes* (default 16 MiB).
        """
        await self.wait()
        if self._seen.url is None and self.count:
            gone = f"the vendor names no file for its {self.count} objects"
            raise self._not_had(_FetchFailed(Category.PERMANENT_REQUEST, call_reasons.NO_FILE.code, gone))
        given = attempt = 0
        while self._seen.url is not None:
            wait_s = backoff_s(
                attempt, base_s=_BASE_S, cap_s=_CAP_S, jitter=Jitter.EQUAL, draw=self._runs.draw()
            )
            try:
                async with aclosing(self._fetched(self._seen.url, given, longest_bytes)) as lines:
                    async for line in lines:
                        given += 1
                        if line.strip():
                            yield self._value(line, given)
                return
            except _FetchFailed as error:
                again = attempt < _RETRIES and error.category.transient and self._may_wait(wait_s)
                if not again:
                    raise self._not_had(error) from None
            attempt += 1
            await self._runs.clock.sleep(wait_s)

    def _may_wait(self, wait_s: float) -> bool:
        """Whether so long a wait is spent here; in a job it may be neither long nor the end of its time."""
        job = current_job.get()
        if job is None:
            return True
        return wait_s <= self._order.inline_wait_s and has_time(self._left_s(), wait_s, job.timeout_s)

    # ---- the rows ------------------------------------------------------------------------------

    async def _fetched(self, url: str, given: int, longest_bytes: int) -> AsyncGenerator[bytes]:
        """The lines after the first *given*. Not through the gate: it is no call to the vendor's API."""
        request = HttpRequest("GET", url, {"accept": "*/*"}, None, self._left_s(), RESULT_BYTES)
        async with self._runs.transport.stream(request) as came:
            if isinstance(came, NoResponse):
                raise _FetchFailed(Category.TRANSIENT_NETWORK, came.kind, came.why)
            if not is_success(came.status):
                category = category_of_status(came.status) or Category.TRANSIENT_NETWORK
                raise _FetchFailed(category, f"http_{came.status}", f"status {came.status}")
            number = 0
            chunks = as_utf_8(steady(came, self._runs.clock, _IDLE_S), declared_codec(came.headers))
            try:
                async for line in lines_of(chunks, longest_bytes):
                    number += 1
                    if number > given:
                        yield line
            except StreamBroken as broken:
                told = broken.no_response
                raise _FetchFailed(Category.TRANSIENT_NETWORK, told.kind, told.why) from None
            except TimeoutError:
                stalled = f"no byte of them came for {_IDLE_S:g} s"
                raise _FetchFailed(Category.TRANSIENT_NETWORK, "stalled", stalled) from None
            except LineTooLong as error:
                raise _FetchFailed(Category.PERMANENT_REQUEST, "line_too_long", str(error)) from None

    def _left_s(self) -> float:
        job = current_job.get()
        left_s = self._ends_s - self._runs.clock.monotonic()
        return left_s if job is None else min(left_s, job.remaining_s - buffer_s(job.timeout_s))

    def _value(self, line: bytes, number: int) -> Any:
        try:
            return json.loads(line)
        except (ValueError, RecursionError):
            error = _FetchFailed(
                Category.PERMANENT_REQUEST, call_reasons.NOT_JSON.code, f"line {number} is no JSON"
            )
            raise self._not_had(error) from None

    # ---- errors --------------------------------------------------------------------------------

    def _unfinished(self, again_s: float) -> BulkStillRunningError:
        key, many = self._order.key, f", {self.count} objects so far" if self.count else ""
        return BulkStillRunningError(
            f"the bulk operation {safe_text(self.id, 200)} runs still{many}",
            tenant=key.tenant,
            provider=key.provider,
            retry_after_s=again_s,
        )

    def _failed(self, what: str, seen: BulkStatus) -> CallFailedError:
        code = seen.code or seen.status
        category = _CATEGORIES.get(code, Category.PERMANENT_REQUEST)
        shown = code if code in _CATEGORIES else safe_text(code, 64)
        told = f" ({shown})" if seen.code else ""
        return _call_failed(
            self._order, f"{what}{told}", category, shown, "see what it ran in the vendor's admin pages"
        )

    def _not_had(self, error: _FetchFailed) -> CallFailedError:
        self._rows_lost = not error.category.transient
        what = f"the rows of the bulk operation cannot be had: {error}"
        return _call_failed(
            self._order, what, error.category, error.code, "its file is kept for some days: try again"
        )


class BulkRuns:
    """One per process."""

    def __init__(self, bulks: BulkAdmitter, transport: Transport, *, clock: Clock, draw: Draw) -> None:
        self._bulks = bulks
        self.transport = transport
        self.clock = clock
        self.draw = draw

    @asynccontextmanager
    async def enter(self, order: BulkOrder, ask: Asking) -> AsyncIterator[BulkRun]:
        """The block has a place, and *order* runs in it. What raises: BulkLimitReachedError, SlotLostError,
        CallFailedError.
        """
        note = BulkNote(*order.named)
        token = order.token or note.token
        wish = BulkRequest(order.key, order.kind, order.version, token, order.wait_s, knows_running=True)
        async with self._bulks.enter(wish) as place:
            run = await self._running(place, order, ask, parse_token(token or ""))
            note.keep(place.token)
            try:
                if not run.status:
                    await run.look()
                yield run
            except BaseException:
                # A job's next run reads the rows again; so long they need no second operation.
                if run.of_no_more_use or (run.ended and current_job.get() is None):
                    place.finished()
                if run.of_no_more_use:
                    note.keep(None)
                raise
            if run.ended:
                place.finished()
                note.keep(None)

    async def _running(
        self, place: BulkOperation, order: BulkOrder, ask: Asking, token: BulkToken | None
    ) -> BulkRun:
        """The one of this token: known by its id, running already, or begun now."""
        if token is not None and token.running_id:
            run = BulkRun(place, order, ask, self, BulkStatus(token.running_id, BulkState.RUNNING, ""))
            run.adopted = True
            place.started(run.id)
            return run
        seen = await self._found(place, order, ask)
        adopted = seen is not None
        if seen is None:
            try:
                seen = await self._begun(place, order, ask)
            except CallFailedError as failed:
                if failed.raw_response is None or place.rejection_code(failed.raw_response) is None:
                    raise
                seen = await self._found(place, order, ask)  # begun between our two questions
                if seen is None:
                    raise _busy(order, failed.reason) from None
                adopted = True
        if adopted:
            place.adopt(seen.id)
        run = BulkRun(place, order, ask, self, seen)
        run.adopted = adopted
        return run

    async def _found(self, place: BulkOperation, order: BulkOrder, ask: Asking) -> BulkStatus | None:
        """Return an operation of the same kind and text that runs, or that ended in a place we held before.

        An ended operation counts only if it began after this work: an older one has the rows of another run.
        """
        if not (place.resumed or order.way.may_share(order.kind)):
            return None
        text = _words(order.text)
        for one in order.way.parse_operations(await ask(order.way.list_query(order.kind, order.version))):
            is_ours = place.resumed and (one.created_s or 0.0) >= _began_s(place) - _CLOCKS_APART_S
            if _words(one.text) == text and (is_ours or one.state is BulkState.RUNNING):
                return one
        return None

    async def _begun(self, place: BulkOperation, order: BulkOrder, ask: Asking) -> BulkStatus:
        begun = order.way.parse_start(
            await ask(order.way.start_query(order.kind, order.text, order.variables))
        )
        if isinstance(begun, BulkRejection):
            what = f"the bulk operation was not begun: {safe_text(begun.message or begun.code, 400)}"
            hint = "correct the text of the operation"
            raise _call_failed(order, what, Category.PERMANENT_REQUEST, safe_text(begun.code, 64), hint)
        place.started(begun.id)
        return begun


class _FetchFailed(Exception):
    def __init__(self, category: Category, code: str, why: str) -> None:
        super().__init__(why)
        self.category = category
        self.code = code


def _began_s(place: BulkOperation) -> float:
    """Return the Unix time at which this work began: its job was stored, or its place was taken."""
    if (context := current_job.get()) is not None:
        return context.job.created_at.timestamp()
    token = parse_token(place.token)
    return token.fence / 1e6 if token is not None else math.inf


def _words(text: str) -> str:
    return " ".join(text.split())


def _busy(order: BulkOrder, code: str | None) -> BulkLimitReachedError:
    return BulkLimitReachedError(
        "a bulk operation that is not this one runs at the vendor",
        tenant=order.key.tenant,
        provider=order.key.provider,
        retry_after_s=order.again_s,
        reason=code,
    )


def _call_failed(order: BulkOrder, what: str, category: Category, code: str, hint: str) -> CallFailedError:
    return CallFailedError(
        what,
        tenant=order.key.tenant,
        provider=order.key.provider,
        category=category,
        reason=code,
        hint=hint,
    )
