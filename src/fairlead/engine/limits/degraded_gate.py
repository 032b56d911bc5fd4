"""The local decisions of this process while Redis is unavailable, and the debts it settles afterwards.

Buckets begin empty and fill at this process's share of the rate. The process may reuse the slots that it held
when Redis became unavailable, until shortly before Redis would give them to another process. From then on it
is limited to its share of the slots, and calls beyond that share are cancelled. A process that was the only
one for the length of a lease may use all slots at once. While Redis is unavailable to all processes, the
fleet never holds more than the limit. While it is unavailable to one, the excess is at most that process's
share.

An installation without Redis divides the limits by the number of processes. A process without others begins
with its share, and one among others begins once they have counted it.

When Redis is available again, the process first reports what was spent and which slots are held. Spec: R23,
R27.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol
from weakref import WeakKeyDictionary

from fairlead.engine.ports import (
    AdmitRequest,
    AdmitResult,
    Admitted,
    Gate,
    GateRefusal,
    Lease,
    OnReleased,
    RefusedBy,
    Release,
    Released,
    Renewal,
)
from fairlead.policy.limits.breaker import DestinationHealth
from fairlead.policy.limits.bucket import Bucket
from fairlead.policy.limits.limit import MICRO, BucketLimit, Degraded, Domain, Plan, PoolLimit
from fairlead.policy.limits.share import Share, pool_share, share_of

RETRY_AFTER_S = 5.0
"""When to try again a call that is not sent without Redis."""
REUSE_SHARE = 1 / 2
"""The share of a lease during which the process may reuse the slots that it held.

