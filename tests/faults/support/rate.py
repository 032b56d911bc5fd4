"""How far requests passed their rate, in any window; and what a window may have more where a fault lay in it.

While processes with the store and processes on their shares overlap, both spend (R27): so much may come on
top, in windows that touch such a time, and in no other.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from fairlead.policy.limits.limit import MICRO, BucketLimit


def most_over(
    spends: Sequence[tuple[int, int]],
    limit: BucketLimit,
    outages: Sequence[tuple[float, float]] = (),
    overlap_s: float = 0.0,
) -> float:
    """Units by which the worst window [a, t] passes burst + rate * (t - a) + what its outages may add.

    *spends*: (time in us, cost in micro-units), in order. *outages*: (begin, end) in seconds of the same
    clock, one after the other; each adds *overlap_s* of the rate to the windows that it touches. ValueError
    where they are not.
    """
    edges = [edge_s for outage in outages for edge_s in outage]
    if edges != sorted(edges):
        raise ValueError(f"outages that overlap, or are not in order: {outages}")
    overlap_units = overlap_s * limit.per_s
    begins, ends = [begin_s for begin_s, _ in outages], [end_s for _, end_s in outages]
    least, spent, worst = float("inf"), 0.0, 0.0
    for at_us, cost in spends:
        at_s = at_us / MICRO
        start_count, over = bisect_right(begins, at_s), bisect_left(ends, at_s)
        # A window that begins now has no part in what is over; one that ends now has part in all that began.
        least = min(least, limit.capacity + spent - limit.per_s * at_s - overlap_units * over)
        spent += cost / MICRO
        worst = max(worst, spent - limit.per_s * at_s - overlap_units * start_count - least)
    return worst
