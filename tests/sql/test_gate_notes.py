"""What the gate keeps in PostgreSQL: learnt limits, and since when it is used (G3, R23)."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from uuid import UUID, uuid4

import asyncpg
import pytest

from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.gate_notes import PostgresGateNotes
from fairlead.engine.ports import SLOTS_LIMIT, ConnectionKey, LearnedLimit
from tests.support.plans import explained
from tests.support.raw_connections import raw_connection
from tests.support.rows import rows, run

KEY = ConnectionKey("acme", "shopify")
CONNECTION = """
INSERT INTO connection (connection_id, tenant_id, provider, account, account_id, client_id, endpoint, settings)
VALUES ($1, $2, 'shopify', 'default', 'shop-1', 'app-1', '{"shop": "shop-1"}', '{"observe": true}')
"""


@pytest.fixture
async def notes(database: Database) -> AsyncIterator[PostgresGateNotes]:
    notes = PostgresGateNotes(database)
    yield notes
    await notes.close()


async def connected(database: Database, tenant: str = "acme") -> UUID:
    connection_id = uuid4()
    await run(database, CONNECTION, connection_id, tenant)
    return connection_id


async def learn(notes: PostgresGateNotes, per_s: float = 100.0, limit: str = "points") -> LearnedLimit:
    """Something is learnt of the connection as it is now."""
    connection = await notes.connection(KEY)
    assert connection is not None
    learned = LearnedLimit(connection.connection_id, limit, connection.version, 2000.0, per_s)
    await notes.save([learned])
    return learned


async def stored_limits(notes: PostgresGateNotes, key: ConnectionKey = KEY) -> dict[str, tuple[float, float]]:
    connection = await notes.connection(key)
    assert connection is not None
    return dict(connection.learned_limits)


async def test_slots_are_read_apart_with_a_version_above_the_connections(
    notes: PostgresGateNotes, database: Database
) -> None:
    await connected(database)
    connection = await notes.connection(KEY)
    assert connection is not None
    assert connection.learned_slots is None
    slots = LearnedLimit(connection.connection_id, SLOTS_LIMIT, connection.version, 8, 1.0)
    await learn(notes)
    await notes.save([slots])
    first = await notes.connection(KEY)
    assert first is not None
    assert first.learned_slots is not None
    assert (first.learned_slots.capacity, first.learned_limits) == (8, {"points": (2000.0, 100.0)})
    assert first.learned_slots.version > first.version == connection.version
    await notes.save([slots])
    assert await notes.connection(KEY) == first, "what is known already is no news"
    await notes.save([replace(slots, capacity=5)])
    later = await notes.connection(KEY)
    assert later is not None
    assert later.learned_slots is not None
    assert later.learned_slots.capacity == 5
    assert later.learned_slots.version > first.learned_slots.version
    await run(database, "UPDATE connection SET updated_at = now()")
    ended = await notes.connection(KEY)
    assert ended is not None
    assert (ended.learned_slots, ended.learned_limits) == (None, {}), "newer settings"


# ---- its age ---------------------------------------------------------------------------------------

ANOTHER = """
INSERT INTO connection (connection_id, tenant_id, provider, account, account_id, created_at)
SELECT gen_random_uuid(), 'acme', 'shopify', 'other-' || n, $1, now() - $2::interval
FROM generate_series(1, $3) AS n
"""


async def age_s(notes: PostgresGateNotes) -> float:
    connection = await notes.connection(KEY)
    assert connection is not None
    return connection.existed_s


async def test_a_connection_is_read_with_its_age(notes: PostgresGateNotes, database: Database) -> None:
    await connected(database)
    assert 0.0 <= await age_s(notes) < 60.0
    await run(database, "UPDATE connection SET created_at = now() - interval '100 s'")
    assert 100.0 <= await age_s(notes) < 160.0
    await run(database, "UPDATE connection SET created_at = now() - interval '61 min'")
    assert await age_s(notes) == math.inf
    await run(database, "UPDATE connection SET created_at = now() + interval '10 min'")
    assert await age_s(notes) == math.inf, "a clock was set back"


async def test_account_is_as_old_as_its_first_connection(
    notes: PostgresGateNotes, database: Database
) -> None:
    await connected(database)
    await run(database, ANOTHER, "shop-2", timedelta(days=2), 1)
    assert 0.0 <= await age_s(notes) < 60.0
    await run(database, "UPDATE connection SET account_id = 'shop-1' WHERE account = 'other-1'")
    assert await age_s(notes) >= 2 * 86_400


async def test_among_a_hundred_others_nobody_looks_for_an_older_one(
    notes: PostgresGateNotes, database: Database
) -> None:
    await connected(database)
    await run(database, ANOTHER, "shop-2", timedelta(), 99)
    assert await age_s(notes) < 60.0
    await run(database, ANOTHER.replace("other", "more"), "shop-2", timedelta(), 1)
    assert await age_s(notes) == math.inf


# ---- learnt ----------------------------------------------------------------------------------------


async def test_a_connection_is_read_with_what_was_learnt(
    notes: PostgresGateNotes, database: Database
) -> None:
    connection_id = await connected(database)
    await connected(database, "beta")
    await learn(notes)
    await learn(notes, 4.0, "requests")
    mine, others, nobodys = await asyncio.gather(
        *(notes.connection(ConnectionKey(tenant, "shopify")) for tenant in ("acme", "beta", "nobody"))
    )
    assert mine is not None
    assert (mine.connection_id, mine.account_id, mine.client_id) == (connection_id, "shop-1", "app-1")
    assert (mine.endpoint, mine.settings) == ({"shop": "shop-1"}, {"observe": True})
    assert mine.learned_limits == {"points": (2000.0, 100.0), "requests": (2000.0, 4.0)}
    assert others is not None
    assert others.learned_limits == {}
    assert nobodys is None


async def test_its_version_is_the_one_that_the_rest_of_fairlead_knows(
    notes: PostgresGateNotes, database: Database
) -> None:
    await connected(database)
    connection = await notes.connection(KEY)
    assert connection is not None
    (row,) = await rows(
        database, "SELECT (extract(epoch FROM updated_at) * 1000000)::bigint AS v FROM connection"
    )
    assert connection.version == row["v"]


async def test_the_latest_is_kept_and_the_same_is_not_written_again(
    notes: PostgresGateNotes, database: Database
) -> None:
    await connected(database)
    await learn(notes, 80.0)
    first = await learn(notes, 100.0)
    (written,) = await rows(database, "SELECT xmin::text, observed_at FROM observed_limit")
    await notes.save([first])
    assert await rows(database, "SELECT xmin::text, observed_at FROM observed_limit") == [written]
    assert await stored_limits(notes) == {"points": (2000.0, 100.0)}


async def test_newer_settings_beat_what_was_learnt_before_them(
    notes: PostgresGateNotes, database: Database
) -> None:
    await connected(database)
    old = await learn(notes)
    await run(database, "UPDATE connection SET updated_at = now()")
    assert await stored_limits(notes) == {}
    new = await learn(notes, 30.0)
    await notes.save([replace(old, per_s=500.0)])  # of a process that knew the old settings for a moment more
    assert await stored_limits(notes) == {"points": (new.capacity, 30.0)}


async def test_of_a_removed_connection_nothing_is_kept(notes: PostgresGateNotes, database: Database) -> None:
    await connected(database)
    limit = await learn(notes)
    await run(database, "DELETE FROM connection")
    assert await rows(database, "SELECT 1 FROM observed_limit") == []
    await notes.save([limit])
    assert await rows(database, "SELECT 1 FROM observed_limit") == []


async def test_reader_sees_observed_limits_of_its_tenant_only(
    notes: PostgresGateNotes, database: Database
) -> None:
    await connected(database)
    await learn(notes)
    await run(database, "GRANT SELECT ON observed_limit TO fairlead_reader")
    async with raw_connection(database) as connection:
        for tenant, expected in (("acme", 1), ("beta", 0)):
            await connection.fetch("BEGIN")
            await connection.fetch("SET LOCAL ROLE fairlead_reader")
            await connection.fetch("SELECT set_config('fairlead.tenant_id', $1, true)", tenant)
            assert len(await connection.fetch("SELECT 1 FROM observed_limit")) == expected
            await connection.fetch("ROLLBACK")


async def test_a_read_goes_by_indexes_however_many_connections_there_are(database: Database) -> None:
    await run(
        database,
        "INSERT INTO connection (connection_id, tenant_id, provider, account, client_id, endpoint, settings) "
        "SELECT gen_random_uuid(), 'tenant' || i, 'shopify', 'default', 'app', '{}', '{}' "
        "FROM generate_series(1, 5000) AS i",
    )
    await run(
        database,
        "INSERT INTO observed_limit (connection_id, tenant_id, limit_name, version, capacity, per_s) "
        "SELECT connection_id, tenant_id, 'points', (extract(epoch FROM updated_at) * 1000000)::bigint, 2, 1 "
        "FROM connection",
    )
    await run(database, "ANALYZE connection, observed_limit")
    names = ["tenant7", "tenant4000", "nobody"]
    plan = await explained(
        database, "gate_connection", tenants=names, providers=["shopify"] * 3, accounts=["default"] * 3
    )
    assert plan.rows == 2
    assert plan.scanned_whole() == set()
    assert plan.buffers < 40


# ---- since when it is used -------------------------------------------------------------------------


async def test_of_many_that_start_together_one_is_first(notes: PostgresGateNotes) -> None:
    results = await asyncio.gather(*(notes.record_first_use("fairlead") for _ in range(20)))
    assert sorted(results) == [False] * 19 + [True]
    assert not await notes.record_first_use("fairlead")
    assert await notes.record_first_use("another prefix")


async def test_the_engine_may_do_all_of_it(database: Database, notes: PostgresGateNotes) -> None:
    await connected(database)
    admin = await asyncpg.connect(database.settings.dsn)
    try:
        await admin.execute(f'SET search_path = "{database.settings.in_schema}"')
        await admin.execute("SET ROLE fairlead_engine")
        await admin.execute("INSERT INTO gate_first_use (prefix) VALUES ('p')")
        await admin.execute(
            "INSERT INTO observed_limit (connection_id, tenant_id, limit_name, version, capacity, per_s) "
            "SELECT connection_id, tenant_id, 'points', 1, 2, 3 FROM connection"
        )
    finally:
        await admin.close()
