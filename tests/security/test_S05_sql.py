"""S05: whatever a text says, no statement becomes another one: neither ours nor one that a function makes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import asyncpg

from fairlead.adapters.local.system import SystemIds
from fairlead.adapters.postgres.jobs import PostgresJobStore
from fairlead.adapters.postgres.pool import Database
from fairlead.adapters.postgres.sqlfiles import statement, statement_names
from tests.lint.tree import PACKAGE, files
from tests.security.figures import tell
from tests.security.vectors import V8
from tests.support.rows import rows

ATTACKS = (
    "'; DROP TABLE job; --", '"; DROP TABLE job; --', "x' OR '1'='1", "$$; DROP TABLE job; $$", "$1", ":now",
    "\\'; DROP TABLE job; --", "E'\\x27; DROP TABLE job'", "/*", "--", "job; DELETE FROM job", "%I", "%s",
)  # fmt: skip
MADE: Mapping[str, str] = {
    "0012_call_waits.sql": "the definition of a function of ours, with texts of its own put in; run once",
    "0016_capped_turns.sql": "the same",
    "0021_full_dead_letters.sql": "the same",
    "0013_tenant_wall.sql": "rights and conditions that stand in the same statement as constants",
}
"""Where a statement is made of something else, and why that is safe."""
STORABLE = tuple(value for value in V8 if len(value) < 1000 and "\0" not in value and value.isprintable())
_DYNAMIC = re.compile(r"\bEXECUTE\s+(?!FUNCTION|ON)(\S+)", re.IGNORECASE)
_SAFE = re.compile(r"format\(", re.IGNORECASE)
_UNQUOTED = re.compile(r"format\([^;]*%s", re.IGNORECASE | re.DOTALL)


async def test_S05_no_text_becomes_sql(database: Database) -> None:
    """Every statement of ours, with an attack in each of its texts: what is there afterwards is what was."""
    before = await tables(database)
    tried = 0
    connection = await asyncpg.connect(database.settings.dsn)
    try:
        if database.settings.schema:
            await connection.execute(statement("schema_use").text, database.settings.schema)
        for name in statement_names():
            tried += await attack(connection, statement(name).text)
    finally:
        await connection.close()
    assert await tables(database) == before
    assert tried > 1000
    tell("S05", n=tried, statements_changed=0)


async def attack(connection: asyncpg.Connection, sql: str) -> int:
    """How many values were tried. A statement that cannot be read would be an attack that got through."""
    prepared = await connection.prepare(sql)
    kinds = [kind.name for kind in prepared.get_parameters()]
    if not any(kind in ("text", "varchar", "text[]") for kind in kinds):
        return 0
    for value in ATTACKS:
        transaction = connection.transaction()
        await transaction.start()
        try:
            await prepared.fetch(*(filled(kind, value) for kind in kinds), timeout=5)
        except asyncpg.PostgresSyntaxError:
            raise
        except (asyncpg.PostgresError, asyncpg.InterfaceError):
            pass  # a constraint, or a null where none may be
        finally:
            await transaction.rollback()
    return len(ATTACKS)


def filled(kind: str, value: str) -> object:
    return value if kind in ("text", "varchar") else [value] if kind == "text[]" else None


async def tables(database: Database) -> list[tuple[str, str]]:
    """Every table, function and policy of the schema."""
    here = "(SELECT oid FROM pg_namespace WHERE nspname = current_schema())"
    found = await rows(
        database,
        f"SELECT relname AS name, relkind::text AS kind FROM pg_class WHERE relnamespace = {here}"
        f" UNION ALL SELECT proname, 'f' FROM pg_proc WHERE pronamespace = {here}"
        " UNION ALL SELECT polname, 'p' FROM pg_policy ORDER BY 1, 2",
    )
    return [(row["name"], row["kind"]) for row in found]


async def test_S05_a_filter_is_a_value(database: Database) -> None:
    store = PostgresJobStore(database, SystemIds())
    for value in (*ATTACKS, *STORABLE):
        assert await store.search(state=value, kind=value, tenant_id=value, queue=value, limit=5) == []


# ---- what a function of ours puts together


def made_in_the_server(text: str) -> Iterator[str]:
    """Statements that a function makes of something else than constants and quoted names."""
    for found in _DYNAMIC.finditer(text):
        rest = text[found.start() :].partition(";")[0]
        if not _SAFE.match(found[1]) or _UNQUOTED.search(rest):
            yield rest[:60]


def sql_files() -> Iterator[Path]:
    return files(PACKAGE, suffixes=(".sql",))


def bare(text: str) -> str:
    """*text* without its comments."""
    return "\n".join(line.partition("--")[0] for line in text.splitlines())


def test_S05_functions_quote_what_they_put_in() -> None:
    found = {path.name: list(made_in_the_server(bare(path.read_text()))) for path in sql_files()}
    assert {name: made for name, made in found.items() if made and name not in MADE} == {}
    assert set(MADE) <= set(found)


def test_S05_the_search_bites() -> None:
    for bad in (
        "EXECUTE 'DROP TABLE ' || name;",
        "EXECUTE statement;",
        "EXECUTE format('DROP TABLE %s', name);",
    ):
        assert list(made_in_the_server(bad))
    assert not list(made_in_the_server("EXECUTE format('GRANT %I TO %I', a, b); EXECUTE FUNCTION f();"))
