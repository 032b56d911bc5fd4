"""What one process may do alone: its share of each limit, so that the fleet keeps to the whole (R27)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fairlead.policy.gate.limit import Plan, PoolLimit


@dataclass(frozen=True, slots=True)
class Share:
    """One of *processes*, in an order that all of them know: this one is number *rank*, from 0."""

    processes: int
    rank: int

    def slots(self, capacity: int) -> int:
        """Whole slots of *capacity*; the first ranks get what does not divide.

        >>> [Share(3, rank).slots(5) for rank in range(3)]
        [2, 2, 1]
        """
        return capacity // self.processes + (self.rank < capacity % self.processes)


def share_of(plan: Plan, share: Share) -> Plan:
    """*plan* with the share of one process: rates and capacities by their number, slots in whole ones.

    Breakers are not divided: each process judges by its own calls.
    """
    return replace(
        plan,
        buckets=tuple(
            replace(
                bucket,
                capacity=max(0.001, bucket.capacity / share.processes),
                per_s=max(1e-6, bucket.per_s / share.processes),
            )
            for bucket in plan.buckets
        ),
        pool=None if plan.pool is None else pool_share(plan.pool, share.slots(plan.pool.capacity)),
        quota=None
        if plan.quota is None
        else replace(plan.quota, capacity=max(1, share.slots(plan.quota.capacity))),
    )


def pool_share(pool: PoolLimit, capacity: int) -> PoolLimit:
    """*pool* with *capacity* slots; nothing is kept for a class any more."""
    return replace(pool, capacity=capacity, minimum={})
