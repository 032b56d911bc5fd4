"""The limit of a queue on asyncpg: one connection, batches, no lease, no fence, no tenant, no retry.

One table with the columns of our jobs, a primary key and a partial index of the available jobs. The worker
claims a batch, runs its no-ops, marks the batch done, and claims the next.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from bench.sides import OUR_LOOP, Sample, Watch

PACKAGE = None
LOOP = OUR_LOOP
SETTINGS: Mapping[str, Any] = {}
OPEN = "SELECT count(*) FROM bare WHERE state <> 'completed'"

TABLE = """
CREATE TABLE bare (
    job_id uuid PRIMARY KEY, kind text NOT NULL, tenant_id text NOT NULL, args jsonb NOT NULL,
    state text NOT NULL DEFAULT 'available', attempt int NOT NULL DEFAULT 0,
    run_at timestamptz NOT NULL DEFAULT now(), finished_at timestamptz);
CREATE INDEX bare_ready ON bare (run_at, job_id) WHERE state = 'available';
"""
CLAIM = """
UPDATE bare SET state = 'running', attempt = attempt + 1
FROM (SELECT job_id FROM bare WHERE state = 'available' AND run_at <= now()
      ORDER BY run_at, job_id LIMIT $1 FOR UPDATE SKIP LOCKED) AS picked
WHERE bare.job_id = picked.job_id
RETURNING bare.job_id, kind, tenant_id, args, attempt
"""
COMPLETE = "UPDATE bare SET state = 'completed', finished_at = now() WHERE job_id = ANY($1::uuid[])"
INSERT = "INSERT INTO bare (job_id, kind, tenant_id, args) VALUES ($1, $2, $3, $4)"


async def prepare(url: str) -> None:
    """Create the table."""
    connection = await asyncpg.connect(url)
    await connection.execute(TABLE)
    await connection.close()


class _Producer:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def enqueue_one(self, job: Sample) -> None:
        await self._connection.execute(INSERT, *_record(job))

    async def enqueue_many(self, jobs: Sequence[Sample]) -> None:
        records = [_record(job) for job in jobs]
        columns = ("job_id", "kind", "tenant_id", "args")
        await self._connection.copy_records_to_table("bare", records=records, columns=columns)


def _record(job: Sample) -> tuple[uuid.UUID, str, str, str]:
    return uuid.uuid4(), "noop", job.tenant, json.dumps(job.args)


@asynccontextmanager
async def producer(url: str) -> AsyncIterator[_Producer]:
    """Yield a producer on one connection."""
    connection = await asyncpg.connect(url)
    yield _Producer(connection)
    await connection.close()


async def work(url: str, watch: Watch, options: Mapping[str, Any]) -> None:
    """Claim, run and complete in an endless loop. ``options["batch"]``: the batch of our side."""
    connection = await asyncpg.connect(url)
    claim, complete = await connection.prepare(CLAIM), await connection.prepare(COMPLETE)
    fetch = watch.timed(claim.fetch)

    async def noop(args: Any) -> None:
        watch.ran()

    while True:
        rows = await fetch(options["batch"])
        for row in rows:
            await noop(json.loads(row["args"]))
        await complete.fetch([row["job_id"] for row in rows])
