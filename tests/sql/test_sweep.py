"""The upkeep of lanes: done once across the fleet, and a net under everything else (Q6, R17)."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from fairlead.adapters.postgres import lanes as lanes_module
from fairlead.adapters.postgres.jobs import PostgresJobStore
from fairlead.adapters.postgres.lanes import PostgresLaneStore
from fairlead.adapters.postgres.pool import Database
from fairlead.policy.lane import Scope, ScopeKind
from tests.sql.test_lanes import ACME, WHO, jobs, lanes, session_id, taken  # noqa: F401 - fixtures
from tests.support.engine import new_job
from tests.support.passing_time import pass_time
from tests.support.rows import rows, run

# ruff: noqa: F811 - the fixtures that are imported

OLD = """
INSERT INTO lane
    (lane_id, vtime, served_at, priority, level, state, tenant_id, queue, kind, provider, group_key)
SELECT gen_random_uuid(), 0, now() - interval '25 hours', 2, 2, 'idle', 't' || i, 'default', 'k', '', ''
FROM generate_series(1, 25000) AS i
"""


async def test_one_of_eight_does_it_and_the_clock_may_go_back(
    database: Database, lanes: PostgresLaneStore
) -> None:
    for upkeep, not_due in ((lanes.sweep, None), (lanes.raise_floors, False)):
        done = await asyncio.gather(*(upkeep(30.0) for _ in range(8)))
        assert done.count(not_due) == 7
        await pass_time(database, 29.0)
        assert await upkeep(30.0) is not_due
        await pass_time(database, 2.0)
        assert await upkeep(30.0) is not not_due
        await run(database, "UPDATE sweep SET last_at = now() + interval '1 day'")
        assert await upkeep(30.0) is not not_due


async def test_a_sweep_finds_what_nobody_would_have_found(
    database: Database, lanes: PostgresLaneStore, jobs: PostgresJobStore, session_id: UUID
) -> None:
    lost, forgotten, early = [
        (await jobs.enqueue([new_job(kind=kind)]))[0].job_id for kind in ("a", "b", "c")
    ]
    await run(database, "DELETE FROM lane WHERE kind = 'a'")
    await run(database, "UPDATE lane SET state = 'idle' WHERE kind = 'b'")
    await run(database, "UPDATE lane_floor SET vtime = 1000000 WHERE kind = 'c'")
    assert await taken(jobs, session_id) == []
    for job_id in (lost, forgotten, early):
        told = await lanes.explain(job_id)
        assert told is not None
        assert told.why == "unseen"
    swept = await lanes.sweep(0.0)
    assert swept is not None
    assert swept.opened == 2
    assert {job.job_id for job in await taken(jobs, session_id)} == {lost, forgotten, early}


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
    await lanes.pause(ACME, 60.0, **WHO)
    await lanes.pause(Scope(ScopeKind.QUEUE, "mail"), None, **WHO)
    await pass_time(database, 61.0)
    await lanes.sweep(0.0)
    assert [row["scope"] for row in await rows(database, "SELECT scope FROM pause")] == ["queue"]


async def test_a_sweep_wakes_what_no_pause_holds(
    database: Database, lanes: PostgresLaneStore, jobs: PostgresJobStore, session_id: UUID
) -> None:
    await jobs.enqueue([new_job(tenant_id="acme")])
    await lanes.pause(ACME, None, **WHO)
    await run(database, "DELETE FROM pause")
    assert await taken(jobs, session_id) == []
    swept = await lanes.sweep(0.0)
    assert swept is not None
    assert swept.woken == 1
    assert len(await taken(jobs, session_id)) == 1


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
    assert await taken(jobs, session_id) == []
