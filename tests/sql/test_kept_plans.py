"""Statements are planned once for each connection, perhaps while tables are empty: such plans must last."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest

from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.driver import DatabaseConnection
from fairlead.adapters.postgres.job_rows import one_job_values, plain_job_columns
from fairlead.adapters.postgres.statements import statement
from tests.support.engine import IDS, new_job
from tests.support.plans import TOUCHED
from tests.support.raw_connections import raw_connection
from tests.support.rows import rows
from tests.support.seeds import a_session, waiting_jobs

pytestmark = pytest.mark.slow

JOBS, TENANTS, FEW = 4_000, 100, 10
WORDS = {"queues": ["default"], "kinds": [], "providers": []}
GROUP = {"tenant_id": "acme", "key": "shopify/default"}
Values = Callable[[UUID, list[UUID]], dict[str, object]]
HOT: dict[str, Values] = {
    "job_claim": lambda s, ids: WORDS | {"session_id": s, "demand": FEW, "lease_seed": 7, "wake": True},
    "job_next_due": lambda s, ids: dict(WORDS),
    "job_complete": lambda s, ids: {"job_ids": ids, "lease_ids": [0] * len(ids), "results": None},
    "job_reschedule": lambda s, ids: {
        "job_ids": ids,
        "lease_ids": [0] * len(ids),
        "delays_s": [1.0] * len(ids),
        "failures": [None] * len(ids),
        "streaks": [None] * len(ids),
        "call_waited_s": [1.0] * len(ids),
        "args": [None] * len(ids),
    },
    "job_enqueue_one": lambda s, ids: one_job_values(new_job()) | {"notify": False},
    "job_enqueue_plain": lambda s, ids: (
        plain_job_columns([new_job(), new_job()]) | {"notify": False, "touch": True}
    ),
    "lane_raise_floors": lambda s, ids: {},
    "lane_wake_up": lambda s, ids: {"most": 200},
    "session_rescue": lambda s, ids: {
        "session_id": s,
        "every_s": 0.0,
        "max_crashes": 3,
        "dead_letter_ids": [IDS.uuid7() for _ in range(FEW)],
    },
}


@pytest.mark.parametrize("name", HOT)
async def test_a_plan_made_while_the_tables_were_empty_reads_no_full_one_whole(
    database: Database, name: str
) -> None:
    session_id = await a_session(database)
    async with raw_connection(database) as connection:
        await scanned(connection, name, HOT[name](session_id, []))
        await waiting_jobs(database, JOBS, TENANTS)
        ids = [row["job_id"] for row in await rows(database, f"SELECT job_id FROM job LIMIT {FEW}")]
        assert await scanned(connection, name, HOT[name](session_id, ids)) == {}


async def test_holding_a_group_reads_its_lanes_only(database: Database) -> None:
    async with raw_connection(database) as connection:
        arguments = {"rate_hold": {"for_s": 60.0, "reason": "rate"}, "lane_in_scope": {"scope": "group"}}
        for name, values in (arguments | {"lane_hold": {"lane_ids": []}}).items():
            await touched(connection, name, GROUP | values)
        await waiting_jobs(database, JOBS, TENANTS)
        lane_ids = [row["lane_id"] for row in await rows(database, f"SELECT lane_id FROM lane LIMIT {FEW}")]
        for name, values in (arguments | {"lane_hold": {"lane_ids": lane_ids}}).items():
            read = await touched(connection, name, GROUP | values)
            assert read["lane"]["rows"] <= 3 * len(lane_ids), name
            assert read["job"]["rows"] == 0, name


async def scanned(connection: DatabaseConnection, name: str, values: dict[str, object]) -> dict[str, int]:
    """Which of the large tables *name* reads from end to end, on this connection."""
    read = await touched(connection, name, values)
    return {table: read[table]["seq_scan"] for table in ("job", "lane") if read[table]["seq_scan"]}


async def touched(
    connection: DatabaseConnection, name: str, values: dict[str, object]
) -> dict[str, dict[str, int]]:
    """Rows read and whole reads of each table by *name*, on this connection."""
    prepared = statement(name)
    await connection.execute("BEGIN")
    rows_before = {row["table"]: row for row in await connection.fetch(TOUCHED)}
    await connection.fetch(prepared.text, *prepared.args(**values))
    rows_after = {row["table"]: row for row in await connection.fetch(TOUCHED)}
    await connection.execute("COMMIT")
    return {
        table: {
            figure: rows_after[table][figure] - rows_before[table][figure] for figure in ("rows", "seq_scan")
        }
        for table in rows_after
    }
