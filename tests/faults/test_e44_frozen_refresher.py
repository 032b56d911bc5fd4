"""E44: a refresher is frozen at some moment of its refresh, for three times as long as others wait for it.

Another process asks meanwhile. Before the SENT mark it takes over; after the mark it never sends, and what the
frozen one saves when it wakes is a compare-and-set. The deadline of the request passes in the freeze, too.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from tests.faults.support.child import Asked, Child
from tests.faults.support.report import Figures, quantiles, sized
from tests.faults.support.stage import FAMILY, Stage

pytestmark = pytest.mark.slow

PAIRS, FREEZES = sized(6, 16), sized(24, 2000)
MARGIN_S, DEADLINE_S = 0.5, 1.2
FREEZE_S = 3 * MARGIN_S
NUMBERS = {
    "lease_s": MARGIN_S,
    "request_deadline_s": DEADLINE_S,
    "total_deadline_s": 5.0,
    "wait_s": 10.0,
}
POINTS = ("after_intent", "after_sent", "after_answer", "after_journal")
RANDOM_S = 0.03


@dataclass
class _Pair:
    """Two processes over one connection; *generation* is the one that they hold."""

    frozen: Child
    peer: Child
    connection: str
    generation: int = 1


async def _ask(child: Child, pair: _Pair) -> dict[str, Any] | str:
    try:
        return await child.ask("refresh", connection=pair.connection, newer_than=pair.generation)
    except Asked as refused:
        return refused.error


async def _freeze_somewhere(pair: _Pair, figures: Figures) -> tuple[str, asyncio.Task[dict[str, Any] | str]]:
    """Ask, and stop the process on its way: at a fault point, or at any moment."""
    point = figures.draw.choice((*POINTS, "any", "any", "any", "any"))
    if point != "any":
        await pair.frozen.ask("arm", plan=f"token.{point}:1:stop")
    asked = asyncio.create_task(_ask(pair.frozen, pair))
    if point == "any":
        await asyncio.sleep(figures.draw.uniform(0, RANDOM_S))
        await pair.frozen.freeze()
    elif not await pair.frozen.frozen(unless=asked):
        figures.holds(False, f"it never came to {point}: {await asked}")
    return point, asked


async def _freeze(stage: Stage, pair: _Pair, figures: Figures, seen: Counter[str]) -> float | None:
    """One freeze; the seconds until the peer knew, where it had to find out."""
    point, asked = await _freeze_somewhere(pair, figures)
    began_s = time.monotonic()
    phase = await stage.rows(
        "SELECT phase FROM rotation WHERE connection_id = $1::text::uuid", pair.connection
    )
    peer = asyncio.create_task(_ask(pair.peer, pair))
    await asyncio.wait([peer], timeout=FREEZE_S)
    known_s = time.monotonic() - began_s if peer.done() else None
    await asyncio.sleep(max(0.0, began_s + FREEZE_S - time.monotonic()))
    pair.frozen.thaw()
    answers = await asked, await peer
    await pair.frozen.ask("arm", plan="")
    seen[phase[0]["phase"] if phase else "none"] += 1
    await _look(stage, pair, figures, point, answers)
    return known_s if phase else None


async def _look(stage: Stage, pair: _Pair, figures: Figures, point: str, answers: tuple[Any, Any]) -> None:
    """Whoever was first, the next generation stands, and it is the issuer's."""
    (row,) = await stage.rows(
        "SELECT tenant_id, state, generation FROM credential WHERE connection_id = $1::text::uuid", pair.connection
    )
    at = (row["state"], row["generation"])
    sound = at == ("active", pair.generation + 1)
    figures.holds(sound, f"frozen at {point}: {at} after {pair.generation}, answers {answers}")
    if not sound and not stage.verdict().burnt:  # go on with a new grant
        await stage.connect(pair.peer, FAMILY, [row["tenant_id"]])
    pair.generation = await stage.generation(pair.connection)


async def _freeze_all(stage: Stage, figures: Figures, freezes: int, unsafe: tuple[str, ...] = ()) -> None:
    processes = await stage.all_born(2 * PAIRS, unsafe=unsafe, refresh=NUMBERS)
    names = [f"pair-{number}" for number in range(PAIRS)]
    connections = await stage.connect(processes[0], FAMILY, names)
    seen: Counter[str] = Counter()
    known_s: list[float] = []

    async def lane(pair: _Pair) -> None:
        for _ in range(freezes // PAIRS):
            waited_s = await _freeze(stage, pair, figures, seen)
            known_s.extend([] if waited_s is None else [waited_s])

    pairs = zip(processes[::2], processes[1::2], connections, strict=True)
    await asyncio.gather(*(lane(_Pair(frozen, peer, name)) for frozen, peer, name in pairs))
    verdict = stage.verdict()
    figures.note(n=freezes, frozen_in=dict(seen), margin_s=MARGIN_S, freeze_s=FREEZE_S)
    figures.note(takeover_s=quantiles(known_s))
    figures.zero(
        second_sends=verdict.provider_posts - verdict.generations,
        burnt=verdict.burnt,
        violations=len(verdict.violations),
    )


async def test_E44_frozen_refresher(stage: Stage) -> None:
    figures = Figures("E44")
    await _freeze_all(stage, figures, FREEZES)
    figures.conclude()


async def test_E44_ablation_takeover_by_time(stage: Stage) -> None:
    figures = Figures("E44", ablation="time_takeover")
    await _freeze_all(stage, figures, PAIRS, ("time_takeover",))
    figures.broken = [what for what in figures.broken if what.startswith(("burnt", "second_sends"))]
    figures.conclude()
