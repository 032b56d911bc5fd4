"""A token bucket in whole numbers: micro-units, microseconds, nothing rounded away (G2, R23, R24).

*level* may be spent now. *reserved* is set aside for waiting calls and counts as not spent yet: level + reserved
is what the provider's bucket should hold, and it never exceeds the capacity. So in any W seconds no more than
capacity + rate · W is sent, including reservations that are redeemed late.

A bucket without a record starts at 0 at the birth of its domain (R23). So a domain that is older than the time
to fill has a full bucket.

Every function returns the bucket as it is after the act; no bucket is changed in place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from fairlead.policy.limits.limit import MICRO, BucketLimit, is_newer

REDEEM_US = 5 * MICRO
"""How long a due reservation can be redeemed. After that its units return to the level. Spec: R26."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """The state of one bucket at *at_us*."""

    level: int
    """Micro-units to spend; below 0 while future units are reserved."""
    rest: int
    """Millionths of a micro-unit that are refilled but not credited yet."""
    at_us: int
    blocked_until_us: int
    """No refill before this instant, because the provider asked for a wait."""
    sent: int
    """Micro-units ever spent. Its growth since a call is what an observation of that call cannot include. Spec: R24."""
    reserved: int
    """Micro-units reserved for waiting calls and not redeemed."""
    capacity: int
    """Micro-units."""
    rate: int
    """Micro-units per second."""
    version: int


def new_bucket(limit: BucketLimit, birth_us: int, *, full: bool = False) -> Bucket:
    """Return a bucket without a record: empty at its domain's birth, or *full* for a new domain."""
    capacity = limit.capacity_micro
    level = capacity if full else 0
    return Bucket(level, 0, birth_us, 0, 0, 0, capacity, limit.rate_micro, limit.version)


def refill(bucket: Bucket, limit: BucketLimit, now_us: int, birth_us: int) -> Bucket:
    """Add the units that came back until *now_us*, and apply *limit* if it is newer than the bucket's own.

    A record from before *birth_us* may miss later spends. So at *birth_us* its level and its reservations count
    as 0, and only a debt that is not paid off by then remains. A clock that was set back credits nothing, and a
    block moves back with it.
    """
    is_known = bucket.at_us == now_us >= birth_us and not is_newer(limit.version, bucket.version)
    if is_known and (bucket.level, bucket.rest) <= (bucket.capacity - bucket.reserved, 0):
        return bucket  # one admission looks at its buckets several times
    if bucket.at_us < birth_us:
        bucket = _add_refill(replace(bucket, level=bucket.level + bucket.reserved, reserved=0), birth_us)
        if bucket.level >= 0:
            bucket = replace(bucket, level=0, rest=0)
    if bucket.at_us > now_us:
        blocked = max(0, bucket.blocked_until_us - (bucket.at_us - now_us))
        bucket = replace(bucket, at_us=now_us, blocked_until_us=blocked)
    return _apply_limit(_add_refill(bucket, now_us), limit)


def _add_refill(bucket: Bucket, at_us: int) -> Bucket:
    """Add what came back from the bucket's own time to *at_us*, except while it was blocked.

    Level and reservations together stay within the capacity.
    """
    start_us = max(bucket.at_us, min(bucket.blocked_until_us, at_us))
    credit, rest = divmod((at_us - start_us) * bucket.rate + bucket.rest, MICRO)
    ceiling = bucket.capacity - bucket.reserved
    if bucket.level + credit >= ceiling:
        return replace(bucket, level=ceiling, rest=0, at_us=at_us)
    return replace(bucket, level=bucket.level + credit, rest=rest, at_us=at_us)


def _apply_limit(bucket: Bucket, limit: BucketLimit) -> Bucket:
    """Return the bucket under *limit* if that is newer.

    A smaller capacity lowers the level by the difference, a larger one adds nothing.
    """
    if not is_newer(limit.version, bucket.version):
        return bucket
    capacity = limit.capacity_micro
    level = bucket.level + min(0, capacity - bucket.capacity)
    return replace(bucket, level=level, capacity=capacity, rate=limit.rate_micro, version=limit.version)


def is_idle(bucket: Bucket, now_us: int) -> bool:
    """Return whether the bucket is full, unblocked and unreserved, so that its record can be dropped."""
    return (
        bucket.reserved == 0
        and bucket.blocked_until_us <= now_us
        and _add_refill(bucket, now_us).level >= bucket.capacity
    )


