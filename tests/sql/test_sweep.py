"""The upkeep of lanes: done once across the fleet, and a net under everything else (Q6, R17)."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from fairlead.adapters.postgres import lanes as lanes_module
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.jobs import PostgresJobStore
from fairlead.adapters.postgres.lanes import PostgresLaneStore
from fairlead.engine.ports import GroupCap, Swept, TenantShare
from fairlead.errors import DependencyUnavailableError
from fairlead.policy.jobs.lane import Scope, ScopeKind
from tests.sql.test_lanes import ACME, REASON_AND_ACTOR, claim_jobs, jobs, lanes, session_id  # noqa: F401 - fixtures
from tests.support.engine import new_job
from tests.support.passing_time import pass_time
from tests.support.raw_connections import raw_connection_of
from tests.support.rows import rows, run

# ruff: noqa: F811 - the fixtures that are imported

OLD = """
INSERT INTO lane
    (lane_id, vtime, served_at, priority, level, state, tenant_id, queue, kind, provider, group_key)
SELECT gen_random_uuid(), 0, now() - interval '25 hours', 2, 2, 'idle', 't' || i, 'default', 'k', '', ''
FROM generate_series(1, 25000) AS i
"""

CALLS = "SELECT pg_stat_get_xact_function_calls($1::regproc)"
RIGHT = """
SELECT count(*) FROM lane WHERE (stride, capped, park_reason) IS NOT DISTINCT FROM (
    CASE tenant_id WHEN 't0' THEN 250 ELSE 1000 END, tenant_id = 't1',
    CASE tenant_id WHEN 't2' THEN 'pause' END)
