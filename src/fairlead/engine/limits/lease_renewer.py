"""Renewal of the leases that this process holds at the gate: all slots at once, every third of a lease.

If the gate reports a slot as lost, another call may have it by now, so the call under it is cancelled. If a
slot cannot be renewed, the process stops its call by its own clock before the lease can have ended, counted
from the request. Slots are never taken back by force. The clock stands still while a machine sleeps: after
that a call may run in a slot of another one until the next renewal. Spec: G4.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from fairlead._core.clock import Clock, Draw
from fairlead.engine.base.service import Service
from fairlead.engine.ports import Admitted, Gate, Lease, Renewal
from fairlead.errors import DependencyUnavailableError, LimiterUnavailableError, SlotLostError
from fairlead.events import Emit
from fairlead.policy.limits.limit import PoolLimit
from fairlead.policy.limits.pool import Holder

T = TypeVar("T")

SLOT_LOST_MESSAGE = "the slot was lost before the call ended"
STORE_GONE = (LimiterUnavailableError, DependencyUnavailableError)
"""The gate is unavailable, or was closed because this process ends. The call was made, and what it holds at the
gate ends by itself: with its lease, or with the time of its reservation."""
RENEWALS_PER_LEASE = 3
SOONEST_LOSS_S = 30.0
"""A store that lost its state grants slots again after this time, so every holder must have renewed by then."""
SPARE_SHARE = 1 / 30
"""The share of a lease that is left when a call without renewal is cancelled, so that it is over in time."""
BEAT_SPREAD = 1.05
"""The factor by which the wait between two beats may be longer (Service)."""


@dataclass(slots=True)
class HeldLease:
    """A slot under a running call.

    Attributes:
        task: The task that runs the call.
        requested_mono: When the request that got or renewed the lease was sent. The lease began later, never
            earlier.
        cancelled: How many cancellations of the task were pending before.
    """

    admitted: Admitted
    pool: PoolLimit
    holder: Holder
    task: asyncio.Task[object]
    requested_mono: float
    cancelled: int
    lost: bool = False

    @property
    def stop_mono(self) -> float:
        """The instant at which the call has to stop unless the lease was renewed."""
        return self.requested_mono + _certain_s(self.pool) * (1 - SPARE_SHARE)


class GrantSignal:
    """A signal that a slot was granted. It makes its asyncio.Event on the first wait: most calls never wait."""

    __slots__ = ("_event", "_is_set")

    def __init__(self) -> None:
        self._is_set = False
        self._event: asyncio.Event | None = None

    def is_set(self) -> bool:
        """Return whether a slot was granted since the signal was last cleared."""
        return self._is_set

    def set(self) -> None:
        """Signal a grant."""
        self._is_set = True
        if self._event is not None:
            self._event.set()

    def clear(self) -> None:
        """Forget earlier grants."""
        self._is_set, self._event = False, None

    async def wait(self) -> None:
        """Wait until the signal is set. Only one task may wait."""
        if not self._is_set:
            self._event = asyncio.Event()
            await self._event.wait()


class LeaseRenewer:
    """Renews the leases of one process, and wakes its waiting calls when the gate grants them a slot.

    Args:
        beat_s: Seconds between two checks for due leases. Default 3. A lease is renewed within a third of
            its length, at least every 10 s.
        is_degraded: Whether this process counts by itself because the store is unavailable. What it may hold
            depends on the time then, so every beat renews all leases.
    """

    def __init__(
        self,
        gate: Gate,
        *,
        clock: Clock,
        draw: Draw,
        emit: Emit,
        beat_s: float = 3.0,
        is_degraded: Callable[[], bool] = lambda: False,
    ) -> None:
        self._gate = gate
        self._clock = clock
        self._draw = draw
        self._emit = emit
        self._beat_s = beat_s
        self._is_degraded = is_degraded
        self._watch_mono, self._unwatch = math.inf, _nothing
        self._leases: dict[int, HeldLease] = {}
        self._signals: dict[int, GrantSignal] = {}
        self._releases: set[asyncio.Future[Any]] = set()

    # ---- grants --------------------------------------------------------------------------------

    async def listen(self) -> None:
        """Subscribe to the grants of this process, and wake the calls that wait for them."""
        await self._gate.listen(self._wake)

    def grant_signal(self, holder: Holder | None) -> GrantSignal:
        """Return the signal of a slot for *holder*. `forget_signal` ends it."""
        signal = GrantSignal()
        if holder is not None:
            self._signals[holder.lease_id] = signal
        return signal

    def forget_signal(self, holder: Holder | None) -> None:
        """Stop signalling grants to *holder*."""
        if holder is not None:
            self._signals.pop(holder.lease_id, None)

    def _wake(self, lease_id: int) -> None:
        signal = self._signals.get(lease_id)
        if signal is not None:
            signal.set()

    # ---- slots ---------------------------------------------------------------------------------

    def now_mono(self) -> float:
        """Return the time of the clock that leases are measured by."""
        return self._clock.monotonic()

    @contextmanager
    def keep(self, admitted: Admitted, requested_mono: float) -> Iterator[None]:
        """Renew the slot of *admitted* while the block runs.

        Raises:
            SlotLostError: The slot was lost before the block ended.
        """
        lease = self.hold(admitted, requested_mono)
        try:
            yield
        except BaseException as error:
            if self.release_local(lease, error):
                raise SlotLostError(SLOT_LOST_MESSAGE) from None
            raise
        self.release_local(lease)

    def hold(self, admitted: Admitted, requested_mono: float) -> HeldLease | None:
        """Renew the slot of *admitted*, requested at *requested_mono*, until `release_local`.

        If the slot is lost, the calling task is cancelled.
        """
        pool, holder = admitted.plan.pool, admitted.holder
        if pool is None or holder is None:
            return None
        task = asyncio.current_task()
        assert task is not None
        lease = HeldLease(admitted, pool, holder, task, requested_mono, task.cancelling())
        self._leases[holder.lease_id] = lease
        if lease.stop_mono < self._watch_mono:
            self._watch(lease.stop_mono)
        return lease

    def release_local(self, lease: HeldLease | None, error: BaseException | None = None) -> bool:
        """Stop renewing *lease*; return whether its call ended with *error* only because the slot was lost.

        In that case the cancellation is taken back.
        """
        if lease is None:
            return False
        del self._leases[lease.holder.lease_id]
        was_lost = lease.lost and isinstance(error, asyncio.CancelledError)
        return was_lost and lease.task.uncancel() <= lease.cancelled

    def service(self) -> Service:
        """Return a background service that renews the leases of slots by `beat`."""
        return Service(
            "gate-leases",
            self.beat,
            interval_s=self._beat_s,
            clock=self._clock,
            draw=self._draw,
            emit=self._emit,
        )

    async def beat(self) -> None:
        """Renew the leases that are due, and cancel the calls that have lost their slot."""
        now_mono, is_degraded = self._clock.monotonic(), self._is_degraded()
        due = [lease for lease in self._leases.values() if is_degraded or now_mono >= self._renew_mono(lease)]
        if not due:
            return
        try:
            states = await self._gate.renew([_renewal(lease) for lease in due])
        except LimiterUnavailableError:
            return  # not renewed, and not lost before its lease has passed
        for lease, state in zip(due, states, strict=True):
            if state is Lease.ACTIVE:
                lease.requested_mono = now_mono
            elif state is Lease.LOST:
                self._lose(lease)

    def _renew_mono(self, lease: HeldLease) -> float:
        """Return when to renew *lease*: the last beat that is surely within a third of its length."""
        third_s = min(lease.pool.lease_s, SOONEST_LOSS_S) / RENEWALS_PER_LEASE
        return lease.requested_mono + third_s - self._beat_s * BEAT_SPREAD

    # ---- calls that have to stop -----------------------------------------------------------------

    def _watch(self, stop_mono: float) -> None:
        """Set the one timer. Usually every lease was renewed or released by the time it fires."""
        self._unwatch()
        self._watch_mono = stop_mono
        self._unwatch = self._clock.call_later(max(0.0, stop_mono - self._clock.monotonic()), self._stop_due)

    def _stop_due(self) -> None:
        """Cancel the calls with leases that were not renewed in time."""
        now_mono = self._clock.monotonic()
        for lease in [lease for lease in self._leases.values() if lease.stop_mono <= now_mono]:
            self._lose(lease)
        self._watch_mono, self._unwatch = math.inf, _nothing
        next_mono = min(
            (lease.stop_mono for lease in self._leases.values() if not lease.lost), default=math.inf
        )
        if next_mono < math.inf:
            self._watch(next_mono)

    def _lose(self, lease: HeldLease) -> None:
        """Cancel the call of a lost lease, once."""
        if lease.holder.lease_id in self._leases and not lease.lost:
            lease.lost = True
            lease.task.cancel()

    # ---- releases ------------------------------------------------------------------------------

    async def run_to_completion(self, release: Awaitable[T]) -> T | None:
        """Run *release* to its end even if the caller is cancelled; return None if the gate is unavailable."""
        return await asyncio.shield(self.start(release))

    def start(self, release: Awaitable[T]) -> asyncio.Future[T | None]:
        """Start `run_to_completion` without waiting for it."""
        task = asyncio.ensure_future(self._ignore_outage(release))
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)
        return task

    @staticmethod
    async def _ignore_outage(release: Awaitable[T]) -> T | None:
        try:
            return await release
        except STORE_GONE:
            return None

    async def drained(self) -> None:
        """Wait until every release has been done."""
        while self._releases:
            await asyncio.wait(self._releases)
        if not self._leases:
            self._unwatch()
            self._watch_mono, self._unwatch = math.inf, _nothing


def _certain_s(pool: PoolLimit) -> float:
    """Return for how long after its request a slot has no other holder, even if the store loses its state.

    A fencing pool (bulk operations) does not trust such a store for a whole lease.
    """
    return pool.lease_s if pool.fencing else min(pool.lease_s, SOONEST_LOSS_S)


def _nothing() -> None:
    """Stop no timer: none runs."""


def _renewal(lease: HeldLease) -> Renewal:
    return Renewal(lease.admitted.plan.domain, lease.pool, lease.holder, had_slot=True)
