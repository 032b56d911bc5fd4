"""What an enqueue does while a job of its unique key runs, and what it says of its key, on each way in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import asyncpg
import psycopg
import pytest

from fairlead.adapters.postgres.caller_transactions import PostgresCallerJobs
from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.jobs import PostgresJobStore
from fairlead.engine.ports import Completed, Enqueued, NewJob
from fairlead.policy.jobs.job import UniqueWhile
from tests.contract.stores import ANY
from tests.support.databases import SCHEMA
from tests.support.engine import IDS, new_job
from tests.support.rows import rows
from tests.support.seeds import a_session

ENQUEUE = f'"{SCHEMA}".fairlead_enqueue'


class World:
    """A store, a caller's connection, and the function on it."""

    def __init__(self, database: Database, session_id: UUID, theirs: Any, dsn: str) -> None:
        self.database = database
        self.jobs = PostgresJobStore(database, IDS)
        self.callers = PostgresCallerJobs(schema=SCHEMA, bound=10_000)
        self.session_id = session_id
        self.theirs = theirs
        self.dsn = dsn

    async def run_of(self, key: str = "k") -> Any:
        """Return a new job of *key* that runs."""
        await self.jobs.enqueue([new_job(unique_key=key)])
        (job,) = await self.jobs.claim(ANY, 9, self.session_id)
        return job

    async def by_store(self, job: NewJob) -> Enqueued:
        """Enqueue without a transaction."""
        return (await self.jobs.enqueue([job]))[0]

    async def by_transaction(self, job: NewJob) -> Enqueued:
        """Enqueue in a transaction of the caller's, of asyncpg."""
        async with self.theirs.transaction():
            return (await self.callers.store(self.theirs, [job]))[0]

    async def by_blocking(self, job: NewJob) -> Enqueued:
        """Enqueue in a transaction of the caller's, of psycopg in code that blocks."""

        def blocking() -> Enqueued:
            with psycopg.connect(self.dsn) as connection:
                return self.callers.store_blocking(connection, [job])[0]

        return await asyncio.to_thread(blocking)

    async def by_function(self, job: NewJob) -> Enqueued:
        """Call the SQL function."""
        async with self.theirs.transaction():
            job_id = await self.theirs.fetchval(
                f"SELECT {ENQUEUE}($1, $2, unique_key => $3, unique_while => $4, unique_for_s => $5,"
                " job_id => $6)",
                job.kind,
                job.tenant_id,
                job.unique_key,
                job.unique_while,
                job.unique_for_s,
                job.job_id,
            )
            key_state = await self.theirs.fetchval("SELECT current_setting('fairlead.key_state')")
        return Enqueued(job_id, job_id == job.job_id, key_state)


METHODS = ("by_store", "by_transaction", "by_blocking", "by_function")


@pytest.fixture
async def world(database: Database, database_settings: DatabaseSettings) -> AsyncIterator[World]:
    theirs = await asyncpg.connect(database_settings.dsn)
    yield World(database, await a_session(database), theirs, database_settings.dsn)
    await theirs.close(timeout=5)


async def enqueue_unique(
    world: World, method: str, unique_while: UniqueWhile = "follow_up", **fields: Any
) -> Enqueued:
    """Enqueue a job of the key ``k``."""
    enqueued: Enqueued = await getattr(world, method)(
        new_job(**({"unique_key": "k", "unique_while": unique_while} | fields))
    )
    return enqueued


@pytest.mark.parametrize("method", METHODS)
async def test_each_way_in_knows_each_choice_and_says_what_its_key_met(world: World, method: str) -> None:
    running = await world.run_of()
    assert await enqueue_unique(world, method, "open") == Enqueued(running.job_id, False, "running")
    beside = await enqueue_unique(world, method, "waiting")
    assert (beside.inserted, beside.key_state) == (True, "running")
    for choice in ("waiting", "open", "follow_up"):
        assert await enqueue_unique(world, method, choice) == Enqueued(beside.job_id, False, "waiting")
    jobs = [job for _ in range(2) for job in await world.jobs.claim(ANY, 9, world.session_id)]
    assert beside.job_id in {job.job_id for job in jobs}
    follower = await enqueue_unique(world, method)
    assert (follower.inserted, follower.key_state) == (True, "running")
    assert await enqueue_unique(world, method, "waiting") == Enqueued(follower.job_id, False, "waiting")
    waits = "SELECT run_at > now() AS waits FROM job WHERE job_id = $1"
    assert await rows(world.database, waits, follower.job_id) == [{"waits": True}]
    kept_job = await enqueue_unique(world, method, unique_key="kept", unique_for_s=60.0)
    assert kept_job.key_state == "none"
    jobs = await world.jobs.claim(ANY, 9, world.session_id)
    assert await enqueue_unique(world, method, unique_key="kept") == Enqueued(
        kept_job.job_id, False, "running"
    )
    await world.jobs.acknowledge([Completed(job.job_id, job.lease_id) for job in jobs])
    assert await enqueue_unique(world, method, unique_key="kept") == Enqueued(
        kept_job.job_id, False, "finished"
    )
    assert (await enqueue_unique(world, method, unique_key=None)).key_state == "none"


