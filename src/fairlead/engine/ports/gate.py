"""The gate as the engine sees it: one step admits a call to all its limits, or to none of them (G1).

What travels with every call is a named tuple: a frozen dataclass takes four times as long to make.

Implementations count the same (policy/limits) and differ in who shares the counts: the Redis gate the whole
fleet, the local gate one process. Neither ever waits: who is refused is told by what and for how long.
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
    """The part of the gate that refused."""

    BREAKER = 1
    QUOTA = 2
    SLOT = 3
    BUCKET = 4
    RECOVERY = 5
    """What was known of slots is lost: they are granted again once every old lease must have ended."""
    OUTAGE = 6
    """The store is away, and this connection sends nothing without it."""


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
    """Leave to send now. *sent* says for each bucket what was ever spent of it, for observations (R24)."""

    plan: Plan
    holder: Holder | None
    """Of the slot; None without one."""
    fence: int
    """Grows with each lease of a pool; 0 without a slot."""
    probe: int
    """Not 0: this call decides the breaker, and its end is known by this number."""
    sent: tuple[int, ...]
    spent: tuple[float, ...]
    """Units taken of each bucket."""
    local: bool = False
    """By this process alone, while the store was away."""


@dataclass(frozen=True, slots=True)
class Reserved:
    """The buckets promise a turn in *delay_s*; nothing else is held meanwhile."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class Queued:
    """In line for a slot; ``listen`` tells of the grant. *retry_after_s*: ask again then at the latest."""

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

    def clamped_costs(self, ask: AdmitRequest) -> tuple[float, ...] | None:
        """Return costs clamped to the learnt capacity; None if the settings allow no such call either."""
        if self.bucket is None:
            return None
        costs, limit = ask.costs or (1.0,) * len(ask.plan.buckets), ask.plan.buckets[self.bucket]
        if not 0 < self.capacity < costs[self.bucket] <= (limit.configured or limit.capacity):
            return None
        return (*costs[: self.bucket], self.capacity, *costs[self.bucket + 1 :])


AdmitResult = Admitted | Reserved | Queued | GateRefusal


@dataclass(frozen=True, slots=True)
class Observation:
    """What the vendor's answer said of one bucket; *left* None: it told only of capacity or rate."""

    left: float | None = None
    capacity: float | None = None
    per_s: float | None = None
    wait_s: float | None = None
    """The vendor refused and asks to wait so long; 0 for a refusal without a time."""
    held_s: float | None = None
    """It refused for another limit, and asks to wait so long: what is left of this one stays."""


class Release(NamedTuple):
    """The end of an admitted call. With health RESPONDING the call goes on, and only its breaker learns of it.

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
        """Micro-units of a bucket that were taken and not used; below zero: more was used."""
        actual = self.actual.get(index)
        if actual is None:
            return 0
        return round(self.admitted.spent[index] * MICRO) - round(actual * MICRO)


class Released(NamedTuple):
    """*kept*: the lease was ours to the end. *opened_s*: this call opened the breaker for so long; *closed*:
    this call closed it."""

    kept: bool
    opened_s: float | None = None
    closed: bool = False


class Lease(IntEnum):
    """What became of a lease or a place in line that was renewed."""

    LOST = 0
    HELD = 1
    WAITING = 2


@dataclass(frozen=True, slots=True)
class Renewal:
    """Keep what *holder* has: its slot for another lease, its place in line for *wait_s* more."""

    domain: Domain
    pool: PoolLimit
    holder: Holder
    wait_s: float = 0.0
    held: bool = False
    """It had the slot a moment ago, so it may have it back where the store lost it and gave it to nobody."""
    adopt: bool = False
    """With *held*: the process gave itself this slot while the store was away; it is told, whatever."""


OnReleased = Callable[[Released | Exception], None]
"""Called once with what became of an end; LimiterUnavailableError where the store did not answer."""

Wake = Callable[[int], None]
"""Called with a lease id: its holder got a slot. A hint; asking again tells for sure."""


class Gate(Protocol):
    """Admission, and what follows it. Lost answers of ``admit`` count as spent and are never resent (R25)."""

    async def admit(self, ask: AdmitRequest) -> AdmitResult:
        """One step, all or nothing."""
        ...

    async def release(self, release: Release) -> Released:
        """Give back the slot, hand it on, settle the buckets, tell the breaker."""
        ...

    def release_soon(self, release: Release, told: OnReleased) -> None:
        """As `finish`, begun at once and done whatever becomes of the caller, who need not wait for it.

        What this process asks afterwards is judged after it.
        """
        ...

    async def cancel(self, ask: AdmitRequest) -> None:
        """Leave the line, give back a grant or turns that are no longer wanted. Idempotent."""
        ...

    async def renew(self, renewals: Sequence[Renewal]) -> list[Lease]:
        """Keep leases and places; one batch for a whole process."""
        ...

    async def listen(self, wake: Wake) -> None:
        """Call *wake* for each grant to this process, from now on."""
        ...


class FleetGate(Gate, Protocol):
    """A gate in a store that may be away: then its methods raise LimiterUnavailableError."""

    async def ping(self) -> None:
        """Return once the store has answered."""
        ...

    def abandon(self, error: LimiterUnavailableError) -> None:
        """Fail all who wait for an answer; what comes of their asks is undone when it is known."""
        ...

    @property
    def is_settled(self) -> bool:
        """Whether nothing is under way any more that was abandoned. Until then an ask with the same lease is
        not to be made again: what is undone might be that one's."""
        ...
