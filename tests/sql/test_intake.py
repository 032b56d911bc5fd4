"""Many jobs at once: a stream of statements in one transaction, all of them or none (Q1)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairlead.adapters.local.system import SystemIds
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.enqueuer import SLICE
from fairlead.adapters.postgres.job_rows import lane_id_of
from fairlead.adapters.postgres.jobs import PostgresJobStore
from fairlead.adapters.postgres.postgres_errors import CommitInDoubtError
from fairlead.engine.ports import Enqueued, NewJob
from fairlead.errors import InvalidInputError
from tests.support.rows import rows, run

MANY = 2 * SLICE + 10
IDS = SystemIds()


@pytest.fixture
def jobs(database: Database) -> PostgresJobStore:
    """The store."""
    return PostgresJobStore(database, IDS, notify=False)


def new_jobs(many: int, **fields: Any) -> list[NewJob]:
    return [NewJob(IDS.uuid7(), "work", f"t{n % 7}", args={"n": n}, **fields) for n in range(many)]


async def stored(database: Database) -> dict[UUID, int]:
    jobs_found = await rows(database, "SELECT job_id, (args->>'n')::int AS n FROM job")
    return {row["job_id"]: row["n"] for row in jobs_found}


def failing(jobs: Iterable[NewJob], fail_after: int) -> Iterator[NewJob]:
    for number, job in enumerate(jobs):
        if number == fail_after:
            raise InvalidInputError("this one is wrong", hint="mend it")
        yield job


@pytest.mark.parametrize("many", [SLICE, SLICE + 1, MANY])
async def test_all_are_stored_in_their_order(database: Database, jobs: PostgresJobStore, many: int) -> None:
    requested = new_jobs(many)
    results = await jobs.enqueue(iter(requested))
    assert [result.job_id for result in results] == [job.job_id for job in requested]
    assert all(result.inserted for result in results)
    assert await stored(database) == {job.job_id: n for n, job in enumerate(requested)}
    ready = await rows(database, "SELECT count(*) AS lanes FROM lane WHERE state = 'ready'")
    assert ready[0]["lanes"] == 7


@pytest.mark.parametrize("fail_after", [3, SLICE + 3, 2 * SLICE + 3])
async def test_none_is_stored_where_a_later_one_is_wrong(
    database: Database, jobs: PostgresJobStore, fail_after: int
) -> None:
    with pytest.raises(InvalidInputError, match="this one is wrong"):
        await jobs.enqueue(failing(new_jobs(MANY), fail_after))
    assert await stored(database) == {}


async def test_a_cancelled_stream_leaves_nothing_and_the_pool_works(
    database: Database, jobs: PostgresJobStore
) -> None:
    reached = asyncio.Event()

    def slowly() -> Iterator[NewJob]:
        for number, job in enumerate(new_jobs(MANY)):
            if number == 2 * SLICE:
                reached.set()
            yield job

    task = asyncio.create_task(jobs.enqueue(slowly()))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await stored(database) == {}
    assert len(await jobs.enqueue(new_jobs(MANY))) == MANY


async def test_jobs_are_made_before_anything_is_locked(
    database: Database, jobs: PostgresJobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A generator of the caller's may take its time: others wait for none of it."""
    begin, steps = database.transaction, list[str]()

    def slowly() -> Iterator[NewJob]:
        yield from new_jobs(MANY)
        steps.append("made")

    def start_statement() -> Any:
        steps.append("begun")
        return begin()

    monkeypatch.setattr(database, "transaction", start_statement)
    await jobs.enqueue(slowly())
    assert steps == ["made", "begun"]


