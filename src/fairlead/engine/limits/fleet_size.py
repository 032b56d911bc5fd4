"""How many processes there are, for the time in which each has only its share of a limit (R27)."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from uuid import UUID

from fairlead._core.clock import Clock, Draw
from fairlead.engine.base.service import Service
from fairlead.engine.ports import SessionStore
from fairlead.events import Emit
from fairlead.policy.limits.share import Share

LOOK_S = 5.0


class FleetSize:
    """The most processes that were alive at once during the last lease, and our place among the latest."""

    def __init__(
        self, sessions: SessionStore, own: Callable[[], UUID | None], *, clock: Clock, lease_s: float = 30.0
    ) -> None:
        self._sessions = sessions
        self._own = own
        self._clock = clock
        self._lease_s = lease_s
        self._counts: deque[tuple[float, int]] = deque()
        self._rank = 0
        self._since_s = math.inf

    @property
    def share(self) -> Share:
        """Ours. What was seen last goes on counting while the database is away."""
        processes = max((count for _, count in self._counts), default=1)
        steady = self._since_s <= self._clock.monotonic() - self._lease_s
        return Share(processes, min(self._rank, processes - 1), steady)

    async def look(self) -> None:
        """Count once."""
        alive = sorted(
            view.session_id for view in await self._sessions.search() if view.state in ("alive", "late")
        )
        now_s, own = self._clock.monotonic(), self._own()
        self._since_s = min(self._since_s, now_s)
        self._counts.append((now_s, max(1, len(alive))))
        while len(self._counts) > 1 and self._counts[0][0] < now_s - self._lease_s:
            self._counts.popleft()
        self._rank = alive.index(own) if own in alive else len(alive)

    def service(self, *, draw: Draw, emit: Emit) -> Service:
        """The looks, as a background service."""
        return Service("gate-fleet", self.look, interval_s=LOOK_S, clock=self._clock, draw=draw, emit=emit)
