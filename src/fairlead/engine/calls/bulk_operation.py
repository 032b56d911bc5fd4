"""A bulk operation, from its start to its last row. Spec: G5, C1.

    a slot ─► does one run already? adopt it : start it ─► poll it, ever less often ─► its rows, line by line
                                                             │
                                                             └─ in a job: come back later, into the same slot

A job saves the token of its operation for its next run. A run that was killed has saved nothing, so the
vendor is asked whether an operation runs before another one is started. Only an operation of the same kind and
text is adopted, since any other has other rows. The rows are in a file on another host. Its address is the
permission to read it, so it is fetched without the credential.
"""

from __future__ import annotations

import json
import math
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any

from fairlead._core.clock import Clock, Draw
from fairlead.engine.calls.bulk_note import BulkNote
from fairlead.engine.calls.bulk_order import BulkOrder
from fairlead.engine.calls.line_splitter import (
    MAX_LINE_BYTES,
    LineTooLongError,
    split_lines,
    with_idle_timeout,
)
from fairlead.engine.jobs.handler import current_job
from fairlead.engine.limits.bulk_slots import BulkAdmitter, BulkOperation, BulkRequest
from fairlead.engine.ports import CallTransport, HttpRequest, NoResponse, StreamBrokenError
from fairlead.errors import BulkLimitReachedError, BulkStillRunningError, CallFailedError
from fairlead.policy.calls.bulk.protocol import BulkQuery, BulkRejection, BulkState, BulkStatus
from fairlead.policy.calls.classify.status import category_of_status, is_success
from fairlead.policy.calls.deadline import buffer_s, has_time
from fairlead.policy.failures.backoff import Jitter, backoff_s
from fairlead.policy.failures.category import Category
from fairlead.policy.limits.bulk_token import BulkToken, parse_token
from fairlead.policy.limits.feedback.raw_response import RawResponse
from fairlead.policy.reasons import call_reasons
from fairlead.policy.text.charset import as_utf_8, declared_codec
from fairlead.policy.text.safe import safe_text

RESULT_BYTES = 64 << 30
_POLL_BASE_S, _POLL_CAP_S = 1.0, 30.0
_RETRIES, _BASE_S, _CAP_S = 3, 1.0, 30.0  # of the fetch of its rows
_IDLE_S = 60.0
_CLOCKS_APART_S = 60.0  # the clocks of the vendor and of the database
_CATEGORIES: Mapping[str, Category] = {
    "ACCESS_DENIED": Category.PERMANENT_PERMISSION,
    "INTERNAL_SERVER_ERROR": Category.TRANSIENT_SERVER,
    "TIMEOUT": Category.TRANSIENT_SERVER,
}

SendQuery = Callable[[BulkQuery], Awaitable[RawResponse]]
"""Sends one query to the vendor, as a call with retries and limits."""


