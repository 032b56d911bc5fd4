"""Settles again, from the journals of the hosts, what a fail-over or a restore of the database took back.

Each process settles the entries of its host's journals when it starts, and again when the history of the
database has changed. It checks that every few seconds, even if it runs no jobs. Spec: R11, R51.
"""

from __future__ import annotations

from fairlead._core.clock import Clock, Draw
from fairlead.engine.base.service import Service
from fairlead.engine.tokens.deps import RefreshDeps
from fairlead.engine.tokens.unknown_outcomes import UnknownOutcomes
from fairlead.errors import DependencyUnavailableError, FairleadError
from fairlead.events import DatabaseFailedOver, ServiceFailed

CHECK_INTERVAL_S = 5.0


class TimelineWatch:
    """A watch that settles this host's journals at the start, and when the database's history changes."""

    def __init__(self, deps: RefreshDeps, unknown: UnknownOutcomes) -> None:
        self._deps = deps
        self._unknown = unknown
        self._settled_on: str | None = None

    def service(self, *, clock: Clock, draw: Draw) -> Service:
        """Return a background service that settles the journals after a fail-over or a restore, by `one_pass`."""
        emit = self._deps.emit
        return Service(
            "timeline", self.one_pass, interval_s=CHECK_INTERVAL_S, clock=clock, draw=draw, emit=emit
        )

    async def begin(self) -> None:
        """Settle the journals before this process refreshes anything.

        Raises:
            DependencyUnavailableError: The database is not available.
        """
        timeline = None
        try:
            timeline = await self._deps.store.timeline()
        except DependencyUnavailableError:
            raise
        except FairleadError as error:  # without the right to read it, a process starts all the same
            self._deps.emit(ServiceFailed("timeline", str(error)))
        await self._unknown.replay_journal()
        self._settled_on = timeline

    async def one_pass(self) -> None:
        """Settle the journals again if the history of the database has changed."""
        timeline, previous = await self._deps.store.timeline(), self._settled_on
        if timeline == previous:
            return
        settled = await self._unknown.replay_journal()
        self._settled_on = timeline  # not earlier, so that a failed replay is tried again
        self._deps.emit(DatabaseFailedOver(previous or "", timeline, settled))
