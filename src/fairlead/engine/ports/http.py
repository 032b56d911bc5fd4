"""One HTTP request, sent at most once, and what came of it (C10, D7).

What came is a value: an answer of whatever status, or the fact that there is none, and why. Nothing here is
tried again, followed or interpreted: that is the pipeline's.
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
"""Headers that frame a request or name its destination: the transport's own. In a request they are refused;
a door that takes requests of other libraries leaves them out."""

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
    "reset",  # the connection was lost, or the answer was cut off
    "too_large",
    "malformed",  # what came is no HTTP, or does not decode
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
    """A complete answer, whatever its status. Header names are lower case; *body* is decoded. What it says is
    never shown.

    *took_s* counts from the moment the request left. Of a token request *late_s* tells how long after it was
    let go that was, where its process stood still in between; else 0.0.
    """

    status: int
    headers: Mapping[str, Sequence[str]] = field(repr=False)
    body: bytes = field(repr=False)
    took_s: float
    late_s: float = 0.0


@dataclass(frozen=True, slots=True)
class NoResponse:
    """No complete answer. *sent* is False only if no byte of the request left this process.

    *why* is in plain words, without secrets, addresses or anything that the server said. *status* is that of
    an answer whose head came whole and whose body did not.
    """

    sent: bool
    kind: NoResponseKind
    why: str
    status: int | None = None


class StreamBroken(Exception):
    """An answer that was being streamed did not come to its end; *no_answer* says why, *stream* which."""

    def __init__(self, no_response: NoResponse, stream: HttpStream) -> None:
        super().__init__(no_response.why)
        self.no_response = no_response
        self.stream = stream


class HttpStream(Protocol):
    """An answer whose body is taken as it comes, within the request's deadline and bounds.

    Iterate once: ``async for chunk in stream``. Each chunk is decoded and not empty. Raises StreamBroken.
    """

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, Sequence[str]]: ...

    def __aiter__(self) -> AsyncIterator[bytes]: ...


class DialObserver(Protocol):
    """An observer of new connections. A place is a scheme, a host and a port, as in a URL."""

    def reached(self, place: str) -> None:
        """Record a new connection to *place*."""
        ...

    def failed(self, place: str, kind: NoResponseKind) -> None:
        """Record that no connection to *place* could be made, and why."""
        ...


class Transport(Protocol):
    """Sends requests to providers' APIs, each at most once; knows exactly whether it left (D7).

    Both methods raise InvalidInputError, with nothing sent, for a request that cannot be put into HTTP. A
    cancellation passes up at any time, and the connection is not used again.
    """

    async def send(self, request: HttpRequest) -> HttpResponse | NoResponse:
        """The whole answer."""
        ...

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[HttpStream | NoResponse]:
        """The answer's head, and its body as it comes. Whoever leaves before its end drops the connection."""
        ...
