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
    """Where it answers; it is stopped and its data are gone after the block. *settings*: besides."""
    with servers(settings) as endpoints:
        yield endpoints.database_url


@contextmanager
def servers(settings: Mapping[str, str] | None = None) -> Iterator[Endpoints]:
    """The same with the embedded Valkey beside it; `bench.valkey` is for that one."""
    with tempfile.TemporaryDirectory(prefix="fl-bench-", dir="/tmp") as top:
        Path(top).chmod(0o711)  # the servers' account may be another one
        embedded = EmbeddedServers(Path(top) / "servers", settings=settings or {})
        try:
            yield embedded.start()
        finally:
            embedded.stop()


@asynccontextmanager
async def fresh_database(server_url: str, name: str) -> AsyncIterator[str]:
    """An empty database, dropped after the block with whoever is connected to it."""
    async with connected(server_url) as admin:
        await admin.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        await admin.execute(f'CREATE DATABASE "{name}"')
        try:
            yield urlsplit(server_url)._replace(path=f"/{name}").geturl()
        finally:
            await admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


async def settle(url: str) -> None:
    """Leave nothing of the past for the next measurement: statistics taken, dirty pages written."""
    async with connected(url) as connection:
        await connection.execute("VACUUM ANALYZE")
        await connection.execute("CHECKPOINT")


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Any]:
    """A connection that finds our tables, and those of the others in `public`."""
    connection = await asyncpg.connect(url, server_settings={"search_path": "fairlead, public"})
    try:
        yield connection
    finally:
        await connection.close()
