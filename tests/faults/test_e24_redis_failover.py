"""E24: the gate's Redis dies and its replica takes over without the last grants: copies come later.

The run id is another, so nothing is granted for one lease, in which every holder tells of its slot; buckets
begin from empty. What is over the limit all the same is counted apart, with its time: no promise covers it.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tests.faults.support.drained import TIMES, drained
from tests.faults.support.fleet import (
    BOTH,
    LEASE_S,
    OVERLAP_S,
    RATE,
    SLOTS,
    SLOTS_BOUND_S,
    Fleet,
    fleet_at,
    long_calls,
)
from tests.faults.support.ground import CLUSTERED, ClusterPair, own_pair
from tests.faults.support.nursery import Nursery
from tests.faults.support.redispair import Pair
from tests.faults.support.report import Figures, quantiles, sized, with_retries
from tests.support.standstill import all_ran_s

pytestmark = pytest.mark.slow

PROCESSES = 3
FAIL_OVERS = sized(1, 200)
DOWN_S = 0.05  # less than the looks are apart: most processes do not notice more than one error
PEAK_CALLS = 40
UNHEARD = 150  # calls: 5 s of their rate
NO_REPLICAOF = "no REPLICAOF in a cluster: a replica cannot be made to miss something"


async def _fail_overs(fleet: Fleet, redis: Pair | ClusterPair, count: int) -> None:
    resumed_s, full_s = [], []
    for number in range(count):
        await fleet.served(len(fleet.upstream.calls) + PEAK_CALLS)
        struck_s = time.monotonic()
        await redis.fail_over(fleet.figures.draw.uniform(0.0, 2 * DOWN_S), behind=number % 2 == 0)
        back_s = time.monotonic()
        resumed_s.append(await fleet.back(back_s, struck_s))
        full_s.append(await fleet.all_slots(back_s))
        if number + 1 < count:
            await redis.pair_again()
    figures = fleet.figures
    figures.note(fail_overs=count, resume_s=quantiles(resumed_s), slots_full_s=quantiles(full_s))
    figures.holds(max(resumed_s) <= SLOTS_BOUND_S, f"resumed after {max(resumed_s):.2f} s")
    figures.holds(max(full_s) <= SLOTS_BOUND_S, f"all slots after {max(full_s):.2f} s")


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
        figures.note(n=len(up.calls), most_in_flight=up.most, times_over=up.over)
        overs_s = all_ran_s(up.overs) or [0.0]
        figures.note(over_s=round(sum(overs_s), 3), longest_over_s=round(max(overs_s), 3))
        figures.holds(sum(overs_s) <= LEASE_S * FAIL_OVERS, f"over the limit for {sum(overs_s):.2f} s")
        figures.holds(up.in_flight == 0, f"{up.in_flight} calls are still in flight")
        figures.holds(max(overs_s) <= LEASE_S, f"over the limit for {max(overs_s):.2f} s at a time")
        fleet.note_rate(RATE, overlap_s=OVERLAP_S)
        await fleet.note_free()
    figures.conclude()


async def _unheard(
    nursery: Nursery, folder: Path, figures: Figures, *unsafe: str, times: int = TIMES
) -> None:
    """The replica takes over that has not heard of the last calls: by what it knows their rate came back."""

    async def fail_over(fleet: Fleet) -> tuple[float, float]:
        if not CLUSTERED:
            await redis.follower.tell("REPLICAOF", "127.0.0.1", 1)
            await fleet.served(len(fleet.upstream.calls) + UNHEARD)
        struck_s = time.monotonic()
        await redis.fail_over(0.0, behind=False)
        back_s = time.monotonic()
        await fleet.let_in(back_s)
        await redis.pair_again()
        return struck_s, back_s

    async with own_pair(figures) as redis:
        await drained(nursery, redis.url, folder, figures, fail_over, *unsafe, times=times)


async def test_E24_lost_buckets_begin_empty(nursery: Nursery, tmp_path: Path) -> None:
    figures = Figures("E24")
    await _unheard(nursery, tmp_path, figures)
    figures.conclude()


@pytest.mark.skipif(CLUSTERED, reason=NO_REPLICAOF)
async def test_E24_ablation_what_the_replica_says(nursery: Nursery, tmp_path: Path) -> None:
    figures = Figures("E24", ablation="no_run_id_for_buckets", sees="rate over")
    await with_retries(
        figures, lambda folder: _unheard(nursery, folder, figures, "no_run_id", times=1), tmp_path
    )
    figures.conclude()


@pytest.mark.skipif(CLUSTERED, reason=NO_REPLICAOF)
async def test_E24_ablation_the_run_id_is_not_looked_at(nursery: Nursery, tmp_path: Path) -> None:
    """The replica never heard of the slots that are held: it grants them at once."""
    figures = Figures("E24", ablation="no_run_id", sees="over_limit_at_upstream")
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
