"""The migration runner: each migration once, in order, by whoever is first, and never over an edited past."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import asyncpg
import pytest

from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.embedded.wheels import postgres_wheel
from fairlead.adapters.postgres.connection_setup import DatabaseSettings, quoted
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.migrate import (
    Migration,
    Migrator,
    as_script,
    in_order,
    read_migration,
    shipped_migrations,
)
from fairlead.adapters.postgres.statements import Statement
from fairlead.assembly.stores import check_schema
from fairlead.errors import DependencyUnavailableError, InvalidConfigError, MigrationRequiredError
from tests.support.catalog import catalog
from tests.support.databases import settings_of, without_public
from tests.support.rows import rows, run
from tests.support.servers import drop_database, fresh_database


def migration(number: int, sql: str, phase: str = "pre", *more: str) -> Migration:
    header = "\n".join([f"-- {number:04}_step: a step.", f"-- Phase   {phase}", *more])
    return read_migration(f"{number:04}_step.sql", f"{header}\n{sql}\n")


A = migration(1, "CREATE TABLE a (x integer); INSERT INTO a VALUES (1);")
B = migration(2, "CREATE TABLE b (x integer);")
C_POST = migration(3, "ALTER TABLE a DROP COLUMN x;", "post")
D = migration(4, "CREATE TABLE d (x integer);")
LEFT_OBJECTS = """
SELECT nspname || '.' || relname AS name FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace
UNION ALL SELECT nspname || '.' || proname FROM pg_proc JOIN pg_namespace n ON n.oid = pronamespace
UNION ALL SELECT nspname FROM pg_namespace
UNION ALL SELECT rolname FROM pg_roles WHERE rolname = 'left_behind'
ORDER BY 1
"""
"""What a failure could leave."""
INDEX = migration(2, "CREATE INDEX CONCURRENTLY a_idx ON a (x);", "pre", "-- transaction: none")


async def applied(settings: DatabaseSettings) -> list[int]:
    database = await Database.open(settings)
    applied = await rows(database, "SELECT number FROM migration ORDER BY number")
    await database.close()
    return [row["number"] for row in applied]


# ---- applying --------------------------------------------------------------------------------------


async def test_all_of_ours_are_applied_once_and_then_nothing_is_left(empty: DatabaseSettings) -> None:
    migrator = Migrator(empty)
    with pytest.raises(MigrationRequiredError, match=r"0000_baseline.*fairlead migrate"):
        await migrator.check()
    assert await migrator.plan() == list(shipped_migrations())
    assert await migrator.apply() == list(shipped_migrations())
    assert await migrator.plan() == await migrator.apply() == []
    await migrator.check()
    assert await applied(empty) == [m.number for m in shipped_migrations()]


async def test_a_plan_changes_nothing(empty: DatabaseSettings) -> None:
    await Migrator(empty).plan()
    await Migrator(empty).sql(pending_only=True)
    admin = await asyncpg.connect(empty.dsn)
    assert await admin.fetchval("SELECT count(*) FROM pg_namespace WHERE nspname = $1", empty.schema) == 0
    await admin.close()


@pytest.fixture
async def plain(servers: Endpoints) -> AsyncIterator[str]:
    """The URL of a database as it is made, with `public`."""
    url = await fresh_database(servers.database_url)
    yield url
    await drop_database(servers.database_url, url)


@pytest.mark.parametrize(
    ("named", "schema"), [(None, "fairlead"), ("public", "public"), ("Shop's", "Shop's")]
)
async def test_the_schema_is_fairlead_or_the_one_that_is_set(
    plain: str, named: str | None, schema: str
) -> None:
    settings = DatabaseSettings(dsn=plain, schema=named)
    await Migrator(settings, [A]).apply()
    database = await Database.open(settings)
    assert await rows(database, f"SELECT x FROM {quoted(schema)}.a") == [{"x": 1}]
    assert await applied(settings) == [1]
    await database.close()


async def test_an_installation_in_another_schema_is_not_passed_over(plain: str) -> None:
    """Such as one in `public`, from before the schema had a default."""
    await Migrator(DatabaseSettings(dsn=plain, schema="public")).apply()
    unset = Migrator(DatabaseSettings(dsn=plain))
    for step in (unset.plan, unset.check, unset.apply):
        with pytest.raises(InvalidConfigError, match=r"schema public.*set database\.schema_name to 'public'"):
            await step()
    settings = DatabaseSettings(dsn=plain, schema="fairlead")
    assert await Migrator(settings).apply() == list(shipped_migrations())
    assert await unset.plan() == []


async def test_pre_stops_before_post_and_both_versions_can_start_in_between(empty: DatabaseSettings) -> None:
    """R38: a rolling upgrade from A to A, B, C."""
    old, new = Migrator(empty, [A]), Migrator(empty, [A, B, C_POST, D])
    await old.apply()
    assert await new.apply(upto="pre") == [B]
    await old.check()
    await Migrator(empty, [A, B, C_POST]).check()
    with pytest.raises(MigrationRequiredError, match="0004_step"):  # D must follow C
        await new.check()
    assert await new.apply() == [C_POST, D]
    await new.check()
    with pytest.raises(InvalidConfigError, match=r"newer than this version.*0003_step.*hint:"):
        await old.check()


async def test_a_version_starts_while_its_post_migrations_are_to_come(empty: DatabaseSettings) -> None:
    """Else no process of it could start before the last older one is gone (E10)."""
    new = Migrator(empty, [A, B, C_POST])
    with pytest.raises(MigrationRequiredError, match="0001_step"):
        await check_schema(new, apply=False)
    await new.apply(upto="pre")
    await check_schema(new, apply=False)
    assert await applied(empty) == [1, 2]
    await check_schema(new, apply=True)
    assert await applied(empty) == [1, 2, 3]


async def test_a_failed_migration_leaves_the_whole_ones_before_it(empty: DatabaseSettings) -> None:
    broken = migration(2, "CREATE TABLE half (x integer); SELECT 1 / 0;")
    await Migrator(empty, [A]).apply()
    with pytest.raises(MigrationRequiredError, match=r"0002_step.*division by zero.*nothing of it was left"):
        await Migrator(empty, [A, broken]).apply()
    assert await applied(empty) == [1]
    database = await Database.open(empty)
    assert await rows(database, "SELECT FROM pg_class WHERE relname = 'half'") == []
    await database.close()
    assert await Migrator(empty, [A, B]).apply() == [B]


@pytest.mark.parametrize("schema", [None, "public"])
async def test_a_failed_installation_leaves_nothing(plain: str, schema: str | None) -> None:
    """No schema, no table `migration`, no role: neither where the last of all migrations fails."""
    last = shipped_migrations()[-1].number + 1
    broken = [*shipped_migrations(), migration(last, "CREATE ROLE left_behind; SELECT 1 / 0;")]
    admin = await asyncpg.connect(plain)
    objects_before = await admin.fetch(LEFT_OBJECTS)
    with pytest.raises(MigrationRequiredError, match=rf"{last:04}_step.*division by zero.*nothing was kept"):
        await Migrator(DatabaseSettings(dsn=plain, schema=schema), broken).apply()
    assert await admin.fetch(LEFT_OBJECTS) == objects_before
    await admin.execute("CREATE TABLE public.migration (id integer); CREATE TABLE public.audit (id integer)")
    public = DatabaseSettings(dsn=plain, schema="public")
    objects_before = await admin.fetch(LEFT_OBJECTS)
    with pytest.raises(InvalidConfigError, match="the schema public holds tables that are not fairlead's"):
        await Migrator(public).apply()
    assert await admin.fetch(LEFT_OBJECTS) == objects_before
    await Migrator(replace(public, schema=None)).apply()
    await admin.close()


async def test_a_migration_that_gets_no_lock_lets_the_others_pass_and_tries_again(
    empty: DatabaseSettings,
) -> None:
    """Whoever waits for a table's lock keeps all waiting behind it: for half a second at most (E10)."""
    await Migrator(empty, [A]).apply()
    reader, other = await Database.open(empty), await Database.open(empty)
    more = migration(2, "ALTER TABLE a ADD COLUMN y integer;")
    async with reader.transaction() as reading:
        await reading.fetch(Statement("test", "SELECT x FROM a", ()))
        migrating = asyncio.create_task(Migrator(empty, [A, more]).apply())
        while not await rows(other, "SELECT FROM pg_locks WHERE NOT granted"):
            await asyncio.sleep(0.005)
        async with asyncio.timeout(1.0):
            assert await rows(other, "SELECT x FROM a") == [{"x": 1}]
        assert not migrating.done()
    assert await migrating == [more]
    await reader.close()
    await other.close()


