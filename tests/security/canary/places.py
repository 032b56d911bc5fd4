"""Everything that came out of a run, by its place: what is searched for canaries."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import asyncpg
from redis.asyncio import Redis

TABLES = """
SELECT format('%I.%I', schemaname, tablename) FROM pg_tables
WHERE schemaname NOT IN ('pg_catalog', 'information_schema') ORDER BY 1
"""
LOOK_S = 0.02


async def database(url: str) -> dict[str, bytes]:
    """Every row of every table, as COPY writes them, and what the server knows of its sessions."""
    connection = await asyncpg.connect(url)
    try:
        texts = {}
        for (table,) in await connection.fetch(TABLES):
            rows = io.BytesIO()
            await connection.copy_from_query(f"SELECT * FROM {table}", output=rows)
            texts[f"table {table}"] = rows.getvalue()
        sessions = await connection.fetch("SELECT * FROM pg_stat_activity")
        return texts | {"sessions of PostgreSQL": repr([dict(row) for row in sessions]).encode()}
    finally:
        await connection.close()


async def redis(url: str) -> dict[str, bytes]:
    """Every key with its value, read by its type and dumped, the slow log, and the list of clients."""
    async with Redis.from_url(url) as client:
        parts = []
        async for key in client.scan_iter(count=1000):
            parts += [key, await _value(client, key), await client.dump(key) or b""]
        about: list[Any] = [await client.slowlog_get(1000), await client.client_list()]
        return {"keys and values of Redis": b"\n".join(parts), "clients of Redis": repr(about).encode()}


async def _value(client: Redis, key: bytes) -> bytes:
    kind = await client.type(key)
    read: Any = {
        b"string": client.get,
        b"hash": client.hgetall,
        b"set": client.smembers,
        b"zset": lambda name: client.zrange(name, 0, -1, withscores=True),
        b"list": lambda name: client.lrange(name, 0, -1),
        b"stream": client.xrange,
    }[kind]
    value = await read(key)
    return value if isinstance(value, bytes) else repr(value).encode()


@asynccontextmanager
async def overheard(socket: str) -> AsyncIterator[bytearray]:
    """Every command that Redis is sent while the block lasts, as MONITOR tells them."""
    reader, writer = await asyncio.open_unix_connection(socket)
    writer.write(b"MONITOR\r\n")
    assert await reader.readline() == b"+OK\r\n"
    received = bytearray()

    async def listen() -> None:
        while data := await reader.read(1 << 16):
            received.extend(data)

    listening = asyncio.create_task(listen())
    try:
        yield received
    finally:
        await asyncio.sleep(LOOK_S)
        listening.cancel()
        writer.close()


def files(folder: Path, *, but: tuple[str, ...] = ()) -> dict[str, bytes]:
    """Every file below *folder* whose path holds none of *but*; the name of each is searched, too."""
    texts = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and not any(part in name for part in but):
            with suppress(FileNotFoundError):
                texts[f"file {name}"] = name.encode() + b"\n" + path.read_bytes()
    return texts


def command_lines() -> bytes:
    """The command line of every process of this machine: what ``ps`` shows to everybody."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            lines.append(path.read_bytes())
    return b"\n".join(lines)
