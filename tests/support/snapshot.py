"""A snapshot that somebody holds: no row that it may see is removed meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg


@asynccontextmanager
async def held_snapshot(dsn: str) -> AsyncIterator[None]:
    """Hold an idle transaction with a snapshot during the block."""
    connection = await asyncpg.connect(dsn)
    try:
        async with connection.transaction(isolation="repeatable_read"):
            await connection.fetchval("SELECT pg_current_snapshot()::text")
            yield
    finally:
        await connection.close()
