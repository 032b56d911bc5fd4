"""E03: a worker is frozen for three leases in mid-job, its job runs again elsewhere, and then it wakes (P2).

What it writes then is refused: a result, a retry, a dead letter or a cancellation, whether it wakes in the
middle of its handler or just before its write, and whether or not its handler heeds that it was cancelled. In
one round the second run is held open until the late writes have been tried, in the next one it has had its
result before they are: there is no race to be lucky in.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.faults.support.child import Child
from tests.faults.support.report import Figures, sized
from tests.faults.support.sink import Run, Runs
from tests.faults.support.stage import Stage, until

pytestmark = pytest.mark.slow

ROUNDS = sized(2, 20)
LEASE_S = sized(1.5, 2.0)  # six processes at once have to keep it
WORK_S = LEASE_S  # long enough to be frozen in, and over when three leases have passed
_LATE = [(mode, "fault.late", {"late": mode}) for mode in ("result", "retry", "dead_letter", "cancel")]
MODES: Sequence[tuple[str, str, Mapping[str, Any]]] = (
    ("result", "fault.work", {"work_s": WORK_S}),
    *sized((), [("result", "fault.deaf", {"work_s": WORK_S})]),
    *sized(_LATE[1:], _LATE),
)
"""What is written late, by which kind of job. Those of `fault.late` freeze by themselves, first."""
UNSAFE = {"result": "no_lease_check"} | {
    mode: f"no_lease_check_of_a_{mode}" for mode in ("retry", "dead_letter", "cancel")
}
"""The safeguard against what is written late."""
ROWS = (
    "SELECT job_id::text AS id, state, settled_lease_id::text AS settled, result->>'lease' AS result,"
    " EXISTS (SELECT FROM dead_letter WHERE dead_letter.job_id = job.job_id AND code <> 'poison') AS dead"
    " FROM job"
)
OPEN = "SELECT FROM job WHERE state IN ('available', 'running')"


@dataclass
class _Zombies:
    """Jobs of each of *modes*, round after round, and what became of them: *stale* has the wrong ones."""

    stage: Stage
    folder: Path
    modes: Sequence[tuple[str, str, Mapping[str, Any]]]
    unsafe: Sequence[str]
    refused: Counter[str] = field(default_factory=Counter)
    stale: dict[str, str] = field(default_factory=dict)  # what was written late, by job
    leases: set[str] = field(default_factory=set)  # that are superseded
    jobs: int = 0

    @property
    def sink(self) -> Path:
        return self.folder / "sink.ndjson"

    async def round(self, over: bool) -> None:
        """Freeze, have the jobs run again, wake while they run or, if *over*, when they have results."""
        worker = {"lease_s": LEASE_S, "concurrency": 1}
        gate = self.folder / "gate"
        order = {"sink": str(self.sink), "worker": worker, "unsafe": self.unsafe}
        zombies = await self._frozen(await self.stage.all_born(len(self.modes), **order))
        frozen_s, run_count = time.monotonic(), len(Runs(self.sink))
        heirs = await self.stage.all_born(len(zombies), gate=str(gate), **order)
        await self._begun(run_count + len(zombies))
        await asyncio.sleep(max(0.0, frozen_s + 3 * LEASE_S - time.monotonic()))
        if over:
            await self._end(heirs, gate)
        for zombie, (mode, _, _) in zombies:
            zombie.thaw()
            self.refused[mode] += (await zombie.ask("idle"))["stale"]
        await self._judge()
        await self._end(heirs, gate)
        await self._judge()
        for child in (*heirs, *(zombie for zombie, _ in zombies)):
            await child.stop()
        gate.unlink()

    async def _frozen(self, children: Sequence[Child]) -> list[tuple[Child, tuple[str, str, Any]]]:
        """Each with the mode of the job that it took and froze at, in the middle or at its end.

        They are stored one after the other, by one more process: a worker whose job has ended looks for the
        next one at once, and could have claimed it when it freezes.
        """
        by_pid, zombies = {child.pid: child for child in children}, []
        desk, run_count = await self.stage.born(), len(Runs(self.sink))
        for mode in self.modes:
            n, (_, kind, args) = self.jobs, mode
            self.jobs += 1
            await desk.ask("enqueue", jobs=[{"kind": kind, "tenant_id": "acme", "args": {"n": n, **args}}])
            run = (await self._begun(run_count + len(zombies) + 1))[-1]
            self.leases.add(run.lease)
            zombie = by_pid.pop(run.pid)  # who has one is frozen
            await (zombie.frozen() if "late" in args else zombie.freeze())
            zombies.append((zombie, mode))
        await desk.stop()
        return zombies

    async def _begun(self, count: int) -> list[Run]:
        """All runs, once so many have begun."""
        runs = Runs(self.sink)

        async def has_started() -> bool:
            return len(runs.look()) >= count

        await until(has_started, f"{count} runs have begun")
        return list(runs.by_lease.values())

    async def _end(self, heirs: Sequence[Child], gate: Path) -> None:
        """The second runs end; on a machine that is no match for the lease there may be a third."""
        gate.touch()
        await asyncio.gather(*(heir.ask("idle") for heir in heirs))

        async def all_ended() -> bool:
            return bool(self.unsafe) or not await self.stage.rows(OPEN)

        await until(all_ended, "every job has ended")

    async def _judge(self) -> None:
        """No outcome is of a superseded lease, there is no dead letter, and a result is the newest run's."""
        rows = await self.stage.rows(ROWS)
        newest = Runs(self.sink).newest()
        for row in rows:
            is_late = row["dead"] or row["settled"] in self.leases
            is_wrong = row["state"] == "completed" and row["result"] != newest[row["id"]].lease
            if is_late or is_wrong:
                self.stale.setdefault(row["id"], f"{row['state']} after a late write")


async def _experiment(stage: Stage, figures: Figures, zombies: _Zombies, rounds: int) -> None:
    for number in range(rounds):
        await zombies.round(over=bool(number % 2))
    figures.note(n=rounds * len(zombies.modes), lease_s=LEASE_S, frozen_s=round(3 * LEASE_S, 3))
    figures.note(late_writes_refused=dict(zombies.refused), stale=dict(Counter(zombies.stale.values())))
    figures.zero(stale_accepted=len(zombies.stale))


async def test_E03_zombie(stage: Stage, tmp_path: Path) -> None:
    figures, zombies = Figures("E03"), _Zombies(stage, tmp_path, MODES, ())
    await _experiment(stage, figures, zombies, ROUNDS)
    states = [row["state"] for row in await stage.rows(ROWS)]
    figures.zero(unfinished=ROUNDS * len(MODES) - states.count("completed"))
    for mode, count in Counter(mode for mode, _, _ in MODES).items():
        refused = zombies.refused[mode]
        figures.holds(refused >= ROUNDS * count, f"{refused} of {ROUNDS * count} tried to write a {mode}")
    figures.conclude()


@pytest.mark.parametrize("late", UNSAFE)
async def test_E03_ablation_no_lease_check(stage: Stage, tmp_path: Path, late: str) -> None:
    figures = Figures("E03", ablation=UNSAFE[late], sees="stale_accepted")
    modes = [mode for mode in MODES if mode[0] == late]
    await _experiment(stage, figures, _Zombies(stage, tmp_path, modes, [UNSAFE[late]]), 1)
    figures.conclude()
