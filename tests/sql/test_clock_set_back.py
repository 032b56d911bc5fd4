"""The database's clock stands behind what its rows say, as after a fail-over: that counts as now."""

from __future__ import annotations

from uuid import UUID, uuid4

from fairlead.adapters.postgres.credentials import PostgresCredentialStore
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.endpoints import PostgresEndpointGate
from fairlead.engine.ports import EndpointKey, EndpointLimits, EndpointPermit, PermitRequest
from tests.sql.test_credentials import connected
from tests.support.rows import run

AHEAD = "now() + interval '10 minutes'"


async def test_a_bucket_fills_at_its_rate(database: Database) -> None:
    gate = PostgresEndpointGate(database)
    limits = EndpointLimits(per_s=1000.0, burst=1.0)
    ask = PermitRequest(EndpointKey("mercadolibre", "app"), limits, UUID(int=1), 1, "f")
    assert isinstance(await gate.admit(ask), EndpointPermit)
    await run(database, f"UPDATE endpoint_gate SET permits = 0, refilled_at = {AHEAD}")
    await gate.admit(ask)  # finds it empty, and counts from now on
    await run(database, "SELECT pg_sleep(0.01)")
    assert isinstance(await gate.admit(ask), EndpointPermit)
    await gate.close()


async def test_a_dead_refresh_is_scanned_again_after_its_cool_down(database: Database) -> None:
    store = PostgresCredentialStore(database)
    connection_id = (await connected(store)).connection.connection_id
    await run(database, "UPDATE credential SET due_at = now() - interval '1 s'")
    await run(
        database,
        "INSERT INTO dead_letter (dead_letter_id, job_id, lineage_id, queue, kind, tenant_id, provider,"
        " connection_id, group_key, priority, category, code, reason, args, last_at)"
        " SELECT $1, $1, $1, 'default', 'token.refresh', 'acme', 'mercadolibre', $2, 'g', 1,"
        f" 'transient_server', 'http_500', 'it failed', '{{}}', {AHEAD}",
        uuid4(),
        connection_id,
    )
    page = await store.due(urgent_only=False, cool_down_s=100.0, cursor=None, limit=10)
    assert [due.connection_id for due in page.connections] == [connection_id]
    await store.close()