async def test_a_call_that_fails_leaves_its_steps_and_no_index(empty: DatabaseSettings) -> None:
    text = "CREATE PROCEDURE steps() LANGUAGE plpgsql AS 'BEGIN PERFORM 1 / 0; END';"
    failing = migration(2, "CALL steps();", "pre", "-- transaction: none")
    with pytest.raises(MigrationRequiredError, match="division by zero") as failed:
        await Migrator(empty, [migration(1, text), failing]).apply()
    assert "steps that it has done are kept" in failed.value.hint


# ---- refusing --------------------------------------------------------------------------------------


async def test_an_edited_past_is_refused_by_everything(empty: DatabaseSettings) -> None:
    await Migrator(empty, [A, B]).apply()
    edited = Migrator(empty, [A, migration(2, "CREATE TABLE b (y integer);"), C_POST])
    for step in (edited.plan, edited.check, edited.apply):
        with pytest.raises(InvalidConfigError, match=r"0002_step is not the one.*hint: restore the file"):
            await step()
    assert await applied(empty) == [1, 2]


async def test_a_database_of_another_baseline_is_refused_by_everything(empty: DatabaseSettings) -> None:
    """Be it of an older text of the baseline, or of the numbered migrations that it replaced."""
    baseline, *later = shipped_migrations()
    older = replace(baseline, text="CREATE TABLE a (x integer);", checksum="0" * 64)
    message = r'"fairlead test" was made by another.*hint: .*DROP SCHEMA "fairlead test" CASCADE'
    for made_by in ([older, *later], [A]):
        await Migrator(empty, made_by).apply()
        for step in (Migrator(empty).plan, Migrator(empty).check, Migrator(empty).apply):
            with pytest.raises(
                InvalidConfigError,
                match=message,
            ):
                await step()
        database = await Database.open(empty)
        await run(database, 'DROP SCHEMA "fairlead test" CASCADE')
        await database.close()
    assert await Migrator(empty).apply() == list(shipped_migrations())


