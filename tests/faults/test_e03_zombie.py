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

ROUNDS = sized(2, 26)
LEASE_S = sized(0.8, 1.5)
WORK_S = 2 * LEASE_S  # long enough to be frozen in, and over when three leases have passed
MODES: Sequence[tuple[str, str, Mapping[str, Any]]] = (
    ("result", "fault.work", {"work_s": WORK_S}),
    ("result", "fault.deaf", {"work_s": WORK_S}),
    *((what, "fault.late", {"late": what}) for what in ("result", "retry", "dead_letter", "cancel")),
)
"""What is written late, by which kind of job. Those of `fault.late` freeze by themselves, first."""
UNSAFE = {"result": "no_lease_check"} | {
    what: f"no_lease_check_of_a_{what}" for what in ("retry", "dead_letter", "cancel")
}
"""The safeguard against what is written late."""
ROWS = (
    "SELECT job_id::text AS id, state, coalesce(lease_id::text, result->>'lease') AS lease,"
    " EXISTS (SELECT FROM dead_letter WHERE dead_letter.job_id = job.job_id) AS dead FROM job"
)


@dataclass
class _Zombies:
    """Jobs of each of *modes*, round after round, and what became of them: *stale* has the wrong ones."""

    stage: Stage
    folder: Path
    modes: Sequence[tuple[str, str, Mapping[str, Any]]]
    unsafe: Sequence[str]
    refused: Counter[str] = field(default_factory=Counter)
    stale: dict[str, str] = field(default_factory=dict)  # what was written late, by job
    heirs: dict[str, str] = field(default_factory=dict)  # the lease of the second run, by job

    @property
    def sink(self) -> Path:
        return self.folder / "sink.ndjson"

    async def round(self, over: bool) -> None:
        """Freeze, have the jobs run again, wake while they run or, if *over*, when they have results."""
        worker = {"lease_s": LEASE_S, "concurrency": 1, "poll_s": 0.05}
        gate = self.folder / "gate"
        order = {"sink": str(self.sink), "worker": worker, "unsafe": self.unsafe}
        zombies = await self._frozen(await self.stage.all_born(len(self.modes), **order))
        frozen_s = time.monotonic()
        heirs = await self.stage.all_born(len(zombies), gate=str(gate), **order)
        await self._begun(2)
        self.heirs |= {run.job_id: run.lease for run in Runs(self.sink).newest().values()}
        await asyncio.sleep(max(0.0, frozen_s + 3 * LEASE_S - time.monotonic()))
        if over:
            await self._end(heirs, gate)
        for zombie, (what, _, _) in zombies:
            zombie.thaw()
            self.refused[what] += (await zombie.ask("idle"))["stale"]
        await self._judge()
        await self._end(heirs, gate)
        await self._judge()
        for child in (*heirs, *(zombie for zombie, _ in zombies)):
            await child.stop()
        gate.unlink()

    async def _frozen(self, children: Sequence[Child]) -> list[tuple[Child, tuple[str, str, Any]]]:
        """Each with the mode of the job that it took and froze at, in the middle or at its end.

        The jobs are stored by one more process: who takes one may freeze before it could say that it has it.
        Each is of another tenant, so that nobody waits for a look at the same line.
        """
        ages = len(self.heirs)
        jobs = [
            {"kind": kind, "tenant_id": f"tenant-{n}", "args": {"n": n, **args}}
            for n, (_, kind, args) in enumerate(self.modes, ages)
        ]
        desk = await self.stage.born()
        await desk.ask("enqueue", jobs=jobs)
        first = await self._begun(1)
        by_pid = {run.pid: self.modes[run.n - ages] for run in first}
        assert len(by_pid) == len(children), "each took one, before the first lease had passed"
        zombies = [(child, by_pid[child.pid]) for child in children]
        for child, (_, _, args) in zombies:
            await (child.frozen() if "late" in args else child.freeze())
        await desk.stop()
        return zombies

    async def _begun(self, times: int) -> list[Run]:
        """The runs of this round, once each of its jobs has begun *times*."""
        runs, before = Runs(self.sink), 2 * len(self.heirs)

        async def begun() -> bool:
            return len(runs.look()) == before + times * len(self.modes)

        await until(begun, f"each job has begun {times} times")
        return list(runs.by_lease.values())[before:]

    async def _end(self, heirs: Sequence[Child], gate: Path) -> None:
        gate.touch()
        await asyncio.gather(*(heir.ask("idle") for heir in heirs))

    async def _judge(self) -> None:
        """A job is its second run's: held by it, or done with its result, and no dead letter."""
        for row in await self.stage.rows(ROWS):
            is_kept = row["state"] in ("running", "completed") and row["lease"] == self.heirs[row["id"]]
            if row["dead"] or not is_kept:
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
    for what, count in Counter(what for what, _, _ in MODES).items():
        refused = zombies.refused[what]
        figures.holds(refused >= ROUNDS * count, f"{refused} of {ROUNDS * count} tried to write a {what}")
    figures.conclude()


@pytest.mark.parametrize("late", UNSAFE)
async def test_E03_ablation_no_lease_check(stage: Stage, tmp_path: Path, late: str) -> None:
    figures = Figures("E03", ablation=UNSAFE[late], sees="stale_accepted")
    modes = [mode for mode in MODES if mode[0] == late]
    await _experiment(stage, figures, _Zombies(stage, tmp_path, modes, [UNSAFE[late]]), 1)
    figures.conclude()
