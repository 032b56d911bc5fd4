"""E18: one transaction stays open, so no row of an ended job is removed, while 300 jobs a second come and go.

A look for work does not walk over the jobs that ended: each lane has a mark behind which it begins. Nor over
what lanes were before: each class has a floor. Nor over what ran under a cap: it knows since when to count.
What is read of indexes is counted by the server, whoever reads it. `fairlead doctor` tells of the transaction
and of its holder.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from fairlead.adapters.postgres.lanes import PostgresLaneStore
from fairlead.adapters.postgres.postgres_info import PostgresInfo, server_facts
from fairlead.assembly.doctor.database_checks import SNAPSHOT_WARN_S, snapshot_check
from fairlead.engine.ports import TenantShare
from tests.faults.support.load import TENANTS, Load, all_begin
from tests.faults.support.report import Figures, quantiles, sized
from tests.faults.support.stage import Stage, until
from tests.support.snapshot import held_snapshot

pytestmark = pytest.mark.slow

PROCESSES, SLOTS = 2, 16
JOBS_PER_S, BATCH = 300, 30
BEFORE_S = sized(1.5, 30.0)
HELD_S = sized(6.0, 900.0)
LATE_S = sized(1.5, 30.0)
"""What is judged is the end of the time held, when the most rows are dead."""
WARN_S = sized(2.0, SNAPSHOT_WARN_S)
DEARER, SPARE_S = (
    5.0,
    sized(2.0, 0.02),
)  # a claim's p99 than before; few looks, on a busy machine, in smoke size
ENTRIES_BOUND = 1.5 * JOBS_PER_S
"""Of the index of jobs, that one look may read: a mark is a second behind, however many have ended."""
LANE_ENTRIES_BOUND = 2 * 12 * JOBS_PER_S
"""Of each index of lanes: a floor of a class that runs empty follows each 5 s, two looks behind; a job moves
its lane twice."""
LANE_INDEXES = ("lane_ready_idx", "lane_find_idx", "lane_sibling_idx", "lane_cap_idx", "lane_cap_wait_idx")
CAPPED = TenantShare("tenant-0", max_running=3)
"""Its lanes wait under a cap now and then, as those of others do not."""
RUNNING_ENTRIES_BOUND = 2 * 30 * JOBS_PER_S / TENANTS
"""Of the index of what runs: a cap is counted from the oldest that runs, or from 20 s ago, as of 10 s ago."""
BOUNDS = {
    "job_lane_idx": ENTRIES_BOUND,
    "job_running_since_idx": RUNNING_ENTRIES_BOUND,
    **dict.fromkeys(LANE_INDEXES, LANE_ENTRIES_BOUND),
}
NUMBERS = {"concurrency": SLOTS, "poll_s": 0.1}
READ = (
    "SELECT indexrelname AS name, idx_tup_read AS entries FROM pg_stat_user_indexes"
    " WHERE indexrelname = ANY($1::text[])"
)
DEAD = "SELECT relname AS name, n_dead_tup AS n FROM pg_stat_user_tables WHERE relname IN ('job', 'lane')"
SEEN_WITHIN_S = sized(300.0, HELD_S)
"""By then so much is dead, on any machine, that whoever walks over it reads more than a look may: in some
windows, as not every look has to pass what lanes were."""
MARK = "(j.run_at, j.job_id) >= (lane.mark_at, lane.mark_id)"
COUNT_ALL = (
    "CREATE OR REPLACE FUNCTION cap_count_from(counted_from timestamptz) RETURNS timestamptz"
    " LANGUAGE sql STABLE AS $$ SELECT '-infinity'::timestamptz $$"
)
CLAIM = "SELECT pg_get_functiondef(oid) AS is FROM pg_proc WHERE proname = 'job_claim'"


@dataclass
class _Looks:
    """What looks for work cost from one moment to another: seconds each, entries of indexes all together."""

    stage: Stage
    ledger: Path

    async def cost(self, for_s: float) -> tuple[list[float], dict[str, float]]:
        """Those of the next *for_s* that find something: seconds of each, and entries read on average."""
        reads_before, began_s = await self._read(), time.monotonic()
        await asyncio.sleep(for_s)
        reads_after, over_s = await self._read(), time.monotonic()
        lines = [json.loads(line) for line in self.ledger.read_text().splitlines()]
        took_s = [line["took_s"] for line in lines if began_s <= line["t"] <= over_s and line["jobs"]]
        reads_each = {
            name: round((reads_after[name] - reads_before[name]) / max(1, len(took_s)), 1)
            for name in reads_after
        }
        return took_s, reads_each

    async def _read(self) -> dict[str, int]:
        return {row["name"]: row["entries"] for row in await self.stage.rows(READ, list(BOUNDS))}


async def _dead(stage: Stage) -> dict[str, int]:
    """Rows of each table that no look may forget."""
    return {row["name"]: row["n"] for row in await stage.rows(DEAD)}


async def _churn(
    stage: Stage, figures: Figures, folder: Path, *unsafe: str, until_read: str | None = None
) -> tuple[Load, PostgresInfo]:
    """Jobs come and end, then a snapshot is held meanwhile; what the server said of it at the end.

    It is held for as long as the size of this run says, or until looks read more of an index than they may.
    """
    sink, looks = folder / "sink.ndjson", _Looks(stage, folder / "claims.ndjson")
    order = {"sink": str(sink), "claims": str(looks.ledger), "worker": NUMBERS, "unsafe": unsafe}
    await PostgresLaneStore(stage.database).set_tenant(CAPPED)
    workers = await stage.all_born(PROCESSES, **order)
    load = Load(await stage.born(), figures, (0.0, 0.0), batch=BATCH, every_s=BATCH / JOBS_PER_S)

    async def reads_too_much(name: str) -> bool:
        nonlocal took_s, entries
        took_s, entries = await looks.cost(LATE_S)
        figures.note(last_looks=len(took_s), last_entries=entries)
        return entries[name] > BOUNDS[name]

    async with load.coming():
        await all_begin(sink, workers)
        took_s, entries = await looks.cost(BEFORE_S)
        before_s = quantiles(took_s)["p99"]
        figures.note(before_ms=quantiles(took_s, 1000, 2), entries_before=entries)
        async with held_snapshot(stage.database.settings.dsn):
            if until_read:
                await until(lambda: reads_too_much(until_read), f"too much of {until_read}", SEEN_WITHIN_S)
            else:
                await asyncio.sleep(HELD_S - LATE_S)
                took_s, entries = await looks.cost(LATE_S)
            facts = await server_facts(stage.database.settings)
            dead = await _dead(stage)
    figures.note(held_s=round(facts.snapshot_s, 1), dead_rows=dead, claims=len(took_s))
    figures.note(claim_ms=quantiles(took_s, 1000, 2), entries_a_claim=entries)
    p99_s = quantiles(took_s)["p99"]
    figures.holds(
        p99_s <= DEARER * before_s + SPARE_S, f"p99 of a claim is {p99_s:.3f} s, and was {before_s:.3f}"
    )
    for name, bound in BOUNDS.items():
        figures.holds(entries[name] <= bound, f"a claim reads {entries[name]:.0f} entries of {name}")
    return load, facts


async def test_E18_old_snapshot(stage: Stage, tmp_path: Path) -> None:
    figures = Figures("E18")
    assert snapshot_check(await server_facts(stage.database.settings), WARN_S).status == "ok"
    load, facts = await _churn(stage, figures, tmp_path)
    await load.all_ended(stage)
    await load.judge(stage, tmp_path / "sink.ndjson")
    figures.note(faults=1)
    check = snapshot_check(facts, WARN_S)
    figures.note(doctor=check.detail)
    figures.holds(check.status == "warn", f"doctor says {check.status}: {check.detail}")
    figures.holds(facts.snapshot_s >= HELD_S, "doctor knows how long it is held")
    figures.conclude()


async def test_E18_ablation_floors_stay(stage: Stage, tmp_path: Path) -> None:
    """Each look walks over all that its lanes were since the snapshot was taken."""
    figures = Figures("E18", ablation="floors stay", sees="of lane_ready_idx")
    load, _ = await _churn(stage, figures, tmp_path, "floors_stay", until_read="lane_ready_idx")
    await load.all_ended(stage)
    figures.conclude()


async def test_E18_ablation_no_marks(stage: Stage, tmp_path: Path) -> None:
    """Each look walks over all jobs of its lanes that ended since the snapshot was taken."""
    figures = Figures("E18", ablation="no marks", sees="of job_lane_idx")
    claim = (await stage.rows(CLAIM))[0]["is"]
    assert MARK in claim, f"a claim does not say {MARK!r} any more"
    await stage.run(claim.replace(MARK, "true"))
    load, _ = await _churn(stage, figures, tmp_path, until_read="job_lane_idx")
    await load.all_ended(stage)
    figures.conclude()


async def test_E18_ablation_caps_count_all(stage: Stage, tmp_path: Path) -> None:
    """Each look under a cap walks over all that ran under it since the snapshot was taken."""
    figures = Figures("E18", ablation="caps count all", sees="of job_running_since_idx")
    await stage.run(COUNT_ALL)
    load, _ = await _churn(stage, figures, tmp_path, until_read="job_running_since_idx")
    await load.all_ended(stage)
    figures.conclude()
