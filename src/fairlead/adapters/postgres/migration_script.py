"""Write migrations as one psql script, for an administrator to run by hand."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fairlead.adapters.postgres.migration_files import (
    BASELINE,
    INDEX_PATIENCE_MS,
    LOCK_TIMEOUT,
    PATIENCE_MS,
    Migration,
)
from fairlead.adapters.postgres.roles import COMMON, DatabaseRoles
from fairlead.adapters.postgres.statements import Statement, statement


def as_script(migrations: Sequence[Migration], schema: str, roles: DatabaseRoles = COMMON) -> str:
    """Return *migrations* and their records as one psql script, with the lock timeouts of `apply`."""
    as_first = f"SET lock_timeout = '{LOCK_TIMEOUT}';"
    parts = ["\\set ON_ERROR_STOP on", as_first]
    parts.append(f"{_inlined(statement('schema_create'), schema=schema)} \\gexec")
    parts.append(f"{_inlined(statement('schema_use'), schema=schema)};")
    parts.append(f"{statement('migration_table').text};")
    for migration in migrations:
        record = _inlined(statement("migration_record"), **migration.record)
        body = f"{roles.in_text(migration.text).rstrip()}\n{record};"
        if migration.transactional:
            path = f"{statement('migration_path').text};"
            body = f"BEGIN;\nSET LOCAL lock_timeout = {PATIENCE_MS};\n{path}\n{body}\nCOMMIT;"
        elif migration.index is not None:
            drop = f"{_inlined(statement('migration_index_drop'), index=migration.index)} \\gexec"
            body = f"SET lock_timeout = {INDEX_PATIENCE_MS};\n{drop}\n{body}\n{as_first}"
        parts.append(body)
        if migration.number == BASELINE:
            parts.append(f"{statement('row_security_enable').text};")
    return "\n\n".join(parts) + "\n"


def _inlined(statement: Statement, **values: object) -> str:
    """Return the text of *statement* with literals in place of its parameters."""
    args = statement.args(**values)
    return re.sub(r"\$(\d+)", lambda match: _literal(args[int(match[1]) - 1]), statement.text)


def _literal(value: object) -> str:
    return str(value) if isinstance(value, int) else "'" + str(value).replace("'", "''") + "'"
