"""Connections that are fit for a request that may be sent only once.

The server may have closed a kept-alive connection, or sent bytes without a request. Such bytes would be
taken for the response to the next request. Such a connection is dropped and the next one is tried, before
anything is sent. A response fails once the bytes around its head and body exceed a bound.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ClientRequest
from aiohttp.connector import Connection
from aiohttp.tracing import Trace

from fairlead.adapters.http.body import MalformedBodyError

AROUND_BYTES = 3 << 20  # a head may take 2 MiB
_MAX_PER_BODY_BYTE = 6  # bytes received: a body in chunks of one byte takes as many
_HEAD_PIECE = 16 << 10  # parsed in about 5 ms if it is full of 1xx responses
_MAX_UNREAD = 100  # responses


class StaleConnectionError(aiohttp.ClientConnectionError):
    """The connection was lost, or received unexpected bytes, before the request was written."""


class DeadlinePassedError(aiohttp.ClientConnectionError):
    """The deadline passed before the request was written: another process may have taken over. Spec: R7."""


@dataclass(slots=True, eq=False, kw_only=True)
class InFlightRequest:
    """One request in flight.

    Attributes:
        is_dialled: Whether its connection is new, or being opened.
        sent_mono: The loop's time when it was sent. None: nothing was sent.
    """

    is_dialled: bool = False
    protocol: ResponseHandler | None = None
    sent_mono: float | None = None

    @property
    def is_queued(self) -> bool:
        """Whether it still waits for a free connection of this process."""
        return not self.is_dialled and self.protocol is None

    def connected(self, connection: Connection) -> None:
        """Record the connection that it got."""
        self.protocol = connection.protocol

    def check(self) -> None:
        """Raise StaleConnectionError unless the connection is open and no byte has arrived on it."""
        if self.protocol is None or not self.protocol.is_connected() or self.protocol.should_close:
            raise StaleConnectionError


current_request: ContextVar[InFlightRequest] = ContextVar("fairlead_flight")


class BoundedHandler(ResponseHandler):
    """A connection that bounds 1xx responses, chunk extensions and empty lines."""

    _received = 0

    def set_response_params(self, **params: Any) -> None:
        """Prepare for the next response, which has bounds of its own."""
        self._received = 0
        super().set_response_params(**params)

    def data_received(self, data: bytes) -> None:
        """Parse *data*; close the connection once more bytes have arrived than a response can need.

        A response needs at most AROUND_BYTES, and _MAX_PER_BODY_BYTE for each byte of its body.
        """
        self._received += len(data)
        if self._received <= _HEAD_PIECE:  # most responses are this small: no bound is near
            super().data_received(data)
            return
        in_body = self._payload is not None and not self._payload.is_eof()
        piece = len(data) if in_body else _HEAD_PIECE
        for start in range(0, max(1, len(data)), piece or 1):  # empty data resumes a paused parser
            body = 0 if self._payload is None else self._payload.total_bytes
            if self._received > AROUND_BYTES + _MAX_PER_BODY_BYTE * body or len(self._buffer) > _MAX_UNREAD:
                self._refuse()
                return
            super().data_received(data[start : start + piece])

    def _refuse(self) -> None:
        error = MalformedBodyError("the response has too many bytes outside its head and body")
        self.set_exception(error)
        if self._payload is not None:
            self._payload.set_exception(error)
        if self.transport is not None:
            self.transport.close()


def _unobserved(_origin: str, _failure: Exception | None) -> None:
    return None


class CheckedConnector(aiohttp.TCPConnector):
    """A connector that hands out connections which are open and have nothing to read.

    Args:
        observe: Called for every new connection with its origin, and the error if it failed.
    """

    def __init__(
        self, *, observe: Callable[[str, Exception | None], None] = _unobserved, **options: Any
    ) -> None:
        super().__init__(**options)
        self._observe = observe
        self._factory = partial(BoundedHandler, loop=self._loop)  # type: ignore[assignment]

    async def connect(
        self,
        req: ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109
    ) -> Connection:
        """Return a connection for the request in `current_request`."""
        in_flight = current_request.get()
        while True:
            connection = await super().connect(req, traces, timeout)
            in_flight.connected(connection)
            if in_flight.is_dialled or _is_silent(connection.protocol):
                return connection
            connection.close()

    async def _create_connection(
        self,
        req: ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109
    ) -> ResponseHandler:
        current_request.get().is_dialled = True
        origin = str(req.url.origin())
        try:
            protocol = await super()._create_connection(req, traces, timeout)
        except Exception as error:
            self._observe(origin, error)
            raise
        self._observe(origin, None)
        return protocol

    async def dial(self, req: ClientRequest, timeout: aiohttp.ClientTimeout) -> None:  # noqa: ASYNC109
        """Make a connection and close it.

        Raises:
            Exception: The error of aiohttp or of the system, if the connection fails.
        """
        (await self._create_connection(req, [], timeout)).close()


def _is_silent(protocol: ResponseHandler | None) -> bool:
    """Return whether an idle connection is open and has nothing to read, in the buffers or in the kernel."""
    if protocol is None or protocol.should_close or protocol.transport is None:
        return False
    poll = select.poll()
    poll.register(protocol.transport.get_extra_info("socket").fileno(), select.POLLIN | select.POLLHUP)
    return not poll.poll(0)
