"""awa: a queue in Rust with handlers in Python; all default but the number of workers and claimers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from awa import AsyncClient

from bench.sides import Sample, Watch

PACKAGE = "awa-pg"
LOOP = "asyncio"
WORKERS = 128
SETTINGS: Mapping[str, Any] = {"max_workers": WORKERS}
OPEN = "SELECT count(*) FROM awa.jobs WHERE state::text IN ('available', 'scheduled', 'retryable', 'running')"


@dataclass
class Noop:
    """A job's arguments."""

    order: int
    tenant: str
    note: str


async def prepare(url: str) -> None:
    """Run ``awa migrate``, and install its own storage in place of the one it creates."""
    async with AsyncClient(_url(url)) as client:
        await client.migrate()
        await client.install_queue_storage()


class _Producer:
    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def enqueue_one(self, job: Sample) -> None:
        await self._client.insert(Noop(**job.args), queue="noop")

    async def enqueue_many(self, jobs: Sequence[Sample]) -> None:
        for start in range(0, len(jobs), 1000):
            chunk = [Noop(**job.args) for job in jobs[start : start + 1000]]
            await self._client.enqueue_many_copy(chunk, queue="noop")


@asynccontextmanager
async def producer(url: str) -> AsyncIterator[_Producer]:
    """Yield a producer on one client."""
    async with AsyncClient(_url(url)) as client:
        yield _Producer(client)


async def work(url: str, watch: Watch, _options: Mapping[str, Any]) -> None:
    """Run ``client.start``."""
    client = AsyncClient(_url(url))

    @client.task(Noop, queue="noop")
    async def noop(job: Any) -> None:
        watch.ran()

    await client.start([("noop", WORKERS)])
    await asyncio.Event().wait()


def _url(url: str) -> str:
    """Return *url* with the user in the query, because its parser takes no user without a host."""
    parts = urlsplit(url)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    return f"postgresql://{parts.path}?{urlencode(query | {'user': parts.username or ''})}"
