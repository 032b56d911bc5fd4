"""What this process knows of connections: read anew each few seconds, and kept while the database is away.

One that is in use is read a second before it must be, and nobody waits for that.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

from fairlead._core.clock import Clock
from fairlead.engine.base.background_refresh import BackgroundRefresh
from fairlead.engine.base.database_outage import MAX_STALE_S, UNRESPONSIVE_AFTER_S, DatabaseOutage
from fairlead.engine.ports import Connection, ConnectionKey
from fairlead.errors import DependencyUnavailableError, NotFoundError
from fairlead.events import Emit, ServedStale

KNOWN_S = 5.0
"""How long this process goes by what it knows of a connection."""
AHEAD_S = 1.0
"""So long before that it is read again behind whoever asks for it."""
_MOST_KNOWN = 50_000

ReadConnection = Callable[[ConnectionKey], Awaitable[Connection | None]]


class ConnectionCache:
    """One per process."""

    def __init__(self, read: ReadConnection, *, clock: Clock, emit: Emit) -> None:
        self._read = read
        self._clock = clock
        self._emit = emit
        self._known: dict[ConnectionKey, tuple[float, Connection]] = {}
        self._outage = DatabaseOutage(clock)
        self._background = BackgroundRefresh()

    def known(self, key: ConnectionKey) -> Connection | None:
        """What is known of it without asking, at most *KNOWN_S* old; *MAX_STALE_S* while the database is away."""
        known = self._known.get(key)
        if known is None:
            return None
        age_s = self._clock.monotonic() - known[0]
        if age_s < KNOWN_S - AHEAD_S:
            return known[1]
        away = self._outage.is_active()
        if age_s < KNOWN_S and not away:
            self._background.start(key, lambda: self._read_anew(key))
        return known[1] if age_s < KNOWN_S or (age_s < MAX_STALE_S and away) else None

    async def connection(self, key: ConnectionKey) -> Connection:
        """What is known of it, as old as `known` says. NotFoundError where there is no such connection.

        DependencyUnavailableError where the database is away, and it is not known or for too long. One that hangs
        is away for whoever is known; see DatabaseOutage.
        """
        if (known := self.known(key)) is not None:
            return known
        try:
            return await self._read_anew(key)
        except DependencyUnavailableError:
            if (known := self.known(key)) is None:
                raise
            self._emit(ServedStale(key.tenant, key.provider, "connection", self._age_s(key)))
            return known

    async def _read_anew(self, key: ConnectionKey) -> Connection:
        now_s = self._clock.monotonic()
        needed = self._age_s(key) + UNRESPONSIVE_AFTER_S >= MAX_STALE_S
        found = await self._outage.query(self._read(key), needed=needed)
        if found is None:
            self._known.pop(key, None)
            raise NotFoundError(
                f"there is no connection {key.account!r}",
                tenant=key.tenant,
                provider=key.provider,
                hint="connect the account with `fairlead connections add`",
            )
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[key] = (now_s, found)
        return found

    def _age_s(self, key: ConnectionKey) -> float:
        known = self._known.get(key)
        return math.inf if known is None else self._clock.monotonic() - known[0]

    def existed_s(self, key: ConnectionKey) -> float:
        """For how long anybody can have spent from its buckets; infinite where that is not known any more."""
        read_s, connection = self._known[key]
        return connection.existed_s + self._clock.monotonic() - read_s
