"""The pages of docs/how-to that are about limits: their code, settings and commands run as they stand."""

from __future__ import annotations

from secrets import token_hex

import pytest
from aiohttp import test_utils, web

from fairlead._core.secret import Secret
from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.local.system import SystemClock
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.redis.redis_gate import RedisGate
from fairlead.policy.limits.key import Keyspace
from fairlead.testing.api import ShopifyApi, ShopLimits
from tests.e2e.test_recipes import SETTINGS, finished, program, worker, written
from tests.support.cli import Shell
from tests.support.pages import Page

pytestmark = pytest.mark.slow

CALLS_SHOP = """
import asyncio
from shop import connect, jobs
from shop.api import call, fl

async def main():
    async with fl:
        await connect.examples()
        await jobs.place(40)
        for cost in (60, 50):
            await jobs.sync_points.enqueue(cost=cost, tenant="globex", provider="shopify")
        assert (await call("initech", "GET", "/rest.json")).status == 200

asyncio.run(main())
"""
EXPORTS = """
import asyncio
from shop import connect
from shop.bulk import export, fl

async def main():
    async with fl:
        await connect.examples()
        for tenant in ("acme", "globex"):
            await export.enqueue(tenant=tenant, provider="shopify")

asyncio.run(main())
"""
ID = "gid://shopify/BulkOperation/1"
FILE = "https://storage.example/orders.jsonl"
ACME = ("--tenant", "acme", "--provider", "shopify", "--json")


@pytest.fixture
async def gated(shell: Shell, servers: Endpoints) -> Shell:
    """On a Redis that is known to have lost nothing: buckets are full, and slots are granted at once."""
    prefix = f"docs-{token_hex(6)}"
    shell.environ |= {"REDIS_URL": servers.redis_url, "FAIRLEAD_REDIS__PREFIX": prefix}
    first = RedisGate(Secret(servers.redis_url), clock=SystemClock(), keys=Keyspace(prefix), new=True)
    await first.ping()
    await first.close()
    return shell


async def test_limits(gated: Shell, database: Database) -> None:
    """The API takes more at once than our settings say, but not all: it would refuse, were jobs not held."""
    written(gated, "limits.md")
    (settings,) = Page("how-to/limits.md").take("toml")
    gated.settings(f"{SETTINGS}\n{settings}")
    async with ShopifyApi(ShopLimits(calls=15, calls_per_s=20)) as api:
        gated.environ |= {"SHOP_URL": f"{api.url}/my-shop", "SHOP_TOKEN": gated.secret("token")}
        await program(gated, CALLS_SHOP)
        async with worker(gated, "shop.jobs:fl"):
            orders = await finished(database, "sync_order", 40)
            points = await finished(database, "sync_points", 2)
        ledger = api.limits("my-shop")
    assert {(row["state"], row["result"], row["attempt"]) for row in orders} == {("completed", "200", 1)}
    assert {(row["state"], row["attempt"]) for row in points} == {("completed", 1)}
    assert (ledger["rest"]["served"], ledger["rest"]["refused"]) == (41, 0)
    assert (ledger["graphql"]["served"], ledger["graphql"]["refused"]) == (2, 0)
    shown = (await gated("gate", "status", *ACME)).record
    assert {limit["name"] for limit in shown["limits"]} == {"requests", "burst"}
    assert shown["slots"] == {"limit": 4, "in_use": 0, "waiting": 0}


class BulkApi:
    """A shop that runs one bulk operation, which has ended when it is asked for the second time."""

    def __init__(self) -> None:
        self.begun = 0
        self.asked = 0

    async def graphql(self, request: web.Request) -> web.Response:
        query = (await request.json())["query"]
        if "bulkOperationRunQuery" in query:
            self.begun += 1
            has_started = self.begun == 1
            errors = [] if has_started else [{"code": "OPERATION_IN_PROGRESS", "message": "one runs"}]
            data: object = {
                "bulkOperationRunQuery": {
                    "bulkOperation": {"id": ID} if has_started else None,
                    "userErrors": errors,
                }
            }
        elif "currentBulkOperation" in query:
            data = {"currentBulkOperation": {"id": ID}}
        else:
            self.asked += 1
            ended = self.asked > 1
            data = {"node": {"status": "COMPLETED" if ended else "RUNNING", "url": FILE if ended else None}}
        return web.json_response({"data": data})


async def test_bulk(gated: Shell, database: Database) -> None:
    """One job begins the operation, another finds it running; who polls goes on with their tokens."""
    written(gated, "limits.md")
    gated.settings(SETTINGS)
    api = BulkApi()
    app = web.Application()
    app.router.add_post("/admin/api/graphql.json", api.graphql)
    async with test_utils.TestServer(app) as server:
        gated.environ |= {
            "SHOP_URL": str(server.make_url("")).rstrip("/"),
            "SHOP_TOKEN": gated.secret("token"),
        }
        gated.environ["POLL_S"] = "0.1"
        await program(gated, EXPORTS)
        async with worker(gated, "shop.bulk:fl"):
            exports = await finished(database, "export", 2)
            polls = await finished(database, "poll", 2)
    assert {(row["state"], row["attempt"]) for row in exports} == {("completed", 1)}
    assert {(row["state"], row["attempt"], row["result"]) for row in polls} == {("completed", 1, f'"{FILE}"')}
    assert (api.begun, api.asked) == (2, 3)


async def test_gate(gated: Shell) -> None:
    """Every command of the page, in its order, on a connection that is there."""
    gated.settings(SETTINGS)
    added = await gated("connections", "add", "-t", "acme", "-p", "stripe", stdin=gated.secret("key"))
    assert added.code == 0, added.err
    commands = Page("how-to/gate.md").commands()
    assert len(commands) > 10
    for name, *command in commands:
        assert name == "fairlead"
        done = await gated(*command)
        assert done.code == 0, (command, done)
    assert (await gated("gate", "overrides", "--json")).rows[0]["act"] == "disabled"  # on its way back
