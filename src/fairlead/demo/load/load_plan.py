"""The numbers of a simulated load, and its limits."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.policy.limits.limit import BucketLimit, Domain, Plan, PoolLimit

PROVIDER = "simulated"
MAX_CALLS = 1_000_000
"""Calls of one run: their times are stored until it is checked."""


@dataclass(frozen=True, slots=True)
class Load:
    """*rate* calls a second in total, from *processes*, spread over *tenants*, each with its own limits.

    *per_s* and *capacity* of the bucket and *slots* (0: none) are for each tenant. The upstream takes *hold_s* for a
    call; a call waits at most *wait_s* to be admitted.
    """

    seconds: float
    tenants: int
    processes: int
    rate: float
    per_s: float
    capacity: float
    slots: int
    hold_s: float
    wait_s: float
    seed: int

    @property
    def names(self) -> list[str]:
        """The tenants."""
        return [f"t{number}" for number in range(1, self.tenants + 1)]

    @property
    def bucket(self) -> BucketLimit:
        """The rate of one tenant."""
        return BucketLimit("requests", self.capacity, self.per_s)

    def limits(self, tenant: str) -> Plan:
        """Return the limits of a call of *tenant*."""
        pool = PoolLimit("slots", self.slots) if self.slots else None
        return Plan(Domain(("tenant", tenant)), pool=pool, buckets=(self.bucket,))
