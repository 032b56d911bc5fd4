"""What people and handlers ask of lanes reads what it is about, however many others there are (Q7, Q14)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.lanes import COUNT_BOUND
from fairlead.adapters.postgres.statements import statement
from tests.support.databases import settings_of
from tests.support.plans import touched
from tests.support.rows import rows, run
from tests.support.seeds import a_session, waiting_jobs
from tests.support.servers import database_name, fresh_database

pytestmark = pytest.mark.slow

JOBS, LANES = 40_000, 4_000
DEEP = 5_000  # jobs in one lane
GROUPS = """
INSERT INTO job (job_id, kind, tenant_id, group_key, run_at)
SELECT gen_random_uuid(), 'work', 'grouped', 'g' || i, now() - interval '1 hour'
FROM generate_series(1, 20) AS i
"""
LARGE = ("job", "lane", "lane_name")
SCOPE = {"scope": "tenant", "tenant_id": "", "key": "grouped"}


@pytest.fixture(scope="module")
def seeded_url(servers: Endpoints, migrated_url: str) -> str:
    """A database that only what is rolled back may touch."""

    async def seeded() -> str:
        url = await fresh_database(servers.database_url, template=database_name(migrated_url))
        database = await Database.open(settings_of(url))
        await run(database, GROUPS)
        await waiting_jobs(database, JOBS, LANES)
        await waiting_jobs(database, DEEP, 1, queue="deep")
        await a_session(database)
        await run(database, "VACUUM (ANALYZE)")
        await database.close()
        return url

    return asyncio.run(seeded())


@pytest.fixture
async def seeded(seeded_url: str) -> AsyncIterator[Database]:
    database = await Database.open(settings_of(seeded_url, max_size=1))
    yield database
    await database.close()


async def read_of(database: Database, name: str, **values: object) -> dict[str, tuple[int, int]]:
    """The most that it read of the large tables, and how often from end to end, under either kind of plan."""
    rows_touched = [await touched(database, name, generic=generic, **values) for generic in (False, True)]
    return {table: max(read[table] for read in rows_touched) for table in LARGE}


async def lane_ids(database: Database) -> list[UUID]:
    return [
        row["lane_id"] for row in await rows(database, "SELECT lane_id FROM lane WHERE tenant_id = 'grouped'")
    ]


@pytest.mark.parametrize("queue", ["default", "deep"])
async def test_why_a_job_waits(seeded: Database, queue: str) -> None:
    """Of many jobs and lanes before it no more than the bound are read."""
    last = "SELECT job_id FROM job WHERE queue = $1 AND tenant_id <> 'grouped' ORDER BY run_at DESC LIMIT 1"
    [job] = await rows(seeded, last, queue)
    await run(
        seeded,
        "UPDATE lane SET vtime = vtime + 5000 WHERE lane_id = lane_id_of($1, 'work', NULL, 2::smallint,"
        " (SELECT tenant_id FROM job WHERE job_id = $2), '')",
        queue,
        job["job_id"],
    )
    read = await read_of(seeded, "job_explain", job_id=job["job_id"], asker=None, bound=COUNT_BOUND)
    assert read["job"] <= (COUNT_BOUND + 5, 0)
    assert read["lane"] <= (COUNT_BOUND + 5, 0)
    assert read["lane_name"] == (0, 0)


async def test_how_tenants_fare(seeded: Database) -> None:
    values = {"queue": None, "tenant_id": None, "limit": 10, "bound": COUNT_BOUND, "quantum": 3000}
    read = await read_of(seeded, "lane_turns", **values)
    lanes = LANES + 21
    assert read["lane"] <= (lanes + 3 * 10 * 20, 1)  # once, to see who is first
    assert read["job"] <= (3 * 10 * COUNT_BOUND, 0)
    assert read["lane_name"] <= (3 * 10 * 20, 0)


@pytest.mark.parametrize(
    "scope",
    [
        SCOPE,
        {"scope": "group", "tenant_id": "grouped", "key": "g7"},
        {"scope": "group", "tenant_id": "", "key": "g7"},
    ],
    ids=["tenant", "group", "shared_group"],
)
async def test_the_lanes_of_a_tenant_and_of_a_group(seeded: Database, scope: dict[str, object]) -> None:
    read = await read_of(seeded, "lane_in_scope", **scope)
    assert read["lane_name"] <= (20, 0)
    assert read["lane"] <= (20, 0)  # whose kind they are of
    assert read["job"] == (0, 0)


async def test_pausing_and_resuming(seeded: Database) -> None:
    ids = await lane_ids(seeded)
    assert len(ids) == 20
    read = await read_of(seeded, "lane_due_count", lane_ids=ids)
    assert (read["job"], read["lane"]) == ((20, 0), (0, 0))
    try:
        await run(
            seeded, "INSERT INTO pause (scope, key, reason, paused_by) VALUES ('tenant', 'grouped', 'x', 'y')"
        )
        read = await read_of(seeded, "lane_pause", lane_ids=ids, **SCOPE)
        assert read["lane"] <= (3 * 20, 0)
        read = await read_of(seeded, "pause_list", limit=10, bound=COUNT_BOUND)
        assert read == {"job": (20, 0), "lane": (0, 0), "lane_name": (20, 0)}
        prepared = statement("lane_pause")
        await seeded.fetch(prepared, lane_ids=ids, **SCOPE)
        read = await read_of(seeded, "lane_unpause", lane_ids=ids, notify=False)
        assert read["lane"] <= (3 * 20, 0)
    finally:
        await run(seeded, "DELETE FROM pause")
        await seeded.fetch(statement("lane_unpause"), lane_ids=ids, notify=False)


async def test_settings_of_one_tenant(seeded: Database) -> None:
    read = await read_of(seeded, "lane_apply", tenant_ids=["grouped"], group_key=None)
    assert read["lane"] <= (2 * 20, 0)
    assert read["lane_name"] <= (20, 0)


@pytest.mark.parametrize("name", ["maintenance_run_take", "lane_raise_floors", "lane_age"])
async def test_the_upkeep_of_each_second(seeded: Database, name: str) -> None:
    values: dict[str, dict[str, object]] = {
        "maintenance_run_take": {"sweep": "lane_floors", "every_s": 1.0, "share": 1.0},
        "lane_age": {"longest_wait_s": 300.0},
    }
    read = await read_of(seeded, name, **values.get(name, {}))
    assert read["job"] == (0, 0)
    assert read["lane"] <= (2 * LANES, 0)


NAMES = 51  # that the suspects have between them
SUSPECTS = """
INSERT INTO job (job_id, kind, tenant_id, run_at, crash_count)
SELECT gen_random_uuid(), 'k', CASE WHEN i <= 2500 THEN 'paused' ELSE 'capped' || i % 50 END,
    now() - interval '1 hour' + i * interval '1 ms', 1
FROM generate_series(1, 5000) AS i
"""


async def test_a_look_for_a_suspect_asks_each_name_once(database: Database) -> None:
    """A crash of many processes leaves thousands; the first of them may be held."""
    session_id = await a_session(database)
    await run(database, SUSPECTS)
    await run(
        database, "INSERT INTO pause (scope, key, reason, paused_by) VALUES ('tenant', 'paused', 'x', 'y')"
    )
    await run(
        database,
        "INSERT INTO concurrency_cap (tenant_id, group_key, max_running)"
        " SELECT 'capped' || i, '', 1 FROM generate_series(0, 49) AS i",
    )
    await run(database, "VACUUM (ANALYZE)")
    filters = {"queues": ["default"], "kinds": [], "providers": []}
    claimer = {"session_id": session_id, "lease_seed": 7}
    for name, arguments in (("job_claim_suspect", filters | claimer), ("job_next_due", filters)):
        read = await touched(database, name, generic=False, **arguments)
        assert read["pause"] <= (2 * NAMES, 0), name
        assert read["concurrency_cap"] <= (2 * NAMES, 0), name
