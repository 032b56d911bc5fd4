"""A process that reaches nobody costs the others nothing, spends no attempt, and says so (R50)."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fairlead import Fairlead, JobContext, JobRequest
from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.http.resolver import CheckedResolver
from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.database import Database
from fairlead.assembly.config import load
from fairlead.errors import NotSentError
from fairlead.events import Event, GateBreakerOpened, ProcessRecovered, ProcessUnhealthy
from fairlead.testing.api.raw import OK, RawConnection, RawServer
from tests.support.rows import rows

pytestmark = pytest.mark.slow

JOBS = 1000
TENANTS = [f"tenant-{number}" for number in range(10)]
PROVIDERS = ("stripe", "openai")
SETTINGS = """
home = "{home}"
http.allow_private_addresses = true
worker.poll_s = 0.05
worker.lease_s = 3

[providers.stripe.overlay]
allow_http = true
apis.rest.url = "http://localhost:{stripe}/acme/v1"

[providers.openai.overlay]
allow_http = true
apis.rest.url = "http://localhost:{openai}/acme"
"""

FEW_DESCRIPTORS = """
import asyncio, collections, json, os, resource
from fairlead import Fairlead
from fairlead.events import GateBreakerOpened

def leave_free(count):
    opened = {int(name) for name in os.listdir("/proc/self/fd")}
    limit = 0
    while count:
        count -= limit not in opened
        limit += 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

async def main():
    fl = Fairlead.from_env()

    @fl.job
    async def nothing(context):
        pass

    async with fl:
        opened = []
        fl.runtime.bus.subscribe(lambda event: isinstance(event, GateBreakerOpened) and opened.append(event))
        leave_free(12)

        async def call():
            async with fl.client("tenant-0", "stripe") as api:
                await api.get("/charges", deadline_s=30.0)

        ends = await asyncio.gather(*(call() for _ in range(80)), return_exceptions=True)
        told = collections.Counter(f"{type(each).__name__} {getattr(each, 'reason', '')}" for each in ends)
        trouble = fl.runtime.http.watch.trouble()
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        await fl.enqueue(nothing, tenant="tenant-0")  # by a statement that was not used yet
        print(json.dumps({"ends": told, "opened": len(opened), "trouble": trouble}))

