"""Tables that are not small, so that a plan shows what it is worth."""

from __future__ import annotations

from uuid import UUID, uuid4

from fairlead.adapters.postgres.database import Database
from tests.support.rows import run

JOBS = """
INSERT INTO job
    (job_id, queue, kind, tenant_id, provider, priority, run_at, unique_key, unique_live, expires_at)
SELECT gen_random_uuid(), 'default', 'kind' || i % 10, 'tenant' || i % 2000, 'provider' || i % 5, i % 4,
    now() - random() * interval '1 hour' + CASE WHEN i % 3 = 0 THEN interval '1 day' ELSE '0' END,
    CASE WHEN i % 2 = 0 THEN 'key' || i END, i % 2 = 0,
    CASE WHEN i % 20 = 0 THEN now() + (i % 1000 - 10) * interval '1 minute' END
FROM generate_series(1, $1::integer) AS i
"""
LANES = """
SELECT lane_touch(array_agg(lane_id), array_agg(run_at)) FROM (
    SELECT lane_id, min(run_at) AS run_at FROM job WHERE state = 'available' AND crash_count = 0
    GROUP BY lane_id
) AS waiting
"""
WAITING = """
INSERT INTO job (job_id, queue, kind, tenant_id, run_at)
SELECT gen_random_uuid(), $3, 'work', 'tenant' || i % $2::integer,
    now() - interval '1 hour' + i * interval '1 ms'
FROM generate_series(1, $1::integer) AS i
"""
FINISHED = """
INSERT INTO job (job_id, kind, tenant_id, state, finished_at)
SELECT gen_random_uuid(), 'kind' || i % 10, 'tenant' || i % 100,
    CASE WHEN i % 50 = 0 THEN 'cancelled' ELSE 'completed' END, now() - random() * interval '2 days'
FROM generate_series(1, $1::integer) AS i
"""
SESSION = """
INSERT INTO worker_session
    (session_id, host, boot_id, pid_namespace, pid, process_started, version, lease, heartbeat_at)
VALUES ($1, 'h', 'b', 'n', 1, '1', '1', interval '30 seconds', now() - $2 * interval '1 second')
"""
RUNNING = """
INSERT INTO job (job_id, kind, tenant_id, state, session_id, lease_id, started_at)
SELECT gen_random_uuid(), 'kind1', 'tenant1', 'running', $1, i, now()
FROM generate_series(1, $2::integer) AS i
"""
SWEPT = """
INSERT INTO maintenance_run (name, last_at, uninterrupted_since)
VALUES ('rescue', now() - interval '5 seconds', now() - interval '1 hour')
"""
DEAD = """
INSERT INTO dead_letter
    (dead_letter_id, job_id, lineage_id, queue, kind, tenant_id, priority, category, code, reason, details,
    status, resolution, resolved_at, action_due_at)
SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 'default', 'kind' || i % 10,
    'tenant' || i % 100, 2, 'transient_server', 'boom', 'it failed',
    jsonb_build_object('text', repeat(md5(i::text), 30)),
    CASE WHEN i % 2 = 0 THEN 'pending_review' ELSE 'abandoned' END,
    CASE WHEN i % 2 = 1 THEN 'abandoned' END,
    CASE WHEN i % 2 = 1 THEN now() - random() * interval '40 days' END,
    CASE WHEN i % 20 = 0 THEN now() - interval '1 second' END
FROM generate_series(1, $1::integer) AS i
"""
DUTIES = """
INSERT INTO schedule_run (schedule, run_at, session_id, taken_at)
SELECT 'schedule' || i % 5, moment, gen_random_uuid(), moment
FROM generate_series(1, $1::integer) AS i
    CROSS JOIN LATERAL (SELECT now() - i * interval '5 seconds' AS moment) AS m
"""


async def a_session(database: Database, silent_s: float = 0.0) -> UUID:
    """Insert a session with its last heartbeat *silent_s* ago."""
    session_id = uuid4()
    await run(database, SESSION, session_id, silent_s)
    return session_id


async def a_large_database(database: Database, size: int) -> UUID:
    """Insert *size* available jobs in up to 2,000 lanes, as many finished ones, and an open session.

    The other tables are filled in proportion.
    """
    await run(database, JOBS, size)
    await run(database, LANES)
    await run(database, FINISHED, size)
    for silent_s in (0.0,) * 40 + (3600.0,) * 4:
        await run(database, RUNNING, await a_session(database, silent_s), 20)
    await run(database, SWEPT)
    await run(database, DEAD, size // 10)
    await run(database, DUTIES, size // 4)
    await run(database, "VACUUM (ANALYZE)")
    return await a_session(database)


async def waiting_jobs(database: Database, jobs: int, tenants: int, *, queue: str = "default") -> None:
    """Insert *jobs* that have been due for a while, of *tenants* in turn, each with one lane."""
    await run(database, WAITING, jobs, tenants, queue)
    await run(database, LANES)
