"""The page on lists and batches: its code runs as it stands (C8, C9)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from fairlead import Fairlead
from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.events import CallAttempted, Event
from fairlead.testing.api.hubspot import HubSpotApi
from fairlead.testing.api.stripe import StripeApi
from tests.e2e.test_client import environment_for
from tests.support.pages import Page

pytestmark = pytest.mark.slow


@pytest.fixture
def run_block(
    servers: Endpoints, database_settings: DatabaseSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, int], dict[str, Any]]:
    """Run a Python block of the page, by its number, for a vendor at a URL; return the names that it defines."""

    def run(url: str, number: int) -> dict[str, Any]:
        environment, file = environment_for(url, servers, database_settings, tmp_path)
        for name, value in {**environment, "FAIRLEAD_CONFIG": str(file)}.items():
            monkeypatch.setenv(name, value)
        names: dict[str, Any] = {}
        exec(Page("how-to/lists-and-batches.md").take("python")[number], names)
        return names

    return run


async def test_the_page_on_lists_and_batches_runs_as_it_stands(
    run_block: Callable[[str, int], dict[str, Any]],
) -> None:
    async with StripeApi(per_s=1000, endpoint_per_s=1000) as stripe:
        page = run_block(stripe.url, 0)
        async with page["fl"] as fl:
            await _worked_off(fl, page)
    assert len(page["seen"]) == 60


async def _worked_off(fl: Fairlead, page: dict[str, Any]) -> None:
    await fl.connections.upsert("acme", "stripe", api_key="sk_test_1")
    job_id = await fl.enqueue(page["sync"], tenant="acme")
    running = asyncio.create_task(fl.run())
    async with asyncio.timeout(30):
        while (await fl.runtime.jobs.get(job_id)).state != "completed":  # type: ignore[union-attr]
            await asyncio.sleep(0.05)
    fl.stop()
    await running


async def test_of_a_batch_only_what_failed_is_sent_again(
    run_block: Callable[[str, int], dict[str, Any]],
) -> None:
    busy = {
        "name": "busy",
        "http_codes": [423],
        "patterns": [],
        "provider_codes": ["LOCKED"],
        "strategy": "constant",
    }
    settings = {"patterns": [{**busy, "category": "transient_rate_limit"}]}
    async with AsyncExitStack() as stack:
        hubspot = await stack.enter_async_context(HubSpotApi())
        page = run_block(hubspot.url, 1)
        fl = await stack.enter_async_context(page["fl"])
        await fl.connections.upsert(
            "acme", "hubspot", access_token="t", refresh_token="r", expires_in_s=1800, settings=settings
        )
        hubspot.lock("1002")

        def free(event: Event) -> None:
            if isinstance(event, CallAttempted):  # the first answer is there
                hubspot.unlock("1002")

        fl.runtime.bus.subscribe(free)
        result = await page["update"]([{"id": "1001"}, {"id": "1002"}, {"id": "9999999"}])
    assert [len(each.json()["results"]) for each in result.responses] == [1, 1]
    assert [(each.item["id"], each.failure.code) for each in result.failed] == [
        ("9999999", "OBJECT_NOT_FOUND")
    ]
    assert not result.complete
