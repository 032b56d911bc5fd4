"""A database's clock cannot be set, so time passes by making everything stored older."""

from __future__ import annotations

from fairlead.adapters.postgres.database import Database
from tests.support.rows import rows, run

_NOT_MOVED = {("maintenance_run", "server_started_at")}  # which server it was, not when something happened
_APPEND_ONLY = {"audit", "migration"}
_MOMENTS = """
SELECT c.relname::text AS table, a.attname::text AS column
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
WHERE c.relnamespace = quote_ident(current_schema())::regnamespace AND c.relkind = 'r'
    AND a.atttypid = 'timestamptz'::regtype
"""


async def pass_time(database: Database, delay_s: float) -> None:
    """Move the times of all rows, without the audit trail, *delay_s* seconds into the past."""
    columns = await rows(database, _MOMENTS)
    moved: dict[str, list[str]] = {}
    for column in columns:
        if column["table"] not in _APPEND_ONLY and (column["table"], column["column"]) not in _NOT_MOVED:
            moved.setdefault(column["table"], []).append(column["column"])
    for table, names in moved.items():
        changes = ", ".join(f"{name} = {name} - $1 * interval '1 second'" for name in names)
        await run(database, f"UPDATE {table} SET {changes}", delay_s)
