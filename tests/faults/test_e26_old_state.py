"""E26: the gate's Redis comes back from its append-only file, with slots of holders that have died meanwhile.

Its run id is new, so what it knows may be old: no slot is given for one lease, and after that lease the
ghosts are gone. Holders that live tell of their slots, and keep them.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tests.faults.support.drained import drained
from tests.faults.support.fleet import BOTH, LEASE_S, RATE, SLOTS, Fleet, fleet_at
from tests.faults.support.ground import CLUSTERED, own_ground
from tests.faults.support.nursery import Nursery
from tests.faults.support.report import Figures, quantiles, sized
from tests.faults.support.valkey import OwnValkey

pytestmark = pytest.mark.slow

PROCESSES = 3
CRASHES = sized(1, 15)
PEAK_CALLS = 60
OVERLAP_S = 0.5
APPENDS = {"appendonly": "yes", "appendfsync": "everysec"}
RESUME_BOUND_S = 5.0  # that of buckets; slots: a lease and a second


async def _crash(fleet: Fleet, valkey: OwnValkey) -> float:
    """The server and one holder die in the same moment; seconds until all who live are let in again."""
    await fleet.served(len(fleet.upstream.calls) + PEAK_CALLS)
    child = fleet.figures.draw.choice(fleet.children)
    rank = fleet.ranks[child.pid]
    valkey.kill()
    await fleet.kill(child)
    await asyncio.sleep(0.1)
    valkey.start()
    back_s = time.monotonic()
    await fleet.born(rank)
    return await fleet.back(back_s)


async def _experiment(fleet: Fleet, valkey: OwnValkey, crashes: int) -> None:
    await fleet.all_born(PROCESSES)
    resumed_s = [await _crash(fleet, valkey) for _ in range(crashes)]
    await fleet.rest()
    fleet.note_callers()
    fleet.note_upstream()
    fleet.note_rate(RATE, overlap_s=OVERLAP_S * crashes)
    await fleet.note_free()
    verdict = await fleet.note_log()
    figures = fleet.figures
    figures.note(crashes=crashes, resume_s=quantiles(resumed_s))
    figures.holds(max(resumed_s) <= RESUME_BOUND_S, f"resumed after {max(resumed_s):.2f} s")
    figures.holds(verdict.most <= SLOTS + verdict.over_adopted, f"{verdict.most} slots at once")


async def test_E26_old_state(nursery: Nursery, tmp_path: Path) -> None:
    figures = Figures("E26")
    with own_ground(figures, APPENDS) as valkey:
        async with fleet_at(nursery, valkey.url, tmp_path, figures, plan=BOTH) as fleet:
            await _experiment(fleet, valkey, CRASHES)
    figures.conclude()


async def test_E26_what_was_spent_is_spent(nursery: Nursery, tmp_path: Path) -> None:
    """What its file says of the buckets may be from before they were emptied."""
    figures = Figures("E26")

    async def crash(fleet: Fleet) -> None:
        valkey.kill()
        await asyncio.sleep(0.1)
        valkey.start()
        await fleet.back(time.monotonic())

    with own_ground(figures, APPENDS) as valkey:
        await drained(nursery, valkey.url, tmp_path, figures, crash, overlap_s=OVERLAP_S)
    figures.conclude()


@pytest.mark.skipif(CLUSTERED, reason="a member of a cluster takes longer than a lease to be back")
async def test_E26_ablation_ghosts_stay(nursery: Nursery, tmp_path: Path) -> None:
    figures = Figures("E26", ablation="no_reaping")
    order = {"work_s": [0.2, 0.4], "unsafe": ["no_reaping"]}
    with own_ground(figures, APPENDS) as valkey:
        async with fleet_at(nursery, valkey.url, tmp_path, figures, **order) as fleet:
            await fleet.all_born(1)
            await fleet.served(3 * SLOTS)
            valkey.kill()
            await fleet.kill(fleet.children[0])
            valkey.start()
            await fleet.note_free(within_s=LEASE_S + 0.3)
    figures.conclude()
