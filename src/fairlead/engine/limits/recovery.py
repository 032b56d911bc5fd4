"""The time after an outage in which this process keeps to its share, although Redis decides again.

Other processes may be without Redis a little longer. What they spend and hold from their shares meanwhile
reaches Redis only when they return. So for a second this process admits no more than its own share, too.
Spec: R27.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fairlead._core.clock import Clock
from fairlead.engine.limits.degraded_gate import DegradedGate
from fairlead.engine.ports import (
    AdmitRequest,
    AdmitResult,
    Admitted,
    FleetGate,
    GateRefusal,
    RefusedBy,
    Renewal,
)
from fairlead.policy.limits.limit import Domain, Plan
from fairlead.policy.limits.pool import Holder
from fairlead.policy.limits.share import Share

SHARED_S = 1.0
"""How long a process keeps to its share after an outage. By then the others have returned, too.

It applies to slots after an outage as long as their lease, and to buckets after one of OVERLAP_S.
"""
OVERLAP_S = 0.5
"""After a shorter outage a bucket has regained no more than what processes with and without Redis may send on
top of each other anyway. Spec: R27."""


class RecoveryPeriod:
    """The recovery after one outage; *running* are the slots in use at its end."""

    def __init__(
        self,
        degraded: DegradedGate,
        running: Iterable[Renewal],
        *,
        fleet: FleetGate,
        share: Callable[[], Share],
        clock: Clock,
    ) -> None:
        self._degraded = degraded
        self._fleet = fleet
        self._share = share
        self._clock = clock
        self._began_mono = clock.monotonic()
        self.outage_s = self._began_mono - degraded.since_mono
        self._slots: dict[tuple[Domain, str], set[int]] = {}
        """The leases in use, by pool."""
        for renewal in running:
            self._slots.setdefault((renewal.domain, renewal.pool.key), set()).add(renewal.holder.lease_id)

    def left_s(self) -> float:
        """Return how long the recovery still lasts; 0 or less: it is over."""
        return self._began_mono + SHARED_S - self._clock.monotonic()

    async def admit(self, request: AdmitRequest, left_s: float, *, is_queued: bool) -> AdmitResult:
        """Return the fleet's decision, or a refusal if the call is beyond this process's share.

        Args:
            request: The request.
            left_s: How long the recovery still lasts.
            is_queued: Whether the request waits in the fleet's queue for a slot.
        """
        if (refusal := self._beyond_share(request, left_s)) is not None:
            return refusal
        spent = await self._degraded.spend(request) if self.outage_s > OVERLAP_S else None
        if isinstance(spent, GateRefusal):
            if is_queued:
                await self._fleet.cancel(request)  # a slot granted to a refused call would stay idle
            wait_s = left_s if spent.retry_after_s is None else min(left_s, spent.retry_after_s)
            return GateRefusal(RefusedBy.RECOVERY, wait_s)
        result = await self._fleet.admit(request)
        if spent is not None and not isinstance(result, Admitted):
            await self._degraded.refund(spent)
        return result

    def release(self, plan: Plan, holder: Holder) -> None:
        """Record that *holder* uses its slot no longer."""
        if plan.pool is not None and self._slots:
            self._slots.get((plan.domain, plan.pool.key), set()).discard(holder.lease_id)

    def _beyond_share(self, request: AdmitRequest, left_s: float) -> GateRefusal | None:
        """Return the refusal of a call that would use more slots than the share; None: it may be admitted."""
        pool = request.plan.pool
        if pool is None or request.holder is None or self.outage_s + SHARED_S < pool.lease_s:
            return None
        slots = self._slots.setdefault((request.plan.domain, pool.key), set())
        if request.holder.lease_id not in slots and len(slots) >= self._share().slots(pool.capacity):
            return GateRefusal(RefusedBy.RECOVERY, left_s)
        slots.add(request.holder.lease_id)
        return None
