"""E08: payloads, results and errors that cannot be kept as they are (V7, F7), and honest jobs between them.

Each poisoned job ends: it is done with a result that was made safe, or a dead letter after its retries, with
a text that anybody can read. No job goes round for ever, no process dies, no write of an outcome fails, and
the neighbours lose nothing.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.faults.support.child import Child
from tests.faults.support.load import Load
from tests.faults.support.poison import RETRIES
from tests.faults.support.report import Figures, sized
from tests.faults.support.sink import Runs
from tests.faults.support.stage import Stage, until
from tests.faults.support.vectors import ERRORS, OUTCOMES, PAYLOADS, RESULTS

pytestmark = pytest.mark.slow

COPIES = sized(1, 20)
NEIGHBOURS = sized(100, 2000)
WITHIN_S = sized(60.0, 600.0)
LEASE_S = 30.0  # megabytes of poison may hold the loop up for a while
TENANT = "poison"
OTHERS = ("context_snooze", "cancels_itself")
MOST_TEXT, MOST_RESULT = 4096, 65_536
WITH_CODE = {"loud_text", "pretender"}
"""Objects of the caller's own process that raise when they are looked at: what they raise is the caller's."""
EXPECTED_EVENTS = (
    "service_failed",
    "store_unreachable",
    "superseded_write_refused",
    "lease_lost",
    "handlers_stuck",
)
"""What the worker would tell of a failure path that failed."""

JOBS = (
    "SELECT job_id::text AS id, kind, state, attempt, result::text AS result, failures::text AS failures"
    " FROM job WHERE tenant_id = $1"
)
OPEN = (
    "SELECT count(*) AS jobs, count(*) FILTER (WHERE run_at > now() + interval '30 seconds') AS put_off"
    " FROM job WHERE kind LIKE 'fault.%' AND state IN ('available', 'running')"
)
DEAD = "SELECT kind, code, reason FROM dead_letter"
FOREIGN = (
    "INSERT INTO job (job_id, kind, tenant_id, args)"
    " VALUES (gen_random_uuid(), 'fault.reads_args', $1, $2::text::jsonb)"
)
ARGS = {
    "a list": "[1, 2]",
    "a text": '"first"',
    "a number": "7",
    "null": "null",
    "deep": "[" * 2000 + "]" * 2000,
    "digits": f'{{"first": {"9" * 5000}}}',
    "digits in a list": f"[{'9' * 5000}, -1e3000]",
    "proto": '{"__proto__": {"first": 1}, "constructor": {}}',
    "huge": f'{{"first": "{"x" * (1 << 20)}"}}',
    "empty": "{}",
}
"""Args that only foreign SQL can have stored."""


async def _sow(stage: Stage, desk: Child, kinds: list[str], copies: int) -> int:
    """Enqueue the poison, and args that no caller of ours could have stored; how many."""
    jobs = [{"kind": f"fault.{kind}", "tenant_id": TENANT} for kind in kinds for _ in range(copies)]
    await desk.ask("enqueue", jobs=jobs)
    for _ in range(copies):
        for args in ARGS.values():
            await stage.run(FOREIGN, TENANT, args)
    return len(jobs) + copies * len(ARGS)


async def _refused(desk: Child, figures: Figures) -> int:
    """Try each payload: it is stored, or refused in words of ours; how many were stored."""
    errors_by_name: dict[str, str] = (await desk.ask("enqueue_poison", names=list(PAYLOADS)))["told"]
    figures.note(payloads=dict(Counter(errors_by_name.values())))
    strange = {
        name: word for name, word in errors_by_name.items() if word not in {"stored", "InvalidInputError"}
    }
    figures.holds(strange.keys() <= WITH_CODE, f"payloads were met with {strange}")
    return sum(word == "stored" for word in errors_by_name.values())


async def _experiment(
    stage: Stage, figures: Figures, sink: Path, kinds: list[str], copies: int, *unsafe: str
) -> Child:
    """Sow, and wait until all has ended, or until something goes round for sure; the worker that ran it."""
    settings = {"concurrency": 8, "poll_s": 0.05, "lease_s": LEASE_S}
    desk = await stage.born(child="poison")
    load = Load(desk, figures, work_s=(0.0, 0.02))
    sown = await _sow(stage, desk, kinds, copies) + await _refused(desk, figures)
    worker = await stage.born(child="poison", sink=str(sink), worker=settings, unsafe=unsafe)
    await load.ask(NEIGHBOURS)

    async def ended() -> bool:
        open_ = (await stage.rows(OPEN))[0]
        return not open_["jobs"] or open_["put_off"] > 0 or not worker.alive

    try:
        await until(ended, "all has ended", WITHIN_S)
    except AssertionError:
        figures.note(gave_up_after_s=WITHIN_S)
    figures.note(n=sown, neighbours=NEIGHBOURS)
    figures.holds(worker.alive, f"the worker died: {worker.words()[-500:]}")
    if worker.alive:
        await _judge_neighbours(stage, load, figures)
    return worker


async def _judge_neighbours(stage: Stage, load: Load, figures: Figures) -> None:
    rows = await stage.rows(
        "SELECT state, attempt FROM job WHERE kind = 'fault.work' AND tenant_id LIKE 'tenant-%'"
    )
    figures.zero(
        neighbours_lost=len(load.acknowledged) - sum(row["state"] == "completed" for row in rows),
        neighbours_attempts_lost=sum(row["attempt"] != 1 for row in rows),
    )


async def _judge(stage: Stage, figures: Figures, worker: Child, sink: Path) -> None:
    rows, dead = await stage.rows(JOBS, TENANT), await stage.rows(DEAD)
    times = Counter(run.job_id for run in Runs(sink))
    ended = Counter(row["state"] for row in rows)
    looping = [row["kind"] for row in rows if _goes_round(row, times[row["id"]])]
    figures.note(ended=dict(ended), dead_letters=len(dead), most_runs=max(times.values()))
    figures.holds(not looping, f"looping: {sorted(set(looping))}")
    unsafe = [row["kind"] for row in (*rows, *dead) if not _is_safe(row)]
    unfinished = ended["available"] + ended["running"]
    refused = sum("outcome_refused" in (row["failures"] or "") for row in rows)
    figures.zero(
        looping_jobs=len(looping), refused_outcomes=refused, unfinished=unfinished, unsafe_texts=len(unsafe)
    )
    figures.holds(not unsafe, f"unsafe: {sorted(set(unsafe))}")
    figures.holds(
        len(dead) == ended["discarded"], f"{ended['discarded']} discarded, {len(dead)} dead letters"
    )
    if worker.alive:
        events = (await worker.ask("told"))["events"]
        figures.zero(failures_of_the_failure_path=sum(events.get(name, 0) for name in EXPECTED_EVENTS))
        figures.holds(not any(events.get(name) for name in EXPECTED_EVENTS), f"told: {events}")


def _goes_round(row: dict[str, Any], runs: int) -> bool:
    """Whether it ran more often than it may, or was put back as if it had not run."""
    return runs > RETRIES + 1 or (row["state"] == "available" and row["attempt"] < runs)


def _is_safe(row: dict[str, Any]) -> bool:
    """Bounded, and no text in it would move a terminal."""
    sizes = [len(row.get("result") or "") <= 2 * MOST_RESULT]
    texts = [row[name] for name in ("reason", "code") if name in row]
    shown = [all(unicodedata.category(c) != "Cc" or c in "\t\n" for c in text) for text in texts]
    return all(sizes) and all(shown) and all(0 < len(text.encode()) <= MOST_TEXT for text in texts)


async def test_E08_poison(stage: Stage, tmp_path: Path) -> None:
    figures, sink = Figures("E08"), tmp_path / "sink.ndjson"
    kinds = [*RESULTS, *ERRORS, *OUTCOMES, *OTHERS]
    figures.draw.shuffle(kinds)
    worker = await _experiment(stage, figures, sink, kinds, COPIES)
    await _judge(stage, figures, worker, sink)
    figures.conclude()


@pytest.mark.parametrize(
    ("without", "kinds"),
    [
        ("plain_texts", ["nul_error", "surrogate_error", "ours"]),
        ("plain_results", ["nul", "surrogate", "nan", "digits", "cyclic"]),
    ],
    ids=["plain_texts", "plain_results"],
)
async def test_E08_ablation(stage: Stage, tmp_path: Path, without: str, kinds: list[str]) -> None:
    figures, sink = Figures("E08", ablation=without, sees="refused_outcomes"), tmp_path / "sink.ndjson"
    worker = await _experiment(stage, figures, sink, kinds, 1, without)
    await _judge(stage, figures, worker, sink)
    figures.conclude()
