"""Manual changes of the gate's store. Spec: G12."""

from __future__ import annotations

from typing import Protocol

from fairlead.policy.limits.breaker import Mode
from fairlead.policy.limits.limit import Plan


class GateOperator(Protocol):
    """The operator's actions. Each raises LimiterUnavailableError if the store is unavailable.

    With *dry_run* an action changes nothing and returns the same.
    """

    async def reset_breaker(self, plan: Plan, *, dry_run: bool = False) -> Mode:
        """Close the plan's breaker; its calls then ramp up. Return the mode it was in."""
        ...

    async def promote(self, plan: Plan, lease_id: int, *, dry_run: bool = False) -> bool:
        """Move the waiter with *lease_id* to the front of the wait queue; return False if there is none."""
        ...

    async def clear(self, *, dry_run: bool = False) -> int:
        """Delete all keys of this installation, and nothing else; return their number.

        One uncounted key stays, which records that the installation was in use: afterwards buckets begin
        empty, and slots are granted once a lease has passed. Spec: R23.
        """
        ...