async def test_lanes_of_a_slow_store_are_looked_at_once_more(
    database: Database, jobs: PostgresJobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were empty in the meantime, and nobody saw the new jobs."""
    store = jobs._intake._store

    async def slow(new_slice: Sequence[NewJob]) -> list[Enqueued]:
        stored = await store(new_slice)
        await run(database, "UPDATE lane SET state = 'idle', mark_at = now()")
        return stored

    monkeypatch.setattr(jobs._intake, "_store", slow)
    monkeypatch.setattr("fairlead.adapters.postgres.enqueuer.LATE_S", -1.0)
    await jobs.enqueue(new_jobs(2))
    lanes = await rows(database, "SELECT state, mark_at < now() - interval '1 ms' AS marked FROM lane")
    assert lanes == [{"state": "ready", "marked": True}] * 2


async def test_lanes_of_a_late_commit_lower_their_floor(database: Database, jobs: PostgresJobStore) -> None:
    """Floors wait 15 s for a writer. Otherwise these lanes would wait for the next sweep."""
    [job] = new_jobs(1)
    await jobs.enqueue([job])
    await run(database, "UPDATE lane_floor SET vtime = 10000, rising = 10000")
    below = "SELECT FROM lane JOIN lane_floor AS f USING (queue, level, kind) WHERE lane.vtime < f.vtime"
    await jobs._intake._touch(database, [lane_id_of(job)], 14.0)
    assert len(await rows(database, below)) == 1
    await jobs._intake._touch(database, [lane_id_of(job)], 16.0)
    assert await rows(database, below) == []


async def test_unique_keys_among_many(database: Database, jobs: PostgresJobStore) -> None:
    (open_one,) = await jobs.enqueue([NewJob(IDS.uuid7(), "work", "t", unique_key="k")])
    requested = [*new_jobs(SLICE + 5), NewJob(IDS.uuid7(), "work", "t", unique_key="k"), *new_jobs(SLICE)]
    results = await jobs.enqueue(iter(requested))
    assert (results[SLICE + 5].job_id, results[SLICE + 5].inserted) == (open_one.job_id, False)
    assert sum(result.inserted for result in results) == len(requested) - 1
    assert len(await stored(database)) == len(requested)


@pytest.mark.parametrize("committed", [True, False])
async def test_a_commit_in_doubt_stores_each_once(
    database: Database, jobs: PostgresJobStore, monkeypatch: pytest.MonkeyPatch, *, committed: bool
) -> None:
    """The answer to COMMIT is lost: whether it was carried out is read back."""
    transaction, calls = database.transaction, count()

    class Lost:
        def __init__(self) -> None:
            self.real = transaction()

        async def __aenter__(self) -> Any:
            return await self.real.__aenter__()

        async def __aexit__(self, *error: Any) -> None:
            broken = CommitInDoubtError("the connection broke") if next(calls) == 0 else None
            if broken is not None and not committed:  # as if COMMIT had never arrived
                error = (type(broken), broken, None)
            await self.real.__aexit__(*error)
            if broken is not None:
                raise broken

    monkeypatch.setattr(database, "transaction", Lost)
    requested = new_jobs(MANY)
    results = await jobs.enqueue(iter(requested))
    assert [result.job_id for result in results] == [job.job_id for job in requested]
    assert await stored(database) == {job.job_id: n for n, job in enumerate(requested)}


async def test_callers_that_make_the_same_lanes_at_once(database: Database, jobs: PostgresJobStore) -> None:
    mine, yours = new_jobs(MANY), list(reversed(new_jobs(MANY)))
    await asyncio.gather(jobs.enqueue(iter(mine)), jobs.enqueue(iter(yours)))
    assert len(await stored(database)) == 2 * MANY


# ---- the lane of a job, in Python and in SQL -------------------------------------------------------

NAMES = st.from_regex(r"[a-z0-9][a-z0-9_.-]{0,10}", fullmatch=True)
LABELS = st.text(st.characters(exclude_categories=("Cc", "Cs")), max_size=20)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=5)
@given(
    st.lists(
        st.tuples(NAMES, NAMES, st.none() | NAMES, st.integers(0, 3), LABELS.filter(bool), LABELS),
        min_size=20,
        max_size=20,
    )
)
async def test_a_lane_is_the_same_by_both(database: Database, names: list[tuple[Any, ...]]) -> None:
    requested = [
        NewJob(IDS.uuid7(), kind, tenant, queue, provider, group, priority)
        for queue, kind, provider, priority, tenant, group in names
    ]
    for job, by in zip(requested, names, strict=True):
        [row] = await rows(database, "SELECT lane_id_of($1, $2, $3, $4::smallint, $5, $6) AS lane_id", *by)
        assert row["lane_id"] == lane_id_of(job)
