"""What one run of the gate's store knows, in the simulated world."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace

from fairlead.adapters.local.local_gate import LocalGate
from fairlead.engine.ports import AdmitRequest, AdmitResult, GateRefusal, Lease, RefusedBy, Renewal, Wake
from fairlead.policy.limits.breaker import Mode
from fairlead.policy.limits.limit import MICRO, Domain, PoolLimit
from fairlead.policy.limits.pool import Holder, Pool

LEASE_S = 30.0
"""The longest lease of a slot."""


class SharedGate(LocalGate):
    """What one run of the server knows. No slot is granted before *grants_from_us*."""

    def __init__(self, now_us: Callable[[], int], *, birth_us: int = 0, grants_from_us: int = 0) -> None:
        super().__init__(now_us, birth_us=birth_us)
        self._grants_from_us = grants_from_us
        self.expired: Callable[[Holder, str, int], None] = lambda holder, key, until_us: None

    def _take_slot(self, ask: AdmitRequest, now_us: int) -> int | AdmitResult:
        if ask.plan.pool is not None and now_us < self._grants_from_us and not self._holds(ask):
            self._cancel_wait(ask)
            return GateRefusal(RefusedBy.RECOVERY, (self._grants_from_us - now_us) / MICRO)
        return super()._take_slot(ask, now_us)

    def _grant_waiting(self, domain: Domain, pool: Pool) -> None:
        if self._now_us() >= self._grants_from_us:
            super()._grant_waiting(domain, pool)

    def _pool(self, domain: Domain, limit: PoolLimit) -> Pool:
        known_pool, now_us = self._pools.get((domain, limit.key)), self._now_us()
        leases = {} if known_pool is None else known_pool.leases.until_us
        ended = [(holder, until_us) for holder, until_us in leases.items() if until_us <= now_us]
        pool = super()._pool(domain, limit)
        for holder, until_us in ended:
            self.expired(holder, limit.key, until_us)
        return pool

    def _holds(self, ask: AdmitRequest) -> bool:
        plan = ask.plan
        if plan.pool is None or ask.holder is None:
            return False
        return ask.holder in self._pool(plan.domain, plan.pool).leases

    def _renew(self, renewal: Renewal) -> Lease:
        learning = renewal.had_slot and self._now_us() < self._grants_from_us
        return super()._renew(replace(renewal, adopt=True) if learning else renewal)

    def renewed(self, renewals: Sequence[Renewal]) -> list[Lease]:
        """``renew``, for callers that cannot wait."""
        return [self._renew(renewal) for renewal in renewals]

    def cancelled(self, ask: AdmitRequest) -> bool:
        """``cancel``, for callers that cannot wait."""
        _run(self.cancel(ask))
        return True

    def slots_in_use(self) -> Iterator[str]:
        """Each lease of a slot, in words."""
        for (domain, key), known_pool in self._pools.items():
            pool = self._pool(domain, known_pool.limit)
            yield from (f"{holder.process} holds a slot of {key}" for holder in pool.leases.until_us)

    def breakers_open(self) -> Iterator[str]:
        """Each breaker that is not closed, in words."""
        for (_, key), breaker in self._breakers.items():
            if breaker.mode is not Mode.CLOSED:
                yield f"the breaker {key} is {breaker.mode.name.lower()}"

    def wakes(self, wake: Wake) -> None:
        """``listen``, for callers that cannot wait."""
        _run(self.listen(wake))

    def restarted(self, now_us: int) -> SharedGate:
        """A new run with a copy of this state: what was written last may be lost.

        Promised turns are not trusted (adapters/redis/lua/include/bucket.lua): buckets forget theirs, too.
        """
        new = type(self)(self._now_us, birth_us=now_us, grants_from_us=now_us + round(LEASE_S * MICRO))
        state = (self._buckets, self._breakers, self._pools, self._quotas, self._fences)
        (new._buckets, new._breakers, new._pools, new._quotas, new._fences) = deepcopy(state)
        return new


def _run(step: Coroutine[object, None, object]) -> None:
    """Nothing in a gate of one process waits."""
    try:
        step.send(None)
    except StopIteration:
        return
    raise AssertionError("a step of the model waits")
