"""What `doctor` makes of what servers say of themselves."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from urllib.parse import urlsplit

import asyncpg
import pytest

from fairlead._core.secret import Secret
from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.postgres_info import PostgresInfo, RowSecurityState, server_facts
from fairlead.adapters.postgres.statements import Statement
from fairlead.adapters.redis import RedisInfo, redis_info
from fairlead.assembly.doctor.data_checks import issuer_clocks_check
from fairlead.assembly.doctor.database_checks import (
    clock_check,
    durability_check,
    migrations_check,
    role_check,
    row_security_check,
    snapshot_check,
    version_check,
)
from fairlead.assembly.doctor.server_checks import embedded_check, redis_check
from fairlead.errors import DependencyUnavailableError, InvalidConfigError
from tests.support.rows import run
from tests.support.servers import drop_database, fresh_database

WALL = RowSecurityState(role=True, bound=True, member=True, guarded=True)
SERVER = PostgresInfo(180004, "on", "read committed", True, WALL, skew_s=0.0, doubt_s=0.001)
REDIS = RedisInfo("Valkey", "9.1.2", "noeviction", 0, appends=True, read_only=False)


@pytest.mark.parametrize(
    ("facts", "status"),
    [
        (REDIS, "ok"),
        (replace(REDIS, eviction=""), "ok"),
        (replace(REDIS, eviction="allkeys-lru"), "fail"),
        (replace(REDIS, eviction="volatile-ttl"), "fail"),
        (replace(REDIS, appends=False), "warn"),
        (replace(REDIS, read_only=True), "fail"),
    ],
)
def test_redis_must_keep_what_it_is_given(facts: RedisInfo, status: str) -> None:
    check = redis_check(facts)
    assert (check.status, bool(check.hint)) == (status, status != "ok")


@pytest.mark.parametrize(
    ("skew_s", "doubt_s", "status"),
    [(0.2, 0.01, "ok"), (-5.0, 0.01, "warn"), (5.0, 4.5, "ok"), (60.0, 0.1, "fail"), (-60.0, 0.1, "fail")],
)
def test_clocks(skew_s: float, doubt_s: float, status: str) -> None:
    check = clock_check(replace(SERVER, skew_s=skew_s, doubt_s=doubt_s))
    assert check.status == status
    assert ("behind" if skew_s > 0 else "ahead of") in check.detail


def test_servers_that_lose_data_or_are_too_old() -> None:
    assert version_check(SERVER).status == "ok"
    assert version_check(replace(SERVER, version=140020)).status == "fail"
    assert version_check(replace(SERVER, isolation="serializable")).status == "fail"
    assert version_check(replace(SERVER, encoding="LATIN1")).status == "fail"
    states = {
        value: durability_check(replace(SERVER, synchronous_commit=value)).status
        for value in ("on", "local", "off")
    }
    assert states == {"on": "ok", "local": "warn", "off": "fail"}
    assert role_check(replace(SERVER, is_engine=False)).status == "fail"
    assert row_security_check(WALL).status == "ok"


@pytest.mark.parametrize(
    ("missing", "way_out"),
    [
        ("role", "CREATE ROLE"),
        ("guarded", "fairlead migrate"),
        ("bound", "NOBYPASSRLS"),
        ("member", "GRANT fairlead_tenant"),
    ],
)
def test_missing_part_of_the_wall_is_a_warning_with_a_hint(missing: str, way_out: str) -> None:
    """Not a failure: the statements go on saying whose rows they mean."""
    check = row_security_check(replace(WALL, **{missing: False}))
    assert check.status == "warn"
    assert check.hint is not None
    assert way_out in check.hint


def test_a_snapshot_that_is_held_for_long_is_told_with_its_holder() -> None:
    assert snapshot_check(SERVER).status == "ok"
    assert snapshot_check(replace(SERVER, snapshot_s=299.0, snapshot_of="session 7")).status == "ok"
    check = snapshot_check(replace(SERVER, snapshot_s=301.0, snapshot_of="session 7"))
    assert (check.status, "session 7" in check.detail) == ("warn", True)


def test_a_slot_that_is_far_behind_is_told_and_so_is_what_cannot_be_seen() -> None:
    assert snapshot_check(replace(SERVER, behind=99_999, behind_of="replication slot x")).status == "ok"
    check = snapshot_check(replace(SERVER, behind=100_000, behind_of="replication slot x", unseen=True))
    assert (check.status, "replication slot x" in check.detail) == ("warn", True)
    check = snapshot_check(replace(SERVER, unseen=True))
    assert (check.status, check.detail) == ("warn", "cannot see other users' sessions")
    assert "GRANT pg_read_all_stats" in str(check.hint)


async def test_a_transaction_of_another_database_keeps_no_row_of_ours(
    database_settings: DatabaseSettings, servers: Endpoints
) -> None:
    url = await fresh_database(servers.database_url)
    elsewhere = await asyncpg.connect(url)
    async with elsewhere.transaction():
        await elsewhere.fetchval("SELECT pg_current_xact_id()::text")
        pid = await elsewhere.fetchval("SELECT pg_backend_pid()")
        facts = await server_facts(database_settings)
    assert f"session {pid} " not in facts.snapshot_of
    await elsewhere.close()
    await drop_database(servers.database_url, url)


async def test_role_without_a_view_of_other_sessions_is_reported(
    database: Database, database_settings: DatabaseSettings
) -> None:
    await run(database, "CREATE ROLE shortsighted LOGIN")
    try:
        parts = urlsplit(database_settings.dsn)
        dsn = parts._replace(netloc=f"shortsighted@{parts.netloc.rpartition('@')[2]}").geturl()
        settings = replace(database_settings, dsn=dsn)
        facts = await server_facts(settings)
        assert facts.unseen
        hint = snapshot_check(facts).hint
        assert hint == "have an administrator run GRANT pg_read_all_stats TO shortsighted"
        await run(database, hint.removeprefix("have an administrator run "))
        assert not (await server_facts(settings)).unseen
    finally:
        await run(database, "DROP ROLE shortsighted")


async def test_a_real_server_tells_who_holds_the_oldest_snapshot(
    database: Database, database_settings: DatabaseSettings
) -> None:
    async with database.transaction() as holding:
        await holding.fetch(Statement("test", "SELECT pg_current_xact_id()", ()))
        facts = await server_facts(database_settings)
        assert facts.snapshot_s > 0.0
        assert "session" in facts.snapshot_of


def test_missing_migrations_stop_a_server_of_yours_only() -> None:
    assert migrations_check([], by_itself=False).status == "ok"
    assert migrations_check(["0002_x"], by_itself=False).status == "fail"
    assert migrations_check(["0002_x"], by_itself=True).status == "warn"


def test_later_migration_is_a_warning() -> None:
    waits = migrations_check([], ["0003_y"], by_itself=False)
    assert (waits.status, "0003_y" in waits.detail) == ("warn", True)
    assert migrations_check(["0002_x"], ["0003_y"], by_itself=False).status == "fail"
    assert "0003_y" in migrations_check([], ["0003_y"], by_itself=True).detail


@pytest.mark.parametrize(
    ("version", "status"), [("18.4", "warn"), ("18.5", "ok"), ("18.7", "ok"), ("19.0", "ok")]
)
def test_an_embedded_server_that_falls_behind(version: str, status: str) -> None:
    assert embedded_check(version, "9.1.2").status == status


async def test_a_real_server_tells_its_facts(servers: Endpoints) -> None:
    facts = await redis_info(Secret(servers.redis_url))
    assert (facts.product, facts.eviction, facts.read_only) == ("Valkey", "noeviction", False)


async def test_a_server_that_is_not_there_is_told_without_its_password() -> None:
    with pytest.raises(DependencyUnavailableError) as caught:
        await redis_info(Secret("redis://:canary@127.0.0.1:1/0"), timeout_s=1.0)
    assert "canary" not in str(caught.value)
    for url in ("nonsense", "redis://:can/ary@127.0.0.1:x/0"):
        with pytest.raises(InvalidConfigError) as wrong:
            await redis_info(Secret(url))
        assert "ary" not in str(wrong.value).replace("URL", "")


def test_doctor_names_the_clock_that_a_signed_assertion_was_refused_by() -> None:
    assert issuer_clocks_check([]).status == "ok"
    entry = SimpleNamespace(provider="netsuite", reason="its clock says 12:00, the database's 15:00")
    check = issuer_clocks_check([entry, entry])  # type: ignore[list-item]
    assert (check.status, check.name) == ("fail", "issuer clocks")
    assert check.detail.startswith("2 connections of netsuite cannot refresh")
    assert entry.reason in check.detail
