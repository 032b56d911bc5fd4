"""Responses that are read to their end before they are returned."""

from __future__ import annotations

from collections.abc import AsyncIterator

from fairlead.engine.ports import HttpResponse, HttpStream, NoResponse, StreamBrokenError

MAX_FAILURE_BYTES = 64 << 10
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


def reads_no_response(_stream: HttpStream) -> bool:
    """Return False, so that no successful response is read to its end."""
    return False


async def read_body(stream: HttpStream, *, is_whole: bool) -> HttpResponse | NoResponse:
    """Read the body of *stream*, and return it as a response.

    Args:
        is_whole: Whether to read all of it. False: only the first 64 KiB, enough to state a failure.
    """
    body = bytearray()
    max_bytes = None if is_whole else MAX_FAILURE_BYTES
    try:
        async for chunk in stream:
            body += chunk
            if max_bytes is not None and len(body) >= max_bytes:
                break
    except StreamBrokenError as broken:
        return broken.no_response
    return HttpResponse(stream.status, stream.headers, bytes(body[:max_bytes]), 0.0)
