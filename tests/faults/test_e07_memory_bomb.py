"""E07: a job takes 1 GiB in a process that may have 256 MiB, and its process is killed for it (P5, R3).

It kills three processes and is a dead letter then. All that was in flight with it is suspect and runs again,
each alone in its process: no job is lost and no attempt, and nothing but the bomb is near a second crash. How
long the neighbours wait for that is measured, and how long jobs wait that come meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.faults.support.load import Load, run_began
from tests.faults.support.membox import Boxes, boxes
from tests.faults.support.report import Figures, quantiles, sized
from tests.faults.support.sink import Run, Runs
from tests.faults.support.stage import Stage, until

pytestmark = pytest.mark.slow

LIMIT_BYTES, BOMB_BYTES = 256 << 20, 1 << 30
PROCESSES = 2
IN_FLIGHT = sized((32,), (32, 100))
ROUNDS = sized(1, 5)
WORK_S = sized((0.02, 0.1), (0.05, 0.5))
LEASE_S = 5.0
WITHIN_S = sized(60.0, 300.0)
MAX_CRASHES = 3

JOBS = (
    "SELECT job_id::text AS id, (args->>'n')::int AS n, kind, state, attempt,"
    " extract(epoch FROM finished_at - created_at)::float8 AS dwell_s,"
    " (SELECT count(*)::int FROM jsonb_array_elements(failures) AS f WHERE f->>'code' = 'crashed') AS crashes"
    " FROM job WHERE kind LIKE 'fault.%'"
)
OPEN = "SELECT count(*) AS jobs FROM job WHERE kind LIKE 'fault.%' AND state IN ('available', 'running')"
DEAD = "SELECT kind, code FROM dead_letter"


@dataclass
class _House:
    """Processes in boxes; who dies has a successor at once, as under any supervisor."""

    stage: Stage
    boxes: Boxes
    sink: Path
    in_flight: int
    unsafe: tuple[str, ...] = ()
    died_s: list[float] = field(default_factory=list)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """As many as there should be, for as long as the block lasts."""
        async with asyncio.TaskGroup() as group:
            for _ in range(PROCESSES):
                group.create_task(self._keep())
            try:
                yield
            finally:
                self.over.set()

    async def _keep(self) -> None:
        worker = {"concurrency": self.in_flight, "lease_s": LEASE_S, "poll_s": 0.05}
        order: dict[str, Any] = {"child": "bomb", "sink": str(self.sink), "unsafe": self.unsafe}
        while not self.over.is_set():
            child = await self.stage.born(worker=worker, **order, **self.boxes.order())
            self.boxes.watch(child.pid)
            while child.alive and not self.over.is_set():
                await asyncio.sleep(0.002)
            if not child.alive:
                self.died_s.append(time.monotonic())
            await child.kill()

    async def deaths(self, count: int) -> None:
        """Return once so many have died."""

        async def died() -> bool:
            return len(self.died_s) >= count

        await until(died, f"{count} processes are dead", WITHIN_S)


@dataclass
class _Blast:
    """One bomb in a full house. *since_s*: when the first process died of it."""

    bomb: int
    neighbours: list[int]
    since_s: float


async def _blast(house: _House, load: Load, folder: Path) -> _Blast:
    """Fill the house, with the bomb at some place in the line; let it go off, and the others go on."""
    boom, go = folder / f"boom-{len(house.died_s)}", folder / f"go-{len(house.died_s)}"
    slots = house.in_flight * PROCESSES
    bomb_at, deaths = load.figures.draw.randrange(slots), len(house.died_s)
    neighbours = [*await load.ask(bomb_at, kind="fault.neighbour", when=str(go))] if bomb_at else []
    (bomb,) = await load.ask(1, kind="fault.bomb", when=str(boom), bytes=BOMB_BYTES)
    if bomb_at < slots - 1:
        neighbours += await load.ask(slots - 1 - bomb_at, kind="fault.neighbour", when=str(go))
    await run_began(house.sink, [bomb, *neighbours])
    boom.touch()
    await house.deaths(deaths + 1)
    go.touch()
    return _Blast(bomb, neighbours, house.died_s[deaths])


async def _experiment(
    stage: Stage, figures: Figures, folder: Path, in_flight: int, rounds: int, *unsafe: str
) -> tuple[_House, list[_Blast]]:
    sink = folder / "sink.ndjson"
    desk = await stage.born(child="bomb", unsafe=unsafe)  # it looks for the dead, too
    load = Load(desk, figures, work_s=WORK_S, batch=1, every_s=0.05)
    with boxes(LIMIT_BYTES) as boxes_made:
        house = _House(stage, boxes_made, sink, in_flight, unsafe)
        blasts = []
        async with house.kept():
            for _ in range(rounds):
                blast = await _blast(house, load, folder)
                blasts.append(blast)
                async with load.coming():
                    await _over(house, blast)
            if not unsafe:
                await load.all_ended(stage, WITHIN_S)
        figures.note(killed_by=boxes_made.how, limit_mib=LIMIT_BYTES >> 20, bomb_mib=BOMB_BYTES >> 20)
    return house, blasts


async def _over(house: _House, blast: _Blast) -> None:
    """Until the bomb and its neighbours have ended, or it has killed more than it may."""

    async def over() -> bool:
        sql = f"{OPEN} AND args->>'n' = ANY($1)"
        numbers = [str(n) for n in (blast.bomb, *blast.neighbours)]
        if not (await house.stage.rows(sql, numbers))[0]["jobs"]:
            return True
        return sum(run.n == blast.bomb for run in Runs(house.sink)) > MAX_CRASHES

    await until(over, "bomb and neighbours have ended", WITHIN_S)


async def _judge(house: _House, blasts: list[_Blast], figures: Figures) -> None:
    rows = {row["n"]: row for row in await house.stage.rows(JOBS)}
    runs = list(Runs(house.sink))
    dead = Counter((row["kind"], row["code"]) for row in await house.stage.rows(DEAD))
    bombs = {blast.bomb for blast in blasts}
    others = [row for n, row in rows.items() if n not in bombs]
    kills = Counter(run.n for run in runs if run.n in bombs)
    figures.note(n=len(blasts), in_flight=house.in_flight, processes=PROCESSES, neighbours=len(others))
    figures.note(crashes_of_a_bomb=max(kills.values()), deaths=len(house.died_s), dead_letters=len(dead))
    figures.holds(max(kills.values()) <= MAX_CRASHES, f"a bomb killed {max(kills.values())} processes")
    figures.holds(dead == {("fault.bomb", "poison"): len(blasts)}, f"dead letters: {dict(dead)}")
    effects = {run.n for run in runs if run.ended_s is not None}
    figures.zero(
        neighbours_lost=sum(row["state"] != "completed" or row["n"] not in effects for row in others),
        attempts_lost=sum(row["attempt"] != 1 for row in others),
        crashed_twice=sum(row["crashes"] > 1 for row in others),
    )
    _note_waits(house, blasts, rows, runs, figures)


def _note_waits(
    house: _House, blasts: list[_Blast], rows: dict[int, Any], runs: list[Run], figures: Figures
) -> None:
    """How long suspects and newcomers waited."""
    ended = {run.n: run.ended_s for run in runs if run.ended_s is not None}
    suspects = {blast.bomb: [n for n in blast.neighbours if rows[n]["crashes"]] for blast in blasts}
    waits_s = [ended[n] - blast.since_s for blast in blasts for n in suspects[blast.bomb] if n in ended]
    all_s = [
        max((ended[n] - blast.since_s for n in suspects[blast.bomb] if n in ended), default=0.0)
        for blast in blasts
    ]
    numbers = {n for blast in blasts for n in (blast.bomb, *blast.neighbours)}
    newcomers_s = [
        row["dwell_s"] for n, row in rows.items() if n not in numbers and row["dwell_s"] is not None
    ]
    figures.note(
        suspects=sum(map(len, suspects.values())),
        mean_work_s=round(sum(WORK_S) / 2, 3),
        suspect_done_s=quantiles(waits_s),
        all_suspects_done_s=quantiles(all_s),
        newcomer_dwell_s=quantiles(newcomers_s),
    )


@pytest.mark.parametrize("in_flight", IN_FLIGHT)
async def test_E07_memory_bomb(stage: Stage, tmp_path: Path, in_flight: int) -> None:
    figures = Figures("E07")
    house, blasts = await _experiment(stage, figures, tmp_path, in_flight, ROUNDS)
    await _judge(house, blasts, figures)
    figures.conclude()


async def test_E07_ablation_no_crash_count(stage: Stage, tmp_path: Path) -> None:
    figures = Figures("E07", ablation="no_crash_count", sees="a bomb killed")
    house, blasts = await _experiment(stage, figures, tmp_path, 8, 1, "no_crash_count")
    await _judge(house, blasts, figures)
    figures.broken = [claim for claim in figures.broken if claim.startswith("a bomb killed")]
    figures.conclude()
