"""E26: the gate's Redis comes back from its append-only file, with slots of holders that have died meanwhile.

Its run id is new, so what it knows may be old: no slot is given for one lease, and after that lease the
ghosts are gone. Holders that live tell of their slots, and keep them. Buckets begin from empty: what its file
says of them may be from before they were spent.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tests.faults.support.drained import TIMES, drained
from tests.faults.support.fleet import BOTH, LEASE_S, OVERLAP_S, RATE, SLOTS, SLOTS_BOUND_S, Fleet, fleet_at
from tests.faults.support.ground import CLUSTERED, own_ground
from tests.faults.support.nursery import Nursery
from tests.faults.support.report import Figures, quantiles, sized, with_retries
from tests.faults.support.valkey import OwnValkey

pytestmark = pytest.mark.slow

PROCESSES = 3
CRASHES = sized(1, 15)
PEAK_CALLS = 60
UNWRITTEN = 150  # calls: 5 s of their rate
SLOWLY_BACK = "a member of a cluster takes longer than a lease to be back"
APPENDS = {"appendonly": "yes", "appendfsync": "everysec"}


async def _crash(fleet: Fleet, valkey: OwnValkey) -> tuple[float, float]:
    """The server and one holder die in the same moment; seconds until all who live are let in again, and
    until all slots are."""
    await fleet.served(len(fleet.upstream.calls) + PEAK_CALLS)
    child = fleet.figures.draw.choice(fleet.children)
    rank = fleet.ranks[child.pid]
    struck_s = time.monotonic()
    valkey.kill()
    await fleet.kill(child)
    await asyncio.sleep(0.1)
    valkey.start()
    back_s = time.monotonic()
    resumed_s = await fleet.back(back_s, struck_s)
    full_s = await fleet.all_slots(back_s)
    await fleet.born(rank)
    return resumed_s, full_s


async def _experiment(fleet: Fleet, valkey: OwnValkey, crashes: int) -> None:
    await fleet.all_born(PROCESSES)
    crashes_seen = [await _crash(fleet, valkey) for _ in range(crashes)]
    resumed_s, full_s = [first for first, _ in crashes_seen], [all_s for _, all_s in crashes_seen]
    await fleet.rest()
    fleet.note_callers()
    fleet.note_upstream()
    fleet.note_rate(RATE, overlap_s=OVERLAP_S)
    await fleet.note_free()
    verdict = await fleet.note_log()
    figures = fleet.figures
    figures.note(crashes=crashes, resume_s=quantiles(resumed_s), slots_full_s=quantiles(full_s))
    figures.holds(max(resumed_s) <= SLOTS_BOUND_S, f"resumed after {max(resumed_s):.2f} s")
    figures.holds(max(full_s) <= SLOTS_BOUND_S, f"all slots after {max(full_s):.2f} s")
    figures.holds(verdict.most <= SLOTS + verdict.over_adopted, f"{verdict.most} slots at once")
    figures.holds(verdict.over_adopted <= SLOTS, f"{verdict.over_adopted} beside ghosts")


async def test_E26_old_state(nursery: Nursery, tmp_path: Path) -> None:
    figures = Figures("E26")
    with own_ground(figures, APPENDS) as valkey:
        async with fleet_at(nursery, valkey.url, tmp_path, figures, plan=BOTH) as fleet:
            await _experiment(fleet, valkey, CRASHES)
    figures.conclude()


async def _unwritten(
    nursery: Nursery, folder: Path, figures: Figures, *unsafe: str, times: int = TIMES
) -> None:
    """The last calls did not get into the file: by what that says their rate came back."""

    async def crash(fleet: Fleet) -> tuple[float, float]:
        await valkey.tell("CONFIG", "SET", "appendonly", "no")
        await fleet.served(len(fleet.upstream.calls) + UNWRITTEN)
        struck_s = time.monotonic()
        valkey.kill()
        await asyncio.sleep(0.1)
        valkey.start()
        return struck_s, time.monotonic()

    with own_ground(figures, APPENDS) as valkey:
        await drained(nursery, valkey.url, folder, figures, crash, *unsafe, times=times)


async def test_E26_spent_rate_stays_spent(nursery: Nursery, tmp_path: Path) -> None:
    figures = Figures("E26")
    await _unwritten(nursery, tmp_path, figures)
    figures.conclude()


@pytest.mark.skipif(CLUSTERED, reason=SLOWLY_BACK)
async def test_E26_ablation_what_the_file_says(nursery: Nursery, tmp_path: Path) -> None:
    figures = Figures("E26", ablation="no_run_id_for_buckets", sees="rate over")
    await with_retries(
        figures, lambda folder: _unwritten(nursery, folder, figures, "no_run_id", times=1), tmp_path
    )
    figures.conclude()


@pytest.mark.skipif(CLUSTERED, reason=SLOWLY_BACK)
async def test_E26_ablation_ghosts_stay(nursery: Nursery, tmp_path: Path) -> None:
    figures = Figures("E26", ablation="no_reaping", sees="slots free at rest")
    order = {"work_s": [0.2, 0.4], "unsafe": ["no_reaping"]}
    with own_ground(figures, APPENDS) as valkey:
        async with fleet_at(nursery, valkey.url, tmp_path, figures, **order) as fleet:
            await fleet.all_born(1)
            await fleet.served(3 * SLOTS)
            valkey.kill()
            await fleet.kill(fleet.children[0])
            valkey.start()
            await fleet.note_free(within_s=5 * LEASE_S)
    figures.conclude()
