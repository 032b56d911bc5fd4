"""A cache of connections: refreshed every few seconds, and served while the database is unavailable.

A connection in use is refreshed in the background a second before it expires.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from fairlead._core.clock import Clock
from fairlead.engine.base.background_refresh import BackgroundRefresh
from fairlead.engine.base.database_outage import MAX_STALE_S, UNRESPONSIVE_AFTER_S, DatabaseOutage
from fairlead.engine.ports import Connection, ConnectionKey, connection_not_found
from fairlead.errors import DependencyUnavailableError
from fairlead.events import Emit, ServedStale

FRESH_S = 5.0
"""How long a cached connection is used."""
AHEAD_S = 1.0
"""How long before that it is refreshed in the background."""
_MAX_ENTRIES = 50_000

ReadConnection = Callable[[ConnectionKey], Awaitable[Connection | None]]
"""Reads a connection from the database; None: there is none."""


class _Entry(NamedTuple):
    read_mono: float
    connection: Connection


class ConnectionCache:
    """The connections that one process has read."""

    def __init__(self, read: ReadConnection, *, clock: Clock, emit: Emit) -> None:
        self._read = read
        self._clock = clock
        self._emit = emit
        self._entries: dict[ConnectionKey, _Entry] = {}
        self._outage = DatabaseOutage(clock)
        self._background = BackgroundRefresh()

    def cached(self, key: ConnectionKey) -> Connection | None:
        """Return the cached connection if it is younger than FRESH_S, or than MAX_STALE_S during an outage."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        age_s = self._clock.monotonic() - entry.read_mono
        if age_s < FRESH_S - AHEAD_S:
            return entry.connection
        is_outage = self._outage.is_active()
        if age_s < FRESH_S and not is_outage:
            self._background.start(key, lambda: self._read_anew(key))
        return entry.connection if age_s < FRESH_S or (age_s < MAX_STALE_S and is_outage) else None

    async def connection(self, key: ConnectionKey) -> Connection:
        """Return the connection, cached or read.

        A database that hangs counts as unavailable if there is a cached connection; see DatabaseOutage.

        Raises:
            NotFoundError: There is no such connection.
            DependencyUnavailableError: The database is unavailable, and the cache has no usable entry.
        """
        if (cached := self.cached(key)) is not None:
            return cached
        try:
            return await self._read_anew(key)
        except DependencyUnavailableError:
            if (cached := self.cached(key)) is None:
                raise
            self._emit(ServedStale(key.tenant, key.provider, "connection", self._age_s(key)))
            return cached

    async def _read_anew(self, key: ConnectionKey) -> Connection:
        """Read the connection from the database and cache it."""
        now_mono = self._clock.monotonic()
        needed = self._age_s(key) + UNRESPONSIVE_AFTER_S >= MAX_STALE_S
        connection = await self._outage.query(self._read(key), needed=needed)
        if connection is None:
            self._entries.pop(key, None)
            raise connection_not_found(key)
        if len(self._entries) >= _MAX_ENTRIES:
            self._entries.clear()
        self._entries[key] = _Entry(now_mono, connection)
        return connection

    def _age_s(self, key: ConnectionKey) -> float:
        """Return how long ago the cached connection was read; infinite: there is none."""
        entry = self._entries.get(key)
        return math.inf if entry is None else self._clock.monotonic() - entry.read_mono

    def existed_s(self, key: ConnectionKey) -> float:
        """Return for how long the connection can have used its buckets; infinite if that is no longer known."""
        read_mono, connection = self._entries[key]
        return connection.existed_s + self._clock.monotonic() - read_mono
