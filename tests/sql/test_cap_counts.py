"""What runs under a cap is counted from the oldest that runs, however many ran before (Q6, Q7, Q12)."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.jobs import PostgresJobStore
from fairlead.adapters.postgres.lanes import PostgresLaneStore
from fairlead.engine.ports import ClaimFilter, GroupCap, TenantShare
from tests.support.engine import IDS, new_job
from tests.support.notes import sql
from tests.support.raw_connections import raw_connection_of
from tests.support.rows import rows, run
from tests.support.seeds import a_session
from tests.support.snapshot import held_snapshot

RAN, CAP = 2_500, 3
CAPS: dict[str, TenantShare | GroupCap] = {
    "of a tenant": TenantShare("acme", max_running=CAP),
    "of a group": GroupCap("g", "acme", CAP),
    "shared": GroupCap("g", None, CAP),
}
SLICE = 100
RUN_AND_END = """
DO $$ DECLARE one uuid := (SELECT job_id FROM job LIMIT 1); BEGIN
    FOR ago_s IN REVERSE {first_ago_s}..{last_ago_s} LOOP
        UPDATE job SET state = 'running', session_id = gen_random_uuid(), lease_id = 1,
            started_at = now() - ago_s * interval '1 second' WHERE job_id = one;
        UPDATE job SET state = 'available', session_id = NULL, started_at = NULL WHERE job_id = one;
    END LOOP;
