"""A worker is killed while its job follows a bulk operation: another one goes on with that very one (G5)."""

from __future__ import annotations

import asyncio
import json
import signal

import pytest

from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.postgres.database import Database
from fairlead.testing.api import ShopifyApi
from tests.e2e.test_recipes import finished, program, worker
from tests.e2e.test_recipes_gate import gated  # noqa: F401 - a fixture
from tests.support.cli import Shell

pytestmark = pytest.mark.slow

SETTINGS = """
worker.poll_s = 0.05
worker.lease_s = 3
http.allow_private_addresses = true
[providers.shopify.overlay]
allow_http = true
apis.rest.url = "{url}/{{shop}}/admin/api/{{api_version}}"
apis.graphql.url = "{url}/{{shop}}/admin/api/{{api_version}}/graphql.json"
limits.bulk.retry_after_s = 1.0
"""
JOBS = """
from fairlead import Fairlead, JobContext
fl = Fairlead.from_env()

@fl.job
async def export(ctx: JobContext) -> int:
    async with fl.client(ctx.tenant, "shopify") as api, api.bulk("{ orders { nodes { id } } }") as operation:
        return len([row async for row in operation.rows()])
"""
BEGINS = """
import asyncio
from shop.jobs import export, fl

async def main():
    async with fl:
        await fl.connections.upsert(
            "acme", "shopify", variant="permanent", access_token="t1",
            endpoint={"shop": "my-shop", "api_version": "2025-10"},
        )
        await export.enqueue(tenant="acme", provider="shopify")

asyncio.run(main())
"""


async def test_a_killed_workers_operation_is_followed_by_the_next(
    gated: Shell,  # noqa: F811
    servers: Endpoints,
    database: Database,
) -> None:
    """The shop has one place, which stays taken: who does not find it again waits for ten minutes."""
    (gated.folder / "shop").mkdir()
    (gated.folder / "shop/jobs.py").write_text(JOBS)
    async with ShopifyApi(takes_s=0.0, bulk_s=3600.0) as shopify:
        gated.settings(SETTINGS.format(url=shopify.url))
        await program(gated, BEGINS)
        shop = shopify.bulk("my-shop")
        child = gated.start("run", "--app", "shop.jobs:fl", "--json")
        async with asyncio.timeout(60):
            while not shop.all:
                await asyncio.sleep(0.02)
        child.kill(signal.SIGKILL)
        await gated.end(child)
        shopify.finish_bulk("my-shop")
        async with worker(gated, "shop.jobs:fl"):
            (export,) = await finished(database, "export")
        started_count = len(shop.all)
    assert (export["state"], started_count) == ("completed", 1)
    assert json.loads(str(export["result"])) >= 50
