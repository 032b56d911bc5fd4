"""What wakes lanes reads no dead rows again, and misses no writer, however long its transaction takes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.database import Database
from tests.support.databases import SCHEMA
from tests.support.plans import Plan, explained
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
        for _ in range(2):  # the second takes over what the first has seen
            await run(database, RAISE)
        assert await _buffers(database) < below / 3


async def test_taken_wake_ups_are_passed_while_an_older_transaction_is_at_work(
    database: Database, callers: list[Any]
) -> None:
    """It may still write one of its own, which is found, too."""
    writer, _ = callers
    async with writer.transaction():
        await writer.execute(ENQUEUE, "acme")
        await run(
            database, f"INSERT INTO lane_wake SELECT gen_random_uuid(), now() FROM generate_series(1, {DEAD})"
        )
        await run(database, f"SELECT lane_wake_up({DEAD})")
        below = await _buffers(database)
        for _ in range(2):
            await run(database, RAISE)
        assert await _buffers(database) < below / 3
        await writer.execute(ENQUEUE, "acme")
    assert len(await rows(database, "SELECT FROM lane_wake")) == 2
    await run(database, WAKE)
    assert await rows(database, "SELECT FROM lane_wake") == []


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
        buffers_before = await _buffers(database)  # it finds its way through the dead, and leaves a mark
        await run(database, park)
        assert await _buffers(database) < buffers_before / 3


# Lanes of one tenant and kind that come and go; the clock of the classes goes on.
LATER = """
DO $$ BEGIN
    UPDATE lane_floor SET noted_at = noted_at - interval '{after_s} seconds';
    PERFORM lane_raise_floors(false);
END $$
"""
BELOW = (
    "SELECT FROM lane JOIN lane_floor f USING (queue, level, kind)"
    " WHERE state = 'ready' AND lane.vtime < f.vtime"
)
COME_AND_GO = """
DO $$ BEGIN FOR i IN 1..1000 LOOP
    UPDATE lane SET state = 'ready', park_reason = NULL, wake_at = NULL, vtime = vtime + 1000;
    UPDATE lane SET state = 'parked', park_reason = 'empty', wake_at = now() + interval '1 hour';
    PERFORM setval('lane_clock', (SELECT max(vtime) FROM lane));
END LOOP; END $$
"""
JOIN = (
    "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON)"
    " SELECT lane_join_vtime('default', 2::int2, 'k'), lane_last_vtime('default', 2::int2, 'a')"
)


async def test_waking_a_lane_of_an_empty_class_reads_no_dead_rows(
    database: Database, callers: list[Any]
) -> None:
    """Work that comes one by one leaves its class empty again and again, beside an old snapshot (Q12)."""
    reader, _ = callers
    await run(database, "SELECT fairlead_enqueue('k', 'a')")
    await run(database, WAKE)
    async with reader.transaction(isolation="repeatable_read"):
        await reader.fetchval("SELECT 1 FROM pg_class LIMIT 1")
        await run(database, COME_AND_GO)
        buffers_before = await _join_buffers(database)
        await _raise(database, 2)  # it follows one step behind
        assert await _join_buffers(database) < buffers_before / 3


async def test_no_lane_lies_below_a_floor_that_rose_before_it_was_committed(
    database: Database, callers: list[Any]
) -> None:
    """A commit may take long (a stand-by is waited for) while other queues drive the clock on."""
    await run(database, "SELECT fairlead_enqueue('k', 'a')")
    await run(database, WAKE)
    await run(database, "UPDATE lane SET state = 'parked', park_reason = 'empty', wake_at = now()")
    slow, _ = callers
    await slow.execute(f'SET search_path = "{SCHEMA}"')
    async with slow.transaction():
        await slow.execute("SELECT lane_wake_up(200), lane_touch(array_agg(lane_id), ARRAY[now()]) FROM lane")
        await run(database, "CREATE TABLE x ()")  # somebody else begins later and ends before
        for clock in (10_000, 20_000, 30_000):
            await run(database, f"SELECT setval('lane_clock', {clock})")
            await _raise(database, 1)
    assert await ready(database) == 1
    assert await rows(database, BELOW) == []
    await _raise(database, 2)
    assert await rows(database, BELOW) == []


async def test_no_lane_of_the_newest_writer_lies_below_a_floor(
    database: Database, callers: list[Any]
) -> None:
    """Nobody has ended after it began, so the server's snapshots do not say that it writes."""
    await run(database, "SELECT fairlead_enqueue('k', 'a'), setval('lane_clock', 10000)")
    await run(database, WAKE)
    await run(database, "UPDATE lane SET state = 'parked', park_reason = 'empty', wake_at = now()")
    slow, quick = callers
    await quick.execute("BEGIN")
    await quick.execute("SELECT pg_current_xact_id()")
    await slow.execute(f'SET search_path = "{SCHEMA}"')
    async with slow.transaction():
        await slow.execute("SELECT lane_touch(array_agg(lane_id), ARRAY[now()]) FROM lane")
        await quick.execute(f"SELECT setval('\"{SCHEMA}\".lane_clock', 20000)")
        await quick.execute("COMMIT")
        await _raise(database, 2)
    assert await rows(database, BELOW) == []


async def test_a_writer_that_stays_open_holds_floors_for_a_while_only(
    database: Database, callers: list[Any]
) -> None:
    """He has stored a job and does other things for hours: what he writes are no lanes."""
    await run(database, "SELECT fairlead_enqueue('k', 'a')")
    await run(database, WAKE)
    idle, _ = callers
    async with idle.transaction():
        await idle.execute(ENQUEUE, "idle")
        await run(database, "UPDATE lane SET vtime = 10000 WHERE state = 'ready'")
        await _raise(database, 1)
        await run(database, "UPDATE lane SET vtime = 20000 WHERE state = 'ready'")
        await _raise(database, 2)
        floor = "SELECT vtime FROM lane_floor WHERE level = 2"
        assert await rows(database, floor) == [{"vtime": 0}]
        await _raise(database, 1, after_s=16)
        assert await rows(database, floor) == [{"vtime": 10000}]


async def test_floors_rest_where_nothing_moves(database: Database) -> None:
    await run(database, "SELECT fairlead_enqueue('k', 'a'), fairlead_enqueue('other', 'a', queue => 'q')")
    await run(database, WAKE)
    await run(database, "SELECT setval('lane_clock', 10000)")
    await run(
        database, "UPDATE lane SET state = 'parked', park_reason = 'empty', wake_at = now() WHERE queue = 'q'"
    )
    await _raise(database, 3)
    await run(database, "UPDATE lane_floor SET noted_at = now() - interval '1 hour'")
    written = "SELECT ctid::text FROM lane_floor ORDER BY ctid"
    rows_before = await rows(database, written)
    await run(database, RAISE)
    assert await rows(database, written) == rows_before


async def _raise(database: Database, times: int, *, after_s: float = 6.0) -> None:
    """Look at the floors, so long apart."""
    for _ in range(times):
        await run(database, LATER.format(after_s=after_s))


async def _join_buffers(database: Database) -> int:
    """Pages that a lane's way into its class takes."""
    for _ in range(2):  # the first one reads the catalogs
        [row] = await rows(database, JOIN)
    plan = Plan(json.loads(row["QUERY PLAN"])[0]["Plan"])
    return plan.buffers


async def _buffers(database: Database) -> int:
    plan = await explained(database, "lane_wake_up", keep=True, most=200)
    return plan.buffers