async def test_line_ends_are_no_edit() -> None:
    text = A.text.replace("\n", "\r\n")
    assert read_migration("0001_step.sql", text).checksum == A.checksum


async def test_a_newer_database_is_refused_once_its_post_phase_is_through(empty: DatabaseSettings) -> None:
    await Migrator(empty, [A, B, C_POST]).apply()
    with pytest.raises(InvalidConfigError, match="newer"):
        await Migrator(empty, [A, B]).apply()
    with pytest.raises(InvalidConfigError, match="newer"):
        await Migrator(empty, [A]).plan()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("1_step.sql", "-- Phase pre\n"),
        ("0001_Step.sql", "-- Phase pre\n"),
        ("0001_step.sql", "-- Phase soon\n"),
        ("0001_step.sql", "SELECT 1"),
    ],
)
def test_a_file_that_breaks_the_rules_is_refused(name: str, text: str) -> None:
    with pytest.raises(ValueError, match="must be NNNN_name"):
        read_migration(name, text)


def test_numbers_have_no_gap_and_no_double() -> None:
    with pytest.raises(ValueError, match="without gaps"):
        in_order([shipped_migrations()[0], B])
    with pytest.raises(ValueError, match="without gaps"):
        in_order([A, C_POST])
    with pytest.raises(ValueError, match="without gaps"):
        in_order([A, A])
    assert in_order([B, A]) == (A, B)


