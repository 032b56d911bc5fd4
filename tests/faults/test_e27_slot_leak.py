"""E27: holders are killed, frozen, cancelled and held up at random, and no slot is lost or given twice.

A cycle is one such end. Most are cancellations, at every stage of a call; the rest of the calls go on. After
the last one all slots can be had again within a lease and a second. The pool's log proves that no slot was
given while the limit was reached, and that each was given back, or ended with its lease.

A pool whose events are all kept is always judged in whole. The common path, which writes no log, is run
besides; there the upstream alone is the judge, and what is left in the store.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from tests.faults.support.fleet import LEASE_S, LOG, POOL, SLOTS, Fleet, fleet_at
from tests.faults.support.ground import ON, own_ground, smoke_elsewhere
from tests.faults.support.nursery import Nursery
from tests.faults.support.report import Figures, sized
from tests.faults.support.valkey import OwnValkey

pytestmark = pytest.mark.slow

PROCESSES = 3
KILLS = sized(5, 300)
FREEZES = sized(1, 40)
CYCLES = sized(200, 10_000)
ORPHAN_S = 1.0
"""After its lease the slot of a dead process is another's by then (G4)."""
PLAIN = {
    "plan": {"pool": POOL, "buckets": [{"key": "bucket", "capacity": 300, "per_s": 1000}]},
    "events": 0,
    "callers": 3,
    "pause_s": [0.0, 0.05],
}
"""A rate that is never felt, and about as many callers as slots: mostly there is no line, and no turn."""
PLAIN_KILLS = sized(3, 100)
PLAIN_FREEZES = sized(1, 15)
PLAIN_CYCLES = sized(100, 3_000)
ORDER = {
    "work_s": [0.002, 0.03],
    "cancel": 0.4,
    "cancel_within_s": 0.06,
    "stall": 0.01,
    "stall_s": [0.02, 0.2],
}


async def _storm(fleet: Fleet, kills: int, freezes: int) -> None:
    """Processes die and are born again; some freeze for longer than a lease."""
    draw = fleet.figures.draw
    deeds = ["kill"] * kills + ["freeze"] * freezes
    draw.shuffle(deeds)
    frozen = []
    for deed in deeds:
        await asyncio.sleep(draw.uniform(0.05, 0.25))
        if len(frozen) == len(fleet.children):
            await asyncio.wait([task for _, task in frozen], return_when=asyncio.FIRST_COMPLETED)
            frozen = [(child, task) for child, task in frozen if not task.done()]
        awake = [child for child in fleet.children if child not in [child for child, _ in frozen]]
        child = draw.choice(awake)
        if deed == "kill":
            rank = fleet.ranks[child.pid]
            await fleet.kill(child, counted=True)
            await fleet.born(rank)
        else:
            for_s = draw.uniform(0.2, 2.0) * LEASE_S
            frozen.append((child, asyncio.create_task(fleet.freeze(child, for_s))))
        frozen = [(child, task) for child, task in frozen if not task.done()]
    await asyncio.gather(*(task for _, task in frozen))


async def _cycles(fleet: Fleet, kills: int, freezes: int, cycles: int) -> None:
    figures = fleet.figures
    await fleet.all_born(PROCESSES)
    await _storm(fleet, kills, freezes)
    done = await fleet.cycles()
    while done < cycles:
        await asyncio.sleep(0.1)
        done = await fleet.cycles()
    await fleet.rest()
    await fleet.note_free()
    counts = fleet.note_callers()
    figures.note(kills=kills, freezes=freezes, cancels=counts["cancelled"], stalls=counts["stalls"])
    fleet.note_upstream()
    figures.note(n=kills + freezes + counts["cancelled"] + counts["stalls"])


async def _note_left(fleet: Fleet, valkey: OwnValkey) -> None:
    """Within a lease nothing is left in the store."""
    leases_left = -1
    with suppress(TimeoutError):
        async with asyncio.timeout(LEASE_S):
            while leases_left := await valkey.tell("ZCARD", f"{LOG}:l"):
                await asyncio.sleep(0.02)
    fleet.figures.zero(leases_left=leases_left)


async def test_E27_slot_leak(nursery: Nursery, tmp_path: Path) -> None:
    figures = Figures("E27")
    with own_ground(figures) as valkey:
        async with fleet_at(nursery, valkey.url, tmp_path, figures, **ORDER) as fleet:
            await _cycles(fleet, KILLS, FREEZES, CYCLES)
            verdict = await fleet.note_log()
            figures.holds(verdict.most <= SLOTS, f"{verdict.most} slots at once")
            orphan_s = verdict.longest_orphan_s
            is_soon = orphan_s <= ORPHAN_S or figures.size != "full"  # in a small run a slow machine decides
            figures.holds(is_soon, f"a slot of the dead was taken back {orphan_s:.2f} s after its lease")
    figures.conclude()


async def _common_path(nursery: Nursery, folder: Path, figures: Figures, *sizes: int, on: str) -> None:
    with own_ground(figures, on=on) as valkey:
        async with fleet_at(nursery, valkey.url, folder, figures, **(ORDER | PLAIN)) as fleet:
            await _cycles(fleet, *sizes)
            await _note_left(fleet, valkey)
    figures.conclude()


async def test_E27_common_path(nursery: Nursery, tmp_path: Path) -> None:
    figures = Figures("E27_common_path")
    await _common_path(nursery, tmp_path, figures, PLAIN_KILLS, PLAIN_FREEZES, PLAIN_CYCLES, on=ON)


@smoke_elsewhere
async def test_E27_elsewhere(nursery: Nursery, tmp_path: Path, on: str) -> None:
    figures = Figures("E27_common_path", size="smoke")
    await _common_path(nursery, tmp_path, figures, 2, 0, 30, on=on)


async def test_E27_ablation_the_common_path_counts_nobody(nursery: Nursery, tmp_path: Path) -> None:
    figures = Figures("E27_common_path", ablation="fast_path_uncounted", sees="over_limit_at_upstream")
    with own_ground(figures) as valkey:
        async with fleet_at(
            nursery, valkey.url, tmp_path, figures, unsafe=["fast_path_uncounted"], **PLAIN
        ) as fleet:
            await fleet.all_born(PROCESSES)
            await fleet.served(50 * SLOTS)
            fleet.note_upstream()
    figures.conclude()


@pytest.mark.parametrize("unsafe", ["no_reaping", "no_renewals"])
async def test_E27_ablation(nursery: Nursery, tmp_path: Path, unsafe: str) -> None:
    """A lease that nothing ends is lost with its holder; one that nobody renews ends under its call."""
    sees = {"no_reaping": "slots free at rest", "no_renewals": "over_limit_at_upstream"}[unsafe]
    figures = Figures("E27", ablation=unsafe, sees=sees)
    work = {"work_s": [0.8, 1.3]} if unsafe == "no_renewals" else {}
    with own_ground(figures) as valkey:
        async with fleet_at(nursery, valkey.url, tmp_path, figures, unsafe=[unsafe], **work) as fleet:
            await fleet.all_born(2)
            if unsafe == "no_reaping":
                await fleet.served(50)
                for child in list(fleet.children):
                    await fleet.kill(child)
                await fleet.note_free(within_s=5 * LEASE_S)
                await fleet.note_log()
            else:
                await fleet.served(3 * SLOTS)
                fleet.note_upstream()
    figures.conclude()
