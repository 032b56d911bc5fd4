"""Faults that strike while a bucket is empty: if it came back full, its whole burst would be too much.

The burst is far more than what a change may cost (R27), so one fault that fills it is seen among several.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from fairlead.policy.limits.limit import BucketLimit
from tests.faults.support.fleet import BUCKETS_BOUND_S, OVERLAP_S, Fleet, fleet_at, rate_alone
from tests.faults.support.nursery import Nursery
from tests.faults.support.report import Figures, quantiles, sized

LIMIT = BucketLimit("bucket", 300, 30)
TIMES = sized(1, 5)
PROCESSES = 3
LATE_AFTER = 90
"""Calls that are waited for after each fault: 3 s at the rate."""

Fault = Callable[[Fleet], Awaitable[tuple[float, float]]]
"""Strikes, and tells when it did and when the store could be used again."""


async def drained(
    nursery: Nursery,
    url: str,
    folder: Path,
    figures: Figures,
    fault: Fault,
    *unsafe: str,
    times: int = TIMES,
    overlap_s: float = OVERLAP_S,
) -> None:
    """Spend the burst, then *fault*, *times* over. *overlap_s*: seconds of the rate that each may add."""
    async with fleet_at(nursery, url, folder, figures, **rate_alone(LIMIT, *unsafe)) as fleet:
        await fleet.all_born(PROCESSES)
        await fleet.served(round(LIMIT.capacity) + 50)
        full_s = []
        for _ in range(times):
            struck_s, back_s = await fault(fleet)
            await fleet.back(back_s, struck_s)
            full_s.append(await fleet.full_rate(LIMIT, back_s))
            await fleet.served(len(fleet.upstream.calls) + LATE_AFTER)
        await fleet.rest()
        fleet.note_callers()
        figures.note(n=len(fleet.upstream.calls), faults=times, buckets_full_s=quantiles(full_s))
        figures.holds(max(full_s) <= BUCKETS_BOUND_S, f"the rate was full after {max(full_s):.2f} s")
        fleet.note_rate(LIMIT, overlap_s=overlap_s)
