"""The one shape of a background service: a pass, a wait, and again, whatever a pass may meet.

A failed pass is told once, when the service begins to fail, and once when it works again: an outage of a
minute is two lines of each service, not sixty (E14). While passes fail the wait doubles: up to 2 s while
the store is away, else up to the interval.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from fairlead._core.clock import Clock, Draw
from fairlead.engine.base.timing import LEAVE_S, TimeLimit, wait_event
from fairlead.errors import DependencyUnavailableError
from fairlead.events import Emit, Event, ServiceFailed, ServiceRecovered, StoreReachable, StoreUnreachable
from fairlead.policy.failures.backoff import Jitter, backoff_s
from fairlead.policy.text.safe import safe_text

STORE = "database"
RETRY_BASE_S = 0.1
RETRY_CAP_S = 2.0
"""The longest wait for a store that is away: P14 promises work again within 5 s of its return."""

Pass = Callable[[], Awaitable[float | None]]
"""One round of work; returns the seconds until the next is due, or None for the service's interval."""


def is_outage(error: Exception) -> bool:
    """True where *error* says that the store is away, not that something is wrong with what it was asked."""
    return isinstance(error, DependencyUnavailableError | ConnectionError | TimeoutError)


class FailureReporter:
    """Tells the beginning and the end of trouble, and how long to wait in between; never each try.

    *name* is the service's; an outage is told as one of the store.
    """

    def __init__(self, name: str, *, clock: Clock, draw: Draw, emit: Emit) -> None:
        self._name = name
        self._clock = clock
        self._draw = draw
        self._emit = emit
        self._failures = 0
        self._since = 0.0
        self._outage = False

    @property
    def failing_s(self) -> float:
        """Seconds since the first of the failures that have not ended; 0.0 in good health."""
        return self._clock.monotonic() - self._since if self._failures else 0.0

    def failure(self, error: Exception, cap_s: float = RETRY_CAP_S) -> float:
        """Note a failure; the seconds to wait before the next try, at most *cap_s* (2 s in an outage)."""
        outage = is_outage(error)
        if not self._failures:
            self._since = self._clock.monotonic()
        if not self._failures or outage != self._outage:
            self._emit(self._event(error, outage))
        self._outage = outage
        self._failures += 1
        cap_s = min(cap_s, RETRY_CAP_S) if outage else cap_s
        return backoff_s(
            self._failures - 1,
            base_s=min(RETRY_BASE_S, cap_s),
            cap_s=cap_s,
            jitter=Jitter.EQUAL,
            draw=self._draw(),
        )

    def success(self) -> None:
        """Note that all is well."""
        if not self._failures:
            return
        away_s = self.failing_s
        self._failures = 0
        self._emit(StoreReachable(STORE, away_s) if self._outage else ServiceRecovered(self._name, away_s))

    def _event(self, error: Exception, outage: bool) -> Event:
        reason = safe_text(error)
        return (
            StoreUnreachable(STORE, f"{self._name}: {reason}")
            if outage
            else ServiceFailed(self._name, reason)
        )


class Service:
    """Runs *one_pass* every *interval_s* seconds, spread by a tenth: processes do not march in step.

    While *ready* says no (default: it is always ready) the pass is left out.
    """

    def __init__(
        self,
        name: str,
        one_pass: Pass,
        *,
        interval_s: float,
        clock: Clock,
        draw: Draw,
        emit: Emit,
        ready: Callable[[], bool] = lambda: True,
    ) -> None:
        self.name = name
        self._pass = one_pass
        self._ready = ready
        self._interval_s = interval_s
        self._clock = clock
        self._draw = draw
        self._reporter = FailureReporter(name, clock=clock, draw=draw, emit=emit)
        self._woken = asyncio.Event()
        self._stopping = False
        self._under_way: TimeLimit | None = None

    async def run(self) -> None:
        """Work until ``stop``; a pass under way has a moment to end, then it is cut, as a kill would do."""
        while not self._stopping:
            self._woken.clear()
            wait_s = await self._guarded_pass()
            if not self._stopping:
                await wait_event(self._woken, self._clock, wait_s)

    def wake(self) -> None:
        """Begin the next pass now."""
        self._woken.set()

    def stop(self) -> None:
        """Begin no further pass."""
        self._stopping = True
        self._woken.set()
        if self._under_way is not None:
            self._clock.call_later(LEAVE_S, self._under_way.expire)

    async def _guarded_pass(self) -> float:
        if not self._ready():  # no pass is no sign of health either
            return min(self._interval_s, RETRY_CAP_S)
        self._under_way = limit = TimeLimit(self._clock, None)
        try:
            async with limit:
                wait_s = await self._pass()
        except Exception as error:  # noqa: BLE001 (a service outlives whatever a pass meets; it is told)
            if limit.expired:
                return 0.0
            return self._reporter.failure(error, max(RETRY_CAP_S, self._interval_s))
        self._reporter.success()
        if wait_s is not None:
            return wait_s
        return self._interval_s * (0.95 + 0.1 * self._draw())


async def ended(task: asyncio.Task[None], stop: Callable[[], None]) -> None:
    """Stop a background task and wait for it; raise its failure."""
    stop()
    await task
