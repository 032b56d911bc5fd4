"""A background service: one pass, a wait, and the next pass, whatever a pass raises.

A failure is reported once when a service starts to fail, and once when it recovers, so an outage of a minute
is two log lines for each service. While passes fail the wait doubles: up to 2 s during an outage of the
store, else up to the interval.
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
"""The longest wait during an outage of the store, because work resumes within 5 s of its return. Spec: P14."""

Pass = Callable[[], Awaitable[float | None]]
"""One round of work; returns the seconds until the next is due, or None for the service's interval."""


def is_outage(error: Exception) -> bool:
    """Return whether *error* means that the store is unavailable, not that a request was wrong."""
    return isinstance(error, DependencyUnavailableError | ConnectionError | TimeoutError)


class FailureReporter:
    """Report when a service starts to fail and when it recovers, and compute the retry delay.

    Failures in between are not reported. An outage is reported as one of the store.

    Args:
        name: The name of the service.
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
        """Seconds since the first failure that has not ended; 0.0 while the service works."""
        return self._clock.monotonic() - self._since if self._failures else 0.0

    def failure(self, error: Exception, cap_s: float = RETRY_CAP_S) -> float:
        """Record *error* and return the seconds until the next attempt.

        Args:
            error: The failure.
            cap_s: The longest delay; 2 s at most in an outage.
        """
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
        """Record that a pass succeeded."""
        if not self._failures:
            return
        outage_s = self.failing_s
        self._failures = 0
        self._emit(
            StoreReachable(STORE, outage_s) if self._outage else ServiceRecovered(self._name, outage_s)
        )

    def _event(self, error: Exception, outage: bool) -> Event:
        reason = safe_text(error)
        return (
            StoreUnreachable(STORE, f"{self._name}: {reason}")
            if outage
            else ServiceFailed(self._name, reason)
        )


class Service:
    """A task that runs *one_pass* every *interval_s* seconds.

    The interval varies by a tenth, so that processes do not run in step. While *ready* returns False the pass is
    skipped.
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
        self._pass_limit: TimeLimit | None = None

    async def run(self) -> None:
        """Run passes until ``stop``. A pass that is under way then has 2 s to end before it is cancelled."""
        while not self._stopping:
            self._woken.clear()
            wait_s = await self._guarded_pass()
            if not self._stopping:
                await wait_event(self._woken, self._clock, wait_s)

    def wake(self) -> None:
        """Start the next pass now."""
        self._woken.set()

    def stop(self) -> None:
        """Start no further pass, and cancel one that is under way after 2 s."""
        self._stopping = True
        self._woken.set()
        if self._pass_limit is not None:
            self._clock.call_later(LEAVE_S, self._pass_limit.expire)

    async def _guarded_pass(self) -> float:
        """Run one pass and report its failure; return the seconds until the next."""
        if not self._ready():  # a skipped pass does not count as a success
            return min(self._interval_s, RETRY_CAP_S)
        self._pass_limit = limit = TimeLimit(self._clock, None)  # without a limit until `stop`
        try:
            async with limit:
                wait_s = await self._pass()
        except Exception as error:  # noqa: BLE001 (a service survives any failure of a pass, and reports it)
            if limit.expired:  # `stop` has ended the pass
                return 0.0
            return self._reporter.failure(error, max(RETRY_CAP_S, self._interval_s))
        self._reporter.success()
        if wait_s is not None:
            return wait_s
        return self._interval_s * (0.95 + 0.1 * self._draw())


async def ended(task: asyncio.Task[None], stop: Callable[[], None]) -> None:
    """Stop a background task, wait for it, and raise its failure."""
    stop()
    await task
