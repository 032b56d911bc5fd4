"""What people see of the gate: who holds what, who waits, and what is left (G12)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from fairlead.policy.limits.breaker import Destination
from fairlead.policy.limits.limit import Domain, Plan


@dataclass(frozen=True, slots=True)
class BucketView:
    """A bucket now. *booked*: promised to those who wait; *blocked_s*: the vendor asked for that."""

    name: str
    level: float
    capacity: float
    per_s: float
    booked: float
    blocked_s: float


@dataclass(frozen=True, slots=True)
class HolderView:
    """Who holds a slot. *ends_in_s*: when its lease ends unless renewed; below 0: nobody looked since."""

    lease_id: int
    process: str
    tenant: str
    job: str
    priority_class: int
    ends_in_s: float


@dataclass(frozen=True, slots=True)
class WaiterView:
    """Who stands in line, since when, and for how long it counts as alive."""

    lease_id: int
    process: str
    tenant: str
    job: str
    priority_class: int
    waits_s: float
    alive_for_s: float


@dataclass(frozen=True, slots=True)
class BreakerView:
    """A breaker now. *left_s*: until it lets a probe through, or until the probe's time is over."""

    mode: str
    in_a_row: int
    times_opened: int
    left_s: float
    good: int
    bad: int


@dataclass(frozen=True, slots=True)
class PromotionView:
    """Who went first because he had waited too long (G4)."""

    lease_id: int
    process: str
    tenant: str
    job: str
    priority_class: int
    ago_s: float


@dataclass(frozen=True, slots=True)
class FailureView:
    """A failure that a breaker counted, and for how long it opened by it.

    *cause* is its code, such as ``http_500``. Process, tenant and job are empty where no slot was held.
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
    """Everything of one plan; a part is None where the plan has none, or nothing is known of it yet."""

    breaker: BreakerView | None
    capacity: int | None
    holders: tuple[HolderView, ...]
    waiters: tuple[WaiterView, ...]
    buckets: tuple[BucketView, ...]
    events: tuple[Mapping[str, str], ...]
    """The latest of the pool's log, newest first."""
    promotions: tuple[PromotionView, ...] = ()
    failures: tuple[FailureView, ...] = ()
    unreadable: tuple[str, ...] = ()
    """Parts of which something is kept that cannot be ours; they begin anew with the next call."""


class GateViewer(Protocol):
    """Looks, and changes nothing."""

    async def look(self, plan: Plan, *, events: int = 50) -> GateView:
        """The state of all that *plan* names. LimiterUnavailableError where the store is away.

        *events*: how many of the latest events, promotions and failures are shown, 0: none.
        """
        ...

    async def look_at(self, plans: Sequence[Plan], *, events: int = 0) -> list[GateView]:
        """The same of several, over one connection."""
        ...

    async def breakers(self, domain: Domain | None = None, *, failures: int = 1) -> list[DestinationView]:
        """Return the breakers of *domain*, or of all, that counted a failure within the last day.

        A breaker that has recovered since is closed. At most *failures* of each are returned.
        """
        ...
