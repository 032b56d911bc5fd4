"""What others make in the schema does not run with the rights of its owner (R54)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import asyncpg
import pytest

from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.migrate import Migrator
from fairlead.adapters.postgres.postgres_info import server_facts
from fairlead.assembly.doctor.database_checks import role_check
from fairlead.errors import InvalidConfigError
from tests.support.databases import SCHEMA
from tests.support.raw_connections import raw_connection
from tests.support.rows import rows, run

ENQUEUE = f'"{SCHEMA}".fairlead_enqueue'
ROLE = "maker_of_tests"
RUNNING = "state = 'running', lease_id = 1, session_id = gen_random_uuid(), started_at = now()"
TYPES = (
    "smallint",
    "integer",
    "bigint",
    "numeric",
    "double precision",
    "text",
    "varchar",
    "name",
    "interval",
)
SIGNS = ("=", "<>", "<", ">", "<=", ">=", "+", "-", "*", "/", "||", "%", "~", "!~")
FUNCTIONS = (  # closer matches than the polymorphic ones, and than those whose parameters need a cast
    "cardinality(text[])",
    "array_position(text[], text)",
    "pg_has_role(name, text, text)",
    "set_bit(bytea, integer, integer)",
    "convert_to(text, text)",
    "to_jsonb(job)",
    "jsonb_populate_record(job, jsonb)",
    "split_part(varchar, varchar, integer)",
    "format(text, text, text)",
    "round(numeric)",
    "count(uuid)",
)
DEAD = """
INSERT INTO dead_letter
    (dead_letter_id, job_id, lineage_id, queue, kind, tenant_id, priority, category, code, reason)
SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 'default', 'k', 'acme', 2,
    'permanent_auth', 'x', 'x'
FROM generate_series(1, $1::integer)
"""
PLANT = """
DO $$
DECLARE
    types regtype[] := $types$; signs text[] := $signs$; lefts regtype; rights regtype; sign text; number integer := 0;
BEGIN
    FOREACH lefts IN ARRAY types LOOP FOREACH rights IN ARRAY types LOOP FOREACH sign IN ARRAY signs LOOP
        CONTINUE WHEN EXISTS (SELECT FROM pg_operator WHERE oprname = sign AND oprleft = lefts AND oprright = rights);
        number := number + 1;
        EXECUTE format('CREATE FUNCTION planted_%s(%s, %s) RETURNS boolean LANGUAGE plpgsql AS ''BEGIN RAISE ''''planted''''; END''',
            number, lefts, rights);
        EXECUTE format('CREATE OPERATOR %s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = planted_%s)', sign, lefts, rights, number);
    END LOOP; END LOOP; END LOOP;
