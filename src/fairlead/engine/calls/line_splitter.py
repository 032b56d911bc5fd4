"""Lines out of pieces of any size, with a bound on what is kept of one."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator

from fairlead._core.clock import Clock
from fairlead.engine.base.timing import TimeLimit

LONGEST_LINE_BYTES = 16 << 20


class LineTooLong(Exception):
    """A line has not ended within *longest_bytes*."""

    def __init__(self, longest_bytes: int) -> None:
        super().__init__(f"a line of the answer is longer than {longest_bytes} bytes")


async def lines_of(
    chunks: AsyncIterable[bytes], longest_bytes: int = LONGEST_LINE_BYTES
) -> AsyncIterator[bytes]:
    r"""The lines of *chunks* without their ends (``\n`` or ``\r\n``); the last one may have none.

    Raises LineTooLong before more than one line and one piece are held.
    """
    kept = bytearray()
    async for chunk in chunks:
        *ended, rest = chunk.split(b"\n")
        for piece in ended:
            kept += piece
            _check(kept, longest_bytes)
            yield bytes(kept.removesuffix(b"\r"))
            kept.clear()
        kept += rest
        _check(kept, longest_bytes)
    if kept:
        yield bytes(kept.removesuffix(b"\r"))


async def steady(chunks: AsyncIterable[bytes], clock: Clock, idle_s: float) -> AsyncIterator[bytes]:
    """Yield *chunks*; raise TimeoutError once none has come for *idle_s*."""
    coming = aiter(chunks)
    while True:
        try:
            async with TimeLimit(clock, idle_s):
                chunk = await anext(coming)
        except StopAsyncIteration:
            return
        yield chunk


def _check(kept: bytearray, longest_bytes: int) -> None:
    if len(kept) > longest_bytes:
        raise LineTooLong(longest_bytes)
