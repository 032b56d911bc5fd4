"""The gate of calls: one step admits a call to all its limits, or to none. Spec: G1.

All implementations count by the same rules (policy/limits). The Redis gate counts for the whole fleet, the
local gate for one process. A gate never waits: a refusal names the limit and the delay.

The values of each call are named tuples, because a frozen dataclass takes four times as long to create.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple, Protocol

from fairlead.errors import LimiterUnavailableError
from fairlead.policy.limits.breaker import DestinationHealth
from fairlead.policy.limits.limit import MICRO, Domain, Plan, PoolLimit
from fairlead.policy.limits.pool import Holder


class RefusedBy(IntEnum):
    """The limit or state that refused a call."""

    BREAKER = 1
    QUOTA = 2
    SLOT = 3
    BUCKET = 4
    RECOVERY = 5
    """The store lost its state. Slots are granted again once every earlier lease must have expired."""
    OUTAGE = 6
    """The store is unavailable, and this connection sends nothing without it."""


class AdmitRequest(NamedTuple):
    """A request for admission.

    Attributes:
        costs: Units that the call takes of each bucket of the plan; empty: one of each.
        holder: Required if the plan has slots.
        waited_s: How long this work has waited already, which decides its place in the wait queue.
        wait_s: How long to stay in the wait queue for a slot unless renewed; 0: do not queue.
        reserve_ahead_s: How far ahead to reserve units in the buckets; 0: do not reserve.
        reservation_id: Identifies the reservations. A request with the same id redeems those that are due;
            for others it gets the remaining delay. 0: make none.
        call_s: How long the call may take.
        existed_s: How long its connection has existed. If no state was lost since then, a bucket without a
            record was never used and is full. Infinite: unknown.

    Spec: R23, R26.
    """

    plan: Plan
    costs: tuple[float, ...] = ()
    holder: Holder | None = None
    waited_s: float = 0.0
    wait_s: float = 0.0
    reserve_ahead_s: float = 0.0
    reservation_id: int = 0
    call_s: float = 60.0
    existed_s: float = math.inf


class Admitted(NamedTuple):
    """Permission to send now.

    Attributes:
        holder: Of the slot. None: no slot was taken.
        fence: Grows with each lease of a pool; 0 without a slot.
        probe: If not 0, the result of this call opens or closes the breaker; its release has this number.
        sent: Units ever taken of each bucket, to order observations.
        spent: Units taken of each bucket by this call.
        local: Whether this process admitted it alone, because the store was unavailable.

    Spec: R24.
    """

    plan: Plan
    holder: Holder | None
    fence: int
    probe: int
    sent: tuple[int, ...]
    spent: tuple[float, ...]
    local: bool = False


@dataclass(frozen=True, slots=True)
class Reserved:
    """A reservation in the buckets, due in *delay_s*. No slot is taken meanwhile."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class Queued:
    """A place in the wait queue for a slot.

    A grant is signalled by `Gate.listen`. Request again then, and after *retry_after_s* at the latest.
    """

    by: RefusedBy
    retry_after_s: float


@dataclass(frozen=True, slots=True)
class GateRefusal:
    """A refusal of a call; nothing was taken.

    Attributes:
        bucket: The index of the bucket that refused, if one did.
        retry_after_s: None: never, because the cost exceeds the *capacity* of the bucket.
    """

    by: RefusedBy
    retry_after_s: float | None
    bucket: int | None = None
    capacity: float = field(default=0.0, compare=False)

    def clamped_costs(self, request: AdmitRequest) -> tuple[float, ...] | None:
        """Return costs clamped to the learned capacity; None if the settings allow no such call either."""
        if self.bucket is None:
            return None
        costs, limit = request.costs or (1.0,) * len(request.plan.buckets), request.plan.buckets[self.bucket]
        if not 0 < self.capacity < costs[self.bucket] <= (limit.configured or limit.capacity):
            return None
        return (*costs[: self.bucket], self.capacity, *costs[self.bucket + 1 :])


AdmitResult = Admitted | Reserved | Queued | GateRefusal


