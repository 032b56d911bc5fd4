"""E21: the gate's Redis is killed at its peak, and is empty when it comes back.

Meanwhile each process keeps to its share. What comes back knows of nothing: no slot is given before each of
the lost ones must have ended or been told of, and buckets begin from empty. So neither limit is passed at the
upstream, and no caller sees an error.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from pathlib import Path

import pytest

from tests.faults.support.drained import drained
from tests.faults.support.fleet import BOTH, OVERLAP_S, RATE, SLOTS_BOUND_S, Fleet, fleet_at, pool_log
from tests.faults.support.ground import own_ground
from tests.faults.support.nursery import Nursery
from tests.faults.support.report import Figures, quantiles, sized, with_retries
from tests.faults.support.valkey import OwnValkey
from tests.support.pool_verdict import verify_pool_log

pytestmark = pytest.mark.slow

PROCESSES = 3
KILLS = sized(1, 12)
DOWN_S = sized(1.0, 5.0)
PEAK_CALLS = 30
NOTICED_S = 1.0
ON_WAY_S = 0.1


async def _kill(fleet: Fleet, valkey: OwnValkey, down_s: float) -> tuple[float, float]:
    """Seconds until all have noticed, and when it was back."""
    killed_s = time.monotonic()
    valkey.kill()
    noticed_s = await fleet.all_away(killed_s)
    await asyncio.sleep(down_s)
    back_s = time.monotonic()
    valkey.start()
    return noticed_s, back_s


async def _killed(fleet: Fleet, valkey: OwnValkey) -> tuple[float, float]:
    """For a moment it is away: when it was killed, and when it was back."""
    killed_s = time.monotonic()
    _, back_s = await _kill(fleet, valkey, 0.1)
    return killed_s, back_s


async def _kills(fleet: Fleet, valkey: OwnValkey, kills: int, down_s: float) -> None:
    figures, degraded_calls = fleet.figures, 0
    noticed_s, resumed_s, full_s = [], [], []
    for _ in range(kills):
        await fleet.served(len(fleet.upstream.calls) + PEAK_CALLS)
        call_count = len(fleet.upstream.calls)
        verdict = verify_pool_log(await pool_log(valkey.url))
        figures.holds(not verdict.violation, f"before a kill: {verdict.violation}")
        struck_s = time.monotonic()
        noticed, back_s = await _kill(fleet, valkey, down_s)
        noticed_s.append(noticed)
        resumed_s.append(await fleet.back(back_s, struck_s))
        full_s.append(await fleet.all_slots(back_s))
        degraded_calls += sum(call.local for call in fleet.upstream.calls[call_count:])
    await fleet.served(len(fleet.upstream.calls) + PEAK_CALLS)
    figures.note(kills=kills, noticed_s=quantiles(noticed_s), alone=degraded_calls)
    figures.note(resume_s=quantiles(resumed_s), slots_full_s=quantiles(full_s))
    figures.holds(max(noticed_s) < NOTICED_S, f"noticed after {max(noticed_s):.2f} s")
    figures.holds(max(resumed_s) <= SLOTS_BOUND_S, f"resumed after {max(resumed_s):.2f} s")
    figures.holds(max(full_s) <= SLOTS_BOUND_S, f"all slots after {max(full_s):.2f} s")
    figures.holds(degraded_calls > 0, "the shares let nobody through")


async def _experiment(fleet: Fleet, valkey: OwnValkey, kills: int, down_s: float) -> None:
    await fleet.all_born(PROCESSES)
    await _kills(fleet, valkey, kills, down_s)
    await fleet.rest()
    counts = fleet.note_callers()
    figures, outages = fleet.figures, PROCESSES * kills
    figures.holds(counts["gate_degraded"] == outages, f"{counts['gate_degraded']} outages, not {outages}")
    fleet.note_upstream()
    fleet.note_rate(RATE, overlap_s=OVERLAP_S)
    await fleet.note_free()
    await fleet.note_log()


async def test_E21_redis_killed(nursery: Nursery, tmp_path: Path) -> None:
    figures = Figures("E21")
    with own_ground(figures) as valkey:
        async with fleet_at(nursery, valkey.url, tmp_path, figures, plan=BOTH) as fleet:
            await _experiment(fleet, valkey, KILLS, DOWN_S)
    figures.conclude()


async def test_E21_closed_where_so_set(nursery: Nursery, tmp_path: Path) -> None:
    """A connection that would rather wait sends nothing while the store is away."""
    figures, sent = Figures("E21"), 0
    with own_ground(figures) as valkey:
        order = {"plan": BOTH | {"degraded": "closed"}, "pause_s": [0.02, 0.1]}
        async with fleet_at(nursery, valkey.url, tmp_path, figures, **order) as fleet:
            await fleet.all_born(PROCESSES)
            calls = fleet.upstream.calls
            for _ in range(KILLS):
                await fleet.served(len(calls) + PEAK_CALLS)
                _, back_s = await _kill(fleet, valkey, DOWN_S)
                away_s = back_s - DOWN_S
                sent += sum(away_s + ON_WAY_S < call.admitted_s < back_s for call in calls)
                await fleet.back(back_s)
            await fleet.rest()
            fleet.note_callers()
            fleet.note_upstream()
            figures.note(kills=KILLS)
            figures.zero(sent_without_the_store=sent)
            figures.holds(figures.counters["closed"].get("outage", 0) > 0, "nobody was refused for it")
    figures.conclude()


async def test_E21_lost_buckets_begin_empty(nursery: Nursery, tmp_path: Path) -> None:
    figures = Figures("E21")
    with own_ground(figures) as valkey:
        kill = partial(_killed, valkey=valkey)
        await drained(nursery, valkey.url, tmp_path, figures, kill)
    figures.conclude()


async def test_E21_ablation_what_is_lost_is_full(nursery: Nursery, tmp_path: Path) -> None:
    """A bucket that is full again after a restart gives its burst twice; it takes 10 s to fill up."""
    figures = Figures("E21", ablation="no_marker_rule", sees="rate over")

    async def strike(folder: Path) -> None:
        with own_ground(figures) as valkey:
            kill = partial(_killed, valkey=valkey)
            await drained(nursery, valkey.url, folder, figures, kill, "no_marker_rule", times=1)

    await with_retries(figures, strike, tmp_path)
    figures.conclude()
