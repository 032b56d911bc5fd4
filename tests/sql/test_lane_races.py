"""Who looks at a lane does not see all that happens to it: nothing is forgotten for that (R17)."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.driver import DatabaseConnection
from fairlead.adapters.postgres.job_rows import new_job_columns
from fairlead.adapters.postgres.statements import statement
from fairlead.engine.ports import ClaimFilter, GroupCap, NewJob, TenantShare
from tests.contract.lane_steps import LINGER_S, claim_jobs, done, drained, jobs_of, tenant
from tests.contract.postgres import PostgresStores, postgres_stores
from tests.contract.stores import ANY, a_session
from tests.support.engine import new_job
from tests.support.raw_connections import raw_connection
from tests.support.rows import rows, run

WAITS = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '/* pause_end */%'"


@pytest.fixture
def stores(database: Database) -> PostgresStores:
    return postgres_stores(database)


async def enqueue_by(connection: DatabaseConnection, job: NewJob) -> None:
    """Store *job* in the transaction of *connection*."""
    enqueue = statement("job_enqueue")
    await connection.fetch(enqueue.text, *enqueue.args(notify=False, **new_job_columns([job])))


async def an_empty_lane(stores: PostgresStores) -> UUID:
    """A session, and a lane that ran empty and will be forgotten at the next look."""
    session_id = await a_session(stores)
    await stores.jobs.enqueue([new_job()])
    await done(stores, await claim_jobs(stores, session_id))
    await stores.pass_time(2 * LINGER_S)
    return session_id


@pytest.mark.parametrize("delay_s", [0.0, 5.0], ids=["due", "delayed"])
async def test_a_lane_that_looks_empty_is_not_forgotten_while_a_job_is_being_stored(
    stores: PostgresStores, delay_s: float
) -> None:
    session_id = await an_empty_lane(stores)
    async with raw_connection(stores.database) as connection:
        await connection.execute("BEGIN")
        await enqueue_by(connection, new_job(delay_s=delay_s))
        for _ in range(3):  # the claim looks at the lane, and cannot see the job
            assert await stores.jobs.claim(ANY, 1, session_id) == []
        await connection.execute("COMMIT")
    assert len(await drained(stores, session_id)) == 1


async def test_an_empty_lane_is_forgotten_and_found_again(stores: PostgresStores) -> None:
    """What the test above would otherwise show: that lanes are never forgotten."""
    session_id = await an_empty_lane(stores)
    assert await stores.jobs.claim(ANY, 1, session_id) == []
    assert await rows(stores.database, "SELECT state FROM lane") == [{"state": "idle"}]
    assert await stores.jobs.next_due_in_s(ANY) is None
    await stores.jobs.enqueue([new_job()])
    assert len(await claim_jobs(stores, session_id)) == 1


async def test_a_pause_that_ends_while_a_lane_is_parked_for_it_wakes_that_lane(
    stores: PostgresStores,
) -> None:
    session_id = await a_session(stores)
    await stores.jobs.enqueue([new_job(tenant_id="a")])
    await stores.lanes.pause(tenant("a"), None, reason="429", by="test")
    await run(stores.database, "UPDATE lane SET wake_at = now()")  # another pause of it has just ended
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        async with raw_connection(stores.database) as connection:
            await connection.execute("BEGIN")
            await connection.execute("SELECT lane_wake_up(100)")  # parks it anew: the pause is in force
            resumed = group.create_task(stores.lanes.resume(tenant("a")))
            while not await rows(stores.database, WAITS):
                await asyncio.sleep(0.01)
            await connection.execute("COMMIT")
        assert await resumed
    assert len(await claim_jobs(stores, session_id)) == 1


@pytest.mark.parametrize("ends", ["COMMIT", "ROLLBACK"])
async def test_a_job_that_somebody_holds_stops_no_other(stores: PostgresStores, ends: str) -> None:
    """An open transaction has raised a waiting job's priority: it is passed over, and found afterwards."""
    session_id = await a_session(stores)
    held_job = new_job(tenant_id="a", unique_key="k")
    await stores.jobs.enqueue([held_job])
    others = [new_job(tenant_id=name) for name in "abb"]
    await stores.jobs.enqueue(others)
    await run(stores.database, "UPDATE job SET run_at = run_at - interval '1 minute'")
    await run(stores.database, "UPDATE job SET run_at = run_at - interval '1 s' WHERE unique_key = 'k'")
    async with raw_connection(stores.database) as connection:
        await connection.execute("BEGIN")
        await enqueue_by(connection, new_job(tenant_id="a", unique_key="k", priority=0))
        claimed = await claim_jobs(stores, session_id)
        assert {job.job_id for job in claimed} == {job.job_id for job in others}
        await connection.execute(ends)
    (last,) = await drained(stores, session_id)
    assert (last.job_id, last.priority) == (held_job.job_id, 0 if ends == "COMMIT" else held_job.priority)


