"""The queue under races of several clients, with exact counts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from uuid import UUID

import pytest

from fairlead.adapters.local.system import SystemIds
from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.dead_letters import PostgresDeadLetterStore
from fairlead.adapters.postgres.jobs import PostgresJobStore
from fairlead.adapters.postgres.worker_sessions import PostgresSessionStore
from fairlead.engine.ports import ClaimFilter, Completed, Discarded, FailureRecord, Job, NewJob, Rescheduled
from fairlead.errors import InvalidInputError, RefusedError
from tests.support.engine import new_job
from tests.support.passing_time import pass_time
from tests.support.rows import rows, run
from tests.support.seeds import a_session

IDS = SystemIds()
ANY = ClaimFilter()
FAILURE = FailureRecord("transient_server", "boom", "it failed", 0.5, 1)


@pytest.fixture
def jobs(database: Database) -> PostgresJobStore:
    return PostgresJobStore(database, IDS)


@pytest.fixture
async def clients(database_settings: DatabaseSettings) -> AsyncIterator[list[PostgresJobStore]]:
    """Eight processes, as far as the server can tell."""
    databases = [await Database.open(replace(database_settings, max_size=3)) for _ in range(8)]
    yield [PostgresJobStore(database, IDS) for database in databases]
    for database in databases:
        await database.close()


async def one_running(jobs: PostgresJobStore, session_id: UUID, **fields: object) -> Job:
    await jobs.enqueue([new_job(**fields)])
    (job,) = await jobs.claim(ANY, 1, session_id)
    return job


# ---- claims ----------------------------------------------------------------------------------------


async def test_claimers_never_share_a_job_and_leave_none(
    database: Database, jobs: PostgresJobStore, clients: list[PostgresJobStore]
) -> None:
    await jobs.enqueue([new_job(priority=i % 4) for i in range(1000)])
    session_id = await a_session(database)

    async def claim_all(client: PostgresJobStore) -> list[Job]:
        jobs_claimed: list[Job] = []
        while batch := await client.claim(ANY, 17, session_id):
            jobs_claimed += batch
        return jobs_claimed

    all_claimed = [job for part in await asyncio.gather(*map(claim_all, clients)) for job in part]
    rest = await jobs.claim(ANY, 1000, session_id)  # a claimer may see only rows that others hold, and stop
    all_claimed += rest
    assert len(all_claimed) == len({job.job_id for job in all_claimed}) == 1000
    assert len({job.lease_id for job in all_claimed}) == 1000
    assert all(0 <= job.lease_id < 2**63 for job in all_claimed)
    assert {job.attempt for job in all_claimed} == {1}


async def test_queues_take_turns(database: Database, jobs: PostgresJobStore) -> None:
    session_id = await a_session(database)
    await jobs.enqueue([new_job(queue=queue) for queue in ("a", "b") for _ in range(20)])
    both = ClaimFilter(queues=("a", "b"))
    firsts = {(await jobs.claim(both, 1, session_id))[0].queue for _ in range(2)}
    assert firsts == {"a", "b"}


@pytest.mark.parametrize("end", ["lost_at", "stopped_at"])
async def test_a_session_that_has_ended_gets_nothing(
    database: Database, jobs: PostgresJobStore, end: str
) -> None:
    session_id = await a_session(database)
    await run(database, f"UPDATE worker_session SET {end} = now()")
    await jobs.enqueue([new_job(), new_job("other")])
    assert await jobs.claim(ANY, 9, session_id) == []
    assert await jobs.claim(ClaimFilter(kinds=("other",)), 9, session_id) == []
    await run(database, "UPDATE job SET crash_count = 1")
    assert await jobs.claim_suspect(ANY, session_id) is None


async def test_claims_and_outcomes_under_way_with_rescues_lose_and_double_nothing(
    database: Database, clients: list[PostgresJobStore]
) -> None:
    """Every job is completed once, though a quarter of the claims is taken away before they are written."""
    await clients[0].enqueue([new_job() for _ in range(300)])
    accepted: list[UUID] = []

    async def work(client: PostgresJobStore, dies: bool) -> None:
        session_id = await a_session(database)
        sessions = PostgresSessionStore(client._database, IDS)
        dying = dies
        while batch := await client.claim(ANY, 10, session_id):
            if dying:
                await sessions.close(session_id)
                session_id = await a_session(database)
            dying = dies and not dying
            accepted.extend(await client.acknowledge([Completed(j.job_id, j.lease_id) for j in batch]))

    await asyncio.gather(*(work(client, dies=bool(i % 2)) for i, client in enumerate(clients)))
    await work(clients[0], dies=False)
    assert len(accepted) == len(set(accepted)) == 300
    assert await clients[0].counts() == {"completed": 300}


# ---- the fence -------------------------------------------------------------------------------------


async def test_a_write_after_the_rescue_is_refused_whatever_it_is(
    database: Database, jobs: PostgresJobStore
) -> None:
    session_id = await a_session(database)
    job = await one_running(jobs, session_id)
    await PostgresSessionStore(database, IDS).close(session_id)
    (again,) = await jobs.claim(ANY, 1, await a_session(database))
    assert (again.job_id, again.attempt) == (job.job_id, job.attempt)
    for outcome in (
        Completed(job.job_id, job.lease_id, "stale"),
        Rescheduled(job.job_id, job.lease_id, 0.0, FAILURE),
        Discarded(job.job_id, job.lease_id, IDS.uuid7(), FAILURE),
    ):
        assert await jobs.acknowledge([outcome]) == set()
    assert await jobs.acknowledge([Completed(again.job_id, again.lease_id, "right")]) == {job.job_id}
    (row,) = await rows(
        database, "SELECT result #>> '{}' AS result, jsonb_array_length(failures) AS n FROM job"
    )
    assert row == {"result": "right", "n": 0}
    assert await rows(database, "SELECT FROM dead_letter") == []


async def test_of_two_writes_of_one_lease_one_counts(
    database: Database, clients: list[PostgresJobStore]
) -> None:
    session_id = await a_session(database)
    for _ in range(20):
        job = await one_running(clients[0], session_id)
        done = Completed(job.job_id, job.lease_id)
        dead = Discarded(job.job_id, job.lease_id, IDS.uuid7(), FAILURE)
        answers = await asyncio.gather(clients[0].acknowledge([done]), clients[1].acknowledge([dead]))
        assert sorted(len(accepted) for accepted in answers) == [0, 1]
        entry = await PostgresDeadLetterStore(database).get(dead.dead_letter_id)
        assert (entry is None) == (answers[0] == {job.job_id})


async def test_history_keeps_the_last_twenty_failures(database: Database, jobs: PostgresJobStore) -> None:
    session_id = await a_session(database)
    await jobs.enqueue([new_job()])
    for n in range(25):
        (job,) = await jobs.claim(ANY, 1, session_id)
        failure = replace(FAILURE, attempt=n + 1)
        await jobs.acknowledge([Rescheduled(job.job_id, job.lease_id, 0.0, failure, {"transient_server": n})])
    view = await jobs.get(job.job_id)
    assert view is not None
    assert [line["attempt"] for line in view.failures] == list(range(6, 26))
    assert all(line["at"] for line in view.failures)


async def test_outcomes_are_written_together_or_not_at_all(
    database: Database, jobs: PostgresJobStore
) -> None:
    session_id = await a_session(database)
    await jobs.enqueue([new_job() for _ in range(8)])
    running = await jobs.claim(ANY, 8, session_id)
    outcomes = [Completed(job.job_id, job.lease_id) for job in running[1:]]
    nameless = replace(FAILURE, category="no such category")
    bad = Discarded(running[0].job_id, running[0].lease_id, IDS.uuid7(), nameless)
    with pytest.raises(InvalidInputError):
        await jobs.acknowledge([*outcomes[:3], bad, *outcomes[3:]])
    assert await jobs.counts() == {"running": 8}
    assert len(await jobs.acknowledge(outcomes)) == 7


# ---- unique keys -----------------------------------------------------------------------------------


async def test_fifty_enqueues_of_one_key_make_one_job_of_the_highest_priority(
    database: Database, clients: list[PostgresJobStore]
) -> None:
    requested = [new_job(unique_key="refresh:1", priority=i % 4) for i in range(50)]
    answers = await asyncio.gather(*(clients[i % 8].enqueue([job]) for i, job in enumerate(requested)))
    stored = [enqueued for (enqueued,) in answers]
    assert sum(enqueued.inserted for enqueued in stored) == 1
    (row,) = await rows(database, "SELECT job_id, priority FROM job")
    assert {enqueued.job_id for enqueued in stored} == {row["job_id"]}
    assert row["priority"] == 0


async def test_batches_of_the_same_keys_in_any_order_do_not_lock_each_other(
    database: Database, clients: list[PostgresJobStore]
) -> None:
    def batch(client: int) -> list[NewJob]:
        keys = range(100) if client % 2 else reversed(range(100))
        return [new_job(unique_key=f"k{key}", priority=3 - client // 2) for key in keys]

    answers = await asyncio.gather(*(client.enqueue(batch(i)) for i, client in enumerate(clients)))
    assert sum(enqueued.inserted for answer in answers for enqueued in answer) == 100
    (row,) = await rows(database, "SELECT count(*) AS n, max(priority) AS lowest FROM job")
    assert row == {"n": 100, "lowest": 0}


async def test_a_lapsed_key_is_free_for_exactly_one(
    database: Database, jobs: PostgresJobStore, clients: list[PostgresJobStore]
) -> None:
    job = await one_running(jobs, await a_session(database), unique_key="k", unique_for_s=100.0)
    await jobs.acknowledge([Completed(job.job_id, job.lease_id)])
    await pass_time(database, 101)
    answers = await asyncio.gather(*(client.enqueue([new_job(unique_key="k")]) for client in clients))
    assert sum(enqueued.inserted for (enqueued,) in answers) == 1
    assert len({enqueued.job_id for (enqueued,) in answers}) == 1


async def test_a_replay_inherits_the_key_of_the_job_that_died(
    database: Database, jobs: PostgresJobStore
) -> None:
    """An outbox id is sent once, though its first try died and a person sent it again."""
    session_id = await a_session(database)
    outbox = {"unique_key": "outbox-1", "unique_for_s": 1000.0}
    job = await one_running(jobs, session_id, **outbox)
    dead = Discarded(job.job_id, job.lease_id, IDS.uuid7(), FAILURE)
    await jobs.acknowledge([dead])
    assert not (await jobs.enqueue([new_job(**outbox)]))[0].inserted
    replay = new_job(unique_key="outbox-1")
    assert await PostgresDeadLetterStore(database).redrive(dead.dead_letter_id, replay)
    (job,) = await jobs.claim(ANY, 1, session_id)
    await jobs.acknowledge([Completed(job.job_id, job.lease_id)])
    (enqueued,) = await jobs.enqueue([new_job(**outbox)])
    assert (enqueued.job_id, enqueued.inserted) == (replay.job_id, False)
    await pass_time(database, 1001)
    assert (await jobs.enqueue([new_job(**outbox)]))[0].inserted


async def test_an_enqueue_that_finds_its_jobs_open_writes_nothing(
    database: Database, jobs: PostgresJobStore
) -> None:
    """A scan of 10,000 connections each minute must not rewrite what is there."""
    await jobs.enqueue([new_job(unique_key=f"k{i}") for i in range(10)])
    rows_before = await rows(database, "SELECT ctid::text, xmax::text FROM job ORDER BY job_id")
    await jobs.enqueue([new_job(unique_key=f"k{i}", priority=3) for i in range(10)])
    assert await rows(database, "SELECT ctid::text, xmax::text FROM job ORDER BY job_id") == rows_before


async def test_the_same_id_twice_is_refused(jobs: PostgresJobStore) -> None:
    job = new_job()
    await jobs.enqueue([job])
    with pytest.raises(InvalidInputError):
        await jobs.enqueue([job, new_job()])
    assert await jobs.counts() == {"available": 1}


# ---- the bound of dead letters (Q10) ---------------------------------------------------------------


async def test_a_full_queue_refuses_the_kinds_that_fill_it(database: Database) -> None:
    jobs = PostgresJobStore(database, IDS, bound=4)
    session_id = await a_session(database)
    for kind in ("bad", "bad", "bad", "good"):
        job = await one_running(jobs, session_id, kind=kind, provider="shopify")
        await jobs.acknowledge([Discarded(job.job_id, job.lease_id, IDS.uuid7(), FAILURE)])
    fresh = PostgresJobStore(database, IDS, bound=4)  # another process, or this one some seconds later
    with pytest.raises(RefusedError, match=r"'bad'.*acme.*shopify.*hint: ") as caught:
        await fresh.enqueue([new_job("good"), new_job("bad", provider="shopify")])
    assert caught.value.retry_after_s
    await fresh.enqueue([new_job("good"), new_job("bad", queue="other")])
    await run(database, "DELETE FROM dead_letter WHERE kind = 'good'")
    await PostgresJobStore(database, IDS, bound=4).enqueue([new_job("bad")])


# ---- waking ----------------------------------------------------------------------------------------


async def test_enqueueing_wakes_listeners_seldom_and_never_too_little(
    database: Database, jobs: PostgresJobStore
) -> None:
    payloads: list[str] = []
    more = asyncio.Event()

    def hear(queue: str) -> None:
        payloads.append(queue)
        more.set()

    async def hears(count: int) -> None:
        async with asyncio.timeout(5):
            while len(payloads) < count:
                more.clear()
                await more.wait()

    stop = await jobs.listen(hear)
    await hears(1)
    await jobs.enqueue([new_job(queue="mail") for _ in range(5)] + [new_job(delay_s=60.0)])
    await hears(2)
    for _ in range(100):
        await jobs.enqueue([new_job(queue="mail")])
    await jobs.close()
    await jobs.enqueue([new_job(queue="last")])
    await hears(3)
    while payloads[-1] != "last":
        await hears(len(payloads) + 1)
    assert payloads[:2] == ["", "mail"]
    assert payloads[-2:] == ["mail", "last"]  # the end of the burst was told, too
    assert len(payloads) < 60
    await stop()


async def test_a_store_that_may_not_notify_does_not(database: Database) -> None:
    quiet, loud = PostgresJobStore(database, IDS, notify=False), PostgresJobStore(database, IDS)
    payloads: list[str] = []
    ready = asyncio.Event()
    await loud.listen(lambda queue: (payloads.append(queue), ready.set())[1])
    await ready.wait()
    await quiet.enqueue([new_job(queue="unheard")])
    ready.clear()
    await loud.enqueue([new_job(queue="heard")])
    await ready.wait()
    assert payloads == ["", "heard"]
