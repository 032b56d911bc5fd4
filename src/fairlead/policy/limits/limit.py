"""What one call must pass: breaker, tenant quota, slot and buckets, all of one limit domain (G1, R22).

A *domain* is what a vendor counts as one: by default a tenant, for NetSuite an account, for HubSpot an app.
All limits of a call lie in one domain, so one script can judge them together, in a cluster too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

from fairlead.errors import InvalidConfigError

MICRO = 1_000_000
"""Micro-units in one unit of a limit, and microseconds in a second."""
MAX_UNITS = 1_000_000_000
"""Largest capacity, cost and rate per second: their sums stay exact in a double."""
MIN_CAPACITY, MIN_PER_S = 1e-3, 1e-6
MAX_SLOTS = 100_000
MAX_CLASSES = 9
MAX_BUCKETS = 8
MIN_LEASE_S, MAX_LEASE_S = 0.05, 30 * 86_400.0


GUESS, OBSERVED, EXPLICIT = 0, 1, 2
"""Where the numbers of a limit are from: the profile, answers, or the settings of a connection."""
_LEVEL, _OWNER, _YEAR_2020_MS = 1 << 51, 1 << 40, 1_577_836_800_000


def version_of(level: int, owner: int, moment: int) -> int:
    """Return the version of a limit's numbers, which is exact as a double; see `is_newer`.

    Args:
        level: GUESS, OBSERVED or EXPLICIT.
        owner: The id of the connection of that plan.
        moment: Their time in microseconds since the epoch.
    """
    moment_ms = moment if moment < _OWNER else moment // 1000 - _YEAR_2020_MS
    return level * _LEVEL + owner % (_LEVEL // _OWNER) * _OWNER + moment_ms


def is_newer(offered: int, current: int) -> bool:
    """Return whether numbers of version *offered* replace those of version *current*.

    Within a level later numbers win. A higher level replaces a lower one. A lower level replaces a higher one
    only for the same connection, which has removed its setting: another connection's guess does not undo it.
    Spec: R52.
    """
    if offered // _LEVEL == current // _LEVEL:
        return offered % _OWNER > current % _OWNER
    is_same = offered % _LEVEL // _OWNER == current % _LEVEL // _OWNER
    return offered // _LEVEL > current // _LEVEL or is_same


@dataclass(frozen=True, slots=True)
class Domain:
    """What a vendor counts as one. *parts* name it: ("tenant", id) or ("netsuite", account)."""

    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BucketLimit:
    """A token bucket. In any W seconds no more than capacity + per_s · W units are sent.

    Attributes:
        key: Its name within the domain.
        capacity: The most units.
        per_s: Units added each second.
        name: The provider's name of the limit, which responses use (policy.feedback).
        version: Of these numbers. The newest version ever presented counts, see `is_newer`. Spec: R28.
    """

    key: str
    capacity: float
    per_s: float
    version: int = 1
    name: str = ""
    configured: float = field(default=0.0, repr=False)
    """Capacity by the settings, where *capacity* was learnt; 0: they are the same."""

    def __post_init__(self) -> None:
        _check("bucket", self.key, "capacity", self.capacity, MIN_CAPACITY, MAX_UNITS)
        _check("bucket", self.key, "per_s", self.per_s, MIN_PER_S, MAX_UNITS)

    @property
    def capacity_micro(self) -> int:
        """Capacity in micro-units."""
        return round(self.capacity * MICRO)

    @property
    def rate_micro(self) -> int:
        """Micro-units that come back each second; at least one."""
        return max(1, math.floor(self.per_s * MICRO))


def is_bucket(capacity: float, per_s: float) -> bool:
    """Return whether these numbers are valid for a bucket."""
    return MIN_CAPACITY <= capacity <= MAX_UNITS and MIN_PER_S <= per_s <= MAX_UNITS


def per_window(key: str, limit: float, window_s: float, *, burst: float | None = None) -> BucketLimit:
    """Return a bucket that never lets more than *limit* units through in any *window_s* seconds.

    For vendors that count in windows (HubSpot: 100 in 10 s): a bucket with a capacity of *limit* would let
    twice as many through in one window. *burst*: units at once, default a tenth of *limit*, at least 1; the
    rest is the rate, so that burst + rate · window = limit.

    >>> per_window("app", 100, 10)
    BucketLimit(key='app', capacity=10.0, per_s=9.0, version=1, name='')
    """
    burst = max(1.0, limit / 10) if burst is None else burst
    if not 0 < burst < limit:
        hint = "give a burst above 0 and below the limit"
        raise InvalidConfigError(f"bucket {key!r}: a burst of {burst:g} in a limit of {limit:g}", hint=hint)
    return BucketLimit(key, burst, (limit - burst) / window_s)


@dataclass(frozen=True, slots=True)
class PoolLimit:
    """Slots for at most *capacity* calls in flight, each with its own lease; also locks of bulk operations.

    Attributes:
        classes: The number of priority classes; class 1 is served first. Default 1: FIFO.
        minimum: Slots reserved for a class.
        lease_s: A lease that is not renewed expires after it.
        claim_s: How long a slot that was handed over waits for its new holder.
        max_wait_s: A call that waited longer goes first, whatever its class.
        max_waiters: Further waiters are refused, except one of each tenant up to twice as many.
        fenced: Whether the fence of a later lease is larger even if Redis's clock was set back meanwhile,
            for locks with a fence that is stored elsewhere.

    Spec: G4, G5.
    """

    key: str
    capacity: int
    lease_s: float = 30.0
    claim_s: float = 5.0
    max_wait_s: float = 300.0
    max_waiters: int = 1000
    classes: int = 1
    minimum: Mapping[int, int] = field(default_factory=dict)
    version: int = 1
    fencing: bool = False

    def __post_init__(self) -> None:
        _check("pool", self.key, "capacity", self.capacity, 0, MAX_SLOTS)
        _check("pool", self.key, "lease_s", self.lease_s, MIN_LEASE_S, MAX_LEASE_S)
        _check("pool", self.key, "claim_s", self.claim_s, MIN_LEASE_S, self.lease_s)
        _check("pool", self.key, "max_wait_s", self.max_wait_s, 0.001, MAX_LEASE_S)
        _check("pool", self.key, "max_waiters", self.max_waiters, 0, 1_000_000)
        _check("pool", self.key, "classes", self.classes, 1, MAX_CLASSES)
        _check("pool", self.key, "the sum of minimum", sum(self.minimum.values()), 0, self.capacity)
        if any(not 1 <= number <= self.classes for number in self.minimum):
            hint = f"name classes 1 to {self.classes}"
            raise InvalidConfigError(f"pool {self.key!r}: a minimum for an unknown class", hint=hint)

    def kept_for_others(self, of_class: int, used: Mapping[int, int]) -> int:
        """Return the free slots that class *of_class* must leave, while the classes hold *used* slots."""
        return sum(
            max(0, reserved - used.get(number, 0))
            for number, reserved in self.minimum.items()
            if number != of_class
        )


@dataclass(frozen=True, slots=True)
class QuotaLimit:
    """At most *capacity* slots of one tenant, in all pools of the domain together. A share may be 0."""

    key: str
    capacity: int

    def __post_init__(self) -> None:
        _check("quota", self.key, "capacity", self.capacity, 0, MAX_SLOTS)


@dataclass(frozen=True, slots=True)
class BreakerRule:
    """When a destination counts as down, and how it is tried again (G6, R33).

    It opens after *failures* in a row, or when of at least *least* calls within 30 s a share of *ratio*
    failed; for *open_s*, then twice as long each time, up to *open_max_s*. One probe of the whole fleet
    decides; after it the first *ramp_s* let 2, 4, 8, ... calls a second through.
    """

    key: str
    failures: int = 10
    ratio: float = 0.5
    least: int = 20
    open_s: float = 60.0
    open_max_s: float = 600.0
    ramp_s: float = 5.0

    def __post_init__(self) -> None:
        _check("breaker", self.key, "failures", self.failures, 1, 1_000_000)
        _check("breaker", self.key, "ratio", self.ratio, 0.01, 1)
        _check("breaker", self.key, "least", self.least, 1, 1_000_000)
        _check("breaker", self.key, "open_s", self.open_s, 0.001, 86_400)
        _check("breaker", self.key, "open_max_s", self.open_max_s, self.open_s, 86_400)
        _check("breaker", self.key, "ramp_s", self.ramp_s, 0, 30)


class Degraded(StrEnum):
    """What calls of a connection do while Redis is away (G8)."""

    LOCAL_SHARE = "local_share"
    """Each process keeps to its share of the limits."""
    CLOSED = "closed"
    """None is sent."""
    OPEN = "open"
    """All are sent, unlimited."""


@dataclass(frozen=True, eq=False)
class Plan:
    """All limits of one kind of call, judged together or not at all; a part that is None limits nothing.

    Made once per connection and kind of call, and used for each: adapters keep what they derive of it by
    its identity.
    """

    domain: Domain
    breaker: BreakerRule | None = None
    quota: QuotaLimit | None = None
    pool: PoolLimit | None = None
    buckets: tuple[BucketLimit, ...] = ()
    degraded: Degraded = Degraded.LOCAL_SHARE

    def __post_init__(self) -> None:
        if len(self.buckets) > MAX_BUCKETS:
            raise InvalidConfigError(
                f"{len(self.buckets)} buckets for one call", hint=f"at most {MAX_BUCKETS}"
            )
        keys = sorted(bucket.key for bucket in self.buckets)
        if any(key == other for key, other in pairwise(keys)):
            raise InvalidConfigError("two buckets of one call have the same key", hint="name one otherwise")
        if self.quota is not None and self.pool is None:
            raise InvalidConfigError(
                "a quota of slots needs a pool", hint="add the pool whose slots it counts"
            )

    @property
    def keys(self) -> tuple[object, ...]:
        """Return the domain and the keys of all limits except the breaker's."""
        pool, quota = self.pool and self.pool.key, self.quota and self.quota.key
        return self.domain, pool, quota, *(bucket.key for bucket in self.buckets)


def _check(noun: str, key: str, quantity: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:  # NaN fails it, too
        raise InvalidConfigError(
            f"{noun} {key!r}: {quantity} is {value:g}", hint=f"give {least:g} to {most:g} for {quantity}"
        )
