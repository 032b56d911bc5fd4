"""What a call waits for ends with it, and what people do by hand reaches it, on real stores (C2, C6, G12)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from secrets import token_hex
from urllib.parse import urlsplit

import pytest
from aiohttp import test_utils, web

from fairlead import Fairlead
from fairlead.adapters.embedded import Endpoints
from fairlead.app.client import Client
from fairlead.assembly.config import load
from fairlead.errors import CallFailedError, DeadlineExceededError, LimitExceededError
from fairlead.testing.issuer import Issuer, IssuerConfig, ProviderConfig
from tests.support.cli import Shell

SETTINGS = """
home = "{home}"
redis.prefix = "{prefix}"
http.allow_private_addresses = true
refresh.cooldown_s = 0

[providers.mercadolibre]
client_id = "app"
client_secret = "s3cret"

[providers.mercadolibre.overlay]
allow_http = true
endpoints.token = "{issuer}/mercadolibre/token"
apis.rest.url = "{api}"
"""
FAILING = {"breaker_failures": 1, "max_retries": 0}


@dataclass
class Api:
    """Answers *status*, and 401 to a token of *gone*; keeps what credentials it was told."""

    status: int = 200
    gone: set[str] = field(default_factory=set)
    tokens: list[str] = field(default_factory=list)
    url: str = ""

    async def answer(self, request: web.Request) -> web.Response:
        token = request.headers["Authorization"].removeprefix("Bearer ")
        self.tokens.append(token)
        return web.json_response({}, status=401 if token in self.gone else self.status)


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    api, app = Api(), web.Application()
    app.router.add_get("/v1/items", api.answer)
    async with test_utils.TestServer(app) as server:
        api.url = str(server.make_url("/v1"))
        yield api


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    played = {"mercadolibre": ProviderConfig(policy="strict", dialect="mercadolibre")}
    async with Issuer(IssuerConfig(providers=played)) as issuer:
        yield issuer


@pytest.fixture
def at(shell: Shell, servers: Endpoints, issuer: Issuer, api: Api) -> Shell:
    shell.environ["REDIS_URL"] = servers.redis_url
    names = {"home": shell.folder / "home", "prefix": f"waits-{token_hex(6)}"}
    shell.settings(SETTINGS.format(**names, issuer=issuer.url, api=api.url))
    return shell


def app(at: Shell) -> Fairlead:
    return Fairlead(load(at.environ, at.folder / "fairlead.toml"))


async def connect(fl: Fairlead, issuer: Issuer, expires_in_s: float = 3600.0, **settings: object) -> None:
    grant = issuer.register("mercadolibre", "acme")
    await fl.connections.upsert(
        "acme",
        "mercadolibre",
        access_token=grant.access_token,
        refresh_token=grant.refresh_token,
        expires_in_s=expires_in_s,
        settings=settings,
    )


async def test_a_slow_issuer_does_not_hold_a_call_past_its_deadline(
    at: Shell, issuer: Issuer, api: Api
) -> None:
    """Its first token has expired; the refresh that was begun for it goes on, for whoever asks next."""
    async with app(at) as fl:
        await connect(fl, issuer, expires_in_s=0.001)
        hold = issuer.hold("arrived")
        async with fl.client("acme", "mercadolibre") as client:
            with pytest.raises(DeadlineExceededError, match="credential"):
                await client.get("/items", deadline_s=0.5)
            await hold.reached(1)
            assert api.tokens == []
            hold.release()
            assert (await client.get("/items")).status_code == 200
        assert api.tokens == [issuer.grant("mercadolibre", "acme").access_token]


async def test_a_slow_issuer_after_a_401_does_not_either(at: Shell, issuer: Issuer, api: Api) -> None:
    async with app(at) as fl:
        await connect(fl, issuer)
        first = (await fl.token("acme", "mercadolibre")).access_token.reveal()
        async with fl.client("acme", "mercadolibre") as client:
            assert (await client.get("/items")).status_code == 200  # so that the next call sends at once
            api.gone.add(first)
            hold = issuer.hold("arrived")
            with pytest.raises(DeadlineExceededError, match="newer credential"):
                await client.get("/items", deadline_s=2.0)
            async with asyncio.timeout(30):
                await hold.reached(1)
            hold.release()
            assert (await client.get("/items")).status_code == 200
        assert api.tokens[-1] == issuer.grant("mercadolibre", "acme").access_token != first


async def open_breaker(client: Client, api: Api) -> None:
    """It fails, and is known to be open; then its API is healthy again."""
    api.status = 503
    with pytest.raises(CallFailedError):
        await client.get("/items")
    for _ in range(2):
        with pytest.raises(LimitExceededError) as closed:
            await client.get("/items", wait_s=0)
    assert closed.value.reason == "breaker"
    assert closed.value.retry_after_s is not None
    assert closed.value.retry_after_s > 20, "else it would open by itself"
    api.status = 200


async def gets_through(client: Client) -> None:
    """Return once a call does: well before the breaker would let one."""
    async with asyncio.timeout(10):
        while True:
            try:
                await client.get("/items", wait_s=0)
                return
            except LimitExceededError:
                await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    "act", [("breaker", "reset", "--host", "127.0.0.1"), ("disable", "--reason", "it is healthy")]
)
async def test_operator_command_reaches_a_process_that_met_the_open_breaker(
    at: Shell, issuer: Issuer, api: Api, act: tuple[str, ...]
) -> None:
    async with app(at) as fl:
        await connect(fl, issuer, **FAILING)
        async with fl.client("acme", "mercadolibre") as client:
            await open_breaker(client, api)
            words = [word.format(host=urlsplit(api.url).netloc) for word in act]
            done = await at("gate", *words, "-t", "acme", "-p", "mercadolibre", "--json")
            assert done.code == 0, done.err
            await gets_through(client)
