"""The gate of a process: the fleet's while Redis is available, else its own share of every limit.

Redis counts as unavailable after an error, or after a ping without an answer within 0.8 s. Requests that were
waiting for Redis are then decided locally; if Redis processes them later, their effect is cancelled. Two quick
pings in a row end the outage: Redis receives what was spent and held meanwhile, and decides again. An operator
can force the local mode although Redis is available. Spec: G8.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from fairlead._core.clock import Clock, Draw
from fairlead.engine.base.service import Service
from fairlead.engine.base.timing import TimeLimit
from fairlead.engine.limits.degraded_gate import DegradedGate, LocalCounts, to_renewal
from fairlead.engine.limits.recovery import RecoveryPeriod
from fairlead.engine.limits.resync import resync
from fairlead.engine.ports import (
    AdmitRequest,
    AdmitResult,
    Admitted,
    FleetGate,
    Lease,
    OnReleased,
    Queued,
    Release,
    Released,
    Renewal,
    Reserved,
    Wake,
)
from fairlead.errors import LimiterUnavailableError
from fairlead.events import Emit, GateDegraded, GateRestored, GateSlow
from fairlead.policy.limits.breaker import DestinationHealth
from fairlead.policy.limits.limit import Plan
from fairlead.policy.limits.pool import Holder
from fairlead.policy.limits.share import Share
from fairlead.policy.text.safe import safe_text

PING_TIMEOUT_S = 0.8
"""How long a ping may take before Redis counts as unavailable."""
SLOW_S = 0.5
"""A slower ping is reported, and does not end an outage."""
PING_INTERVAL_S = 0.2
MAX_UNCLAIMED = 256
"""How many requests to remember that Redis may have granted something which no caller uses."""
RETRY_AFTER_S = 5.0
"""When to try again what only Redis can decide."""
PINGS_TO_RETURN = 2
"""How many quick pings in a row end an outage."""


class FailoverGate:
    """See fairlead.engine.ports.gate.Gate.

    Args:
        fleet: The gate in Redis.
        local: Returns a new gate of this process alone.
        share: Returns this process's share of the limits.
        storeless: Whether there is no Redis at all, so that *fleet* never answers.
    """

    def __init__(
        self,
        fleet: FleetGate,
        local: Callable[[], LocalCounts],
        *,
        share: Callable[[], Share],
        clock: Clock,
        draw: Draw,
        emit: Emit,
        storeless: bool = False,
    ) -> None:
        self._fleet = fleet
        self._storeless = storeless
        self._local = local
        self._share = share
        self._clock, self._draw = clock, draw
        self._emit = emit
        self._degraded: DegradedGate | None = None
        self._recovery: RecoveryPeriod | None = None
        self._slots: dict[int, Admitted | Renewal] = {}
        """The slots that Redis has granted to running calls, by lease."""
        self._queued: dict[int, AdmitRequest] = {}
        self._unclaimed: deque[AdmitRequest] = deque(maxlen=MAX_UNCLAIMED)
        self._quick_pings = 0
        self._resynced: asyncio.Event | None = None
        """Set when the return that is under way ends; None: none is."""
        self._late_releases: list[tuple[Release, OnReleased]] = []
        """Releases that wait for the return under way."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_forced = self._is_slow = False
        self._wake: Wake = lambda lease_id: None

    @property
    def is_degraded(self) -> bool:
        """Whether this process decides by its share."""
        return self._degraded is not None

    # ---- the port ------------------------------------------------------------------------------

    async def admit(self, request: AdmitRequest) -> AdmitResult:
        """Decide by the fleet's counts, or by this process's share of them."""
        degraded = self._degraded if self._resynced is None else await self._current_degraded()
        if degraded is None:
            try:
                result = await (
                    self._fleet.admit(request) if self._recovery is None else self._admit_recovering(request)
                )
            except asyncio.CancelledError:
                if self._degraded is None:
                    self._unclaimed.append(request)  # in case Redis fails before the request is undone there
                else:
                    self._degraded.cancel_later([request])
                raise
            except LimiterUnavailableError as error:
                degraded = await self._fail_over(error)
            else:
                degraded = self._degraded  # Redis may have become unavailable since it answered
                if degraded is None or isinstance(result, Admitted):
                    await self._record_slot(result)
                    return self._record_wait(request, result)
            degraded.cancel_later([request])
        return self._record_wait(request, await degraded.admit(request))

    async def release(self, release: Release) -> Released:
        """Release the call where it was admitted, if that is available."""
        degraded = await self._current_degraded()
        admitted, in_store = release.admitted, self._pop_slot(release.admitted)
        if degraded is None:
            if admitted.local:
                # The outage has ended, and Redis has been given the call's slot and cost.
                release = release._replace(actual={}, observed={})
                if not in_store:
                    return Released(was_held=True)
            try:
                return await self._fleet.release(release)
            except LimiterUnavailableError as error:
                degraded = await self._fail_over(error)
        return await degraded.release(release, in_store=in_store)

    def release_soon(self, release: Release, on_released: OnReleased) -> None:
        """Start `release`. If Redis becomes unavailable, the call is released locally."""
        admitted = release.admitted
        if release.health is DestinationHealth.RESPONDING:
            # Only for the breaker that admitted the probe; any other learns from the probe's end.
            if self._resynced is None and admitted.local is (self._degraded is not None):
                (self._degraded or self._fleet).release_soon(release, on_released)
            return
        if self._resynced is not None:
            self._late_releases.append((release, on_released))
            return
        in_store = self._pop_slot(admitted)
        if self._degraded is not None:
            self._degraded.release_soon(release, on_released, in_store=in_store)
            return
        if admitted.local:  # as in `release`
            release = release._replace(actual={}, observed={})
            if not in_store:
                on_released(Released(was_held=True))
                return

        def released(result: Released | Exception) -> None:
            if isinstance(result, LimiterUnavailableError):
                self._spawn(self._release_degraded(release, on_released, result, in_store=in_store))
            else:
                on_released(result)

        self._fleet.release_soon(release, released)

    async def _release_degraded(
        self, release: Release, on_released: OnReleased, error: LimiterUnavailableError, *, in_store: bool
    ) -> None:
        (await self._fail_over(error)).release_soon(release, on_released, in_store=in_store)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="fairlead-gate-end")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def drained(self) -> None:
        """Wait until every release that Redis did not get has been done locally."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def cancel(self, request: AdmitRequest) -> None:
        """Cancel the request in Redis and in this process. What cannot be reached expires by itself."""
        self._forget(request.plan, request.holder)
        degraded = await self._current_degraded()
        if degraded is None:
            try:
                await self._fleet.cancel(request)
            except LimiterUnavailableError as error:
                degraded = await self._fail_over(error)
        if degraded is not None:
            degraded.cancel_later([request])
            await degraded.cancel(request)

    async def renew(self, renewals: Sequence[Renewal]) -> list[Lease]:
        """Renew slots and places in the queue, in Redis or in this process."""
        degraded = await self._current_degraded()
        if degraded is None:
            try:
                return await self._fleet.renew(renewals)
            except LimiterUnavailableError as error:
                degraded = await self._fail_over(error)
        return await degraded.renew(renewals)

    async def attach(self, renewal: Renewal) -> Lease:
        """Continue a slot that another process held, or that no process renews.

        Raises:
            LimiterUnavailableError: Redis is unavailable, so the slot's owner is unknown.
        """
        if await self._current_degraded() is not None:
            raise LimiterUnavailableError("only Redis knows who holds the slot", retry_after_s=RETRY_AFTER_S)
        try:
            (state,) = await self._fleet.renew([renewal])
        except LimiterUnavailableError as error:
            await self._fail_over(error)
            raise LimiterUnavailableError(
                error.message, hint=error.hint, retry_after_s=RETRY_AFTER_S
            ) from error
        if state is Lease.ACTIVE:
            self._slots[renewal.holder.lease_id] = renewal
            if self._degraded is not None:
                await self._degraded.adopt(renewal)
        return state

    async def detach(self, renewal: Renewal) -> None:
        """Renew a slot once more, and stop holding it, so that another process can attach to it."""
        try:
            await self.renew([renewal])
        finally:
            self._slots.pop(renewal.holder.lease_id, None)
            if self._degraded is not None:
                self._degraded.detach(renewal.holder.lease_id)

    async def listen(self, wake: Wake) -> None:
        """Call *wake* for each grant, of Redis or of this process."""
        self._wake = wake
        await self._fleet.listen(wake)

    # ---- what Redis may hold for this process ----------------------------------------------------

    async def _admit_recovering(self, request: AdmitRequest) -> AdmitResult:
        """Let Redis decide within this process's share, until the time after an outage is over."""
        recovery = self._recovery
        if recovery is None or (left_s := recovery.left_s()) <= 0:
            self._recovery = None
            return await self._fleet.admit(request)
        is_queued = request.holder is not None and request.holder.lease_id in self._queued
        return await recovery.admit(request, left_s, is_queued=is_queued)

    async def _record_slot(self, result: AdmitResult) -> None:
        if isinstance(result, Admitted) and result.holder is not None and result.plan.pool is not None:
            self._slots[result.holder.lease_id] = result
            if self._degraded is not None:
                await self._degraded.adopt(to_renewal(result))

    def _record_wait(self, request: AdmitRequest, result: AdmitResult) -> AdmitResult:
        if isinstance(result, Admitted) and request.holder is not None:
            self._queued.pop(request.holder.lease_id, None)
        elif isinstance(result, Queued) and request.holder is not None:
            self._queued[request.holder.lease_id] = request
        else:
            self._forget(request.plan, request.holder)
            if isinstance(result, Reserved) and result.delay_s <= request.wait_s:
                self._unclaimed.append(request)  # its caller may leave before it is due
        return result

    def _pop_slot(self, admitted: Admitted) -> bool:
        """Forget the slot of a call that has ended; return whether Redis counts it as taken."""
        holder = admitted.holder
        slot = None if holder is None else self._slots.pop(holder.lease_id, None)
        self._forget(admitted.plan, holder)
        return slot is not None

    def _forget(self, plan: Plan, holder: Holder | None) -> None:
        if holder is not None:
            self._queued.pop(holder.lease_id, None)
            if self._recovery is not None:
                self._recovery.release(plan, holder)

    def _wake_queued(self) -> Collection[AdmitRequest]:
        """Wake the calls in a queue that counts no longer, so that they ask again at once.

        Returns:
            The requests that the previous decider may still hold something for.
        """
        queued, self._queued = self._queued, {}
        for lease_id in queued:
            self._wake(lease_id)
        return [*queued.values(), *self._unclaimed]

    async def _current_degraded(self) -> DegradedGate | None:
        """Return the local gate if it decides, or None if Redis does, once a return under way has ended."""
        if self._resynced is not None:
            await self._resynced.wait()
        return self._degraded

    # ---- outage and return ---------------------------------------------------------------------

    async def _fail_over(self, error: LimiterUnavailableError) -> DegradedGate:
        """Decide locally from now on, also the requests that wait for Redis."""
        if self._degraded is not None:
            return self._degraded
        self._recovery = None
        self._degraded = degraded = DegradedGate(
            self._local(),
            self._share,
            self._clock.monotonic,
            [to_renewal(slot) for slot in self._slots.values()],
            self._storeless,
        )
        self._quick_pings = 0
        self._emit(GateDegraded(safe_text(error)))
        await degraded.gate.listen(self._wake)
        await degraded.adopt_initial_slots()
        degraded.cancel_later(self._wake_queued())
        self._fleet.abandon(error)
        return degraded

    async def force_degraded(self, why: str | None) -> None:
        """Decide locally although Redis is available; None: no longer, and return as after an outage."""
        self._is_forced = why is not None
        if why is None or await self._current_degraded() is not None:
            return
        await self._fail_over(LimiterUnavailableError(f"the gate is degraded by hand: {why}"))

    async def ping_redis(self) -> float | None:
        """Ping Redis once, and fail over or return to it; return the seconds until the next check."""
        began_mono = self._clock.monotonic()
        try:
            async with TimeLimit(self._clock, PING_TIMEOUT_S):
                await self._fleet.ping()
        except (LimiterUnavailableError, TimeoutError) as error:
            self._quick_pings = 0
            if self._degraded is None:
                await self._fail_over(error if isinstance(error, LimiterUnavailableError) else _silent())
            return PING_INTERVAL_S
        duration_s = self._clock.monotonic() - began_mono
        self._report_slow(duration_s)
        self._quick_pings = self._quick_pings + 1 if duration_s < SLOW_S else 0
        is_back = self._quick_pings >= PINGS_TO_RETURN and self._fleet.is_settled
        if self._degraded is not None and is_back and not self._is_forced:
            await self._return_to_fleet(self._degraded)
        return PING_INTERVAL_S

    def _report_slow(self, duration_s: float) -> None:
        is_slow = duration_s > SLOW_S
        if is_slow and not self._is_slow:
            self._emit(GateSlow(round(duration_s, 3)))
        self._is_slow = is_slow

    async def _return_to_fleet(self, degraded: DegradedGate) -> None:
        """Report the outage to Redis, and let Redis decide again; requests wait meanwhile."""
        self._resynced = asyncio.Event()
        try:
            adopted = await resync(self._fleet, degraded, self._clock)
            self._slots = {renewal.holder.lease_id: replace(renewal, adopt=False) for renewal in adopted}
            degraded.gate.drop_reservations()  # Redis reserves again: these must not delay a later call
            self._degraded = None
            self._recovery = RecoveryPeriod(
                degraded, adopted, fleet=self._fleet, share=self._share, clock=self._clock
            )
        except LimiterUnavailableError:
            self._quick_pings = 0
        finally:
            resynced, self._resynced = self._resynced, None
            late_releases, self._late_releases = self._late_releases, []
            with ExitStack() as stack:  # run all, whatever one of them raises; the releases come first
                stack.callback(resynced.set)
                for release, on_released in reversed(late_releases):
                    stack.callback(self.release_soon, release, on_released)
        if self._degraded is None and self._recovery is not None:
            self._wake_queued()
            self._emit(GateRestored(round(self._recovery.outage_s, 3)))

    def service(self) -> Service:
        """Return the checks as a background service."""
        clock, draw = self._clock, self._draw
        return Service(
            "gate-failover",
            self.ping_redis,
            interval_s=PING_INTERVAL_S,
            clock=clock,
            draw=draw,
            emit=self._emit,
        )


def _silent() -> LimiterUnavailableError:
    return LimiterUnavailableError(f"Redis did not answer within {PING_TIMEOUT_S:g} s")
