"""E23: the gate's Redis stops to answer, and goes on as if nothing had been: paused, blocked, or frozen.

All that it knows is still there, and its buckets filled up meanwhile. No call fails for it, and nothing
rushes out when it is back: what the processes spent alone is owed.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path

import pytest
from redis.exceptions import RedisError

from fairlead.policy.limits.limit import BucketLimit
from tests.faults.support.faultproxy import FaultProxy, tcp_proxy
from tests.faults.support.fleet import (
    BOTH,
    BUCKETS_BOUND_S,
    OVERLAP_S,
    POOL,
    RATE,
    SLOTS,
    Fleet,
    fleet_at,
    rate_alone,
)
from tests.faults.support.ground import one_server, own_ground
from tests.faults.support.nursery import Nursery
from tests.faults.support.report import Figures, quantiles, sized, with_retries
from tests.faults.support.valkey import OwnValkey

pytestmark = pytest.mark.slow

PROCESSES = 3
ROUNDS = sized(1, 5)
STALL_S = sized(2.2, 10.0)  # longer than a lease and its notice: the shares count
STALLS = sized(("frozen",), ("pause", "asleep", "frozen"))
PEAK_CALLS = 30
LATER_S = 1.0  # so much later than the first the others are back
LATENCIES_S = (0.005, 0.05, 0.3, 3.0)
NOTICED_LEASE_S = 3.0  # it takes a second to notice, and a slot that was renewed before then is not lost


async def _stall(valkey: OwnValkey, how: str, for_s: float) -> None:
    match how:
        case "pause":
            await valkey.tell("CLIENT", "PAUSE", round(for_s * 1000), "ALL")
            await asyncio.sleep(for_s)
        case "asleep":
            with suppress(RedisError):
                await valkey.tell("DEBUG", "SLEEP", for_s)
        case _:
            valkey.freeze()
            await asyncio.sleep(for_s)
            valkey.thaw()


async def _stalls(
    fleet: Fleet, valkey: OwnValkey, stalls: tuple[str, ...], for_s: float, limit: BucketLimit = RATE
) -> None:
    resumed_s, full_s, first_second = [], [], []
    await fleet.warm_up()
    for how in stalls:
        await fleet.served(len(fleet.upstream.calls) + PEAK_CALLS)
        struck_s = time.monotonic()
        await _stall(valkey, how, for_s)
        over_s = time.monotonic()
        resumed_s.append(await fleet.back(over_s, struck_s))
        full_s.append(await fleet.full_rate(limit, over_s))
        await asyncio.sleep(max(0.0, over_s + 1.0 - time.monotonic()))
        first_second.append(len(fleet.upstream.spends(over_s, over_s + 1.0)))
    figures = fleet.figures
    figures.note(stalls=list(stalls), stall_s=for_s, first_second=first_second)
    figures.note(resume_s=quantiles(resumed_s), buckets_full_s=quantiles(full_s))
    figures.holds(max(resumed_s) <= BUCKETS_BOUND_S, f"resumed after {max(resumed_s):.2f} s")
    figures.holds(max(full_s) <= BUCKETS_BOUND_S, f"the rate was full after {max(full_s):.2f} s")


async def test_E23_redis_stalls(nursery: Nursery, tmp_path: Path) -> None:
    figures = Figures("E23")
    with own_ground(figures) as valkey:
        async with fleet_at(nursery, valkey.url, tmp_path, figures, plan=BOTH) as fleet:
            await fleet.all_born(PROCESSES)
            stalls = STALLS * ROUNDS
            await _stalls(fleet, valkey, stalls, STALL_S)
            await fleet.rest()
            fleet.note_callers()
            fleet.note_upstream()
            fleet.note_rate(RATE, overlap_s=OVERLAP_S)
            bursts = figures.counters["first_second"]
            most = RATE.capacity + RATE.per_s
            figures.holds(max(bursts) <= most, f"{max(bursts)} calls in the first second")
            await fleet.note_free()
            await fleet.note_log()
    figures.conclude()


def _take(wire: FaultProxy, latency_s: float) -> float:
    """From the moment given on an answer takes so long."""
    wire.delay_s = lambda: latency_s / 2  # there, and back again
    return time.monotonic()


@one_server
async def test_redis_latency_rising_5_ms_3_s_degraded_no_failed_job_back_by_itself(
    nursery: Nursery, tmp_path: Path
) -> None:
    figures = Figures("E23_latency")
    order = {"plan": BOTH | {"pool": POOL | {"lease_s": NOTICED_LEASE_S}}, "lease_s": NOTICED_LEASE_S}
    with own_ground(figures) as valkey:
        async with (
            tcp_proxy(valkey.url) as (wire, url),
            fleet_at(nursery, url, tmp_path, figures, **order) as fleet,
        ):
            await fleet.all_born(PROCESSES)
            began_s = time.monotonic()
            for latency_s in LATENCIES_S:
                rising_s = _take(wire, latency_s)
                await fleet.served(len(fleet.upstream.calls) + PEAK_CALLS)
            noticed_s = await fleet.all_away(rising_s, known_s=began_s)
            await fleet.served(len(fleet.upstream.calls) + PEAK_CALLS)
            resumed_s = await fleet.back(_take(wire, LATENCIES_S[0]))
            await fleet.rest()
            fleet.note_callers()
            fleet.note_upstream()
            await fleet.note_free()
    figures.note(outages=1, noticed_s=round(noticed_s, 3), resume_s=round(resumed_s, 3))
    figures.holds(resumed_s <= BUCKETS_BOUND_S, f"resumed after {resumed_s:.2f} s")
    figures.conclude()


async def _owed(nursery: Nursery, folder: Path, figures: Figures, *unsafe: str) -> None:
    """One stall, with a bucket that fills up while the processes spend their shares."""
    limit = BucketLimit("bucket", 200, 100)

    async def stalled(folder: Path) -> None:
        with own_ground(figures) as valkey:
            async with fleet_at(nursery, valkey.url, folder, figures, **rate_alone(limit, *unsafe)) as fleet:
                await fleet.all_born(PROCESSES)
                await fleet.served(225)
                await _stalls(fleet, valkey, ("pause",), 1.7, limit)
                await fleet.served(
                    len(fleet.upstream.calls) + 300
                )  # what there seems to be, if there is more
                await fleet.rest()
                figures.note(n=len(fleet.upstream.calls))
                fleet.note_rate(limit, overlap_s=OVERLAP_S)

    await with_retries(figures, stalled, folder)


async def test_E23_rate_spent_during_the_stall_is_owed(nursery: Nursery, tmp_path: Path) -> None:
    figures = Figures("E23")
    await _owed(nursery, tmp_path, figures)
    figures.conclude()


async def test_E23_ablation_nothing_is_owed(nursery: Nursery, tmp_path: Path) -> None:
    """What filled up in the store and the shares are both spent."""
    figures = Figures("E23", ablation="no_debts", sees="rate over")
    await _owed(nursery, tmp_path, figures, "no_debts")
    figures.conclude()


@one_server
async def test_E23_ablation_who_is_back_first_takes_all(nursery: Nursery, tmp_path: Path) -> None:
    """The store knows nothing of the slots that others gave themselves, until they are back."""
    figures = Figures("E23", ablation="no_share_on_return", sees="over_limit_at_upstream")
    order = {"work_s": [0.3, 0.5], "unsafe": ["no_share_on_return"]}

    async def stalled(folder: Path) -> None:
        with own_ground(figures) as valkey:
            async with (
                tcp_proxy(valkey.url) as (wire, url),
                fleet_at(nursery, valkey.url, folder, figures, processes=PROCESSES, **order) as fleet,
            ):
                late = [fleet.born(rank, url=url) for rank in range(1, PROCESSES)]
                await asyncio.gather(fleet.born(0), *late)
                await fleet.served(SLOTS)
                wire.stall()
                await _stall(valkey, "pause", STALL_S)
                await asyncio.sleep(LATER_S)
                wire.heal()
                await fleet.back(time.monotonic())
                fleet.note_upstream()

    await with_retries(figures, stalled, tmp_path)
    figures.conclude()
