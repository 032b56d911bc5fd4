"""E23 for one alone: a process cannot reach the gate's Redis for longer than a lease, and the others can.

They go on with the whole limit, for nobody tells them. It has its share beside them as long as that lasts: of
the slots, and of the rate (R27). That is the most that a fleet which is cut in two passes its limits by, and
it is judged here, whose share is which.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from fairlead.policy.limits.limit import MICRO, BucketLimit
from tests.faults.support.faultproxy import FaultProxy, tcp_proxy
from tests.faults.support.fleet import BOTH, BUCKETS_BOUND_S, LEASE_S, RATE, SLOTS, Fleet, fleet_at
from tests.faults.support.ground import one_server, own_ground
from tests.faults.support.nursery import Nursery
from tests.faults.support.rate import most_over
from tests.faults.support.report import Figures, quantiles, sized, with_retries
from tests.support.standstill import passed

pytestmark = [pytest.mark.slow, one_server]

PROCESSES = 3
CUTS = sized(1, 6)
CUT_S = sized(2 * LEASE_S, 10.0)
SHARE = SLOTS // PROCESSES
SHARE_OF_RATE = BucketLimit(RATE.key, RATE.capacity / PROCESSES, RATE.per_s / PROCESSES)
PEAK_CALLS = 30


async def _all_born(fleet: Fleet, url: str, **cut_off: int) -> None:
    """The last goes by *url*, and has *cut_off* in its order."""
    fleet.order["processes"] = PROCESSES
    near = [fleet.born(rank) for rank in range(PROCESSES - 1)]
    await asyncio.gather(*near, fleet.born(PROCESSES - 1, url=url, **cut_off))


async def _cut(fleet: Fleet, wire: FaultProxy) -> float:
    """Once; gives how long the one was not back after it."""
    await fleet.served(len(fleet.upstream.calls) + PEAK_CALLS)
    wire.away()
    await passed(CUT_S)
    wire.heal()
    return await fleet.let_in(time.monotonic())


def _judge_rates(fleet: Fleet) -> None:
    """What the fleet's counts let in, and what the share did, each by its own limit; both by the whole."""
    figures, lag_s = fleet.figures, fleet.upstream.lag_s() + 0.05
    figures.note(lag_s=round(lag_s, 3))
    for alone, limit, name in ((False, RATE, "others_over_s"), (True, SHARE_OF_RATE, "share_over_s")):
        ours = [call for call in fleet.upstream.calls if call.local is alone]
        spends = [(round(call.arrived_s * MICRO), round(call.cost * MICRO)) for call in ours]
        over_s = most_over(spends, limit) / limit.per_s
        figures.note(**{name: round(over_s, 3)})
        figures.holds(over_s <= lag_s, f"{name} is {over_s:.2f}")
    both = most_over(fleet.upstream.spends(), RATE)
    figures.note(rate_over_with_one_share=round(both, 3))
    alone = sum(call.local for call in fleet.upstream.calls)
    figures.note(calls_by_the_share=alone)
    figures.holds(alone > 0, "who was cut off sent nothing")


async def test_E23_process_cut_off_from_redis(nursery: Nursery, tmp_path: Path) -> None:
    figures = Figures("E23")
    with own_ground(figures) as valkey:
        async with (
            tcp_proxy(valkey.url) as (wire, url),
            fleet_at(nursery, valkey.url, tmp_path, figures, limit=SLOTS + SHARE, plan=BOTH) as fleet,
        ):
            await _all_born(fleet, url)
            back_s = [await _cut(fleet, wire) for _ in range(CUTS)]
            await fleet.rest()
            fleet.note_callers()
            figures.note(n=len(fleet.upstream.calls), outages=CUTS, cut_s=CUT_S, back_s=quantiles(back_s))
            figures.note(most_in_flight=fleet.upstream.most)
            figures.zero(over_with_one_share=fleet.upstream.over)
            figures.holds(max(back_s) <= BUCKETS_BOUND_S, f"back after {max(back_s):.2f} s")
            _judge_rates(fleet)
            await fleet.note_free()
    figures.conclude()


async def test_E23_ablation_who_is_cut_off_has_all(nursery: Nursery, tmp_path: Path) -> None:
    """It knows of nobody else, so its share is the whole."""
    figures = Figures("E23", ablation="share_is_the_whole", sees="over_with_one_share")

    async def cut(folder: Path) -> None:
        with own_ground(figures) as valkey:
            async with (
                tcp_proxy(valkey.url) as (wire, url),
                fleet_at(
                    nursery, valkey.url, folder, figures, limit=SLOTS + SHARE, work_s=[0.1, 0.2]
                ) as fleet,
            ):
                await _all_born(fleet, url, processes=1)
                await _cut(fleet, wire)
                figures.zero(over_with_one_share=fleet.upstream.over)

    await with_retries(figures, cut, tmp_path)
    figures.conclude()
