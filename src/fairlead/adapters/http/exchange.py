"""One request on one connection, without aiohttp's session.

aiohttp opens, pools and parses the connections. Its session (cookies, redirects, resends, traces, multipart)
would double the cost of a call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import aiohttp
from aiohttp.client_reqrep import ClientRequest, ConnectionKey
from aiohttp.connector import Connection
from aiohttp.helpers import TimerContext
from aiohttp.http_writer import StreamWriter
from yarl import URL

from fairlead.adapters.http.connection_shares import TenantAtHost
from fairlead.adapters.http.connector import (
    CheckedConnector,
    DeadlinePassedError,
    InFlightRequest,
    current_request,
)

_MAX_SINGLE_WRITE_BYTES = 256 << 10  # a larger body is written in parts, so that the loop runs on
_PART_BYTES = 64 << 10
_WITHOUT_LENGTH = frozenset({"GET", "HEAD", "OPTIONS"})  # where they have no body


class ConnectionContext(NamedTuple):
    """What all requests share: the connector, the connect timeout, and the bounds of response headers."""

    connector: CheckedConnector
    timeout: aiohttp.ClientTimeout
    bounds: Mapping[str, Any]


class RawRequest(NamedTuple):
    """A checked request; never shown. *fields*: its header lines, without those that frame it."""

    method: str
    target: str
    fields: str
    body: bytes | None

    def __repr__(self) -> str:
        return f"RawRequest({self.method})"


class OriginTemplate(ClientRequest):
    """What the connector needs of a request, made once for each scheme, host and port.

    *refusal*: why nothing may be sent there.
    """

    def __init__(
        self, url: URL, loop: asyncio.AbstractEventLoop, *, proxy: str | None, refusal: str | None
    ) -> None:
        super().__init__("GET", url.origin(), loop=loop, proxy=URL(proxy) if proxy else None)
        self.refusal = refusal
        self._cached_key = super().connection_key
        self._prefix = str(url.origin()) if proxy is not None and not self.is_ssl() else ""
        self._host_line = f" HTTP/1.1\r\nHost: {url.host_port_subcomponent}\r\n"

    @property
    def connection_key(self) -> ConnectionKey:
        """The cached key; aiohttp would compute it each time."""
        return self._cached_key

    def head(self, request: RawRequest) -> bytes:
        """Return the head of *request*. Call it once connected, when the proxy's login is known."""
        method, target, fields, body = request
        framing = ""
        if body is not None or method not in _WITHOUT_LENGTH:
            framing = f"Content-Length: {len(body or b'')}\r\n"
        if self._prefix and (login := self.headers.get("Proxy-Authorization")) is not None:
            framing = f"{framing}Proxy-Authorization: {login}\r\n"
        return f"{method} {self._prefix}{target}{self._host_line}{fields}{framing}\r\n".encode("ascii")


@dataclass(slots=True, eq=False, kw_only=True)
class InFlightCall(InFlightRequest):
    """A request with a deadline, as an instant of the loop's clock."""

    deadline_mono: float
    loop: asyncio.AbstractEventLoop
    held_connection: TenantAtHost | None = None
    """The host and tenant under which its connection is counted."""

    def mark_sent(self) -> None:
        """Check the connection and the deadline, and mark the request as sent."""
        self.check()
        now_mono = self.loop.time()
        if now_mono >= self.deadline_mono:  # the process was suspended, and its slot may have been reassigned
            raise DeadlinePassedError
        self.sent_mono = now_mono


class PendingResponse:
    """A response with complete headers. It must be closed, read or not.

    Attributes:
        headers: aiohttp's multidict.
        content: The body, still encoded.
    """

    __slots__ = ("_connection", "_due", "_upload", "content", "headers", "status")

    def __init__(
        self, connection: Connection, due: asyncio.TimerHandle, upload: _Upload, message: Any, content: Any
    ) -> None:
        self._connection = connection
        self._due = due
        self._upload = upload
        self.status: int = message.code
        self.headers: Any = message.headers
        self.content: aiohttp.StreamReader = content

    def close(self) -> None:
        """Release the connection; it is reused only if both request and response are complete.

        After a 101 the real response may follow, and would be taken for that of the next request.
        """
        self._due.cancel()
        if self._upload.stop() and self.status >= 200:
            self._connection.release()
        else:
            self._connection.close()


async def send_raw(
    context: ConnectionContext, origin: OriginTemplate, in_flight: InFlightCall, request: RawRequest
) -> PendingResponse:
    """Send *request* once, and return when the response headers have arrived.

    After an error nothing was sent unless *in_flight* is marked as sent.
    """
    timer = TimerContext(in_flight.loop)
    due = in_flight.loop.call_at(in_flight.deadline_mono, timer.timeout)
    connection: Connection | None = None
    upload = _Upload()
    try:
        with timer:
            connection = await _connect(context, origin, in_flight)
            protocol = connection.protocol
            assert protocol is not None
            protocol.set_response_params(
                timer=timer,
                skip_payload=request.method == "HEAD",
                read_until_eof=True,
                auto_decompress=False,
                **context.bounds,
            )
            head = origin.head(request)
            in_flight.mark_sent()
            upload.begin(protocol, head, request.body, in_flight.loop)
            while True:
                message, content = await protocol.read()
                if message.code >= 200 or message.code == 101:  # else an interim response
                    return PendingResponse(connection, due, upload, message, content)
    except BaseException:
        due.cancel()
        upload.stop()
        if connection is not None:
            connection.close()
        raise


async def _connect(context: ConnectionContext, origin: OriginTemplate, in_flight: InFlightCall) -> Connection:
    token = current_request.set(in_flight)
    try:
        return await context.connector.connect(origin, [], context.timeout)
    except TimeoutError as late:
        raise aiohttp.ConnectionTimeoutError from late
    finally:
        current_request.reset(token)


class _Upload:
    """The writing of one request."""

    __slots__ = ("_rest", "_transport")

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._rest: asyncio.Task[None] | None = None

    def begin(self, protocol: Any, head: bytes, body: bytes | None, loop: asyncio.AbstractEventLoop) -> None:
        """Write the head, and start to write the body."""
        if not body:
            protocol.transport.write(head)
            return
        self._transport = protocol.transport
        if len(body) <= _MAX_SINGLE_WRITE_BYTES:
            protocol.transport.write(head + body)
            return
        protocol.transport.write(head)
        self._rest = loop.create_task(_write_in_parts(StreamWriter(protocol, loop), body))

    def stop(self) -> bool:
        """Stop writing the body; return whether everything was written."""
        if self._transport is None:
            return True
        if self._rest is not None and not self._rest.done():
            self._rest.cancel()
            return False
        return self._transport.get_write_buffer_size() == 0


async def _write_in_parts(writer: StreamWriter, body: bytes) -> None:
    try:
        for start in range(0, len(body), _PART_BYTES):
            await writer.write(body[start : start + _PART_BYTES])
            await writer.drain()
    except (aiohttp.ClientError, OSError):
        return  # the connection is lost: reading the response fails
