"""A database that came up step by step is the one that is made today, and the one that was agreed upon."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.migrate import Migrator, read_migration, shipped_migrations
from tests.support.catalog import catalog
from tests.support.databases import settings_of, without_public
from tests.support.rows import rows, run
from tests.support.servers import drop_database, fresh_database

KEPT = Path(__file__).with_name("catalog.txt")


@pytest.fixture
async def url(servers: Endpoints) -> AsyncIterator[str]:
    made = await fresh_database(servers.database_url)
    await without_public(made)
    yield made
    await drop_database(servers.database_url, made)


async def test_step_by_step_is_as_at_once(url: str, database: Database) -> None:
    """Each migration is applied by a run of its own, as if each were a release."""
    migrations = shipped_migrations()
    for last in range(1, len(migrations) + 1):
        await Migrator(settings_of(url), migrations[:last]).apply()
    upgraded = await Database.open(settings_of(url))
    assert await catalog(upgraded) == await catalog(database)
    await upgraded.close()


async def test_the_schema_is_the_one_that_was_agreed_upon(database: Database) -> None:
    """Edited a migration? It has never been released: keep the new text. It has: write another migration."""
    found = await catalog(database, to_be_kept=True)
    assert found == KEPT.read_text("utf-8"), (
        f"the schema has changed hint: if that is meant, write the text above to {KEPT.name}"
        " with `python -m tests.migration.keep`"
    )


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE job ADD COLUMN more text",
        "ALTER TABLE job ALTER COLUMN attempt DROP DEFAULT",
        "ALTER TABLE job ALTER COLUMN kind DROP NOT NULL",
        "ALTER TABLE job SET (fillfactor = 90)",
        "ALTER TABLE job NO FORCE ROW LEVEL SECURITY",
        "DROP POLICY engine_sees_all ON job",
        "DROP INDEX job_lane_idx",
        "CREATE INDEX job_tag_idx ON job (tags)",
        "ALTER TABLE dead_letter DROP CONSTRAINT dead_letter_reason_check",
        "DROP TRIGGER audit_append_only ON audit",
        "GRANT DELETE ON audit TO fairlead_engine",
        "CREATE OR REPLACE FUNCTION failure_added(failures jsonb, failure jsonb) RETURNS jsonb"
        " LANGUAGE sql STABLE AS 'SELECT failures'",
        "ALTER FUNCTION fairlead_enqueue RESET search_path",
        "GRANT EXECUTE ON FUNCTION lane_touch_for_tenant TO PUBLIC",
        "GRANT UPDATE (kind) ON job TO fairlead_door",
        "GRANT SELECT ON job TO PUBLIC",
        "CREATE VIEW v AS SELECT 1",
    ],
)
async def test_the_comparison_sees(database: Database, sql: str) -> None:
    before = await catalog(database)
    await run(database, sql)
    assert await catalog(database) != before


UNSAFE = """
    SELECT p.proname AS name FROM pg_proc p
    WHERE p.prosecdef AND p.pronamespace = quote_ident(current_schema())::regnamespace AND NOT EXISTS (
        SELECT FROM unnest(p.proconfig) AS setting WHERE setting ~ '^search_path=.*, pg_temp$')"""


async def test_what_runs_with_its_owners_rights_has_a_search_path_of_its_own(database: Database) -> None:
    """Else a caller's schema, or its temporary tables, decide what runs with other rights."""
    assert await rows(database, UNSAFE) == []
    for path in ("RESET search_path", "SET search_path = pg_temp, public"):
        await run(database, f"ALTER FUNCTION fairlead_enqueue {path}")
        assert await rows(database, UNSAFE) == [{"name": "fairlead_enqueue"}]


def test_every_shipped_migration_says_what_it_needs() -> None:
    for migration in shipped_migrations():
        assert migration.text.startswith(f"-- {migration.title}: ")
        assert "\n-- Needs " in migration.text
        assert read_migration(f"{migration.title}.sql", migration.text) == migration
