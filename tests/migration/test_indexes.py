"""Indexes that migrations build beside the work: outside of a transaction, patient, and begun anew."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from fairlead.adapters.postgres import migrate, migration_steps
from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.migrate import Migration, Migrator
from fairlead.errors import MigrationRequiredError
from tests.migration.test_migrate import INDEX, A, applied, by_psql, migration
from tests.support.rows import rows, run
from tests.support.snapshot import held_snapshot

UNIQUE = migration(2, "CREATE UNIQUE INDEX CONCURRENTLY a_idx ON a (x);", "pre", "-- transaction: none")
TWICE = migration(1, f"{A.text}; INSERT INTO a VALUES (1);")
VALID = "SELECT indisvalid AS is FROM pg_index WHERE indexrelid = 'a_idx'::regclass"
WAITS = "SELECT FROM pg_locks WHERE NOT granted AND clock_timestamp() - waitstart > interval '300 ms'"


async def test_an_index_is_built_outside_of_a_transaction(empty: DatabaseSettings) -> None:
    assert await Migrator(empty, [A, INDEX]).apply() == [A, INDEX]
    database = await Database.open(empty)
    assert await rows(database, "SELECT FROM pg_class WHERE relname = 'a_idx'") != []
    await database.close()


async def test_an_index_that_could_not_be_built_is_dropped_by_the_next_run(
    empty: DatabaseSettings, tmp_path: Path
) -> None:
    """Of this program, or of a DBA's script."""
    await Migrator(empty, [TWICE]).apply()
    with pytest.raises(MigrationRequiredError, match="duplicated") as failed:
        await Migrator(empty, [TWICE, UNIQUE]).apply()
    assert "the next run drops what it left (a_idx, INVALID)" in failed.value.hint
    database = await Database.open(empty)
    assert await rows(database, VALID) == [{"is": False}]
    with pytest.raises(MigrationRequiredError, match="duplicated"):
        await Migrator(empty, [TWICE, UNIQUE]).apply()
    script = tmp_path / "migrate.sql"
    script.write_text(await Migrator(empty, [TWICE, UNIQUE]).sql(pending_only=True))
    await run(database, "DELETE FROM a")
    await by_psql(empty.dsn, script)
    assert await rows(database, VALID) == [{"is": True}]
    await database.close()
    assert await applied(empty) == [1, 2]


@pytest.mark.parametrize("patient", [True, False])
async def test_an_index_waits_for_transactions_that_are_older(
    empty: DatabaseSettings, monkeypatch: pytest.MonkeyPatch, patient: bool
) -> None:
    """For longer than a lock that others would stand behind; and not for ever."""
    await Migrator(empty, [A]).apply()
    monkeypatch.setattr(migrate, "LOCK_TIMEOUT", "100ms")
    if not patient:
        monkeypatch.setattr(migration_steps, "INDEX_PATIENCE_MS", 100)
    database = await Database.open(empty)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        async with held_snapshot(empty.dsn):
            built = group.create_task(_outcome(Migrator(empty, [A, INDEX])))
            while not built.done() and not await rows(database, WAITS):
                await asyncio.sleep(0.01)
        outcome = await built
    await database.close()
    if patient:
        assert outcome == [INDEX]
    else:
        assert isinstance(outcome, MigrationRequiredError)
        assert "once the transactions before it have ended" in outcome.hint


async def test_interrupted_migration_leaves_nothing_waiting(empty: DatabaseSettings) -> None:
    """A build that waits on would hold the lock of migrations."""
    await Migrator(empty, [A]).apply()
    database = await Database.open(empty)
    async with asyncio.timeout(60), held_snapshot(empty.dsn):
        building = asyncio.create_task(Migrator(empty, [A, INDEX]).apply())
        while not await rows(database, WAITS):
            await asyncio.sleep(0.01)
        building.cancel()
        with pytest.raises(asyncio.CancelledError):
            await building
        while await rows(database, WAITS):
            await asyncio.sleep(0.01)
    await database.close()
    assert await Migrator(empty, [A, INDEX]).apply() == [INDEX]


async def test_an_index_of_another_schema_stays(empty: DatabaseSettings) -> None:
    """There may be another installation in this database."""
    await Migrator(empty, [A, INDEX]).apply()
    another = replace(empty, schema="another")
    assert await Migrator(another, [A, INDEX]).apply() == [A, INDEX]
    database = await Database.open(empty)
    assert len(await rows(database, "SELECT FROM pg_class WHERE relname = 'a_idx'")) == 2
    await database.close()


async def _outcome(migrator: Migrator) -> list[Migration] | MigrationRequiredError:
    try:
        return await migrator.apply()
    except MigrationRequiredError as error:
        return error


async def test_many_runs_at_once_with_an_index_among_them(empty: DatabaseSettings) -> None:
    """CREATE INDEX CONCURRENTLY waits for every snapshot: a run that waits for the lock must hold none."""
    runs = await asyncio.gather(*(Migrator(empty, [A, INDEX]).apply() for _ in range(5)))
    assert sorted(len(done) for done in runs) == [0, 0, 0, 0, 2]
