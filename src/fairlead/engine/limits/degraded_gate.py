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

CLOSED_FOR_S = 5.0
"""When to ask again where nothing is sent without the store."""
OWN_SHARE = 1 / 2
"""Of a lease: how long it goes on with what was its own. The last renewal may be older by a third of a lease
and by the silence in which the outage was noticed; the rest is for the beat that ends what is beyond it."""
_KEPT = Released(was_held=True)
MANY = 20_000
"""The most limits to know before unused ones are forgotten, and the most asks to keep for a return."""
HEARD_S = 15.0
"""By then the others have counted a new process (FleetSize) and keep to the smaller share (LeaseRenewer)."""


class LocalCounts(Gate, Protocol):
    """A gate of one process that shows its buckets."""

    def buckets(self) -> Iterable[tuple[Domain, str, Bucket]]:
        """Every bucket it has met."""
        ...

    def drop_reservations(self) -> None:
        """Nobody comes for what was promised."""
        ...


@dataclass(slots=True)
class DegradedGate:
    """Made when the store goes away, thrown away when it is back. *held* are the slots of that moment.

    *storeless*: there is no store, so none of ours was ever counted anywhere else.
    """

    gate: LocalCounts
    share: Callable[[], Share]
    now_s: Callable[[], float]
    held: Sequence[Renewal]
    storeless: bool = False
    since_mono: float = field(init=False)
    _plans: WeakKeyDictionary[Plan, tuple[Share, Plan]] = field(default_factory=WeakKeyDictionary)
    _limits: dict[tuple[Domain, str], BucketLimit] = field(default_factory=dict)
    _most: int = MANY
    _own: Counter[tuple[Domain, str]] = field(default_factory=Counter)
    """How many slots of each pool were ours when it began."""
    _running: dict[int, Renewal] = field(default_factory=dict)
    _ended: list[Release] = field(default_factory=list)
    _left: dict[int, AdmitRequest] = field(default_factory=dict)
    _paid: Counter[tuple[Domain, str]] = field(default_factory=Counter)
    """How much each bucket had spent when the store last heard what it owes."""

    def __post_init__(self) -> None:
        self.since_mono = self.now_s()
        self._own.update((renewal.domain, renewal.pool.key) for renewal in self.held)

    # ---- while it lasts ------------------------------------------------------------------------

    async def begin(self) -> None:
        """Take over the slots that were held when the store went away."""
        for renewal in self.held:
            await self._renew(renewal, adopt=True)

    async def adopt(self, renewal: Renewal) -> None:
        """The same for one that the store granted as it went away, and whose call runs here."""
        self._own[renewal.domain, renewal.pool.key] += 1
        await self._renew(renewal, adopt=True)

    async def admit(self, ask: AdmitRequest) -> AdmitResult:
        """As the connection's degraded mode has it."""
        match ask.plan.degraded:
            case Degraded.CLOSED:
                return GateRefusal(RefusedBy.OUTAGE, CLOSED_FOR_S)
            case Degraded.OPEN:
                spent = ask.costs or (1.0,) * len(ask.plan.buckets)
                return Admitted(ask.plan, None, 0, 0, (), spent, local=True)  # nothing to lose, now or later
        degraded = self._plan(ask.plan)
        for bucket in ask.plan.buckets:
            self._limits[ask.plan.domain, bucket.key] = bucket
        if len(self._limits) > self._most:  # nothing is owed for limits that the gate has dropped
            known = {(domain, key) for domain, key, _ in self.gate.buckets()}
            self._limits = {key: limit for key, limit in self._limits.items() if key in known}
            self._most = max(MANY, 2 * len(self._limits))
        answer = await self.gate.admit(ask._replace(plan=degraded))
        if isinstance(answer, Admitted):
            if ask.plan.pool is not None and ask.holder is not None:
                self._running[ask.holder.lease_id] = Renewal(
                    ask.plan.domain, ask.plan.pool, ask.holder, had_slot=True
                )
            return answer._replace(plan=ask.plan, local=True)
        if isinstance(answer, GateRefusal) and answer.retry_after_s is None:
            return GateRefusal(RefusedBy.OUTAGE, CLOSED_FOR_S)  # more than a share, not more than the limit
        return answer

    async def release(self, release: Release, *, in_store: bool = False) -> Released:
        """The end of a call, whoever had admitted it. *in_store*: its slot is counted there, too."""
        here = self._here(release, in_store=in_store)
        return _KEPT if here is None else (await self.gate.release(here))._replace(was_held=True)

    def release_soon(self, release: Release, told: OnReleased, *, in_store: bool = False) -> None:
        """The same at once."""
        here = self._here(release, in_store=in_store)
        if here is None:
            told(_KEPT)
        else:
            self.gate.release_soon(
                here, lambda done: told(done._replace(was_held=True) if isinstance(done, Released) else done)
            )

    def _here(self, release: Release, *, in_store: bool) -> Release | None:
        """What this process has to settle of it, by its share; None: nothing."""
        admitted = release.admitted
        if in_store:
            self._ended.append(release._replace(actual={}, observed={}))
        if admitted.holder is not None and release.health is not DestinationHealth.RESPONDING:
            self._running.pop(admitted.holder.lease_id, None)
        if admitted.plan.degraded is not Degraded.LOCAL_SHARE:
            return None
        # What the store let through and was then not there to hear of is not this process's to settle.
        kept = release if admitted.local else release._replace(actual={}, observed={})
        return kept._replace(admitted=admitted._replace(plan=self._plan(admitted.plan)))

    async def cancel(self, ask: AdmitRequest) -> None:
        """Nothing of *ask* is wanted any more."""
        await self.gate.cancel(ask._replace(plan=self._plan(ask.plan)))

    async def renew(self, renewals: Sequence[Renewal]) -> list[Lease]:
        """Slots are kept as far as our own, later our share, goes."""
        beyond = self._beyond()
        return [await self._renewed(renewal, beyond) for renewal in renewals]

    def detach(self, lease_id: int) -> None:
        """A slot that this process keeps no longer: nothing of it is to be told when the store is back."""
        self._running.pop(lease_id, None)
        self._left.pop(lease_id, None)

    async def _renewed(self, renewal: Renewal, beyond: set[int]) -> Lease:
        if renewal.holder.lease_id in beyond:
            await self.gate.cancel(
                AdmitRequest(self._plan(Plan(renewal.domain, pool=renewal.pool)), holder=renewal.holder)
            )
            self._running.pop(renewal.holder.lease_id, None)
            return Lease.LOST
        return await self._renew(renewal, adopt=False)

    def _beyond(self) -> set[int]:
        """The leases of which earlier holders of this process fill all that it may hold."""
        beyond: set[int] = set()
        left: dict[tuple[Domain, str], int] = {}
        for lease_id, running in self._running.items():
            key = (running.domain, running.pool.key)
            left[key] = left.get(key, self._capacity(running.domain, running.pool)) - 1
            if left[key] < 0:
                beyond.add(lease_id)
        return beyond

    async def _renew(self, renewal: Renewal, *, adopt: bool) -> Lease:
        capacity = self._capacity(renewal.domain, renewal.pool)
        own = replace(renewal, pool=self._degraded(renewal.pool, capacity), adopt=adopt)
        (state,) = await self.gate.renew([own])
        if state is Lease.ACTIVE:
            self._running.setdefault(renewal.holder.lease_id, replace(renewal, had_slot=True))
        return state

    # ---- shares --------------------------------------------------------------------------------

    def _plan(self, plan: Plan) -> Plan:
        share = self.share()
        known = self._plans.get(plan)
        if known is None or known[0] != share:
            known = self._plans[plan] = (share, share_of(plan, share))
        degraded = known[1]
        if plan.pool is None:
            return degraded
        return replace(degraded, pool=self._degraded(plan.pool, self._capacity(plan.domain, plan.pool)))

    def _capacity(self, domain: Domain, pool: PoolLimit) -> int:
        """Our own while the store surely counts them for us, as since the last renewal; then our share.

        Before every lease of that time has ended, a share larger than what was ours may be another's still.
        """
        ours = self.share()
        own, share = self._own[domain, pool.key], ours.slots(pool.capacity)
        age_s = self.now_s() - self.since_mono
        if self.storeless:
            return share if ours.processes == 1 or age_s >= HEARD_S else 0
        if ours.processes == 1 and ours.steady:
            return share
        if age_s < pool.lease_s * OWN_SHARE:
            return own
        return min(own, share) if age_s < pool.lease_s else share

    def _degraded(self, pool: PoolLimit, capacity: int) -> PoolLimit:
        # Each look may find another number, and the newest counts: so versions go by the clock.
        return replace(pool_share(pool, capacity), version=round(self.now_s() * 1000))

    # ---- what is owed --------------------------------------------------------------------------

    async def pay(self, ask: AdmitRequest) -> Admitted | GateRefusal | None:
        """What *ask* costs, by our share of its buckets; None: of its buckets nobody else owes anything."""
        plan = ask.plan
        if not plan.buckets or plan.degraded is not Degraded.LOCAL_SHARE or self.share().processes == 1:
            return None
        answer = await self.gate.admit(
            AdmitRequest(Plan(plan.domain, buckets=self._plan(plan).buckets), ask.costs)
        )
        assert isinstance(answer, Admitted | GateRefusal)  # it stands in no line
        return answer

    async def refund(self, paid: Admitted) -> None:
        """The store did not let it through."""
        await self.gate.release(Release(paid, actual=dict.fromkeys(range(len(paid.plan.buckets)), 0.0)))

    def adopted(self) -> list[Renewal]:
        """The slots that are in use, for the store to know."""
        return [replace(renewal, adopt=True) for renewal in self._running.values()]

    def abandon(self, asks: Iterable[AdmitRequest]) -> None:
        """Store *asks* for cancellation in Redis, which may have a slot, a place and a turn for each.

        Of two with the same lease the first is stored, because Redis may know it. At most *MANY* are stored.
        """
        for ask in asks:
            if ask.holder is not None and ask.plan.pool is not None and len(self._left) < MANY:
                self._left.setdefault(ask.holder.lease_id, ask)

    def abandoned(self) -> list[AdmitRequest]:
        """Return the asks to cancel in Redis, the same ones until that succeeds.

        Without this a slot granted without a listener stays idle for a lease, and a turn stays reserved until
        its time has passed. A call that still runs keeps its slot in Redis, and only its turn is cancelled.
        """
        return [
            ask._replace(holder=None) if lease_id in self._running else ask
            for lease_id, ask in self._left.items()
        ]

    def ended(self) -> Sequence[Release]:
        """Slots that the store takes for held and that are free: else each would be idle for a lease. Told
        once: what a call says of a destination counts once."""
        ended, self._ended = self._ended, []
        return ended

    def debts(self) -> Iterator[Release]:
        """What was spent and has not come back, bucket by bucket, as ends of calls that spent it."""
        for domain, key, bucket in self.gate.buckets():
            spent = bucket.sent - self._paid[domain, key]
            owed = min(spent, bucket.capacity - bucket.level - bucket.booked)
            limit = self._limits.get((domain, key))
            if owed > 0 and limit is not None:
                nothing = Admitted(Plan(domain, buckets=(limit,)), None, 0, 0, (0,), (0.0,))
                yield Release(nothing, actual={0: owed / MICRO})

    def paid(self, debts: Iterable[Release]) -> None:
        """The store has heard of *debts*; nothing was spent since they were told."""
        plans = [debt.admitted.plan for debt in debts]
        heard = {(plan.domain, plan.buckets[0].key) for plan in plans}
        for domain, key, bucket in self.gate.buckets():
            if (domain, key) in heard:
                self._paid[domain, key] = bucket.sent


def renewal_of(admitted: Admitted | Renewal) -> Renewal:
    """Return the renewal that keeps the slot of an admitted call."""
    if isinstance(admitted, Renewal):
        return admitted
    assert admitted.plan.pool is not None
    assert admitted.holder is not None
    return Renewal(admitted.plan.domain, admitted.plan.pool, admitted.holder, had_slot=True)
