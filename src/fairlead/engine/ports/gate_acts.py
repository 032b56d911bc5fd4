"""What people do to the gate's store by hand (G12)."""

from __future__ import annotations

from typing import Protocol

from fairlead.policy.limits.breaker import Mode
from fairlead.policy.limits.limit import Plan


class GateOperator(Protocol):
    """Each raises LimiterUnavailableError where the store is away; with *dry_run* it only tells the same."""

    async def reset_breaker(self, plan: Plan, *, dry_run: bool = False) -> Mode:
        """Close the plan's breaker, its calls to come back step by step; the mode that it was in."""
        ...

    async def promote(self, plan: Plan, lease_id: int, *, dry_run: bool = False) -> bool:
        """Put who waits for a slot under *lease_id* before all others; False: nobody of it waits."""
        ...

    async def clear(self, *, dry_run: bool = False) -> int:
        """Delete all that this installation keeps there, and nothing else; how many keys that were.

        What stays, uncounted, is the word that it was: afterwards buckets begin empty, and slots are granted
        once a lease has passed (R23).
        """
        ...
