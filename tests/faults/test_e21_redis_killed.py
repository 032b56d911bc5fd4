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
from tests.faults.support.fleet import BOTH, RATE, Fleet, fleet_at
from tests.faults.support.ground import own_ground
from tests.faults.support.nursery import Nursery
from tests.faults.support.report import Figures, quantiles, sized
from tests.faults.support.valkey import OwnValkey

pytestmark = pytest.mark.slow

PROCESSES = 3
KILLS = sized(1, 12)
DOWN_S = sized(1.0, 5.0)
PEAK_CALLS = 30
NOTICED_S = 1.0
RESUME_BOUND_S = 5.0
OVERLAP_S = 0.5  # R27: while some know already and some do not


async def _kill(fleet: Fleet, valkey: OwnValkey, down_s: float) -> tuple[float, float]:
    """Seconds until all have noticed, and until all are let in again."""
    killed_s = time.monotonic()
    valkey.kill()
    noticed_s = await fleet.all_away(killed_s)
    await asyncio.sleep(down_s)
    back_s = time.monotonic()
    valkey.start()
    return noticed_s, await fleet.back(back_s)


async def _kills(fleet: Fleet, valkey: OwnValkey, kills: int, down_s: float) -> None:
    noticed_s, resumed_s, alone = [], [], 0
    for _ in range(kills):
        await fleet.served(len(fleet.upstream.calls) + PEAK_CALLS)
        before = len(fleet.upstream.calls)
        noticed, resumed = await _kill(fleet, valkey, down_s)
        noticed_s.append(noticed)
        resumed_s.append(resumed)
        alone += sum(call.local for call in fleet.upstream.calls[before:])
    await fleet.served(len(fleet.upstream.calls) + PEAK_CALLS)
    figures = fleet.figures
    figures.note(kills=kills, noticed_s=quantiles(noticed_s), resume_s=quantiles(resumed_s), alone=alone)
    figures.holds(max(noticed_s) < NOTICED_S, f"noticed after {max(noticed_s):.2f} s")
    figures.holds(max(resumed_s) <= RESUME_BOUND_S, f"resumed after {max(resumed_s):.2f} s")
    figures.holds(alone > 0, "the shares let nobody through")


async def _experiment(fleet: Fleet, valkey: OwnValkey, kills: int, down_s: float) -> None:
    await fleet.all_born(PROCESSES)
    await _kills(fleet, valkey, kills, down_s)
    await fleet.rest()
    counts = fleet.note_callers()
    figures, outages = fleet.figures, PROCESSES * kills
    figures.holds(counts["gate_degraded"] == outages, f"{counts['gate_degraded']} outages, not {outages}")
    fleet.note_upstream()
    fleet.note_rate(RATE, overlap_s=OVERLAP_S * kills)
    await fleet.note_free()
    await fleet.note_log()


async def test_E21_redis_killed(nursery: Nursery, tmp_path: Path) -> None:
    figures = Figures("E21")
    with own_ground(figures) as valkey:
        async with fleet_at(nursery, valkey.url, tmp_path, figures, plan=BOTH) as fleet:
            await _experiment(fleet, valkey, KILLS, DOWN_S)
    figures.conclude()


async def test_E21_what_is_lost_is_empty(nursery: Nursery, tmp_path: Path) -> None:
    figures = Figures("E21")
    with own_ground(figures) as valkey:
        kill = partial(_kill, valkey=valkey, down_s=0.1)
        await drained(nursery, valkey.url, tmp_path, figures, kill, overlap_s=OVERLAP_S)
    figures.conclude()


async def test_E21_ablation_what_is_lost_is_full(nursery: Nursery, tmp_path: Path) -> None:
    """A bucket that is full again after a restart gives its burst twice; it takes 10 s to fill up."""
    figures = Figures("E21", ablation="no_marker_rule")
    with own_ground(figures) as valkey:
        kill = partial(_kill, valkey=valkey, down_s=0.1)
        await drained(
            nursery, valkey.url, tmp_path, figures, kill, "no_marker_rule", times=1, overlap_s=OVERLAP_S
        )
    figures.conclude()
