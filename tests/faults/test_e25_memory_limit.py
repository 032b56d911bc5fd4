"""E25: the gate's Redis is full, or may drop keys when it is: it is not used then, and says why.

A full server answers a PING and refuses to write; one with another policy than noeviction would drop limits.
Both are as good as away: each process keeps to its share until the server may be used again, and does not
come back to it in between.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tests.faults.support.fleet import BOTH, LOG, POOL, RATE, SLOTS, Fleet, fleet_at
from tests.faults.support.ground import own_ground
from tests.faults.support.nursery import Nursery
from tests.faults.support.report import Figures, sized
from tests.faults.support.valkey import OwnValkey

pytestmark = pytest.mark.slow

PROCESSES = 3
FULL_S = sized(1.0, 10.0)
ROUNDS = sized(1, 5)
PEAK_CALLS = 30
FULL = "512kb"  # less than an empty server needs
LONG_LEASE_S = 5.0
RESUME_BOUND_S = 5.0
OVERLAP_S = 0.5


async def _unfit(fleet: Fleet, valkey: OwnValkey, how: str) -> None:
    """For a while the server may not be used; all know why, calls go on, and nobody flaps."""
    figures, begun, since_s = fleet.figures, len(fleet.upstream.calls), time.monotonic()
    if how == "full":
        await valkey.tell("CONFIG", "SET", "maxmemory", FULL)
    else:
        await valkey.tell("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        await valkey.tell("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    await fleet.all_away(since_s)
    late = await fleet.born(callers=0)  # who begins now is told the cause, not its first sign
    await asyncio.sleep(FULL_S)
    told = [line for line in fleet.lines() if line["told"] == "degraded" and line["s"] > since_s]
    await fleet.kill(late)
    alone = [call for call in fleet.upstream.calls[begun:] if call.local]
    sign = "no memory left" if how == "full" else "maxmemory-policy is allkeys-lru"
    figures.holds(any(sign in line["why"] for line in told), f"{how}: nobody says {sign!r}")
    figures.zero(**{f"flapped_{how}": len(told) - PROCESSES - 1})
    figures.holds(len(alone) > PROCESSES, f"{how}: {len(alone)} calls were let in by the shares")
    for setting, value in ("maxmemory-policy", "noeviction"), ("maxmemory", 0):
        await valkey.tell("CONFIG", "SET", setting, value)
    resumed_s = await fleet.back(time.monotonic())
    figures.note(**{f"resume_{how}_s": round(resumed_s, 3), f"alone_{how}": len(alone)})
    figures.holds(resumed_s <= RESUME_BOUND_S, f"{how}: resumed after {resumed_s:.2f} s")


async def test_E25_memory_limit(nursery: Nursery, tmp_path: Path) -> None:
    figures = Figures("E25")
    with own_ground(figures) as valkey:
        async with fleet_at(nursery, valkey.url, tmp_path, figures, plan=BOTH) as fleet:
            await fleet.all_born(PROCESSES)
            for how in ("full", "evicting") * ROUNDS:
                await fleet.served(len(fleet.upstream.calls) + PEAK_CALLS)
                await _unfit(fleet, valkey, how)
            await fleet.served(len(fleet.upstream.calls) + PEAK_CALLS)
            await fleet.rest()
            figures.note(outages=2 * ROUNDS)
            fleet.note_callers()
            fleet.note_upstream()
            fleet.note_rate(RATE, overlap_s=2 * OVERLAP_S * ROUNDS)
            await fleet.note_free()
            await fleet.note_log()
    figures.conclude()


async def test_E25_ablation_any_policy(nursery: Nursery, tmp_path: Path) -> None:
    """A server that drops any key when it is full drops leases, too; here by hand."""
    figures = Figures("E25", ablation="any_policy")
    order = {
        "plan": {"pool": POOL | {"lease_s": LONG_LEASE_S}},
        "lease_s": LONG_LEASE_S,
        "work_s": [1.5, 2.0],
        "unsafe": ["any_policy"],
    }
    with own_ground(figures, {"maxmemory-policy": "allkeys-random"}) as valkey:
        async with fleet_at(nursery, valkey.url, tmp_path, figures, **order) as fleet:
            await fleet.all_born(PROCESSES)
            await fleet.served(SLOTS)
            await valkey.tell("DEL", f"{LOG}:l")
            await fleet.served(2 * SLOTS)
            fleet.note_upstream()
    figures.conclude()
