"""Procrastinate on psycopg's async pool; all default but the concurrency, which is one job by default."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from procrastinate import App, PsycopgConnector

from bench.sides import Sample, Watch

PACKAGE = "procrastinate"
LOOP = "uvloop"  # its command runs on asyncio, which is slower here
CONCURRENCY = 32
SETTINGS: Mapping[str, Any] = {"concurrency": CONCURRENCY}
OPEN = "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"


async def prepare(url: str) -> None:
    """Run ``procrastinate schema --apply``."""
    async with App(connector=PsycopgConnector(conninfo=url)).open_async() as app:
        await app.schema_manager.apply_schema_async()


class _Producer:
    def __init__(self, task: Any) -> None:
        self._task = task

    async def enqueue_one(self, job: Sample) -> None:
        await self._task.defer_async(**job.args)

    async def enqueue_many(self, jobs: Sequence[Sample]) -> None:
        for start in range(0, len(jobs), 1000):
            await self._task.batch_defer_async(*(job.args for job in jobs[start : start + 1000]))


def _app(url: str, watch: Watch) -> tuple[App, Any]:
    app = App(connector=PsycopgConnector(conninfo=url))

    @app.task(name="noop")
    async def noop(**_args: Any) -> None:
        watch.ran()

    return app, noop


@asynccontextmanager
async def producer(url: str) -> AsyncIterator[_Producer]:
    """Yield a producer on an open app."""
    app, noop = _app(url, Watch())
    async with app.open_async():
        yield _Producer(noop)


async def work(url: str, watch: Watch, _options: Mapping[str, Any]) -> None:
    """Run ``procrastinate worker --concurrency``."""
    app, _ = _app(url, watch)
    async with app.open_async():
        await app.run_worker_async(concurrency=CONCURRENCY, install_signal_handlers=False)
