"""Detect that the database is unavailable, for callers that can continue with cached data."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable
from typing import TypeVar

from fairlead._core.clock import Clock
from fairlead.engine.base.timing import with_deadline
from fairlead.errors import DependencyUnavailableError

MAX_STALE_S = 300.0
"""How long callers use cached data during an outage."""
UNRESPONSIVE_AFTER_S = 2.0
"""How long a caller that has a cached value waits for PostgreSQL before treating it as unavailable."""
CANCELLED_AFTER_S = 0.5
"""A caller that is cancelled after waiting this long also marks PostgreSQL as unavailable."""
PROBE_EVERY_S = 5.0
"""How often one caller probes PostgreSQL during an outage; the others do not wait for it."""

T = TypeVar("T")


class DatabaseOutage:
    """The availability of the database, as the callers of one purpose see it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._is_down = False
        self._until_mono = -math.inf

    def is_active(self) -> bool:
        """Return whether the database is unavailable and need not be queried now."""
        return self._clock.monotonic() < self._until_mono

    async def query(self, read: Awaitable[T], *, needed: bool) -> T:
        """Await *read* and return its result.

        Args:
            read: A query of the database.
            needed: False if the caller has cached data; an unresponsive database then counts as unavailable.

        Raises:
            DependencyUnavailableError: The database is unavailable.
        """
        if self._is_down:
            self._mark_down()  # for all others, while this one probes
        started_mono = self._clock.monotonic()
        try:
            result = await (
                read if needed else with_deadline(read, self._clock, UNRESPONSIVE_AFTER_S, _silent)
            )
        except DependencyUnavailableError:
            self._mark_down()
            raise
        except asyncio.CancelledError:
            if self._clock.monotonic() - started_mono >= CANCELLED_AFTER_S:
                self._mark_down()
            raise
        self._is_down, self._until_mono = False, -math.inf
        return result

    def _mark_down(self) -> None:
        self._is_down, self._until_mono = True, self._clock.monotonic() + PROBE_EVERY_S


def _silent() -> DependencyUnavailableError:
    return DependencyUnavailableError(f"the database has not responded for {UNRESPONSIVE_AFTER_S:g} s")
