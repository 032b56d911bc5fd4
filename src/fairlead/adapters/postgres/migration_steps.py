"""Apply one migration to an installation that is at work."""

from __future__ import annotations

import asyncio

import asyncpg

from fairlead.adapters.postgres.connection_setup import ISOLATION
from fairlead.adapters.postgres.driver import DatabaseConnection, Row
from fairlead.adapters.postgres.migration_files import INDEX_PATIENCE_MS, PATIENCE_MS, Migration
from fairlead.adapters.postgres.postgres_errors import DRIVER_ERRORS, of_statement
from fairlead.adapters.postgres.roles import DatabaseRoles
from fairlead.adapters.postgres.statements import statement
from fairlead.errors import MigrationRequiredError

LOCK_WITHIN_S = 120.0
PATIENCE_PAUSE_S = 1.0
"""After a lock was not granted: those that wait behind it go first."""


async def apply_one(connection: DatabaseConnection, migration: Migration, roles: DatabaseRoles) -> None:
    """Apply *migration*, with retries for 120 s while it gets no lock.

    Raises:
        MigrationRequiredError: It failed.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + LOCK_WITHIN_S
    while True:
        if await _applied_now(connection, migration, roles, last=loop.time() > deadline):
            return
        await asyncio.sleep(PATIENCE_PAUSE_S)


async def _applied_now(
    connection: DatabaseConnection, migration: Migration, roles: DatabaseRoles, *, last: bool
) -> bool:
    """Apply it once; return False if it got no lock in time, which is a failure on the *last* attempt."""
    try:
        if migration.transactional:
            async with connection.transaction(isolation=ISOLATION):
                await _be_patient(connection, PATIENCE_MS, within_transaction=True)
                await connection.fetch(statement("migration_path").text)
                await connection.execute(roles.in_text(migration.text))
                await record(connection, migration)
        else:
            if migration.index is not None:
                await _be_patient(connection, INDEX_PATIENCE_MS, within_transaction=False)
                (drop,) = await run(connection, statement("migration_index_drop").text, migration.index)
                await connection.execute(drop["text"])
            await connection.execute(roles.in_text(migration.text))
            await record(connection, migration)
    except asyncpg.PostgresError as error:
        locked = isinstance(error, asyncpg.LockNotAvailableError)
        if locked and migration.transactional and not last:
            return False
        reason = "the transactions before it have ended (pg_stat_activity.xact_start)"
        if not locked or migration.index is None:
            reason = "the reason is gone"
        hint = f"{_left_by(migration)}; run `fairlead migrate` again once {reason}"
        raise MigrationRequiredError(f"migration {migration.title} failed: {error}", hint=hint) from error
    except DRIVER_ERRORS as error:
        raise of_statement(error, connected=not connection.is_closed()) from error
    return True


def _left_by(migration: Migration) -> str:
    """Describe what a failed *migration* has left in the database."""
    if migration.transactional:
        return "nothing of it was left"
    if migration.index is not None:
        return f"the next run drops what it left ({migration.index}, INVALID)"
    return "the steps that it has done are kept, and done again"


async def _be_patient(connection: DatabaseConnection, patience_ms: int, *, within_transaction: bool) -> None:
    patience = statement("migration_patience")
    values = {"patience_ms": str(patience_ms), "within_transaction": within_transaction}
    await connection.fetch(patience.text, *patience.args(**values))


async def record(connection: DatabaseConnection, migration: Migration) -> None:
    """Record in the table ``migration`` that *migration* was applied."""
    insert = statement("migration_record")
    await connection.fetch(insert.text, *insert.args(**migration.record))


async def run(connection: DatabaseConnection, text: str, *args: object) -> list[Row]:
    """Return the rows of *text*."""
    try:
        return await connection.fetch(text, *args)
    except DRIVER_ERRORS as error:
        raise of_statement(error, connected=not connection.is_closed()) from error
