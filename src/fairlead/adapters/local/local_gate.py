"""The gate of one process, with the same decisions as the Redis gate, in memory. Spec: D11.

A process uses it while Redis is unavailable, and so does the in-memory runtime. Tests compare the Lua scripts
with it. Nothing in it waits, so that each method is one step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from fairlead.engine.ports import (
    AdmitRequest,
    AdmitResult,
    Admitted,
    GateRefusal,
    Lease,
    OnReleased,
    Queued,
    RefusedBy,
    Release,
    Released,
    Renewal,
    Reserved,
    Wake,
)
from fairlead.policy.limits import breaker as breakers
from fairlead.policy.limits import bucket as buckets
from fairlead.policy.limits.breaker import Breaker
from fairlead.policy.limits.bucket import REDEEM_US, Bucket
from fairlead.policy.limits.limit import MICRO, BucketLimit, Domain, Plan, PoolLimit, QuotaLimit
from fairlead.policy.limits.pool import Holder, Leases, Pool, Take

SLOT_HOLD_US = MICRO
"""A reservation that is due within this time keeps a slot that it has been granted."""
MAX_LIMITS = 20_000
"""With more limits than this, unused ones are dropped."""
State = TypeVar("State")
_Reservations = dict[tuple[int, int], int]
"""The reservations of a bucket: (reservation id, cost) to the time when they expire."""


class LocalGate:
    """The port Gate in memory. *now_us* is its clock; buckets without state are empty at *birth_us*."""

    def __init__(self, now_us: Callable[[], int], *, birth_us: int = 0) -> None:
        self._now_us = now_us
        self._birth_us = birth_us
        self._buckets: dict[tuple[Domain, str], Bucket] = {}
        self._reservations: defaultdict[tuple[Domain, str], _Reservations] = defaultdict(dict)
        self._breakers: dict[tuple[Domain, str], Breaker] = {}
        self._pools: dict[tuple[Domain, str], Pool] = {}
        self._quotas: dict[tuple[Domain, str], Leases] = {}
        self._fences: dict[tuple[Domain, str], int] = {}
        self._wake: Wake = lambda lease_id: None
        self._max_limits = MAX_LIMITS

    # ---- the port ------------------------------------------------------------------------------

    async def admit(self, request: AdmitRequest) -> AdmitResult:
        return self.decide(request)

    async def release(self, release: Release) -> Released:
        return self._release_now(release)

    def release_soon(self, release: Release, on_released: OnReleased) -> None:
        on_released(self._release_now(release))

    def _release_now(self, release: Release) -> Released:
        plan, now_us = release.admitted.plan, self._now_us()
        for index in sorted({*release.actual, *release.observed}):
            self._settle(plan, index, release, now_us)
        opened_s, closed = self._record(plan, release, now_us)
        was_held = True
        holder = release.admitted.holder
        if holder is not None and plan.pool is not None and release.frees_slot:
            was_held = self._release_slot(plan, holder)
        return Released(was_held, opened_s, closed)

    async def cancel(self, request: AdmitRequest) -> None:
        costs = _costs(request)
        for index in range(len(request.plan.buckets)):
            self._bucket(request.plan, index)
        if request.reservation_id and self._remove_reservations(request, costs):
            self._cancel_reservations(request.plan, costs)
        self._cancel_wait(request)

    async def renew(self, renewals: Sequence[Renewal]) -> list[Lease]:
        return [self._renew(renewal) for renewal in renewals]

    async def listen(self, wake: Wake) -> None:
        self._wake = wake

    def buckets(self) -> Iterable[tuple[Domain, str, Bucket]]:
        """Return all buckets with state."""
        return [(domain, key, bucket) for (domain, key), bucket in self._buckets.items()]

    def drop_reservations(self) -> None:
        """Drop all reservations, because no call will redeem them."""
        for key, reservations in self._reservations.items():
            for _, cost in reservations:
                self._buckets[key] = buckets.cancel_reservation(self._buckets[key], cost)
            reservations.clear()

    def _limit_count(self) -> int:
        return len(self._buckets) + len(self._breakers) + len(self._pools) + len(self._quotas)

    def _drop_unused(self) -> None:
        """Drop all state that equals the state of a first use."""
        now_us = self._now_us()
        self._reservations = defaultdict(
            dict, {key: reservations for key, reservations in self._reservations.items() if reservations}
        )
        _drop(self._buckets, lambda bucket: buckets.is_idle(bucket, now_us))
        _drop(self._breakers, lambda breaker: breakers.is_idle(breaker, now_us))
        _drop(self._pools, lambda pool: not pool.leases.until_us and not pool.waiting)
        _drop(self._quotas, lambda quota: not quota.until_us)
        self._fences = {key: fence for key, fence in self._fences.items() if key in self._pools}
        self._max_limits = max(MAX_LIMITS, 2 * self._limit_count())

    # ---- admission -----------------------------------------------------------------------------

    def decide(self, request: AdmitRequest) -> AdmitResult:
        """Decide as `admit` does, for callers that cannot await."""
        if self._limit_count() > self._max_limits:
            self._drop_unused()
        plan, now_us, costs = request.plan, self._now_us(), _costs(request)
        unspent = self._birth_us <= now_us - request.existed_s * MICRO
        for index in range(len(plan.buckets)):
            self._bucket(plan, index, full=unspent)
        breaker_pass = self._decide_breaker(request, now_us)
        if isinstance(breaker_pass, GateRefusal):
            self._cancel_wait(request)
            return breaker_pass
        redeemed = self._redeem(request, costs, now_us)
        if not redeemed and (refusal := self._decide_buckets(request, costs, now_us)) is not None:
            return refusal
        if not isinstance(redeemed, bool):
            return redeemed
        fence = self._take_slot_keeping_reservation(request, costs, now_us, redeemed=redeemed)
        if not isinstance(fence, int):
            return fence
        if breaker_pass is not None:
            assert plan.breaker is not None
            self._breakers[plan.domain, plan.breaker.key] = breaker_pass.next_state
        return self._spend(
            request, costs, fence, redeemed=redeemed, probe=breaker_pass.probe if breaker_pass else 0
        )

    def _decide_breaker(self, request: AdmitRequest, now_us: int) -> breakers.Pass | GateRefusal | None:
        """Return the pass of the plan's breaker, or the refusal; None: the plan has no breaker."""
        rule = request.plan.breaker
        if rule is None:
            return None
        key = (request.plan.domain, rule.key)
        breaker = breakers.clamp_to_clock(self._breakers.get(key, breakers.NEW), rule, now_us)
        self._breakers[key] = breaker
        decision = breakers.admit(breaker, rule, now_us, int(request.call_s * MICRO))
        return GateRefusal(RefusedBy.BREAKER, decision / MICRO) if isinstance(decision, int) else decision

    def _decide_buckets(self, request: AdmitRequest, costs: Sequence[int], now_us: int) -> AdmitResult | None:
        """Return None if all buckets have enough units; else a reservation if requested, or a refusal."""
        plan, longest_us, slowest = request.plan, 0, 0
        for index, cost in enumerate(costs):
            wait_us = buckets.wait_us(self._bucket(plan, index), cost)
            if wait_us < 0:
                self._cancel_wait(request)
                return GateRefusal(RefusedBy.BUCKET, None, index, self._bucket(plan, index).capacity / MICRO)
            if wait_us > longest_us:
                longest_us, slowest = wait_us, index
        if longest_us == 0:
            return None
        self._cancel_wait(request)
        if not request.reservation_id or longest_us > int(request.reserve_ahead_s * MICRO):
            return GateRefusal(RefusedBy.BUCKET, longest_us / MICRO, slowest)
        self._reserve(request, costs, now_us + longest_us)
        return Reserved(longest_us / MICRO)

    def _reserve(self, request: AdmitRequest, costs: Sequence[int], due_us: int) -> None:
        """Reserve *costs* in the plan's buckets, for a call at *due_us*."""
        for index, cost in enumerate(costs):
            key = (request.plan.domain, request.plan.buckets[index].key)
            self._buckets[key] = buckets.reserve(self._bucket(request.plan, index), cost)
            self._reservations[key][request.reservation_id, cost] = due_us + REDEEM_US

    def _redeem(self, request: AdmitRequest, costs: Sequence[int], now_us: int) -> bool | Reserved:
        """Spend the request's reservations; return False if it has none that are valid, or when they are due."""
        plan = request.plan
        expiries_us = [
            self._reservations_of(plan, index).get((request.reservation_id, cost))
            for index, cost in enumerate(costs)
        ]
        if not request.reservation_id or not expiries_us or None in expiries_us:
            return False
        paid_from = [self._bucket(plan, index) for index in range(len(costs))]
        blocked = any(now_us < bucket.blocked_until_us for bucket in paid_from)
        early_us = max(expiry_us - REDEEM_US - now_us for expiry_us in expiries_us if expiry_us is not None)
        for bucket, cost in zip(paid_from, costs, strict=True):
            early_us = max(early_us, buckets.redeemable_in_us(bucket, cost))
        if early_us > 0 and not blocked:
            if early_us > SLOT_HOLD_US:  # otherwise a slot that was handed to it stays unused
                self._cancel_wait(request)
            return Reserved(early_us / MICRO)
        self._remove_reservations(request, costs)
        if blocked:  # reservations are void while the provider asks to wait
            self._cancel_reservations(plan, costs)
        return not blocked

    def _take_slot_keeping_reservation(
        self, request: AdmitRequest, costs: Sequence[int], now_us: int, *, redeemed: bool
    ) -> int | AdmitResult:
        """Take a slot, and keep the reservation of a call that has to wait for one."""
        fence = self._take_slot(request, now_us) if request.plan.pool is not None else 0
        if redeemed and not isinstance(fence, int):
            self._cancel_reservations(request.plan, costs)
        if isinstance(fence, Queued) and request.reservation_id:
            self._reserve(request, costs, now_us)
        return fence

    def _take_slot(self, request: AdmitRequest, now_us: int) -> int | AdmitResult:
        """Take a slot, or join the queue for one; return the slot's fence, or why there is none yet."""
        plan, holder = request.plan, request.holder
        assert holder is not None, "a plan with slots needs a holder"
        quota = self._quota(plan.domain, plan.quota) if plan.quota else None
        assert plan.pool is not None
        pool = self._pool(plan.domain, plan.pool)
        is_quota_full = quota is not None and plan.quota is not None and len(quota) >= plan.quota.capacity
        end_s = _first_end_s(quota if is_quota_full and quota is not None else pool.leases, now_us)
        since_us, wait_us = now_us - int(request.waited_s * MICRO), int(request.wait_s * MICRO)
        take, granted_holders = pool.take(holder, now_us, since_us, wait_us, self._quotas_of(plan.domain))
        for granted_holder in granted_holders:
            self._next_fence(plan)
            self._wake(granted_holder.lease_id)
        if take is Take.GRANTED:
            return self._next_fence(plan)
        if take is Take.QUEUED:
            return Queued(RefusedBy.SLOT, min(end_s, 1.0))
        return GateRefusal(RefusedBy.QUOTA if is_quota_full else RefusedBy.SLOT, end_s)

    def _spend(
        self, request: AdmitRequest, costs: Sequence[int], fence: int, *, redeemed: bool, probe: int
    ) -> Admitted:
        """Take *costs* from the plan's buckets, and return the admission."""
        spend = buckets.redeem if redeemed else buckets.spend
        sent = []
        for index, cost in enumerate(costs):
            key = (request.plan.domain, request.plan.buckets[index].key)
            bucket = self._buckets[key] = spend(self._buckets[key], cost)
            sent.append(bucket.sent)
        spent = request.costs or (1.0,) * len(costs)
        return Admitted(request.plan, request.holder, fence, probe, tuple(sent), spent)

    # ---- the end of a call ---------------------------------------------------------------------

    def _settle(self, plan: Plan, index: int, release: Release, now_us: int) -> None:
        """Correct one bucket by the real cost and by what the response said about the limit."""
        bucket = self._bucket(plan, index)
        refund = release.refund_micro(index)
        bucket = buckets.settle(bucket, refund)
        observation = release.observed.get(index)
        if observation is not None:
            bucket = buckets.observe(
                bucket,
                None if observation.remaining is None else round(observation.remaining * MICRO),
                release.admitted.sent[index] + max(0, -refund),  # the response includes the extra cost
                capacity=None if observation.capacity is None else round(observation.capacity * MICRO),
                rate=None if observation.per_s is None else max(1, int(observation.per_s * MICRO)),
            )
            if observation.wait_s is not None:
                bucket = buckets.penalise(bucket, now_us + round(observation.wait_s * MICRO))
            if observation.held_s is not None:
                bucket = buckets.block(bucket, now_us + round(observation.held_s * MICRO))
        self._buckets[plan.domain, plan.buckets[index].key] = bucket

    def _record(self, plan: Plan, release: Release, now_us: int) -> tuple[float | None, bool]:
        """Record the outcome; return how long the breaker opened for, and whether it closed."""
        rule = plan.breaker
        if rule is None:
            return None, False
        key = (plan.domain, rule.key)
        old = self._breakers.get(key, breakers.NEW)
        new = breakers.record(
            old, rule, release.health, now_us, probe=release.admitted.probe, reporter=release.reporter
        )
        self._breakers[key] = new
        opened = new.times_opened > old.times_opened and new.mode is breakers.Mode.OPEN
        closed = new.closed_at_us > old.closed_at_us
        return (new.until_us - now_us) / MICRO if opened else None, closed

    def _release_slot(self, plan: Plan, holder: Holder) -> bool:
        """Release the slot of *holder*; return whether it was held."""
        assert plan.pool is not None
        pool = self._pool(plan.domain, plan.pool)
        was_held = pool.release(holder, self._quotas_of(plan.domain))
        self._grant_waiting(plan.domain, pool)
        return was_held

    def _cancel_wait(self, request: AdmitRequest) -> None:
        """Remove the request from the queue, and release a slot that it was granted."""
        plan, holder = request.plan, request.holder
        if holder is None or plan.pool is None:
            return
        pool = self._pool(plan.domain, plan.pool)
        if pool.release(holder, self._quotas_of(plan.domain)):
            self._grant_waiting(plan.domain, pool)

    def _grant_waiting(self, domain: Domain, pool: Pool) -> None:
        """Grant free slots to waiting calls, and wake them."""
        for holder in pool.hand_over(self._now_us(), self._quotas_of(domain)):
            self._wake(holder.lease_id)

    def _renew(self, renewal: Renewal) -> Lease:
        now_us = self._now_us()
        pool, holder = self._pool(renewal.domain, renewal.pool), renewal.holder
        quotas = self._quotas_of(renewal.domain)
        wait_us = int(renewal.wait_s * MICRO)
        if pool.renew(holder, now_us, wait_us, quotas, adopt=renewal.had_slot and renewal.adopt):
            return Lease.ACTIVE
        if holder not in pool.waiting or wait_us <= 0:
            return Lease.LOST
        self._grant_waiting(renewal.domain, pool)
        return Lease.ACTIVE if holder in pool.leases else Lease.WAITING

    # ---- state ---------------------------------------------------------------------------------

    def _bucket(self, plan: Plan, index: int, *, full: bool = False) -> Bucket:
        """Return a bucket as of now: refilled, and without reservations that have expired."""
        limit: BucketLimit = plan.buckets[index]
        key = (plan.domain, limit.key)
        now_us = self._now_us()
        bucket = self._buckets.get(key) or buckets.new_bucket(limit, self._birth_us, full=full)
        reservations = self._reservations_of(plan, index)
        if bucket.at_us > now_us:  # the clock was set back: the reservations move with it
            for reservation in reservations:
                reservations[reservation] -= bucket.at_us - now_us
        for reservation in [key for key, until_us in reservations.items() if until_us < now_us]:
            del reservations[reservation]
            bucket = buckets.cancel_reservation(bucket, reservation[1])
        bucket = self._buckets[key] = buckets.refill(bucket, limit, now_us, self._birth_us)
        return bucket

    def _reservations_of(self, plan: Plan, index: int) -> _Reservations:
        return self._reservations[plan.domain, plan.buckets[index].key]

    def _remove_reservations(self, request: AdmitRequest, costs: Sequence[int]) -> bool:
        """Remove the request's reservations; return False if any is missing."""
        by_bucket = [(self._reservations_of(request.plan, index), cost) for index, cost in enumerate(costs)]
        if not by_bucket or any((request.reservation_id, cost) not in stored for stored, cost in by_bucket):
            return False
        for stored, cost in by_bucket:
            del stored[request.reservation_id, cost]
        return True

    def _cancel_reservations(self, plan: Plan, costs: Sequence[int]) -> None:
        """Give reserved *costs* back to the plan's buckets."""
        for index, cost in enumerate(costs):
            key = (plan.domain, plan.buckets[index].key)
            self._buckets[key] = buckets.cancel_reservation(self._buckets[key], cost)

    def _pool(self, domain: Domain, limit: PoolLimit) -> Pool:
        """Return a pool as of now: with its newest limit, and without leases that have expired."""
        pool = self._pools.setdefault((domain, limit.key), Pool(limit))
        pool.apply_limit(limit)
        pool.reap(self._now_us(), 0)
        return pool

    def _quota(self, domain: Domain, limit: QuotaLimit) -> Leases:
        """Return the slots that one tenant holds now in all pools of the domain."""
        leases = self._quotas.setdefault((domain, limit.key), Leases())
        leases.reap(self._now_us(), 0)
        return leases

    def _quotas_of(self, domain: Domain) -> Callable[[QuotaLimit], Leases]:
        return lambda limit: self._quota(domain, limit)

    def _next_fence(self, plan: Plan) -> int:
        """Return the next fencing number of the plan's pool."""
        assert plan.pool is not None
        key = (plan.domain, plan.pool.key)
        self._fences[key] = self._fences.get(key, self._now_us()) + 1
        return self._fences[key]


def _drop(states: dict[tuple[Domain, str], State], is_idle: Callable[[State], bool]) -> None:
    for key in [key for key, state in states.items() if is_idle(state)]:
        del states[key]


def _costs(request: AdmitRequest) -> list[int]:
    if not request.costs:
        return [MICRO] * len(request.plan.buckets)
    return [round(cost * MICRO) for cost in request.costs]


def _first_end_s(leases: Leases, now_us: int) -> float:
    """Return the seconds until the first lease may expire; 1 without leases."""
    first_us = min(leases.until_us.values(), default=None)
    return 1.0 if first_us is None else max(0.001, (first_us - now_us) / MICRO)
