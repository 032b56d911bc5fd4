"""The page on calls: its code and commands run as they stand, against vendors that count."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from secrets import token_hex

import pytest

from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.postgres.database import Database
from fairlead.testing.api import SalesforceApi, ShopifyApi, StripeApi
from tests.e2e.test_recipes import SETTINGS, finished, program, worker, written
from tests.support.cli import Shell
from tests.support.pages import Page

pytestmark = pytest.mark.slow

VENDORS = """
[http]
allow_private_addresses = true

[providers.stripe.overlay]
allow_http = true
apis.rest.url = "{stripe}/acme/v1"

[providers.shopify.overlay]
allow_http = true
apis.graphql.url = "{shopify}/{{shop}}/admin/api/{{api_version}}/graphql.json"

[providers.salesforce.overlay]
allow_http = true
apis.rest.url = "{salesforce}/my/services/data/v65.0"
"""
CALLS = """
import asyncio, os
from shop.all import fl, answers, batch, calls, jobs

async def main():
    async with fl:
        key = os.environ["SECRET_OF_TEST"]
        await fl.connections.upsert("acme", "stripe", api_key=key)
        await fl.connections.upsert("acme", "shopify", variant="permanent", access_token=key,
                                    endpoint={"shop": "my-shop"})
        await fl.connections.upsert("acme", "salesforce", access_token=key, refresh_token=key,
                                    expires_in_s=3600, endpoint={"domain": "my"})
        assert len(await calls.latest_charges("acme")) == 3
        assert await calls.charge("acme", "order-1", 100) == await calls.charge("acme", "order-1", 100)
        assert await calls.shop_name("acme") == "my-shop"
        assert (await answers.pay("acme", "order-2", 100)).startswith("paid: ch_new2")
        for job, provider, args in (
            (jobs.read_charges, "stripe", {}),
            (jobs.read_orders, "shopify", {}),
            (batch.ship, "salesforce", {"ids": ["1001", "1002", "gone"]}),
        ):
            await job.enqueue(**args, tenant="acme", provider=provider)

asyncio.run(main())
"""


async def test_calls(shell: Shell, servers: Endpoints, database: Database) -> None:
    modules = "from shop import answers, batch, calls, jobs\nfrom shop.calls import fl\n"
    written(shell, "client.md", **{"shop/all.py": modules})
    shell.environ |= {"REDIS_URL": servers.redis_url, "FAIRLEAD_REDIS__PREFIX": f"docs-{token_hex(6)}"}
    shell.environ["SECRET_OF_TEST"] = shell.secret("key")
    async with AsyncExitStack() as stack:
        stripe = await stack.enter_async_context(StripeApi())
        shopify = await stack.enter_async_context(ShopifyApi())
        salesforce = await stack.enter_async_context(SalesforceApi())
        urls = {api.name: api.url for api in (stripe, shopify, salesforce)}
        shell.settings(SETTINGS + VENDORS.format(**urls))
        await program(shell, CALLS)
        assert stripe.created("acme") == 2
        salesforce.lock("1002")
        async with worker(shell, "shop.all:fl"):
            (charges,) = await finished(database, "read_charges")
            (orders,) = await finished(database, "read_orders")
            (shipped,) = await finished(database, "ship")
    failed = ["1002: UNABLE_TO_LOCK_ROW", "gone: INVALID_CROSS_REFERENCE_KEY"]
    assert json.loads(str(shipped["result"])) == failed
    assert salesforce.ledger.arrived("my") > 1  # the locked one came again
    assert json.loads(str(charges["result"])) == "62 charges"
    assert len(json.loads(str(orders["result"]))) == 60
    for name, *command in Page("how-to/client.md").commands():
        assert name == "fairlead"
        done = await shell(*command)
        assert done.code == 0, (command, done)
