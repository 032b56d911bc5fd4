"""Slots with a lease each, and the line of waiters. Spec: G4.

The leases are the only truth: in use is how many there are. Nothing is counted up or down, so nothing can
be left over: a holder that dies is gone when its lease ends. A slot that comes free is given on in the same
step to one live waiter, under a short lease that the waiter must claim; so no slot is idle
while a call waits, no waiter is woken in vain, and a grant to a dead waiter expires.

Waiters of ``max_wait_s`` or longer go first, then those of a lower class number, then the longest waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

from fairlead.policy.limits.limit import MICRO, PoolLimit, QuotaLimit, is_newer

SCANNED = 64
"""Waiters of a class that are examined for one of a tenant below its quota."""


class Holder(NamedTuple):
    """The identity of a caller for a slot: two callers are the same if all fields are equal."""

    lease_id: int
    process: str
    tenant: str = ""
    job: str = ""
    priority_class: int = 1
    quota: QuotaLimit | None = None


class Leases:
    """Leases by their end: the only record of holders."""

    def __init__(self) -> None:
        self.until_us: dict[Holder, int] = {}

    def __len__(self) -> int:
        return len(self.until_us)

    def __contains__(self, holder: Holder) -> bool:
        return holder in self.until_us

    def reap(self, now_us: int, not_before_us: int) -> list[Holder]:
        """Remove and return leases that have expired; do nothing before *not_before_us*."""
        if now_us < not_before_us:
            return []
        ended = [holder for holder, until_us in self.until_us.items() if until_us <= now_us]
        for holder in ended:
            del self.until_us[holder]
        return ended


class Take(IntEnum):
    """The outcome of a request for a slot."""

    GRANTED = 0
    FULL = 1
    QUEUED = 2
    QUEUE_FULL = 3
    """Too many wait already."""


@dataclass(frozen=True, slots=True)
class _Waiter:
    since_us: int
    alive_until_us: int


Quotas = Callable[[QuotaLimit], Leases]
"""The leases of a tenant across the pools of a domain."""


class Pool:
    """The slots of one pool and its waiters."""

    def __init__(self, limit: PoolLimit) -> None:
        self.leases = Leases()
        self.waiting: dict[Holder, _Waiter] = {}
        self.limit = limit

    def apply_limit(self, limit: PoolLimit) -> None:
        """Apply *limit* if it is newer. Holders beyond a smaller capacity keep their slots."""
        if is_newer(limit.version, self.limit.version):
            self.limit = limit

    def reap(self, now_us: int, not_before_us: int) -> list[Holder]:
        """Remove and return leases that have expired, and remove expired waiters.

        It does nothing before *not_before_us*.
        """
        if now_us >= not_before_us:
            for holder in [h for h, waiter in self.waiting.items() if waiter.alive_until_us <= now_us]:
                del self.waiting[holder]
        return self.leases.reap(now_us, not_before_us)

    def take(
        self, holder: Holder, now_us: int, since_us: int, alive_us: int, quotas: Quotas
    ) -> tuple[Take, list[Holder]]:
        """Give *holder* a slot, or a place in the line if it stays alive for *alive_us* (0: it does not wait).

        Also returns all new holders. Asked again by a holder of a lease, it is granted again.
        """
        lease_us = round(self.limit.lease_s * MICRO)
        if holder in self.leases:
            self._grant(holder, now_us + lease_us, quotas)
            return Take.GRANTED, []
        waits = holder in self.waiting
        if not self.waiting and self._may_take(holder, quotas):
            self._grant(holder, now_us + lease_us, quotas)
            return Take.GRANTED, []
        if not waits and self._is_crowded(holder.tenant):
            return Take.QUEUE_FULL, []
        since_us = self.waiting[holder].since_us if waits else since_us
        self.waiting[holder] = _Waiter(since_us, max(now_us + alive_us, now_us + 1))
        granted = self.hand_over(now_us, quotas)
        if holder in granted:
            self._grant(holder, now_us + lease_us, quotas)
            return Take.GRANTED, [other for other in granted if other != holder]
        if self._may_take(holder, quotas):  # behind a crowd that may not take one
            self._grant(holder, now_us + lease_us, quotas)
            return Take.GRANTED, granted
        if alive_us <= 0:
            del self.waiting[holder]
            return Take.FULL, granted
        return Take.QUEUED, granted

    def _is_crowded(self, tenant: str) -> bool:
        """Return whether *tenant* may not join: beyond the bound each has one place, up to twice that."""
        waiting, most = len(self.waiting), self.limit.max_waiters
        if most <= waiting < 2 * most:
            return any(holder.tenant == tenant for holder in self.waiting)
        return waiting >= most

    def release(self, holder: Holder, quotas: Quotas) -> bool:
        """Give up slot or place; False if *holder* had no lease: it was lost."""
        self.waiting.pop(holder, None)
        if holder.quota is not None:
            quotas(holder.quota).until_us.pop(holder, None)
        return self.leases.until_us.pop(holder, None) is not None

    def renew(
        self, holder: Holder, now_us: int, alive_us: int, quotas: Quotas, *, adopt: bool = False
    ) -> bool:
        """Renew the lease of a holder, or keep a waiter alive for *alive_us* more. True: it has a slot.

        *adopt*: it took the slot elsewhere, and is let in whatever the capacity.
        """
        if holder in self.leases or adopt:
            self._grant(holder, now_us + round(self.limit.lease_s * MICRO), quotas)
            return True
        if holder in self.waiting and alive_us > 0:
            self.waiting[holder] = replace(self.waiting[holder], alive_until_us=now_us + alive_us)
        return False

    def hand_over(self, now_us: int, quotas: Quotas) -> list[Holder]:
        """Give free slots to waiters in order, each for ``claim_s``; return the new holders."""
        granted = []
        while (following := self._next(now_us, quotas)) is not None:
            del self.waiting[following]
            self._grant(following, now_us + round(self.limit.claim_s * MICRO), quotas)
            granted.append(following)
        return granted

    def _grant(self, holder: Holder, until_us: int, quotas: Quotas) -> None:
        """Grant *holder* a lease until *until_us*, in the pool and in its tenant's quota."""
        self.waiting.pop(holder, None)
        self.leases.until_us[holder] = until_us
        if holder.quota is not None:
            quotas(holder.quota).until_us[holder] = until_us

    def _may_take(self, holder: Holder, quotas: Quotas) -> bool:
        free = self.limit.capacity - len(self.leases)
        if free - self.limit.kept_for_others(holder.priority_class, self.used()) <= 0:
            return False
        quota = holder.quota
        return quota is None or len(quotas(quota)) < quota.capacity

    def used(self) -> Mapping[int, int]:
        """Return how many slots are in use, by priority class."""
        used: dict[int, int] = {}
        for holder in self.leases.until_us:
            used[holder.priority_class] = used.get(holder.priority_class, 0) + 1
        return used

    def _next(self, now_us: int, quotas: Quotas) -> Holder | None:
        if len(self.leases) >= self.limit.capacity:
            return None
        promoted_us = now_us - round(self.limit.max_wait_s * MICRO)
        heads = list(self._heads(quotas))
        late = [(since_us, holder) for since_us, holder in heads if since_us <= promoted_us]
        if late:
            return min(late, key=lambda head: (head[0], head[1].priority_class))[1]
        return heads[0][1] if heads else None

    def _heads(self, quotas: Quotas) -> Iterator[tuple[int, Holder]]:
        """Yield the first waiter of each class that may take a slot, best class first."""
        for number in range(1, self.limit.classes + 1):
            line = sorted(
                (waiter.since_us, holder.lease_id, holder)
                for holder, waiter in self.waiting.items()
                if holder.priority_class == number
            )
            for since_us, _, holder in line[:SCANNED]:
                if self._may_take(holder, quotas):
                    yield since_us, holder
                    break