@pytest.mark.parametrize("method", METHODS)
async def test_a_run_whose_follower_is_gone_is_followed_on_each_way_in(world: World, method: str) -> None:
    running = await world.run_of()
    expired = await enqueue_unique(world, method)
    await world.jobs.cancel(expired.job_id, "no longer wanted")
    assert await enqueue_unique(world, method, "open") == Enqueued(running.job_id, False, "running")
    follower = await enqueue_unique(world, method)
    assert (follower.inserted, follower.key_state) == (True, "running")
    assert await world.jobs.claim(ANY, 9, world.session_id) == []
    await world.jobs.acknowledge([Completed(running.job_id, running.lease_id)])
    assert [job.job_id for job in await world.jobs.claim(ANY, 9, world.session_id)] == [follower.job_id]


async def test_a_follower_that_goes_before_the_commit_is_replaced_by_one_that_follows(world: World) -> None:
    """The caller was told that one waits; when it commits, only the run is left."""
    running = await world.run_of()
    expired = await enqueue_unique(world, "by_store")
    async with world.theirs.transaction():
        (enqueued,) = await world.callers.store(world.theirs, [new_job(unique_key="k")])
        assert enqueued == Enqueued(expired.job_id, False, "waiting")
        await world.jobs.cancel(expired.job_id, "no longer wanted")
    assert await world.jobs.claim(ANY, 9, world.session_id) == []
    await world.jobs.acknowledge([Completed(running.job_id, running.lease_id)])
    assert len(await world.jobs.claim(ANY, 9, world.session_id)) == 1


async def test_a_transaction_that_asks_twice_is_told_of_its_own_job(world: World) -> None:
    await world.run_of()
    async with world.theirs.transaction():
        (first,) = await world.callers.store(world.theirs, [new_job(unique_key="k")])
        (second,) = await world.callers.store(world.theirs, [new_job(unique_key="k", unique_while="open")])
        (third,) = await world.callers.store(world.theirs, [new_job(unique_key="k")])
    assert (first.key_state, second.key_state, third.key_state) == ("running", "running", "waiting")
    assert third.job_id == first.job_id
    assert await world.jobs.claim(ANY, 9, world.session_id) == []


@pytest.mark.parametrize("is_running", [False, True])
async def test_an_enqueue_that_waited_for_another_says_what_it_then_met(
    world: World, is_running: bool
) -> None:
    """The key is taken after its statement began; meanwhile that job may even have begun."""
    first = new_job(unique_key="k")
    transaction = world.theirs.transaction()
    await transaction.start()
    await world.callers.store(world.theirs, [first])
    waiting = asyncio.create_task(enqueue_unique(world, "by_store"))
    async with asyncio.timeout(20):
        while not await rows(
            world.database, "SELECT FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"
        ):
            await asyncio.sleep(0.01)
    if is_running:
        await world.theirs.execute(
            f"UPDATE \"{SCHEMA}\".job SET state = 'running', lease_id = 1, session_id = gen_random_uuid(),"
            " started_at = now()"
        )
    await transaction.commit()
    assert await waiting == Enqueued(first.job_id, False, "running" if is_running else "waiting")


async def test_many_at_once_are_told_of_one_follower(world: World) -> None:
    """One of them stores it and met the run; all others met that one."""
    await world.run_of()
    results = await asyncio.gather(*(enqueue_unique(world, "by_store") for _ in range(8)))
    assert sorted(result.key_state for result in results) == ["running"] + ["waiting"] * 7
    assert sorted(result.inserted for result in results) == [False] * 7 + [True]
    assert len({result.job_id for result in results}) == 1


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("'wating'", "the nearest is waiting"),
        ("'Open'", "the nearest is open"),
        ("'followup'", "the nearest is follow_up"),
        ("NULL", "use follow_up, waiting or open"),
        ("'open', unique_key => NULL", "give a unique_key, too"),
    ],
)
async def test_the_function_refuses_another_choice_with_the_nearest(
    world: World, arguments: str, expected: str
) -> None:
    key = "" if "unique_key" in arguments else ", unique_key => 'k'"
    with pytest.raises(asyncpg.InvalidParameterValueError, match=expected):
        await world.theirs.fetchval(f"SELECT {ENQUEUE}('work', 'acme', unique_while => {arguments}{key})")
    assert await rows(world.database, "SELECT FROM job") == []
