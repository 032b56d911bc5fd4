"""The cost of the sweep of lanes if each connection has one, for its next refresh.

    sweep.share   the share of the time that sweeps take, with four processes that request them
    sweep.found   lost lanes, planted before each sweep, that the sweeps repaired

The store's clock cannot be set: between two requests the time of the last sweep is moved back.
"""

from __future__ import annotations

import time

from bench.databases import connected, server, settle
from bench.report import Row
from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.lanes import PostgresLaneStore
from fairlead.adapters.postgres.migrate import Migrator
from fairlead.engine.jobs.lane_maintenance import SWEEP_EVERY_S, SWEEP_SHARE

LANES = 100_000
PROCESSES = 4
JOBS = """
INSERT INTO job (job_id, kind, tenant_id, provider, group_key, run_at)
SELECT gen_random_uuid(), 'token.refresh', 't' || i % 5000, 'p', 'g' || i,
    now() + (1 + random() * 6) * interval '1 hour'
FROM generate_series(1, $1::integer) AS i
"""
READY = """
SELECT lane_touch(array_agg(lane_id), array_agg(run_at)) FROM (
    SELECT lane_id, run_at FROM job WHERE NOT EXISTS (SELECT FROM lane_name n WHERE n.lane_id = job.lane_id)
    LIMIT $1) AS waiting
"""
PLANTED = 3
LOSE = """
UPDATE lane SET state = 'idle', park_reason = NULL, wake_at = NULL
WHERE lane_id IN (SELECT lane_id FROM lane_name ORDER BY md5(lane_id::text || $1) LIMIT $2)
"""
LATER = "UPDATE maintenance_run SET last_at = last_at - $1 * interval '1 second'"
PAGE = 10_000


async def run(*, rounds: int, quick: bool) -> list[Row]:
    """Sweep *rounds* times, each as soon as it is due."""
    lanes = 2_000 if quick else LANES
    with server() as url:
        await Migrator(DatabaseSettings(dsn=url)).apply()
        async with connected(url) as connection:
            await connection.execute(f"SET jit = off; {JOBS.replace('$1', str(lanes))}")
            for _ in range(0, lanes, PAGE):
                await connection.execute(READY.replace("$1", str(PAGE)))
        await settle(url)
        return await _measured(url, rounds, lanes)


async def _measured(url: str, rounds: int, lanes: int) -> list[Row]:
    database = await Database.open(DatabaseSettings(dsn=url))
    store = PostgresLaneStore(database, notify=False)
    took, passed_s, opened = [], 0.0, 0
    async with connected(url) as connection:
        await store.sweep(0.0)  # reads the catalogs and measures itself
        for turn in range(rounds):
            await connection.execute(LOSE, str(turn), PLANTED)
            while True:
                start_mono = time.perf_counter()
                swept = await store.sweep(SWEEP_EVERY_S / 2, SWEEP_SHARE)
                if swept is not None:
                    break
                await connection.execute(LATER, SWEEP_EVERY_S / PROCESSES)
                passed_s += SWEEP_EVERY_S / PROCESSES
            took.append(time.perf_counter() - start_mono)
            opened += swept.opened
    await database.close()
    more = {"lanes": lanes, "sweep_ms": [round(1000 * pass_s, 1) for pass_s in took]}
    share = Row(
        bench="sweep.share",
        ours=sum(took) / passed_s,
        unit="of the time",
        goal={"ours": SWEEP_SHARE},
        at_most=True,
        n=rounds,
        more={**more, "interval_s": round(passed_s / rounds, 1)},
    )
    found_row = Row(
        bench="sweep.found", ours=opened, unit="lanes", goal={"ours": PLANTED * rounds}, n=rounds, more=more
    )
    return [share, found_row]
