"""Oban for Python, the open version; all default but the queue's limit, which is its batch too."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from bench.sides import Sample, SkippedError, Watch

try:
    from oban import Oban, worker
    from oban.schema import install
except ImportError as error:
    needed = "`pip install oban`, which builds a C extension"
    raise SkippedError("needs Python 3.12" if sys.version_info < (3, 12) else needed) from error

PACKAGE = "oban"
LOOP = "uvloop"  # its command runs on it
LIMIT = 100
SETTINGS: Mapping[str, Any] = {"limit": LIMIT}
OPEN = "SELECT count(*) FROM oban_jobs WHERE state IN ('available', 'scheduled', 'executing', 'retryable')"

_watch = Watch()


@worker(queue="default")
class Noop:
    """The worker, which Oban looks up by its name."""

    async def process(self, job: Any) -> None:
        """Count the run."""
        _watch.ran()


async def prepare(url: str) -> None:
    """Run ``oban install``."""
    pool = await Oban.create_pool(url)
    await install(pool)
    await pool.close()


class _Producer:
    def __init__(self, oban: Oban) -> None:
        self._oban = oban

    async def enqueue_one(self, job: Sample) -> None:
        await self._oban.enqueue(Noop.new(dict(job.args)))

    async def enqueue_many(self, jobs: Sequence[Sample]) -> None:
        for start in range(0, len(jobs), 1000):
            await self._oban.enqueue_many(Noop.new(dict(job.args)) for job in jobs[start : start + 1000])


@asynccontextmanager
async def producer(url: str) -> AsyncIterator[_Producer]:
    """Yield a producer on an instance without queues."""
    pool = await Oban.create_pool(url)
    async with Oban(pool=pool) as oban:
        yield _Producer(oban)
    await pool.close()


async def work(url: str, watch: Watch, _options: Mapping[str, Any]) -> None:
    """Run ``oban start --queues default:100``."""
    global _watch  # noqa: PLW0603 (a worker class is made by its queue, without our arguments)
    _watch = watch
    pool = await Oban.create_pool(url)
    async with Oban(pool=pool, queues={"default": LIMIT}):
        await asyncio.Event().wait()
