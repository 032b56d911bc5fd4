"""What a scan for due connections reads: the same 50 due rows among 10^3 and among 10^6."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from uuid import UUID

import asyncpg

from bench.databases import server
from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.migrate import Migrator
from fairlead.adapters.postgres.statements import statement

_LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)
_FIRST = UUID(int=0)
DUE = 50
SEED_CONNECTIONS = """
INSERT INTO connection (connection_id, tenant_id, provider, account)
SELECT ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 't' || n % 5000, 'p', 'b' || n
FROM generate_series(1, $1::int) n
"""
SEED_CREDENTIALS = """
INSERT INTO credential (connection_id, tenant_id, provider, account, sealed, key_id, refreshable, expires_at,
                        urgent_at, critical_at, due_at)
SELECT connection_id, tenant_id, provider, account, decode(repeat('ab', 600), 'hex'), connection_id, true,
       at + interval '30 min', at + interval '1 min', at + interval '20 min', at
FROM (SELECT connection_id, tenant_id, provider, account,
             now() + CASE WHEN row_number() OVER (ORDER BY md5(connection_id::text)) <= $1
                          THEN -random() ELSE 1 + random() * 6 END * interval '1 hour' AS at
      FROM connection) c
ORDER BY md5(account)
"""


async def due_buffers(small: int, large: int) -> tuple[float, float]:
    """Return the buffers that one page of the scan reads at both sizes."""
    with server({"fsync": "off"}) as url:
        buffers = []
        for size in (small, large):
            schema = f"due_{size}"
            await Migrator(DatabaseSettings(dsn=url, schema=schema)).apply()
            buffers.append(await _buffers(url, schema, size))
    return buffers[0], buffers[1]


async def _buffers(url: str, schema: str, size: int) -> float:
    connection = await asyncpg.connect(url, server_settings={"search_path": schema, "jit": "off"})
    try:
        await connection.execute(SEED_CONNECTIONS.replace("$1::int", str(size)))
        await connection.execute(SEED_CREDENTIALS.replace("$1", str(DUE)))
        await connection.execute("VACUUM ANALYZE connection")
        await connection.execute("VACUUM ANALYZE credential")
        scan = statement("credential_due")
        args = scan.args(
            after_due_at=_LONG_AGO, after_id=_FIRST, cool_down_s=900.0, urgent_only=False, limit=DUE
        )
        await connection.fetch(scan.text, *args)
        plan = await connection.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {scan.text}", *args)
        root = json.loads(plan)[0]["Plan"]
        assert root["Actual Rows"] == DUE, root["Actual Rows"]
        return float(root["Shared Hit Blocks"] + root["Shared Read Blocks"])
    finally:
        await connection.close()
