"""PgQueuer on asyncpg: durable tables, its autovacuum settings, a connection a manager, a pool to enqueue.

All as its guide to performance advises. One process runs five managers with batches of ten, as in the
benchmark that it publishes. ``options`` may name other numbers: the guide calls the batch the knob to turn.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from bench.sides import Sample, Watch

PACKAGE = "pgqueuer"
LOOP = "uvloop"  # its command runs on it
MANAGERS, BATCH = 5, 10
SETTINGS: Mapping[str, Any] = {"managers": MANAGERS, "batch_size": BATCH, "autovac": True}
OPEN = "SELECT count(*) FROM pgqueuer"


async def prepare(url: str) -> None:
    """Run ``pgq install`` and ``pgq autovac``."""
    connection = await asyncpg.connect(url)
    queries = Queries(AsyncpgDriver(connection))
    await queries.install()
    await queries.optimize_autovacuum()
    await connection.close()


class _Producer:
    def __init__(self, queries: Queries) -> None:
        self._queries = queries

    async def enqueue_one(self, job: Sample) -> None:
        await self._queries.enqueue("noop", json.dumps(job.args).encode())

    async def enqueue_many(self, jobs: Sequence[Sample]) -> None:
        for start in range(0, len(jobs), 1000):
            payloads: list[bytes | None] = [
                json.dumps(job.args).encode() for job in jobs[start : start + 1000]
            ]
            await self._queries.enqueue(["noop"] * len(payloads), payloads, [0] * len(payloads))


@asynccontextmanager
async def producer(url: str) -> AsyncIterator[_Producer]:
    """Yield a producer on a pool."""
    async with asyncpg.create_pool(url, min_size=1) as pool:
        yield _Producer(Queries(AsyncpgPoolDriver(pool)))


async def work(url: str, watch: Watch, options: Mapping[str, Any]) -> None:
    """Run ``pgq run --batch-size``, several times in one event loop."""
    managers, batch = options.get("managers", MANAGERS), options.get("batch_size", BATCH)
    apps = [await _app(url, watch) for _ in range(managers)]
    await asyncio.gather(*(app.run(batch_size=batch) for app in apps))


async def _app(url: str, watch: Watch) -> PgQueuer:
    app = PgQueuer(AsyncpgDriver(await asyncpg.connect(url)))

    @app.entrypoint("noop")
    async def noop(job: Job) -> None:
        json.loads(job.payload or b"")
        watch.ran()

    app.qm.queries.dequeue = watch.timed(app.qm.queries.dequeue)
    return app
