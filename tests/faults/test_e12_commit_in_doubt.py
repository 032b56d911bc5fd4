"""E12: the wire to PostgreSQL breaks before a statement, after it, or anywhere between, where it matters.

Whether it was carried out is found out by reading back an id, a lease or a generation. Nothing is reported as
done that is not, nothing is done twice, and no COMMIT is sent again (F6).
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fairlead.testing.ledger import LedgerVerdict
from tests.faults.support.child import Asked, Child
from tests.faults.support.faultproxy import FaultProxy, When, postgres_proxy
from tests.faults.support.report import Figures, sized
from tests.faults.support.sink import Runs
from tests.faults.support.stage import FAMILY, Stage, until

pytestmark = pytest.mark.slow

CUTS = sized(3, 1000)  # of each kind at each place
CUT_POINTS: tuple[When, ...] = ("before", "between", "within", "after")
LANES = sized(2, 8)
AT_ONCE = 4
WITHIN_S = sized(60.0, 900.0)
LOOK_S = 0.002


@asynccontextmanager
async def _lane(stage: Stage, **order: Any) -> AsyncIterator[tuple[FaultProxy, Child]]:
    """A process that reaches its database through a wire of its own."""
    async with postgres_proxy(stage.database.settings.dsn) as (proxy, url):
        child = await stage.born(url=url, **order)
        yield proxy, child
        await child.kill()


async def _lanes(one_lane: Any, count: int = LANES) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(count):
            group.create_task(one_lane(number))


# ---- enqueue


async def _enqueue(stage: Stage, figures: Figures, cuts: int, *unsafe: str) -> None:
    counts: Counter[str] = Counter()
    acknowledged: dict[int, str] = {}
    cut_count = replayed = 0

    async def one_lane(lane: int) -> None:
        nonlocal cut_count, replayed
        async with _lane(stage, unsafe=unsafe) as (proxy, child):
            for n in range(lane, cuts * len(CUT_POINTS), LANES):
                proxy.cut("/* job_enqueue_one */", CUT_POINTS[n % len(CUT_POINTS)])
                job = {"kind": "fault.work", "tenant_id": "acme", "args": {"n": n}}
                try:
                    acknowledged[n] = (await child.ask("enqueue", jobs=[job]))["ids"][0]
                    counts["stored"] += 1
                except Asked as failed:
                    counts[failed.error] += 1
            cut_count, replayed = cut_count + proxy.cuts, replayed + proxy.replayed_commits

    await _lanes(one_lane)
    stored = await stage.rows("SELECT job_id::text AS id, (args->>'n')::int AS n FROM job")
    times, ids = Counter(row["n"] for row in stored), {row["id"] for row in stored}
    figures.note(n=cuts * len(CUT_POINTS), cuts=cut_count, told=dict(counts))
    figures.holds(cut_count == cuts * len(CUT_POINTS), "every cut was met")
    figures.zero(
        false_success=sum(id not in ids for id in acknowledged.values()),
        duplicates=sum(times.values()) - len(times),
        replayed_commits=replayed,
    )


async def test_E12_commit_in_doubt_enqueue(stage: Stage) -> None:
    figures = Figures("E12")
    figures.note(what="enqueue")
    await _enqueue(stage, figures, CUTS)
    figures.conclude()


# ---- claim, complete

OPEN = "SELECT count(*) AS jobs FROM job WHERE state IN ('available', 'running')"


async def _work_and_cut(stage: Stage, figures: Figures, sign: str, sink: Path) -> tuple[int, int]:
    """Workers at work whose wires break at *sign*, again and again; how many cuts, and COMMITs sent again."""
    numbers, together = itertools.count(), asyncio.Barrier(LANES)
    cut_count = replayed = stale = 0

    async def one_lane(lane: int) -> None:
        nonlocal cut_count, replayed, stale
        async with _lane(stage, sink=str(sink), worker={"concurrency": 4, "poll_s": 0.05}) as (proxy, worker):
            cutting = asyncio.create_task(_cut_again(proxy, sign, CUTS * len(CUT_POINTS) // LANES))
            while not cutting.done():
                await _feed(stage, worker, numbers, mixed=sign == "COMMIT")
            await together.wait()  # who has cut enough works on: nobody leaves with another lane's job
            await until(lambda: _no_more_than(stage, 0), "every job has ended", WITHIN_S)
            await together.wait()
            cut_count, replayed = cut_count + proxy.cuts, replayed + proxy.replayed_commits
            stale += (await worker.ask("told"))["stale"]

    await _lanes(one_lane)
    figures.note(jobs=next(numbers))
    figures.zero(falsely_refused=stale)
    return cut_count, replayed


async def _feed(stage: Stage, worker: Child, numbers: Iterator[int], *, mixed: bool) -> None:
    """A few jobs more; *mixed*: every other one is cancelled, so that two kinds of write share a COMMIT."""
    args = [
        {"n": n, "work_s": 0.003, "cancel": mixed and n % 2 == 1} for n in itertools.islice(numbers, AT_ONCE)
    ]
    jobs = [{"kind": "fault.work", "tenant_id": "acme", "args": job_args} for job_args in args]
    await worker.ask("enqueue", jobs=jobs)
    await until(lambda: _no_more_than(stage, AT_ONCE * LANES), "jobs end", WITHIN_S)


async def _no_more_than(stage: Stage, jobs: int) -> bool:
    return int((await stage.rows(OPEN))[0]["jobs"]) <= jobs


async def _cut_again(proxy: FaultProxy, sign: str, cuts: int) -> None:
    """Every other one, so that a worker is not taught by failures in a row to wait."""
    for number in range(cuts):
        cut = proxy.cut(sign, CUT_POINTS[number % len(CUT_POINTS)], skip=1)
        while cut.left:
            await asyncio.sleep(LOOK_S)


@pytest.mark.parametrize(
    ("statement", "sign"),
    [
        ("claim", "/* job_claim */"),
        ("complete", "/* job_complete */"),
        ("complete, in a transaction", "COMMIT"),
    ],
    ids=["claim", "complete", "transaction"],
)
async def test_E12_commit_in_doubt_at_work(stage: Stage, tmp_path: Path, statement: str, sign: str) -> None:
    figures = Figures("E12")
    sink = tmp_path / "sink.ndjson"
    cut_count, replayed = await _work_and_cut(stage, figures, sign, sink)
    runs = Runs(sink)
    ended = await stage.rows("SELECT job_id::text AS id, state, result->>'lease' AS lease FROM job")
    newest = runs.newest()
    figures.note(what=statement, n=cut_count, runs=len(runs))
    figures.holds(cut_count == CUTS * len(CUT_POINTS) // LANES * LANES, f"only {cut_count} cuts")
    figures.zero(
        lost=sum(row["id"] not in newest for row in ended),
        duplicates=len(runs) - len(ended),
        false_success=sum(
            row["state"] == "completed" and row["lease"] != newest[row["id"]].lease for row in ended
        ),
        replayed_commits=replayed,
    )
    figures.conclude()


# ---- refresh

STATEMENTS = ("/* endpoint_take */", "/* refresh_attempt_sent */", "/* credential_settle */")


async def _refresh(
    stage: Stage, figures: Figures, statements: tuple[str, ...], cuts: int, *unsafe: str
) -> LedgerVerdict:
    counts: Counter[str] = Counter()
    cut_count = replayed = false_success = 0

    async def one_lane(lane: int) -> None:
        nonlocal cut_count, replayed, false_success
        async with _lane(stage, unsafe=unsafe, numbers={"lease_s": 5.0}) as (proxy, child):
            (connection,) = await stage.connect(child, FAMILY, [f"lane-{lane}"])
            generation = 1
            for n in range(lane, cuts * len(CUT_POINTS) * len(statements), LANES):
                proxy.cut(statements[n // len(CUT_POINTS) % len(statements)], CUT_POINTS[n % len(CUT_POINTS)])
                try:
                    answer = await child.ask("refresh", connection=connection, newer_than=generation)
                    counts["refreshed"] += 1
                    false_success += answer["generation"] > await stage.generation(connection)
                except Asked as failed:
                    counts[failed.error] += 1
                generation = await stage.generation(connection)
            cut_count, replayed = cut_count + proxy.cuts, replayed + proxy.replayed_commits

    await _lanes(one_lane)
    figures.note(n=cuts * len(CUT_POINTS) * len(statements), cuts=cut_count, told=dict(counts))
    figures.zero(false_success=false_success, replayed_commits=replayed)
    return stage.verdict()


async def _count_generations(stage: Stage, figures: Figures, verdict: LedgerVerdict) -> None:
    """Each answer of the issuer is one generation here, and one line of the audit trail."""
    (row,) = await stage.rows("SELECT sum(generation - 1)::int AS stored FROM credential")
    (audit,) = await stage.rows("SELECT count(*)::int AS told FROM audit WHERE act = 'token.refreshed'")
    figures.note(posts=verdict.provider_posts, generations=verdict.generations, stored=row["stored"])
    figures.zero(
        duplicates=max(row["stored"], audit["told"]) - verdict.generations,
        lost=verdict.generations - min(row["stored"], audit["told"]),
        second_sends=verdict.provider_posts - verdict.generations,
        burnt=verdict.burnt,
    )


async def test_E12_commit_in_doubt_refresh(stage: Stage) -> None:
    figures = Figures("E12")
    figures.note(what="intent, sent mark, save")
    await _count_generations(stage, figures, await _refresh(stage, figures, STATEMENTS, CUTS))
    states = {row["state"] for row in (await stage.credentials()).values()}
    figures.holds(states == {"active"}, f"states {states}")
    figures.conclude()


# ---- without reading back


@pytest.mark.parametrize("statement", ["enqueue", "save"])
async def test_E12_ablation_naive_retry(stage: Stage, statement: str) -> None:
    figures = Figures("E12", ablation="naive_retry", sees="duplicates")
    figures.note(what=statement)
    if statement == "enqueue":
        await _enqueue(stage, figures, 2, "naive_retry")
    else:
        verdict = await _refresh(stage, figures, STATEMENTS[-1:], 2, "naive_retry")
        await _count_generations(stage, figures, verdict)
    figures.broken = [claim for claim in figures.broken if claim.startswith("duplicates")]
    figures.conclude()