def wait_us(bucket: Bucket, cost: int) -> int:
    """Return the microseconds from ``at_us`` until *cost* can be spent. 0: now. -1: never, it exceeds the capacity."""
    if cost > bucket.capacity:
        return -1
    blocked_us = max(0, bucket.blocked_until_us - bucket.at_us)
    missing = cost - bucket.level
    if missing <= 0:
        return blocked_us
    return blocked_us + math.ceil(missing / bucket.rate * MICRO)


def spend(bucket: Bucket, cost: int) -> Bucket:
    """Take the *cost* of a call that is sent without a reservation."""
    return replace(bucket, level=bucket.level - cost, sent=bucket.sent + cost)


def reserve(bucket: Bucket, cost: int) -> Bucket:
    """Set *cost* aside for a waiting call; the level may go below 0."""
    return replace(bucket, level=bucket.level - cost, reserved=bucket.reserved + cost)


def redeemable_in_us(bucket: Bucket, cost: int) -> int:
    """Return the microseconds until a due reservation of *cost* can be redeemed; 0: now.

    Reservations that are redeemed late come together, and the refill meanwhile was capped at the capacity. So the
    bucket may not hold enough for all of them at once.
    """
    missing = cost - bucket.level - bucket.reserved
    return math.ceil(missing / bucket.rate * MICRO) if missing > 0 else 0


def redeem(bucket: Bucket, cost: int) -> Bucket:
    """Turn a reservation of *cost* into a spend, because its call is sent."""
    return replace(bucket, reserved=bucket.reserved - cost, sent=bucket.sent + cost)


def cancel_reservation(bucket: Bucket, cost: int) -> Bucket:
    """Return a reservation of *cost*, cancelled or expired, to the level."""
    return replace(bucket, level=bucket.level + cost, reserved=bucket.reserved - cost)


def settle(bucket: Bucket, refund: int) -> Bucket:
    """Correct the bucket once the true cost of a call is known.

    Args:
        refund: The estimate less the true cost, in micro-units; negative if the call cost more. A refund does not
            lower ``sent``, which may be too high but never too low. A debt is at most one capacity.

    Spec: R52.
    """
    least = min(bucket.level, -bucket.capacity - bucket.reserved)
    level = max(least, min(bucket.level + refund, bucket.capacity - bucket.reserved))
    return replace(bucket, level=level, sent=bucket.sent + max(0, -refund))


def observe(
    bucket: Bucket, level: int | None, sent_then: int, *, capacity: int | None = None, rate: int | None = None
) -> Bucket:
    """Take over what a response reports about the limit.

    Later spends are subtracted from *level*, because the provider may not have counted them yet; so the order of
    responses does not matter. A lower level is applied at once, a higher one only if nothing was sent since.

    Args:
        level: The remaining micro-units by the response; None: it reports none.
        sent_then: The bucket's ``sent`` when the call was admitted.
        capacity: Micro-units by the response; holds until settings of a newer version replace it.
        rate: Micro-units per second by the response, likewise.

    Spec: R24.
    """
    if capacity is not None or rate is not None:
        new_capacity = bucket.capacity if capacity is None else capacity
        bucket = replace(
            bucket,
            level=bucket.level + min(0, new_capacity - bucket.capacity),
            capacity=new_capacity,
            rate=bucket.rate if rate is None else rate,
        )
    if level is None:
        return bucket
    sent_since = max(0, bucket.sent - sent_then)
    remaining = min(level, bucket.capacity) - sent_since - bucket.reserved
    if sent_since == 0 or remaining < bucket.level:
        return replace(bucket, level=remaining, rest=0)
    return bucket


def block(bucket: Bucket, until_us: int) -> Bucket:
    """Stop the refill and all spends until *until_us*; the level stays. For a refusal by another limit."""
    return replace(bucket, blocked_until_us=max(bucket.blocked_until_us, until_us))


def penalise(bucket: Bucket, until_us: int) -> Bucket:
    """Empty and block the bucket until *until_us*, because the provider refused a call for this very limit."""
    return replace(
        bucket,
        level=min(bucket.level, -bucket.reserved),
        rest=0,
        blocked_until_us=max(bucket.blocked_until_us, until_us),
    )
