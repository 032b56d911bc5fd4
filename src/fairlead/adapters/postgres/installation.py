"""Make a new installation in one transaction, so that a failure leaves nothing in the database.

No process uses it yet, so indexes need not be built concurrently, and locks are never contended. Only
migrations that call a procedure which commits step by step are left to the caller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import asyncpg

from fairlead.adapters.postgres.connection_setup import ISOLATION, check_encoding, quoted
from fairlead.adapters.postgres.driver import DatabaseConnection
from fairlead.adapters.postgres.migration_files import Migration
from fairlead.adapters.postgres.migration_steps import LOCK_WITHIN_S, PATIENCE_PAUSE_S, record, run
from fairlead.adapters.postgres.postgres_errors import DRIVER_ERRORS, of_statement
from fairlead.adapters.postgres.roles import COMMON, DatabaseRoles, owner_roles
from fairlead.adapters.postgres.row_security import wall_state
from fairlead.adapters.postgres.statements import statement
from fairlead.errors import FairleadError, InvalidConfigError, MigrationRequiredError

_IS_TAKEN = (
    asyncpg.DuplicateTableError,
    asyncpg.DuplicateObjectError,
    asyncpg.DuplicateFunctionError,
    asyncpg.UndefinedColumnError,  # the table `migration` of another program
)
_AGAIN = "nothing was kept; run `fairlead migrate` again once the reason is gone"


async def install(
    connection: DatabaseConnection, migrations: Sequence[Migration], schema: str
) -> list[Migration]:
    """Apply *migrations* to an empty *schema*, and return those that are left to call.

    If this user may not have the common roles, roles of its owner take their place: see `roles`.

    Raises:
        InvalidConfigError: The schema cannot be used. The hint has the SQL for an administrator.
        MigrationRequiredError: A migration failed. All changes were undone.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + LOCK_WITHIN_S
    owner = await owner_roles(connection, schema)
    roles = COMMON
    while True:
        try:
            return await _installed(connection, migrations, schema, roles, owner.engine)
        except _RolesRefusedError as refused:
            if not roles.are_common or not owner.are_usable:
                raise refused.cause from refused
            roles = owner
        except _LockedError as locked:  # another database of this server creates the same roles
            if loop.time() > deadline:
                raise locked.cause from locked
            await asyncio.sleep(PATIENCE_PAUSE_S)


class _RolesRefusedError(Exception):
    def __init__(self, cause: FairleadError) -> None:
        super().__init__(str(cause))
        self.cause = cause


class _LockedError(_RolesRefusedError):
    pass


async def _installed(
    connection: DatabaseConnection,
    migrations: Sequence[Migration],
    schema: str,
    roles: DatabaseRoles,
    user: str,
) -> list[Migration]:
    remaining = [migration for migration in migrations if migration.calls]
    async with connection.transaction(isolation=ISOLATION):
        await _make_schema(connection, schema, user)
        await check_ground(connection, schema)
        await _make_table(connection, schema, user)
        for migration in migrations:
            if not migration.calls:
                await _apply_within(connection, migration, schema, roles)
        await _restore_owner(connection, schema, roles)
    return remaining


async def check_ground(connection: DatabaseConnection, schema: str) -> None:
    """Raise InvalidConfigError unless the database and *schema* are safe to use."""
    facts = (await run(connection, statement("server_check").text, schema))[0]
    check_encoding(facts["encoding"])
    if facts["creators"]:
        creators = facts["creators"]
        message = f"{creators} may create objects in this schema, which could run with the rights of others"
        hint = f"run {facts['revokes']} and migrate again"
        raise InvalidConfigError(message, hint=hint)


async def _make_schema(connection: DatabaseConnection, schema: str, user: str) -> None:
    (facts,) = await run(connection, statement("schema_exists").text, schema)
    if facts["stranger"]:
        message = (
            f"the schema {schema} belongs to {facts['stranger']}, whose objects could run with others' rights"
        )
        hint = f"have an administrator run ALTER SCHEMA {quoted(schema)} OWNER TO {quoted(user)};"
        raise InvalidConfigError(message, hint=f"{hint} or set database.schema_name to another one")
    if facts["exists"]:
        return
    texts = await run(connection, statement("schema_create").text, schema)
    try:
        await connection.execute(texts[0]["text"])
    except asyncpg.InsufficientPrivilegeError as error:
        hint = f"have an administrator run CREATE SCHEMA {quoted(schema)} AUTHORIZATION {quoted(user)};"
        raise InvalidConfigError(f"this user may not create the schema {schema}", hint=hint) from error


async def _make_table(connection: DatabaseConnection, schema: str, user: str) -> None:
    try:
        await connection.execute(statement("migration_table").text)
    except (
        asyncpg.InsufficientPrivilegeError,
        asyncpg.UndefinedTableError,
        asyncpg.InvalidSchemaNameError,
    ) as error:
        hint = f"have an administrator run GRANT USAGE, CREATE ON SCHEMA {quoted(schema)} TO {quoted(user)};"
        raise InvalidConfigError(
            f"this user may not create tables in the schema {schema}", hint=hint
        ) from error


async def _apply_within(
    connection: DatabaseConnection, migration: Migration, schema: str, roles: DatabaseRoles
) -> None:
    text = roles.in_text(migration.text)
    if migration.index is not None:
        text = text.replace("CONCURRENTLY ", "")
    try:
        await connection.fetch(statement("migration_path").text)
        await connection.execute(text)
        await record(connection, migration)
    except asyncpg.PostgresError as error:
        failed = MigrationRequiredError(f"migration {migration.title} failed: {error}", hint=_AGAIN)
        if isinstance(error, asyncpg.InsufficientPrivilegeError):
            raise _RolesRefusedError(failed) from error
        if isinstance(error, asyncpg.LockNotAvailableError):
            raise _LockedError(failed) from error
        if isinstance(error, _IS_TAKEN):
            message = f"the schema {schema} holds tables that are not fairlead's: {error}"
            raise InvalidConfigError(
                message, hint="set database.schema_name to a schema of its own"
            ) from error
        raise failed from error
    except DRIVER_ERRORS as error:
        raise of_statement(error, connected=not connection.is_closed()) from error


async def _restore_owner(connection: DatabaseConnection, schema: str, roles: DatabaseRoles) -> None:
    """Restore the rights that migrations revoke from `fairlead_reader`, if the owner takes its place."""
    if not roles.are_common:
        (texts,) = await run(connection, statement("owner_rights").text, schema)
        await connection.execute(texts["text"])


async def complete_rights(connection: DatabaseConnection, schema: str, roles: DatabaseRoles) -> None:
    """Restore the owner's rights, and enable row security if it is off and this user may do so.

    It stays off if its role is missing: roles are optional, and `doctor` prints the remedy.
    """
    if not (await run(connection, statement("row_security_exists").text, schema))[0]["exists"]:
        return
    await _restore_owner(connection, schema, roles)
    if not (await wall_state(connection, schema)).stands:
        with suppress(asyncpg.InsufficientPrivilegeError):  # this user is not the owner of the tables
            await connection.execute(statement("row_security_enable").text)
