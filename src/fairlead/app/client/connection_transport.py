"""What the transports for httpx and httpx2 have in common, which is all but the names of these. Spec: C1."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fairlead.app.client.forwarding import FOREIGN_BYTES, ForwardedRequest, ForwardedResponse, deadline_of

if TYPE_CHECKING:
    from fairlead.app.fairlead import Fairlead

_WITH_BODY = ("POST", "PUT", "PATCH")


class ConnectionTransport:
    """Sends what a client of another library asks through a connection's token, limits, retries and breaker.

    Credentials of the library's own are left out, the connection's are added; to other hosts than the
    provider's nothing is sent (InvalidInputError). Switch retries of the library off: they are made here. An
    answer of whatever status is given as it came; for one that failed ``response.extensions["fairlead"]`` is
    the CallFailedError that tells what it was judged to be. Where there is no answer, and where nothing was sent,
    fairlead's own error is raised (CallFailedError, LimitExceededError, ReauthRequiredError, ...), for a job
    to pass on.

    Bodies of requests are held in memory. JSON and XML are read whole before they are given, as a failure
    may stand in them; all else (server-sent events, files) is streamed and holds its slot till its end.
    *deadline_s*: for all of a call; default the connection's (60), or the client's own read timeout where
    that is over 60. *idempotent*: a POST may be sent twice though the provider may have acted (default: only
    with an Idempotency-Key). *priority*: the class of its calls, see CallOptions. *max_body_bytes*: default
    64 MiB.
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
        """Drop the answers that are still under way."""
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
    """The body of an answer as it comes, among the *open_ones* of its transport until it is closed."""

    def __init__(self, forwarded: ForwardedResponse, open_ones: set[ResponseStream]) -> None:
        self._forwarded = forwarded
        self._open = open_ones
        open_ones.add(self)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._forwarded:
            yield chunk

    async def aclose(self) -> None:
        """Drop what has not come yet."""
        self._open.discard(self)
        await self._forwarded.aclose()


def extensions_of(forwarded: ForwardedResponse) -> dict[str, Any]:
    """What a response of the library tells besides: of a failure the error that it is."""
    return {} if forwarded.error is None else {"fairlead": forwarded.error}
