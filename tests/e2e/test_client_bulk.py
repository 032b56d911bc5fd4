"""Bulk operations of a shop through a connection, on real stores: begun, adopted, followed, read (G5, C1)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from secrets import token_hex

import pytest

from fairlead import Fairlead, JobContext
from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.database import Database
from fairlead.assembly.config import load
from fairlead.errors import BulkLimitReachedError, CallFailedError, InvalidInputError
from fairlead.events import Event, JobFinished
from fairlead.testing.api import ShopifyApi
from tests.support.rows import rows

SETTINGS = """
home = "{home}"
worker.poll_s = 0.05
redis.prefix = "{prefix}"
http.allow_private_addresses = true

[providers.shopify.overlay]
allow_http = true
apis.rest.url = "{url}/{{shop}}/admin/api/{{api_version}}"
apis.graphql.url = "{url}/{{shop}}/admin/api/{{api_version}}/graphql.json"
limits.bulk.retry_after_s = 1.0
"""
ORDERS = "{ orders { edges { node { id name lineItems { edges { node { id title } } } } } } }"
OTHER = "{ products { edges { node { id } } } }"


@pytest.fixture
async def shopify() -> AsyncIterator[ShopifyApi]:
    async with ShopifyApi(takes_s=0.0, bulk_s=0.3) as api:
        yield api


@pytest.fixture
def fl(
    servers: Endpoints, database_settings: DatabaseSettings, tmp_path: Path, shopify: ShopifyApi
) -> Fairlead:
    file = tmp_path / "fairlead.toml"
    file.write_text(
        SETTINGS.format(home=tmp_path / "home", prefix=f"e2e-{token_hex(6)}", url=shopify.url), "utf-8"
    )
    secrets = {
        "DATABASE_URL": database_settings.dsn,
        "REDIS_URL": servers.redis_url,
        "FAIRLEAD_MASTER_KEY": "k1:" + "0123456789abcdef" * 4,
        "FAIRLEAD_DATABASE__SCHEMA_NAME": database_settings.schema or "",
    }
    return Fairlead(load({name: value for name, value in secrets.items() if value}, file))


async def connect(fl: Fairlead, shop: str = "my-shop", version: str = "2025-10") -> None:
    endpoint = {"shop": shop, "api_version": version}
    await fl.connections.upsert(
        "acme", "shopify", variant="permanent", endpoint=endpoint, access_token="shpat_1"
    )


def count_started(api: ShopifyApi, shop: str = "my-shop") -> int:
    return len(api.bulk(shop).all)


@pytest.mark.parametrize("version", ["2025-10", "2026-01"])
async def test_from_its_beginning_to_its_last_row(fl: Fairlead, shopify: ShopifyApi, version: str) -> None:
    """The file refuses a credential, as storage services do that a signed address leads to."""
    async with fl:
        await connect(fl, version=version)
        async with fl.client("acme", "shopify") as api, api.bulk(ORDERS) as operation:
            rows_found = [row async for row in operation.rows()]
            assert (operation.status, operation.adopted) == ("COMPLETED", False)
            assert operation.count == len(rows_found) > 60
        orders = {row["id"] for row in rows_found if "__parentId" not in row}
        assert {row["__parentId"] for row in rows_found if "__parentId" in row} <= orders
        assert len(orders) >= 50
    assert count_started(shopify) == 1
    assert shopify.ledger.refused("my-shop") == 0


@pytest.mark.parametrize("version", ["2025-10", "2026-01"])
async def test_running_operation_of_the_same_query_is_adopted_and_another_is_left_alone(
    fl: Fairlead, shopify: ShopifyApi, version: str
) -> None:
    """Before 2026-01 a second one is refused by the vendor; from then on it would be begun a second time."""
    async with fl:
        await connect(fl, version=version)
        async with fl.client("acme", "shopify") as api:
            run = "mutation ($q: String!) { bulkOperationRunQuery(query: $q) { bulkOperation { id } } }"
            first = (await api.graphql(run, {"q": ORDERS})).data["bulkOperationRunQuery"]["bulkOperation"]
            async with api.bulk(f"\n{ORDERS}  ") as operation:
                assert (operation.adopted, operation.id) == (True, first["id"])
                assert len([row async for row in operation.rows()]) > 50
            assert count_started(shopify) == 1
            if version == "2025-10":
                await api.graphql(run, {"q": OTHER})
                with pytest.raises(BulkLimitReachedError):
                    async with api.bulk(ORDERS):
                        pass


async def test_operation_that_the_provider_rejects_fails_the_call(fl: Fairlead, shopify: ShopifyApi) -> None:
    async with fl:
        await connect(fl)
        await fl.connections.upsert("acme", "stripe", api_key="sk_test_1")
        async with fl.client("acme", "shopify") as api:
            with pytest.raises(CallFailedError, match="Invalid bulk query") as failed:
                async with api.bulk("{ orders"):
                    pass
            assert (failed.value.reason, failed.value.category) == ("INVALID", "permanent_request")
            async with api.bulk(ORDERS) as operation:  # the place is free
                shopify.bulk("my-shop").all[-1].canceled = True
                with pytest.raises(CallFailedError, match="CANCELED"):
                    await operation.wait()
        async with fl.client("acme", "stripe") as api:
            with pytest.raises(InvalidInputError, match="bulk"):
                async with api.bulk(ORDERS):
                    pass


async def test_another_block_goes_on_with_its_token(fl: Fairlead, shopify: ShopifyApi) -> None:
    async with fl:
        await connect(fl)
        async with fl.client("acme", "shopify") as api:
            async with api.bulk(ORDERS) as operation:
                token = operation.token
            with pytest.raises(BulkLimitReachedError):  # its place stays taken
                async with api.bulk(OTHER):
                    pass
            async with api.bulk(ORDERS, token=token) as operation:
                assert operation.adopted
                await operation.wait()
            async with api.bulk(OTHER) as operation:
                assert not operation.adopted


@pytest.mark.slow
async def test_a_job_comes_back_for_it_and_runs_one_operation(
    fl: Fairlead, shopify: ShopifyApi, database: Database
) -> None:
    """It waits outside of a worker, fails once in the middle of the rows, and still one operation was run."""
    runs: list[int] = []
    texts: list[str] = []

    @fl.job(kind="orders.export", retry=3)
    async def export(ctx: JobContext) -> int:
        runs.append(ctx.attempt)
        async with fl.client(ctx.tenant, "shopify") as api, api.bulk(ORDERS) as operation:
            rows_found = []
            async for row in operation.rows():
                rows_found.append(row["id"])
                if len(rows_found) == 5 and not texts:
                    texts.append(operation.id)
                    raise ConnectionResetError("in the middle of the rows")
        return len(rows_found)

    shopify.bulk("my-shop")._takes_s = 3600.0  # until it is told to end
    done = asyncio.Event()

    def on_event(event: Event) -> None:
        if isinstance(event, JobFinished) and event.kind == "orders.export":
            if event.outcome == "snoozed":
                shopify.finish_bulk("my-shop")
            elif event.outcome == "completed":
                done.set()

    async with fl:
        fl.runtime.bus.subscribe(on_event)
        await connect(fl)
        await fl.enqueue("orders.export", tenant="acme", provider="shopify")
        running = asyncio.create_task(fl.run())
        await asyncio.wait_for(done.wait(), 60)
        fl.stop()
        await running
    assert count_started(shopify) == 1
    assert runs == [1, 1, 2], "one snooze, one failure"
    (job,) = await rows(database, "SELECT state, attempt FROM job WHERE kind = 'orders.export'")
    assert job == {"state": "completed", "attempt": 2}
