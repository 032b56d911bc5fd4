"""A deadline that does not drop a response which arrived while this process was suspended.

After a suspension (a paused machine, SIGSTOP) the deadline has passed, and the response may be in the
socket's buffer. Dropping it would lose the only copy of a token. So the deadline is extended by the time that
the timer was late, at most by its own length; but nothing is sent in that time.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

FROZEN_S = 0.2
"""A timer that fires later than this was delayed by a suspension, not by a busy loop."""


class Deadline:
    """A context manager that raises TimeoutError if its block takes longer, as asyncio.timeout does."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._loop = asyncio.get_running_loop()
        self._timeout = asyncio.timeout(None)
        self._timer: asyncio.TimerHandle
        self._deadline_mono: float

    @property
    def passed(self) -> bool:
        """Whether the deadline has passed, regardless of a suspension."""
        return self._loop.time() >= self._deadline_mono

    def restart(self) -> None:
        """Start the whole duration again from now."""
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
