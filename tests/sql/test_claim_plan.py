"""The fair claim reads short ranges of indexes, however much waits and however much has been (Q2, Q12).

It happens in functions, so the plan of the statement shows nothing of it: what is judged are the rows it
reads, table by table, and the pages, as the server counts them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from uuid import UUID

import asyncpg
import pytest

from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.statements import statement
from tests.support.databases import settings_of
from tests.support.plans import explained, touched
from tests.support.rows import rows, run
from tests.support.seeds import a_session, waiting_jobs
from tests.support.servers import database_name, fresh_database

pytestmark = pytest.mark.slow

JOBS, LANES = 40_000, 2_000
PARKED, DUE = LANES // 10, LANES // 200
PARK = """
UPDATE lane SET state = 'parked', park_reason = 'due',
    wake_at = now() + interval '1 hour' * CASE WHEN substr(tenant_id, 7)::integer % 200 = 0 THEN -1 ELSE 1 END
WHERE substr(tenant_id, 7)::integer % 10 = 0
"""
DRAINED = 20_000
BATCH = 100
FLOORS_EVERY = 20  # claims; a service does it each second
BUFFERS_PER_JOB = 25


def claim(session_id: UUID, demand: int, seed: int = 7, *, wake: bool = False) -> dict[str, object]:
    arguments: dict[str, object] = {"queues": ["default"], "kinds": [], "providers": []}
    return arguments | {"session_id": session_id, "demand": demand, "lease_seed": seed, "wake": wake}


# ---- one claim -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def backlog_url(servers: Endpoints, migrated_url: str) -> str:
    """A database that only what is rolled back may touch. A tenth of its lanes is parked, some are due."""

    async def seeded() -> str:
        url = await fresh_database(servers.database_url, template=database_name(migrated_url))
        database = await Database.open(settings_of(url))
        await waiting_jobs(database, JOBS, LANES)
        await run(database, PARK)
        await a_session(database)
        await run(database, "VACUUM (ANALYZE)")
        await database.close()
        return url

    return asyncio.run(seeded())


@pytest.fixture
async def backlog(backlog_url: str) -> AsyncIterator[tuple[Database, UUID]]:
    """That database, and its session."""
    database = await Database.open(settings_of(backlog_url, max_size=1))
    [session] = await rows(database, "SELECT session_id FROM worker_session")
    yield database, session["session_id"]
    await database.close()


@pytest.mark.parametrize("wake", [False, True], ids=["", "and_wakes"])
@pytest.mark.parametrize("demand", [1, 3, 48, 100])
async def test_a_claim_reads_a_quantum_of_each_lane(
    backlog: tuple[Database, UUID], demand: int, wake: bool
) -> None:
    database, session_id = backlog
    claim_arguments = claim(session_id, demand, wake=wake)
    lanes, woken = demand // 3 + 2, DUE * wake
    for generic in (False, True):
        read = await touched(database, "job_claim", generic=generic, **claim_arguments)
        assert read["job"] <= (4 * lanes + woken, 0), generic  # a quantum and one more of each, one lane more
        assert read["lane"] <= (3 * (lanes + woken), 0), generic
        assert read["lane_name"] == (0, 0), generic
    plan = await explained(
        database, "job_claim", **claim_arguments
    )  # by now the session has read the catalogs
    assert plan.rows == demand
    assert plan.buffers <= BUFFERS_PER_JOB * (demand + 3 * woken + 3)


@pytest.mark.parametrize("lanes", [2_000, 20, 1])
async def test_a_claim_needs_no_statistics(database: Database, lanes: int) -> None:
    """A burst into a new database: nobody has counted its rows yet."""
    session_id = await a_session(database)
    await waiting_jobs(database, DRAINED, lanes)
    for seed in (1, 2):
        plan = await explained(database, "job_claim", keep=True, **claim(session_id, BATCH, seed))
    assert plan.rows == BATCH
    assert plan.buffers <= BUFFERS_PER_JOB * (BATCH + 3)


# ---- after many claims -----------------------------------------------------------------------------


@asynccontextmanager
async def pinned(database: Database) -> AsyncIterator[None]:
    """A snapshot that keeps every dead row for as long as the block lasts."""
    connection = await asyncpg.connect(database.settings.dsn)  # without the limit to idle transactions
    try:
        await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await connection.fetch("SELECT count(*) FROM pg_class")
        yield
    finally:
        await connection.close()


async def buffers_of_a_drain(database: Database, *, floors: bool = True) -> list[tuple[int, int]]:
    """Claim and complete all there is; (buffers, jobs) of each claim."""
    session_id = await a_session(database)
    await waiting_jobs(database, BATCH, 1, queue="before")  # the first claim reads the catalogs
    await explained(database, "job_claim", **claim(session_id, BATCH) | {"queues": ["before"]})
    spent: list[tuple[int, int]] = []
    for seed in count(1):
        if floors and seed % FLOORS_EVERY == 0:
            await run(database, "SELECT lane_raise_floors(false)")
        plan = await explained(database, "job_claim", keep=True, **claim(session_id, BATCH, seed))
        if not plan.rows:
            break
        spent.append((plan.buffers, plan.rows))
        mine = await database.fetch(statement("job_claimed"), session_id=session_id, lease_seed=seed)
        done = {name: [row[name[:-1]] for row in mine] for name in ("job_ids", "lease_ids")}
        await database.fetch(statement("job_complete"), **done, results=None)
    sql = "SELECT count(*) AS jobs FROM job WHERE queue = 'default' AND state = 'available'"
    [due_row] = await rows(database, sql)
    assert due_row["jobs"] == 0
    return spent


def cost(spent: list[tuple[int, int]], *, last: bool) -> float:
    """Buffers per job of the first or the last tenth of the claims."""
    tenth = len(spent) // 10
    part = spent[-tenth:] if last else spent[:tenth]
    return sum(buffers for buffers, _ in part) / sum(jobs for _, jobs in part)


@pytest.mark.parametrize("lanes", [2_000, 20, 1])
async def test_a_pinned_snapshot_does_not_make_claims_dearer(database: Database, lanes: int) -> None:
    """Twenty thousand jobs are enqueued and worked off while nothing that died can be cleaned away."""
    async with pinned(database):
        await waiting_jobs(database, DRAINED, lanes)
        spent = await buffers_of_a_drain(database)
    assert cost(spent, last=True) <= 2 * cost(spent, last=False)


async def test_ablation_without_floors_every_claim_passes_the_dead(database: Database) -> None:
    async with pinned(database):
        await waiting_jobs(database, DRAINED // 2, LANES)
        await buffers_of_a_drain(database, floors=False)
        await waiting_jobs(database, 3, 1)
        claim_arguments = claim(await a_session(database), 3)
        spent = []
        for is_complete in (False, True):
            if is_complete:
                for _ in range(2):  # it follows one step behind
                    await run(database, "SELECT lane_raise_floors(false)")
            await explained(database, "job_claim", **claim_arguments)  # the first one reads the catalogs
            spent.append((await explained(database, "job_claim", **claim_arguments)).buffers)
        assert spent[0] > 2 * spent[1]
