"""The share of each limit that one process uses without Redis, so that the fleet stays within the whole. Spec: R27."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from fairlead.policy.limits.limit import BucketLimit, Plan, PoolLimit

NOTHING_UNITS, NOTHING_PER_S = 0.001, 1e-6
"""A capacity in units and a refill rate for a process without a share: too small for any call."""


@dataclass(frozen=True, slots=True)
class Share:
    """The share of one process.

    Attributes:
        processes: How many processes share the limits.
        rank: The place of this process, from 0, in an order that all of them know.
        is_steady: There were never more processes during the last lease, so no other process holds a slot from
            that time.
    """

    processes: int
    rank: int
    is_steady: bool = field(default=False, compare=False)

    def slots(self, capacity: int) -> int:
        """Return this process's whole slots of *capacity*; the first ranks get the remainder.

        >>> [Share(3, rank).slots(5) for rank in range(3)]
        [2, 2, 1]
        """
        return capacity // self.processes + (self.rank < capacity % self.processes)

    def bucket(self, limit: BucketLimit) -> BucketLimit:
        """Return this process's share of *limit*.

        A share holds at least one unit, so with more processes than units the last ranks have none.

        >>> [Share(3, rank).bucket(BucketLimit("b", 2, 10)).per_s for rank in range(3)]
        [5.0, 5.0, 1e-06]
        """
        sharers = min(self.processes, max(1, int(limit.capacity)))
        if self.rank >= sharers:
            return replace(limit, capacity=NOTHING_UNITS, per_s=NOTHING_PER_S)
        capacity, per_s = limit.capacity / sharers, limit.per_s / sharers
        return replace(limit, capacity=max(NOTHING_UNITS, capacity), per_s=max(NOTHING_PER_S, per_s))


def share_of(plan: Plan, share: Share) -> Plan:
    """Return *plan* with the share of one process: rates are divided, slots, quotas and calls in whole units.

    Breakers are not divided, because each process judges by its own calls.
    """
    return replace(
        plan,
        buckets=tuple(map(share.bucket, plan.buckets)),
        pool=None if plan.pool is None else pool_share(plan.pool, share.slots(plan.pool.capacity)),
        quota=None if plan.quota is None else replace(plan.quota, capacity=share.slots(plan.quota.capacity)),
    )


def pool_share(pool: PoolLimit, capacity: int) -> PoolLimit:
    """Return *pool* with *capacity* slots and none reserved for a class."""
    return replace(pool, capacity=capacity, minimum={})
