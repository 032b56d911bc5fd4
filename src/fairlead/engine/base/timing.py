"""Waits that end: a time limit, and an event with a timeout, on the injected clock. Spec: D9."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Protocol, TypeVar

from fairlead._core.clock import Clock

T = TypeVar("T")

IGNORED_S = 5.0
"""A block that still runs this long after its limit counts as ignoring it."""
LEAVE_S = 2.0
"""How long an operation without a reader may take at a stop, as a store may be unresponsive."""


class TimeLimit:
    """``async with TimeLimit(clock, 5.0):`` raises TimeoutError where the block takes longer.

    Like asyncio.timeout, but on the given clock. The block is cancelled from inside its own task, so a block
    that finishes after all keeps its result, and a cancellation from outside stays one. ``expired`` says
    afterwards whether the limit was exceeded.

    Args:
        clock: The clock.
        limit_s: The limit in seconds. None: only `expire` ends the block.
        ignored: Called if the block still runs 5 s after the limit, and each time that has doubled.
    """

    def __init__(
        self, clock: Clock, limit_s: float | None, *, ignored: Callable[[float], None] | None = None
    ) -> None:
        self._ignored = ignored
        self._stop: Callable[[], None] | None = None
        self._clock = clock
        self._limit_s = limit_s
        self._task: asyncio.Task[object] | None = None  # in the block
        self.expired = False

    async def __aenter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._cancelling = task.cancelling()
        if self._limit_s is not None:
            self._stop = self._clock.call_later(
                self._limit_s, self.expire
            )  # no task: one a job would be dear

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        if self._stop is not None:
            self._stop()
        if not self.expired:
            return
        assert task is not None
        ours_only = task.uncancel() <= self._cancelling
        if ours_only and kind is not None and issubclass(kind, asyncio.CancelledError):
            within = "before it was given up" if self._limit_s is None else f"within {self._limit_s:g} s"
            raise TimeoutError(f"not done {within}") from error

    def expire(self) -> None:
        """End the block now, as if it had taken too long; nothing if it does not run."""
        if self._task is not None and not self.expired:
            self.expired = True
            self._task.cancel()
            if self._ignored is not None:
                self._report_ignored(self._ignored, IGNORED_S, IGNORED_S)

    def _report_ignored(self, ignored: Callable[[float], None], over_s: float, wait_s: float) -> None:
        def report() -> None:
            self._report_ignored(ignored, 2 * over_s, over_s)
            ignored(over_s)

        self._stop = self._clock.call_later(wait_s, report)


async def with_deadline(
    operation: Awaitable[T], clock: Clock, at_most_s: float, late: Callable[[], Exception]
) -> T:
    """Return the result of *operation*.

    Args:
        operation: What to await.
        clock: The clock.
        at_most_s: The limit in seconds; below 0 counts as 0.
        late: Makes the exception to raise after the limit.
    """
    limit = TimeLimit(clock, max(0.0, at_most_s))
    try:
        async with limit:
            return await operation
    except TimeoutError:
        if not limit.expired:
            raise
        raise late() from None


async def gather_all(*operations: Awaitable[T]) -> list[T]:
    """Return the results of *operations* in order.

    The first error is raised once all have ended, so that nothing keeps running.
    """
    results: list[T] = []
    for result in await asyncio.gather(*operations, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
        results.append(result)
    return results


class Waitable(Protocol):
    """A thing that can be waited for, as an asyncio.Event is."""

    def is_set(self) -> bool: ...

    async def wait(self) -> object: ...


async def wait_event(event: Waitable, clock: Clock, at_most_s: float) -> bool:
    """Wait for *event* for at most *at_most_s* seconds, and return whether it is set."""
    if event.is_set():
        return True
    try:
        async with TimeLimit(clock, at_most_s):
            await event.wait()
    except TimeoutError:
        return event.is_set()
    return True
