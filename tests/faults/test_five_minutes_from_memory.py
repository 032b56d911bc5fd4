"""PostgreSQL is killed, or stands still, under a process that makes calls: it goes on with what it knows.

For five minutes at most, then calls end with an error that says why. Once it is back all is read afresh. The
five minutes are of the process's own clock, which the test moves; the server and its end are real.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex

import pytest
from aiohttp import test_utils, web

from fairlead._core.secret import Secret
from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.local.system import SystemClock
from fairlead.app.client import Client
from fairlead.assembly.config import Config, load
from fairlead.assembly.runtime import Runtime
from fairlead.engine.ports import ConnectionKey
from fairlead.engine.tokens.connection_grant import Grant
from fairlead.errors import DeadlineExceededError, DependencyUnavailableError
from fairlead.events import Event
from tests.faults.support.server import OwnServer
from tests.faults.support.stage import until
from tests.support.databases import SCHEMA

pytestmark = pytest.mark.slow

KEY = ConnectionKey("acme", "hubspot")
CALLS = 60
MEMORY_S = 300.0
STALE_S = 6.0
"""Older than what any call goes by without asking the database."""
SETTINGS = """
home = "{home}"
redis.prefix = "memory-{prefix}"
http.allow_private_addresses = true

[providers.hubspot.overlay]
allow_http = true
apis.rest.url = "{url}"
limits.calls.requests = {{ limit = 100000, window_s = 10.0, apis = ["rest"] }}
limits.calls.daily = {{ capacity = 125000, per_s = 10000 }}
"""


@dataclass
class Vendor:
    """Tells another limit in each answer, so that there is always something to write down."""

    keys: Counter[str] = field(default_factory=Counter)
    url: str = ""

    async def answer(self, request: web.Request) -> web.Response:
        self.keys[request.headers["Authorization"].removeprefix("Bearer ")] += 1
        told = {
            "X-HubSpot-RateLimit-Max": str(100_000 + self.keys.total()),
            "X-HubSpot-RateLimit-Remaining": "90000",
            "X-HubSpot-RateLimit-Interval-Milliseconds": "10000",
        }
        return web.json_response({}, headers=told)


@pytest.fixture
async def vendor() -> AsyncIterator[Vendor]:
    vendor, app = Vendor(), web.Application()
    app.router.add_get("/items", vendor.answer)
    async with test_utils.TestServer(app) as server:
        vendor.url = str(server.make_url("")).rstrip("/")
        yield vendor


class MovedClock(SystemClock):
    """The real time, and what the test has moved it by."""

    def __init__(self) -> None:
        super().__init__()
        self._real, self.moved_s = time.monotonic, 0.0
        self.monotonic = lambda: self._real() + self.moved_s  # type: ignore[misc]


class Process(Runtime):
    """A process that makes calls, and what it tells."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.clock: MovedClock = MovedClock()
        self.told: list[Event] = []
        self.bus.subscribe(self.told.append)

    def count(self, name: str, **fields: object) -> int:
        fitting = [event for event in self.told if event.name == name]
        return sum(all(getattr(event, at) == value for at, value in fields.items()) for event in fitting)

    async def give(self, key: str) -> None:
        await self.tokens.connections.upsert(KEY, Grant(access_token=Secret(key)), actor="test")

    async def get(self, deadline_s: float = 30.0, key: ConnectionKey = KEY) -> int:
        calls = self.calls
        client = Client(key, calls.pipeline, self.profiles.profile, calls.bulks)
        return (await client.get("/items", deadline_s=deadline_s)).status_code


@dataclass
class Place:
    """Where processes of one test have their settings."""

    config: Config

    @asynccontextmanager
    async def process(self) -> AsyncIterator[Process]:
        opened = await Process.open(self.config)
        assert isinstance(opened, Process)
        try:
            yield opened
        finally:
            await opened.close()


@pytest.fixture
async def place(server: OwnServer, servers: Endpoints, vendor: Vendor, tmp_path: Path) -> Place:
    file = tmp_path / "fairlead.toml"
    file.write_text(SETTINGS.format(home=tmp_path / "home", prefix=token_hex(6), url=vendor.url))
    environ = {
        "DATABASE_URL": await server.fresh_database(),
        "REDIS_URL": servers.redis_url,
        "FAIRLEAD_MASTER_KEY": "k1:" + "0123456789abcdef" * 4,
        "FAIRLEAD_DATABASE__SCHEMA_NAME": SCHEMA,
    }
    return Place(load(environ, file))


async def test_a_killed_database_is_done_without_for_five_minutes(
    server: OwnServer, place: Place, vendor: Vendor
) -> None:
    async with place.process() as ours:
        await ours.give("first")
        assert await ours.get() == 200
        await server.end("killed")
        try:
            ours.clock.moved_s += STALE_S
            assert [await ours.get() for _ in range(CALLS)] == [200] * CALLS
            assert ours.count("call_attempted", status=200) == CALLS + 1, "each leaves its record"
            assert len(ours.gate._learned_limits._unwritten) == 1, "what is to be written is kept once"
            for data_kind in ("token", "connection"):
                stale_count = ours.count("served_stale", data=data_kind)
                assert 1 <= stale_count <= 5, (
                    f"{stale_count} of {CALLS} calls asked a database that is away for the {data_kind}"
                )
            ours.clock.moved_s += MEMORY_S - 2 * STALE_S
            assert await ours.get() == 200
            ours.clock.moved_s += 2 * STALE_S
            with pytest.raises(DependencyUnavailableError, match=r"hint: ") as away:
                await ours.get()
            assert (away.value.code, away.value.sent) == ("dependency_unavailable", False)
            assert vendor.keys == {"first": CALLS + 2}, "what ended with the error was not sent"
        finally:
            await server.start()
        assert await ours.get() == 200
        async with place.process() as other:
            await other.give("second")
        ours.clock.moved_s += STALE_S
        assert await ours.get() == 200
        assert vendor.keys["second"] == 1, "what was changed elsewhere is read"

        async def written() -> bool:
            ours.clock.moved_s += 60.0  # a limit is written down once a minute
            return not ours.gate._learned_limits._unwritten

        await until(written, "what was learnt meanwhile is written down")


async def test_a_database_that_stands_still_holds_no_call_beyond_its_deadline(
    server: OwnServer, place: Place, vendor: Vendor
) -> None:
    async with place.process() as ours:
        await ours.give("first")
        assert await ours.get() == 200
        ours.clock.moved_s += STALE_S
        with server.frozen():
            async with asyncio.timeout(10.0):  # its own patience with it is longer
                assert await ours.get(deadline_s=9.0) == 200
                assert await ours.get(deadline_s=1.0) == 200, "nobody asks it again within 5 s"
                with pytest.raises(DeadlineExceededError, match="connection"):
                    await ours.get(deadline_s=0.5, key=ConnectionKey("beta", "hubspot"))
        assert ours.count("served_stale") == 2
        assert vendor.keys == {"first": 3}
        ours.clock.moved_s += STALE_S
        assert await ours.get() == 200
