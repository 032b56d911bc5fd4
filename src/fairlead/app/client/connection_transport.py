"""The common base of the transports for httpx and httpx2. Spec: C1."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fairlead.app.client.forwarding import FOREIGN_BYTES, ForwardedRequest, ForwardedResponse, deadline_of

if TYPE_CHECKING:
    from fairlead.app.fairlead import Fairlead

_WITH_BODY = ("POST", "PUT", "PATCH")


class ConnectionTransport:
    """A transport that sends the requests of another HTTP library through a connection.

    Each request has the connection's token, and obeys its limits, retries and breaker. Credentials of the
    library are left out. Requests to other hosts than the provider's are not sent (InvalidInputError). Turn
    off retries of the library, because fairlead retries.

    A response is returned whatever its status. For a failed one ``response.extensions["fairlead"]`` is the
    CallFailedError with its classification. If there is no response, or nothing was sent, fairlead's own
    error is raised (CallFailedError, LimitExceededError, ReauthRequiredError, ...), which a job can let pass.

    Request bodies are held in memory. JSON and XML responses are read whole first, because they may contain a
    failure. All others (server-sent events, files) are streamed and hold their slot until the end.

    Args:
        deadline_s: Bounds all of a call. Default: the connection's (60), or the library's own read timeout if
            that is above 60.
        idempotent: Whether a POST may be retried although the provider may have acted. Default: only with an
            Idempotency-Key.
        priority: The class of its calls; see CallOptions.
        max_body_bytes: Default 64 MiB.
    """

    def __init__(
        self,
        fl: Fairlead,
        tenant: str,
        provider: str,
        account: str = "default",
        *,
        deadline_s: float | None = None,
        idempotent: bool | None = None,
        priority: str | int | None = None,
        max_body_bytes: int = FOREIGN_BYTES,
    ) -> None:
        self._client = fl.client(tenant, provider, account)
        self._deadline_s = deadline_s
        self._idempotent = idempotent
        self._priority = priority
        self._max_body_bytes = max_body_bytes
        self._open: set[ResponseStream] = set()

    async def aclose(self) -> None:
        """Drop the responses that are still being read."""
        for body in tuple(self._open):
            await body.aclose()

    async def _forward(
        self,
        method: str,
        url: str,
        headers: Sequence[tuple[str, str]],
        body: bytes,
        extensions: Mapping[str, Any],
    ) -> ForwardedResponse:
        return await self._client.forward(
            ForwardedRequest(
                method,
                url,
                headers,
                body if body or method in _WITH_BODY else None,
                self._priority,
                deadline_of(self._deadline_s, extensions.get("timeout", {}).get("read")),
                self._idempotent,
                self._max_body_bytes,
            )
        )


class ResponseStream:
    """The body of a response as it arrives. It is one of the *open_streams* of its transport until closed."""

    def __init__(self, forwarded: ForwardedResponse, open_streams: set[ResponseStream]) -> None:
        self._forwarded = forwarded
        self._open = open_streams
        open_streams.add(self)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._forwarded:
            yield chunk

    async def aclose(self) -> None:
        """Drop the rest of the body."""
        self._open.discard(self)
        await self._forwarded.aclose()


def extensions_of(forwarded: ForwardedResponse) -> dict[str, Any]:
    """Return the extensions of the library's response: the error, if it is a failure."""
    return {} if forwarded.error is None else {"fairlead": forwarded.error}
