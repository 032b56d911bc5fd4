"""Responses that are read to their end before they are returned."""

from __future__ import annotations

from collections.abc import AsyncIterator

from fairlead.engine.ports import HttpResponse, HttpStream, NoResponse, StreamBrokenError

MOST_OF_A_FAILURE = 64 << 10
"""Bytes read of a failed response that was to be streamed."""


class BufferedStream:
    """An `HttpStream` with its body in memory."""

    def __init__(self, response: HttpResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self._body = response.body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._body:
            yield self._body


def read_none(_stream: HttpStream) -> bool:
    """Return False: no response is read whole."""
    return False


async def read(stream: HttpStream, *, is_whole: bool) -> HttpResponse | NoResponse:
    """Read the whole *stream*, or its first 64 KiB, which say what is wrong."""
    body = bytearray()
    max_bytes = None if is_whole else MOST_OF_A_FAILURE
    try:
        async for chunk in stream:
            body += chunk
            if max_bytes is not None and len(body) >= max_bytes:
                break
    except StreamBrokenError as broken:
        return broken.no_response
    return HttpResponse(stream.status, stream.headers, bytes(body[:max_bytes]), 0.0)
