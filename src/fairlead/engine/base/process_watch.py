"""Detects that this process cannot connect to anything, and checks until it can again.

    a connection fails by a fault of ours ─► process_health.py ─► sick: no claims ─► checks ─► well

Transports report each new connection. A check opens spare descriptors, and connects to places that failed and
to places that were reached before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from fairlead._core.clock import Clock, Draw
from fairlead.events import Emit, ProcessRecovered, ProcessUnhealthy
from fairlead.policy.failures import process_health as policy
from fairlead.policy.failures.process_health import HINTS, ProcessHealth


class ProcessWatch:
    """The health of one process. See fairlead.engine.ports.http.DialObserver.

    Args:
        reaches: Whether a new connection to a place succeeds.
        has_spare: Whether this process may open more descriptors.
        clock: The process's clock.
        draw: Spreads the checks in time.
        emit: Receives the events.
    """

    def __init__(
        self,
        reaches: Callable[[str], Awaitable[bool]],
        has_spare: Callable[[], bool],
        *,
        clock: Clock,
        draw: Draw,
        emit: Emit,
    ) -> None:
        self._reaches = reaches
        self._has_spare = has_spare
        self._clock = clock
        self._draw = draw
        self._emit = emit
        self._health = ProcessHealth()
        self._checks: asyncio.Task[None] | None = None
        self._on_well: list[Callable[[], None]] = []

    def may_claim(self) -> bool:
        """Return whether new jobs may start."""
        return not self._health.sick

    def trouble(self) -> str | None:
        """Describe the fault of this process for the operator; return None while it is well."""
        health = self._health
        return f"{health.sick}: {HINTS[health.sick]}" if health.sick else None

    def on_well(self, callback: Callable[[], None]) -> None:
        """Call *callback* whenever the process is well again."""
        self._on_well.append(callback)

    def reached(self, origin: str) -> None:
        """Record a new connection to *origin*."""
        self._health = policy.reached(self._health, origin)

    def failed(self, origin: str, kind: str) -> None:
        """Record that no connection to *origin* could be made, for the reason *kind*."""
        was_sick = self._health.sick
        self._health = health = policy.failed(self._health, origin, kind, self._clock.monotonic())
        if health.sick and not was_sick:
            self._emit(ProcessUnhealthy(health.sick, tuple(health.faults), HINTS[health.sick]))
            self._checks = asyncio.create_task(self._until_well(), name="fairlead-process-check")

    async def close(self) -> None:
        """End the checks."""
        if self._checks is not None:
            self._checks.cancel()
            await asyncio.wait({self._checks})

    async def _until_well(self) -> None:
        """Check the sick process until it is well, then report that and call the callbacks."""
        at_start = self._health
        while self._health.sick:
            await self._clock.sleep(policy.next_check_s(self._health) * (0.9 + 0.2 * self._draw()))
            is_connected = await self._is_connected(self._health)
            self._health = policy.checked(
                self._health,
                has_spare=self._has_spare(),
                is_connected=is_connected,
                now_mono=self._clock.monotonic(),
            )
        self._emit(ProcessRecovered(at_start.sick, round(self._clock.monotonic() - at_start.since_mono, 3)))
        for callback in self._on_well:
            callback()

    async def _is_connected(self, health: ProcessHealth) -> bool:
        """Return whether a destination can be reached: one that failed, or one that was reached before."""
        if health.sick == "descriptors":  # only spare descriptors count, and connections would use them up
            return True
        checks = map(self._reaches, health.destinations)
        results = await asyncio.gather(*checks, return_exceptions=True)  # no destination may end the checks
        return any(result is True for result in results)
