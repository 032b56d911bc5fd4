"""E20 for the gate: wall clocks are set ten minutes forward and back, on the server and in a process.

Everything in the store goes by the server's clock. When that jumps, no lease is reaped before every living
holder had time to renew it, none reaches further than one that is given now, and buckets gain nothing. The
processes go by monotonic time alone: their wall clock may say what it likes.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from tests.faults.support.clocks import COMPILER, Clock
from tests.faults.support.fleet import BOTH, LEASE_S, RATE, SLOTS, Fleet, fleet_at
from tests.faults.support.ground import own_ground
from tests.faults.support.nursery import Nursery
from tests.faults.support.report import Figures, sized
from tests.support.tools import needs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="a clock is set by a preloaded library"),
    needs(COMPILER),
]

PROCESSES = 3
TEN_MINUTES_S = 600.0
JUMPS_S = sized((TEN_MINUTES_S, -TEN_MINUTES_S), (TEN_MINUTES_S, -TEN_MINUTES_S, 0.0, 3.0, 0.0) * 4)
PEAK_CALLS = 30
LONGEST_WAIT_S = 10.0
"""No caller is told of a longer one: a turn lies at most a bucket's fill and the others' turns ahead."""


async def _jumps(fleet: Fleet, clock: Clock, jumps_s: tuple[float, ...]) -> None:
    for jump_s in jumps_s:
        await fleet.served(len(fleet.upstream.calls) + PEAK_CALLS)
        clock.set(jump_s)
        await asyncio.sleep(LEASE_S)
    await fleet.served(len(fleet.upstream.calls) + PEAK_CALLS)


async def test_E20_clocks(nursery: Nursery, tmp_path: Path) -> None:
    figures, clock = Figures("E20"), Clock(tmp_path)
    order = {"plan": BOTH, "work_s": [0.01, 0.06], "wall_jumps_s": 0.5}
    with own_ground(figures, env=clock.env) as valkey:
        async with fleet_at(nursery, valkey.url, tmp_path, figures, **order) as fleet:
            await fleet.all_born(PROCESSES)
            await _jumps(fleet, clock, JUMPS_S)
            await fleet.rest()
            counts = fleet.note_callers()
            fleet.note_upstream()
            fleet.note_rate(RATE)
            await fleet.note_free()
            verdict = await fleet.note_log()
            longest_s = max(figure["longest_retry_s"] for figure in fleet.told)
            figures.note(faults=len(JUMPS_S), jumps_s=list(JUMPS_S), wall_jumps=counts["wall_jumps"])
            figures.zero(early_ends=verdict.expired, degraded=counts["gate_degraded"])
            figures.holds(longest_s <= LONGEST_WAIT_S, f"told to wait {longest_s:.0f} s")
            figures.holds(counts["wall_jumps"] > 0, "the processes' wall clocks did not jump")
            figures.holds(verdict.most <= SLOTS, f"{verdict.most} slots at once")
    figures.conclude()


async def test_E20_ablation_nobody_minds(nursery: Nursery, tmp_path: Path) -> None:
    """Ten minutes forward, and all leases have ended: the slots are given to others, and their calls end."""
    figures, clock = Figures("E20", ablation="clock_unwatched", sees="slots_lost"), Clock(tmp_path)
    order = {"work_s": [0.3, 0.5], "unsafe": ["clock_unwatched"]}
    with own_ground(figures, env=clock.env) as valkey:
        async with fleet_at(nursery, valkey.url, tmp_path, figures, **order) as fleet:
            await fleet.all_born(PROCESSES)
            await fleet.served(SLOTS)
            clock.set(TEN_MINUTES_S)
            await fleet.served(2 * SLOTS)
            await fleet.rest()
            fleet.note_upstream()
            figures.zero(slots_lost=fleet.note_callers()["slot_lost"])
    figures.conclude()
