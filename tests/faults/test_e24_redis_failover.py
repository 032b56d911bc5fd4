"""E24: the gate's Redis dies and its replica takes over without the last grants: copies come later.

The run id is another, so nothing is granted for one lease, in which every holder tells of its slot; buckets
begin from empty. What is over the limit all the same is counted apart, with its time: no promise covers it.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tests.faults.support.drained import drained
from tests.faults.support.fleet import BOTH, LEASE_S, RATE, SLOTS, Fleet, fleet_at, long_calls
from tests.faults.support.ground import CLUSTERED, ClusterPair, own_pair
from tests.faults.support.nursery import Nursery
from tests.faults.support.redispair import Pair
from tests.faults.support.report import Figures, quantiles, sized

pytestmark = pytest.mark.slow

PROCESSES = 3
FAIL_OVERS = sized(1, 200)
DOWN_S = 0.05  # less than the looks are apart: most processes do not notice more than one error
PEAK_CALLS = 40
RESUME_BOUND_S = 5.0
OVERLAP_S = 0.5


async def _fail_overs(fleet: Fleet, redis: Pair | ClusterPair, count: int) -> None:
    resumed_s = []
    for number in range(count):
        await fleet.served(len(fleet.upstream.calls) + PEAK_CALLS)
        await redis.fail_over(fleet.figures.draw.uniform(0.0, 2 * DOWN_S), behind=number % 2 == 0)
        back_s = time.monotonic()
        resumed_s.append(await fleet.back(back_s))
        if number + 1 < count:
            await redis.pair_again()
    figures = fleet.figures
    figures.note(fail_overs=count, resume_s=quantiles(resumed_s))
    figures.holds(max(resumed_s) <= RESUME_BOUND_S, f"resumed after {max(resumed_s):.2f} s")


async def test_E24_redis_failover(nursery: Nursery, tmp_path: Path) -> None:
    figures = Figures("E24")
    async with (
        own_pair(figures) as redis,
        fleet_at(nursery, redis.url, tmp_path, figures, plan=BOTH) as fleet,
    ):
        await fleet.all_born(PROCESSES)
        await _fail_overs(fleet, redis, FAIL_OVERS)
        await fleet.rest()
        counts = fleet.note_callers()
        outages = counts["gate_degraded"]
        figures.holds(outages <= PROCESSES * FAIL_OVERS, f"{outages} outages")
        up = fleet.upstream
        figures.note(n=len(up.calls), most_in_flight=up.most, times_over=up.over, over_s=round(up.over_s, 3))
        figures.note(longest_over_s=round(up.longest_over_s, 3))
        figures.holds(up.over_s <= LEASE_S * FAIL_OVERS, f"over the limit for {up.over_s:.2f} s")
        figures.holds(up.in_flight == 0, f"{up.in_flight} calls are still in flight")
        figures.holds(up.longest_over_s <= LEASE_S, f"over the limit for {up.longest_over_s:.2f} s at a time")
        fleet.note_rate(RATE, overlap_s=OVERLAP_S * FAIL_OVERS)
        await fleet.note_free()
    figures.conclude()


async def test_E24_what_is_lost_is_empty(nursery: Nursery, tmp_path: Path) -> None:
    figures = Figures("E24")

    async def fail_over(fleet: Fleet) -> None:
        await redis.fail_over(0.0, behind=False)
        await fleet.back(time.monotonic())
        await redis.pair_again()

    async with own_pair(figures) as redis:
        await drained(nursery, redis.url, tmp_path, figures, fail_over, overlap_s=OVERLAP_S)
    figures.conclude()


@pytest.mark.skipif(CLUSTERED, reason="no REPLICAOF in a cluster: a replica cannot be made to miss something")
async def test_E24_ablation_the_run_id_is_not_looked_at(nursery: Nursery, tmp_path: Path) -> None:
    """The replica never heard of the slots that are held: it grants them at once."""
    figures = Figures("E24", ablation="no_run_id")
    order = long_calls("no_run_id")
    async with own_pair(figures) as redis, fleet_at(nursery, redis.url, tmp_path, figures, **order) as fleet:
        await fleet.born(callers=0)
        await asyncio.sleep(0.2)
        await redis.follower.tell("REPLICAOF", "127.0.0.1", 1)
        await fleet.born()
        await fleet.served(SLOTS)
        await redis.fail_over(0.0, behind=True)
        await fleet.born()
        await fleet.served(2 * SLOTS)
        fleet.note_upstream()
    figures.conclude()
