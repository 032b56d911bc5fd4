"""Puts an answer on the wire: whole, slowly, in part, or never. Tells how much of it left."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Literal

from fairlead.testing.issuer.quirks import Quirk
from fairlead.testing.issuer.wire import WireResponse, encode

_PIECES = 10  # a slow head or body goes out in so many parts
_LOOK_S = 0.02  # how often a hung request looks whether its client has left

Pause = Callable[[float], Awaitable[None]]


class ResponseWriter:
    """One client's connection, for one answer.

    *transport* is None when the client has left; `began` tells that some byte went out. *pause* waits
    on the issuer's clock and returns early when the issuer stops; *stopping* is set then.
    """

    def __init__(
        self, transport: asyncio.Transport | None, keep_alive: bool, pause: Pause, stopping: asyncio.Event
    ) -> None:
        self._transport = transport
        self.keep_alive = keep_alive
        self.began = False
        self._pause = pause
        self._stopping = stopping

    @property
    def up(self) -> bool:
        """Whether the client can still be written to, as far as the kernel has told."""
        return self._transport is not None and not self._transport.is_closing()

    async def send(self, answer: WireResponse, quirk: Quirk | None) -> bool:
        """Write *answer* as *quirk* wants; True when its last byte went to an open connection."""
        head, body = encode(answer, keep_alive=self.keep_alive)
        if quirk is None:
            return await self._write(head + body)
        if quirk.hang == "after" or quirk.cut == "after":
            await self.lose("hang" if quirk.hang == "after" else "cut")
            return False
        data = head + body
        whole = len(data)
        if isinstance(quirk.cut, int):
            data = data[: quirk.cut]
        sent = await self._write_slowly(data, len(head), quirk)
        if len(data) == whole:
            return sent
        await self.lose("cut")
        return False

    async def lose(self, how: Literal["cut", "hang"]) -> None:
        """Close without another byte: now, or (hang) when the issuer stops or the client leaves."""
        while how == "hang" and self.up and not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), _LOOK_S)
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
        self.began = True
        while transport.get_write_buffer_size() and not transport.is_closing():
            if self._stopping.is_set():
                return False
            await asyncio.sleep(0.001)
        return not transport.is_closing()
