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

from tests.faults.support.drained import TIMES, drained
from tests.faults.support.fleet import (
    BOTH,
    BUCKETS_BOUND_S,
    LOG,
    OVERLAP_S,
    RATE,
    SLOTS,
    Fleet,
    fleet_at,
    long_calls,
)
from tests.faults.support.ground import own_ground
from tests.faults.support.nursery import Nursery
from tests.faults.support.report import Figures, quantiles, sized, with_retries
from tests.faults.support.valkey import OwnValkey

pytestmark = pytest.mark.slow

PROCESSES = 3
FULL_S = sized(1.0, 10.0)
ROUNDS = sized(1, 5)
PEAK_CALLS = 30
FULL = "512kb"  # less than an empty server needs
SPENT_S = 4.0
LATER_S = 0.6  # less than who is back first waits for the others


async def _unfit(fleet: Fleet, valkey: OwnValkey, how: str) -> tuple[float, float]:
    """For a while the server may not be used; all know why, calls go on, and nobody flaps.

    Seconds until all were let in by it again, and until the rate was full.
    """
    figures, call_count, since_s = fleet.figures, len(fleet.upstream.calls), time.monotonic()
    if how == "full":
        await valkey.tell("CONFIG", "SET", "maxmemory", FULL)
    else:
        await valkey.tell("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        await valkey.tell("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    await fleet.all_away(since_s)
    late = await fleet.born(callers=0)  # who begins now is told the cause, not its first sign
    await asyncio.sleep(FULL_S)
    degraded_lines = [line for line in fleet.lines() if line["told"] == "degraded" and line["s"] > since_s]
    await fleet.kill(late)
    degraded_calls = [call for call in fleet.upstream.calls[call_count:] if call.local]
    sign = "no memory left" if how == "full" else "maxmemory-policy is allkeys-lru"
    figures.holds(any(sign in line["why"] for line in degraded_lines), f"{how}: nobody says {sign!r}")
    figures.zero(**{f"flapped_{how}": len(degraded_lines) - PROCESSES - 1})
    figures.holds(
        len(degraded_calls) > PROCESSES, f"{how}: {len(degraded_calls)} calls were let in by the shares"
    )
    for setting, value in ("maxmemory-policy", "noeviction"), ("maxmemory", 0):
        await valkey.tell("CONFIG", "SET", setting, value)
    back_s = time.monotonic()
    figures.note(**{f"alone_{how}": len(degraded_calls)})
    return await fleet.back(back_s, since_s), await fleet.full_rate(RATE, back_s)


async def test_E25_memory_limit(nursery: Nursery, tmp_path: Path) -> None:
    figures = Figures("E25")
    with own_ground(figures) as valkey:
        async with fleet_at(nursery, valkey.url, tmp_path, figures, plan=BOTH) as fleet:
            await fleet.all_born(PROCESSES)
            await fleet.warm_up()
            resumed_s, full_s = [], []
            for how in ("full", "evicting") * ROUNDS:
                await fleet.served(len(fleet.upstream.calls) + PEAK_CALLS)
                resumed, full = await _unfit(fleet, valkey, how)
                resumed_s.append(resumed)
                full_s.append(full)
            await fleet.served(len(fleet.upstream.calls) + PEAK_CALLS)
            await fleet.rest()
            figures.note(outages=2 * ROUNDS)
            figures.note(resume_s=quantiles(resumed_s), buckets_full_s=quantiles(full_s))
            figures.holds(max(resumed_s) <= BUCKETS_BOUND_S, f"resumed after {max(resumed_s):.2f} s")
            figures.holds(max(full_s) <= BUCKETS_BOUND_S, f"the rate was full after {max(full_s):.2f} s")
            fleet.note_callers()
            fleet.note_upstream()
            fleet.note_rate(RATE, overlap_s=OVERLAP_S)
            await fleet.note_free()
            await fleet.note_log()
    figures.conclude()


async def _full_for_a_while(
    nursery: Nursery,
    folder: Path,
    figures: Figures,
    *unsafe: str,
    times: int = TIMES,
    one_by_one: bool = False,
) -> None:
    """Its bucket fills up while the processes spend their shares. *one_by_one*: one is back first."""

    async def full(fleet: Fleet) -> tuple[float, float]:
        since_s = time.monotonic()
        await valkey.tell("CONFIG", "SET", "maxmemory", FULL)
        await fleet.all_away(since_s)
        await asyncio.sleep(SPENT_S)
        late = fleet.children[1:] if one_by_one else []
        frozen = [asyncio.create_task(fleet.freeze(child, LATER_S)) for child in late]
        await valkey.tell("CONFIG", "SET", "maxmemory", 0)
        back_s = time.monotonic()
        await asyncio.gather(*frozen)
        return since_s, back_s

    with own_ground(figures) as valkey:
        await drained(nursery, valkey.url, folder, figures, full, *unsafe, times=times)


async def test_E25_rate_spent_without_memory_is_owed(nursery: Nursery, tmp_path: Path) -> None:
    figures = Figures("E25")
    await _full_for_a_while(nursery, tmp_path, figures)
    figures.conclude()


async def test_E25_ablation_nothing_is_owed(nursery: Nursery, tmp_path: Path) -> None:
    figures = Figures("E25", ablation="no_debts", sees="rate over")
    await with_retries(
        figures, lambda folder: _full_for_a_while(nursery, folder, figures, "no_debts", times=1), tmp_path
    )
    figures.conclude()


async def test_E25_process_that_returns_first_stays_within_the_limit(
    nursery: Nursery, tmp_path: Path
) -> None:
    """What the others have spent is not its to spend."""
    figures = Figures("E25")
    await _full_for_a_while(nursery, tmp_path, figures, one_by_one=True)
    figures.conclude()


async def test_E25_ablation_who_is_back_first_takes_all(nursery: Nursery, tmp_path: Path) -> None:
    figures = Figures("E25", ablation="no_share_on_return", sees="rate over")
    await with_retries(
        figures,
        lambda folder: _full_for_a_while(
            nursery, folder, figures, "no_share_on_return", times=1, one_by_one=True
        ),
        tmp_path,
    )
    figures.conclude()


async def test_E25_ablation_any_policy(nursery: Nursery, tmp_path: Path) -> None:
    """A server that drops any key when it is full drops leases, too; here by hand."""
    figures = Figures("E25", ablation="any_policy", sees="over_limit_at_upstream")
    order = long_calls("any_policy")
    with own_ground(figures, {"maxmemory-policy": "allkeys-random"}) as valkey:
        async with fleet_at(nursery, valkey.url, tmp_path, figures, **order) as fleet:
            await fleet.all_born(PROCESSES)
            await fleet.served(SLOTS)
            await valkey.tell("DEL", f"{LOG}:l")
            await fleet.served(2 * SLOTS)
            fleet.note_upstream()
    figures.conclude()
