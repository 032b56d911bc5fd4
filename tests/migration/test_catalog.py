"""The installed schema equals the catalog that is kept in catalog.txt."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.migrate import read_migration, shipped_migrations
from tests.support.catalog import catalog
from tests.support.rows import rows, run

CATALOG_FILE = Path(__file__).with_name("catalog.txt")


async def test_the_schema_is_the_one_that_was_agreed_upon(database: Database) -> None:
    """catalog.txt was first made by the 50 migrations that the baseline replaced."""
    catalog_text = await catalog(database, to_be_kept=True)
    assert catalog_text == CATALOG_FILE.read_text("utf-8"), (
        f"the schema has changed hint: if that is meant, write the text above to {CATALOG_FILE.name}"
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
        "CREATE OR REPLACE FUNCTION failures_append(failures jsonb, failure jsonb) RETURNS jsonb"
        " LANGUAGE sql STABLE AS 'SELECT failures'",
        "ALTER FUNCTION fairlead_enqueue RESET search_path",
        "CREATE OR REPLACE FUNCTION is_own(of_kind text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE"
        " RETURN of_kind = 'clean_up'",
        "GRANT EXECUTE ON FUNCTION lane_touch_for_tenant TO PUBLIC",
        "GRANT UPDATE (kind) ON job TO fairlead_reader",
        "GRANT SELECT ON job TO PUBLIC",
        "CREATE VIEW v AS SELECT 1",
    ],
)
async def test_the_comparison_sees(database: Database, sql: str) -> None:
    catalog_before = await catalog(database)
    await run(database, sql)
    assert await catalog(database) != catalog_before


UNSAFE = """
    SELECT p.proname AS name FROM pg_proc p
    WHERE p.prosecdef AND p.pronamespace = quote_ident(current_schema())::regnamespace AND NOT EXISTS (
        SELECT FROM unnest(p.proconfig) AS setting WHERE setting ~ '^search_path=.*, pg_temp$')"""


async def test_security_definer_functions_have_their_own_search_path(database: Database) -> None:
    """Else a caller's schema, or its temporary tables, decide what runs with other rights."""
    assert await rows(database, UNSAFE) == []
    for path in ("RESET search_path", "SET search_path = pg_temp, public"):
        await run(database, f"ALTER FUNCTION fairlead_enqueue {path}")
        assert await rows(database, UNSAFE) == [{"name": "fairlead_enqueue"}]


def test_every_later_migration_says_what_it_needs() -> None:
    for migration in shipped_migrations()[1:]:
        assert migration.text.startswith(f"-- {migration.title}: ")
        assert "\n-- Needs " in migration.text
        assert read_migration(f"{migration.title}.sql", migration.text) == migration
