"""Apply migrations in the order of their numbers, each once.

The table ``migration`` records the applied ones with a checksum, because an applied file is never edited. For
the files and their headers see `migration_files`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import cast

import asyncpg

from fairlead.adapters.postgres.connection_setup import DatabaseSettings, connect_options, quoted
from fairlead.adapters.postgres.driver import DatabaseConnection
from fairlead.adapters.postgres.installation import check_ground, complete_rights, install
from fairlead.adapters.postgres.migration_files import (
    BASELINE,
    LOCK_TIMEOUT,
    Migration,
    Phase,
    in_order,
    read_migration,
    shipped_migrations,
)
from fairlead.adapters.postgres.migration_script import as_script
from fairlead.adapters.postgres.migration_steps import LOCK_WITHIN_S, apply_one, run
from fairlead.adapters.postgres.postgres_errors import CONNECT_ERRORS, DRIVER_ERRORS, no_connection
from fairlead.adapters.postgres.qualified import qualified
from fairlead.adapters.postgres.roles import installed_roles
from fairlead.adapters.postgres.row_security import RowSecurityState, wall_state
from fairlead.adapters.postgres.statements import statement
from fairlead.errors import DependencyUnavailableError, InvalidConfigError, MigrationRequiredError
from fairlead.policy.text.names import listed

__all__ = ["Migration", "Migrator", "Phase", "as_script", "in_order", "read_migration", "shipped_migrations"]

_LOCK_EVERY_S = 0.1
_APPLY_TIMEOUT_S = 3600.0
_CLOSE_WITHIN_S = (
    2.0  # an interrupted statement is cancelled at the server, too, since it would keep our lock
)


@dataclass(frozen=True, slots=True)
class _Applied:
    number: int
    name: str
    phase: str
    checksum: str


class Migrator:
    """Brings one schema to the state this version needs. `apply` needs a way that leads past any pooler."""

    def __init__(self, settings: DatabaseSettings, migrations: Sequence[Migration] | None = None) -> None:
        self._settings = settings
        self._migrations = shipped_migrations() if migrations is None else in_order(migrations)

    async def plan(self) -> list[Migration]:
        """Return what `apply` would do, in order.

        Raises:
            InvalidConfigError: The database is not one that this version may migrate.
        """
        async with self._connected(self._settings) as connection:
            return self._pending(await self._applied(connection))

    async def check(self) -> None:
        """Raise MigrationRequiredError unless this version can work on the database as it is.

        In a rolling upgrade two versions share a database, so neither our own ``post`` migrations that are
        still to come nor ``pre`` migrations of a later version are an obstacle.
        """
        lacking = [migration.title for migration in await self.plan() if migration.phase == "pre"]
        if lacking:
            raise MigrationRequiredError(f"the database lacks {listed(lacking)}")

    async def apply(self, upto: Phase = "post") -> list[Migration]:
        """Apply the pending migrations and return them; with *upto* ``pre`` stop before the first ``post``.

        Waits up to 120 s for another run to end. A new installation is one transaction, so a failure leaves
        nothing behind. In an existing installation each migration is one transaction with its record, so a
        failed run leaves only whole migrations and can be repeated.
        """
        own_session = replace(self._settings, transaction_pooler=False)
        schema = self._settings.in_schema
        async with self._connected(own_session) as connection, _exclusive(connection):
            applied = await self._applied(connection)
            pending = self._pending(applied)
            if upto == "pre":
                pending = list(takewhile(lambda migration: migration.phase == "pre", pending))
            remaining = pending
            if applied:
                await check_ground(connection, schema)
            elif pending:
                remaining = await install(connection, pending, schema)
            roles = await installed_roles(connection, schema)
            for migration in remaining:
                await apply_one(connection, migration, roles)
            await complete_rights(connection, schema, roles)
        return pending

    async def wall(self) -> RowSecurityState:
        """Return the state of row security between tenants."""
        async with self._connected(self._settings) as connection:
            return await wall_state(connection, self._settings.in_schema)

    async def sql(self, *, pending_only: bool = False) -> str:
        """Return the SQL for an administrator to run: all migrations, or those that the database lacks."""
        schema = self._settings.in_schema
        if not pending_only:
            return as_script(self._migrations, schema)
        async with self._connected(self._settings) as connection:
            pending = self._pending(await self._applied(connection))
            return as_script(pending, schema, await installed_roles(connection, schema))

    def _pending(self, applied: Sequence[_Applied]) -> list[Migration]:
        by_number = {migration.number: migration for migration in self._migrations}
        if applied and BASELINE in by_number:
            self._check_baseline(applied[0], by_number[BASELINE])
        for record in applied:
            self._check_record(record, by_number.get(record.number))
        return [m for m in self._migrations if m.number not in {record.number for record in applied}]

    def _check_baseline(self, first: _Applied, ours: Migration) -> None:
        if (first.number, first.checksum) != (BASELINE, ours.checksum):
            schema = quoted(self._settings.in_schema)
            message = (
                f"the schema {schema} was made by another text of the baseline, before 0.1.0 was released"
            )
            hint = (
                f"use the fairlead that made it, or run DROP SCHEMA {schema} CASCADE, which deletes its data"
            )
            raise InvalidConfigError(message, hint=f"{hint}, and `fairlead migrate`")

    def _check_record(self, record: _Applied, ours: Migration | None) -> None:
        title = f"{record.number:04}_{record.name}"
        if ours is None:
            if record.phase == "post":
                message = f"the database is newer than this version of fairlead: {title} was applied to it"
                raise InvalidConfigError(
                    message, hint="install the newer fairlead again, or restore a backup"
                )
        elif ours.checksum != record.checksum:
            message = f"migration {title} is not the one that was applied to this database"
            hint = f"restore the file {ours.title}.sql as it was released; changes go into a new migration"
            raise InvalidConfigError(message, hint=hint)

    async def _applied(self, connection: DatabaseConnection) -> list[_Applied]:
        """Return the migrations applied to this schema; none if it was never migrated.

        Raises:
            InvalidConfigError: No schema is set, and the database has an installation in another one.
        """
        schema = self._settings.in_schema
        if (await run(connection, statement("migration_table_exists").text, schema))[0]["exists"]:
            rows = await run(connection, qualified(statement("migration_list").text, schema))
            return [_Applied(row["number"], row["name"], row["phase"], row["checksum"]) for row in rows]
        if self._settings.schema is None:
            rows = await run(connection, statement("migration_elsewhere").text, schema)
            if others := [row["schema"] for row in rows]:
                message = f"this database holds an installation in the schema {', '.join(others)}"
                hint = (
                    f"set database.schema_name to {others[0]!r} to use it, or to {schema!r} to make another"
                )
                raise InvalidConfigError(message, hint=hint)
        return []

    @asynccontextmanager
    async def _connected(self, settings: DatabaseSettings) -> AsyncIterator[DatabaseConnection]:
        options = connect_options(settings)
        options["command_timeout"] = _APPLY_TIMEOUT_S  # an index on a large table takes its time
        if not settings.transaction_pooler:
            options["server_settings"] |= {"statement_timeout": "0", "lock_timeout": LOCK_TIMEOUT}
        try:
            connection = cast(DatabaseConnection, await asyncpg.connect(**options))
        except CONNECT_ERRORS as error:
            no_connection(error)
        try:
            yield connection
        finally:
            with suppress(*DRIVER_ERRORS):
                await connection.close(timeout=_CLOSE_WITHIN_S)


@asynccontextmanager
async def _exclusive(connection: DatabaseConnection) -> AsyncIterator[None]:
    """Hold the lock of migrations of this database.

    It is asked for again and again instead of waited for: a waiting statement would hold a snapshot, and
    CREATE INDEX CONCURRENTLY of the run that has the lock waits for all snapshots.
    """
    deadline = asyncio.get_running_loop().time() + LOCK_WITHIN_S
    while not (await run(connection, statement("migration_lock").text))[0]["locked"]:
        if asyncio.get_running_loop().time() > deadline:
            message = f"another migration run has held its lock for over {LOCK_WITHIN_S:.0f} s"
            raise DependencyUnavailableError(message, hint="look at pg_stat_activity, and run it again")
        await asyncio.sleep(_LOCK_EVERY_S)
    yield  # the lock ends with the connection