The last renewal may be a third of a lease old, plus the time until the outage was noticed. The rest is for the
beat that cancels the calls beyond the share.
"""
MAX_LIMITS = 20_000
"""The most limits to store before unused ones are dropped, and the most requests to cancel later."""
COUNTED_AFTER_S = 15.0
"""How long until the other processes have counted a new one (FleetSize) and cancelled calls beyond their
smaller share (LeaseRenewer)."""
_RELEASED = Released(was_held=True)


class LocalCounts(Gate, Protocol):
    """A gate of one process that shows its buckets."""

    def buckets(self) -> Iterable[tuple[Domain, str, Bucket]]:
        """Return every bucket that it has used."""
        ...

    def drop_reservations(self) -> None:
        """Drop all reservations: their calls do not come back for them."""
        ...


@dataclass(slots=True)
class DegradedGate:
    """The gate of one outage: made when Redis becomes unavailable, dropped when it is available again.

    Attributes:
        gate: Counts what this process spends and holds.
        share: Returns this process's share of the limits.
        now_mono: Returns the time of the monotonic clock.
        initial_slots: The slots that this process held when Redis became unavailable.
        storeless: Whether there is no Redis at all, so that no other process counts these slots.
    """

    gate: LocalCounts
    share: Callable[[], Share]
    now_mono: Callable[[], float]
    initial_slots: Sequence[Renewal]
    storeless: bool = False
    since_mono: float = field(init=False)
    _plans: WeakKeyDictionary[Plan, tuple[Share, Plan]] = field(default_factory=WeakKeyDictionary)
    _limits: dict[tuple[Domain, str], BucketLimit] = field(default_factory=dict)
    _limits_bound: int = MAX_LIMITS
    _initial_counts: Counter[tuple[Domain, str]] = field(default_factory=Counter)
    """How many slots of each pool this process held when the outage began."""
    _running: dict[int, Renewal] = field(default_factory=dict)
    _unreported_releases: list[Release] = field(default_factory=list)
    _to_cancel: dict[int, AdmitRequest] = field(default_factory=dict)
    _reported: Counter[tuple[Domain, str]] = field(default_factory=Counter)
    """How much each bucket had spent when it was last reported to Redis."""

    def __post_init__(self) -> None:
        self.since_mono = self.now_mono()
        self._initial_counts.update((renewal.domain, renewal.pool.key) for renewal in self.initial_slots)

    # ---- during the outage ---------------------------------------------------------------------

    async def adopt_initial_slots(self) -> None:
        """Count the slots that were held when Redis became unavailable."""
        for renewal in self.initial_slots:
            await self._renew(renewal, adopt=True)

    async def adopt(self, renewal: Renewal) -> None:
        """Count a slot that Redis granted just before it became unavailable, for a call that runs here."""
        self._initial_counts[renewal.domain, renewal.pool.key] += 1
        await self._renew(renewal, adopt=True)

    async def admit(self, request: AdmitRequest) -> AdmitResult:
        """Decide by the connection's degraded mode: closed, open, or by this process's share."""
        match request.plan.degraded:
            case Degraded.CLOSED:
                return GateRefusal(RefusedBy.OUTAGE, RETRY_AFTER_S)
            case Degraded.OPEN:
                spent = request.costs or (1.0,) * len(request.plan.buckets)
                return Admitted(request.plan, None, 0, 0, (), spent, local=True)  # it holds nothing
        degraded = self._share_plan(request.plan)
        self._store_limits(request.plan)
        result = await self.gate.admit(request._replace(plan=degraded))
        if isinstance(result, Admitted):
            if request.plan.pool is not None and request.holder is not None:
                self._running[request.holder.lease_id] = Renewal(
                    request.plan.domain, request.plan.pool, request.holder, had_slot=True
                )
            return result._replace(plan=request.plan, local=True)
        if isinstance(result, GateRefusal) and result.retry_after_s is None:
            return GateRefusal(RefusedBy.OUTAGE, RETRY_AFTER_S)  # more than a share, not more than the limit
        return result

    def _store_limits(self, plan: Plan) -> None:
        """Remember the limits of *plan*, to report to Redis later what was spent of them."""
        for bucket in plan.buckets:
            self._limits[plan.domain, bucket.key] = bucket
        if len(self._limits) > self._limits_bound:  # nothing is owed for limits that the gate has dropped
            used = {(domain, key) for domain, key, _ in self.gate.buckets()}
            self._limits = {key: limit for key, limit in self._limits.items() if key in used}
            self._limits_bound = max(MAX_LIMITS, 2 * len(self._limits))

    async def release(self, release: Release, *, in_store: bool = False) -> Released:
        """Release a call, admitted by Redis or by this process.

        Args:
            release: The end of the call.
            in_store: Whether Redis counts its slot as taken.
        """
        local = self._local_release(release, in_store=in_store)
        return _RELEASED if local is None else (await self.gate.release(local))._replace(was_held=True)

    def release_soon(self, release: Release, on_released: OnReleased, *, in_store: bool = False) -> None:
        """Release a call as `release` does, at once."""
        local = self._local_release(release, in_store=in_store)
        if local is None:
            on_released(_RELEASED)
            return
        self.gate.release_soon(
            local,
            lambda result: on_released(
                result._replace(was_held=True) if isinstance(result, Released) else result
            ),
        )

    def _local_release(self, release: Release, *, in_store: bool) -> Release | None:
        """Return what the local gate has to record of *release*; None: nothing."""
        admitted = release.admitted
        if in_store:
            self._unreported_releases.append(release._replace(actual={}, observed={}))
        if admitted.holder is not None and release.health is not DestinationHealth.RESPONDING:
            self._running.pop(admitted.holder.lease_id, None)
        if admitted.plan.degraded is not Degraded.LOCAL_SHARE:
            return None
        # The cost of a call that Redis admitted was not taken from the share.
        local = release if admitted.local else release._replace(actual={}, observed={})
        return local._replace(admitted=admitted._replace(plan=self._share_plan(admitted.plan)))

    async def cancel(self, request: AdmitRequest) -> None:
        """Drop the request's place in the queue, grant and reservations."""
        await self.gate.cancel(request._replace(plan=self._share_plan(request.plan)))

    async def renew(self, renewals: Sequence[Renewal]) -> list[Lease]:
        """Renew slots as far as the capacity of this process allows; the others are lost."""
        excess = self._excess_leases()
        return [await self._renew_within(renewal, excess) for renewal in renewals]

    def detach(self, lease_id: int) -> None:
        """Stop holding a slot, and report nothing of it to Redis."""
        self._running.pop(lease_id, None)
        self._to_cancel.pop(lease_id, None)

    async def _renew_within(self, renewal: Renewal, excess: set[int]) -> Lease:
        """Renew a slot, or release it if its lease is among *excess*."""
        if renewal.holder.lease_id in excess:
            await self.gate.cancel(
                AdmitRequest(self._share_plan(Plan(renewal.domain, pool=renewal.pool)), holder=renewal.holder)
            )
            self._running.pop(renewal.holder.lease_id, None)
            return Lease.LOST
        return await self._renew(renewal, adopt=False)

    def _excess_leases(self) -> set[int]:
        """Return the leases beyond the capacity of their pool; the oldest leases fill it."""
        excess: set[int] = set()
        free: dict[tuple[Domain, str], int] = {}
        for lease_id, running in self._running.items():
            key = (running.domain, running.pool.key)
            free[key] = free.get(key, self._capacity(running.domain, running.pool)) - 1
            if free[key] < 0:
                excess.add(lease_id)
        return excess

    async def _renew(self, renewal: Renewal, *, adopt: bool) -> Lease:
        """Renew a slot in the local gate; with *adopt* count one that Redis granted."""
        capacity = self._capacity(renewal.domain, renewal.pool)
        local = replace(renewal, pool=self._pool_share(renewal.pool, capacity), adopt=adopt)
        (state,) = await self.gate.renew([local])
        if state is Lease.ACTIVE:
            self._running.setdefault(renewal.holder.lease_id, replace(renewal, had_slot=True))
        return state

    # ---- shares --------------------------------------------------------------------------------

    def _share_plan(self, plan: Plan) -> Plan:
        """Return this process's share of *plan*."""
        share = self.share()
        cached = self._plans.get(plan)
        if cached is None or cached[0] != share:
            cached = self._plans[plan] = (share, share_of(plan, share))
        degraded = cached[1]
        if plan.pool is None:
            return degraded
        return replace(degraded, pool=self._pool_share(plan.pool, self._capacity(plan.domain, plan.pool)))

    def _capacity(self, domain: Domain, pool: PoolLimit) -> int:
        """Return how many slots of *pool* this process may use now.

        As long as Redis surely counts them, the slots that it held when the outage began; then its share.
        Until every lease of that time has ended, slots of the share beyond those may still be another
        process's.
        """
        share = self.share()
        initial, shared = self._initial_counts[domain, pool.key], share.slots(pool.capacity)
        age_s = self.now_mono() - self.since_mono
        if self.storeless:
            return shared if share.processes == 1 or age_s >= COUNTED_AFTER_S else 0
        if share.processes == 1 and share.is_steady:
            return shared
        if age_s < pool.lease_s * REUSE_SHARE:
            return initial
        return min(initial, shared) if age_s < pool.lease_s else shared

    def _pool_share(self, pool: PoolLimit, capacity: int) -> PoolLimit:
        """Return *pool* with the *capacity* that this process may use now."""
        # The capacity changes with time, and the newest one counts, so its version is the time.
        return replace(pool_share(pool, capacity), version=round(self.now_mono() * 1000))

    # ---- after the outage ----------------------------------------------------------------------

    async def spend(self, request: AdmitRequest) -> Admitted | GateRefusal | None:
        """Take the request's cost from the local buckets; None: no other process uses those limits."""
        plan = request.plan
        if not plan.buckets or plan.degraded is not Degraded.LOCAL_SHARE or self.share().processes == 1:
            return None
        result = await self.gate.admit(
            AdmitRequest(Plan(plan.domain, buckets=self._share_plan(plan).buckets), request.costs)
        )
        assert isinstance(result, Admitted | GateRefusal)  # without slots there is no queue
        return result

    async def refund(self, spent: Admitted) -> None:
        """Undo `spend` for a call that Redis did not admit."""
        await self.gate.release(Release(spent, actual=dict.fromkeys(range(len(spent.plan.buckets)), 0.0)))

    def running_slots(self) -> list[Renewal]:
        """Return the slots in use, for Redis to adopt."""
        return [replace(renewal, adopt=True) for renewal in self._running.values()]

    def cancel_later(self, requests: Iterable[AdmitRequest]) -> None:
        """Store requests for cancellation in Redis, which may hold a slot, a place or units for each.

        Of two with the same lease the first is stored, because Redis may know it. At most *MANY* are stored.
        """
        for request in requests:
            if (
                request.holder is not None
                and request.plan.pool is not None
                and len(self._to_cancel) < MAX_LIMITS
            ):
                self._to_cancel.setdefault(request.holder.lease_id, request)

    def requests_to_cancel(self) -> list[AdmitRequest]:
        """Return the requests to cancel in Redis, the same ones each time.

        Without the cancellation, a slot granted to none of them stays idle for a lease, and units stay
        reserved until their time has passed. A call that still runs keeps its slot in Redis, and only its
        reservation is cancelled.
        """
        return [
            request._replace(holder=None) if lease_id in self._running else request
            for lease_id, request in self._to_cancel.items()
        ]

    def take_releases(self) -> Sequence[Release]:
        """Return the releases of slots that Redis still counts as taken, each of them once.

        A second report would count what the call says about its destination twice.
        """
        releases, self._unreported_releases = self._unreported_releases, []
        return releases

    def debts(self) -> Iterator[Release]:
        """Yield what each bucket spent and has not regained, as the release of a call that used it."""
        for domain, key, bucket in self.gate.buckets():
            spent = bucket.sent - self._reported[domain, key]
            owed = min(spent, bucket.capacity - bucket.level - bucket.reserved)
            limit = self._limits.get((domain, key))
            if owed > 0 and limit is not None:
                nothing = Admitted(Plan(domain, buckets=(limit,)), None, 0, 0, (0,), (0.0,))
                yield Release(nothing, actual={0: owed / MICRO})

    def mark_reported(self, debts: Iterable[Release]) -> None:
        """Record that Redis has *debts*; nothing was spent since they were computed."""
        plans = [debt.admitted.plan for debt in debts]
        reported = {(plan.domain, plan.buckets[0].key) for plan in plans}
        for domain, key, bucket in self.gate.buckets():
            if (domain, key) in reported:
                self._reported[domain, key] = bucket.sent


def to_renewal(slot: Admitted | Renewal) -> Renewal:
    """Return the renewal that keeps the slot of an admitted call."""
    if isinstance(slot, Renewal):
        return slot
    assert slot.plan.pool is not None
    assert slot.holder is not None
    return Renewal(slot.plan.domain, slot.plan.pool, slot.holder, had_slot=True)