END $$
"""
READ_PLACES = "SELECT (lane_places(ARRAY['acme'], ARRAY['g'], ARRAY[1]))[1] AS n"
FULL = "SELECT cap_is_full('acme', 'g') AS full"
READ = """
SELECT sum(pg_stat_get_xact_tuples_returned(format('job_running_%s_idx', name)::regclass))::integer
FROM unnest(ARRAY['since', 'group_since']) AS name
"""
CLAIMED_LONG_AGO = """
UPDATE job SET state = 'running', session_id = $1, lease_id = 1, started_at = now() - interval '1 minute'
WHERE job_id = (SELECT job_id FROM job LIMIT 1)
"""
APPLYING = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '/* lane_apply %'"
COUNTED_FROM = "SELECT extract(epoch FROM now() - counted_from)::float8 AS ago_s FROM concurrency_cap"


async def set_cap(database: Database, cap: TenantShare | GroupCap) -> None:
    lanes = PostgresLaneStore(database)
    await (lanes.set_tenant(cap) if isinstance(cap, TenantShare) else lanes.set_group_cap(cap))


async def capped(database: Database, cap: str, jobs: int) -> PostgresJobStore:
    store = PostgresJobStore(database, IDS)
    await set_cap(database, CAPS[cap])
    await store.enqueue([new_job(group_key="g") for _ in range(jobs)])
    return store


async def count_places(database: Database) -> int:
    (row,) = await rows(database, READ_PLACES)
    return int(row["n"])


async def entries_read(database: Database, look: str) -> tuple[object, int]:
    """Return the result of *look*, and how many entries of the two indexes it read."""
    async with database.transaction() as transaction:
        count_before = (await transaction.fetch(sql(READ)))[0][0]
        result = (await transaction.fetch(sql(look)))[0][0]
        return result, (await transaction.fetch(sql(READ)))[0][0] - count_before


@pytest.mark.slow
@pytest.mark.parametrize("cap", CAPS)
async def test_cap_count_reads_no_job_that_ran_long_ago(
    database: Database, database_settings: DatabaseSettings, cap: str
) -> None:
    """Before and after ANALYZE. Without a stored start of the count, each look reads them all."""
    store, session_id = await capped(database, cap, 3), await a_session(database)
    async with held_snapshot(database_settings.dsn):
        for ago_s in range(RAN + 60, 60, -SLICE):  # each slice has the time of a statement
            await run(database, RUN_AND_END.format(first_ago_s=ago_s, last_ago_s=ago_s - SLICE + 1))
        assert await count_places(database) == CAP
        assert len(await store.claim(ClaimFilter(), 2, session_id)) == 2
        for statement in ("SELECT", "VACUUM (ANALYZE) job"):
            await run(database, statement)
            for look, expected in ((READ_PLACES, 1), (FULL, False)):
                result, read = await entries_read(database, look)
                assert result == expected
                assert 2 <= read <= 10
        for look in (READ_PLACES, FULL):
            await run(database, "UPDATE concurrency_cap SET counted_from = '-infinity'")
            assert (await entries_read(database, look))[1] > RAN


@pytest.mark.parametrize("cap", CAPS)
async def test_count_start_follows_the_oldest_running_job(database: Database, cap: str) -> None:
    """A long one is counted for as long as it runs, with what came after it."""
    store, session_id = await capped(database, cap, 3), await a_session(database)
    assert len(await store.claim(ClaimFilter(), 2, session_id)) == 2
    await run(database, "UPDATE job SET started_at = now() - interval '1 hour' WHERE state = 'running'")
    await run(database, "UPDATE concurrency_cap SET counted_from = '-infinity'")
    for _ in range(2):
        assert await count_places(database) == 1
        assert (await rows(database, COUNTED_FROM))[0]["ago_s"] == pytest.approx(3600.0, abs=5.0)
    await run(database, "UPDATE job SET started_at = now() WHERE state = 'running'")
    assert await count_places(database) == 1
    assert (await rows(database, COUNTED_FROM))[0]["ago_s"] == pytest.approx(20.0, abs=4.0)


@pytest.mark.parametrize("cap", CAPS)
@pytest.mark.parametrize("look", [READ_PLACES, FULL], ids=["held", "seen"])
async def test_a_clock_that_is_set_back_hides_nobody(database: Database, cap: str, look: str) -> None:
    """Whoever began by the new time is before the moment from which the old one counted."""
    store, session_id = await capped(database, cap, CAP), await a_session(database)
    assert len(await store.claim(ClaimFilter(), CAP, session_id)) == CAP
    await run(database, "UPDATE concurrency_cap SET counted_from = now() + interval '1 minute'")
    (row,) = await rows(database, look)
    assert row == ({"n": 0} if look == READ_PLACES else {"full": True})
    assert await count_places(database) == 0
    assert (await rows(database, COUNTED_FROM))[0]["ago_s"] == pytest.approx(20.0, abs=4.0)


@pytest.mark.parametrize("cap", CAPS)
async def test_a_suspect_that_has_not_begun_counts(database: Database, cap: str) -> None:
    store, session_id = await capped(database, cap, CAP), await a_session(database)
    await run(database, "UPDATE job SET crash_count = 1")
    for _ in range(CAP):
        assert await store.claim_suspect(ClaimFilter(), session_id) is not None
    assert {row["started_at"] for row in await rows(database, "SELECT started_at FROM job")} == {None}
    assert await count_places(database) == 0


@pytest.mark.parametrize("cap", CAPS)
async def test_a_suspect_that_begins_late_is_counted(database: Database, cap: str) -> None:
    """Its transaction stood still for a minute: it began before the moment that others might have noted."""
    store, session_id = await capped(database, cap, CAP), await a_session(database)
    await run(database, "UPDATE job SET crash_count = 1")
    assert await store.claim_suspect(ClaimFilter(), session_id) is not None
    await run(
        database, "UPDATE concurrency_cap SET counted_from = now() - interval '2 minutes'"
    )  # it was then
    assert await count_places(database) == CAP - 1
    await run(database, "UPDATE job SET started_at = now() - interval '1 minute' WHERE state = 'running'")
    assert await count_places(database) == CAP - 1


@pytest.mark.parametrize("cap", CAPS)
async def test_older_transaction_uses_a_count_start_stored_after_its_begin(
    database: Database, cap: str
) -> None:
    """A claim that is behind one that has just noted a moment does not count all that ever ran."""
    await capped(database, cap, 1)
    async with database.transaction() as transaction:
        earlier = raw_connection_of(transaction)
        await earlier.fetchval("SELECT now()")
        assert await count_places(database) == CAP
        counted_rows = await rows(database, COUNTED_FROM.replace("now()", "'epoch'"))
        assert await earlier.fetchval(READ_PLACES) == CAP
    assert await rows(database, COUNTED_FROM.replace("now()", "'epoch'")) == counted_rows


@pytest.mark.parametrize("cap", CAPS)
@pytest.mark.parametrize("is_capped", [False, True])
async def test_claim_during_the_setting_of_a_cap_is_counted(
    database: Database, cap: str, is_capped: bool
) -> None:
    """However long its commit takes: it held no row of the cap. Under another one no lane changes."""
    store, session_id = PostgresJobStore(database, IDS), await a_session(database)
    await store.enqueue([new_job(group_key="g") for _ in range(CAP)])
    if is_capped:
        another = CAPS["shared" if cap == "of a tenant" else "of a tenant"]
        await set_cap(database, replace(another, max_running=100))
    async with database.transaction() as transaction:
        slow = raw_connection_of(transaction)
        await slow.execute("SELECT FROM lane FOR UPDATE")
        await slow.execute(CLAIMED_LONG_AGO, session_id)
        setting = asyncio.create_task(set_cap(database, CAPS[cap]))
        while not setting.done() and not await rows(database, APPLYING):
            await asyncio.sleep(0.005)
        assert await count_places(database) == CAP
    await setting
    assert await count_places(database) == CAP - 1


async def test_claim_before_the_lanes_were_in_step_is_counted(database: Database) -> None:
    """Though somebody else set something in between, and the cap was taken for known."""
    lanes, store, session_id = (
        PostgresLaneStore(database),
        PostgresJobStore(database, IDS),
        await a_session(database),
    )
    await store.enqueue([new_job(group_key="g") for _ in range(CAP)])
    await lanes._locked(None, "group_cap_set", group_key="g", tenant_id="", max_running=CAP)
    await set_cap(database, TenantShare("another", max_running=1))
    async with database.transaction() as transaction:
        await raw_connection_of(transaction).execute(CLAIMED_LONG_AGO, session_id)
        assert await count_places(database) == CAP
    assert await count_places(database) == CAP, "a moment was noted"
    await lanes._apply_group("g", None)
    assert await count_places(database) == CAP - 1


async def test_caps_of_another_server_are_counted_as_ours_are(database: Database) -> None:
    """A copy of its tables brings its transaction ids, which may be far ahead."""
    await capped(database, "shared", 1)
    await run(database, "UPDATE concurrency_cap SET known_by = '1000000000000'")
    assert await count_places(database) == CAP
    assert (await rows(database, COUNTED_FROM))[0]["ago_s"] == pytest.approx(20.0, abs=4.0)


async def test_cap_counted_by_another_transaction_has_no_places(database: Database) -> None:
    await capped(database, "of a tenant", 1)
    async with database.transaction() as transaction:
        await raw_connection_of(transaction).fetch("SELECT FROM concurrency_cap FOR UPDATE")
        assert await count_places(database) == -1
    assert await count_places(database) == CAP
