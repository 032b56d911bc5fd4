"""What wakes lanes reads no dead rows again, and misses no writer, however long its transaction takes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from fairlead.adapters.postgres.pool import Database
from fairlead.adapters.postgres.session import DatabaseSettings
from tests.support.databases import SCHEMA
from tests.support.plans import explained
from tests.support.rows import rows, run

ENQUEUE = f"SELECT \"{SCHEMA}\".fairlead_enqueue('k', $1)"
RAISE = "SELECT lane_raise_floors(false)"
WAKE = "SELECT lane_wake_up(200)"
READY = "SELECT count(*) AS lanes FROM lane WHERE state = 'ready'"
DEAD = 3_000


@pytest.fixture
async def callers(database_settings: DatabaseSettings) -> AsyncIterator[list[Any]]:
    """Two connections of somebody else's program."""
    opened = [await asyncpg.connect(database_settings.dsn) for _ in range(2)]
    yield opened
    for connection in opened:
        await connection.close(timeout=5)


async def ready(database: Database) -> int:
    [row] = await rows(database, READY)
    return int(row["lanes"])


async def test_the_floor_waits_for_transactions_that_still_write(
    database: Database, callers: list[Any]
) -> None:
    slow, quick = callers
    transaction = slow.transaction()
    await transaction.start()
    await slow.execute(ENQUEUE, "slow")
    await quick.execute(ENQUEUE, "quick")
    for _ in range(3):
        await run(database, WAKE)
        await run(database, RAISE)
    assert await ready(database) == 1
    await transaction.commit()
    await run(database, RAISE)
    await run(database, WAKE)
    assert await ready(database) == 2


async def test_taken_wake_ups_are_not_read_again(database: Database, callers: list[Any]) -> None:
    reader, _ = callers
    await run(
        database, f"INSERT INTO lane_wake SELECT gen_random_uuid(), now() FROM generate_series(1, {DEAD})"
    )
    async with reader.transaction(isolation="repeatable_read"):
        await reader.fetchval("SELECT 1 FROM pg_class LIMIT 1")  # its snapshot keeps every dead row
        await run(database, f"SELECT lane_wake_up({DEAD})")
        assert await rows(database, "SELECT FROM lane_wake") == []
        below = await _buffers(database)
        await run(database, RAISE)
        assert await _buffers(database) < below / 3


async def test_a_woken_lane_is_read_from_its_mark(database: Database, callers: list[Any]) -> None:
    reader, caller = callers
    await run(
        database,
        "INSERT INTO job (job_id, kind, tenant_id, run_at) SELECT gen_random_uuid(), 'k', 'acme',"
        f" now() - interval '1 hour' + i * interval '1 ms' FROM generate_series(1, {DEAD}) AS i",
    )
    await caller.execute(ENQUEUE, "acme")
    await run(database, WAKE)
    async with reader.transaction(isolation="repeatable_read"):
        await reader.fetchval("SELECT 1 FROM pg_class LIMIT 1")
        await run(database, "DELETE FROM job WHERE run_at < now() - interval '1 minute'")
        park = "UPDATE lane SET state = 'parked', park_reason = 'empty', wake_at = now()"
        await run(database, park)
        before = await _buffers(database)  # it finds its way through the dead, and leaves a mark
        await run(database, park)
        assert await _buffers(database) < before / 3


async def _buffers(database: Database) -> int:
    plan = await explained(database, "lane_wake_up", keep=True, most=200)
    return plan.buffers
