"""What `fairlead doctor` says of the wall is looked at on each table, not on one of them (S27)."""

from __future__ import annotations

import re

import pytest

from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.row_security import RowSecurityState, wall_state
from fairlead.adapters.postgres.statements import statement
from fairlead.assembly.doctor.database_checks import row_security_check
from tests.support.raw_connections import raw_connection
from tests.support.rows import run
from tests.support.two_tenants import TABLES

HOLES = (
    "ALTER TABLE {table} DISABLE ROW LEVEL SECURITY",
    "DROP POLICY tenants_see_theirs ON {table}",
    "ALTER POLICY tenants_see_theirs ON {table} USING (true)",
    "ALTER POLICY tenants_see_theirs ON {table} WITH CHECK (true)",
    "ALTER POLICY tenants_see_theirs ON {table} TO fairlead_engine",
    "CREATE POLICY more ON {table} FOR SELECT USING (true)",
    "CREATE POLICY more ON {table} FOR SELECT TO fairlead_tenant USING (true)",
    "ALTER TABLE {table} OWNER TO fairlead_tenant",
)
NO_HOLES = (
    "CREATE POLICY more ON {table} AS RESTRICTIVE TO fairlead_tenant USING (true)",
    "CREATE POLICY more ON {table} FOR SELECT TO fairlead_engine USING (true)",
)


async def state(database: Database) -> RowSecurityState:
    async with raw_connection(database) as connection:
        return await wall_state(connection, database.settings.in_schema)


def test_the_tables_that_are_looked_at_are_all_that_have_tenants() -> None:
    named = re.findall(r"'([a-z_]+)'", statement("row_security_state").text.partition("ARRAY[")[2])
    assert tuple(named[: len(TABLES)]) == tuple(sorted(TABLES))


@pytest.mark.parametrize("table", TABLES)
async def test_a_table_whose_row_level_security_is_off_has_no_wall(database: Database, table: str) -> None:
    assert row_security_check(await state(database)).status == "ok"
    await run(database, f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY")
    check = row_security_check(await state(database))
    assert (check.status, "a table of tenants lacks" in check.detail) == ("warn", True)


@pytest.mark.parametrize("hole", HOLES)
async def test_a_hole_in_one_table_is_seen(database: Database, hole: str) -> None:
    await run(database, hole.format(table="audit"))
    assert not (await state(database)).guarded


@pytest.mark.parametrize("change", NO_HOLES)
async def test_change_that_shows_the_role_no_more_rows_is_no_hole(database: Database, change: str) -> None:
    await run(database, change.format(table="audit"))
    assert (await state(database)).guarded
