"""Row-level security between tenants, under a role that cannot bypass it.

Each statement already names the tenant of its rows. A statement of `Database.for_tenants` also runs as the
role fairlead_tenant, in a transaction that names the tenants, so that a mistake in its WHERE clause reaches
no other tenant's rows.

Spec: R35.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import asyncpg

from fairlead.adapters.postgres.driver import DatabaseConnection, Row
from fairlead.adapters.postgres.roles import COMMON
from fairlead.adapters.postgres.statements import Statement, statement
from fairlead.errors import DependencyUnavailableError

if TYPE_CHECKING:
    from fairlead.adapters.postgres.database import Database, Transaction

# PostgreSQL's errors for a role that is gone (its name is the value of a setting), or that may not be taken.
_ROLE_REFUSED = (asyncpg.InvalidParameterValueError, asyncpg.InsufficientPrivilegeError)


@dataclass(frozen=True, slots=True)
class RowSecurityState:
    """The state of row security for one database user."""

    role: bool
    """Whether the tenant role exists."""
    bound: bool
    """Whether row security applies to it: it is no superuser and lacks BYPASSRLS."""
    member: bool
    """Whether this user may take it."""
    guarded: bool
    """Whether the tables have their policies."""
    engine: str = COMMON.engine
    """The role that sees all tenants."""
    tenant: str = COMMON.tenant
    """The role that row security applies to."""

    @property
    def stands(self) -> bool:
        """Whether nothing is missing."""
        return self.role and self.bound and self.member and self.guarded


async def wall_state(connection: DatabaseConnection, schema: str) -> RowSecurityState:
    """Return the state of row security for the tables in *schema*."""
    state = statement("row_security_state")
    row = (await connection.fetch(state.text, *state.args(schema=schema)))[0]
    return RowSecurityState(**dict(row.items()))


class RowSecurityLostError(DependencyUnavailableError):
    """Row security was enabled, and this user can no longer take the tenant role. Nothing was done."""

    default_hint = (
        "run `fairlead doctor`: it says what is missing, and the statement that helps; then do this again"
    )


async def enter_tenant_role(connection: DatabaseConnection, role: str, tenants: tuple[str, ...]) -> None:
    """Restrict *connection* to rows of *tenants* until its transaction ends.

    Raises:
        RowSecurityLostError: The role is gone, or this user may not take it.
    """
    enter = statement("row_security_enter")
    try:
        await connection.fetch(enter.text, *enter.args(role=role, tenants=tenants))
    except _ROLE_REFUSED as error:
        raise RowSecurityLostError(f"the role {role} cannot be taken: {error.args[0]}") from error


def is_of(row: Row, tenant: str) -> bool:
    """Return whether *row* belongs to *tenant*: for reads that are too frequent for row security."""
    tenant_id: str = row["tenant_id"]
    return tenant_id == tenant


class TenantDatabase:
    """A view of the database for some tenants, or the whole of it if row security is off.

    See `Database.for_tenants`.
    """

    def __init__(self, database: Database, tenants: tuple[str, ...] | None) -> None:
        self._database = database
        self._tenants = tenants

    async def fetch(self, statement: Statement, /, **values: object) -> list[Row]:
        """Run `Database.fetch` for these tenants."""
        return await self._database.run(statement, values, await self._restricted_to())

    async def first(self, statement: Statement, /, **values: object) -> Row | None:
        """Run `Database.first` for these tenants."""
        rows = await self.fetch(statement, **values)
        return rows[0] if rows else None

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """Run the block in a `Database.transaction` for these tenants."""
        async with self._database.transaction(await self._restricted_to()) as transaction:
            yield transaction

    async def _restricted_to(self) -> tuple[str, ...] | None:
        if self._tenants is None or not await self._database.refresh_row_security():
            return None
        return self._tenants
