"""Rescue, suspects and runs across processes: once, exactly, and never of the living (R1-R4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import asyncpg
import pytest

from fairlead.adapters.local.system import SystemIds
from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.dead_letters import PostgresDeadLetterStore
from fairlead.adapters.postgres.jobs import PostgresJobStore
from fairlead.adapters.postgres.schedule_runs import PostgresScheduleStore
from fairlead.adapters.postgres.worker_sessions import PostgresSessionStore
from fairlead.engine.ports import ClaimFilter, Completed, Rescue, Schedule
from tests.contract.stores import identity
from tests.support.engine import new_job
from tests.support.passing_time import pass_time
from tests.support.plans import touched
from tests.support.raw_connections import raw_connection_of
from tests.support.rows import rows, run

IDS = SystemIds()
ANY = ClaimFilter()
LEASE_S = 30.0


@pytest.fixture
async def databases(database_settings: DatabaseSettings) -> AsyncIterator[list[Database]]:
    """Eight processes, as far as the server can tell."""
    opened = [await Database.open(replace(database_settings, max_size=2)) for _ in range(8)]
    yield opened
    for database in opened:
        await database.close()


async def opened_session(database: Database, pid: int = 1) -> UUID:
    session_id = IDS.uuid7()
    await PostgresSessionStore(database, IDS).open(session_id, identity(pid), LEASE_S, "1")
    return session_id


async def steady(database: Database, survivor: UUID, total_s: float, every_s: float = 5.0) -> list[Rescue]:
    """Time goes by with a pass each *every_s* seconds and a heartbeat of *survivor*; what the passes did."""
    sessions = PostgresSessionStore(database, IDS)
    done: list[Rescue] = []
    for _ in range(round(total_s / every_s)):
        await pass_time(database, every_s)
        assert await sessions.heartbeat(survivor)
        result = await sessions.rescue(survivor, every_s / 2, 3, 1000)
        assert result is not None
        done.append(result)
    return done


async def test_a_heartbeat_looks_up_no_type_on_a_new_connection(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """asyncpg looks one up in several round trips, which over a slow wire take longer than a renewal may."""
    session_id = await opened_session(database)
    introspected: list[object] = []

    async def introspect(_connection: object, typeoids: object, _timeout: object) -> object:
        introspected.append(typeoids)
        raise AssertionError("a type was looked up")

    await database._pool.expire_connections()
    monkeypatch.setattr(asyncpg.Connection, "_introspect_types", introspect)
    assert await PostgresSessionStore(database, IDS).heartbeat(session_id, [IDS.uuid7()])
    assert not introspected


async def test_recovery_takes_a_lease_and_one_pass(database: Database) -> None:
    """Q3: an expired lease is rescued within lease + 5 s."""
    survivor = await opened_session(database)
    await steady(database, survivor, 2 * LEASE_S)
    victim = await opened_session(database, 2)
    jobs = PostgresJobStore(database, IDS)
    await jobs.enqueue([new_job() for _ in range(3)])
    await jobs.claim(ANY, 3, victim)
    passes = await steady(database, survivor, LEASE_S + 5.0)
    assert [result.rescued for result in passes[:5]] == [0] * 5  # not before its lease has passed
    assert sum(result.rescued for result in passes) == 3
    assert all(result.ready for result in passes)


async def test_eight_rescuers_at_once_rescue_once(database: Database, databases: list[Database]) -> None:
    survivor = await opened_session(database)
    await steady(database, survivor, 2 * LEASE_S)
    victim = await opened_session(database, 2)
    jobs = PostgresJobStore(database, IDS)
    await jobs.enqueue([new_job() for _ in range(50)])
    await jobs.claim(ANY, 50, victim)
    await PostgresSessionStore(database, IDS).mark_dead([victim])
    for every_s in (5.0, 0.0):  # one pass in its time; and all of them, one after the other
        await pass_time(database, 5.0)
        passes = await asyncio.gather(
            *(PostgresSessionStore(d, IDS).rescue(survivor, every_s, 3, 20) for d in databases)
        )
        done = [result for result in passes if result is not None]
        if every_s:
            assert [result.rescued for result in done] == [20]
    (row,) = await rows(
        database, "SELECT count(*) FILTER (WHERE crash_count = 1) AS once, max(crash_count) AS most FROM job"
    )
    assert row["most"] == 1
    assert row["once"] == 20 + sum(result.rescued for result in done)


async def test_a_heartbeat_under_way_saves_its_session(database: Database, databases: list[Database]) -> None:
    """The rescuer waits for the row that the heartbeat holds, and looks at it again."""
    survivor = await opened_session(database)
    await steady(database, survivor, 2 * LEASE_S)
    late = await opened_session(database, 2)
    await run(database, "UPDATE worker_session SET heartbeat_at = now() - interval '40 s' WHERE pid = 2")
    await pass_time(database, 5.0)
    async with databases[0].transaction() as transaction:
        beat = "UPDATE worker_session SET heartbeat_at = now() WHERE session_id = $1"
        await raw_connection_of(transaction).execute(beat, late)
        rescue = asyncio.create_task(PostgresSessionStore(databases[1], IDS).rescue(survivor, 1.0, 3, 100))
        blocked = (
            "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '/* session_rescue%'"
        )
        while not await rows(database, blocked):
            await asyncio.sleep(0.005)
    done = await rescue
    assert done is not None
    assert (done.ready, done.sessions) == (True, 0)
    assert await PostgresSessionStore(database, IDS).heartbeat(late)


async def test_nothing_is_rescued_after_a_restart_or_fail_over(database: Database) -> None:
    """R2: then every owner looks dead. A jump of the clock looks the same."""
    survivor, other = await opened_session(database), await opened_session(database, 2)
    jobs = PostgresJobStore(database, IDS)
    await jobs.enqueue([new_job()])
    await jobs.claim(ANY, 1, other)
    await steady(database, survivor, 2 * LEASE_S - 30)
    sessions = PostgresSessionStore(database, IDS)
    for change in (
        "UPDATE maintenance_run SET server_started_at = server_started_at - interval '1 second'",
        "UPDATE maintenance_run SET last_at = last_at - interval '16 seconds'",
        "UPDATE maintenance_run SET last_at = last_at + interval '1 hour'",
    ):
        await run(database, change)
        await run(database, "UPDATE worker_session SET heartbeat_at = now() - interval '31 s' WHERE pid = 2")
        done = await sessions.rescue(survivor, 0.0, 3, 100)
        assert done is not None
        assert (done.ready, done.sessions, done.rescued) == (False, 0, 0)
        assert await sessions.heartbeat(other)
        await steady(database, survivor, 5.0)
        assert await sessions.heartbeat(other)


async def test_presumed_dead_session_rescues_no_jobs(database: Database) -> None:
    survivor, lost = await opened_session(database), await opened_session(database, 2)
    sessions = PostgresSessionStore(database, IDS)
    await sessions.mark_dead([lost])
    assert await sessions.rescue(lost, 0.0, 3, 100) is None
    await sessions.close(survivor)
    assert await sessions.rescue(survivor, 0.0, 3, 100) is None


async def test_a_crash_costs_neighbours_no_attempt_and_the_poison_its_life(database: Database) -> None:
    """Three crashes: the job that is alone in flight dies, the others run on as if nothing had been."""
    survivor = await opened_session(database)
    jobs, sessions = PostgresJobStore(database, IDS), PostgresSessionStore(database, IDS)
    poison, neighbour = new_job("poison"), new_job("neighbour", expires_in_s=1000.0)
    await jobs.enqueue([poison, neighbour])
    first = await opened_session(database, 2)
    assert len(await jobs.claim(ANY, 9, first)) == 2
    for crash in range(3):
        victim = first if crash == 0 else await opened_session(database, 2 + crash)
        if crash:
            suspect = await jobs.claim_suspect(ClaimFilter(kinds=("poison",)), victim)
            assert suspect is not None
            assert await jobs.start_suspect(suspect.job_id, suspect.lease_id)
        await sessions.mark_dead([victim])
        assert await sessions.rescue(survivor, 0.0, 3, 100) is not None
    suspect = await jobs.claim_suspect(ANY, survivor)
    assert suspect is not None
    assert (suspect.job_id, suspect.attempt, suspect.crash_count) == (neighbour.job_id, 1, 1)
    await jobs.start_suspect(suspect.job_id, suspect.lease_id)
    assert await jobs.acknowledge([Completed(suspect.job_id, suspect.lease_id)])
    (entry,) = await PostgresDeadLetterStore(database).due(9)
    assert (entry.kind, entry.code, entry.category) == ("poison", "poison", "transient_server")
    assert "3 times" in entry.reason
    assert [line["code"] for line in entry.history] == ["crashed", "crashed", "poison"]
    (row,) = await rows(database, "SELECT attempt, crash_count FROM job WHERE kind = 'neighbour'")
    assert row == {"attempt": 1, "crash_count": 0}


async def test_a_replay_that_kills_its_worker_reopens_its_entry(database: Database) -> None:
    survivor, victim = await opened_session(database), await opened_session(database, 2)
    jobs, entries = PostgresJobStore(database, IDS), PostgresDeadLetterStore(database)
    await jobs.enqueue([new_job(expires_in_s=10.0)])
    await pass_time(database, 11)
    assert await jobs.expire_due(9) == 1
    (entry,) = await entries.due(9)
    assert await entries.redrive(entry.dead_letter_id, new_job())
    assert len(await jobs.claim(ANY, 9, victim)) == 1
    sessions = PostgresSessionStore(database, IDS)
    await sessions.mark_dead([victim])
    done = await sessions.rescue(survivor, 0.0, 1, 100)
    assert done is not None
    assert (done.rescued, done.dead) == (0, 1)
    (again,) = await entries.due(9)
    assert (again.dead_letter_id, again.code, again.replay_job_id) == (entry.dead_letter_id, "poison", None)
    assert [line["code"] for line in again.history] == ["expired", "poison"]


async def test_closing_frees_leases_at_once_and_is_no_crash(database: Database) -> None:
    leaver = await opened_session(database)
    jobs = PostgresJobStore(database, IDS)
    await jobs.enqueue([new_job(), new_job()])
    claimed_jobs = await jobs.claim(ANY, 2, leaver)
    await PostgresSessionStore(database, IDS).close(leaver)
    again = await jobs.claim(ANY, 2, await opened_session(database, 2))
    assert {job.job_id for job in again} == {job.job_id for job in claimed_jobs}
    assert {(job.attempt, job.crash_count) for job in again} == {(1, 0)}


async def test_each_run_is_taken_by_one_of_eight_processes(
    database: Database, databases: list[Database]
) -> None:
    session_id = await opened_session(database)
    stores = [PostgresScheduleStore(d) for d in databases]
    await asyncio.gather(
        *(store.sync_schedules([Schedule("scan", "* * * * *", "token.scan", "fairlead")]) for store in stores)
    )
    (state,) = await stores[0].schedules()
    seen_at = state.last_run_at
    for n in range(1, 31):
        run_at = state.last_run_at + timedelta(minutes=n)
        results = await asyncio.gather(
            *(s.record_run("scan", seen_at, run_at, 0, session_id, new_job("token.scan")) for s in stores)
        )
        assert sum(results) == 1
        seen_at = run_at
    (row,) = await rows(
        database,
        "SELECT count(*) AS duties, count(DISTINCT run_at) AS runs, count(DISTINCT job_id) AS jobs,"
        " (SELECT count(*) FROM job) AS stored FROM schedule_run",
    )
    assert row == {"duties": 30, "runs": 30, "jobs": 30, "stored": 30}


async def test_a_paused_schedule_takes_no_run(database: Database) -> None:
    schedule_store = PostgresScheduleStore(database)
    await schedule_store.sync_schedules(
        [Schedule("scan", "* * * * *", "token.scan", "fairlead", paused=True)]
    )
    (state,) = await schedule_store.schedules()
    run_at = state.last_run_at + timedelta(minutes=1)
    assert not await schedule_store.record_run(
        "scan", state.last_run_at, run_at, 0, IDS.uuid7(), new_job("token.scan")
    )
    assert await rows(database, "SELECT FROM job") == []


async def test_syncing_what_has_not_changed_writes_nothing(database: Database) -> None:
    schedule_store = PostgresScheduleStore(database)
    schedule = Schedule("scan", "* * * * *", "token.scan", "fairlead", args={"b": 1, "a": [2]})
    await schedule_store.sync_schedules([schedule])
    rows_before = await rows(database, "SELECT ctid::text, updated_at FROM schedule")
    await schedule_store.sync_schedules([schedule])
    assert await rows(database, "SELECT ctid::text, updated_at FROM schedule") == rows_before


async def test_sessions_that_have_ended_cost_a_rescue_nothing(databases: list[Database]) -> None:
    """Each command leaves one for a week; what an ended one still holds is given back all the same."""
    database = databases[0]
    session_id, stopped = await opened_session(database), await opened_session(database, pid=2)
    await run(
        database,
        "INSERT INTO worker_session (session_id, host, boot_id, pid_namespace, pid, process_started, version,"
        " lease, stopped_at) SELECT gen_random_uuid(), 'h', 'b', 'n', n, '0', '0', '30 s', now()"
        " FROM generate_series(1, 5000) AS n",
    )
    await run(database, "ANALYZE worker_session")
    jobs = PostgresJobStore(database, IDS)
    await jobs.enqueue([new_job()])
    assert len(await jobs.claim(ANY, 1, stopped)) == 1
    await run(database, "UPDATE worker_session SET stopped_at = now() WHERE session_id = $1", stopped)
    values = {"session_id": session_id, "every_s": 0.0, "max_crashes": 3, "dead_letter_ids": [IDS.uuid7()]}
    for generic in (False, True):
        read = await touched(database, "session_rescue", generic=generic, **values)
        assert read["worker_session"][0] < 50, generic
    done = await PostgresSessionStore(database, IDS).rescue(session_id, 0.0, 3, 100)
    assert done is not None
    assert done.rescued == 1


async def test_a_rescue_does_not_walk_along_what_runs_unless_a_process_has_ended(
    databases: list[Database],
) -> None:
    """Under an old snapshot the index keeps all that ever ran, and a pass comes every few seconds.

    Once a minute a pass looks all the same, for what no earlier one could have.
    """
    database = databases[0]
    session_id, ended = await opened_session(database), await opened_session(database, pid=2)
    jobs = PostgresJobStore(database, IDS)
    await jobs.enqueue([new_job() for _ in range(40)])
    assert len(await jobs.claim(ANY, 40, session_id)) == 40
    await run(
        database, "UPDATE worker_session SET stopped_at = now() - interval '1 h' WHERE session_id = $1", ended
    )
    values = {"session_id": session_id, "every_s": 0.0, "max_crashes": 3, "dead_letter_ids": [IDS.uuid7()]}

    async def walks(last_at: str, stopped_at: str) -> bool:
        await run(database, f"UPDATE maintenance_run SET last_at = {last_at} WHERE name = 'rescue'")
        await run(
            database, f"UPDATE worker_session SET stopped_at = {stopped_at} WHERE stopped_at IS NOT NULL"
        )
        read = await touched(database, "session_rescue", generic=True, **values)
        return read.get("job", (0, 0))[0] > 0

    await PostgresSessionStore(database, IDS).rescue(session_id, 0.0, 3, 100)
    await run(  # not across the end of a minute
        database, "SELECT pg_sleep(CASE WHEN extract(second FROM now()) > 55 THEN 5.1 ELSE 0 END)"
    )
    assert not await walks("now()", "now() - interval '1 h'")
    assert await walks("now()", "now() - interval '5 min'")
    assert await walks("now() - interval '1 min'", "now() - interval '1 h'")