@pytest.mark.parametrize(("locked", "demand"), [(2, 1), (30, 10)])
async def test_held_jobs_at_the_head_of_a_lane_stop_no_other_tenant(
    stores: PostgresStores, locked: int, demand: int
) -> None:
    session_id = await a_session(stores)
    await stores.jobs.enqueue([*jobs_of("a", 60), *jobs_of("b", 200)])
    async with raw_connection(stores.database) as connection:
        await connection.execute("BEGIN")
        await connection.execute(
            "UPDATE job SET tags = '{x}' WHERE job_id IN"
            f" (SELECT job_id FROM job WHERE tenant_id = 'a' ORDER BY run_at, job_id LIMIT {locked})"
        )
        for _ in range(8):
            assert len(await stores.jobs.claim(ANY, demand, session_id)) == demand
        await connection.execute("ROLLBACK")
    await stores.pass_time(LINGER_S + 0.1)
    assert len(await drained(stores, session_id)) == 260 - 8 * demand


async def test_a_late_job_asks_for_the_lane_that_is_being_served(stores: PostgresStores) -> None:
    """Who serves it may set a mark beyond a job that he does not see: the wake-up stays until he is done."""
    await stores.jobs.enqueue([new_job()])
    late = "INSERT INTO lane_wake SELECT lane_id, now() - interval '5 seconds' FROM lane"
    async with raw_connection(stores.database) as connection:
        await connection.execute("BEGIN")
        await connection.execute("SELECT FROM lane FOR UPDATE")
        await run(stores.database, late)
        await run(stores.database, "SELECT lane_wake_up(200)")
        assert len(await rows(stores.database, "SELECT FROM lane_wake")) == 1
        await connection.execute("UPDATE lane SET mark_at = now() - interval '1 second'")
        await connection.execute("COMMIT")
    await run(stores.database, "SELECT lane_wake_up(200)")
    behind = "SELECT FROM lane WHERE mark_at <= now() - interval '4 seconds'"
    assert len(await rows(stores.database, behind)) == 1
    assert await rows(stores.database, "SELECT FROM lane_wake") == []


async def test_a_tenant_at_its_cap_with_many_groups_uses_the_place_that_gets_free(
    stores: PostgresStores,
) -> None:
    session_id = await a_session(stores)
    await stores.lanes.set_tenant(TenantShare("a", max_running=1))
    await stores.jobs.enqueue([new_job(tenant_id="a", group_key=f"g{n}") for n in range(300)])
    running = await stores.jobs.claim(ANY, 200, session_id)
    await stores.jobs.enqueue([new_job(tenant_id="b")])
    for _ in range(5):
        assert sum(job.tenant_id == "a" for job in running) == 1
        await done(stores, running)
        running = await stores.jobs.claim(ANY, 200, session_id)


async def test_a_job_stored_while_its_lane_waits_for_a_later_one_need_not_wait_for_that(
    stores: PostgresStores,
) -> None:
    """Who stores it sees a lane that is ready; who claims does not see the job, and parks the lane."""
    session_id = await a_session(stores)
    await stores.jobs.enqueue([new_job(delay_s=600.0), new_job()])
    async with raw_connection(stores.database) as connection:
        await connection.execute("BEGIN")
        await enqueue_by(connection, new_job())
        assert len(await stores.jobs.claim(ANY, 10, session_id)) == 1
        await connection.execute("COMMIT")
    await stores.pass_time(LINGER_S + 0.1)
    assert len(await stores.jobs.claim(ANY, 10, session_id)) == 1


@pytest.mark.parametrize("lanes", [1, 100])
async def test_a_cap_that_somebody_counts_holds_up_no_other_work(stores: PostgresStores, lanes: int) -> None:
    session_id = await a_session(stores)
    await stores.lanes.set_group_cap(GroupCap("g", None, 1))
    await stores.jobs.enqueue([new_job(tenant_id=f"t{n}", group_key="g", priority=1) for n in range(lanes)])
    await stores.jobs.enqueue([new_job(tenant_id="b", priority=3), new_job(tenant_id="c", queue="other")])
    claim_filter = ClaimFilter(queues=("default", "other"))
    async with raw_connection(stores.database) as connection:
        await connection.execute("BEGIN")
        await connection.execute("SELECT FROM concurrency_cap FOR UPDATE")
        claimed = await stores.jobs.claim(claim_filter, 10, session_id)
        await connection.execute("ROLLBACK")
    assert sorted(job.tenant_id for job in claimed) == ["b", "c"]
    assert len(await stores.jobs.claim(claim_filter, 10, session_id)) == 1


async def test_a_pause_that_waits_holds_up_no_claim(stores: PostgresStores) -> None:
    """It keeps out who makes lanes; a claim that was to make one leaves that to the next."""
    session_id = await a_session(stores)
    await stores.jobs.enqueue([new_job(tenant_id="a")])
    async with raw_connection(stores.database) as connection:
        await connection.execute("BEGIN")
        await connection.execute("LOCK lane_name IN SHARE MODE")
        await run(stores.database, "SELECT fairlead_enqueue('k', 'new')")
        assert len(await stores.jobs.claim(ANY, 10, session_id)) == 1
        await connection.execute("COMMIT")
    assert [job.tenant_id for job in await drained(stores, session_id)] == ["new"]
