"""Hot statements use their indexes and read few rows, however full the tables are (Q2, STYLE A10)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from uuid import UUID, uuid4

import pytest

from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.postgres.database import Database
from tests.support.databases import settings_of
from tests.support.plans import explained, touched
from tests.support.rows import rows
from tests.support.seeds import a_large_database
from tests.support.servers import database_name, fresh_database

pytestmark = pytest.mark.slow

SIZE = 40_000
# Reading these from end to end is right: they hold few rows, however much work there is.
SMALL = {
    "worker_session",
    "maintenance_run",
    "schedule",
    "pause",
    "concurrency_cap",
    "tenant_tier",
    "tenant_setting",
}
SMALL |= {"lane_floor", "lane_wake", "lane_wake_floor"}
BATCH = 50


@dataclass(frozen=True, slots=True)
class Seeded:
    """A database that only reads and what is rolled back may touch."""

    url: str
    session_id: UUID


@pytest.fixture(scope="module")
def seed(servers: Endpoints, migrated_url: str) -> Callable[[int], Seeded]:
    async def seeded(size: int) -> Seeded:
        url = await fresh_database(servers.database_url, template=database_name(migrated_url))
        database = await Database.open(settings_of(url))
        session_id = await a_large_database(database, size)
        await database.close()
        return Seeded(url, session_id)

    return lambda size: asyncio.run(seeded(size))


@pytest.fixture(scope="module")
def large(seed: Callable[[int], Seeded]) -> Seeded:
    return seed(SIZE)


@pytest.fixture(scope="module")
def little(seed: Callable[[int], Seeded]) -> Seeded:
    return seed(1000)


@pytest.fixture
async def full(large: Seeded) -> AsyncIterator[Database]:
    database = await Database.open(settings_of(large.url))
    yield database
    await database.close()


def ids(count: int = BATCH) -> list[UUID]:
    return [uuid4() for _ in range(count)]


def claim(session_id: UUID, *queues: str) -> dict[str, object]:
    return {
        "queues": list(queues) or ["default"],
        "kinds": [],
        "providers": [],
        "demand": BATCH,
        "session_id": session_id,
        "lease_seed": 7,
        "wake": True,
    }


def new_jobs(*, unique: bool) -> dict[str, object]:
    keys = [f"key{2 * i}" if unique else None for i in range(BATCH)]
    columns: dict[str, object] = {
        "job_ids": ids(),
        "kinds": ["kind2"] * BATCH,
        "tenant_ids": ["tenant2"] * BATCH,
        "queues": ["default"] * BATCH,
        "group_keys": [""] * BATCH,
        "priorities": [1] * BATCH,
        "delays_s": [0.0] * BATCH,
        "args": ["{}"] * BATCH,
        "unique_keys": keys,
        "unique_while": ["follow_up"] * BATCH,
        "notify": False,
    }
    return columns | {
        name: [None] * BATCH for name in ("providers", "unique_for_s", "expires_in_s", "tags", "replay_of")
    }


CASES: dict[str, tuple[Callable[[UUID], dict[str, object]], set[str], int]] = {
    # statement: its values, the indexes it must use, rows of a large table it may read per row it is about.
    # What happens inside of a function is seen in the rows and buffers alone (and in test_claim_plan.py)
    "job_claim": (claim, set(), 3),
    "job_claim_suspect": (
        lambda session_id: {
            "queues": ["default"],
            "kinds": [],
            "providers": [],
            "session_id": session_id,
            "lease_seed": 7,
        },
        set(),
        1,
    ),
    "job_next_due": (
        lambda session_id: {"queues": ["default", "mail"], "kinds": [], "providers": []},
        {"lane_ready_idx", "lane_wake_idx", "job_suspect_idx"},
        1,
    ),
    "session_rescue": (
        lambda session_id: {
            "session_id": session_id,
            "every_s": 1.0,
            "max_crashes": 3,
            "dead_letter_ids": ids(),
        },
        {"job_running_since_idx", "job_pkey"},
        20,  # all that runs: 900
    ),
    "job_expire": (lambda session_id: {"dead_letter_ids": ids()}, {"job_expiry_idx", "job_pkey"}, 3),
    "job_prune": (
        lambda session_id: {
            "states": ["completed", "cancelled"],
            "retentions_s": [86_400.0, 604_800.0],
            "limit": BATCH,
        },
        {"job_finished_idx"},
        3,
    ),
    "job_enqueue": (lambda session_id: new_jobs(unique=True), {"job_unique_idx"}, 4),
    "schedule_run_prune": (
        lambda session_id: {"older_than_s": 86_400.0, "limit": BATCH},
        {"schedule_run_taken_idx"},
        3,
    ),
    "dead_letter_due": (lambda session_id: {"limit": BATCH}, {"dead_letter_due_idx"}, 2),
    "dead_letter_refusals": (
        lambda session_id: {"queue": "default", "bound": 10_000},
        {"dead_letter_open_idx"},
        SIZE // 10 // BATCH,
    ),
}


@pytest.mark.parametrize("name", CASES)
async def test_indexes_are_used_and_few_rows_are_read(full: Database, large: Seeded, name: str) -> None:
    values, indexes, rows_each = CASES[name]
    plan = await explained(full, name, **values(large.session_id))
    assert plan.scanned_whole() <= SMALL
    assert indexes <= plan.indexes()
    for generic in (False, True):
        read = await touched(full, name, generic=generic, **values(large.session_id))
        for table, (count, whole_scans) in read.items():
            if table not in SMALL:
                assert whole_scans == 0, (generic, table)
                assert count <= rows_each * BATCH, (generic, table)


async def test_outcomes_are_written_by_the_primary_key(full: Database) -> None:
    running = await rows(full, f"SELECT job_id, lease_id FROM job WHERE state = 'running' LIMIT {BATCH}")
    leases = {
        "job_ids": [row["job_id"] for row in running],
        "lease_ids": [row["lease_id"] for row in running],
    }
    nothing: list[object] = [None] * BATCH
    failures = ['{"category": "transient_server", "code": "c", "reason": "r"}'] * BATCH
    for name, values in {
        "job_complete": {"results": None},
        "job_reschedule": {
            "delays_s": [1.0] * BATCH,
            "failures": nothing,
            "streaks": nothing,
            "call_waited_s": [1.0] * BATCH,
            "args": nothing,
        },
        "job_cancel_running": {"results": nothing},
        "job_discard": {
            "dead_letter_ids": ids(),
            "failures": failures,
            "connection_ids": nothing,
            "token_expires_ats": nothing,
            "actions_in_s": nothing,
            "args": nothing,
        },
        "job_settled": {},
    }.items():
        for generic in (False, True):
            read = await touched(full, name, generic=generic, **leases, **values)
            count, whole_scans = read["job"]
            # one more: the first job of the lane that is made for those that come back
            most = BATCH + (name == "job_reschedule")
            assert (BATCH <= count <= most, whole_scans) == (True, 0), (name, generic)
            assert read.get("dead_letter", (0, 0))[1] == 0, (name, generic)


async def settled_buffers(database: Database, name: str, **values: object) -> int:
    """Of the second time: the first one reads the catalogs too, where the statement calls functions."""
    await explained(database, name, **values)
    return (await explained(database, name, **values)).buffers


@pytest.mark.parametrize(
    ("name", "most"),
    [("job_claim", 1.5), ("job_next_due", 2.0), ("session_rescue", 1.5), ("job_enqueue", 1.7)],
)
async def test_the_cost_hardly_grows_with_the_tables(
    full: Database, large: Seeded, little: Seeded, name: str, most: float
) -> None:
    """Forty times the rows is one more level of each index, and no more."""
    values, _, _ = CASES[name]
    few = await Database.open(settings_of(little.url))
    try:
        buffers_before = await settled_buffers(few, name, **values(little.session_id))
        buffers_after = await settled_buffers(full, name, **values(large.session_id))
    finally:
        await few.close()
    assert buffers_after <= most * buffers_before


async def test_jobs_of_other_kinds_are_not_read(full: Database, large: Seeded) -> None:
    claim_arguments = claim(large.session_id) | {"kinds": ["nobody enqueued this"], "wake": False}
    assert await settled_buffers(full, "job_claim", **claim_arguments) < 20
    read = await touched(full, "job_claim", generic=True, **claim_arguments)
    assert (read["job"], read["lane"]) == ((0, 0), (0, 0))


async def test_a_heartbeat_looks_its_jobs_up_by_the_primary_key(full: Database, large: Seeded) -> None:
    """Not along all that runs: beside an old snapshot that index keeps all that ever ran."""
    running = await rows(full, "SELECT job_id::text FROM job WHERE state = 'running' LIMIT 3")
    values = {
        "session_id": large.session_id,
        "running": [row["job_id"] for row in running],
        "trouble": None,
    }
    plan = await explained(full, "session_heartbeat", **values)
    assert "job_running_since_idx" not in plan.indexes()
    for generic in (False, True):
        read = await touched(full, "session_heartbeat", generic=generic, **values)
        assert read["job"] == (3, 0), generic
