"""After a fail-over the database may have lost its last seconds; the journal still has them (R11).

A new timeline is noticed by asking, and by comparing with the one that is noted beside the journal: so a
process that starts after the fail-over notices it, too. Then every journaled answer of the last day is
settled again by compare-and-set: what the database still knows refuses it, what it forgot takes it.
"""

from __future__ import annotations

from collections.abc import Collection

from fairlead.clock import Clock, Draw
from fairlead.engine.services.service import Service
from fairlead.engine.token.parts import Rooms
from fairlead.engine.token.unknown import UnknownOutcomes
from fairlead.errors import DependencyUnavailable, FairleadError
from fairlead.events import ServiceFailed, TimelineChanged

LOOK_EVERY_S = 5.0


class TimelineWatch:
    """One pass: has the database's history changed since these journals were settled?"""

    def __init__(self, rooms: Rooms, unknown: UnknownOutcomes) -> None:
        self._rooms = rooms
        self._unknown = unknown

    def service(self, *, clock: Clock, draw: Draw) -> Service:
        """This as a service."""
        emit = self._rooms.emit
        return Service("timeline", self.one_pass, interval_s=LOOK_EVERY_S, clock=clock, draw=draw, emit=emit)

    async def begin(self) -> None:
        """Before anything is refreshed here: settle what the dead of this host left, or the database forgot.

        Raises DependencyUnavailable.
        """
        await self._unknown.replay_journal()
        try:
            now = await self._rooms.store.timeline()
        except DependencyUnavailable:
            raise
        except FairleadError as error:  # a user who may not ask that is no reason not to start
            self._rooms.emit(ServiceFailed("timeline", str(error)))
            return
        await self._catch_up(now)

    async def one_pass(self) -> None:
        """Replay the journal if the database is on another timeline than before."""
        await self._catch_up(await self._rooms.store.timeline())

    async def _catch_up(self, now: str) -> None:
        behind = await self._rooms.journal.on_timeline(now)
        if not behind:
            return
        settled = await self._unknown.replay_all()
        await self._rooms.journal.caught_up(behind, now)  # only now: a replay that failed is tried again
        before = _before(behind.values(), now)
        if before is not None or settled:
            self._rooms.emit(TimelineChanged(before or "", now, settled))


def _before(timelines: Collection[str | None], now: str) -> str | None:
    """The latest of *timelines* of the same database: another one is no fail-over, nor is one not noted."""
    database = now.partition("/")[0]
    same = [one for one in timelines if one is not None and one.partition("/")[0] == database]
    return max(same, key=lambda one: (len(one), one), default=None)
