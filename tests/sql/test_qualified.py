"""Each statement and each function finds its tables without a search_path, as behind a pooler."""

from __future__ import annotations

import re
from contextlib import suppress

import asyncpg
import pytest

from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.qualified import our_names, qualified
from fairlead.adapters.postgres.statements import statement, statement_names
from tests.support.databases import SCHEMA
from tests.support.rows import rows

UNPLANNED = ["lane_barrier", "migration_table", "tenant_lock"]
"""Statements that have no plan; they may be run."""
OF_MIGRATIONS = {"row_security_enable"}
"""Runs in a session of its own that has the path, as migrations do."""


async def plan(connection: asyncpg.Connection, text: str, parameters: int) -> list[str]:
    """The generic plan of *text*; its tables are qualified, its functions only where they have to be."""
    await connection.execute(f"PREPARE planned AS {text}")
    arguments = f"({', '.join(['NULL'] * parameters)})" if parameters else ""
    plan_rows = await connection.fetch(f"EXPLAIN (VERBOSE, COSTS off) EXECUTE planned{arguments}")
    await connection.execute("DEALLOCATE planned")
    return [row[0].replace(f'"{SCHEMA}".', "") for row in plan_rows]


async def connected(database: Database, search_path: str) -> asyncpg.Connection:
    settings = {"search_path": search_path, "plan_cache_mode": "force_generic_plan"}
    return await asyncpg.connect(database.settings.dsn, server_settings=settings)


async def test_each_statement_has_the_same_plan_without_a_search_path(database: Database) -> None:
    here, nowhere = await connected(database, f'"{SCHEMA}"'), await connected(database, "")
    differ = []
    for name in statement_names():
        if name in {*UNPLANNED, *OF_MIGRATIONS}:
            continue
        text, count = statement(name).text, len(statement(name).params)
        if await plan(here, text, count) != await plan(nowhere, qualified(text, SCHEMA), count):
            differ.append(name)
    assert differ == []
    await nowhere.execute("SET default_transaction_read_only = on")
    for name in UNPLANNED:
        with suppress(asyncpg.ReadOnlySQLTransactionError, asyncpg.NoActiveSQLTransactionError):
            await nowhere.execute(qualified(statement(name).text, SCHEMA))
    for connection in (here, nowhere):
        await connection.close()


async def test_the_names_are_those_of_the_migrated_schema(database: Database) -> None:
    """Otherwise a table of a later migration would not be qualified."""
    mine = "= quote_ident(current_schema())::regnamespace"
    tables = await rows(
        database, f"SELECT relname FROM pg_class WHERE relnamespace {mine} AND relkind IN ('r', 'v', 'S')"
    )
    functions = await rows(database, f"SELECT proname FROM pg_proc WHERE pronamespace {mine}")
    assert {row["relname"] for row in tables} <= our_names().relations
    assert {row["proname"] for row in functions} <= our_names().functions


async def test_each_function_names_its_schema(database: Database) -> None:
    """It is bound to its tables, has a search_path of its own, or is valid without one."""
    nowhere = await connected(database, "")
    loose = await rows(
        database,
        """
        SELECT p.proname, l.lanname, pg_get_functiondef(p.oid) AS made
        FROM pg_proc p JOIN pg_language l ON l.oid = prolang
        WHERE pronamespace = quote_ident(current_schema())::regnamespace AND prosqlbody IS NULL
            AND NOT EXISTS (SELECT FROM unnest(proconfig) AS setting WHERE setting LIKE 'search_path=%')""",
    )
    await nowhere.execute("BEGIN")
    for row in loose:
        if row["lanname"] == "sql":
            await nowhere.execute(row["made"])  # its names are looked up
    await nowhere.close()
    names = {row["proname"] for row in loose if row["lanname"] != "sql"}
    names_nothing = {"audit_is_append_only", "dead_letter_operator_replay"}
    assert names == {*names_nothing, "row_security_enable"}  # which an administrator calls


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT job.state FROM job", 'SELECT job.state FROM "s".job'),
        (
            "UPDATE job SET state = 'job' WHERE job.pause",
            "UPDATE \"s\".job SET state = 'job' WHERE job.pause",
        ),
        ("INSERT INTO lane (lane_id) SELECT 1", 'INSERT INTO "s".lane (lane_id) SELECT 1'),
        ("WITH job AS (SELECT 1) SELECT FROM job", "WITH job AS (SELECT 1) SELECT FROM job"),
        ("SELECT pause, audit FROM x AS job", "SELECT pause, audit FROM x AS job"),
        ("SELECT a IS DISTINCT FROM pause", "SELECT a IS DISTINCT FROM pause"),
        ("SELECT lane_touch($1), lane_touch FROM x", 'SELECT "s".lane_touch($1), lane_touch FROM x'),
        ("SELECT nextval('send_epoch'), 'job'", "SELECT nextval('\"s\".send_epoch'), 'job'"),
        ("SELECT NULL::job, '-- FROM job' -- FROM job", "SELECT NULL::\"s\".job, '-- FROM job' -- FROM job"),
        (
            "DELETE FROM refresh_attempt USING job WHERE true",
            'DELETE FROM "s".refresh_attempt USING "s".job WHERE true',
        ),
        ("/* FROM job */ SELECT 1", "/* FROM job */ SELECT 1"),
    ],
)
def test_only_names_of_tables_and_functions_are_qualified(text: str, expected: str) -> None:
    assert qualified(text, "s") == expected


def test_the_schema_is_quoted() -> None:
    assert qualified("SELECT nextval('send_epoch') FROM job", "it's") == (
        "SELECT nextval('\"it''s\".send_epoch') FROM \"it's\".job"
    )


async def test_no_statement_works_without_being_qualified(database: Database) -> None:
    """What the plans are compared with is no accident of the session."""
    nowhere = await connected(database, "")
    with pytest.raises(asyncpg.UndefinedFunctionError, match=re.escape("job_claim")):
        await plan(nowhere, statement("job_claim").text, len(statement("job_claim").params))
    await nowhere.close()