class BulkRun:
    """A bulk operation that runs or has ended; see `Client.bulk`."""

    def __init__(
        self, slot: BulkOperation, order: BulkOrder, send_query: SendQuery, runs: BulkRuns, state: BulkStatus
    ) -> None:
        self._slot = slot
        self._order = order
        self._send_query = send_query
        self._runs = runs
        self._state = state
        self._deadline_mono = runs.clock.monotonic() + order.deadline_s
        self.adopted = False
        """Whether it ran already when its block was entered."""
        self._has_lost_rows = False

    @property
    def id(self) -> str:
        """The vendor's id of the operation."""
        return self._state.id

    @property
    def status(self) -> str:
        """The vendor's status of the operation, in its last response."""
        return self._state.status

    @property
    def count(self) -> int | None:
        """How many objects it has found so far; None: unknown."""
        return self._state.count

    @property
    def ended(self) -> bool:
        """Whether it has ended, by the last response."""
        return self._state.state is not BulkState.RUNNING

    @property
    def failed(self) -> bool:
        """Whether it ended without a result, by the last response."""
        return self._state.state is BulkState.ENDED

    @property
    def is_useless(self) -> bool:
        """Whether only a new operation can give its rows."""
        return self.failed or self._has_lost_rows

    @property
    def token(self) -> str:
        """The token to continue it in another block, in any process: ``api.bulk(..., token=...)``."""
        return self._slot.token

    async def wait(self) -> None:
        """Wait until it has completed. Polls after 1 s, then ever less often, up to every 30 s.

        Raises:
            CallFailedError: It failed or was cancelled; `reason` is the vendor's code.
            BulkStillRunningError: It still runs after `deadline_s`. In a job it is raised as soon as a wait would be
                longer than the connection's `inline_wait_s`, 2 s, or leave no time for a poll after it: the job is
                rescheduled, and its next run continues.
        """
        polls = 0
        while not self.ended:
            delay_s = backoff_s(
                polls, base_s=_POLL_BASE_S, cap_s=_POLL_CAP_S, jitter=Jitter.EQUAL, draw=self._runs.draw()
            )
            if not self._may_wait(delay_s):
                raise self._still_running_error(self._order.retry_after_s)
            if self._runs.clock.monotonic() + delay_s > self._deadline_mono:
                raise self._still_running_error(delay_s)
            await self._runs.clock.sleep(delay_s)
            await self.poll()
            polls += 1
        if self.failed:
            self._slot.finished()
            raise self._operation_error(
                f"the bulk operation ended as {safe_text(self.status, 64)}", self._state
            )

    async def poll(self) -> None:
        """Poll the vendor for its status."""
        response = await self._send_query(self._order.protocol.status_query(self.id, self._order.version))
        state = next(
            (state for state in self._order.protocol.parse_operations(response) if state.id == self.id), None
        )
        if state is None:
            self._slot.finished()
            self._state = BulkStatus(self.id, BulkState.ENDED, "unknown")
            raise self._operation_error("the vendor knows the bulk operation no more", self._state)
        self._state = state

    async def rows(self, *, longest_bytes: int = MAX_LINE_BYTES) -> AsyncIterator[Any]:
        """Wait for its end, then yield its rows, each the JSON value of a line. No row is stored here.

        A download that breaks off is retried up to three times, and continues after the last row.

        Raises:
            CallFailedError: The rows cannot be read, or a line is no JSON or longer than *longest_bytes* (default
                16 MiB). Also raises as `wait`.
        """
        await self.wait()
        if self._state.url is None and self.count:
            message = f"the vendor names no file for its {self.count} objects"
            raise self._rows_error(
                _FetchFailedError(Category.PERMANENT_REQUEST, call_reasons.NO_FILE.code, message)
            )
        row_count = attempt = 0
        while self._state.url is not None:
            wait_s = backoff_s(
                attempt, base_s=_BASE_S, cap_s=_CAP_S, jitter=Jitter.EQUAL, draw=self._runs.draw()
            )
            try:
                async with aclosing(self._download(self._state.url, row_count, longest_bytes)) as lines:
                    async for line in lines:
                        row_count += 1
                        if line.strip():
                            yield self._parse_row(line, row_count)
                return
            except _FetchFailedError as error:
                may_retry = attempt < _RETRIES and error.category.transient and self._may_wait(wait_s)
                if not may_retry:
                    raise self._rows_error(error) from None
            attempt += 1
            await self._runs.clock.sleep(wait_s)

    def _may_wait(self, wait_s: float) -> bool:
        """Return whether to wait here. In a job a wait must be short, and leave time for a poll after it."""
        job = current_job.get()
        if job is None:
            return True
        return wait_s <= self._order.inline_wait_s and has_time(self._left_s(), wait_s, job.timeout_s)

    # ---- the rows ------------------------------------------------------------------------------

    async def _download(self, url: str, skip: int, longest_bytes: int) -> AsyncGenerator[bytes]:
        """Yield the lines after the first *skip*. It is no call to the vendor's API, so no limit applies."""
        request = HttpRequest("GET", url, {"accept": "*/*"}, None, self._left_s(), RESULT_BYTES)
        async with self._runs.transport.stream(request) as stream:
            if isinstance(stream, NoResponse):
                raise _FetchFailedError(Category.TRANSIENT_NETWORK, stream.kind, stream.why)
            if not is_success(stream.status):
                category = category_of_status(stream.status) or Category.TRANSIENT_NETWORK
                raise _FetchFailedError(category, f"http_{stream.status}", f"status {stream.status}")
            number = 0
            chunks = as_utf_8(
                with_idle_timeout(stream, self._runs.clock, _IDLE_S), declared_codec(stream.headers)
            )
            try:
                async for line in split_lines(chunks, longest_bytes):
                    number += 1
                    if number > skip:
                        yield line
            except StreamBrokenError as broken:
                no_response = broken.no_response
                raise _FetchFailedError(
                    Category.TRANSIENT_NETWORK, no_response.kind, no_response.why
                ) from None
            except TimeoutError:
                stalled = f"no byte of them came for {_IDLE_S:g} s"
                raise _FetchFailedError(Category.TRANSIENT_NETWORK, "stalled", stalled) from None
            except LineTooLongError as error:
                raise _FetchFailedError(Category.PERMANENT_REQUEST, "line_too_long", str(error)) from None

    def _left_s(self) -> float:
        """Return the seconds until the operation's deadline; in a job no more than the job has left."""
        job = current_job.get()
        left_s = self._deadline_mono - self._runs.clock.monotonic()
        return left_s if job is None else min(left_s, job.remaining_s - buffer_s(job.timeout_s))

    def _parse_row(self, line: bytes, number: int) -> Any:
        """Return the value of a line, or raise CallFailedError if it is no JSON."""
        try:
            return json.loads(line)
        except (ValueError, RecursionError):
            error = _FetchFailedError(
                Category.PERMANENT_REQUEST, call_reasons.NOT_JSON.code, f"line {number} is no JSON"
            )
            raise self._rows_error(error) from None

    # ---- errors --------------------------------------------------------------------------------

    def _still_running_error(self, retry_after_s: float) -> BulkStillRunningError:
        key, many = self._order.key, f", {self.count} objects so far" if self.count else ""
        return BulkStillRunningError(
            f"the bulk operation {safe_text(self.id, 200)} runs still{many}",
            tenant=key.tenant,
            provider=key.provider,
            retry_after_s=retry_after_s,
        )

    def _operation_error(self, message: str, state: BulkStatus) -> CallFailedError:
        code = state.code or state.status
        category = _CATEGORIES.get(code, Category.PERMANENT_REQUEST)
        shown = code if code in _CATEGORIES else safe_text(code, 64)
        suffix = f" ({shown})" if state.code else ""
        return _call_failed(
            self._order, f"{message}{suffix}", category, shown, "see what it ran in the vendor's admin pages"
        )

    def _rows_error(self, error: _FetchFailedError) -> CallFailedError:
        self._has_lost_rows = not error.category.transient
        message = f"the rows of the bulk operation cannot be had: {error}"
        return _call_failed(
            self._order, message, error.category, error.code, "its file is kept for some days: try again"
        )


