"""Calls through the front door, on real stores, to vendors that the experiment makes itself."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any

from fairlead import Fairlead
from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.app.client import Response
from fairlead.assembly.config import Config
from fairlead.assembly.settings import Settings
from fairlead.errors import FairleadError, LimitExceededError
from fairlead.testing.api.malformed import answer
from fairlead.testing.api.raw import RawConnection
from tests.support.standstill import LEAST_S, ran_s

PROVIDER = "rude"
KEY = "access-token-canary"
TRIES_ONCE: Mapping[str, Any] = {"max_retries": 0, "breaker_failures": 10_000}
"""Settings of a connection whose calls are sent once, whatever comes."""

# The key goes in a header of its own: HTTP libraries know of Authorization, and take care of that one alone.
_PROFILE = """
name = "rude"
title = "Rude"
strategy = "static_key"
credential_header = { name = "X-Rude-Key", format = "{token}" }
limits.calls.requests = { capacity = 100000, per_s = 100000 }
apis.rest.url = "https://unused.names.test"
hosts = ["127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4", "localhost", "*.names.test"]
"""


def settings_of(
    servers: Endpoints,
    database: DatabaseSettings,
    folder: Path,
    *,
    private: bool = True,
    allow_http: bool = True,
) -> dict[str, Any]:
    """Of a process that knows the rude vendor. *private*: it may be on this host; *allow_http*: its profile
    lets calls go by http, and to any port."""
    profiles = folder / "profiles"
    profiles.mkdir(exist_ok=True)
    profile = f"{_PROFILE}allow_http = {str(allow_http).lower()}\n"
    (profiles / f"{PROVIDER}.toml").write_text(profile)
    return {
        "home": str(folder / "home"),
        "database": {"url": database.dsn, "schema_name": database.schema, "pool_size": 4},
        "redis": {"url": servers.redis_url, "prefix": f"fault-{token_hex(6)}"},
        "vault": {"master_key": "k1:" + "0123456789abcdef" * 4},
        "http": {"allow_private_addresses": private},
        "providers_dir": str(profiles),
    }


LEASE_S = 30.0


class Callers:
    """Tenants of one process, each with a connection of its own."""

    def __init__(self, fl: Fairlead) -> None:
        self.fl = fl

    async def connect(self, tenant: str, **settings: Any) -> None:
        """A connection; what its settings do not say is TRIES_ONCE's."""
        await self.fl.connections.upsert(tenant, PROVIDER, api_key=KEY, settings={**TRIES_ONCE, **settings})

    async def call(
        self, tenant: str, url: str, method: str = "GET", **options: Any
    ) -> Response | FairleadError:
        """What came of one call: only what is no error of ours is raised."""
        try:
            async with self.fl.client(tenant, PROVIDER) as api:
                return await api.request(method, url, **options)
        except FairleadError as error:
            return error

    async def stuck(self, tenant: str, slots: int, wait_s: float = LEASE_S + 1.0) -> int:
        """How many of the tenant's *slots* cannot be had, though no call is made. It takes them all.

        Those of calls that were not answered in time end with their leases.
        """
        async with AsyncExitStack() as stack:
            for index in range(slots):
                try:
                    await stack.enter_async_context(self.fl.admission(tenant, PROVIDER, wait_s=wait_s))
                except LimitExceededError:
                    return slots - index
        return 0


@asynccontextmanager
async def calling(settings: Mapping[str, Any]) -> AsyncIterator[Callers]:
    """A process that calls."""
    async with Fairlead(Config(Settings.model_validate(settings), {})) as fl:
        yield Callers(fl)


async def echo(connection: RawConnection, request: bytes) -> None:
    """Answer *request* with its path, so that an answer tells which request it belongs to."""
    await connection.send(answer(request.split(b" ", 2)[1], kind="text/plain"))


def echoed(outcome: Response | FairleadError, path: str) -> bool:
    """Whether *came* is the echo of *path*."""
    return isinstance(outcome, Response) and outcome.content == path.encode()


def slots_taken(callers: Callers) -> int:
    """Connections of ours that are in use."""
    context = callers.fl.runtime.http.calls._context
    return len(context.connector._acquired) if context is not None else 0


def starved_s() -> float:
    """For how long this thread could have run so far, and other processes had the processors; 0.0 where the
    kernel does not count it."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) * 1e-9
    except FileNotFoundError:
        return 0.0


class Watch:
    """The longest time that nothing else could run on the loop, by what this process did itself."""

    def __init__(self) -> None:
        self.stall_s = 0.0

    async def look(self) -> None:
        """Until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            before_s, starved_before_s = loop.time(), starved_s()
            await asyncio.sleep(0.001)
            others_s = 0.001 + starved_s() - starved_before_s
            now_s = loop.time()
            stall_s = now_s - before_s - others_s
            if stall_s > max(self.stall_s, LEAST_S):
                stall_s = min(stall_s, ran_s(before_s, now_s))
            self.stall_s = max(self.stall_s, stall_s)


@asynccontextmanager
async def watched() -> AsyncIterator[Watch]:
    """Look at the loop for as long as the block lasts."""
    watch = Watch()
    gc.collect()
    gc.freeze()  # what the tests before have left is no business of the loop that is looked at
    looking = asyncio.create_task(watch.look())
    try:
        yield watch
    finally:
        looking.cancel()
        gc.unfreeze()
