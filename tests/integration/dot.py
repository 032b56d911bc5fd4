"""The django-oauth-toolkit server as a test sees it: start it, seed it, read its record and its tables."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import asyncpg

from tests.integration.dot_server.record import read_record
from tests.support.servers import database_name, drop_database, fresh_database
from tests.support.standstill import patience

ROOT = Path(__file__).resolve().parents[2]
READY_S = 60.0


@dataclass(frozen=True, slots=True)
class LiveGrant:
    """A refresh token that is not revoked, and the access token issued with it."""

    user: str
    refresh_token: str
    access_token: str | None
    access_expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class DotServer:
    """A running server. *app* holds client_id and client_secret, *grants* what the consents gave."""

    url: str
    app: dict[str, str]
    grants: list[dict[str, Any]]
    database_url: str
    record_path: Path

    @property
    def token_url(self) -> str:
        return f"{self.url}/o/token/"

    def record(self) -> list[dict[str, Any]]:
        """What the server wrote down so far."""
        return read_record(self.record_path)

    def verdicts(self) -> Counter[str]:
        """How often each thing happened: rotated, repeated, reused, ... (see dot_server/validator.py)."""
        return Counter(line["event"] for line in self.record())

    def open_at(self, moment_s: float) -> int:
        """Requests that had arrived by *moment_s* and were not answered by then."""
        arrived, answered = set(), set()
        for line in self.record():
            if line["at_s"] <= moment_s and line["event"] in ("arrived", "answered"):
                (arrived if line["event"] == "arrived" else answered).add(line["request"])
        return len(arrived - answered)

    async def live(self) -> list[LiveGrant]:
        """All refresh tokens that are not revoked, from the server's own tables."""
        rows = await self._rows(
            "SELECT u.username, r.token AS refresh, a.token AS access, a.expires"
            " FROM oauth2_provider_refreshtoken r JOIN auth_user u ON u.id = r.user_id"
            " LEFT JOIN oauth2_provider_accesstoken a ON a.id = r.access_token_id"
            " WHERE r.revoked IS NULL ORDER BY u.username"
        )
        return [LiveGrant(row["username"], row["refresh"], row["access"], row["expires"]) for row in rows]

    async def rotations(self) -> dict[str, int]:
        """By user: how many refresh tokens were issued after the first."""
        rows = await self._rows(
            "SELECT u.username, count(*) - 1 AS n FROM oauth2_provider_refreshtoken r"
            " JOIN auth_user u ON u.id = r.user_id GROUP BY u.username"
        )
        return {row["username"]: row["n"] for row in rows}

    async def _rows(self, statement: str) -> list[Any]:
        connection = await asyncpg.connect(self.database_url)
        try:
            return list(await connection.fetch(statement))
        finally:
            await connection.close()


async def migrated_database(admin_url: str) -> str:
    """A database with the server's tables, to be copied for each server."""
    url = await fresh_database(admin_url)
    await _command({"DOT_DATABASE_URL": url, "DOT_RECORD": os.devnull}, "migrate")
    return url


@asynccontextmanager
async def dot_server(
    admin_url: str,
    template_url: str,
    folder: Path,
    *,
    users: int,
    grace_s: int,
    ttl_s: int,
    answer_delay_s: float = 0.0,
) -> AsyncIterator[DotServer]:
    """A server of its own process on a database of its own, seeded with *users* grants."""
    database_url = await fresh_database(admin_url, template=database_name(template_url))
    record = folder / "dot-record.jsonl"
    environ = {
        "DOT_DATABASE_URL": database_url,
        "DOT_RECORD": str(record),
        "DOT_GRACE_S": str(grace_s),
        "DOT_TTL_S": str(ttl_s),
        "DOT_ANSWER_DELAY_S": str(answer_delay_s),
    }
    try:
        with (folder / "dot-server.log").open("ab") as log:
            child = await _start(environ, "serve", stderr=log)
        try:
            url = json.loads(await _line(child, folder / "dot-server.log"))["url"]
            seeded = json.loads(await _command(environ, "seed", str(users)))
            app = {"client_id": seeded["client_id"], "client_secret": seeded["client_secret"]}
            yield DotServer(url, app, seeded["grants"], database_url, record)
        finally:
            await _end(child)
    finally:
        await drop_database(admin_url, database_url)


async def _start(environ: dict[str, str], *arguments: str, stderr: Any) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.integration.dot_server", *arguments,
        cwd=ROOT, env={**os.environ, **environ}, stdin=pipe, stdout=pipe, stderr=stderr,
    )  # fmt: skip


async def _line(child: asyncio.subprocess.Process, log: Path) -> bytes:
    assert child.stdout is not None
    async with patience(READY_S):
        line = await child.stdout.readline()
    assert line, f"the server did not start: {log.read_text()[-2000:]}"
    return line


async def _command(environ: dict[str, str], *arguments: str) -> bytes:
    """The standard output of one command that ends by itself."""
    child = await _start(environ, *arguments, stderr=asyncio.subprocess.PIPE)
    async with patience(READY_S):
        output, words = await child.communicate()
    assert child.returncode == 0, words.decode()[-2000:]
    return output


async def _end(child: asyncio.subprocess.Process) -> None:
    """Close its standard input, which ends it; kill it if that does not."""
    assert child.stdin is not None
    child.stdin.close()
    try:
        async with asyncio.timeout(10):
            await child.wait()
    except TimeoutError:
        child.kill()
        await child.wait()
