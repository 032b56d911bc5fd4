"""The number of processes, for the time in which each has only its share of a limit. Spec: R27."""

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

REFRESH_INTERVAL_S = 5.0
"""How often the live processes are counted."""


class FleetSize:
    """The most processes that were alive at once during the last lease, and this one's rank among the latest."""

    def __init__(
        self,
        sessions: SessionStore,
        session_id: Callable[[], UUID | None],
        *,
        clock: Clock,
        lease_s: float = 30.0,
    ) -> None:
        self._sessions = sessions
        self._session_id = session_id
        self._clock = clock
        self._lease_s = lease_s
        self._counts: deque[tuple[float, int]] = deque()
        self._rank = 0
        self._since_mono = math.inf

    @property
    def share(self) -> Share:
        """This process's share. The last count stays valid while the database is unavailable."""
        processes = max((count for _, count in self._counts), default=1)
        steady = self._since_mono <= self._clock.monotonic() - self._lease_s
        return Share(processes, min(self._rank, processes - 1), steady)

    async def refresh(self) -> None:
        """Count the live processes, and find this one's rank among them."""
        alive = sorted(
            view.session_id for view in await self._sessions.search() if view.state in ("alive", "late")
        )
        now_mono, session_id = self._clock.monotonic(), self._session_id()
        self._since_mono = min(self._since_mono, now_mono)
        self._counts.append((now_mono, max(1, len(alive))))
        while len(self._counts) > 1 and self._counts[0][0] < now_mono - self._lease_s:
            self._counts.popleft()
        self._rank = alive.index(session_id) if session_id in alive else len(alive)

    def service(self, *, draw: Draw, emit: Emit) -> Service:
        """Return the counting as a background service."""
        return Service(
            "gate-fleet",
            self.refresh,
            interval_s=REFRESH_INTERVAL_S,
            clock=self._clock,
            draw=draw,
            emit=emit,
        )
