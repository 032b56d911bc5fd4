"""Wires the token side of a process: refreshes, connections, consents, and the watch for a database failover."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from fairlead.engine.base.service import ended
from fairlead.engine.ports import JobStore
from fairlead.engine.tokens.account import Accounts
from fairlead.engine.tokens.connections import Connections
from fairlead.engine.tokens.consent import Consents
from fairlead.engine.tokens.coordinator import Coordinator
from fairlead.engine.tokens.database_failover import TimelineWatch
from fairlead.engine.tokens.deps import RefreshDeps, RefreshSettings
from fairlead.engine.tokens.grants import Grants
from fairlead.engine.tokens.reader import TokenReader
from fairlead.engine.tokens.refresh_jobs import TokenJobs
from fairlead.engine.tokens.request_sender import RefreshRequestSender
from fairlead.engine.tokens.settle import Settler
from fairlead.engine.tokens.unknown_outcomes import UnknownOutcomes


class TokenComponents:
    """The refreshes and the connections of one process.

    Args:
        cache_s: How long a valid token is served from memory, in seconds.
    """

    def __init__(self, deps: RefreshDeps, settings: RefreshSettings, *, cache_s: float) -> None:
        self.deps = deps
        self._settings = settings
        settler, grants = Settler(deps, settings.settle_retry_s), Grants(deps, settings)
        self._unknown = UnknownOutcomes(deps, settings, settler)
        sender = RefreshRequestSender(deps, settings, grants, settler, self._unknown)
        self.coordinator = Coordinator(deps, settings, sender, settler, self._unknown)
        self.reader = TokenReader(deps, self.coordinator, settler, cache_s)
        self.connections = Connections(deps)
        self.consents = Consents(deps, self.connections)
        self.accounts = Accounts(deps, grants, settler, self.reader, self.connections)

    async def start(self, stack: AsyncExitStack) -> None:
        """Read the timeline of the database and watch it. *stack* will wait for refreshes in flight."""
        stack.push_async_callback(self.coordinator.drain, self._settings.total_deadline_s)
        stack.push_async_callback(self.consents.drain)
        timeline_watch = TimelineWatch(self.deps, self._unknown)
        await timeline_watch.begin()
        watch = timeline_watch.service(clock=self.deps.clock, draw=self.deps.draw)
        stack.push_async_callback(ended, asyncio.create_task(watch.run(), name=watch.name), watch.stop)

    def jobs(self, store: JobStore) -> TokenJobs:
        """Return the jobs that refresh tokens in the background, stored in *store*."""
        return TokenJobs(self.deps, self._settings, self.coordinator, self._unknown, store)
