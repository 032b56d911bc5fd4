"""The roles of an installation: the common ones of the server, or its owner alone.

The migrations name `fairlead_engine`, which sees all tenants, `fairlead_reader`, which reads the rows of one, and
`fairlead_tenant`, which row security binds. Roles belong to the whole server. If this user may neither create
them nor grant those of another installation, the owner of the tables takes the place of the first two. The
third then has a name that is unique to this installation, so that it has no rights in another one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from fairlead.adapters.postgres.driver import DatabaseConnection
from fairlead.adapters.postgres.statements import statement

_NAMED = re.compile(r"'fairlead_(engine|reader|tenant)'|\bfairlead_(engine|reader|tenant)\b")
_PLAIN = re.compile(r"[\w@.$-]{1,63}")  # needs no quoting in SQL strings and formats


@dataclass(frozen=True, slots=True)
class DatabaseRoles:
    """The names of an installation's roles."""

    engine: str = "fairlead_engine"
    reader: str = "fairlead_reader"
    tenant: str = "fairlead_tenant"

    @property
    def are_common(self) -> bool:
        """Whether they are the common roles, which other installations on the server may use."""
        return self == COMMON

    @property
    def are_usable(self) -> bool:
        """Whether their names may be used in the texts of migrations."""
        return _PLAIN.fullmatch(self.engine) is not None

    def in_text(self, text: str) -> str:
        """Return the *text* of a migration with these roles."""
        return text if self.are_common else _NAMED.sub(self._name, text)

    def _name(self, match: re.Match[str]) -> str:
        name: str = getattr(self, match[1] or match[2])
        return f"'{name}'" if match[1] else f'"{name}"'


COMMON = DatabaseRoles()


async def installed_roles(connection: DatabaseConnection, schema: str) -> DatabaseRoles:
    """Return the roles of the installation in *schema*; the common ones without an installation."""
    names = statement("role_names")
    (names_row,) = await connection.fetch(names.text, *names.args(schema=schema))
    if names_row["engine"] in {None, COMMON.engine}:
        return COMMON
    return DatabaseRoles(names_row["engine"], names_row["engine"], names_row["tenant"])


async def owner_roles(connection: DatabaseConnection, schema: str) -> DatabaseRoles:
    """Return the roles for a new installation in *schema* without the common roles."""
    names = statement("role_names")
    (names_row,) = await connection.fetch(names.text, *names.args(schema=schema))
    return DatabaseRoles(names_row["owner"], names_row["owner"], names_row["own_tenant"])
