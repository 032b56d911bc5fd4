"""After a fail-over the database may have lost its last seconds; the journal still has them (R11).

A new timeline is noticed by asking; then every journaled answer of the last day is settled again by
compare-and-set: what the database still knows refuses it, what it forgot takes it.
"""

from __future__ import annotations

from fairlead.clock import Clock, Draw
from fairlead.engine.ports import CredentialStore
from fairlead.engine.services.service import Service
from fairlead.engine.token.unknown import UnknownOutcomes
from fairlead.events import Emit, TimelineChanged

LOOK_EVERY_S = 5.0


class TimelineWatch:
    """One pass: has the database's history changed since the last?"""

    def __init__(self, store: CredentialStore, unknown: UnknownOutcomes, *, emit: Emit) -> None:
        self._store = store
        self._unknown = unknown
        self._emit = emit
        self._seen: str | None = None

    def service(self, *, clock: Clock, draw: Draw) -> Service:
        """This as a service."""
        return Service(
            "timeline", self.one_pass, interval_s=LOOK_EVERY_S, clock=clock, draw=draw, emit=self._emit
        )

    async def one_pass(self) -> None:
        """Replay the journal if the database is on another timeline than before."""
        now = await self._store.timeline()
        if self._seen is not None and self._seen != now:
            settled = await self._unknown.replay_all()
            self._emit(TimelineChanged(self._seen, now, settled))
        self._seen = now  # only now: a replay that failed is tried again by the next pass