END $$
"""  # noqa: E501 - one statement


@pytest.fixture
async def maker(database: Database, database_settings: DatabaseSettings) -> AsyncIterator[Any]:
    """A role that may enqueue, and create objects in the schema."""
    for sql in (
        f"CREATE ROLE {ROLE} LOGIN",
        f'GRANT USAGE, CREATE ON SCHEMA "{SCHEMA}" TO {ROLE}',
        f"GRANT EXECUTE ON FUNCTION fairlead_enqueue TO {ROLE}",
        f"GRANT USAGE ON TYPE job TO {ROLE}",
    ):
        await run(database, sql)
    options = {"search_path": f'"{SCHEMA}"'}
    connection = await asyncpg.connect(database_settings.dsn, user=ROLE, server_settings=options)
    yield connection
    await connection.close(timeout=5)
    await run(database, f"DROP OWNED BY {ROLE} CASCADE")
    await run(database, f"DROP ROLE {ROLE}")


def planted() -> list[str]:
    """Statements that make operators and functions which raise, wherever a closer one can be made."""
    types = "ARRAY[" + ", ".join(f"'{name}'" for name in TYPES) + "]::regtype[]"
    signs = "ARRAY[" + ", ".join(f"'{sign}'" for sign in SIGNS) + "]"
    statements = [PLANT.replace("$types$", types).replace("$signs$", signs)]
    body = "RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE 'planted'; END $$"
    return statements + [f"CREATE FUNCTION {function} {body}" for function in FUNCTIONS]


async def test_enqueue_uses_nothing_that_was_planted(database: Database, maker: Any) -> None:
    await run(database, DEAD, 3)
    await maker.fetchval(f"SELECT {ENQUEUE}('k', 'acme', unique_key => 'running', priority => 3)")
    await run(database, f"UPDATE job SET {RUNNING}")
    for sql in planted():
        await maker.execute(sql)
    every = (
        "'k', 'acme', provider => 'shopify', account => 'eu', tags => ARRAY['a'], delay_s => 1,"
        " expires_in_s => 9, notify => true"
    )
    for arguments in (
        every,
        "'k', 'acme', unique_key => 'waiting', unique_for_s => 0, group_key => 'g'",
        "'k', 'acme', unique_key => 'waiting', priority => 0",
        "'k', 'acme', unique_key => 'running', priority => 0",
        "'k', 'acme', unique_key => 'running', unique_while => 'open'",
        "'k', 'acme', unique_key => 'running', unique_while => 'waiting'",
    ):
        assert await maker.fetchval(f"SELECT {ENQUEUE}({arguments})"), arguments
    for arguments in ("tags => ARRAY['']", "unique_key => 'waiting', unique_while => 'wating'"):
        with pytest.raises(asyncpg.InvalidParameterValueError):
            await maker.fetchval(f"SELECT {ENQUEUE}('k', 'acme', {arguments})")
    with pytest.raises(asyncpg.ConfigurationLimitExceededError):
        await maker.fetchval(f"SELECT {ENQUEUE}('k', 'acme', dead_letter_bound => 1)")


@pytest.mark.parametrize(
    ("exact", "loose"),
    [("delay_s = 0::double precision", "delay_s = 0"), ("pg_catalog.pg_has_role", "pg_has_role")],
)
async def test_ablation_of_exact_matches(database: Database, maker: Any, exact: str, loose: str) -> None:
    await run(database, DEAD, 1)
    (row,) = await rows(database, "SELECT pg_get_functiondef('fairlead_enqueue'::regproc) AS sql")
    assert exact in row["sql"]
    await run(database, row["sql"].replace(exact, loose))
    for sql in planted():
        await maker.execute(sql)
    with pytest.raises(asyncpg.RaiseError, match="planted"):
        await maker.fetchval(f"SELECT {ENQUEUE}('k', 'acme', notify => true)")


async def test_the_bound_of_a_caller_is_no_larger_than_ours(database: Database, maker: Any) -> None:
    await run(database, DEAD, 10_000)
    with pytest.raises(asyncpg.ConfigurationLimitExceededError):
        await maker.fetchval(f"SELECT {ENQUEUE}('k', 'acme', dead_letter_bound => 1000000)")


async def test_an_id_tells_nothing_of_other_tenants(database: Database, maker: Any) -> None:
    other_job_id = await maker.fetchval(f"SELECT {ENQUEUE}('k', 'bolt')")
    job_id = await maker.fetchval(f"SELECT {ENQUEUE}('k', 'acme', job_id => $1)", other_job_id)
    assert job_id != other_job_id
    with pytest.raises(asyncpg.UniqueViolationError, match="has a job of this id"):
        await maker.fetchval(f"SELECT {ENQUEUE}('k', 'bolt', job_id => $1)", other_job_id)
    assert len(await rows(database, "SELECT FROM job")) == 2


@pytest.mark.usefixtures("maker")
async def test_a_schema_in_which_others_create_is_refused(database_settings: DatabaseSettings) -> None:
    with pytest.raises(InvalidConfigError, match=f"{ROLE} may create objects"):
        await Migrator(database_settings).apply()
    check = role_check(await server_facts(database_settings))
    assert (check.status, ROLE in check.detail) == ("fail", True)


async def test_sql_in_hints_for_an_administrator_quotes_role_names(
    database: Database, database_settings: DatabaseSettings
) -> None:
    hostile = 'x"; DROP TABLE job; --'
    quoted = '"x""; DROP TABLE job; --"'
    await run(database, f"CREATE ROLE {quoted}")
    try:
        await run(database, f'GRANT CREATE ON SCHEMA "{SCHEMA}" TO {quoted}')
        with pytest.raises(InvalidConfigError) as refused:
            await Migrator(database_settings).apply()
        hints = [refused.value.hint, str(role_check(await server_facts(database_settings)).hint)]
    finally:
        await run(database, f"DROP OWNED BY {quoted}")
        await run(database, f"DROP ROLE {quoted}")
    for hint in hints:
        assert f"FROM {quoted}" in hint
        assert hostile not in hint.replace(quoted, "")


async def test_a_schema_that_sessions_look_through_is_none_in_which_others_create(
    database: Database, database_settings: DatabaseSettings
) -> None:
    """Behind a pooler they have the server's search_path: an operator there may fit a statement better."""
    await run(database, f"CREATE ROLE {ROLE}")
    await run(database, "CREATE SCHEMA public")
    behind_a_pooler = replace(database_settings, transaction_pooler=True)
    try:
        assert role_check(await server_facts(behind_a_pooler)).status == "ok"
        await run(database, f"GRANT CREATE ON SCHEMA public TO {ROLE}")
        check = role_check(await server_facts(behind_a_pooler))
        assert role_check(await server_facts(database_settings)).status == "ok"
    finally:
        await run(database, f"DROP OWNED BY {ROLE}")
        await run(database, f"DROP ROLE {ROLE}")
    assert (check.status, ROLE in check.detail) == ("fail", True)
    assert check.hint == f"have an administrator run REVOKE CREATE ON SCHEMA public FROM {ROLE};"


async def test_the_owners_of_a_schema_may_create_there(
    database: Database, database_settings: DatabaseSettings
) -> None:
    assert (await server_facts(database_settings)).creators == ""
    assert await Migrator(database_settings).apply() == []


async def test_reader_reads_no_sealed_secret(database: Database, maker: Any) -> None:
    await run(database, f"GRANT fairlead_reader TO {ROLE}")
    assert await maker.fetch("SELECT connection_id, state FROM credential") == []
    for columns in ("sealed", "*"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await maker.fetch(f"SELECT {columns} FROM credential")


@pytest.mark.parametrize("role", ["fairlead_engine", "fairlead_tenant"])
async def test_the_server_says_when_an_audit_record_was_written(database: Database, role: str) -> None:
    async with raw_connection(database) as connection, connection.transaction():
        await connection.execute(f"SET LOCAL ROLE {role}")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute(
                "INSERT INTO audit (audit_id, at, actor, act) VALUES (gen_random_uuid(), now(), 'a', 'b')"
            )
