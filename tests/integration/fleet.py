"""A fleet of ``fairlead run`` processes over one database and one home, which a test may kill.

What the fleet did is read from its own tables; what it should have done, from the server's (dot.py).
"""

from __future__ import annotations

import asyncio
import base64
import os
import secrets
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import asyncpg

from fairlead.adapters.postgres.connection_setup import DEFAULT_SCHEMA, DatabaseSettings
from fairlead.adapters.postgres.migrate import Migrator
from fairlead.app import Fairlead
from tests.integration.dot import ROOT, DotServer
from tests.support.servers import drop_database, fresh_database
from tests.support.standstill import patience

PROVIDER = "generic_oauth2"
STOP_S = 60.0
LOOK_S = 0.02
"""How often a condition is looked at that nothing announces."""

SETTINGS = """
home = "{home}"

[database]
url = "{database_url}"
pool_size = 4

[vault]
master_key_file = "{home}/master.key"

[http]
allow_private_addresses = true

[refresh]
request_deadline_s = 10.0
total_deadline_s = 12.0
lease_s = 15.0
not_sent_delays_s = [0.1, 0.3]
cooldown_s = 0.3
retry_dead_after_s = 2.0

[worker]
concurrency = 16
lease_s = 3.0
poll_s = 0.2
shutdown_grace_s = 15.0

[schedules]
refresh_scan = "@every 1s"
urgent_scan = "@every 1s"
dead_letters = "@every 5s"

[providers.{provider}]
client_id = "{client_id}"
client_secret = "{client_secret}"

[providers.{provider}.overlay]
allow_http = true
unset = ["endpoints.authorize", "endpoints.params"]
endpoints = {{ token = "{token_url}" }}
ttl_default_s = {ttl_s}
replay = {{ {replay} }}
rate = {{ limit = 10000, window_s = 1.0 }}
"""


@dataclass(frozen=True, slots=True)
class Standing:
    """One connection as fairlead holds it."""

    tenant: str
    state: str
    reason: str | None
    generation: int
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class Killed:
    """A process that was killed: when, and which tenants' refreshes it had in flight, by phase."""

    pid: int
    at_s: float
    intent: tuple[str, ...]
    sent: tuple[str, ...]

    @property
    def in_flight(self) -> frozenset[str]:
        return frozenset((*self.intent, *self.sent))


