"""An answer that was read whole, given piece by piece all the same."""

from __future__ import annotations

from collections.abc import AsyncIterator

from fairlead.engine.ports.http import HttpAnswer, HttpStream, NoAnswer, StreamBroken

MOST_OF_A_FAILURE = 64 << 10
"""Bytes of a failed answer that are read where the answer was to be streamed."""


class WholeStream:
    """See HttpStream: its body has come already, and cannot break off."""

    def __init__(self, answer: HttpAnswer) -> None:
        self.status = answer.status
        self.headers = answer.headers
        self._body = answer.body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._body:
            yield self._body


def never(_stream: HttpStream) -> bool:
    """No answer is read whole before it is given."""
    return False


async def read(stream: HttpStream, *, whole: bool) -> HttpAnswer | NoAnswer:
    """All of it, or the beginning: what is wrong stands there."""
    body = bytearray()
    most = None if whole else MOST_OF_A_FAILURE
    try:
        async for chunk in stream:
            body += chunk
            if most is not None and len(body) >= most:
                break
    except StreamBroken as broken:
        return broken.no_answer
    return HttpAnswer(stream.status, stream.headers, bytes(body[:most]), 0.0)
