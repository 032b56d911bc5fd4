"""Time, chance and ids from the operating system: the implementations of the ports that tests replace. Spec: D9."""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import time
from collections.abc import Callable
from uuid import UUID

from fairlead._core.ids import uuid7_from

draw = random.random
"""The source of jitter: a number in [0, 1). Not for secrets."""


def epoch_s() -> float:
    """Return the Unix time of the wall clock, for comparison with instants of other systems only.

    Spec: R10.
    """
    return time.time()


class SystemClock:
    """Monotonic time of this process; see ``fairlead._core.clock.Clock``."""

    def __init__(self) -> None:
        self._batch: _Batch | None = None

    monotonic = staticmethod(time.monotonic)
    """Seconds since an arbitrary start; never goes back. The function itself: each call reads it a dozen times."""

    async def sleep(self, delay_s: float) -> None:
        """Return after *delay_s* seconds."""
        await asyncio.sleep(delay_s)

    def call_later(self, delay_s: float, act: Callable[[], None]) -> Callable[[], None]:
        """Call *act* in the running loop after *delay_s* seconds; return a function that cancels it.

        The timer is set in the next iteration of the loop, and only for calls that are not cancelled by then: a
        job that ends at once sets none.
        """
        loop = asyncio.get_running_loop()
        batch = self._batch
        if batch is None or batch.loop is not loop or batch.armed:
            self._batch = batch = _Batch(loop)
            loop.call_soon(batch.arm)
        call = _Call(loop.time() + delay_s, act)
        batch.calls.append(call)
        return call.cancel


class _Call:
    """A scheduled call, with its timer once the timer is set."""

    __slots__ = ("act", "due_mono", "timer")

    def __init__(self, due_mono: float, act: Callable[[], None]) -> None:
        self.due_mono = due_mono
        self.act: Callable[[], None] | None = act
        self.timer: asyncio.TimerHandle | None = None

    def cancel(self) -> None:
        self.act = None
        if self.timer is not None:
            self.timer.cancel()


class _Batch:
    """The calls that one iteration of a loop has scheduled. Each thread has its own loop, and so its own batches."""

    __slots__ = ("armed", "calls", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.calls: list[_Call] = []
        self.armed = False

    def arm(self) -> None:
        self.armed = True
        for call in self.calls:
            if call.act is not None:
                call.timer = self.loop.call_at(call.due_mono, call.act)


class SystemIds:
    """Random identifiers; see ``fairlead._core.ids.Ids``."""

    def __init__(self) -> None:
        self._last = 0

    def uuid7(self) -> UUID:
        """Return a version 7 UUID greater than all earlier ones, so that jobs of one call run in order.

        As the RFC allows, it has a fraction of the millisecond in place of random bits. Order is not
        guaranteed between threads or processes.
        """
        ms, rest_ns = divmod(time.time_ns(), 1_000_000)
        self._last = now = max(ms << 12 | rest_ns * 4096 // 1_000_000, self._last + 1)
        return uuid7_from(now >> 12, (now & 0xFFF) << 62 | int.from_bytes(os.urandom(8), "big") >> 2)

    def lease_id(self) -> int:
        """Return a random number from 1 to 2^63 - 1."""
        return int.from_bytes(os.urandom(8)) >> 1 or 1

    def nonce(self) -> str:
        """Return random text from the kernel's generator."""
        return secrets.token_urlsafe(32)
