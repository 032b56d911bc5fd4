"""Whether the database is away, as far as callers know who can go on without it for a while."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable
from typing import TypeVar

from fairlead._core.clock import Clock
from fairlead.engine.base.timing import with_deadline
from fairlead.errors import DependencyUnavailableError

MAX_STALE_S = 300.0
"""How long callers go on, while it is away, by what was read before."""
UNRESPONSIVE_AFTER_S = 2.0
"""How long who can go on without waits for a database that does not answer: then it counts as away."""
CANCELLED_AFTER_S = 0.5
"""Who gives up after so long, since his call ends earlier than that patience, has seen the same."""
PROBE_EVERY_S = 5.0
"""While it is away one of those who can go on without asks it so often; nobody else waits for it."""

T = TypeVar("T")


class DatabaseOutage:
    """One per process and purpose."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._away = False
        self._until_s = -math.inf

    def is_active(self) -> bool:
        """Whether it is away, and need not be asked now."""
        return self._clock.monotonic() < self._until_s

    async def query(self, asked: Awaitable[T], *, needed: bool) -> T:
        """What is *asked* of it. DependencyUnavailableError where it is away; so it counts where it does not
        answer in time, unless its answer is *needed*."""
        if self._away:
            self._stays_away()  # for all others, while this one asks
        began_s = self._clock.monotonic()
        try:
            found = await (
                asked if needed else with_deadline(asked, self._clock, UNRESPONSIVE_AFTER_S, _silent)
            )
        except DependencyUnavailableError:
            self._stays_away()
            raise
        except asyncio.CancelledError:
            if self._clock.monotonic() - began_s >= CANCELLED_AFTER_S:
                self._stays_away()
            raise
        self._away, self._until_s = False, -math.inf
        return found

    def _stays_away(self) -> None:
        self._away, self._until_s = True, self._clock.monotonic() + PROBE_EVERY_S


def _silent() -> DependencyUnavailableError:
    return DependencyUnavailableError(f"the database has not responded for {UNRESPONSIVE_AFTER_S:g} s")