async def test_a_server_that_is_away(empty: DatabaseSettings) -> None:
    away = replace(empty, dsn="postgresql://u@127.0.0.1:1/x")
    with pytest.raises(DependencyUnavailableError):
        await Migrator(away).check()


# ---- at the same time ------------------------------------------------------------------------------

PROCESS = """
import asyncio, sys
from fairlead.adapters.postgres.migrate import Migrator
from fairlead.adapters.postgres.connection_setup import DatabaseSettings, quoted
migrator = Migrator(DatabaseSettings(dsn=sys.argv[1], schema=sys.argv[2]))
print(len(asyncio.run(migrator.apply())))
"""


async def test_two_processes_at_once_apply_each_migration_once(empty: DatabaseSettings) -> None:
    assert empty.schema is not None
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            PROCESS,
            empty.dsn,
            empty.schema,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        for _ in range(2)
    ]
    outputs = [await process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert sorted(int(out) for out, _ in outputs) == [0, len(shipped_migrations())]


async def test_new_databases_may_be_migrated_side_by_side(servers: Endpoints) -> None:
    """Roles are shared by all databases of a server."""
    urls = [await fresh_database(servers.database_url) for _ in range(3)]
    for url in urls:
        await without_public(url)
    await asyncio.gather(*(Migrator(settings_of(url)).apply() for url in urls))
    for url in urls:
        await Migrator(settings_of(url)).check()
        await drop_database(servers.database_url, url)


# ---- by hand ---------------------------------------------------------------------------------------


async def test_the_text_for_a_dba_makes_the_same_catalog(
    empty: DatabaseSettings, database: Database, tmp_path: Path
) -> None:
    script = tmp_path / "migrate.sql"
    script.write_text(await Migrator(empty).sql())
    await by_psql(empty.dsn, script)
    await Migrator(empty).check()
    assert await Migrator(empty).plan() == []
    by_hand = await Database.open(empty)
    assert await catalog(by_hand) == await catalog(database)
    await by_hand.close()


async def test_the_text_for_a_dba_may_be_of_what_is_pending_only(empty: DatabaseSettings) -> None:
    await Migrator(empty, [A]).apply()
    text = await Migrator(empty, [A, INDEX]).sql(pending_only=True)
    assert "CREATE TABLE a" not in text
    assert "CONCURRENTLY" in text
    assert "BEGIN" not in text


async def test_the_text_for_a_dba_is_as_patient_with_locks(empty: DatabaseSettings, tmp_path: Path) -> None:
    script = tmp_path / "migrate.sql"
    script.write_text(
        as_script(
            [
                A,
                migration(
                    2, "INSERT INTO a SELECT setting::int FROM pg_settings WHERE name = 'lock_timeout';"
                ),
            ],
            empty.in_schema,
        )
    )
    await by_psql(empty.dsn, script)
    database = await Database.open(empty)
    assert await rows(database, "SELECT x FROM a") == [{"x": 1}, {"x": 500}]
    await database.close()
    assert "SET lock_timeout = '3s';" in as_script([A], "fairlead")


def test_the_text_quotes_what_must_be_quoted() -> None:
    assert "'it''s'" in as_script([A], "it's")


async def by_psql(dsn: str, script: Path) -> None:
    """Run *script* as a DBA would."""
    psql = await asyncio.create_subprocess_exec(
        *(str(postgres_wheel().program("psql")), "-X", "-q", dsn, "-f", str(script)),
        stderr=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    _, errors = await psql.communicate()
    assert psql.returncode == 0, errors.decode()
    assert b"ERROR" not in errors


async def test_migration_behind_a_pooler_runs_nothing(empty: DatabaseSettings) -> None:
    """The lock of a run belongs to a session, so the migrator always asks for one."""
    await Migrator(replace(empty, transaction_pooler=True), [A]).apply()
    database = await Database.open(empty)
    await run(database, "SELECT x FROM a")
    await database.close()