class BulkRuns:
    """The starter of bulk operations; one per process."""

    def __init__(self, bulks: BulkAdmitter, transport: CallTransport, *, clock: Clock, draw: Draw) -> None:
        self._bulks = bulks
        self.transport = transport
        self.clock = clock
        self.draw = draw

    @asynccontextmanager
    async def enter(self, order: BulkOrder, send_query: SendQuery) -> AsyncIterator[BulkRun]:
        """Hold a slot during the block, and run *order* in it.

        Raises:
            BulkLimitReachedError: No slot is free.
            SlotLostError: The slot was lost.
            CallFailedError: The operation was not started.
        """
        note = BulkNote(*order.identity)
        token = order.token or note.token
        request = BulkRequest(order.key, order.kind, order.version, token, order.wait_s, knows_running=True)
        async with self._bulks.enter(request) as slot:
            run = await self._find_or_start(slot, order, send_query, parse_token(token or ""))
            note.save(slot.token)
            try:
                if not run.status:
                    await run.poll()
                yield run
            except BaseException:
                # A job's next run reads the rows again; so long they need no second operation.
                if run.is_useless or (run.ended and current_job.get() is None):
                    slot.finished()
                if run.is_useless:
                    note.save(None)
                raise
            if run.ended:
                slot.finished()
                note.save(None)

    async def _find_or_start(
        self, slot: BulkOperation, order: BulkOrder, send_query: SendQuery, token: BulkToken | None
    ) -> BulkRun:
        """Return the operation of this token, one that runs already, or else a new one."""
        if token is not None and token.running_id:
            run = BulkRun(slot, order, send_query, self, BulkStatus(token.running_id, BulkState.RUNNING, ""))
            run.adopted = True
            slot.started(run.id)
            return run
        state = await self._find(slot, order, send_query)
        adopted = state is not None
        if state is None:
            try:
                state = await self._start(slot, order, send_query)
            except CallFailedError as failed:
                if failed.raw_response is None or slot.rejection_code(failed.raw_response) is None:
                    raise
                state = await self._find(slot, order, send_query)  # it was started between our two queries
                if state is None:
                    raise _busy(order, failed.reason) from None
                adopted = True
        if adopted:
            slot.adopt(state.id)
        run = BulkRun(slot, order, send_query, self, state)
        run.adopted = adopted
        return run

    async def _find(self, slot: BulkOperation, order: BulkOrder, send_query: SendQuery) -> BulkStatus | None:
        """Return an operation of the same kind and text that runs, or that ended in this slot earlier.

        An ended operation counts only if it began after this work: an older one has the rows of another run.
        """
        if not (slot.resumed or order.protocol.may_share(order.kind)):
            return None
        text = _collapse_spaces(order.text)
        for state in order.protocol.parse_operations(
            await send_query(order.protocol.list_query(order.kind, order.version))
        ):
            is_ours = slot.resumed and (state.created_s or 0.0) >= _began_epoch_s(slot) - _CLOCKS_APART_S
            if _collapse_spaces(state.text) == text and (is_ours or state.state is BulkState.RUNNING):
                return state
        return None

    async def _start(self, slot: BulkOperation, order: BulkOrder, send_query: SendQuery) -> BulkStatus:
        """Start the operation at the vendor; raise CallFailedError if it rejects the text."""
        started = order.protocol.parse_start(
            await send_query(order.protocol.start_query(order.kind, order.text, order.variables))
        )
        if isinstance(started, BulkRejection):
            message = f"the bulk operation was not begun: {safe_text(started.message or started.code, 400)}"
            hint = "correct the text of the operation"
            raise _call_failed(order, message, Category.PERMANENT_REQUEST, safe_text(started.code, 64), hint)
        slot.started(started.id)
        return started


class _FetchFailedError(Exception):
    def __init__(self, category: Category, code: str, why: str) -> None:
        super().__init__(why)
        self.category = category
        self.code = code


def _began_epoch_s(slot: BulkOperation) -> float:
    """Return the Unix time at which this work began: its job was stored, or its place was taken."""
    if (context := current_job.get()) is not None:
        return context.job.created_at.timestamp()
    token = parse_token(slot.token)
    return token.fence / 1e6 if token is not None else math.inf


def _collapse_spaces(text: str) -> str:
    return " ".join(text.split())


def _busy(order: BulkOrder, code: str | None) -> BulkLimitReachedError:
    return BulkLimitReachedError(
        "a bulk operation that is not this one runs at the vendor",
        tenant=order.key.tenant,
        provider=order.key.provider,
        retry_after_s=order.retry_after_s,
        reason=code,
    )


def _call_failed(order: BulkOrder, message: str, category: Category, code: str, hint: str) -> CallFailedError:
    return CallFailedError(
        message,
        tenant=order.key.tenant,
        provider=order.key.provider,
        category=category,
        reason=code,
        hint=hint,
    )
