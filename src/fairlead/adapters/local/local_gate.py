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

SOON_US = MICRO
"""A slot is held for a reservation that is due no later than this."""
MANY = 20_000
"""With more limits than this, unused ones are dropped."""
State = TypeVar("State")
_Turns = dict[tuple[int, int], int]
"""The reservations of a bucket: (reservation id, cost) to the time when they expire."""


class LocalGate:
    """The port Gate in memory. *now_us* is its clock; buckets without state are empty at *birth_us*."""

    def __init__(self, now_us: Callable[[], int], *, birth_us: int = 0) -> None:
        self._now_us = now_us
        self._birth_us = birth_us
        self._buckets: dict[tuple[Domain, str], Bucket] = {}
        self._turns: defaultdict[tuple[Domain, str], _Turns] = defaultdict(dict)
        self._breakers: dict[tuple[Domain, str], Breaker] = {}
        self._pools: dict[tuple[Domain, str], Pool] = {}
        self._quotas: dict[tuple[Domain, str], Leases] = {}
        self._fences: dict[tuple[Domain, str], int] = {}
        self._wake: Wake = lambda lease_id: None
        self._most = MANY

    # ---- the port ------------------------------------------------------------------------------

    async def admit(self, ask: AdmitRequest) -> AdmitResult:
        return self.judge(ask)

    async def release(self, release: Release) -> Released:
        return self._ended(release)

    def release_soon(self, release: Release, on_released: OnReleased) -> None:
        on_released(self._ended(release))

    def _ended(self, release: Release) -> Released:
        plan, now_us = release.admitted.plan, self._now_us()
        for index in sorted({*release.actual, *release.observed}):
            self._settle(plan, index, release, now_us)
        opened_s, closed = self._record(plan, release, now_us)
        was_held = True
        holder = release.admitted.holder
        if holder is not None and plan.pool is not None and release.frees_slot:
            was_held = self._give_back(plan, holder)
        return Released(was_held, opened_s, closed)

    async def cancel(self, ask: AdmitRequest) -> None:
        costs = _costs(ask)
        for index in range(len(ask.plan.buckets)):
            self._bucket(ask.plan, index)
        if ask.reservation_id and self._take_turns(ask, costs):
            self._unbook(ask.plan, costs)
        self._leave(ask)

    async def renew(self, renewals: Sequence[Renewal]) -> list[Lease]:
        return [self._renewed(renewal) for renewal in renewals]

    async def listen(self, wake: Wake) -> None:
        self._wake = wake

    def buckets(self) -> Iterable[tuple[Domain, str, Bucket]]:
        """Return all buckets with state."""
        return [(domain, key, bucket) for (domain, key), bucket in self._buckets.items()]

    def drop_reservations(self) -> None:
        """Drop all reservations, because no call will redeem them."""
        for key, turns in self._turns.items():
            for _, cost in turns:
                self._buckets[key] = buckets.unbooked(self._buckets[key], cost)
            turns.clear()

    def _limit_count(self) -> int:
        return len(self._buckets) + len(self._breakers) + len(self._pools) + len(self._quotas)

    def _forget(self) -> None:
        """Drop all state that equals the state of a first use."""
        now_us = self._now_us()
        self._turns = defaultdict(dict, {key: turns for key, turns in self._turns.items() if turns})
        _drop(self._buckets, lambda bucket: buckets.idle(bucket, now_us))
        _drop(self._breakers, lambda breaker: breakers.idle(breaker, now_us))
        _drop(self._pools, lambda pool: not pool.leases.until_us and not pool.waiting)
        _drop(self._quotas, lambda quota: not quota.until_us)
        self._fences = {key: fence for key, fence in self._fences.items() if key in self._pools}
        self._most = max(MANY, 2 * self._limit_count())

    # ---- admission -----------------------------------------------------------------------------

    def judge(self, ask: AdmitRequest) -> AdmitResult:
        """Do the same as admit(), for callers that cannot wait."""
        if self._limit_count() > self._most:
            self._forget()
        plan, now_us, costs = ask.plan, self._now_us(), _costs(ask)
        unspent = self._birth_us <= now_us - ask.existed_s * MICRO
        for index in range(len(plan.buckets)):
            self._bucket(plan, index, full=unspent)
        passed = self._judge_breaker(ask, now_us)
        if isinstance(passed, GateRefusal):
            self._leave(ask)
            return passed
        redeemed = self._redeem(ask, costs, now_us)
        if not redeemed and (waits := self._judge_buckets(ask, costs, now_us)) is not None:
            return waits
        if not isinstance(redeemed, bool):
            return redeemed
        fence = self._slot(ask, costs, now_us, redeemed=redeemed)
        if not isinstance(fence, int):
            return fence
        if passed is not None:
            assert plan.breaker is not None
            self._breakers[plan.domain, plan.breaker.key] = passed.next_state
        return self._spend(ask, costs, fence, redeemed=redeemed, probe=passed.probe if passed else 0)

    def _judge_breaker(self, ask: AdmitRequest, now_us: int) -> breakers.Pass | GateRefusal | None:
        rule = ask.plan.breaker
        if rule is None:
            return None
        key = (ask.plan.domain, rule.key)
        breaker = breakers.in_time(self._breakers.get(key, breakers.NEW), rule, now_us)
        self._breakers[key] = breaker
        judged = breakers.judge(breaker, rule, now_us, int(ask.call_s * MICRO))
        return GateRefusal(RefusedBy.BREAKER, judged / MICRO) if isinstance(judged, int) else judged

    def _judge_buckets(self, ask: AdmitRequest, costs: Sequence[int], now_us: int) -> AdmitResult | None:
        """Return None if all buckets have enough units; else a reservation if requested, or a refusal."""
        plan, longest_us, which = ask.plan, 0, 0
        for index, cost in enumerate(costs):
            wait_us = buckets.wait_us(self._bucket(plan, index), cost)
            if wait_us < 0:
                self._leave(ask)
                return GateRefusal(RefusedBy.BUCKET, None, index, self._bucket(plan, index).capacity / MICRO)
            if wait_us > longest_us:
                longest_us, which = wait_us, index
        if longest_us == 0:
            return None
        self._leave(ask)
        if not ask.reservation_id or longest_us > int(ask.reserve_ahead_s * MICRO):
            return GateRefusal(RefusedBy.BUCKET, longest_us / MICRO, which)
        self._book(ask, costs, now_us + longest_us)
        return Reserved(longest_us / MICRO)

    def _book(self, ask: AdmitRequest, costs: Sequence[int], due_us: int) -> None:
        for index, cost in enumerate(costs):
            key = (ask.plan.domain, ask.plan.buckets[index].key)
            self._buckets[key] = buckets.booked(self._bucket(ask.plan, index), cost)
            self._turns[key][ask.reservation_id, cost] = due_us + REDEEM_US

    def _redeem(self, ask: AdmitRequest, costs: Sequence[int], now_us: int) -> bool | Reserved:
        plan = ask.plan
        ends = [
            self._turns_of(plan, index).get((ask.reservation_id, cost)) for index, cost in enumerate(costs)
        ]
        if not ask.reservation_id or not ends or None in ends:
            return False
        paid_from = [self._bucket(plan, index) for index in range(len(costs))]
        blocked = any(now_us < bucket.blocked_until_us for bucket in paid_from)
        early_us = max(end - REDEEM_US - now_us for end in ends if end is not None)
        for bucket, cost in zip(paid_from, costs, strict=True):
            early_us = max(early_us, buckets.redeemable_in_us(bucket, cost))
        if early_us > 0 and not blocked:
            if early_us > SOON_US:  # otherwise a slot that was handed to it stays unused
                self._leave(ask)
            return Reserved(early_us / MICRO)
        self._take_turns(ask, costs)
        if blocked:
            self._unbook(plan, costs)
        return not blocked

    def _slot(
        self, ask: AdmitRequest, costs: Sequence[int], now_us: int, *, redeemed: bool
    ) -> int | AdmitResult:
        """Do the same as _take(); a queued call keeps its reservation until it gets a slot."""
        fence = self._take(ask, now_us) if ask.plan.pool is not None else 0
        if redeemed and not isinstance(fence, int):
            self._unbook(ask.plan, costs)
        if isinstance(fence, Queued) and ask.reservation_id:
            self._book(ask, costs, now_us)
        return fence

    def _take(self, ask: AdmitRequest, now_us: int) -> int | AdmitResult:
        """Take a slot; return its fence, or the refusal."""
        plan, holder = ask.plan, ask.holder
        assert holder is not None, "a plan with slots needs a holder"
        quota = self._quota(plan.domain, plan.quota) if plan.quota else None
        assert plan.pool is not None
        pool = self._pool(plan.domain, plan.pool)
        full_quota = quota is not None and plan.quota is not None and len(quota) >= plan.quota.capacity
        in_the_way = quota if full_quota and quota is not None else pool.leases
        end_s = _first_end_s(in_the_way, now_us)
        since_us, line_us = now_us - int(ask.waited_s * MICRO), int(ask.wait_s * MICRO)
        took, others = pool.take(holder, now_us, since_us, line_us, self._quotas_of(plan.domain))
        for other in others:
            self._next_fence(plan)
            self._wake(other.lease_id)
        if took is Take.GRANTED:
            return self._next_fence(plan)
        by = RefusedBy.QUOTA if full_quota else RefusedBy.SLOT
        if took is Take.QUEUED:
            return Queued(RefusedBy.SLOT, min(end_s, 1.0))
        return GateRefusal(by, end_s)

    def _spend(
        self, ask: AdmitRequest, costs: Sequence[int], fence: int, *, redeemed: bool, probe: int
    ) -> Admitted:
        act = buckets.redeemed if redeemed else buckets.spent
        sent = []
        for index, cost in enumerate(costs):
            key = (ask.plan.domain, ask.plan.buckets[index].key)
            bucket = self._buckets[key] = act(self._buckets[key], cost)
            sent.append(bucket.sent)
        spent = ask.costs or (1.0,) * len(costs)
        return Admitted(ask.plan, ask.holder, fence, probe, tuple(sent), spent)

    # ---- the end of a call ---------------------------------------------------------------------

    def _settle(self, plan: Plan, index: int, release: Release, now_us: int) -> None:
        bucket = self._bucket(plan, index)
        refund = release.refund_micro(index)
        bucket = buckets.settled(bucket, refund)
        observation = release.observed.get(index)
        if observation is not None:
            bucket = buckets.observed(
                bucket,
                None if observation.remaining is None else round(observation.remaining * MICRO),
                release.admitted.sent[index] + max(0, -refund),  # the response includes the extra cost
                capacity=None if observation.capacity is None else round(observation.capacity * MICRO),
                rate=None if observation.per_s is None else max(1, int(observation.per_s * MICRO)),
            )
            if observation.wait_s is not None:
                bucket = buckets.penalised(bucket, now_us + round(observation.wait_s * MICRO))
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
        new = breakers.recorded(
            old, rule, release.health, now_us, probe=release.admitted.probe, reporter=release.reporter
        )
        self._breakers[key] = new
        opened = new.times_opened > old.times_opened and new.mode is breakers.Mode.OPEN
        closed = new.closed_at_us > old.closed_at_us
        return (new.until_us - now_us) / MICRO if opened else None, closed

    def _give_back(self, plan: Plan, holder: Holder) -> bool:
        assert plan.pool is not None
        pool = self._pool(plan.domain, plan.pool)
        was_held = pool.release(holder, self._quotas_of(plan.domain))
        self._hand_over(plan.domain, pool)
        return was_held

    def _leave(self, ask: AdmitRequest) -> None:
        plan, holder = ask.plan, ask.holder
        if holder is None or plan.pool is None:
            return
        pool = self._pool(plan.domain, plan.pool)
        if pool.release(holder, self._quotas_of(plan.domain)):
            self._hand_over(plan.domain, pool)

    def _hand_over(self, domain: Domain, pool: Pool) -> None:
        for holder in pool.hand_over(self._now_us(), self._quotas_of(domain)):
            self._wake(holder.lease_id)

    def _renewed(self, renewal: Renewal) -> Lease:
        now_us = self._now_us()
        pool, holder = self._pool(renewal.domain, renewal.pool), renewal.holder
        quotas = self._quotas_of(renewal.domain)
        line_us = int(renewal.wait_s * MICRO)
        if pool.renew(holder, now_us, line_us, quotas, adopt=renewal.had_slot and renewal.adopt):
            return Lease.ACTIVE
        if holder not in pool.waiting or line_us <= 0:
            return Lease.LOST
        self._hand_over(renewal.domain, pool)
        return Lease.ACTIVE if holder in pool.leases else Lease.WAITING

    # ---- state ---------------------------------------------------------------------------------

    def _bucket(self, plan: Plan, index: int, *, full: bool = False) -> Bucket:
        limit: BucketLimit = plan.buckets[index]
        key = (plan.domain, limit.key)
        now_us = self._now_us()
        bucket = self._buckets.get(key) or buckets.born(limit, self._birth_us, full=full)
        turns = self._turns_of(plan, index)
        if bucket.at_us > now_us:  # the clock was set back: what was promised moves with it
            for turn in turns:
                turns[turn] -= bucket.at_us - now_us
        for turn in [turn for turn, until_us in turns.items() if until_us < now_us]:
            del turns[turn]
            bucket = buckets.unbooked(bucket, turn[1])
        bucket = self._buckets[key] = buckets.refilled(bucket, limit, now_us, self._birth_us)
        return bucket

    def _turns_of(self, plan: Plan, index: int) -> _Turns:
        return self._turns[plan.domain, plan.buckets[index].key]

    def _take_turns(self, ask: AdmitRequest, costs: Sequence[int]) -> bool:
        turns = [(self._turns_of(ask.plan, index), cost) for index, cost in enumerate(costs)]
        if not turns or any((ask.reservation_id, cost) not in promised for promised, cost in turns):
            return False
        for promised, cost in turns:
            del promised[ask.reservation_id, cost]
        return True

    def _unbook(self, plan: Plan, costs: Sequence[int]) -> None:
        for index, cost in enumerate(costs):
            key = (plan.domain, plan.buckets[index].key)
            self._buckets[key] = buckets.unbooked(self._buckets[key], cost)

    def _pool(self, domain: Domain, limit: PoolLimit) -> Pool:
        pool = self._pools.setdefault((domain, limit.key), Pool(limit))
        pool.apply_limit(limit)
        pool.reap(self._now_us(), 0)
        return pool

    def _quota(self, domain: Domain, limit: QuotaLimit) -> Leases:
        leases = self._quotas.setdefault((domain, limit.key), Leases())
        leases.reap(self._now_us(), 0)
        return leases

    def _quotas_of(self, domain: Domain) -> Callable[[QuotaLimit], Leases]:
        return lambda limit: self._quota(domain, limit)

    def _next_fence(self, plan: Plan) -> int:
        assert plan.pool is not None
        key = (plan.domain, plan.pool.key)
        self._fences[key] = self._fences.get(key, self._now_us()) + 1
        return self._fences[key]


def _drop(of_kind: dict[tuple[Domain, str], State], is_idle: Callable[[State], bool]) -> None:
    for key in [key for key, state in of_kind.items() if is_idle(state)]:
        del of_kind[key]


def _costs(ask: AdmitRequest) -> list[int]:
    if not ask.costs:
        return [MICRO] * len(ask.plan.buckets)
    return [round(cost * MICRO) for cost in ask.costs]


def _first_end_s(leases: Leases, now_us: int) -> float:
    """Return the seconds until the first lease may expire; 1 without leases."""
    first_us = min(leases.until_us.values(), default=None)
    return 1.0 if first_us is None else max(0.001, (first_us - now_us) / MICRO)
