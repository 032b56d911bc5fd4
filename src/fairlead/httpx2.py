"""SDKs of others within every limit: requests of httpx2 become calls of a connection (C1).

    http = httpx2.AsyncClient(transport=Transport(fl, "acme", "openai"))

Needs `pip install 'fairlead[httpx2]'`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from fairlead.app import Fairlead
from fairlead.app.client.foreign import FOREIGN_BYTES, ForeignRequest, Forwarded, deadline_of
from fairlead.errors import DependencyUnavailable

try:
    import httpx2
except ImportError as error:
    raise DependencyUnavailable("httpx2 is not installed", hint="pip install 'fairlead[httpx2]'") from error

__all__ = ["Transport"]


class Transport(httpx2.AsyncBaseTransport):
    """Sends what an `httpx2.AsyncClient` asks through a connection's token, limits, retries and breaker.

    Credentials of the library's own are left out, the connection's are added; to other hosts than the
    provider's nothing is sent (InputInvalid). Switch retries of the library off: they are made here. An
    answer of whatever status is given as it came; for one that failed ``response.extensions["fairlead"]`` is
    the CallFailed that tells what it was judged to be. Where there is no answer, and where nothing was sent,
    fairlead's own error is raised (CallFailed, GateClosed, ReauthRequired, ...), for a job to pass on.

    Bodies of requests are held in memory. JSON and XML are read whole before they are given, as a failure
    may stand in them; all else (server-sent events, files) is streamed and holds its slot till its end.
    *deadline_s*: for all of a call; default the connection's (60), or the client's own read timeout where
    that is over 60. *repeatable*: a POST may be sent twice though the provider may have acted (default: only
    with an Idempotency-Key). *priority*: the class of its calls, see CallOptions. *max_body_bytes*: default
    64 MiB.
    """

    def __init__(
        self,
        fl: Fairlead,
        tenant: str,
        provider: str,
        bucket: str = "default",
        *,
        deadline_s: float | None = None,
        repeatable: bool | None = None,
        priority: str | int | None = None,
        max_body_bytes: int = FOREIGN_BYTES,
    ) -> None:
        self._client = fl.client(tenant, provider, bucket)
        self._deadline_s = deadline_s
        self._repeatable = repeatable
        self._priority = priority
        self._max_body_bytes = max_body_bytes
        self._open: set[_Body] = set()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send *request*; see the class."""
        body = await request.aread()
        read_s = request.extensions.get("timeout", {}).get("read")
        forwarded = await self._client.forward(
            ForeignRequest(
                request.method,
                str(request.url),
                request.headers.multi_items(),
                body if body or request.method in ("POST", "PUT", "PATCH") else None,
                self._priority,
                deadline_of(self._deadline_s, read_s),
                self._repeatable,
                self._max_body_bytes,
            )
        )
        stream = _Body(forwarded, self._open)
        told = {} if forwarded.error is None else {"fairlead": forwarded.error}
        return httpx2.Response(forwarded.status, headers=forwarded.headers, stream=stream, extensions=told)

    async def aclose(self) -> None:
        """Drop the answers that are still under way."""
        for body in tuple(self._open):
            await body.aclose()


class _Body(httpx2.AsyncByteStream):
    def __init__(self, forwarded: Forwarded, open_ones: set[_Body]) -> None:
        self._forwarded = forwarded
        self._open = open_ones
        open_ones.add(self)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._forwarded:
            yield chunk

    async def aclose(self) -> None:
        self._open.discard(self)
        await self._forwarded.aclose()
