"""SOAP and streams through a connection, on real stores (C1)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from secrets import token_hex

import aiohttp
import pytest
from aiohttp import test_utils, web

from fairlead import Fairlead
from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.assembly.config import load
from fairlead.errors import CallFailedError, InvalidInputError, LimitExceededError
from fairlead.testing.api import NetSuiteApi

SETTINGS = """
home = "{home}"
redis.prefix = "{prefix}"
http.allow_private_addresses = true

[providers.{name}.overlay]
allow_http = true
{apis}
"""
NS = "urn:messages_2024_2.platform.webservices.netsuite.com"


@pytest.fixture
def make(
    servers: Endpoints, database_settings: DatabaseSettings, tmp_path: Path
) -> Callable[[str, str], Fairlead]:
    def new_client(name: str, apis: str) -> Fairlead:
        file = tmp_path / "fairlead.toml"
        prefix = f"e2e-{token_hex(6)}"
        file.write_text(SETTINGS.format(home=tmp_path / "home", prefix=prefix, name=name, apis=apis))
        secrets = {
            "DATABASE_URL": database_settings.dsn,
            "REDIS_URL": servers.redis_url,
            "FAIRLEAD_MASTER_KEY": "k1:" + "0123456789abcdef" * 4,
            "FAIRLEAD_DATABASE__SCHEMA_NAME": database_settings.schema or "",
        }
        return Fairlead(load({key: value for key, value in secrets.items() if value}, file))

    return new_client


# ---- SOAP ------------------------------------------------------------------------------------------


@pytest.fixture
async def netsuite() -> AsyncIterator[NetSuiteApi]:
    async with NetSuiteApi(2) as api:
        yield api


async def connected(fl: Fairlead, **settings: object) -> None:
    await fl.connections.upsert(
        "acme",
        "netsuite",
        endpoint={"account": "123456_SB1"},
        access_token="token",
        refresh_token="refresh",
        client_id="app",
        client_secret="secret",
        expires_in_s=3600.0,
        settings=settings,
    )


async def test_a_soap_operation(make: Callable[[str, str], Fairlead], netsuite: NetSuiteApi) -> None:
    async with make(
        "netsuite", f'apis.soap.url = "{netsuite.url}/{{account}}/services/NetSuitePort_2024_2"'
    ) as fl:
        await connected(fl)
        async with fl.client("acme", "netsuite") as api:
            answer = await api.soap("get", {"get": {"baseRef": {"@internalId": "7"}}}, namespaces={"": NS})
            status = answer.xml.find(f".//{{{NS}}}status")
            assert status is not None
            assert status.get("isSuccess") == "true"
            with pytest.raises(InvalidInputError, match="SOAP"):
                await api.soap("get", "</soapenv:Body>")
    assert netsuite.ledger.arrived() == 1


async def test_calls_beyond_the_accounts_limit_wait_here_and_a_fault_is_told_by_its_code(
    make: Callable[[str, str], Fairlead],
) -> None:
    """The vendor lets two in; where others use the account, its fault is a limit, tried again, and named."""
    async with NetSuiteApi(2, takes_s=0.05) as netsuite:
        apis = f'apis.soap.url = "{netsuite.url}/{{account}}/services/NetSuitePort_2024_2"'
        async with make("netsuite", apis) as fl:
            await connected(fl, concurrency_limit=2)
            async with fl.client("acme", "netsuite") as api:
                answers = await asyncio.gather(*(api.soap("get", "<get/>") for _ in range(6)))
                assert {answer.attempts for answer in answers} == {1}
                assert netsuite.ledger.refused() == 0
                hold = netsuite.hold(times=2)
                url = f"{netsuite.url}/123456-sb1/services/NetSuitePort_2024_2"
                async with aiohttp.ClientSession() as http, asyncio.TaskGroup() as others:
                    for _ in range(2):
                        others.create_task(_other(http, url))
                    await hold.reached(2)
                    with pytest.raises(CallFailedError) as failed:
                        await api.soap("get", "<get/>", deadline_s=3)
                    hold.release()
                assert failed.value.reason == "WS_REQUEST_BLOCKED"
                assert failed.value.category == "transient_rate_limit"


async def _other(http: aiohttp.ClientSession, url: str) -> None:
    """A call that we know nothing of."""
    async with http.post(url, data=b"<x/>") as response:
        assert response.status == 200


# ---- streams ---------------------------------------------------------------------------------------


class Exports:
    """An API that streams lines, one when it is told to; and counts who is there."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.left = asyncio.Event()

    async def lines(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"X-Kind": "lines"})
        await response.prepare(request)
        try:
            await response.write("first ñ\nsec".encode())
            await self.go_on.wait()
            await response.write(b"ond\nthird")
        finally:
            self.left.set()
        return response

    async def cut(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "100"})
        await response.prepare(request)
        await response.write(b"half")
        assert request.transport is not None
        request.transport.close()
        return response


@pytest.fixture
async def exports() -> AsyncIterator[tuple[Exports, str]]:
    exports, app = Exports(), web.Application()
    app.router.add_get("/v1/lines", exports.lines)
    app.router.add_get("/v1/cut", exports.cut)
    async with test_utils.TestServer(app) as server:
        yield exports, str(server.make_url("/v1"))


async def test_a_stream_is_taken_as_it_comes_and_holds_its_slot(
    make: Callable[[str, str], Fairlead], exports: tuple[Exports, str]
) -> None:
    api_there, url = exports
    async with make("stripe", f'apis.rest.url = "{url}"') as fl:
        await fl.connections.upsert("acme", "stripe", api_key="sk_test_1", settings={"concurrency_limit": 1})
        async with fl.client("acme", "stripe") as api:
            async with api.stream("get", "/lines") as response:
                assert (response.status_code, response.headers["x-kind"]) == (200, "lines")
                lines = response.aiter_lines()
                assert await anext(lines) == "first ñ"
                with pytest.raises(LimitExceededError, match="slot"):
                    await api.get("/lines", wait_s=0)
                api_there.go_on.set()
                assert [line async for line in lines] == ["second", "third"]
            async with api.stream("GET", "/lines") as response:
                assert await response.aread() == "first ñ\nsecond\nthird".encode()
            async with api.stream("GET", "/lines") as response:
                assert b"".join([chunk async for chunk in response]).endswith(b"third")


async def test_a_stream_that_is_cut_off_or_refused_fails(
    make: Callable[[str, str], Fairlead], exports: tuple[Exports, str]
) -> None:
    _, url = exports
    async with make("stripe", f'apis.rest.url = "{url}"') as fl:
        await fl.connections.upsert("acme", "stripe", api_key="sk_test_1")
        async with fl.client("acme", "stripe") as api:
            with pytest.raises(CallFailedError, match="its head was given"):
                async with api.stream("GET", "/cut") as response:
                    await response.aread()
            with pytest.raises(CallFailedError, match="404"):
                async with api.stream("GET", "/nothing"):
                    pytest.fail("there is nothing to stream")


async def test_stream_left_early_is_dropped(
    make: Callable[[str, str], Fairlead], exports: tuple[Exports, str]
) -> None:
    api_there, url = exports
    async with make("stripe", f'apis.rest.url = "{url}"') as fl:
        await fl.connections.upsert("acme", "stripe", api_key="sk_test_1")
        async with fl.client("acme", "stripe") as api:
            async with api.stream("GET", "/lines") as response:
                async for _ in response:
                    break
            await asyncio.wait_for(api_there.left.wait(), 10)
