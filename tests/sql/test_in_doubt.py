"""Answers that got lost: what was asked for happens once, and is known to have happened (E12).

Each case is run with the wire cut before the server saw the statement, and after it had committed it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import pytest

from fairlead.adapters.local.system import SystemIds
from fairlead.adapters.postgres.audit import PostgresAuditStore
from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.dead_letters import PostgresDeadLetterStore
from fairlead.adapters.postgres.jobs import PostgresJobStore
from fairlead.adapters.postgres.postgres_errors import CommitInDoubtError
from fairlead.adapters.postgres.schedule_runs import PostgresScheduleStore
from fairlead.adapters.postgres.worker_sessions import PostgresSessionStore
from fairlead.engine.ports import (
    AuditRecord,
    Cancelled,
    ClaimFilter,
    Completed,
    Discarded,
    FailureRecord,
    Job,
    Rescheduled,
    Schedule,
)
from fairlead.errors import DependencyUnavailableError
from tests.contract.stores import identity
from tests.support.cutting_proxy import COMMIT, CuttingProxy, cutting_proxy
from tests.support.engine import new_job
from tests.support.raw_connections import raw_connection
from tests.support.rows import rows
from tests.support.seeds import a_session

IDS = SystemIds()
ANY = ClaimFilter()
FAILURE = FailureRecord("transient_server", "boom", "it failed", 0.5, 1)


class Wire:
    """A database behind a wire that is about to be cut."""

    def __init__(self, proxy: CuttingProxy, database: Database, when: str) -> None:
        self.proxy = proxy
        self.database = database
        self.jobs = PostgresJobStore(database, IDS, notify=False)
        self._when = when

    def cut(self, *signs: bytes) -> None:
        (self.proxy.cut_before if self._when == "before" else self.proxy.cut_after)(*signs)


@pytest.fixture(params=["before", "after"])
async def wire(
    database: Database, database_settings: DatabaseSettings, request: pytest.FixtureRequest
) -> AsyncIterator[Wire]:
    async with cutting_proxy(database_settings.dsn) as (proxy, url):
        behind = await Database.open(replace(database_settings, dsn=url, max_size=1, command_timeout_s=1.0))
        yield Wire(proxy, behind, request.param)
        proxy.flow()
        await behind.close()


async def test_enqueue(wire: Wire, database: Database) -> None:
    await wire.jobs.enqueue([new_job(unique_key="warm up")])
    jobs = [new_job(), new_job(unique_key="k"), new_job(unique_key="k"), new_job(unique_key="warm up")]
    wire.cut()
    stored = await wire.jobs.enqueue(jobs)
    assert wire.proxy.cuts == 1
    assert [enqueued.inserted for enqueued in stored[:2]] == [True, True]
    assert (stored[2].job_id, stored[2].inserted) == (jobs[1].job_id, False)
    assert not stored[3].inserted
    jobs_found = await rows(database, "SELECT job_id FROM job")
    assert len(jobs_found) == 3
    assert {enqueued.job_id for enqueued in stored} == {row["job_id"] for row in jobs_found}


async def test_claim(wire: Wire, database: Database) -> None:
    session_id = await a_session(database)
    await wire.jobs.enqueue([new_job(delay_s=0.0) for _ in range(5)])
    wire.cut()
    jobs_claimed = await wire.jobs.claim(ANY, 3, session_id)
    jobs_claimed += await wire.jobs.claim(ANY, 9, session_id)
    assert wire.proxy.cuts == 1
    assert len(jobs_claimed) == len({job.job_id for job in jobs_claimed}) == 5
    assert {job.attempt for job in jobs_claimed} == {1}
    assert (
        len(await wire.jobs.acknowledge([Completed(job.job_id, job.lease_id) for job in jobs_claimed])) == 5
    )


async def test_a_claim_whose_answer_never_comes_is_given_back(wire: Wire, database: Database) -> None:
    """Its caller was cancelled, so nobody knows of these jobs, and the session is alive."""
    session_id = await a_session(database)
    await wire.jobs.enqueue([new_job() for _ in range(3)])
    await wire.jobs.claim(ANY, 0, session_id)
    wire.proxy.stall()
    claim = asyncio.create_task(wire.jobs.claim(ANY, 3, session_id))
    await asyncio.sleep(0.05)
    claim.cancel()
    wire.proxy.flow()  # it arrives late, and is carried out
    with suppress(asyncio.CancelledError):
        await claim
    async with asyncio.timeout(5):
        jobs_claimed: list[object] = []
        while len(jobs_claimed) < 3:
            jobs_claimed += await wire.jobs.claim(ANY, 9, session_id)
    assert await wire.jobs.counts() == {"running": 3}


HELD_UP = """
CREATE FUNCTION held_up() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(4711);
    RETURN new;