"""


async def test_sweep_runs_in_one_of_eight_processes_even_after_a_clock_step_back(
    database: Database, lanes: PostgresLaneStore
) -> None:
    for upkeep, not_due in ((lanes.sweep, None), (lanes.raise_floors, False)):
        done = await asyncio.gather(*(upkeep(30.0) for _ in range(8)))
        assert done.count(not_due) == 7
        await pass_time(database, 29.0)
        assert await upkeep(30.0) is not_due
        await pass_time(database, 2.0)
        assert await upkeep(30.0) is not not_due
        await run(database, "UPDATE maintenance_run SET last_at = now() + interval '1 day'")
        assert await upkeep(30.0) is not not_due


async def test_lane_sweep_takes_at_most_a_hundredth_of_the_time(
    database: Database, lanes: PostgresLaneStore
) -> None:
    """At most a hundredth of the time, though each connection with a refresh job is a lane."""
    assert await lanes.sweep(15.0, 0.01) is not None
    for cost_s, due_s in ((0.1, 15.0), (2.0, 200.0), (500.0, 3600.0)):
        await run(database, "UPDATE maintenance_run SET cost_s = $1", cost_s)
        await pass_time(database, due_s - 1.0)
        assert await lanes.sweep(15.0, 0.01) is None, cost_s
        await pass_time(database, 2.0)
        assert await lanes.sweep(15.0, 0.01) is not None, cost_s
    (row,) = await rows(database, "SELECT cost_s FROM maintenance_run")
    assert 0 < row["cost_s"] < 30


async def test_a_sweep_that_failed_counts_too(
    database: Database, lanes: PostgresLaneStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cut_off() -> Swept:
        await run(database, "UPDATE maintenance_run SET last_at = last_at - interval '9 seconds'")
        raise DependencyUnavailableError("the statement took too long")

    monkeypatch.setattr(lanes, "_swept", cut_off)
    with pytest.raises(DependencyUnavailableError):
        await lanes.sweep(15.0, 0.01)
    (row,) = await rows(database, "SELECT cost_s FROM maintenance_run")
    assert 9 <= row["cost_s"] < 39


async def test_a_sweep_asks_the_settings_of_lanes_that_have_some(
    database: Database, lanes: PostgresLaneStore, jobs: PostgresJobStore
) -> None:
    """Three functions for each lane made it ten times as dear."""
    await jobs.enqueue([new_job(tenant_id=f"t{n}", group_key="g" if n == 1 else "") for n in range(9)])
    await lanes.set_tenant(TenantShare("t0", weight=4.0))
    await lanes.set_group_cap(GroupCap("g", None, 5))
    await lanes.pause(Scope(ScopeKind.TENANT, "t2"), 60.0, **REASON_AND_ACTOR)
    async with database.transaction() as transaction:
        asks = raw_connection_of(transaction)
        await asks.execute("SET LOCAL track_functions = 'all'")
        await asks.execute(
            "UPDATE lane SET stride = 7, capped = true, state = 'ready', park_reason = NULL, wake_at = NULL"
        )
        await asks.fetch("SELECT lane_sweep_page('00000000-0000-0000-0000-000000000000', 100)")
        calls = [await asks.fetchval(CALLS, name) for name in ("tenant_stride", "is_capped", "paused_until")]
        right = await asks.fetchval(RIGHT)
    assert calls == [1, 1, 1]
    assert right == 9


async def test_a_sweep_finds_what_nobody_would_have_found(
    database: Database, lanes: PostgresLaneStore, jobs: PostgresJobStore, session_id: UUID
) -> None:
    await lanes.report_kinds(["default"], ["a", "b", "c"])
    lost, forgotten, early = [
        (await jobs.enqueue([new_job(kind=kind)]))[0].job_id for kind in ("a", "b", "c")
    ]
    await run(database, "DELETE FROM lane WHERE kind = 'a'")
    await run(database, "UPDATE lane SET state = 'idle' WHERE kind = 'b'")
    await run(database, "UPDATE lane_floor SET vtime = 1000000 WHERE kind = 'c'")
    assert await claim_jobs(jobs, session_id) == []
    for job_id in (lost, forgotten, early):
        explanation = await lanes.explain(job_id)
        assert explanation is not None
        assert explanation.why == "lane_not_ready"
    swept = await lanes.sweep(0.0)
    assert swept is not None
    assert swept.opened == 2
    assert {job.job_id for job in await claim_jobs(jobs, session_id)} == {lost, forgotten, early}


async def test_a_sweep_goes_page_by_page(
    database: Database, lanes: PostgresLaneStore, jobs: PostgresJobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes_module, "SWEEP_BATCH", 2)
    await jobs.enqueue([new_job(tenant_id=f"t{n}") for n in range(7)])
    await run(database, "UPDATE lane SET stride = 7")
    await run(
        database, "INSERT INTO pause (scope, key, reason, paused_by) VALUES ('queue', 'default', 'x', 'y')"
    )
    swept = await lanes.sweep(0.0)
    assert swept is not None
    assert swept.parked == 7
    assert await rows(database, "SELECT DISTINCT stride FROM lane") == [{"stride": 1000}]


async def test_lanes_that_had_no_work_for_a_day_are_forgotten_however_many(
    database: Database, lanes: PostgresLaneStore
) -> None:
    await run(database, OLD)
    swept = await lanes.sweep(0.0)
    assert swept is not None
    assert swept.deleted == 25_000


async def test_a_sweep_forgets_pauses_that_are_over(database: Database, lanes: PostgresLaneStore) -> None:
    await lanes.pause(ACME, 60.0, **REASON_AND_ACTOR)
    await lanes.pause(Scope(ScopeKind.QUEUE, "mail"), None, **REASON_AND_ACTOR)
    await pass_time(database, 61.0)
    await lanes.sweep(0.0)
    assert [row["scope"] for row in await rows(database, "SELECT scope FROM pause")] == ["queue"]


async def test_a_sweep_wakes_what_no_pause_holds(
    database: Database, lanes: PostgresLaneStore, jobs: PostgresJobStore, session_id: UUID
) -> None:
    await jobs.enqueue([new_job(tenant_id="acme")])
    await lanes.pause(ACME, None, **REASON_AND_ACTOR)
    await run(database, "DELETE FROM pause")
    assert await claim_jobs(jobs, session_id) == []
    swept = await lanes.sweep(0.0)
    assert swept is not None
    assert swept.woken == 1
    assert len(await claim_jobs(jobs, session_id)) == 1


async def test_a_pause_that_nobody_parked_is_made_good(
    database: Database, lanes: PostgresLaneStore, jobs: PostgresJobStore, session_id: UUID
) -> None:
    """Whoever paused died between the two steps."""
    await jobs.enqueue([new_job(tenant_id="acme")])
    await run(
        database, "INSERT INTO pause (scope, key, reason, paused_by) VALUES ('tenant', 'acme', 'x', 'y')"
    )
    swept = await lanes.sweep(0.0)
    assert swept is not None
    assert swept.parked == 1
    assert await claim_jobs(jobs, session_id) == []
