"""Two PostgreSQL servers: a primary, and a stand-by that streams from it.

Both begin as copies of one migrated cluster, so a pair is there in a second or two.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import asyncpg

from fairlead.adapters.embedded import EmbeddedPostgres
from fairlead.adapters.postgres.migrate import Migrator
from tests.support.databases import settings_of, without_public
from tests.support.servers import temporary_root

STANDBY = "standby"
LOOK_S = 0.005
QUICK = {"wal_retrieve_retry_interval": "100ms"}
IN_STEP_S = 30.0
SETTLED_S = 0.2  # whoever wrote as it was told to has ended by then


class Cluster(EmbeddedPostgres):
    """An embedded server whose data may be copied while it is stopped."""

    def take(self, other: Cluster) -> None:
        """Begin with the data of *other*."""
        shutil.copytree(other._data, self._data, symlinks=True)
        for path in (self._data, *self._data.rglob("*")):
            self.home.account.take_ownership(path)

    def keep_wal_in(self, folder: Path) -> None:
        """Keep what is written ahead in *folder*, on a disk of its own perhaps."""
        shutil.copytree(self._data / "pg_wal", folder)
        shutil.rmtree(self._data / "pg_wal")
        (self._data / "pg_wal").symlink_to(folder)
        for path in (folder, *folder.rglob("*"), self._data / "pg_wal"):
            self.home.account.take_ownership(path)

    def follow(self) -> None:
        """Be a stand-by from the next start on."""
        sign = self._data / "standby.signal"
        sign.touch()
        self.home.account.take_ownership(sign)


@contextmanager
def migrated_cluster() -> Iterator[Cluster]:
    """A stopped server with all migrations in its database."""
    with temporary_root() as root:
        cluster = Cluster(root)
        url = cluster.start()
        try:
            asyncio.run(_prepare(url))
        finally:
            cluster.stop()
        yield cluster


async def _prepare(url: str) -> None:
    await without_public(url)
    await Migrator(settings_of(url)).apply()


class Pair:
    """Made by `pair_of`."""

    def __init__(self, primary: Cluster, standby: Cluster) -> None:
        self.primary = primary
        self.standby = standby

    async def ask(self, server: Cluster, sql: str) -> Any:
        """One value, or None."""
        connection = await asyncpg.connect(server.url)
        try:
            return await connection.fetchval(sql)
        finally:
            await connection.close()

    async def in_step(self) -> None:
        """Return once the stand-by has all that the primary has."""
        async with asyncio.timeout(IN_STEP_S):
            while True:
                written = await self.ask(self.primary, "SELECT pg_current_wal_flush_lsn()::text")
                there = f"SELECT pg_last_wal_replay_lsn() >= '{written}'::pg_lsn"
                if await self.ask(self.standby, there):
                    return
                await asyncio.sleep(LOOK_S)

    async def stop_sending(self) -> int:
        """The primary sends nothing more to its stand-by; the process that would."""
        sender = "SELECT pid FROM pg_stat_replication"
        async with asyncio.timeout(IN_STEP_S):
            while (pid := await self.ask(self.primary, sender)) is None:
                await asyncio.sleep(LOOK_S)
        os.kill(pid, signal.SIGSTOP)
        return int(pid)

    async def kill_primary(self, sender: int) -> None:
        """SIGKILL, to its *sender* as well; return when all of it is gone."""
        pid = self.primary.pid()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.kill(sender, signal.SIGKILL)
        while self.primary.alive():
            await asyncio.sleep(LOOK_S)

    async def demote(self) -> None:
        """The primary goes on, but takes no more writes from whoever is connected or comes."""
        await self.ask(self.primary, "ALTER SYSTEM SET default_transaction_read_only = on")
        await self.ask(self.primary, "SELECT pg_reload_conf()")
        await asyncio.sleep(SETTLED_S)

    async def promote(self) -> None:
        """Return once the stand-by takes writes."""
        await self.ask(self.standby, "SELECT pg_promote(true, 60)")


@asynccontextmanager
async def pair_of(
    cluster: Cluster, *, synchronous: bool, settings: Mapping[str, str] | None = None
) -> AsyncIterator[Pair]:
    """A running pair with the data of *cluster*. *synchronous*: a commit waits until the stand-by has it.

    *settings* are the stand-by's.
    """
    with temporary_root() as root, temporary_root() as two:
        waits = {"synchronous_standby_names": STANDBY} if synchronous else {}
        primary = Cluster(root, settings=waits)
        source = f"{_conninfo(primary)} application_name={STANDBY}"
        standby = Cluster(two, settings={"primary_conninfo": source, **QUICK, **(settings or {})})
        for server in (primary, standby):
            await asyncio.to_thread(server.take, cluster)
        standby.follow()
        pair = Pair(primary, standby)
        try:
            for server in (primary, standby):
                await asyncio.to_thread(server.start)
            await pair.in_step()
            yield pair
        finally:
            for server in (standby, primary):
                await asyncio.to_thread(server.stop)


def _conninfo(server: Cluster) -> str:
    return f"host={server.home.sockets()} port={Path(server.url).name.rpartition('=')[2]} user=postgres"
