"""Sends requests of other HTTP libraries as calls of a connection, for `fairlead.httpx` and others.

A task of its own reads the response, chunk by chunk as the other library requests them. A lost slot ends that
task, not the code of the user that runs in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from fairlead.engine.calls.buffered import BufferedStream
from fairlead.engine.calls.pipeline import Pipeline
from fairlead.engine.calls.request import Call
from fairlead.engine.ports import TRANSPORT_HEADERS, Connection, HttpStream
from fairlead.errors import CallFailedError, InvalidInputError
from fairlead.policy.calls.classify.status import is_success
from fairlead.policy.failures.category import Category
from fairlead.policy.providers.call_settings import DEADLINE_S
from fairlead.policy.providers.origin import origin_of
from fairlead.policy.providers.profile import Profile
from fairlead.policy.reasons import call_reasons

FOREIGN_BYTES = 64 << 20
_FRAMING = frozenset({"connection", "content-encoding", "content-length", "keep-alive", "transfer-encoding"})
_GRACE_S = 1.0  # the call's own deadline ends first, with a better message


@dataclass(frozen=True, slots=True)
class ForwardedRequest:
    """A request that another library has built. Its own credential is left out."""

    method: str
    url: str = field(repr=False)
    headers: Sequence[tuple[str, str]] = field(repr=False)
    body: bytes | None = field(repr=False)
    priority: str | int | None = None
    deadline_s: float | None = None
    idempotent: bool | None = None
    max_body_bytes: int = FOREIGN_BYTES


def deadline_of(deadline_s: float | None, read_s: float | None) -> float | None:
    """Return the deadline of a call; None: the connection's.

    Args:
        deadline_s: The deadline of the transport, if it has one.
        read_s: The library's own read timeout, used if it is above 60 s.
    """
    return deadline_s if deadline_s is not None else read_s if read_s and read_s > DEADLINE_S else None


def forwarded_call(
    connection: Connection,
    profile: Profile,
    request: ForwardedRequest,
    priority_class: int | None,
    started_mono: float | None = None,
) -> Call:
    """Return *request*, which another HTTP library has built, as a call of *connection*.

    The headers that the transport or the pipeline sets are left out, its credential among them. The pipeline
    checks the destination.
    """
    omitted = {*TRANSPORT_HEADERS, "authorization", profile.credential_header.name.lower()}
    spelling = {name.lower(): name for name in profile.credential_header.fixed}
    headers: dict[str, str] = {}
    for name, value in request.headers:
        key = name.lower()
        if key not in omitted:
            key = spelling.get(key, key)
            headers[key] = f"{headers[key]}, {value}" if key in headers else value
    return Call(
        connection.key,
        request.method,
        request.url,
        headers,
        request.body,
        api=_api_of(connection, profile, request.url),
        priority_class=priority_class,
        deadline_s=request.deadline_s,
        idempotent=request.idempotent,
        max_body_bytes=request.max_body_bytes,
        started_mono=started_mono,
    )


def _api_of(connection: Connection, profile: Profile, url: str) -> str:
    """Return the provider's API that *url* belongs to: the one with the longest base URL that fits."""
    matches: list[tuple[int, str]] = []
    for name in profile.apis:
        with suppress(InvalidInputError):
            base = profile.api_url(name, connection.endpoint)
            if origin_of(base) == origin_of(url) and _is_below(url, base):
                matches.append((len(base), name))
    return max(matches)[1] if matches else profile.limits.api


def _is_below(url: str, base: str) -> bool:
    rest = url.removeprefix(base.rstrip("/"))
    return rest != url and rest[:1] in ("", "/", "?")


class ForwardedResponse:
    """The response to a ForwardedRequest.

    Iterate over its body once. If you do not read it to its end, call ``aclose``; else it is dropped at the
    deadline of the call, or after *deadline_s*, the connection's.

    Attributes:
        error: The classified failure; None for a success.
    """

    def __init__(self, pipeline: Pipeline, call: Call, deadline_s: float) -> None:
        self.status = 0
        self.headers: list[tuple[str, str]] = []
        self.error: CallFailedError | None = None
        self._started = asyncio.Event()
        self._chunk_ready = asyncio.Event()
        self._chunk_read = asyncio.Event()
        self._ended = False
        self._chunk: bytes | None = None
        self._raised: BaseException | None = None
        self._task = asyncio.create_task(self._run(pipeline, call, deadline_s), name="fairlead-forward")

    async def head(self) -> ForwardedResponse:
        """Return this once the head has arrived. Raise the error if there is no response."""
        try:
            await self._started.wait()
        except asyncio.CancelledError:
            await self.aclose()
            raise
        if not self.status:
            assert self._raised is not None
            raise self._raised
        return self

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            await self._chunk_ready.wait()
            chunk, self._chunk = self._chunk, None
            if chunk is None:
                if self._raised is not None:
                    raise self._raised
                return
            if not self._ended:
                self._chunk_ready.clear()
            self._chunk_read.set()
            yield chunk

    async def aclose(self) -> None:
        """Drop the rest of the response, and release the slot of the call."""
        self._task.cancel()
        await asyncio.wait({self._task})

    # ---- its task ------------------------------------------------------------------------------

    async def _run(self, pipeline: Pipeline, call: Call, deadline_s: float) -> None:
        total_deadline_s = deadline_s if call.deadline_s is None else call.deadline_s
        try:
            async with asyncio.timeout(total_deadline_s + _GRACE_S):
                await self._forward(pipeline, call)
        except TimeoutError:
            self._raised = _dropped(
                call, "the response was not read within the call's deadline", call_reasons.TIMEOUT.code
            )
        except asyncio.CancelledError:  # only by aclose: the reader's task is not cancelled
            self._raised = _dropped(
                call, "the response was dropped because its client was closed", call_reasons.CLOSED.code
            )
        except BaseException as error:  # noqa: BLE001 (the reader raises it)
            self._raised = error
        finally:
            self._ended = True
            self._started.set()
            self._chunk_ready.set()

    async def _forward(self, pipeline: Pipeline, call: Call) -> None:
        """Make the call, and offer its response to the other library, also that of a failure."""
        try:
            async with pipeline.stream(call, read_whole=_is_read_whole) as stream:
                await self._offer(stream)
        except CallFailedError as failed:
            if self.status or failed.response is None:
                raise
            self.error = failed
            await self._offer(BufferedStream(failed.response))

    async def _offer(self, stream: HttpStream) -> None:
        """Hand over the head, and then each chunk once the last one was taken."""
        self.headers = [
            (name, value)
            for name, values in stream.headers.items()
            if name not in _FRAMING
            for value in values
        ]
        self.status = stream.status
        self._started.set()
        async for chunk in stream:
            self._chunk = chunk
            self._chunk_ready.set()
            await self._chunk_read.wait()
            self._chunk_read.clear()


def _dropped(call: Call, message: str, reason: str) -> CallFailedError:
    key, category = call.key, Category.TRANSIENT_NETWORK
    error = CallFailedError(
        message, tenant=key.tenant, provider=key.provider, category=category, reason=reason
    )
    error.idempotent = call.is_idempotent
    return error


def _is_read_whole(stream: HttpStream) -> bool:
    """Return whether to read the response before its head is passed on: failures, JSON and XML.

    JSON and XML may contain a failure with status 200. A failure is passed on whole, because the other
    library would not show that it was cut.
    """
    if not is_success(stream.status):
        return True
    kind = next(iter(stream.headers.get("content-type", ())), "").partition(";")[0].strip().lower()
    return kind.endswith(("/json", "+json", "/xml", "+xml"))
