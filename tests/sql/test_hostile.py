"""What PostgreSQL refuses and Python produces happily stops no job, no claim and no batch (F7, E08)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fairlead.adapters.local.system import SystemIds
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.dead_letters import PostgresDeadLetterStore
from fairlead.adapters.postgres.jobs import PostgresJobStore
from fairlead.engine.ports import (
    Cancelled,
    ClaimFilter,
    Completed,
    Discarded,
    FailureRecord,
    Job,
    Rescheduled,
)
from fairlead.errors import InvalidInputError
from tests.support.engine import new_job
from tests.support.rows import run
from tests.support.seeds import a_session

IDS = SystemIds()
ANY = ClaimFilter()


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


HOSTILE: dict[str, Any] = {
    "nul": "a\0b",
    "written nul": "\\u0000",
    "half a surrogate": "\ud800",
    "nan": float("nan"),
    "inf": float("-inf"),
    "deep": nested(5000),
    "long number": 10**5000,
    "bytes": b"\xff",
    "no json": Unprintable(),
    "odd keys": {1: 2, None: 3, "__proto__": "\0"},
    "large": "x" * 10_000_000,
}


@pytest.fixture
def jobs(database: Database) -> PostgresJobStore:
    return PostgresJobStore(database, IDS)


async def a_running_job(database: Database, jobs: PostgresJobStore) -> Job:
    await jobs.enqueue([new_job()])
    (job,) = await jobs.claim(ANY, 1, await a_session(database))
    return job


@pytest.mark.parametrize("name", HOSTILE)
async def test_no_outcome_is_lost_to_its_content(
    database: Database, jobs: PostgresJobStore, name: str
) -> None:
    value = HOSTILE[name]
    text = value if isinstance(value, str) else "\0\ud800"
    failure = FailureRecord("transient_server", "boom", text, 0.5, 1, details={"value": value})
    job = await a_running_job(database, jobs)
    assert await jobs.acknowledge([Rescheduled(job.job_id, job.lease_id, 0.0, failure)]) == {job.job_id}
    (job,) = await jobs.claim(ANY, 1, await a_session(database))
    dead = Discarded(job.job_id, job.lease_id, IDS.uuid7(), failure)
    assert await jobs.acknowledge([dead]) == {job.job_id}
    entry = await PostgresDeadLetterStore(database).get(dead.dead_letter_id)
    assert entry is not None
    assert entry.reason.strip()
    assert len(json.dumps(entry.history)) < 100_000
    job = await a_running_job(database, jobs)
    assert await jobs.acknowledge([Completed(job.job_id, job.lease_id, value)]) == {job.job_id}
    job = await a_running_job(database, jobs)
    assert await jobs.acknowledge([Cancelled(job.job_id, job.lease_id, text)]) == {job.job_id}


@pytest.mark.parametrize("reason", ["", " \n", "\0"])
async def test_an_empty_reason_never_stops_a_dead_letter(
    database: Database, jobs: PostgresJobStore, reason: str
) -> None:
    job = await a_running_job(database, jobs)
    failure = FailureRecord("permanent_request", "", reason, 0.0, 1)
    dead = Discarded(job.job_id, job.lease_id, IDS.uuid7(), failure)
    assert await jobs.acknowledge([dead]) == {job.job_id}
    entry = await PostgresDeadLetterStore(database).get(dead.dead_letter_id)
    assert entry is not None
    assert (entry.reason.strip() != "", entry.code) == (True, "unknown")


@pytest.mark.parametrize("name", sorted(set(HOSTILE) - {"written nul", "large"}))
async def test_arguments_that_cannot_be_stored_are_refused_where_they_enter(
    jobs: PostgresJobStore, name: str
) -> None:
    """But for their size: policy/jobs/job.py has checked that before a job gets here."""
    with pytest.raises(InvalidInputError, match=r"args.*acme.*hint:"):
        await jobs.enqueue([new_job(), new_job(args={"value": HOSTILE[name]})])
    assert await jobs.counts() == {}


async def test_a_nul_that_is_only_written_is_a_text_like_any_other(
    database: Database, jobs: PostgresJobStore
) -> None:
    args = {"path": "C:\\u0000", "\\u0000": ["\\\\u0000"]}
    await jobs.enqueue([new_job(args=args)])
    (job,) = await jobs.claim(ANY, 1, await a_session(database))
    assert job.args == args


@pytest.mark.parametrize("stored", ['{"n": ' + "9" * 5000 + "}", "[" * 500 + "]" * 500, '{"n": 1e400}', "7"])
async def test_args_stored_by_foreign_sql_do_not_stop_a_claim(
    database: Database, jobs: PostgresJobStore, stored: str
) -> None:
    await jobs.enqueue([new_job("foreign"), new_job("ours", args={"a": 1})])
    await run(database, "UPDATE job SET args = $1::jsonb WHERE kind = 'foreign'", stored)
    jobs_by_kind = {job.kind: job for job in await jobs.claim(ANY, 9, await a_session(database))}
    assert jobs_by_kind["ours"].args == {"a": 1}
    assert "foreign" in jobs_by_kind
    assert len(await jobs.search(state=None, kind=None, tenant_id=None, queue=None, limit=9)) == 2


@pytest.mark.parametrize(
    "text", ["'; DROP TABLE job; --", "ü\U0001f6a2", "{t}", "$1", ":name", "a\nb", "x" * 200]
)
async def test_names_come_back_as_they_went(database: Database, jobs: PostgresJobStore, text: str) -> None:
    new = new_job(tenant_id=text, group_key=text, unique_key=text, tags=(text, "plain"), args={text: text})
    await jobs.enqueue([new])
    (job,) = await jobs.claim(ANY, 1, await a_session(database))
    assert (job.tenant_id, job.group_key, job.args) == (text, text, {text: text})
