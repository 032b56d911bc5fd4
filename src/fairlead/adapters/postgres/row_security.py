"""The second wall between tenants: row-level security under a role that cannot pass it (R35, ADR 36).

The first wall is the statement itself, which says whose rows it means. A statement of `Database.of` runs as
fairlead_tenant besides, in a transaction that names the tenants: what it says wrongly the database does not
do.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import asyncpg

from fairlead.adapters.postgres.driver import Connection, Row
from fairlead.adapters.postgres.roles import COMMON
from fairlead.adapters.postgres.statements import Statement, statement
from fairlead.errors import DependencyUnavailableError

if TYPE_CHECKING:
    from fairlead.adapters.postgres.database import Database, Transaction

# How PostgreSQL tells of a role that is gone (its name is the value of a setting), or not ours to take.
_ROLE_REFUSED = (asyncpg.InvalidParameterValueError, asyncpg.InsufficientPrivilegeError)


@dataclass(frozen=True, slots=True)
class RowSecurityState:
    """What is there of the wall, for the user that asks."""

    role: bool
    """The role that it binds exists."""
    bound: bool
    """Row-level security binds it: it is no superuser and has not BYPASSRLS."""
    member: bool
    """This user may take it."""
    guarded: bool
    """The policies of the procedure ``tenant_wall`` exist."""
    engine: str = COMMON.engine
    """The role that sees all tenants."""
    tenant: str = COMMON.tenant
    """The role that the wall binds."""

    @property
    def stands(self) -> bool:
        """Nothing is missing."""
        return self.role and self.bound and self.member and self.guarded


async def wall_state(connection: Connection, schema: str) -> RowSecurityState:
    """Return the state of row security for the tables in *schema*."""
    state = statement("tenant_wall_state")
    found = (await connection.fetch(state.text, *state.args(schema=schema)))[0]
    return RowSecurityState(**dict(found.items()))


class RowSecurityLostError(DependencyUnavailableError):
    """There was a wall, and this user can take its role no more. Nothing was done."""

    hint = "run `fairlead doctor`: it says what is missing, and the statement that helps; then do this again"


async def enter_tenant_role(connection: Connection, role: str, tenants: tuple[str, ...]) -> None:
    """Until its transaction ends *connection* sees and writes rows of *tenants* only. Raises RowSecurityLostError."""
    wall = statement("tenant_wall")
    try:
        await connection.fetch(wall.text, *wall.args(role=role, tenants=tenants))
    except _ROLE_REFUSED as error:
        raise RowSecurityLostError(f"the role {role} cannot be taken: {error.args[0]}") from error


def is_of(row: Row, tenant: str) -> bool:
    """Whether *row* is of *tenant*: for reads that are too many to go behind the wall."""
    whose: str = row["tenant_id"]
    return whose == tenant


class TenantDatabase:
    """A database as some tenants have it; where the wall does not stand, the whole one. See `Database.of`."""

    def __init__(self, database: Database, tenants: tuple[str, ...] | None) -> None:
        self._database = database
        self._tenants = tenants

    async def fetch(self, statement: Statement, /, **values: object) -> list[Row]:
        """As `Database.fetch`."""
        return await self._database.run(statement, values, await self._kept_to())

    async def first(self, statement: Statement, /, **values: object) -> Row | None:
        """As `Database.first`."""
        rows = await self.fetch(statement, **values)
        return rows[0] if rows else None

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """As `Database.transaction`."""
        async with self._database.transaction(await self._kept_to()) as transaction:
            yield transaction

    async def _kept_to(self) -> tuple[str, ...] | None:
        if self._tenants is None or not await self._database.look_at_wall():
            return None
        return self._tenants
