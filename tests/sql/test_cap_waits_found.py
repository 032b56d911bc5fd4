"""Who waits under a cap is found among those parked just now, however often lanes were before (Q7, Q12)."""

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

LANES, ROUNDS = 5, 500
LOOKUPS, SPANS_S = 3, 20 + 5
"""Of a cap: whether anybody waits, who longest, and whose turn it is. How far back the oldest span begins."""
PARKED = LANES * ROUNDS
PARKED_ONCE_A_SECOND = f"""
DO $$ BEGIN
    FOR ago_s IN REVERSE {ROUNDS}..0 LOOP
        UPDATE lane SET state = 'parked', park_reason = 'cap',
            wake_at = now() + (1 - ago_s) * interval '1 second';
        EXIT WHEN ago_s = 0;
        UPDATE lane SET state = 'ready', park_reason = NULL, wake_at = NULL, vtime = vtime + 1;
    END LOOP;
END $$
"""
PARK = "UPDATE lane SET state = 'parked', park_reason = 'cap', wake_at = now() + $1 * interval '1 second'"
RAISE_FLOORS = "SELECT lane_raise_floors(false)"
READ = """
SELECT sum(pg_stat_get_xact_tuples_returned(format('lane_%s_idx', name)::regclass))::integer
FROM unnest(ARRAY['cap', 'cap_wait', 'group_cap', 'group_cap_wait']) AS name
"""
TENANT_SQL = {
    "of a tenant": "SELECT lane_uncap(ARRAY['acme'], ARRAY[''], {most})",
    "shared": "SELECT lane_uncap(ARRAY['globex'], ARRAY['g'], {most})",
}
READY = "SELECT kind FROM lane WHERE state = 'ready' ORDER BY level, vtime"


async def lanes_of(database: Database, kinds: int = LANES) -> None:
    jobs = [new_job(kind=f"k{n:02}", group_key="g") for n in range(kinds)]
    await PostgresJobStore(database, IDS).enqueue(jobs)


@pytest.mark.parametrize("tenant_case", TENANT_SQL)
@pytest.mark.parametrize("analyzed", [False, True])
async def test_cap_waits_read_no_lane_parked_long_ago(
    database: Database, database_settings: DatabaseSettings, tenant_case: str, analyzed: bool
) -> None:
    """A snapshot keeps them all, and the wait of each began when that of today did."""
    await lanes_of(database)
    async with held_snapshot(database_settings.dsn):
        await run(database, PARKED_ONCE_A_SECOND)
        await run(database, RAISE_FLOORS)
        if analyzed:
            await run(database, "VACUUM (ANALYZE) lane")
        async with database.transaction() as transaction:
            asks = raw_connection_of(transaction)
            value_before = await asks.fetchval(READ)
            await asks.fetch(TENANT_SQL[tenant_case].format(most=12))
            read = await asks.fetchval(READ) - value_before
    assert LOOKUPS * LANES <= read <= LOOKUPS * LANES * SPANS_S < PARKED
    assert len(await rows(database, READY)) == LANES


@pytest.mark.parametrize("tenant_case", TENANT_SQL)
@pytest.mark.parametrize(
    ("woken_in_s", "seen_by_the_floor"),
    [(1.0, True), (4.0, True), (-11.0, False), (-200.0, True)],
    ids=[
        "parked just now",
        "parked while this statement waited",
        "parked by a late commit",
        "woken by nobody",
    ],
)
async def test_no_parked_lane_is_forgotten(
    database: Database, tenant_case: str, woken_in_s: float, seen_by_the_floor: bool
) -> None:
    await lanes_of(database)
    if not seen_by_the_floor:
        await run(database, RAISE_FLOORS)
    await run(database, PARK, woken_in_s)
    if seen_by_the_floor:
        await run(database, RAISE_FLOORS)
    await run(database, TENANT_SQL[tenant_case].format(most=LANES))
    assert len(await rows(database, READY)) == LANES


@pytest.mark.parametrize("tenant_case", TENANT_SQL)
async def test_whose_turn_it_is_is_one_line_whenever_they_were_parked(
    database: Database, tenant_case: str
) -> None:
    """The first of it, and the two that wait longest, though each span has as many that are more urgent."""
    await lanes_of(database, 40)
    await run(database, PARK, 1.0)
    await run(
        database,
        "UPDATE lane SET level = 1 + (place > 20)::integer, vtime = 1000 + place,"
        " wake_at = wake_at - CASE WHEN place > 20 THEN 0 ELSE place % 12 END * interval '1 second',"
        " served_at = now() - (place + 10) * interval '1 second'"
        " FROM (SELECT kind, row_number() OVER (ORDER BY md5(kind)) AS place FROM lane) AS mixed"
        " WHERE mixed.kind = lane.kind",
    )
    by_turn = [row["kind"] for row in await rows(database, "SELECT kind FROM lane ORDER BY level, vtime")]
    by_wait = [row["kind"] for row in await rows(database, "SELECT kind FROM lane ORDER BY served_at")]
    assert not set(by_turn[:3]) & set(by_wait[:2])
    await run(database, TENANT_SQL[tenant_case].format(most=3))
    ready = [row["kind"] for row in await rows(database, READY)]
    assert sorted(ready) == sorted(by_turn[:3] + by_wait[:2])
