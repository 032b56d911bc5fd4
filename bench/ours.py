"""fairlead as a side: a user's program with ``fl.enqueue`` and ``fl.run()``, all settings default."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bench.sides import OUR_LOOP, Sample, Watch
from fairlead import Fairlead
from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.migrate import Migrator
from fairlead.app import JobRequest
from fairlead.assembly.logs import configure, log_event

PACKAGE = None
LOOP = OUR_LOOP
SETTINGS: Mapping[str, Any] = {}
OPEN = "SELECT count(*) FROM job WHERE kind = 'noop' AND state IN ('available', 'running')"


async def prepare(url: str) -> None:
    """Migrate."""
    await Migrator(DatabaseSettings(dsn=url)).apply()


class _Producer:
    def __init__(self, fl: Fairlead) -> None:
        self._fl = fl

    async def enqueue_one(self, job: Sample) -> None:
        await self._fl.enqueue("noop", job.args, tenant=job.tenant)

    async def enqueue_many(self, jobs: Sequence[Sample]) -> None:
        for start in range(0, len(jobs), 1000):
            chunk = jobs[start : start + 1000]
            await self._fl.enqueue_many(JobRequest("noop", job.args, tenant=job.tenant) for job in chunk)


@asynccontextmanager
async def producer(url: str) -> AsyncIterator[_Producer]:
    """Yield a producer through an open Fairlead."""
    with tempfile.TemporaryDirectory(prefix="fl-bench-") as home:
        async with _fairlead(url, home) as fl:
            yield _Producer(fl)


async def work(url: str, watch: Watch, options: Mapping[str, Any]) -> None:
    """Run all roles, like ``fairlead run``; with ``options["logged"]`` also write its log lines, to /dev/null."""
    with tempfile.TemporaryDirectory(prefix="fl-bench-") as home:
        fl = _fairlead(url, home)

        @fl.job("noop")
        async def noop(_context: Any) -> None:
            watch.ran()

        async with fl:
            if options.get("logged"):
                fl.runtime.bus.subscribe(log_event)
                configure("info", "json", fd=os.open(os.devnull, os.O_WRONLY))
            fl.runtime.jobs.claim = watch.timed(fl.runtime.jobs.claim)
            try:
                await fl.run()
            except asyncio.CancelledError:
                fl.stop()
                raise


def _fairlead(url: str, home: str) -> Fairlead:
    nothing_set = Path(home) / "fairlead.toml"  # otherwise one in the current folder would be read
    nothing_set.touch()
    environ = {
        "DATABASE_URL": url,
        "FAIRLEAD_HOME": home,
        "FAIRLEAD_MASTER_KEY": "bench:" + "0123456789abcdef" * 4,
    }
    return Fairlead.from_env(environ, config=nothing_set)
