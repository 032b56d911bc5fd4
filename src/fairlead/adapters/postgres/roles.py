"""The roles of an installation: common ones of the server, or its owner alone.

The migrations name `fairlead_engine`, which sees all tenants, `fairlead_door`, which sees one, and
`fairlead_tenant`, which row security binds. Roles belong to the whole server. Where this user may not create
them, and may not grant those of another installation either, the owner of the tables stands in for the first
two. The third has a name of this installation then: nothing of another one is granted to it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from fairlead.adapters.postgres.driver import Connection
from fairlead.adapters.postgres.sqlfiles import statement

_NAMED = re.compile(r"'fairlead_(engine|door|tenant)'|\bfairlead_(engine|door|tenant)\b")
_PLAIN = re.compile(r"[\w@.$-]{1,63}")  # fits into a string and a format of SQL as it is


@dataclass(frozen=True, slots=True)
class Roles:
    """The names of an installation's roles."""

    engine: str = "fairlead_engine"
    door: str = "fairlead_door"
    tenant: str = "fairlead_tenant"

    @property
    def are_common(self) -> bool:
        """Whether they are those that other installations on the server may use, too."""
        return self == COMMON

    @property
    def are_usable(self) -> bool:
        """Whether their names may stand in the texts of migrations."""
        return _PLAIN.fullmatch(self.engine) is not None

    def in_text(self, text: str) -> str:
        """Return the *text* of a migration with these roles in it."""
        return text if self.are_common else _NAMED.sub(self._name, text)

    def _name(self, match: re.Match[str]) -> str:
        name: str = getattr(self, match[1] or match[2])
        return f"'{name}'" if match[1] else f'"{name}"'


COMMON = Roles()


async def installed_roles(connection: Connection, schema: str) -> Roles:
    """Return the roles of the installation in *schema*; the common ones where there is none."""
    names = statement("role_names")
    (found,) = await connection.fetch(names.text, *names.args(schema=schema))
    if found["engine"] in {None, COMMON.engine}:
        return COMMON
    return Roles(found["engine"], found["engine"], found["tenant"])


async def owner_roles(connection: Connection, schema: str) -> Roles:
    """Return the roles of a new installation in *schema* that this user alone owns."""
    names = statement("role_names")
    (found,) = await connection.fetch(names.text, *names.args(schema=schema))
    return Roles(found["owner"], found["owner"], found["own_tenant"])
