"""A deadline for an answer that may be there already when this process wakes.

Whoever was frozen (a paused machine, SIGSTOP) wakes with its deadline past and the answer in its socket's
buffer. To drop that answer would burn a token that may be sent only once (E44). So who wakes late may read on
for as long as it was late, at most for the deadline once more; but nothing is sent in that time.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

FROZEN_S = 0.2
"""A timer later than this was held up by more than a busy loop."""


class Deadline:
    """``async with Deadline(15.0):`` raises TimeoutError where the block takes longer, as asyncio.timeout."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._loop = asyncio.get_running_loop()
        self._timeout = asyncio.timeout(None)
        self._timer: asyncio.TimerHandle
        self._deadline_mono: float

    @property
    def passed(self) -> bool:
        """Whether the deadline is over, however long this process stood still."""
        return self._loop.time() >= self._deadline_mono

    def restart(self) -> None:
        """Count the whole length anew from now."""
        self._timer.cancel()
        self._deadline_mono = self._loop.time() + self._limit_s
        self._timer = self._loop.call_at(self._deadline_mono, self._ring)

    async def __aenter__(self) -> Deadline:
        await self._timeout.__aenter__()
        self._deadline_mono = self._loop.time() + self._limit_s
        self._timer = self._loop.call_at(self._deadline_mono, self._ring)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        del self._timer  # its context holds the request, and that holds this: garbage that only the GC frees
        await self._timeout.__aexit__(kind, error, trace)

    def _ring(self) -> None:
        late_s = self._loop.time() - self._deadline_mono
        if late_s < FROZEN_S:
            self._end()
        else:
            self._timer = self._loop.call_later(min(late_s, self._limit_s), self._end)

    def _end(self) -> None:
        self._timeout.reschedule(self._loop.time())
