"""Looking behind the stores' backs: free SQL for tests."""

from __future__ import annotations

from typing import Any

from fairlead.adapters.postgres.database import Database
from tests.support.raw_connections import raw_connection


async def rows(database: Database, sql: str, *args: object) -> list[dict[str, Any]]:
    """Return the rows of *sql* as dicts."""
    async with raw_connection(database) as connection:
        return [dict(row.items()) for row in await connection.fetch(sql, *args)]


async def run(database: Database, sql: str, *args: object) -> None:
    """Run *sql* for its effect."""
    await rows(database, sql, *args)
