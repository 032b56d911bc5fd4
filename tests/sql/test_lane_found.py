"""What reads lanes reads what they are, however many rows they were before that a snapshot keeps (Q12)."""

from __future__ import annotations

import pytest

from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.jobs import PostgresJobStore
from tests.support.engine import IDS, new_job
from tests.support.raw_connections import raw_connection_of
from tests.support.rows import rows, run
from tests.support.snapshot import held_snapshot

pytestmark = pytest.mark.slow

WAS, LANES = 2_500, 5
BLOAT = f"DO $$ BEGIN FOR i IN 1..{WAS} LOOP UPDATE lane SET vtime = vtime + 1; END LOOP; END $$"
THEM = "ARRAY(SELECT lane_id FROM lane_name)"
READ = "SELECT pg_stat_get_xact_tuples_returned('lane_find_idx'::regclass)"
ASKS = {
    "lane_touch(uuid[], timestamptz[])": "SELECT lane_touch(ARRAY[lane_id], ARRAY[now()]) FROM lane_name",
    "lane_is_open(uuid, timestamptz)": "SELECT lane_is_open(lane_id, now()) FROM lane_name",
    "lane_sweep_lost()": "SELECT lane_sweep_lost()",
    "lane_sweep_page(uuid, integer)": "SELECT lane_sweep_page('00000000-0000-0000-0000-000000000000', 100)",
    "lane_is_internal(uuid)": "SELECT lane_is_internal(lane_id) FROM lane_name",
    "lane_lock(uuid[])": f"SELECT lane_lock({THEM})",
}


@pytest.mark.parametrize("careless", [False, True])
@pytest.mark.parametrize("function", ASKS)
async def test_lane_function_reads_no_dead_row(
    database: Database,
    database_settings: DatabaseSettings,
    function: str,
    careless: bool,
) -> None:
    """To read them all and sort looks as good to the planner, which counts them as none."""
    await PostgresJobStore(database, IDS).enqueue([new_job(tenant_id=f"t{n}") for n in range(LANES)])
    async with held_snapshot(database_settings.dsn):
        await run(database, BLOAT)
        await run(database, "VACUUM (ANALYZE) lane")
        async with database.transaction() as transaction:
            asks = raw_connection_of(transaction)
            if careless:
                await asks.execute(f"ALTER FUNCTION {function} RESET enable_bitmapscan")
            value_before = await asks.fetchval(READ)
            await asks.fetch(ASKS[function])
            read = await asks.fetchval(READ) - value_before
    assert (read > WAS) == careless
    assert read >= LANES


PAUSES = """
INSERT INTO pause (scope, tenant_id, key, reason, paused_by, until) VALUES
    ('rate', 't0', 'g', 'its rate', 'gate', now() + interval '1 minute'),
    ('queue', '', 'default', 'upkeep', 'ann', now() + interval '2 minutes')
"""
CAP = "INSERT INTO concurrency_cap (tenant_id, group_key, max_running) VALUES ('t0', '', 1)"
LOOK_AGAIN = "UPDATE lane SET state = 'parked', park_reason = 'pause', wake_at = 'infinity'"
MOVES = {
    "hold": ("", f"SELECT lane_hold({THEM}, 't0', 'g')", "park_reason = 'pause'"),
    "pause": ("", f"SELECT lane_pause({THEM}, 'queue', '', 'default')", "park_reason = 'pause'"),
    "unpause": (LOOK_AGAIN, f"SELECT lane_unpause({THEM}, true)", "wake_at < 'infinity'"),
    "apply": (CAP, f"SELECT lane_apply({THEM})", "capped = (tenant_id = 't0')"),
}
READ_OF_LANES = """
SELECT sum(pg_stat_get_xact_tuples_returned(relid) + pg_stat_get_xact_tuples_fetched(relid))::integer
FROM (
    SELECT 'lane'::regclass AS relid
    UNION ALL SELECT indexrelid FROM pg_stat_user_indexes WHERE relname = 'lane') AS one
"""


@pytest.mark.parametrize("analyzed", [False, True])
@pytest.mark.parametrize("move", MOVES)
async def test_lane_changes_read_live_rows_only(
    database: Database, database_settings: DatabaseSettings, move: str, analyzed: bool
) -> None:
    """Each hold of a rate, and whatever people pause, resume and set."""
    before_it, asks_for, then = MOVES[move]
    await PostgresJobStore(database, IDS).enqueue([new_job(tenant_id=f"t{n}") for n in range(LANES)])
    await run(database, PAUSES)
    async with held_snapshot(database_settings.dsn):
        await run(database, BLOAT)
        if before_it:
            await run(database, before_it)
        if analyzed:
            await run(database, "VACUUM (ANALYZE) lane")
        async with database.transaction() as transaction:
            asks = raw_connection_of(transaction)
            value_before = await asks.fetchval(READ_OF_LANES)
            await asks.fetch(asks_for)
            read = await asks.fetchval(READ_OF_LANES) - value_before
    assert LANES < read <= 20 * LANES < WAS
    assert len(await rows(database, f"SELECT FROM lane WHERE {then}")) == LANES


READY_AND_PARKED = f"""
DO $$ BEGIN
    FOR i IN 1..{WAS} LOOP
        UPDATE lane SET state = 'parked', park_reason = 'due',
            wake_at = now() - interval '1 hour' + i * interval '1 second';
        UPDATE lane SET state = 'ready', park_reason = NULL, wake_at = NULL, vtime = vtime + 1;
    END LOOP;
END $$
"""
RAISE_FLOORS = "SELECT lane_raise_floors(false)"
READ_OF_ALL = "SELECT sum(pg_stat_get_xact_tuples_returned(indexrelid))::integer FROM pg_stat_user_indexes"


@pytest.mark.parametrize("analyzed", [False, True])
@pytest.mark.parametrize("look", [RAISE_FLOORS, "SELECT lane_age(300)"])
async def test_the_upkeep_of_each_second_begins_at_the_floor(
    database: Database, database_settings: DatabaseSettings, look: str, analyzed: bool
) -> None:
    await PostgresJobStore(database, IDS).enqueue([new_job(tenant_id=f"t{n}") for n in range(LANES)])
    async with held_snapshot(database_settings.dsn):
        await run(database, READY_AND_PARKED)
        for _ in range(2):  # it is noted, then it rises
            await run(database, RAISE_FLOORS)
        if analyzed:
            await run(database, "VACUUM (ANALYZE) lane")
        async with database.transaction() as transaction:
            asks = raw_connection_of(transaction)
            value_before = await asks.fetchval(READ_OF_ALL)
            await asks.fetch(look)
            read = await asks.fetchval(READ_OF_ALL) - value_before
    assert read <= 20 * LANES < WAS