asyncio.run(main())
"""


async def well(connection: RawConnection) -> None:
    while await connection.request() is not None:
        await connection.send(OK)


class Process:
    """One of the fleet, whose name servers can fail."""

    def __init__(self, fairlead: Fairlead) -> None:
        self.fairlead = fairlead
        self.told: list[Event] = []
        self.ran = 0
        self.is_cut_off = False

        @fairlead.job
        async def charge(ctx: JobContext, vendor: str) -> None:
            async with fairlead.client(ctx.tenant, vendor) as api:
                await api.get("/charges")
            self.ran += 1

    async def begin(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self.fairlead)
        self.fairlead.runtime.bus.subscribe(self.told.append)
        transport = self.fairlead.runtime.http.calls
        transport._open_context()
        assert transport._resolver is not None
        transport._resolver.resolve = self._resolver(transport._resolver)  # type: ignore[method-assign]

    def _resolver(self, resolver: CheckedResolver) -> Callable[..., Any]:
        resolve = resolver.resolve

        async def may_fail(*args: Any, **options: Any) -> Any:
            if self.is_cut_off:
                raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
            return await resolve(*args, **options)

        return may_fail

    async def event(self, kind: type[Event]) -> Event:
        async with asyncio.timeout(90):
            while not (events := [event for event in self.told if isinstance(event, kind)]):
                await asyncio.sleep(0.02)
        return events[0]


@dataclass(frozen=True, slots=True)
class Configuration:
    """What all processes of a fleet are started with."""

    environ: dict[str, str]
    file: Path


@pytest.fixture
async def configuration(
    servers: Endpoints, database_settings: DatabaseSettings, tmp_path: Path
) -> AsyncIterator[Configuration]:
    """Two providers on this host that answer everything."""
    async with RawServer(well) as stripe, RawServer(well) as openai:
        file = tmp_path / "fairlead.toml"
        file.write_text(SETTINGS.format(home=tmp_path / "home", stripe=stripe.port, openai=openai.port))
        file.chmod(0o600)
        environ = {
            "DATABASE_URL": database_settings.dsn,
            "REDIS_URL": servers.redis_url,
            "FAIRLEAD_REDIS__PREFIX": tmp_path.name[-20:],
            "FAIRLEAD_MASTER_KEY": "k1:" + "0123456789abcdef" * 4,
            "FAIRLEAD_DATABASE__SCHEMA_NAME": database_settings.schema or "",
        }
        yield Configuration({name: value for name, value in environ.items() if value}, file)


@pytest.fixture
async def fleet(configuration: Configuration) -> AsyncIterator[tuple[Process, Process]]:
    """A process that is cut off, and one that is well."""
    async with AsyncExitStack() as stack:
        both = [Process(Fairlead(load(configuration.environ, configuration.file))) for _ in range(2)]
        for process in both:
            await process.begin(stack)
        for tenant in TENANTS:
            for provider in PROVIDERS:
                await both[0].fairlead.connections.upsert(tenant, provider, api_key=f"sk_{tenant}")
        both[0].is_cut_off = True
        yield both[0], both[1]


@asynccontextmanager
async def at_work(*processes: Process) -> AsyncIterator[None]:
    working = [asyncio.create_task(process.fairlead.run()) for process in processes]
    try:
        yield
    finally:
        for process in processes:
            process.fairlead.stop()
        await asyncio.gather(*working)


async def called(process: Process, tenant: str, provider: str) -> None:
    async with process.fairlead.client(tenant, provider) as api:
        await api.get("/charges", deadline_s=3.0)


async def ends_with_few_descriptors(configuration: Configuration) -> dict[str, Any]:
    """Return how 80 calls ended in a process with 12 free descriptors, as that process prints it."""
    environ = {**os.environ, **configuration.environ, "FAIRLEAD_CONFIG": str(configuration.file)}
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", FEW_DESCRIPTORS, env=environ, stdout=pipe, stderr=pipe
    )
    out, err = await child.communicate()
    assert child.returncode == 0, err.decode()
    printed: dict[str, Any] = json.loads(out)
    return printed


async def test_80_calls_in_a_process_with_12_free_descriptors_hold_up_no_other_process(
    fleet: tuple[Process, Process], configuration: Configuration
) -> None:
    _, healthy = fleet
    printed = await ends_with_few_descriptors(configuration)
    ends = printed["ends"]
    assert sum(ends.values()) == 80
    assert ends["NotSentError descriptors"] > 0
    ours = {"NoneType", "NotSentError", "LimiterUnavailableError", "DependencyUnavailableError"}
    assert {end.partition(" ")[0] for end in ends} <= ours, "no bare OSError"
    assert printed["opened"] == 0
    assert printed["trouble"].startswith("descriptors: ")
    await called(healthy, TENANTS[0], "stripe")
    assert not [event for event in healthy.told if isinstance(event, GateBreakerOpened)]


async def test_15_calls_in_a_process_whose_resolver_fails_hold_up_no_other_process(
    fleet: tuple[Process, Process],
) -> None:
    sick, healthy = fleet
    calls = [called(sick, TENANTS[0], "stripe") for _ in range(15)]
    refused = await asyncio.gather(*calls, return_exceptions=True)
    assert {(type(error), getattr(error, "reason", None)) for error in refused} == {
        (NotSentError, "resolver")
    }
    assert "/etc/resolv.conf" in str(refused[0])
    await called(healthy, TENANTS[0], "stripe")
    assert not [event for event in (*sick.told, *healthy.told) if isinstance(event, GateBreakerOpened)]


async def test_sick_and_well_process_finish_1000_jobs_without_a_spent_attempt_or_dead_letter(
    fleet: tuple[Process, Process], database: Database
) -> None:
    sick, healthy = fleet
    requests = [
        JobRequest(
            "charge",
            tenant=TENANTS[number % len(TENANTS)],
            args={"vendor": PROVIDERS[number // len(TENANTS) % 2]},
        )
        for number in range(JOBS)
    ]
    async with at_work(sick):
        await sick.fairlead.enqueue_many(requests)
        event = await sick.event(ProcessUnhealthy)
        assert isinstance(event, ProcessUnhealthy)
        assert (event.fault, len(event.destinations)) == ("resolver", 2)
        async with at_work(healthy), asyncio.timeout(300):
            shown: set[str | None] = set()
            while await rows(
                database, "SELECT 1 FROM job WHERE kind = 'charge' AND state <> 'completed' LIMIT 1"
            ):
                shown |= {view.trouble for view in await healthy.fairlead.runtime.sessions.search()}
                await asyncio.sleep(0.2)
        assert (sick.ran, healthy.ran) == (0, JOBS)
        assert any(word is not None and word.startswith("resolver: ") for word in shown)
        spent = (
            "SELECT attempt, failures FROM job WHERE kind = 'charge' AND (attempt <> 1 OR failures <> '[]')"
        )
        assert await rows(database, spent) == []
        assert await rows(database, "SELECT 1 FROM dead_letter") == []
        sick.is_cut_off = False
        await sick.event(ProcessRecovered)
        again = await sick.fairlead.enqueue("charge", {"vendor": "stripe"}, tenant=TENANTS[0])
        await sick.fairlead.result(again, timeout_s=60)
        assert sick.ran == 1
