"""A token bucket in whole numbers: micro-units, microseconds, nothing rounded away (G2, R23, R24).

*level* may be spent now. *booked* was promised to waiters, each for a turn of its own, and counts as not
spent yet: level + booked is what the vendor's bucket should hold, and it never passes the capacity. So in
any W seconds no more than capacity + rate · W is sent, bookings and their late redemption included.

What is not known is empty: a bucket without a record starts at 0 when its domain was born (R23), which for
a domain older than the time to fill is a full one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from fairlead.policy.limits.limit import MICRO, BucketLimit, is_newer

REDEEM_US = 5 * MICRO
"""A turn that was promised can be taken for so long (R26); then it goes back to the level."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """The state of one bucket at *at_us*."""

    level: int
    """Micro-units to spend; below 0 while turns are promised ahead."""
    rest: int
    """Millionths of a micro-unit that came back and are not credited yet."""
    at_us: int
    blocked_until_us: int
    """Nothing comes back before: the vendor asked for a wait."""
    sent: int
    """All that was ever spent. Its growth since a call shows what an observation cannot include. Spec: R24."""
    booked: int
    """Promised to waiters and not redeemed."""
    capacity: int
    rate: int
    version: int


def born(limit: BucketLimit, birth_us: int, *, full: bool = False) -> Bucket:
    """Return a bucket without a record: empty at its domain's birth, or *full* for a new domain."""
    capacity = limit.capacity_micro
    level = capacity if full else 0
    return Bucket(level, 0, birth_us, 0, 0, 0, capacity, limit.rate_micro, limit.version)


def refilled(bucket: Bucket, limit: BucketLimit, now_us: int, birth_us: int) -> Bucket:
    """Return the bucket at *now_us*, from now on under *limit* if that is newer than the one it knows.

    A record from before *birth_us* is not trusted: what was spent since may be lost, so nothing is left at
    that moment, nor of what was promised. A debt is what is not paid off by then. A clock that was set back
    credits nothing and moves a block back with it.
    """
    is_known = bucket.at_us == now_us >= birth_us and not is_newer(limit.version, bucket.version)
    if is_known and (bucket.level, bucket.rest) <= (bucket.capacity - bucket.booked, 0):
        return bucket  # one admission looks at its buckets several times
    if bucket.at_us < birth_us:
        bucket = _filled(replace(bucket, level=bucket.level + bucket.booked, booked=0), birth_us)
        if bucket.level >= 0:
            bucket = replace(bucket, level=0, rest=0)
    if bucket.at_us > now_us:
        blocked = max(0, bucket.blocked_until_us - (bucket.at_us - now_us))
        bucket = replace(bucket, at_us=now_us, blocked_until_us=blocked)
    return _apply_limit(_filled(bucket, now_us), limit)


def _filled(bucket: Bucket, at_us: int) -> Bucket:
    start_us = max(bucket.at_us, min(bucket.blocked_until_us, at_us))
    credit, rest = divmod((at_us - start_us) * bucket.rate + bucket.rest, MICRO)
    ceiling = bucket.capacity - bucket.booked
    if bucket.level + credit >= ceiling:
        return replace(bucket, level=ceiling, rest=0, at_us=at_us)
    return replace(bucket, level=bucket.level + credit, rest=rest, at_us=at_us)


def _apply_limit(bucket: Bucket, limit: BucketLimit) -> Bucket:
    """Return the bucket under a newer limit; a smaller capacity lowers the level, a larger one adds nothing."""
    if not is_newer(limit.version, bucket.version):
        return bucket
    capacity = limit.capacity_micro
    level = bucket.level + min(0, capacity - bucket.capacity)
    return replace(bucket, level=level, capacity=capacity, rate=limit.rate_micro, version=limit.version)


def idle(bucket: Bucket, now_us: int) -> bool:
    """Return whether it is full and not blocked, like a bucket first used long after its creation."""
    return (
        bucket.booked == 0
        and bucket.blocked_until_us <= now_us
        and _filled(bucket, now_us).level >= bucket.capacity
    )


