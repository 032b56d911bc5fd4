"""This process's session: one heartbeat for all its work, and the fence that stops it in time.

A session is renewed every third of its lease. Other processes presume a session lost after a full lease
without a renewal, so this process does too, by its own monotonic clock. It then emits an event, cancels its
handlers, and continues under a new session. What a late handler still writes is refused by its lease id; the
fence only shortens the overlap.

A handler that blocks the event loop blocks the heartbeat too. Its job is then rescued, and its late write is
refused. When the loop runs again, the process first tries to renew its session: if no other process took its
jobs meanwhile, nothing is lost. Spec: R1, R2.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TypeVar
from uuid import UUID

from fairlead._core.clock import Clock, Draw
from fairlead._core.ids import Ids
from fairlead.engine.base.service import FailureReporter, is_outage
from fairlead.engine.base.timing import TimeLimit, wait_event
from fairlead.engine.ports import ProcessIdentity, SessionStore
from fairlead.events import Emit, LeaseLost

T = TypeVar("T")

BEATS_PER_LEASE = 3
LAST_TRY_SHARE = 0.1
"""Share of the lease that a renewal may take once the lease has expired."""

OnLost = Callable[[UUID, str], None]
"""Called with the lost session and the reason; stops its work at once and never raises."""


class Heartbeat:
    """Opens this process's session, renews it, and replaces it when it is lost.

    Args:
        lease_s: Seconds without a renewal after which other processes declare this one lost. Default 30.
        master_keys: The ids of the master keys that this process holds.
        app_version: The application's version, for the operator.
    """

    def __init__(
        self,
        sessions: SessionStore,
        identity: ProcessIdentity,
        *,
        version: str,
        clock: Clock,
        draw: Draw,
        ids: Ids,
        emit: Emit,
        lease_s: float = 30.0,
        master_keys: Sequence[str] | None = None,
        app_version: str | None = None,
    ) -> None:
        self._sessions = sessions
        self._identity = identity
        self._version = version
        self._clock = clock
        self._ids = ids
        self._emit = emit
        self._lease_s = lease_s
        self._master_keys = master_keys
        self._app_version = app_version
        self._refresh_keys: Callable[[], Awaitable[None]] | None = None
        self._keys_renewed_at: datetime | None = None
        self._reporter = FailureReporter("heartbeat", clock=clock, draw=draw, emit=emit)
        self._on_lost: list[OnLost] = []
        self._on_opened: list[Callable[[], None]] = []
        self._running: Callable[[], Sequence[UUID]] = tuple
        self._on_cancelled: Callable[[frozenset[int]], None] = lambda lease_ids: None
        self._trouble: Callable[[], str | None] = lambda: None
        self._session_id: UUID | None = None
        self._had_one = False
        self._confirmed = 0.0
        self._opened = asyncio.Event()
        self._stop = asyncio.Event()
        self._asking: TimeLimit | None = None

    @property
    def session_id(self) -> UUID | None:
        """The session under which work may be claimed and sent; None before the first and while fenced."""
        return self._session_id

    def holds(self) -> bool:
        """Return whether there is a session."""
        return self._session_id is not None

    @property
    def lease_s(self) -> float:
        """Seconds for which a session lives without a renewal."""
        return self._lease_s

    @property
    def left_s(self) -> float:
        """Seconds for which the session is certainly still valid; 0.0 without one."""
        if self._session_id is None:
            return 0.0
        return max(0.0, self._confirmed + self._lease_s - self._clock.monotonic())

    def on_lost(self, callback: OnLost) -> None:
        """Call *callback* whenever a session is lost."""
        self._on_lost.append(callback)

    def on_opened(self, callback: Callable[[], None]) -> None:
        """Call *callback* whenever there is a new session."""
        self._on_opened.append(callback)

    def on_cancelled(
        self, running: Callable[[], Sequence[UUID]], callback: Callable[[frozenset[int]], None]
    ) -> None:
        """Request with each renewal which *running* jobs were cancelled, and pass their lease ids on."""
        self._running, self._on_cancelled = running, callback

    def on_keys_renewed(self, refresh_keys: Callable[[], Awaitable[None]]) -> None:
        """Await *refresh_keys* when a key rotation asks for the data keys to be looked up again."""
        self._refresh_keys = refresh_keys

    def report(self, trouble: Callable[[], str | None]) -> None:
        """Report the *trouble* of this process with each renewal; None: it is well."""
        self._trouble = trouble

    async def opened(self) -> UUID:
        """Wait until there is a session, and return its id."""
        while self._session_id is None:
            await self._opened.wait()
        return self._session_id

    async def run(self) -> None:
        """Open, renew and replace the session until ``stop``; then close it: its leases are free at once.

        Raises what keeps the first session from being opened, unless that is an outage.
        """
        try:
            while not self._stop.is_set():
                if self._session_id is None:
                    await self._open()
                else:
                    await self._beat()
        finally:
            await self._close()

    def stop(self) -> None:
        """End ``run``; to be called once the work of the session has ended.

        A renewal that is under way is given up: a store that is silent would hold up the end of this process.
        """
        self._stop.set()
        if self._asking is not None:
            self._asking.expire()

    # ---- one step ------------------------------------------------------------------------------

    async def _open(self) -> None:
        session_id, sent = self._ids.uuid7(), self._clock.monotonic()
        try:
            opening = self._sessions.open(
                session_id, self._identity, self._lease_s, self._version, self._master_keys, self._app_version
            )
            await self._within(opening, self._lease_s / BEATS_PER_LEASE)
        except Exception as error:
            if not self._had_one and not is_outage(error):  # waiting does not repair it, and no job runs yet
                raise
            if self._stop.is_set():  # the store may have opened it: `_close` ends it
                self._session_id = session_id
                return
            # without a session there is no work: try until there is
            await wait_event(self._stop, self._clock, self._reporter.failure(error))
            return
        self._reporter.success()
        if self._had_one:  # the lost session has no pending request of a rotation
            await self._refresh_keys_if_asked(None)
        self._session_id, self._confirmed, self._had_one = session_id, sent, True
        self._opened.set()
        for callback in self._on_opened:
            callback()

    async def _beat(self) -> None:
        due = self._confirmed + self._lease_s / BEATS_PER_LEASE
        if await wait_event(self._stop, self._clock, due - self._clock.monotonic()):
            return
        while self._session_id is not None and not self._stop.is_set():
            wait_s = await self._renew(self._session_id)
            if wait_s is None:
                return
            await wait_event(self._stop, self._clock, wait_s)

    async def _renew(self, session_id: UUID) -> float | None:
        """Send one renewal. Return None if it is settled, else the seconds until the next attempt."""
        sent = self._clock.monotonic()
        # the lease counts from the asking: the store's own count begins later, so ours ends first
        limit_s = max(min(self.left_s, self._lease_s / BEATS_PER_LEASE), self._lease_s * LAST_TRY_SHARE)
        try:
            beat = self._sessions.heartbeat(session_id, self._running(), self._trouble())
            renewed = await self._within(beat, limit_s)
        except Exception as error:  # noqa: BLE001 (whatever keeps us from renewing, the lease runs out)
            if self._stop.is_set():
                return None
            wait_s = self._reporter.failure(error, self._lease_s / 10)
            if self.left_s > 0:
                return min(wait_s, self.left_s)
            self._lose(session_id, "it could not be renewed for a full lease")
            return None
        self._reporter.success()
        if renewed is not None:
            self._confirmed = sent
            self._on_cancelled(renewed.cancelled)
            if renewed.data_keys_renewed_at != self._keys_renewed_at:
                await self._refresh_keys_if_asked(renewed.data_keys_renewed_at)
        else:
            self._lose(session_id, "it was declared lost by another process")
        return None

    async def _refresh_keys_if_asked(self, asked_at: datetime | None) -> None:
        """Look up the current data keys again. An error is left to the next seal."""
        self._keys_renewed_at = asked_at
        if self._refresh_keys is not None:
            with suppress(Exception):
                await self._within(self._refresh_keys(), self._lease_s * LAST_TRY_SHARE)

    async def _within(self, request: Awaitable[T], limit_s: float) -> T:
        """Await *request*, unless it takes longer than *limit_s* or the heartbeat is stopped."""
        self._asking = TimeLimit(self._clock, limit_s)
        try:
            async with self._asking:
                return await request
        finally:
            self._asking = None

    def _lose(self, session_id: UUID, reason: str) -> None:
        self._session_id = None
        self._opened.clear()
        self._emit(LeaseLost(session_id, reason))
        for callback in self._on_lost:
            callback(session_id, reason)

    async def _close(self) -> None:
        """Free the leases; if the store is away they run out by themselves."""
        session_id, self._session_id = self._session_id, None
        self._opened.clear()
        if session_id is None:
            return
        try:
            async with TimeLimit(self._clock, self._lease_s * LAST_TRY_SHARE):
                await self._sessions.close(session_id)
        except Exception as error:  # noqa: BLE001 (the process ends either way)
            self._reporter.failure(error)
