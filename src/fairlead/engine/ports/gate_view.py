"""The state of the gate for people: slots in use, wait queues, buckets and breakers. Spec: G12."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from fairlead.policy.limits.breaker import Destination
from fairlead.policy.limits.limit import Domain, Plan


@dataclass(frozen=True, slots=True)
class BucketView:
    """The state of a token bucket.

    Attributes:
        level: Units that are available now.
        per_s: Units that it regains each second.
        reserved: Units of pending reservations.
        blocked_s: The rest of a delay that the provider requested.
    """

    name: str
    level: float
    capacity: float
    per_s: float
    reserved: float
    blocked_s: float


@dataclass(frozen=True, slots=True)
class HolderView:
    """A slot in use, and the call that holds it.

    Attributes:
        ends_in_s: Seconds until its lease ends unless renewed; negative: it has ended, and is not reclaimed yet.
    """

    lease_id: int
    process: str
    tenant: str
    job: str
    priority_class: int
    ends_in_s: float


@dataclass(frozen=True, slots=True)
class WaiterView:
    """A call that waits in the queue for a slot.

    Attributes:
        waits_s: How long it has waited.
        alive_for_s: How long it retains its place unless renewed.
    """

    lease_id: int
    process: str
    tenant: str
    job: str
    priority_class: int
    waits_s: float
    alive_for_s: float


@dataclass(frozen=True, slots=True)
class BreakerView:
    """The state of a breaker.

    Attributes:
        mode: Closed, open, or admitting a probe; see `Mode`.
        in_a_row: How many calls in a row have failed.
        times_opened: How often it has opened in a row, which lengthens the time that it stays open.
        left_s: Seconds until it admits a probe, or until the probe's time is over.
        good: Calls of the current window that succeeded; *bad*: those that failed.
    """

    mode: str
    in_a_row: int
    times_opened: int
    left_s: float
    good: int
    bad: int


@dataclass(frozen=True, slots=True)
class PromotionView:
    """A waiter that was promoted because it had waited too long. Spec: G4."""

    lease_id: int
    process: str
    tenant: str
    job: str
    priority_class: int
    ago_s: float


@dataclass(frozen=True, slots=True)
class FailureView:
    """A failure that a breaker counted.

    Attributes:
        opened_s: How long the breaker opened for it. None: it did not.
        process: Empty, as are *tenant* and *job*, if the call had no slot.
        cause: The code of the failure, such as ``http_500``.
    """

    ago_s: float
    opened_s: float | None
    process: str = ""
    tenant: str = ""
    job: str = ""
    cause: str = ""


@dataclass(frozen=True, slots=True)
class DestinationView:
    """The breaker of one destination and its latest failures, newest first."""

    destination: Destination
    breaker: BreakerView
    failures: tuple[FailureView, ...]


@dataclass(frozen=True, slots=True)
class GateView:
    """The state of one plan. A part is None if the plan has none, or if it was never used.

    Attributes:
        events: The latest of the pool's log, newest first.
        unreadable: Parts with a damaged record, which the next call replaces.
    """

    breaker: BreakerView | None
    capacity: int | None
    holders: tuple[HolderView, ...]
    waiters: tuple[WaiterView, ...]
    buckets: tuple[BucketView, ...]
    events: tuple[Mapping[str, str], ...]
    promotions: tuple[PromotionView, ...] = ()
    failures: tuple[FailureView, ...] = ()
    unreadable: tuple[str, ...] = ()


class GateInspector(Protocol):
    """A read-only view of the gate's store."""

    async def inspect(self, plan: Plan, *, events: int = 50) -> GateView:
        """Return the state of *plan*, with at most *events* of its events, promotions and failures each.

        Raises:
            LimiterUnavailableError: The store is unavailable.
        """
        ...

    async def inspect_many(self, plans: Sequence[Plan], *, events: int = 0) -> list[GateView]:
        """Do the same for several plans, over one connection."""
        ...

    async def breakers(self, domain: Domain | None = None, *, failures: int = 1) -> list[DestinationView]:
        """Return the breakers of *domain*, or of all, that counted a failure within the last day.

        A breaker that has recovered since is closed. At most *failures* of each are returned.
        """
        ...
