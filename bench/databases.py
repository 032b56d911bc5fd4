"""The server of a benchmark: the embedded PostgreSQL with its default settings, a fresh database per run."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg

from fairlead.adapters.embedded import EmbeddedServers, Endpoints


@contextmanager
def server(settings: Mapping[str, str] | None = None) -> Iterator[str]:
    """Yield the URL of a PostgreSQL with further *settings*. The server and its data exist for the block."""
    with servers(settings) as endpoints:
        yield endpoints.database_url


@contextmanager
def servers(settings: Mapping[str, str] | None = None) -> Iterator[Endpoints]:
    """Yield the URLs of a PostgreSQL and of a Valkey (see `bench.valkey`) that exist for the block."""
    with tempfile.TemporaryDirectory(prefix="fl-bench-", dir="/tmp") as top:
        Path(top).chmod(0o711)  # the servers' account may be another one
        embedded = EmbeddedServers(Path(top) / "servers", settings=settings or {})
        try:
            yield embedded.start()
        finally:
            embedded.stop()


@asynccontextmanager
async def fresh_database(server_url: str, name: str) -> AsyncIterator[str]:
    """Yield the URL of an empty database, which is dropped after the block with all its connections."""
    async with connected(server_url) as admin:
        await admin.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        await admin.execute(f'CREATE DATABASE "{name}"')
        try:
            yield urlsplit(server_url)._replace(path=f"/{name}").geturl()
        finally:
            await admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


async def settle(url: str) -> None:
    """Vacuum, analyze and checkpoint, so that the next measurement has no work of earlier ones."""
    async with connected(url) as connection:
        await connection.execute("VACUUM ANALYZE")
        await connection.execute("CHECKPOINT")


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Any]:
    """Yield a connection that sees our tables, and those of other queues in `public`."""
    connection = await asyncpg.connect(url, server_settings={"search_path": "fairlead, public"})
    try:
        yield connection
    finally:
        await connection.close()
