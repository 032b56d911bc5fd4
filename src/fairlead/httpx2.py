"""SDKs of others within every limit: requests of httpx2 become calls of a connection.

    http = httpx2.AsyncClient(transport=Transport(fl, "acme", "openai"))

Needs `pip install 'fairlead[httpx2]'`.
"""

from __future__ import annotations

from fairlead.app.client.connection_transport import ConnectionTransport, ResponseStream, extensions_of
from fairlead.errors import DependencyUnavailableError

try:
    import httpx2
except ImportError as error:
    raise DependencyUnavailableError(
        "httpx2 is not installed", hint="pip install 'fairlead[httpx2]'"
    ) from error

__all__ = ["Transport"]


class Transport(ConnectionTransport, httpx2.AsyncBaseTransport):
    """A transport of httpx2 that sends through a connection. `ConnectionTransport` says what becomes of a call."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send *request*; see the class."""
        body, headers = await request.aread(), request.headers.multi_items()
        response = await self._forward(request.method, str(request.url), headers, body, request.extensions)
        stream = _Body(response, self._open)
        return httpx2.Response(
            response.status, headers=response.headers, stream=stream, extensions=extensions_of(response)
        )


class _Body(ResponseStream, httpx2.AsyncByteStream):
    pass
