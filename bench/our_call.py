"""fairlead's client as a side: ``fl.client`` with default settings and limits of every kind.

A new installation each time: a database of its own, one connection a tenant, each with a breaker, slots and
two buckets. ``options``: ``api_url`` and ``database_url`` besides those of every side.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bench.databases import fresh_database
from bench.gate_sides import PLENTY, Decide, must
from fairlead import Fairlead
from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.migrate import Migrator
from fairlead.assembly.config import Config, load
from fairlead.policy.limits.limit import MAX_SLOTS

PACKAGE = None
SETTINGS: Mapping[str, Any] = {"limits": "breaker, slots, two buckets; tenants of their own"}
PROVIDER = "bench"
LIMITS = {
    "concurrency_limit": MAX_SLOTS,
    "calls": {
        "requests": {"capacity": PLENTY, "per_s": PLENTY},
        "points": {"capacity": PLENTY, "per_s": PLENTY},
    },
}
PROFILE = """
name = "bench"
title = "An API of a benchmark"
strategy = "static_key"
allow_http = true
[apis.rest]
url = "{url}/v1"
"""
FILE = """
home = "{folder}/home"
providers_dir = "{folder}/profiles"
http.allow_private_addresses = true
"""


@asynccontextmanager
async def opened(url: str, options: Mapping[str, Any]) -> AsyncIterator[Decide]:
    """Yield a function that calls through a fairlead with one connection for each key."""
    with tempfile.TemporaryDirectory(prefix="fl-bench-") as folder:
        async with fresh_database(options["database_url"], "bench_call") as database_url:
            await Migrator(DatabaseSettings(dsn=database_url)).apply()
            async with Fairlead(_config(Path(folder), url, database_url, options["api_url"])) as fl:
                for number in range(options["keys"]):
                    await fl.connections.upsert(
                        f"tenant-{number}", PROVIDER, api_key=f"key-{number}", settings=LIMITS
                    )
                yield _caller(fl)


def _caller(fl: Fairlead) -> Decide:
    async def call(number: int) -> float:
        async with fl.client(f"tenant-{number}", PROVIDER) as api:
            response = await api.get("/orders.json", params={"limit": 50})
        answered = time.perf_counter()
        must(len(response.json()["orders"]) == 3 and response.attempts == 1, "fairlead")
        return answered

    return call


def _config(folder: Path, redis_url: str, database_url: str, api_url: str) -> Config:
    (folder / "profiles").mkdir()
    (folder / "profiles" / f"{PROVIDER}.toml").write_text(PROFILE.format(url=api_url))
    settings = folder / "fairlead.toml"
    settings.write_text(FILE.format(folder=folder))
    environ = {
        "DATABASE_URL": database_url,
        "REDIS_URL": redis_url,
        "FAIRLEAD_MASTER_KEY": "bench:" + "0123456789abcdef" * 4,
    }
    return load(environ, settings)