def wait_us(bucket: Bucket, cost: int) -> int:
    """Return the microseconds until *cost* can be spent, as seen at ``at_us``; 0: now. -1: never, it is too small."""
    if cost > bucket.capacity:
        return -1
    blocked_us = max(0, bucket.blocked_until_us - bucket.at_us)
    short = cost - bucket.level
    if short <= 0:
        return blocked_us
    return blocked_us + math.ceil(short / bucket.rate * MICRO)


def spent(bucket: Bucket, cost: int) -> Bucket:
    """Return the bucket after *cost* was sent."""
    return replace(bucket, level=bucket.level - cost, sent=bucket.sent + cost)


def booked(bucket: Bucket, cost: int) -> Bucket:
    """Return the bucket after *cost* was reserved."""
    return replace(bucket, level=bucket.level - cost, booked=bucket.booked + cost)


def redeemable_in_us(bucket: Bucket, cost: int) -> int:
    """Return the microseconds until a due reservation of *cost* can be sent; 0: now.

    Turns that many took late all fall due together; what came back meanwhile filled no more than the bucket.
    """
    short = cost - bucket.level - bucket.booked
    return math.ceil(short / bucket.rate * MICRO) if short > 0 else 0


def redeemed(bucket: Bucket, cost: int) -> Bucket:
    """Return the bucket after a reservation of *cost* was sent."""
    return replace(bucket, booked=bucket.booked - cost, sent=bucket.sent + cost)


def unbooked(bucket: Bucket, cost: int) -> Bucket:
    """Return the bucket after a reservation of *cost* was cancelled or expired."""
    return replace(bucket, level=bucket.level + cost, booked=bucket.booked - cost)


def settled(bucket: Bucket, refund: int) -> Bucket:
    """Return the bucket after *refund* units were not used, or, if negative, more were used than estimated.

    ``sent`` stays, because it may be too high but never too low. The debt is at most one capacity. Spec: R52.
    """
    least = min(bucket.level, -bucket.capacity - bucket.booked)
    level = max(least, min(bucket.level + refund, bucket.capacity - bucket.booked))
    return replace(bucket, level=level, sent=bucket.sent + max(0, -refund))


def observed(
    bucket: Bucket, level: int | None, sent_then: int, *, capacity: int | None = None, rate: int | None = None
) -> Bucket:
    """Return the bucket after the provider reported *level*, in the response to a call with ``sent`` at *sent_then*.

    What was sent since is taken off, for the vendor may not have seen it: the order of answers does not
    matter (R24). Down is believed at once, up only when nothing was sent since. *capacity* and *rate* are
    learnt from the same answer and hold until settings of a newer version say otherwise.
    """
    if capacity is not None or rate is not None:
        new = bucket.capacity if capacity is None else capacity
        bucket = replace(
            bucket,
            level=bucket.level + min(0, new - bucket.capacity),
            capacity=new,
            rate=bucket.rate if rate is None else rate,
        )
    if level is None:
        return bucket
    since = max(0, bucket.sent - sent_then)
    remaining = min(level, bucket.capacity) - since - bucket.booked
    if since == 0 or remaining < bucket.level:
        return replace(bucket, level=remaining, rest=0)
    return bucket


def block(bucket: Bucket, until_us: int) -> Bucket:
    """Return the bucket after a refusal for another limit: nothing before *until_us*, then what remains."""
    return replace(bucket, blocked_until_us=max(bucket.blocked_until_us, until_us))


def penalised(bucket: Bucket, until_us: int) -> Bucket:
    """Return the bucket after a refusal: nothing before *until_us*, then the rate without a burst."""
    return replace(
        bucket,
        level=min(bucket.level, -bucket.booked),
        rest=0,
        blocked_until_us=max(bucket.blocked_until_us, until_us),
    )
