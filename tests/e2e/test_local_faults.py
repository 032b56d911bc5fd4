"""A process that reaches nobody costs the others nothing, spends no attempt, and says so (R50)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fairlead import Fairlead, JobContext, JobRequest
from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.http.resolver import CheckedResolver
from fairlead.adapters.postgres.pool import Database
from fairlead.adapters.postgres.session import DatabaseSettings
from fairlead.config import load
from fairlead.engine.events import GateBreakerOpened
from fairlead.errors import NotSent
from fairlead.events import Event, ProcessRecovered, ProcessUnhealthy
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


async def well(connection: RawConnection) -> None:
    while await connection.request() is not None:
        await connection.say(OK)


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
        transport = self.fairlead.runtime.wires.calls
        transport._opened()
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
            while not (found := [event for event in self.told if isinstance(event, kind)]):
                await asyncio.sleep(0.02)
        return found[0]


@pytest.fixture
async def fleet(
    servers: Endpoints, database_settings: DatabaseSettings, tmp_path: Path
) -> AsyncIterator[tuple[Process, Process]]:
    """A process that is cut off, and one that is well."""
    async with AsyncExitStack() as stack:
        stripe, openai = [await stack.enter_async_context(RawServer(well)) for _ in range(2)]
        file = tmp_path / "fairlead.toml"
        file.write_text(SETTINGS.format(home=tmp_path / "home", stripe=stripe.port, openai=openai.port))
        known = {
            "DATABASE_URL": database_settings.dsn,
            "REDIS_URL": servers.redis_url,
            "FAIRLEAD_REDIS__PREFIX": tmp_path.name[-20:],
            "FAIRLEAD_MASTER_KEY": "k1:" + "0123456789abcdef" * 4,
            "FAIRLEAD_DATABASE__SCHEMA_NAME": database_settings.schema or "",
        }
        both = [Process(Fairlead(load({name: value for name, value in known.items() if value}, file)))
                for _ in range(2)]  # fmt: skip
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


async def test_local_fault_of_one_process_holds_up_no_other(fleet: tuple[Process, Process]) -> None:
    sick, healthy = fleet
    calls = [called(sick, TENANTS[0], "stripe") for _ in range(15)]
    refused = await asyncio.gather(*calls, return_exceptions=True)
    assert {(type(each), getattr(each, "reason", None)) for each in refused} == {(NotSent, "resolver")}
    assert "/etc/resolv.conf" in str(refused[0])
    await called(healthy, TENANTS[0], "stripe")
    assert not [event for event in (*sick.told, *healthy.told) if isinstance(event, GateBreakerOpened)]


async def test_sick_process_spends_no_attempt_of_a_job(
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
        told = await sick.event(ProcessUnhealthy)
        assert isinstance(told, ProcessUnhealthy)
        assert (told.fault, len(told.places)) == ("resolver", 2)
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