@dataclass(frozen=True, slots=True)
class Observation:
    """The state of one bucket as stated by a response.

    Attributes:
        remaining: Units left. None: the response states only the capacity or the rate.
        wait_s: The provider refused the call and requests this delay; 0: without a delay.
        held_s: As wait_s, if another limit refused the call; the units of this bucket remain.
    """

    remaining: float | None = None
    capacity: float | None = None
    per_s: float | None = None
    wait_s: float | None = None
    held_s: float | None = None


class Release(NamedTuple):
    """The end of an admitted call. With health RESPONDING the call continues, and only the breaker is
    updated.

    Attributes:
        actual: Units that the response says were used.
        keeps_slot: Whether the provider may still be working on it, so that its slot ends with its lease.
        reporter: The number of this process, if it could not connect to the destination.
        cause: The code of the failure, such as ``http_500``.
    """

    admitted: Admitted
    health: DestinationHealth = DestinationHealth.NEUTRAL
    actual: Mapping[int, float] = MappingProxyType({})
    observed: Mapping[int, Observation] = MappingProxyType({})
    keeps_slot: bool = False
    reporter: int = 0
    cause: str = ""

    @property
    def frees_slot(self) -> bool:
        """Whether its slot is free for another call."""
        return not self.keeps_slot and self.health is not DestinationHealth.RESPONDING

    def refund_micro(self, index: int) -> int:
        """Return the micro-units of a bucket that were taken and not used; negative if more were used."""
        actual = self.actual.get(index)
        if actual is None:
            return 0
        return round(self.admitted.spent[index] * MICRO) - round(actual * MICRO)


class Released(NamedTuple):
    """The result of a release.

    Attributes:
        was_held: Whether the call held its lease to the end.
        opened_s: How long this call opened the breaker for. None: it did not.
        closed: Whether this call closed the breaker.
    """

    was_held: bool
    opened_s: float | None = None
    closed: bool = False


class Lease(IntEnum):
    """The state of a lease or a place in the wait queue after its renewal."""

    LOST = 0
    ACTIVE = 1
    WAITING = 2


@dataclass(frozen=True, slots=True)
class Renewal:
    """The renewal of a slot for another lease, or of a place in the wait queue for *wait_s*.

    Attributes:
        had_slot: Whether *holder* had the slot a moment ago. If the store lost it and has not granted it
            since, *holder* gets it back.
        adopt: With *had_slot*: this process granted the slot while the store was unavailable. The store
            records it even beyond the capacity.
    """

    domain: Domain
    pool: PoolLimit
    holder: Holder
    wait_s: float = 0.0
    had_slot: bool = False
    adopt: bool = False


OnReleased = Callable[[Released | Exception], None]
"""Called once with the result of a release; LimiterUnavailableError if the store did not respond."""

Wake = Callable[[int], None]
"""Called with the lease id of a holder that may have got a slot. A hint; only admit() decides."""


class Gate(Protocol):
    """Admission of calls, and their release. Spec: R25."""

    async def admit(self, request: AdmitRequest) -> AdmitResult:
        """Take everything that *request* needs, or nothing.

        If the response is lost, its units count as spent.
        """
        ...

    async def release(self, release: Release) -> Released:
        """Release the slot to the next waiter, settle the buckets, and update the breaker."""
        ...

    def release_soon(self, release: Release, on_released: OnReleased) -> None:
        """Start a release() that completes even if the caller is cancelled.

        Later requests of this process are decided after it.
        """
        ...

    async def cancel(self, request: AdmitRequest) -> None:
        """Withdraw a request that was not admitted: its queue place, a late grant and its reservations.

        It may be repeated.
        """
        ...

    async def renew(self, renewals: Sequence[Renewal]) -> list[Lease]:
        """Renew leases and places in wait queues, in one batch; return the state of each, in order."""
        ...

    async def listen(self, wake: Wake) -> None:
        """Call *wake* for each grant to this process, from now on."""
        ...


class FleetGate(Gate, Protocol):
    """A gate in a store. Its methods raise LimiterUnavailableError while the store is unavailable."""

    async def ping(self) -> None:
        """Return once the store has responded."""
        ...

    def abandon(self, error: LimiterUnavailableError) -> None:
        """Fail all requests in flight with *error*. If the store processes them later, they are reverted."""
        ...

    @property
    def is_settled(self) -> bool:
        """Whether no abandoned request is in flight. Until then a lease id of one must not be used again."""
        ...
