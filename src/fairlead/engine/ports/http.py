"""The transport of calls: one HTTP request, sent at most once, and its outcome.

The outcome is a value: a response of any status, or the reason why there is none. A transport does not retry,
follow redirects or interpret; the pipeline does. Spec: C10, D7.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Literal, Protocol

from fairlead._core.secret import Secret

TRANSPORT_HEADERS = frozenset(
    {
        "accept-encoding", "connection", "content-length", "expect", "host", "keep-alive",
        "proxy-authorization", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
    }
)  # fmt: skip
"""Headers that the transport sets itself.

A request with one of them is refused; `Client.forward` drops them.
"""

NoResponseKind = Literal[
    "refused_address",  # our address policy forbids the destination
    "pool",  # no free connection of ours in time: says nothing of the destination
    "descriptors",  # this process or its host has no file descriptor left
    "resources",  # this host has no memory, buffers or local ports left
    "resolver",  # the name servers of this host do not respond
    "dns",
    "connect",
    "tls",
    "proxy",
    "timeout",  # the deadline
    "reset",  # the connection was lost, or the response was cut off
    "too_large",
    "malformed",  # the response is not HTTP, or does not decode
]


@dataclass(slots=True)  # not to be changed; frozen, each field would cost a call 0.1 us
class HttpRequest:
    """One request, fully built. Its contents are never shown.

    Attributes:
        url: Absolute. http is only for hosts that may be private.
        headers: None of TRANSPORT_HEADERS.
        deadline_s: Seconds from the wait for a connection to the last byte of the response.
        max_body_bytes: Bounds the response's body as received and as decoded.
        holder: The tenant of the call; one holder does not get all connections.
    """

    method: str
    url: str = field(repr=False)
    headers: Mapping[str, str | Secret] = field(repr=False)
    body: bytes | None = field(repr=False)
    deadline_s: float
    max_body_bytes: int
    holder: str = field(default="", repr=False)


@dataclass(slots=True)  # not to be changed; frozen, each field would cost a call 0.1 us
class HttpResponse:
    """A complete response of any status. Its contents are never shown.

    Attributes:
        headers: Names are lower case.
        body: Decoded.
        took_s: The time since the request was sent.
        late_s: Of a token request: how much later than allowed it was sent, because the process was
            suspended.
    """

    status: int
    headers: Mapping[str, Sequence[str]] = field(repr=False)
    body: bytes = field(repr=False)
    took_s: float
    late_s: float = 0.0


@dataclass(frozen=True, slots=True)
class NoResponse:
    """The lack of a complete response.

    Attributes:
        sent: False only if no byte of the request left this process.
        why: The reason, without secrets, addresses or any text of the server.
        status: The status of a response with complete headers and an incomplete body.
    """

    sent: bool
    kind: NoResponseKind
    why: str
    status: int | None = None


class StreamBrokenError(Exception):
    """The body of *stream* ended early; *no_response* says why."""

    def __init__(self, no_response: NoResponse, stream: HttpStream) -> None:
        super().__init__(no_response.why)
        self.no_response = no_response
        self.stream = stream


class HttpStream(Protocol):
    """A response with a body to read as it arrives, within the request's deadline and bounds.

    Iterate once: ``async for chunk in stream``. Each chunk is decoded and not empty. Raises StreamBrokenError.
    """

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, Sequence[str]]: ...

    def __aiter__(self) -> AsyncIterator[bytes]: ...


class DialObserver(Protocol):
    """An observer of new connections. An origin is a scheme, a host and a port, as in a URL."""

    def reached(self, origin: str) -> None:
        """Record a new connection to *origin*."""
        ...

    def failed(self, origin: str, kind: NoResponseKind) -> None:
        """Record that no connection to *origin* could be made, and why."""
        ...


class CallTransport(Protocol):
    """The sender of requests to providers' APIs, each at most once; it knows whether a request was sent.

    Both methods raise InvalidInputError, with nothing sent, for a request that is not valid HTTP. After a
    cancellation the connection is not used again. Spec: D7.
    """

    async def send(self, request: HttpRequest) -> HttpResponse | NoResponse:
        """Send *request* and return the whole response."""
        ...

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[HttpStream | NoResponse]:
        """Send *request* and yield the response once its headers arrive; leaving early ends the connection."""
        ...