@dataclass(slots=True)
class Fleet:
    """Processes started here, living and dead, and eyes on their tables."""

    config: Path
    database_url: str
    looking: asyncpg.Pool
    processes: list[asyncio.subprocess.Process] = field(default_factory=list)
    logs: dict[int, Path] = field(default_factory=dict)
    started: int = 0

    # ---- processes

    async def start(self, environ: Mapping[str, str] | None = None) -> asyncio.subprocess.Process:
        """One more process; it has its session when this returns. *environ*: for FAIRLEAD_FAULT."""
        ours = ("FAIRLEAD_", "DATABASE_URL", "REDIS_URL", "LOG_")
        env = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
        env |= environ or {}
        self.started += 1
        path = self.config.parent / f"worker-{self.started}.log"
        with path.open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "fairlead", "run", "--config", str(self.config),
                cwd=ROOT, env=env, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        self.processes.append(process)
        self.logs[process.pid] = path
        await self.until(lambda: self._has_session(process), 30.0, f"process {process.pid} works")
        return process

    def _check_alive(self) -> None:
        """Only kills end processes here."""
        for process in self.processes:
            if process.returncode not in (None, -signal.SIGKILL):
                raise AssertionError(f"a process ended with {process.returncode}:\n{self.words(process)}")

    async def _has_session(self, process: asyncio.subprocess.Process) -> bool:
        sessions = await self.looking.fetchval(
            "SELECT count(*) FROM worker_session WHERE pid = $1", process.pid
        )
        return bool(sessions) or process.returncode is not None

    def words(self, process: asyncio.subprocess.Process) -> str:
        """The end of what *process* wrote."""
        return self.logs[process.pid].read_text(errors="replace")[-3000:]

    @property
    def living(self) -> dict[int, asyncio.subprocess.Process]:
        return {process.pid: process for process in self.processes if process.returncode is None}

    async def sending(self) -> list[int]:
        """Pids of living processes that wait for an answer at this moment."""
        rows = await self.looking.fetch(
            "SELECT DISTINCT s.pid FROM refresh_attempt r JOIN worker_session s USING (session_id)"
            " WHERE r.phase = 'sent' AND s.pid = ANY($1::int[]) ORDER BY s.pid",
            list(self.living),
        )
        return [row["pid"] for row in rows]

    async def kill(self, pid: int, clock: Callable[[], float]) -> Killed:
        """SIGKILL. What it had in flight is read once it is gone: nobody else touches its rows so soon."""
        process, at_s = self.living[pid], clock()
        process.kill()
        await process.wait()
        rows = await self.looking.fetch(
            "SELECT c.tenant_id, r.phase FROM refresh_attempt r JOIN connection c USING (connection_id)"
            " JOIN worker_session s USING (session_id) WHERE s.pid = $1 ORDER BY c.tenant_id",
            pid,
        )
        phases = {phase: tuple(row[0] for row in rows if row[1] == phase) for phase in ("intent", "sent")}
        return Killed(pid, at_s, phases["intent"], phases["sent"])

    async def stop(self) -> list[int]:
        """SIGTERM for all that live; the exit codes once they have drained."""
        living = list(self.living.values())
        for process in living:
            process.terminate()
        async with patience(STOP_S):
            return list(await asyncio.gather(*(process.wait() for process in living)))

    # ---- what they did

    async def standings(self) -> dict[str, Standing]:
        """Every connection by tenant."""
        rows = await self.looking.fetch(
            "SELECT c.tenant_id, cr.state, cr.state_reason, cr.generation, cr.expires_at"
            " FROM credential cr JOIN connection c USING (connection_id) ORDER BY c.tenant_id"
        )
        return {row[0]: Standing(*row) for row in rows}

    async def refreshed(self) -> int:
        """Refreshes of all connections so far."""
        return int(await self.looking.fetchval("SELECT sum(generation - 1) FROM credential"))

    async def count(self, statement: str, *values: object) -> int:
        """A number out of fairlead's tables."""
        return int(await self.looking.fetchval(statement, *values))

    async def until(self, true: Callable[[], object], within_s: float, condition: str) -> None:
        """Return as soon as the awaited ``true()`` says so; fail after *within_s*."""
        try:
            async with patience(within_s):
                while not await true():  # type: ignore[misc]
                    self._check_alive()
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            tails = "\n".join(self.words(process)[-800:] for process in self.processes)
            raise AssertionError(f"after {within_s:g} s still not: {condition}\n{tails}") from None


@asynccontextmanager
async def fleet_for(
    admin_url: str, server: DotServer, folder: Path, *, ttl_s: int, replay: str
) -> AsyncIterator[Fleet]:
    """A migrated database, a home with a master key, and a settings file that points at *server*."""
    database_url = await fresh_database(admin_url)
    config = _settings_file(folder, database_url, server, ttl_s, replay)
    await Migrator(DatabaseSettings(dsn=database_url)).apply()
    there = {"search_path": DEFAULT_SCHEMA}
    looking = await asyncpg.create_pool(database_url, min_size=1, max_size=4, server_settings=there)
    fleet = Fleet(config, database_url, looking)
    try:
        yield fleet
    finally:
        for process in fleet.living.values():
            process.kill()
            await process.wait()
        await looking.close()
        await drop_database(admin_url, database_url)


def _settings_file(folder: Path, database_url: str, server: DotServer, ttl_s: int, replay: str) -> Path:
    home = folder / "home"
    home.mkdir(mode=0o700)
    key = home / "master.key"
    key.write_text(f"test:{base64.b64encode(secrets.token_bytes(32)).decode()}\n")
    key.chmod(0o600)
    config = folder / "fairlead.toml"
    config.write_text(
        SETTINGS.format(
            home=home,
            database_url=database_url,
            provider=PROVIDER,
            token_url=server.token_url,
            ttl_s=ttl_s,
            replay=replay,
            **server.app,
        )
    )
    config.chmod(0o600)
    return config


async def connect_all(fleet: Fleet, server: DotServer, *, expires_in_s: float) -> None:
    """Each grant of the server becomes a connection; the tenant is called as the user there.

    *expires_in_s*: what is said of the access token's life, which decides when its first refresh is due.
    """
    async with Fairlead.from_env({}, config=fleet.config) as fairlead:
        for grant in server.grants:
            await fairlead.connections.upsert(
                grant["user"],
                PROVIDER,
                access_token=grant["access_token"],
                refresh_token=grant["refresh_token"],
                expires_in_s=expires_in_s,
            )
