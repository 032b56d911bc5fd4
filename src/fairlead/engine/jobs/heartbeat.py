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

RENEWALS_PER_LEASE = 3
"""How often a session is renewed within one lease, so that one or two lost renewals do no harm."""
LATE_RENEWAL_SHARE = 0.1
"""How long a renewal may take once the lease has expired, as a share of the lease."""

OnLost = Callable[[UUID, str], None]
"""Called with the lost session and the reason; stops its work at once and never raises."""


class Heartbeat:
    """Opens this process's session, renews it, and replaces it when it is lost.

    Args:
        lease_s: Seconds without a renewal after which other processes declare this one lost. Default 30.
        master_keys: The ids of the master keys that this process has_session.
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
        self._reload_keys: Callable[[], Awaitable[None]] | None = None
        self._keys_renewed_at: datetime | None = None
        self._reporter = FailureReporter("heartbeat", clock=clock, draw=draw, emit=emit)
        self._on_lost: list[OnLost] = []
        self._on_opened: list[Callable[[], None]] = []
        self._running_job_ids: Callable[[], Sequence[UUID]] = tuple
        self._on_cancelled: Callable[[frozenset[int]], None] = lambda lease_ids: None
        self._trouble: Callable[[], str | None] = lambda: None
        self._session_id: UUID | None = None
        self._had_session = False
        self._confirmed_mono = 0.0
        self._opened = asyncio.Event()
        self._stop = asyncio.Event()
        self._request_limit: TimeLimit | None = None

    @property
    def session_id(self) -> UUID | None:
        """The session under which work may be claimed and sent; None before the first and while fenced."""
        return self._session_id

    def has_session(self) -> bool:
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
        return max(0.0, self._confirmed_mono + self._lease_s - self._clock.monotonic())

    def on_lost(self, callback: OnLost) -> None:
        """Call *callback* whenever a session is lost."""
        self._on_lost.append(callback)

    def on_opened(self, callback: Callable[[], None]) -> None:
        """Call *callback* whenever there is a new session."""
        self._on_opened.append(callback)

    def on_cancelled(
        self, running_job_ids: Callable[[], Sequence[UUID]], callback: Callable[[frozenset[int]], None]
    ) -> None:
        """Call *callback* with the lease ids of running jobs that an operator cancelled.

        Args:
            running_job_ids: Returns the ids of the running jobs; they are sent with each renewal.
            callback: Stops the runs with these lease ids.
        """
        self._running_job_ids, self._on_cancelled = running_job_ids, callback

    def on_keys_renewed(self, reload: Callable[[], Awaitable[None]]) -> None:
        """Await *reload* after a key rotation, to read the current data keys again."""
        self._reload_keys = reload

    def report_trouble(self, trouble: Callable[[], str | None]) -> None:
        """Report with each renewal why this process claims no jobs, so that operators see it.

        Args:
            trouble: Returns the reason. None: the process is well.
        """
        self._trouble = trouble

    async def wait_until_open(self) -> UUID:
        """Wait until there is a session, and return its id."""
        while self._session_id is None:
            await self._opened.wait()
        return self._session_id

    async def run(self) -> None:
        """Open, renew and replace the session until ``stop``; then close it, which frees its leases at once.

        Raises:
            Exception: The first session cannot be opened, and the reason is no outage.
        """
        try:
            while not self._stop.is_set():
                if self._session_id is None:
                    await self._open()
                else:
                    await self._renew_when_due()
        finally:
            await self._close()

    def stop(self) -> None:
        """End ``run``. Call it once the work of the session has ended.

        A renewal that is under way is cancelled, because an unresponsive store would delay the process's end.
        """
        self._stop.set()
        if self._request_limit is not None:
            self._request_limit.expire()

    # ---- one step ------------------------------------------------------------------------------

    async def _open(self) -> None:
        """Open a new session, or wait before the next attempt."""
        session_id, sent_mono = self._ids.uuid7(), self._clock.monotonic()
        try:
            opening = self._sessions.open(
                session_id, self._identity, self._lease_s, self._version, self._master_keys, self._app_version
            )
            await self._within(opening, self._lease_s / RENEWALS_PER_LEASE)
        except Exception as error:
            if not self._had_session and not is_outage(
                error
            ):  # waiting does not repair it, and no job runs yet
                raise
            if self._stop.is_set():  # the store may have opened it: `_close` ends it
                self._session_id = session_id
                return
            # without a session there is no work: try until there is
            await wait_event(self._stop, self._clock, self._reporter.failure(error))
            return
        self._reporter.success()
        if self._had_session:  # a key rotation may have sent its request to the lost session
            await self._look_up_keys(None)
        self._session_id, self._confirmed_mono, self._had_session = session_id, sent_mono, True
        self._opened.set()
        for callback in self._on_opened:
            callback()

    async def _renew_when_due(self) -> None:
        """Wait until the next renewal is due, and renew the session until that succeeds or it is lost."""
        due_mono = self._confirmed_mono + self._lease_s / RENEWALS_PER_LEASE
        if await wait_event(self._stop, self._clock, due_mono - self._clock.monotonic()):
            return
        while self._session_id is not None and not self._stop.is_set():
            wait_s = await self._renew(self._session_id)
            if wait_s is None:
                return
            await wait_event(self._stop, self._clock, wait_s)

    async def _renew(self, session_id: UUID) -> float | None:
        """Send one renewal. Return the seconds until the next attempt, or None if none is needed.

        None is needed after a success, and after the session was lost or the heartbeat stopped.
        """
        sent_mono = self._clock.monotonic()
        # count the lease from the time of sending: the store counts from later, so ours ends first
        limit_s = max(
            min(self.left_s, self._lease_s / RENEWALS_PER_LEASE), self._lease_s * LATE_RENEWAL_SHARE
        )
        try:
            beat = self._sessions.heartbeat(session_id, self._running_job_ids(), self._trouble())
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
            self._confirmed_mono = sent_mono
            self._on_cancelled(renewed.cancelled)
            if renewed.data_keys_renewed_at != self._keys_renewed_at:
                await self._look_up_keys(renewed.data_keys_renewed_at)
        else:
            self._lose(session_id, "it was declared lost by another process")
        return None

    async def _look_up_keys(self, asked_at: datetime | None) -> None:
        """Read the current data keys again, as a rotation requested. The next seal reports an error."""
        self._keys_renewed_at = asked_at
        if self._reload_keys is not None:
            with suppress(Exception):
                await self._within(self._reload_keys(), self._lease_s * LATE_RENEWAL_SHARE)

    async def _within(self, request: Awaitable[T], limit_s: float) -> T:
        """Await *request*, unless it takes longer than *limit_s* or the heartbeat is stopped."""
        self._request_limit = TimeLimit(self._clock, limit_s)
        try:
            async with self._request_limit:
                return await request
        finally:
            self._request_limit = None

    def _lose(self, session_id: UUID, reason: str) -> None:
        """End a session that other processes presume lost, and stop its work."""
        self._session_id = None
        self._opened.clear()
        self._emit(LeaseLost(session_id, reason))
        for callback in self._on_lost:
            callback(session_id, reason)

    async def _close(self) -> None:
        """Close the session, which frees its leases; during an outage they expire by themselves."""
        session_id, self._session_id = self._session_id, None
        self._opened.clear()
        if session_id is None:
            return
        try:
            async with TimeLimit(self._clock, self._lease_s * LATE_RENEWAL_SHARE):
                await self._sessions.close(session_id)
        except Exception as error:  # noqa: BLE001 (the process ends either way)
            self._reporter.failure(error)
