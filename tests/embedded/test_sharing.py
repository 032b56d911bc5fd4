"""Any number of processes share one root; the servers end with the last, however it ends."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import asyncpg
import pytest

from fairlead.adapters.embedded import EmbeddedServers, Endpoints
from fairlead.errors import InvalidInputError
from tests.embedded.support import (
    User,
    all_listen,
    any_listens,
    query,
    server_pids,
    supervisor_pid,
    valkey,
    wait_all_gone,
    wait_until,
)
from tests.support.standstill import ran_s

pytestmark = pytest.mark.slow  # each starts real servers
SETTINGS = {"fsync": "off"}


async def test_starts_from_nothing_quickly_and_is_adopted_at_once(root: Path) -> None:
    began_s = time.monotonic()
    first = EmbeddedServers(root)  # durable, as users have it
    endpoints = first.start()
    assert ran_s(began_s) < 5
    second = EmbeddedServers(root)
    assert min(_adoption_s(second, endpoints) for _ in range(5)) < 0.2
    connection = await asyncpg.connect(endpoints.database_url)
    assert await connection.fetchval("select current_database()") == "fairlead"
    await connection.close()
    with valkey(endpoints) as store:
        assert store.info("server")["valkey_version"] == endpoints.valkey_version
    assert endpoints.postgres_version.startswith("18.")
    second.stop()


def _adoption_s(servers: EmbeddedServers, expected: Endpoints) -> float:
    began_s = time.monotonic()
    assert servers.start() == expected
    servers.release()
    return time.monotonic() - began_s


def test_settings_and_modes_are_those_promised(root: Path) -> None:
    settings = {"max_connections": "37", "valkey.enable-debug-command": "local"}
    with EmbeddedServers(root, settings=settings) as endpoints:
        shown = dict(query(endpoints.database_url, "select name, setting from pg_settings"))
        with valkey(endpoints) as store:
            config = store.config_get("*")
        for private in ("servers", "servers/run", "endpoints.json", "postgres.log"):
            assert (root / private).stat().st_mode & 0o077 == 0, private
    assert {name: shown[name] for name in ("fsync", "synchronous_commit", "listen_addresses")} == {
        "fsync": "on",
        "synchronous_commit": "on",
        "listen_addresses": "",
    }
    assert shown["max_connections"] == "37"
    assert (shown["TimeZone"], shown["log_min_messages"], shown["shared_buffers"]) == (
        "UTC",
        "warning",
        "16384",
    )
    expected = {
        "appendonly": "yes",
        "appendfsync": "everysec",
        "maxmemory-policy": "noeviction",
        "maxmemory": str(512 * 1024 * 1024),
        "aof-use-rdb-preamble": "yes",
        "auto-aof-rewrite-percentage": "100",
        "auto-aof-rewrite-min-size": str(64 * 1024 * 1024),
        "unixsocketperm": "700",
        "port": "0",
        "enable-debug-command": "local",
    }
    assert {name: config[name] for name in expected} == expected


def test_the_first_ends_and_the_second_goes_on_and_the_last_stops_them(root: Path) -> None:
    first = User(root)
    endpoints = first.endpoints()
    second = User(root)
    assert second.endpoints() == endpoints
    pids = server_pids(root)
    first.leave()
    with EmbeddedServers(root, settings=SETTINGS):  # someone who stays a moment, long enough for the linger
        time.sleep(0.6)
    assert server_pids(root) == pids
    assert all_listen(endpoints)
    second.leave()
    wait_all_gone(root, endpoints)


def test_a_killed_user_counts_as_gone(root: Path) -> None:
    user = User(root)
    endpoints = user.endpoints()
    user.kill()
    wait_all_gone(root, endpoints)


def test_a_user_killed_while_the_servers_start_leaves_nothing(root: Path) -> None:
    user = User(root)
    wait_until((root / "servers").exists, "the supervisor at work")
    user.kill()
    with EmbeddedServers(root, settings=SETTINGS) as endpoints:
        assert query(endpoints.database_url, "select 1") == [(1,)]
    wait_all_gone(root, endpoints)


def test_many_start_at_once_and_get_the_same_servers(root: Path) -> None:
    users = [User(root) for _ in range(6)]
    with ThreadPoolExecutor(len(users)) as pool:
        endpoints = set(pool.map(User.endpoints, users))
    assert len(endpoints) == 1
    assert len(query(endpoints.pop().database_url, "select 1")) == 1
    for user in users:
        user.kill()


def test_coming_and_going_meets_no_half_stopped_servers(root: Path) -> None:
    data: list[int] = []
    for round_number in range(6):  # the linger is 0.3 s: these gaps lie before, at and after it
        with EmbeddedServers(root, settings=SETTINGS) as endpoints:
            query(endpoints.database_url, "create table if not exists visit (n int)")
            query(endpoints.database_url, f"insert into visit values ({round_number})")
            data = [n for (n,) in query(endpoints.database_url, "select n from visit order by n")]
        time.sleep(0.1 * round_number)
    assert data == list(range(6))


def test_stop_stops_though_others_use_them_and_start_brings_them_back(root: Path) -> None:
    mine = EmbeddedServers(root, settings=SETTINGS)
    endpoints = mine.start()
    query(endpoints.database_url, "create table kept as select 7 as n")
    EmbeddedServers(root).stop()
    assert not any_listens(endpoints)
    assert not (root / "stop").exists()
    assert mine.start() == endpoints
    assert query(endpoints.database_url, "select n from kept") == [(7,)]
    mine.release()


def test_stop_where_nothing_runs_does_nothing(root: Path) -> None:
    EmbeddedServers(root).stop()
    assert not root.exists()


def test_a_supervisor_asked_to_end_stops_both_cleanly(root: Path) -> None:
    servers = EmbeddedServers(root, settings=SETTINGS)
    endpoints = servers.start()
    os.kill(supervisor_pid(root), signal.SIGTERM)
    wait_all_gone(root, endpoints)
    assert "database system is shut down" in (root / "postgres.log").read_text()
    servers.release()


@pytest.mark.parametrize("name", ["Max", "max connections", "-D", "valkey.", "x=y"])
def test_impossible_settings_are_refused_before_anything_starts(root: Path, name: str) -> None:
    with pytest.raises(InvalidInputError, match="hint: "):
        EmbeddedServers(root, settings={name: "1"})
