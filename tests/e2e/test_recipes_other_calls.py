"""The page of docs/how-to about bulk operations, SOAP, streams and SDKs: its modules run as they stand."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
from aiohttp import test_utils, web

from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.postgres.database import Database
from fairlead.testing.api import NetSuiteApi, ShopifyApi
from tests.e2e.test_recipes import SETTINGS, finished, program, worker, written
from tests.e2e.test_recipes_gate import gated  # noqa: F401 - a fixture
from tests.support.cli import Shell

pytestmark = pytest.mark.slow

OVERLAYS = """
http.allow_private_addresses = true
[providers.shopify.overlay]
allow_http = true
apis.rest.url = "{shopify}/{{shop}}/admin/api/{{api_version}}"
apis.graphql.url = "{shopify}/{{shop}}/admin/api/{{api_version}}/graphql.json"
limits.bulk.retry_after_s = 1.0
[providers.netsuite.overlay]
allow_http = true
apis.soap.url = "{netsuite}/{{account}}/services/NetSuitePort_2024_2"
[providers.stripe.overlay]
allow_http = true
apis.rest.url = "{files}"
[providers.openai.overlay]
allow_http = true
apis.rest.url = "{files}"
"""
CONNECTS = """
import asyncio
from shop import assistant, exports, netsuite, streams
from shop.api import fl

async def main():
    async with fl:
        await fl.connections.upsert(
            "acme", "shopify", variant="permanent", endpoint={"shop": "my-shop"}, access_token="t1"
        )
        await fl.connections.upsert(
            "acme", "netsuite", endpoint={"account": "123456"}, access_token="t2", refresh_token="r",
            client_id="app", client_secret="s", expires_in_s=3600,
        )
        for provider in ("stripe", "openai"):
            await fl.connections.upsert("acme", provider, api_key=f"key-of-{provider}")
        netsuite.NS = netsuite.NS.replace("2025_2", "2024_2")  # the port that the test's vendor has
        print(await netsuite.found("acme", "7"), await streams.count_lines("acme", "/lines"))
        await exports.export.enqueue(tenant="acme", provider="shopify")
        await assistant.answer.enqueue(question="Hi", tenant="acme", provider="openai")

asyncio.run(main())
"""
MODULE = "from shop import assistant, exports, netsuite, streams\nfrom shop.api import fl\n"


async def lines(request: web.Request) -> web.Response:
    return web.Response(text="one\ntwo\nthree\n")


async def chat(request: web.Request) -> web.StreamResponse:
    assert request.headers["Authorization"] == "Bearer key-of-openai"
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for word in ("Hel", "lo"):
        choices = [{"index": 0, "delta": {"content": word}, "finish_reason": None}]
        chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices}
        await response.write(f"data: {json.dumps(chunk)}\n\n".encode())
    await response.write(b"data: [DONE]\n\n")
    return response


@pytest.fixture
async def files() -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_get("/v1/lines", lines)
    app.router.add_post("/v1/chat/completions", chat)
    async with test_utils.TestServer(app) as server:
        yield str(server.make_url("/v1"))


async def test_other_calls(
    gated: Shell,  # noqa: F811
    servers: Endpoints,
    database: Database,
    files: str,
) -> None:
    page = "other-calls.md"
    written(gated, page, **{"shop/all.py": MODULE})
    assistant = gated.folder / "shop/assistant.py"
    there = assistant.read_text().replace('api_key="not used"', f'api_key="not used", base_url="{files}"')
    assistant.write_text(there)
    async with ShopifyApi(bulk_s=2.0) as shopify, NetSuiteApi() as netsuite:
        overlays = OVERLAYS.format(shopify=shopify.url, netsuite=netsuite.url, files=files)
        gated.settings(f"{SETTINGS}\n{overlays}")
        assert (await program(gated, CONNECTS)).split() == ["True", "3"]
        async with worker(gated, "shop.all:fl"):
            (export,) = await finished(database, "export")
            (answer,) = await finished(database, "answer")
        started_count = len(shopify.bulk("my-shop").all)
    assert (answer["state"], json.loads(str(answer["result"]))) == ("completed", "Hello")
    assert (export["state"], export["attempt"], started_count) == ("completed", 1, 1)
    assert json.loads(str(export["result"]))["order"] >= 50
