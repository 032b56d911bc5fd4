"""E44: a refresher is frozen at some moment of its refresh, for three times as long as others wait for it.

Another process asks meanwhile. Before the SENT mark it takes over; after the mark it never sends but as the
replay policy lets it, and what the frozen one saves when it wakes is a compare-and-set. The deadline of the
request passes in the freeze, too. Who is frozen between mark and write sends on waking, behind the replay.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from fairlead.testing.ledger import posts_of
from tests.faults.support.child import Asked, Child
from tests.faults.support.report import Figures, quantiles, sized
from tests.faults.support.stage import FAMILY, Stage
from tests.support.standstill import ran_s

pytestmark = pytest.mark.slow

PAIRS, FREEZES = sized(8, 16), sized(24, 2000)
MARGIN_S, DEADLINE_S = 0.5, 1.2
FREEZE_S = 3 * MARGIN_S
NUMBERS = {
    "lease_s": MARGIN_S,
    "request_deadline_s": DEADLINE_S,
    "total_deadline_s": 5.0,
    "wait_s": 10.0,
}
POINTS = (*("after_intent", "after_sent", "before_write", "after_answer", "after_journal"), *5 * ("any",))
RANDOM_S = 0.03
LOOK_AGAIN_S = 0.05


@dataclass
class _Pair:
    """Two processes over one connection; *generation* is the one that they hold."""

    frozen: Child
    peer: Child
    policy: str
    name: str
    connection: str = ""
    generation: int = 1


async def _ask(child: Child, pair: _Pair) -> dict[str, Any] | str:
    """A replay that is allowed is waited for."""
    until_s = time.monotonic() + 2 * DEADLINE_S
    while True:
        try:
            return await child.ask("refresh", connection=pair.connection, newer_than=pair.generation)
        except Asked as refused:
            waits = refused.error == "OutcomeUnknownError" and pair.policy == "grace"
            if not waits or time.monotonic() > until_s:
                return refused.error
        await asyncio.sleep(LOOK_AGAIN_S)


async def _freeze_at(pair: _Pair, figures: Figures, point: str) -> asyncio.Task[dict[str, Any] | str]:
    """Ask, and stop the process on its way: at a fault point, or at any moment."""
    if point != "any":
        await pair.frozen.ask("arm", plan=f"token.{point}:1:stop")
    task = asyncio.create_task(_ask(pair.frozen, pair))
    if point == "any":
        await asyncio.sleep(figures.draw.uniform(0, RANDOM_S))
        await pair.frozen.freeze()
    elif not await pair.frozen.frozen(unless=task):
        figures.holds(False, f"it never came to {point}: {await task}")
    return task


async def _freeze(
    stage: Stage, pair: _Pair, figures: Figures, point: str, counts: Counter[str]
) -> float | None:
    """One freeze; the seconds until the peer knew, where it had to find out."""
    task = await _freeze_at(pair, figures, point)
    began_s = time.monotonic()
    phase = await stage.rows(
        "SELECT phase FROM refresh_attempt WHERE connection_id = $1::text::uuid", pair.connection
    )
    peer = asyncio.create_task(_ask(pair.peer, pair))
    await asyncio.wait([peer], timeout=FREEZE_S)
    known_s = ran_s(began_s) if peer.done() else None
    await asyncio.sleep(max(0.0, began_s + FREEZE_S - time.monotonic()))
    pair.frozen.thaw()
    answers = await task, await peer
    await pair.frozen.ask("arm", plan="")
    counts[phase[0]["phase"] if phase else "none"] += 1
    await _look(stage, pair, figures, point, answers)
    return known_s if phase else None


async def _look(stage: Stage, pair: _Pair, figures: Figures, point: str, answers: tuple[Any, Any]) -> None:
    """Whoever was first, a newer generation stands, and its token is the one that lives at the issuer."""
    (row,) = await stage.rows(
        "SELECT state, generation FROM credential WHERE connection_id = $1::text::uuid", pair.connection
    )
    sound = row["state"] == "active" and row["generation"] > pair.generation
    if sound:
        stored = await _ask(pair.peer, pair)
        sound = not isinstance(stored, str) and stored["token"] == stage.live_token(pair.policy, pair.name)
    at = f"{pair.policy} frozen at {point}: {row['state']} {row['generation']} after {pair.generation}"
    figures.holds(sound, f"{at}, answers {answers}" + ("" if sound else f"; {await _course(stage, pair)}"))
    if not sound:  # go on with a new grant
        await stage.connect(pair.peer, pair.policy, [pair.name])
    pair.generation = await stage.generation(pair.connection)


async def _course(stage: Stage, pair: _Pair) -> str:
    """What led to it: the last requests for this grant at the issuer, and what the database says of it."""
    posts = [post for post in posts_of(stage.issuer.ledger()) if post.connection == pair.name][-4:]
    about = "WHERE connection_id = $1::text::uuid"
    rows = await stage.rows(
        f"SELECT act, details, at::text FROM audit {about} ORDER BY at DESC LIMIT 4", pair.connection
    )
    rotation = await stage.rows(f"SELECT phase, replays, epoch FROM refresh_attempt {about}", pair.connection)
    return f"posts {posts}, audit {rows}, rotation {rotation}"


async def _pairs(stage: Stage, unsafe: tuple[str, ...]) -> list[_Pair]:
    """Two of three where one replay ends everything, one where a replay ends the first answer."""
    processes = await stage.all_born(2 * PAIRS, unsafe=unsafe, numbers=NUMBERS)
    pairs = [
        _Pair(frozen, peer, "grace" if number % 3 == 2 else FAMILY, f"pair-{number}")
        for number, (frozen, peer) in enumerate(zip(processes[::2], processes[1::2], strict=True))
    ]
    for pair in pairs:
        (pair.connection,) = await stage.connect(pair.peer, pair.policy, [pair.name])
    return pairs


async def _freeze_all(
    stage: Stage,
    figures: Figures,
    freezes: int,
    points: tuple[str, ...] = POINTS,
    unsafe: tuple[str, ...] = (),
) -> None:
    counts: Counter[str] = Counter()
    known_s: list[float] = []

    async def lane(pair: _Pair) -> None:
        for _ in range(freezes // PAIRS):
            waited_s = await _freeze(stage, pair, figures, figures.draw.choice(points), counts)
            known_s.extend([] if waited_s is None else [waited_s])

    await asyncio.gather(*map(lane, await _pairs(stage, unsafe)))
    verdict, strict = stage.verdict(), stage.verdict(FAMILY)
    under_way = freezes - counts["none"]  # of the others nobody could have sent or saved too late
    figures.note(n=under_way, freezes=freezes, frozen_in=dict(counts), margin_s=MARGIN_S, freeze_s=FREEZE_S)
    figures.note(takeover_s=quantiles(known_s))
    figures.zero(
        second_sends=strict.provider_posts - strict.generations,
        burnt=verdict.burnt,
        violations=len(verdict.violations),
    )


async def test_E44_frozen_refresher(stage: Stage) -> None:
    figures = Figures("E44")
    await _freeze_all(stage, figures, FREEZES)
    figures.conclude()


WITHOUT = ("time_takeover", "unread_journal")


async def test_E44_ablation_takeover_by_time(stage: Stage) -> None:
    figures = Figures("E44", ablation="time_takeover", sees="burnt")
    await _freeze_all(stage, figures, PAIRS, ("after_answer", "after_journal"), WITHOUT)
    figures.broken = [claim for claim in figures.broken if claim.startswith(("burnt", "second_sends"))]
    figures.conclude()


async def test_E44_ablation_late_untold(stage: Stage) -> None:
    figures = Figures("E44", ablation="late_untold", sees="frozen at before_write")
    await _freeze_all(stage, figures, 2 * PAIRS, ("before_write",), ("late_untold",))
    figures.conclude()
