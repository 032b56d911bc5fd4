"""E22: FLUSHALL and SCRIPT FLUSH at the peak: all leases, bookings and scripts are gone in one moment.

Nothing refuses and nothing is down, so nobody notices but the scripts: a marker is missing. Running calls are
told of again by their processes, no slot is granted meanwhile, and buckets begin from empty.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from redis.asyncio import Redis

from tests.faults.support.drained import drained
from tests.faults.support.fleet import (
    BOTH,
    LOG,
    RATE,
    SLOTS,
    SLOTS_BOUND_S,
    Fleet,
    fleet_at,
    long_calls,
    parsed,
)
from tests.faults.support.ground import own_ground
from tests.faults.support.nursery import Nursery
from tests.faults.support.report import Figures, quantiles, sized, with_retries
from tests.support.pool_verdict import verify_pool_log

pytestmark = pytest.mark.slow

PROCESSES = 3
FLUSHES = sized(1, 30)
PEAK_CALLS = 10
ON_WAY_S = 0.1


async def _flush(fleet: Fleet, url: str) -> float:
    """Everything is gone; what was in the log until that moment is judged. From when on nothing comes
    that was let in before."""
    client = Redis.from_url(url, decode_responses=True)
    try:
        async with client.pipeline(transaction=True) as pipe:
            pipe.xrange(f"{LOG}:e")
            pipe.flushall()
            pipe.script_flush()
            flushed, *_ = await pipe.execute()
        flushed_s = time.monotonic() + ON_WAY_S
    finally:
        await client.aclose()
    verdict = verify_pool_log(parsed(fields) for _, fields in flushed)
    fleet.figures.holds(not verdict.violation, f"before a flush: {verdict.violation}")
    fleet.figures.note(told_again=fleet.figures.counters.get("told_again", 0) + verdict.adopted)
    return flushed_s


async def _experiment(fleet: Fleet, url: str, flushes: int) -> None:
    figures, resumed_s, full_s = fleet.figures, [], []
    await fleet.all_born(PROCESSES)
    for _ in range(flushes):
        await fleet.served(len(fleet.upstream.calls) + PEAK_CALLS)
        flushed_s = await _flush(fleet, url)
        resumed_s.append(await fleet.back(flushed_s))
        full_s.append(await fleet.all_slots(flushed_s))
    await fleet.served(len(fleet.upstream.calls) + PEAK_CALLS)
    await fleet.rest()
    counts = fleet.note_callers()
    fleet.note_upstream()
    fleet.note_rate(RATE)
    await fleet.note_free()
    verdict = await fleet.note_log()
    figures.note(flushes=flushes, resume_s=quantiles(resumed_s), slots_full_s=quantiles(full_s))
    figures.zero(degraded=counts["gate_degraded"])
    figures.holds(max(resumed_s) <= SLOTS_BOUND_S, f"resumed after {max(resumed_s):.2f} s")
    figures.holds(max(full_s) <= SLOTS_BOUND_S, f"all slots after {max(full_s):.2f} s")
    figures.holds(verdict.most <= SLOTS, f"{verdict.most} slots at once")


async def test_E22_flushed(nursery: Nursery, tmp_path: Path) -> None:
    figures = Figures("E22")
    with own_ground(figures) as valkey:
        order = {"plan": BOTH, "work_s": [0.01, 0.6]}
        async with fleet_at(nursery, valkey.url, tmp_path, figures, **order) as fleet:
            await _experiment(fleet, valkey.url, FLUSHES)
    figures.conclude()


async def test_E22_ablation_what_is_lost_is_full(nursery: Nursery, tmp_path: Path) -> None:
    """Slots are given at once, before those who hold one could tell of it."""
    figures = Figures("E22", ablation="no_marker_rule", sees="over_limit_at_upstream")
    order = long_calls("no_marker_rule")
    with own_ground(figures) as valkey:
        async with fleet_at(nursery, valkey.url, tmp_path, figures, **order) as fleet:
            await fleet.all_born(PROCESSES)
            await fleet.served(SLOTS)
            await fleet.back(await _flush(fleet, valkey.url))
            fleet.note_upstream()
    figures.conclude()


ABLATED = {"ablation": "no_marker_rule_for_buckets", "sees": "rate over"}


@pytest.mark.parametrize("unsafe", [(), ("no_marker_rule",)], ids=["safe", "ablation_full"])
async def test_E22_lost_buckets_begin_empty(
    nursery: Nursery, tmp_path: Path, unsafe: tuple[str, ...]
) -> None:
    """Nobody is away meanwhile, so nothing may come on top."""
    figures = Figures("E22", **ABLATED if unsafe else {})

    async def flush(fleet: Fleet) -> tuple[float, float]:
        struck_s = time.monotonic()
        return struck_s, await _flush(fleet, fleet.url)

    async def strike(folder: Path) -> None:
        with own_ground(figures) as valkey:
            await drained(nursery, valkey.url, folder, figures, flush, *unsafe, overlap_s=0.0)

    await with_retries(figures, strike, tmp_path)
    figures.conclude()
