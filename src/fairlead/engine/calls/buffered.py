"""An answer that was read whole, given piece by piece all the same."""

from __future__ import annotations

from collections.abc import AsyncIterator

from fairlead.engine.ports.http import HttpResponse, HttpStream, NoResponse, StreamBroken

MOST_OF_A_FAILURE = 64 << 10
"""Bytes of a failed answer that are read where the answer was to be streamed."""


class BufferedStream:
    """See HttpStream: its body has come already, and cannot break off."""

    def __init__(self, response: HttpResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self._body = response.body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._body:
            yield self._body


def read_none(_stream: HttpStream) -> bool:
    """No answer is read whole before it is given."""
    return False


async def read(stream: HttpStream, *, whole: bool) -> HttpResponse | NoResponse:
    """All of it, or the beginning: what is wrong stands there."""
    body = bytearray()
    most = None if whole else MOST_OF_A_FAILURE
    try:
        async for chunk in stream:
            body += chunk
            if most is not None and len(body) >= most:
                break
    except StreamBroken as broken:
        return broken.no_response
    return HttpResponse(stream.status, stream.headers, bytes(body[:most]), 0.0)
