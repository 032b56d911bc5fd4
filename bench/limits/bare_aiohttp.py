"""Calls through aiohttp alone: no limits, no retries, and a fixed token."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from bench.gate_sides import Decide, must

PACKAGE = "aiohttp"
SETTINGS: Mapping[str, Any] = {"limit": "as many connections as tasks"}


@asynccontextmanager
async def opened(_url: str, options: Mapping[str, Any]) -> AsyncIterator[Decide]:
    """Yield a function that calls through a session with one connection for each task."""
    address = f"{options['api_url']}/v1/orders.json"
    connector = aiohttp.TCPConnector(limit=options["tasks"])
    async with aiohttp.ClientSession(connector=connector) as session:

        async def call(number: int) -> float:
            headers = {"Authorization": f"Bearer key-{number}"}
            async with session.get(address, params={"limit": 50}, headers=headers) as response:
                body = await response.json()
            answered = time.perf_counter()
            must(response.status == 200 and len(body["orders"]) == 3, PACKAGE)
            return answered

        yield call
