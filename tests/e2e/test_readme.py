"""README's example runs as it stands, and prints what README shows."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fairlead.adapters.embedded import Endpoints
from fairlead.testing.api import ShopifyApi
from tests.e2e.test_recipes import program
from tests.support.cli import Shell
from tests.support.pages import ROOT, Page
from tests.support.terminals import Reader

pytestmark = pytest.mark.slow

SETTINGS = """
http.allow_private_addresses = true

[providers.shopify.overlay]
allow_http = true
apis.rest.url = "{url}/{{shop}}/admin/api/{{api_version}}"
"""
COUNT = """
import asyncio
from first import fl
from orders import count_orders

async def main():
    async with fl, asyncio.TaskGroup() as tasks:
        tasks.create_task(fl.run())
        job_id = await count_orders.enqueue(tenant="acme", provider="shopify")
        print(await fl.result(job_id, timeout_s=60))
        fl.stop()

asyncio.run(main())
"""


async def test_the_example_prints_what_is_shown(shell: Shell, servers: Endpoints) -> None:
    """On servers of the tests: the tutorial covers those that start by themselves."""
    shell.environ["REDIS_URL"] = servers.redis_url
    del shell.environ["FAIRLEAD_MASTER_KEY"]  # `fairlead init` creates one
    environ = {**shell.all_environ, "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"}
    reader = Reader(shell.folder, environ)
    async with ShopifyApi() as api:
        shell.settings(SETTINGS.format(url=api.url))
        try:
            for block in Page(ROOT / "README.md").blocks:
                if block.language in ("python", "console"):
                    await reader.follow(block)
        finally:
            await reader.close()
        assert await program(shell, COUNT) == "60\n"
