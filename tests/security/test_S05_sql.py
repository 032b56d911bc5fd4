"""S05: whatever a text says, no statement becomes another one: neither ours nor one that a function makes."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from uuid import UUID

import asyncpg
import pytest

from fairlead.adapters.local.system import SystemIds
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.jobs import PostgresJobStore
from fairlead.adapters.postgres.statements import statement, statement_names
from tests.lint.tree import PACKAGE, files
from tests.security.figures import tell
from tests.security.vectors import V8

ATTACKS = (
    "'; CREATE TABLE taken (); --", 'x"; CREATE TABLE taken (); --', "x' OR '1'='1", "$1", ":now", "/*", "--",
    "$$; CREATE TABLE taken (); SELECT $$", "\\'; CREATE TABLE taken (); --", "1; CREATE TABLE taken ()",
    "E'\\x27; CREATE TABLE taken ()'", "job; DELETE FROM job", "%I", "%s",
)  # fmt: skip
"""What is made shows; that a table is dropped, others that refer to it may forbid."""
TEXTS = ("text", "varchar")
PLAUSIBLE: Mapping[str, object] = {
    "uuid": UUID(int=7), "bool": True, "bytea": b"\0", "timestamptz": datetime(2026, 1, 1, tzinfo=UTC),
    **dict.fromkeys(("int2", "int4", "int8"), 1), "float4": 1.0, "float8": 1.0,
}  # fmt: skip
REFUSALS = ("22", "23", "P0001")
"""Classes of SQLSTATE by which a value is refused as such: data, constraint, a function's own word."""
MADE_THINGS = """
    SELECT md5(string_agg(name, ',' ORDER BY name)) FROM (
        SELECT concat_ws(' ', oid, relname, relkind, relrowsecurity) FROM pg_class
            WHERE relkind NOT IN ('i', 't')
        UNION ALL SELECT concat_ws(' ', oid, proname, prosecdef, prosrc) FROM pg_proc WHERE oid >= 16384
        UNION ALL SELECT concat_ws(' ', oid, polname) FROM pg_policy
    ) AS made (name)"""
"""Every table, function and policy, in whatever schema."""
FUNCTIONS = """
    SELECT p.oid::regprocedure::text AS signature, p.proname AS name, ARRAY(
        SELECT format_type(kind, NULL)
        FROM unnest(p.proargtypes) WITH ORDINALITY AS one (kind, place) ORDER BY place
    ) AS kinds
    FROM pg_proc p WHERE p.pronamespace = quote_ident(current_schema())::regnamespace
        AND p.prokind = 'f' AND p.prorettype <> 'trigger'::regtype"""
OPAQUE = ("job", "tid")
"""Kinds of arguments that hold rows or their places."""
EXECUTED_BY_US: Mapping[str, str] = {
    "functions/row_security_enable.sql": "rights and conditions that stand in the same statement as constants",
}
"""Where a statement is made of something else, and why that is safe."""
STORABLE = tuple(value for value in V8 if len(value) < 1000 and "\0" not in value and value.isprintable())
_DYNAMIC = re.compile(r"\bEXECUTE\s+(?!FUNCTION|ON)(\S+)", re.IGNORECASE)
_SAFE = re.compile(r"format\(", re.IGNORECASE)
_UNQUOTED = re.compile(r"format\([^;]*%s", re.IGNORECASE | re.DOTALL)


@pytest.mark.slow
async def test_S05_no_text_becomes_sql(database: Database) -> None:
    """Every statement and function of ours, with an attack in each of its texts: all is there as it was.

    Functions by themselves, too: those that check a job get its texts out of JSON, and other languages call.
    """
    async with connected(database) as connection:
        statements = {name: statement(name).text for name in statement_names()} | await calls(connection)
        tallies = {name: await attacked(connection, sql) for name, sql in statements.items()}
    attempt_count, ended = (
        sum(getattr(tally, of) for tally in tallies.values()) for of in ("tried", "ended")
    )
    got_through = {name: tally.got_through for name, tally in tallies.items() if tally.got_through}
    tell("S05", n=attempt_count, ended=ended, statements_changed=len(got_through))
    assert got_through == {}
    assert attempt_count > 4000
    assert ended > attempt_count / 2, "most are refused before they do anything: fill in better values"


@pytest.mark.parametrize(
    "executed",
    [
        "'SELECT 1 WHERE ''x'' = ''' || value || ''''",
        "'SELECT 1 AS \"' || value || '\"'",
        "'SELECT $$' || value || '$$'",
        "'SELECT ' || coalesce(value, '1')",
    ],
)
async def test_S05_a_function_that_executes_its_text_is_seen(database: Database, executed: str) -> None:
    async with connected(database) as connection:
        await connection.execute(
            "CREATE FUNCTION planted(value text, more bigint) RETURNS void LANGUAGE plpgsql"
            f" AS $planted$ BEGIN IF more > 0 THEN EXECUTE {executed}; END IF; END $planted$"
        )
        tally = await attacked(connection, "SELECT planted($1, $2)")
    assert "changed" in tally.got_through.values()


