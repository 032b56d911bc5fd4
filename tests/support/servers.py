"""Real servers for tests, and a fresh database per test.

with running_servers() as endpoints:              # once per session
    url = await fresh_database(endpoints.database_url)
    ...
    await drop_database(endpoints.database_url, url)
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from fairlead.adapters.embedded import EmbeddedServers, Endpoints

__all__ = [
    "TEST_SETTINGS",
    "database_name",
    "drop_database",
    "fresh_database",
    "remove_root",
    "running_servers",
    "temporary_root",
]

# Our kills end processes, not the machine, so nothing here needs the disk to be flushed.
TEST_SETTINGS = {"fsync": "off", "max_connections": "300", "valkey.enable-debug-command": "local"}


@contextmanager
def temporary_root() -> Iterator[Path]:
    """Yield a short path that the servers' account can reach, also for root. It is removed at the end."""
    top = Path(tempfile.mkdtemp(prefix="fl-", dir=_quickest_folder()))
    top.chmod(0o711)  # pytest's own folders are 0700, where root's servers would have to move out
    root = top / "root"
    try:
        yield root
    finally:
        EmbeddedServers(root).stop()
        remove_root(root)
        shutil.rmtree(top)


def _quickest_folder() -> str:
    """Return a folder in memory if there is enough (it starts a cluster in a third of the time), else /tmp."""
    memory = "/dev/shm"
    try:
        status = os.statvfs(memory)
    except OSError:
        return "/tmp"
    free_bytes = status.f_bavail * status.f_frsize
    runs_programs = not status.f_flag & os.ST_NOEXEC  # copies of the wheels may have to lie there
    return memory if free_bytes > 2**31 and runs_programs and os.access(memory, os.W_OK) else "/tmp"


def remove_root(root: Path) -> None:
    """Delete a stopped root, and what its links point to."""
    for link in (root / "servers" / "run", root / "servers"):
        if link.is_symlink():
            shutil.rmtree(link.readlink(), ignore_errors=True)
    shutil.rmtree(root, ignore_errors=True)


@contextmanager
def running_servers(settings: Mapping[str, str] = TEST_SETTINGS) -> Iterator[Endpoints]:
    """Run both servers in a temporary folder during the block."""
    with temporary_root() as root, EmbeddedServers(root, settings=settings) as endpoints:
        try:
            yield endpoints
        finally:
            if connection := _admins.pop(endpoints.database_url, None):
                connection.close()


async def fresh_database(admin_url: str, *, template: str = "template1") -> str:
    """Create a database (about 15 ms) and return its URL. Nobody may be connected to *template*."""
    name = f"t_{os.getpid()}_{secrets.token_hex(4)}"
    _admin(admin_url, f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY file_copy')
    return urlsplit(admin_url)._replace(path=f"/{name}").geturl()


async def drop_database(admin_url: str, url: str) -> None:
    """Drop a database of `fresh_database`, with all its connections."""
    _admin(admin_url, f'DROP DATABASE IF EXISTS "{database_name(url)}" WITH (FORCE)')


def database_name(url: str) -> str:
    """Return the database name of a URL; that of a migrated one serves as template."""
    return urlsplit(url).path.removeprefix("/")


_admins: dict[str, psycopg.Connection] = {}
"""One connection per server, for all event loops: a new one costs more than what it would be used for."""


def close_admin_connections() -> None:
    """Close the connections that `fresh_database` and `drop_database` keep, where a test counts all of a server."""
    while _admins:
        _admins.popitem()[1].close()


def _admin(url: str, statement: str) -> None:
    """Run *statement*, on a new connection where the server has restarted."""
    for is_last in (False, True):
        connection = _admins.get(url)
        if connection is None:
            connection = _admins[url] = psycopg.connect(url, autocommit=True)
        try:
            connection.execute(statement)  # type: ignore[call-overload] - names cannot be parameters
            return
        except psycopg.OperationalError:
            if is_last or not connection.broken:
                raise
            del _admins[url]
