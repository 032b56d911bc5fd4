"""Connections that are fit for a request that may be sent only once.

A kept-alive connection may have been closed by the server, or may hold bytes that nobody asked for: an
answer left over from before, which would be taken for the answer to the next request. Such a connection is
dropped and the next one taken, before anything is sent.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ClientRequest
from aiohttp.connector import Connection
from aiohttp.tracing import Trace

from fairlead.adapters.http.deadline import Deadline


class ConnectionUnfit(aiohttp.ClientConnectionError):
    """The connection was lost, or spoke out of turn, before the request was written."""


class TooLate(aiohttp.ClientConnectionError):
    """The deadline passed before the request was written: somebody else may have taken over (R7)."""


@dataclass(slots=True, eq=False)
class Flight:
    """One request on its way. *left_s* is the loop's time when it was let go; None: nothing was sent."""

    before_sent: Callable[[], Awaitable[None]]
    deadline: Deadline
    reused: bool = False
    protocol: ResponseHandler | None = None
    refused: Exception | None = None
    left_s: float | None = None

    async def let_go(self) -> None:
        """Ask the hook; when this returns, aiohttp writes the request in one piece."""
        self._check()
        try:
            await self.before_sent()
        except Exception as error:
            self.refused = error  # aiohttp would put some errors into one of its own
            raise
        self._check()  # the hook took its time, and the server may have hung up meanwhile
        if self.deadline.passed:  # this process stood still between the mark and the first byte
            raise TooLate
        # What the mark took of the time is not taken from the provider's: its answer may come once only.
        self.deadline.restart()
        self.left_s = asyncio.get_running_loop().time()

    def _check(self) -> None:
        if self.protocol is None or not self.protocol.is_connected() or self.protocol.should_close:
            raise ConnectionUnfit


current_flight: ContextVar[Flight] = ContextVar("fairlead_flight")


class FitConnector(aiohttp.TCPConnector):
    """Hands out connections that are open and silent."""

    async def connect(
        self,
        req: ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109
    ) -> Connection:
        """As aiohttp's own, for the flight in `current_flight`."""
        flight = current_flight.get()
        while True:
            flight.reused = False
            connection = await super().connect(req, traces, timeout)
            flight.protocol = connection.protocol
            if not flight.reused or _is_silent(connection.protocol):
                return connection
            connection.close()


async def note_reuse(_session: aiohttp.ClientSession, context: Any, _params: object) -> None:
    """Trace hook on_connection_reuseconn: the connection comes out of the pool."""
    context.trace_request_ctx.reused = True


async def let_go(_session: aiohttp.ClientSession, context: Any, _params: object) -> None:
    """Trace hook on_request_headers_sent: awaited after connect and TLS, before the first byte."""
    await context.trace_request_ctx.let_go()


def _is_silent(protocol: ResponseHandler | None) -> bool:
    """Whether an idle connection is open and has nothing to read, in the buffers or in the kernel."""
    if protocol is None or protocol.should_close or protocol.transport is None:
        return False
    poll = select.poll()
    poll.register(protocol.transport.get_extra_info("socket").fileno(), select.POLLIN | select.POLLHUP)
    return not poll.poll(0)
