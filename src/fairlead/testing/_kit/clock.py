"""Clocks for tests: virtual time that the test advances, and the real one.

`ManualClock` satisfies ``fairlead._core.clock.Clock``. A sleeper parks until the test advances time past its due
instant, so a test of minutes runs in milliseconds.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable

_ROUNDS = 50  # loop passes granted to a woken task, so that a chain of sleeps fits into one advance


class SystemClock:
    """The real monotonic clock of this process, for tools that run outside fairlead's runtime."""

    def monotonic(self) -> float:
        """Return the system's monotonic clock in seconds; on Linux and macOS comparable across processes."""
        return time.monotonic()

    async def sleep(self, delay_s: float) -> None:
        """Return after *delay_s* real seconds."""
        await asyncio.sleep(delay_s)

    def call_later(self, delay_s: float, act: Callable[[], None]) -> Callable[[], None]:
        """Call *act* in the running loop after *delay_s* real seconds; return a function that cancels it."""
        return asyncio.get_running_loop().call_later(delay_s, act).cancel


class ManualClock:
    """A clock of virtual time that stands still until `advance`.

    Args:
        start: The first reading in seconds.
        autojump_s: Jump to the next sleeper once no sleep has begun for that many real seconds; 0 jumps at once,
            None (default) never.
    """

    def __init__(self, start: float = 0.0, *, autojump_s: float | None = None) -> None:
        self._now = start
        self._autojump_s = autojump_s
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()
        self._parked = asyncio.Event()
        self._jump: asyncio.TimerHandle | None = None

    def monotonic(self) -> float:
        """Return the virtual time in seconds."""
        return self._now

    @property
    def sleepers(self) -> int:
        """The number of tasks parked in `sleep`."""
        return sum(not sleeper.done() for _, _, sleeper in self._sleepers)

    async def sleep(self, delay_s: float) -> None:
        """Park until virtual time has moved by *delay_s*; at 0 or less only yield once."""
        if delay_s <= 0:
            await asyncio.sleep(0)
            return
        await self._park(delay_s)

    def call_later(self, delay_s: float, act: Callable[[], None]) -> Callable[[], None]:
        """Call *act* once virtual time has moved by *delay_s*; return a function that cancels it."""
        sleeper = self._park(delay_s)
        sleeper.add_done_callback(lambda done: None if done.cancelled() else act())
        return lambda: None if sleeper.done() else _cancel(sleeper)

    def _park(self, delay_s: float) -> asyncio.Future[None]:
        sleeper: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + delay_s, next(self._order), sleeper))
        self._parked.set()
        self._arm_jump()
        return sleeper

    async def advance(self, delay_s: float) -> None:
        """Move time by *delay_s*, and wake sleepers in due order, each at its own instant.

        Tasks that sleep again inside the span are woken again. Raise ValueError for a negative span.
        """
        if delay_s < 0:
            raise ValueError(f"time cannot go back by {-delay_s} s; hint: pass a span of 0 or more")
        until = self._now + delay_s
        await _settle()
        while self._sleepers and self._sleepers[0][0] <= until:
            self._wake_next()
            await _settle()
        self._now = until

    async def wait_sleepers(self, count: int = 1) -> None:
        """Return once at least *count* tasks are parked; the event to wait for before `advance`."""
        while self.sleepers < count:
            self._parked.clear()
            await self._parked.wait()

    def _wake_next(self) -> None:
        due, _, sleeper = heapq.heappop(self._sleepers)
        if not sleeper.done():  # a cancelled sleeper moves no time
            self._now = max(self._now, due)
            sleeper.set_result(None)

    def _arm_jump(self) -> None:
        if self._autojump_s is None:
            return
        if self._jump is not None:
            self._jump.cancel()
        self._jump = asyncio.get_running_loop().call_later(self._autojump_s, self._jump_now)

    def _jump_now(self) -> None:
        self._jump = None
        if self._sleepers:
            self._wake_next()
        if self._sleepers:
            self._arm_jump()


def _cancel(sleeper: asyncio.Future[None]) -> None:
    sleeper.cancel()


async def _settle() -> None:
    for _ in range(_ROUNDS):
        await asyncio.sleep(0)