@dataclass(slots=True)
class Tally:
    """What came of the attacks on one statement. *ended*: those that ran to the end; *got_through*: by the
    values of the texts, what shows that the statement became another one."""

    tried: int = 0
    ended: int = 0
    got_through: dict[tuple[str, ...], str] = field(default_factory=dict)


@asynccontextmanager
async def connected(database: Database) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database.settings.dsn)
    try:
        await connection.execute(statement("schema_use").text, database.settings.in_schema)
        yield connection
    finally:
        await connection.close()


async def calls(connection: asyncpg.Connection) -> dict[str, str]:
    """A call of each function of ours, by its signature."""
    found_names = {}
    for row in await connection.fetch(FUNCTIONS):
        number = count(1)
        kinds = (
            f"NULL::{kind}" if kind.removesuffix("[]") in OPAQUE else f"${next(number)}::{kind}"
            for kind in row["kinds"]
        )
        found_names[row["signature"]] = f"SELECT count(*) FROM {row['name']}({', '.join(kinds)})"
    return found_names


async def attacked(connection: asyncpg.Connection, sql: str) -> Tally:
    """Each attack in all texts of *sql* at once, and in each alone: a refused one would shield the others."""
    prepared = await connection.prepare(sql)
    kinds = [kind.name for kind in prepared.get_parameters()]
    texts = [at for at, kind in enumerate(kinds) if kind.removesuffix("[]") in TEXTS]
    tally = Tally()
    count_before = await connection.fetchval(MADE_THINGS)
    for value in ATTACKS:
        for attacked in dict.fromkeys([tuple(texts), *((at,) for at in texts)]) if texts else ():
            values = [filled(kind, value if at in attacked else "x") for at, kind in enumerate(kinds)]
            tally.tried += 1
            transaction = connection.transaction()
            await transaction.start()
            try:
                await prepared.fetch(*values, timeout=5)
                tally.ended += 1
                if await connection.fetchval(MADE_THINGS) != count_before:
                    tally.got_through[value, str(attacked)] = "changed"
            except asyncpg.PostgresError as error:
                if not str(error.sqlstate).startswith(REFUSALS):
                    tally.got_through[value, str(attacked)] = f"{error.sqlstate} {error}"
            finally:
                await transaction.rollback()
    return tally


def filled(kind: str, text: str) -> object:
    """A value of *kind* that lets a statement go on, with *text* where it has room for one."""
    single = kind.removesuffix("[]")
    if single in TEXTS:
        value: object = text
    elif single == "jsonb":
        value = json.dumps({"kind": text, "queue": text, "tenant_id": text})
    else:
        value = PLAUSIBLE[single]
    return [value] if kind.endswith("[]") else value


async def test_S05_a_filter_is_a_value(database: Database) -> None:
    store = PostgresJobStore(database, SystemIds())
    for value in (*ATTACKS, *STORABLE):
        assert await store.search(state=value, kind=value, tenant_id=value, queue=value, limit=5) == []


# ---- what a function of ours puts together


def made_in_the_server(text: str) -> Iterator[str]:
    """Statements that a function makes of something else than constants and quoted names."""
    for match in _DYNAMIC.finditer(text):
        rest = text[match.start() :].partition(";")[0]
        if not _SAFE.match(match[1]) or _UNQUOTED.search(rest):
            yield rest[:60]


def sql_files() -> Iterator[Path]:
    return files(PACKAGE, suffixes=(".sql",))


def bare(text: str) -> str:
    """*text* without its comments."""
    return "\n".join(line.partition("--")[0] for line in text.splitlines())


def test_S05_functions_quote_what_they_put_in() -> None:
    dynamic_by_name = {
        f"{path.parent.name}/{path.name}": list(made_in_the_server(bare(path.read_text())))
        for path in sql_files()
    }
    assert {
        name: dynamic for name, dynamic in dynamic_by_name.items() if dynamic and name not in EXECUTED_BY_US
    } == {}
    assert set(EXECUTED_BY_US) <= set(dynamic_by_name)


def test_S05_the_search_bites() -> None:
    for bad in (
        "EXECUTE 'DROP TABLE ' || name;",
        "EXECUTE statement;",
        "EXECUTE format('DROP TABLE %s', name);",
    ):
        assert list(made_in_the_server(bad))
    assert not list(made_in_the_server("EXECUTE format('GRANT %I TO %I', a, b); EXECUTE FUNCTION f();"))