END $$;
CREATE TRIGGER held_up BEFORE UPDATE ON job
FOR EACH ROW WHEN (new.state = 'running') EXECUTE FUNCTION held_up()
"""


@pytest.mark.parametrize("wire", ["after"], indirect=True)
async def test_a_claim_that_is_carried_out_after_it_was_looked_for_is_given_back(
    wire: Wire, database: Database
) -> None:
    """The wire breaks while the server is at work on it: what is read back then is nothing, yet."""
    session_id = await a_session(database)
    await wire.jobs.enqueue([new_job() for _ in range(3)])
    async with raw_connection(database) as holder:
        await holder.execute(HELD_UP)
        await holder.execute("SELECT pg_advisory_lock(4711)")
        claim = asyncio.create_task(wire.jobs.claim(ANY, 3, session_id))
        while not await holder.fetch("SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"):
            await asyncio.sleep(0.001)
        await wire.proxy.close()
        assert await claim == []
        await holder.execute("SELECT pg_advisory_unlock(4711)")
    async with asyncio.timeout(5):
        jobs_claimed: list[Job] = []
        while len(jobs_claimed) < 3:
            jobs_claimed += await wire.jobs.claim(ANY, 9, session_id)
    assert {job.attempt for job in jobs_claimed} == {1}
    assert await wire.jobs.counts() == {"running": 3}


@pytest.mark.parametrize("mixed", [False, True])
async def test_acknowledge(wire: Wire, database: Database, mixed: bool) -> None:
    session_id = await a_session(database)
    await wire.jobs.enqueue([new_job() for _ in range(5)])
    a, b, c, d, e = await wire.jobs.claim(ANY, 5, session_id)
    dead = Discarded(d.job_id, d.lease_id, IDS.uuid7(), FAILURE)
    outcomes = [
        Completed(a.job_id, a.lease_id),
        Rescheduled(b.job_id, b.lease_id, 60.0, FAILURE),
        Cancelled(c.job_id, c.lease_id, "no"),
        dead,
        Completed(e.job_id, e.lease_id + 1),  # stale, and stays so
    ]
    if mixed:
        wire.cut(COMMIT)
        accepted = await wire.jobs.acknowledge(outcomes)
    else:
        accepted = set()
        for outcome in outcomes:
            wire.cut()
            accepted |= await wire.jobs.acknowledge([outcome])
    assert wire.proxy.cuts == (1 if mixed else 5)
    assert accepted == {a.job_id, b.job_id, c.job_id, d.job_id}
    assert await wire.jobs.counts() == {
        "completed": 1,
        "retryable": 1,
        "cancelled": 1,
        "discarded": 1,
        "running": 1,
    }
    assert len(await rows(database, "SELECT FROM dead_letter")) == 1
    (row,) = await rows(
        database, "SELECT jsonb_array_length(failures) AS n FROM job WHERE state = 'available'"
    )
    assert row["n"] == 1


async def test_an_outcome_that_stays_in_doubt_is_recognised_later(wire: Wire, database: Database) -> None:
    session_id = await a_session(database)
    await wire.jobs.enqueue([new_job()])
    (job,) = await wire.jobs.claim(ANY, 1, session_id)
    done = Completed(job.job_id, job.lease_id)
    wire.cut()
    writing = asyncio.create_task(wire.jobs.acknowledge([done]))
    while not wire.proxy.cuts:
        await asyncio.sleep(0.001)
    wire.proxy.stall()
    await asyncio.sleep(0.02)
    writing.cancel()
    with pytest.raises((asyncio.CancelledError, CommitInDoubtError)):
        await writing
    wire.proxy.flow()
    assert await wire.jobs.acknowledge([done]) == {job.job_id}
    assert await wire.jobs.acknowledge([done]) == set()


async def test_take_run(wire: Wire, database: Database) -> None:
    schedule_store = PostgresScheduleStore(wire.database)
    session_id = await a_session(database)
    await schedule_store.sync_schedules([Schedule("scan", "* * * * *", "token.scan", "fairlead")])
    (state,) = await schedule_store.schedules()
    run_at = state.last_run_at + timedelta(minutes=1)
    wire.cut()
    assert await schedule_store.record_run(
        "scan", state.last_run_at, run_at, 0, session_id, new_job("token.scan")
    )
    assert wire.proxy.cuts == 1
    assert (
        len(await rows(database, "SELECT FROM schedule_run"))
        == len(await rows(database, "SELECT FROM job"))
        == 1
    )
    assert not await schedule_store.record_run(
        "scan", state.last_run_at, run_at, 0, session_id, new_job("token.scan")
    )


async def test_pausing_resuming_and_removing_a_schedule(wire: Wire) -> None:
    schedule_store = PostgresScheduleStore(wire.database)
    await schedule_store.sync_schedules([Schedule("scan", "* * * * *", "token.scan", "fairlead")])
    wire.cut()
    assert await schedule_store.pause("scan", "ann", "why")
    wire.cut()
    assert await schedule_store.resume("scan", make_up=False)
    (state,) = await schedule_store.schedules()
    assert not state.paused
    wire.cut()
    await schedule_store.remove("scan")
    assert wire.proxy.cuts == 3
    assert await schedule_store.schedules() == []


async def test_redrive(wire: Wire, database: Database) -> None:
    session_id = await a_session(database)
    await wire.jobs.enqueue([new_job()])
    (job,) = await wire.jobs.claim(ANY, 1, session_id)
    dead = Discarded(job.job_id, job.lease_id, IDS.uuid7(), FAILURE)
    await wire.jobs.acknowledge([dead])
    entries = PostgresDeadLetterStore(wire.database)
    wire.cut()
    assert await entries.redrive(dead.dead_letter_id, new_job())
    assert wire.proxy.cuts == 1
    assert await wire.jobs.counts() == {"available": 1, "discarded": 1}
    entry = await entries.get(dead.dead_letter_id)
    assert entry is not None
    assert entry.replays == 1
    assert not await entries.redrive(dead.dead_letter_id, new_job())


async def test_sessions_and_audit(wire: Wire, database: Database) -> None:
    sessions, audit = PostgresSessionStore(wire.database, IDS), PostgresAuditStore(wire.database)
    session_id = IDS.uuid7()
    wire.cut()
    await sessions.open(session_id, identity(), 30.0, "1")
    wire.cut()
    await sessions.close(session_id)
    wire.cut()
    await audit.append([AuditRecord(IDS.uuid7(), "token.issued", "fairlead", "acme")])
    assert wire.proxy.cuts == 3
    assert [view.state for view in await sessions.search()] == ["stopped"]
    assert len(await audit.search(tenant="acme", limit=9)) == 1


async def test_statement_that_was_never_sent_is_not_retried(database: Database) -> None:
    """A caller in a web request gets its answer at once when the database is away."""
    await database.close()
    with pytest.raises(DependencyUnavailableError) as caught:
        await PostgresJobStore(database, IDS).enqueue([new_job()])
    assert not isinstance(caught.value, CommitInDoubtError)
