"""Splits a stream of chunks into lines of bounded length."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator

from fairlead._core.clock import Clock
from fairlead.engine.base.timing import TimeLimit

MAX_LINE_BYTES = 16 << 20


class LineTooLongError(Exception):
    """A line is longer than *longest_bytes*."""

    def __init__(self, longest_bytes: int) -> None:
        super().__init__(f"a line of the response is longer than {longest_bytes} bytes")


async def split_lines(
    chunks: AsyncIterable[bytes], longest_bytes: int = MAX_LINE_BYTES
) -> AsyncIterator[bytes]:
    r"""Yield the lines of *chunks* without their ends (``\n`` or ``\r\n``); the last one may have none.

    Raises:
        LineTooLongError: A line is longer than *longest_bytes*. At most one line and one chunk are in memory.
    """
    line = bytearray()
    async for chunk in chunks:
        *complete, rest = chunk.split(b"\n")
        for piece in complete:
            line += piece
            _check(line, longest_bytes)
            yield bytes(line.removesuffix(b"\r"))
            line.clear()
        line += rest
        _check(line, longest_bytes)
    if line:
        yield bytes(line.removesuffix(b"\r"))


async def with_idle_timeout(
    chunks: AsyncIterable[bytes], clock: Clock, idle_s: float
) -> AsyncIterator[bytes]:
    """Yield *chunks*; raise TimeoutError once none has come for *idle_s*."""
    iterator = aiter(chunks)
    while True:
        try:
            async with TimeLimit(clock, idle_s):
                chunk = await anext(iterator)
        except StopAsyncIteration:
            return
        yield chunk


def _check(line: bytearray, longest_bytes: int) -> None:
    if len(line) > longest_bytes:
        raise LineTooLongError(longest_bytes)
