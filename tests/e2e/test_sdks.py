"""A real SDK on httpx and httpx2 whose requests are calls of a connection, against an API of ours (C1)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import Any

import httpx
import httpx2
import openai
import pytest
from aiohttp import test_utils, web

import fairlead.httpx
import fairlead.httpx2
from fairlead import Fairlead
from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.assembly.config import load
from fairlead.errors import CallFailedError, InvalidInputError, LimitExceededError

SETTINGS = """
home = "{home}"
redis.prefix = "{prefix}"
http.allow_private_addresses = true

[providers.openai.overlay]
allow_http = true
apis.rest.url = "{url}/v1"
"""
SOON = {"name": "soon", "http_codes": [429], "patterns": [], "decisive_codes": [429], "strategy": "constant",
        "initial_delay_s": 0.05, "max_delay_s": 0.1}  # fmt: skip
ANSWER = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hello"}}],
}
HELLO: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}


@dataclass
class Llm:
    """As much of the API as the SDK needs. *refuses*: so many calls with 429 first."""

    url: str = ""
    refuses: int = 0
    credentials: list[str] = field(default_factory=list)
    next_word: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)

    async def chat(self, request: web.Request) -> web.StreamResponse:
        self.credentials.append(request.headers.get("Authorization", ""))
        payload = await request.json()
        if self.refuses:
            self.refuses -= 1
            error = {"message": "Rate limit reached", "type": "requests", "code": "rate_limit_exceeded"}
            return web.json_response({"error": error}, status=429, headers={"Retry-After": "0.2"})
        if payload["model"] == "none":
            error = {"message": "The model `none` does not exist", "type": "invalid_request_error"}
            return web.json_response({"error": {**error, "code": "model_not_found"}}, status=404)
        if payload["model"] == "elsewhere":
            raise web.HTTPTemporaryRedirect(f"{self.url.replace('127.0.0.1', 'localhost')}/v1/other")
        return await self.words(request) if payload.get("stream") else web.json_response(ANSWER)

    async def words(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        try:
            for word in ("Hel", "lo"):
                choices = [{"index": 0, "delta": {"content": word}, "finish_reason": None}]
                chunk = {**ANSWER, "object": "chat.completion.chunk", "choices": choices}
                await response.write(f"data: {json.dumps(chunk)}\n\n".encode())
                await self.next_word.wait()
            await response.write(b"data: [DONE]\n\n")
        finally:
            self.left.set()
        return response

    async def other(self, request: web.Request) -> web.StreamResponse:
        self.credentials.append(f"elsewhere: {request.headers.get('Authorization')}")
        return web.json_response(ANSWER)


@pytest.fixture
async def llm() -> AsyncIterator[Llm]:
    llm, app = Llm(), web.Application()
    app.router.add_post("/v1/chat/completions", llm.chat)
    app.router.add_post("/v1/other", llm.other)
    async with test_utils.TestServer(app) as server:
        llm.url = str(server.make_url("")).rstrip("/")
        yield llm


@pytest.fixture
async def fl(
    servers: Endpoints, database_settings: DatabaseSettings, tmp_path: Path, llm: Llm
) -> AsyncIterator[Fairlead]:
    file = tmp_path / "fairlead.toml"
    file.write_text(SETTINGS.format(home=tmp_path / "home", prefix=f"e2e-{token_hex(6)}", url=llm.url))
    secrets = {
        "DATABASE_URL": database_settings.dsn,
        "REDIS_URL": servers.redis_url,
        "FAIRLEAD_MASTER_KEY": "k1:" + "0123456789abcdef" * 4,
        "FAIRLEAD_DATABASE__SCHEMA_NAME": database_settings.schema or "",
    }
    async with Fairlead(load({name: value for name, value in secrets.items() if value}, file)) as fl:
        settings = {"concurrency_limit": 1, "patterns": [SOON]}
        await fl.connections.upsert("acme", "openai", api_key="sk-of-acme", settings=settings)
        yield fl


Sdk = Callable[..., openai.AsyncOpenAI]


@pytest.fixture(params=["httpx", "httpx2"])
def sdk(request: pytest.FixtureRequest, fl: Fairlead, llm: Llm) -> Sdk:
    """The SDK on either library; its own retries are off."""

    def new_client(tenant: str = "acme", **options: Any) -> openai.AsyncOpenAI:
        client: Any
        if request.param == "httpx":
            transport = fairlead.httpx.Transport(fl, tenant, "openai", **options)
            client = httpx.AsyncClient(transport=transport, follow_redirects=True)
        else:
            transport2 = fairlead.httpx2.Transport(fl, tenant, "openai", **options)
            client = httpx2.AsyncClient(transport=transport2, follow_redirects=True)
        base_url = f"{llm.url}/v1"
        return openai.AsyncOpenAI(api_key="placeholder", base_url=base_url, http_client=client, max_retries=0)

    return new_client


async def test_a_call_of_the_sdk_goes_with_the_connections_credential(sdk: Sdk, llm: Llm) -> None:
    async with sdk() as client:
        answer = await client.chat.completions.create(**HELLO)
    assert answer.choices[0].message.content == "Hello"
    assert llm.credentials == ["Bearer sk-of-acme"]


@pytest.mark.slow
async def test_a_limit_of_the_vendor_is_waited_for_and_tried_again_here(sdk: Sdk, llm: Llm) -> None:
    llm.refuses = 2
    async with sdk() as client:
        answer = await client.chat.completions.create(**HELLO)
    assert answer.choices[0].message.content == "Hello"
    assert len(llm.credentials) == 3


async def test_a_failure_is_the_sdks_own_error_and_tells_what_it_was_judged_to_be(sdk: Sdk, llm: Llm) -> None:
    async with sdk() as client:
        with pytest.raises(openai.NotFoundError, match="does not exist") as failed:
            await client.chat.completions.create(**{**HELLO, "model": "none"})
    judged = failed.value.response.extensions["fairlead"]
    assert isinstance(judged, CallFailedError)
    assert (judged.category, judged.attempts) == ("permanent_request", 1)


async def test_a_stream_is_given_word_by_word_and_holds_the_slot(sdk: Sdk, fl: Fairlead, llm: Llm) -> None:
    async with sdk() as client:
        stream = await client.chat.completions.create(**HELLO, stream=True)
        words = aiter(stream)
        assert (await anext(words)).choices[0].delta.content == "Hel"
        with pytest.raises(LimitExceededError, match="slot"):
            async with fl.admission("acme", "openai", wait_s=0):
                pass
        llm.next_word.set()
        assert [chunk.choices[0].delta.content async for chunk in words] == ["lo"]
        assert (await client.chat.completions.create(**HELLO)).choices[0].message.content == "Hello"


async def test_a_stream_that_is_left_early_gives_its_slot_back(sdk: Sdk, llm: Llm) -> None:
    async with sdk() as client:
        async with await client.chat.completions.create(**HELLO, stream=True) as stream:
            async for _ in stream:
                break
        await asyncio.wait_for(llm.left.wait(), 10)
        llm.next_word.set()
        assert (await client.chat.completions.create(**HELLO)).choices[0].message.content == "Hello"


async def test_a_client_that_is_closed_drops_what_is_under_way(sdk: Sdk, llm: Llm) -> None:
    async with sdk() as client:
        stream = await client.chat.completions.create(**HELLO, stream=True)
        words = aiter(stream)
        await anext(words)
    await asyncio.wait_for(llm.left.wait(), 10)


async def test_unsent_request_raises_our_own_error(sdk: Sdk, fl: Fairlead, llm: Llm) -> None:
    """A job lets it pass, and comes back at its turn; the SDK does not wrap it."""
    calls = {"requests": {"capacity": 1.0, "per_s": 0.01}}
    await fl.connections.upsert("beta", "openai", api_key="sk-of-beta", settings={"calls": calls})
    async with sdk("beta", deadline_s=6.0) as client:
        await client.chat.completions.create(**HELLO)
        with pytest.raises(LimitExceededError, match="rate") as refused:
            await client.chat.completions.create(**HELLO)
    assert refused.value.retry_after_s is not None
    assert llm.credentials == ["Bearer sk-of-beta"]


async def test_the_credential_goes_nowhere_else(sdk: Sdk, llm: Llm) -> None:
    """A client may follow redirects; a base_url may be wrong."""
    async with sdk() as client:
        with pytest.raises(InvalidInputError, match=r"none of the provider's.*hint"):
            await client.with_options(base_url="https://elsewhere.example/v1").models.list()
        with pytest.raises(InvalidInputError, match="none of the provider's"):
            await client.chat.completions.create(**{**HELLO, "model": "elsewhere"})
    assert not any(credential.startswith("elsewhere") for credential in llm.credentials)


async def test_cancelled_call_leaves_nothing_behind(sdk: Sdk, llm: Llm) -> None:
    async with sdk() as client:
        stream = await client.chat.completions.create(**HELLO, stream=True)
        waiting = asyncio.create_task(client.chat.completions.create(**HELLO))  # in line for the slot
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        llm.next_word.set()
        _ = [chunk async for chunk in stream]
        assert (await client.chat.completions.create(**HELLO)).choices[0].message.content == "Hello"
