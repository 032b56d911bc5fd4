"""Migrations are applied while statements of this version are at work."""

from __future__ import annotations

import asyncio

from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.jobs import PostgresJobStore
from fairlead.adapters.postgres.migrate import Migrator, shipped_migrations
from tests.migration.test_migrate import applied, migration
from tests.support.beside import a_long_report, at_work
from tests.support.engine import IDS
from tests.support.rows import rows, run

GUARDED = (
    "SELECT DISTINCT polrelid::regclass::text AS name FROM pg_policy WHERE polname = 'tenants_see_theirs'"
)


async def test_row_security_is_enabled_beside_work(empty: DatabaseSettings) -> None:
    """It locks one table at a time for a moment: statements at work meet no deadlock and no timeout, and do not
    wait long behind it while it waits for a report."""
    await Migrator(empty).apply()
    database = await Database.open(empty)
    for table in await rows(database, GUARDED):
        await run(database, f"DROP POLICY tenants_see_theirs ON {table['name']}")
    await database.close()
    database = await Database.open(empty)
    assert not database.row_security_enabled
    async with asyncio.timeout(60), at_work(database) as beside, a_long_report(empty, reads_s=3.0):
        await Migrator(empty).apply()
    assert (await PostgresJobStore(database, IDS, notify=False).counts())["completed"] == beside.done > 0
    assert beside.longest_s < 2.0  # one wait of the migration for a lock, and no more
    await database.close()
    again = await Database.open(empty)
    assert again.row_security_enabled
    await again.close()


async def test_a_later_migration_is_applied_beside_work(empty: DatabaseSettings) -> None:
    """The statements of this version go on while a report makes the migration wait for its lock."""
    await Migrator(empty).apply()
    later = migration(1, "ALTER TABLE job ADD COLUMN y integer;")
    replaced = migration(
        2,
        "CREATE OR REPLACE FUNCTION follow_up_run_at() RETURNS timestamptz LANGUAGE sql STABLE RETURN now();",
    )
    database = await Database.open(empty)
    async with asyncio.timeout(60), at_work(database) as beside, a_long_report(empty, reads_s=1.5):
        assert await Migrator(empty, [*shipped_migrations(), later, replaced]).apply() == [later, replaced]
    assert (await PostgresJobStore(database, IDS, notify=False).counts())["completed"] == beside.done > 0
    assert beside.longest_s < 2.0
    await database.close()
    assert await applied(empty) == [0, 1, 2]
