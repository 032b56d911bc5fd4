"""What a fail-over or a restore took back is settled again from the journals of the hosts.

Each process settles what its host's journals hold when it starts, and again when the database is another one
than before. It asks that every few seconds, whether it works on jobs or only asks for tokens. Spec: R11, R51.
"""

from __future__ import annotations

from fairlead.clock import Clock, Draw
from fairlead.engine.services.service import Service
from fairlead.engine.token.parts import Rooms
from fairlead.engine.token.unknown import UnknownOutcomes
from fairlead.errors import DependencyUnavailable, FairleadError
from fairlead.events import ServiceFailed, TimelineChanged

LOOK_EVERY_S = 5.0


class TimelineWatch:
    """Settles the journals of this host at the start, and whenever the history of the database changes."""

    def __init__(self, rooms: Rooms, unknown: UnknownOutcomes) -> None:
        self._rooms = rooms
        self._unknown = unknown
        self._settled_on: str | None = None

    def service(self, *, clock: Clock, draw: Draw) -> Service:
        """Return this as a service."""
        emit = self._rooms.emit
        return Service("timeline", self.one_pass, interval_s=LOOK_EVERY_S, clock=clock, draw=draw, emit=emit)

    async def begin(self) -> None:
        """Settle the journals before anything is refreshed here. Raises DependencyUnavailable."""
        timeline = None
        try:
            timeline = await self._rooms.store.timeline()
        except DependencyUnavailable:
            raise
        except FairleadError as error:  # a user who may not ask that is no reason not to start
            self._rooms.emit(ServiceFailed("timeline", str(error)))
        await self._unknown.replay_journal()
        self._settled_on = timeline

    async def one_pass(self) -> None:
        """Settle the journals again if the database has another history than before."""
        timeline, before = await self._rooms.store.timeline(), self._settled_on
        if timeline == before:
            return
        settled = await self._unknown.replay_journal()
        self._settled_on = timeline  # only now: a replay that failed is tried again
        self._rooms.emit(TimelineChanged(before or "", timeline, settled))
