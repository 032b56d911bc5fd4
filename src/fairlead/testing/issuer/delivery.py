"""Writes a response to the wire: completely, slowly, in part, or not at all, and reports whether it was sent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Literal

from fairlead.testing.issuer.quirks import Quirk
from fairlead.testing.issuer.wire import WireResponse, encode

_PIECES = 10  # parts of a slow head or body
_POLL_S = 0.02  # how often a hung request checks whether its client has left

Pause = Callable[[float], Awaitable[None]]


class ResponseWriter:
    """The writer of one response to a client's connection.

    Args:
        transport: None when the client has left.
        pause: Waits on the issuer's clock; returns early when the issuer stops.
        stopping: Is set when the issuer stops.
    """

    def __init__(
        self, transport: asyncio.Transport | None, keep_alive: bool, pause: Pause, stopping: asyncio.Event
    ) -> None:
        self._transport = transport
        self.keep_alive = keep_alive
        self.has_written = False
        self._pause = pause
        self._stopping = stopping

    @property
    def is_open(self) -> bool:
        """Whether the connection is open, as far as the kernel knows."""
        return self._transport is not None and not self._transport.is_closing()

    async def send(self, response: WireResponse, quirk: Quirk | None) -> bool:
        """Write *response* as *quirk* says; return whether its last byte went to an open connection."""
        head, body = encode(response, keep_alive=self.keep_alive)
        if quirk is None:
            return await self._write(head + body)
        if quirk.hang == "after" or quirk.cut == "after":
            await self.lose("hang" if quirk.hang == "after" else "cut")
            return False
        data = head + body
        size = len(data)
        if isinstance(quirk.cut, int):
            data = data[: quirk.cut]
        sent = await self._write_slowly(data, len(head), quirk)
        if len(data) == size:
            return sent
        await self.lose("cut")
        return False

    async def lose(self, how: Literal["cut", "hang"]) -> None:
        """Close without another byte: now, or for "hang" when the issuer stops or the client leaves."""
        while how == "hang" and self.is_open and not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), _POLL_S)
        self.keep_alive = False
        if self._transport is not None:
            self._transport.close()

    async def _write_slowly(self, data: bytes, head_size: int, quirk: Quirk) -> bool:
        for part, delay_s in ((data[:head_size], quirk.slow_head_s), (data[head_size:], quirk.slow_body_s)):
            size = len(part) if delay_s == 0 else max(1, -(-len(part) // _PIECES))
            for start in range(0, len(part), max(1, size)):
                if delay_s:
                    await self._pause(delay_s / _PIECES)
                if not await self._write(part[start : start + size]):
                    return False
        return True

    async def _write(self, data: bytes) -> bool:
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        transport.write(data)
        self.has_written = True
        while transport.get_write_buffer_size() and not transport.is_closing():
            if self._stopping.is_set():
                return False
            await asyncio.sleep(0.001)
        return not transport.is_closing()
