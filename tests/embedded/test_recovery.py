"""Killed at any moment: what was committed is there again, and nothing is left running."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from pathlib import Path

import psycopg
import pytest

from fairlead.adapters.embedded import EmbeddedPostgres, EmbeddedServers
from fairlead.errors import DependencyUnavailableError
from tests.embedded.support import (
    User,
    all_listen,
    any_listens,
    kill,
    kill_and_wait,
    listens,
    query,
    runs,
    server_pids,
    sockets_of,
    supervisor_pid,
    valkey,
    wait_all_gone,
    wait_until,
)

pytestmark = pytest.mark.slow  # each starts real servers
SETTINGS = {"fsync": "off"}


def test_servers_of_a_killed_supervisor_are_adopted_and_later_stopped(root: Path) -> None:
    user = User(root)
    endpoints = user.endpoints()
    pids = server_pids(root)
    old = supervisor_pid(root)
    kill_and_wait(old)
    user.kill()
    assert all_listen(endpoints)  # nobody watches them now
    with EmbeddedServers(root, settings=SETTINGS) as adopted:
        assert adopted == endpoints
        assert server_pids(root) == pids
        assert supervisor_pid(root) != old
    wait_all_gone(root, endpoints)


def test_without_a_supervisor_the_last_user_and_stop_leave_no_server_behind(root: Path) -> None:
    servers = EmbeddedServers(root, settings=SETTINGS)
    endpoints = servers.start()
    kill_and_wait(supervisor_pid(root))
    servers.release()
    wait_all_gone(root, endpoints)
    servers.start()
    kill_and_wait(supervisor_pid(root))
    servers.stop()
    assert not any_listens(endpoints)


def test_killed_servers_come_back_by_themselves_with_their_data(root: Path) -> None:
    with EmbeddedServers(root, settings=SETTINGS) as endpoints, valkey(endpoints) as store:
        query(endpoints.database_url, "create table kept as select 7 as n")
        store.set("kept", "yes")
        pids_before = server_pids(root)
        for pid in pids_before:
            kill(pid)
        wait_until(lambda: not {None, *pids_before} & set(server_pids(root)), "two new servers")
        assert EmbeddedServers(root).start() == endpoints
        assert query(endpoints.database_url, "select n from kept") == [(7,)]
        assert store.get("kept") == "yes"


def test_a_server_that_keeps_dying_is_given_up_and_a_new_start_tries_again(root: Path) -> None:
    servers = EmbeddedServers(root, settings=SETTINGS)
    endpoints = servers.start()
    failure = root / "failure.json"

    def killed_until_given_up() -> bool:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, ValueError):
            os.kill(int((root / "servers/valkey/valkey.pid").read_text()), signal.SIGKILL)
        return failure.exists()

    wait_until(killed_until_given_up, "the supervisor gives up")
    assert not any_listens(endpoints)
    assert "died 6 times in 60 s, valkey last" in failure.read_text()
    assert servers.start() == endpoints
    servers.release()


def test_start_recovers_after_everything_was_killed(root: Path) -> None:
    """As after a power cut: stale pid files, sockets, endpoints, and no process."""
    user = User(root)
    endpoints = user.endpoints()
    query(endpoints.database_url, "create table kept as select 7 as n")
    with valkey(endpoints) as store:
        store.set("kept", "yes")
    for pid in (supervisor_pid(root), *server_pids(root)):
        kill(pid)
    user.kill()
    assert (root / "endpoints.json").exists()
    with EmbeddedServers(root, settings=SETTINGS) as again, valkey(again) as store:
        assert query(again.database_url, "select n from kept") == [(7,)]
        assert store.get("kept") == "yes"


def test_a_stale_pid_that_now_belongs_to_another_process_does_no_harm(root: Path) -> None:
    """After a reboot any process may have the old pid; PostgreSQL alone would refuse to start."""
    with EmbeddedServers(root, settings=SETTINGS) as endpoints:
        query(endpoints.database_url, "create table kept as select 7 as n")
        postmaster = root / "servers/postgres/data/postmaster.pid"
        socket_lock = Path(sockets_of(endpoints)[0] + ".lock")
        pid_lines, lock_lines = postmaster.read_text(), socket_lock.read_text()
    EmbeddedServers(root).stop()
    stranger = User(root.parent / "other")  # any living process that we may signal
    for path, lines in ((postmaster, pid_lines), (socket_lock, lock_lines)):
        path.write_text("\n".join([str(stranger.process.pid), *lines.split("\n")[1:]]))
        shutil.chown(path, (root / "servers").stat().st_uid)
    with EmbeddedServers(root, settings=SETTINGS) as again:
        assert query(again.database_url, "select n from kept") == [(7,)]
    EmbeddedServers(root).stop()
    assert stranger.process.poll() is None
    stranger.kill()
    EmbeddedServers(root.parent / "other").stop()


def test_a_first_start_cut_short_is_made_up(root: Path) -> None:
    user = User(root)
    unfinished = root / "servers/postgres/unfinished"
    wait_until((unfinished / "PG_VERSION").exists, "initdb at work")
    for entry in Path("/proc").glob("[0-9]*") if Path("/proc/self").exists() else ():
        if str(root).encode() in _command(entry) and b"embedded.supervisor" in _command(entry):
            kill(int(entry.name))
    user.kill()
    with EmbeddedServers(root, settings=SETTINGS) as endpoints:
        assert query(endpoints.database_url, "select 1") == [(1,)]
    assert not unfinished.exists()


def _command(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


def test_a_deleted_root_takes_its_servers_along(root: Path) -> None:
    user = User(root)
    endpoints = user.endpoints()
    pids = [*server_pids(root), supervisor_pid(root)]
    user.kill()
    shutil.rmtree(root)
    wait_until(lambda: not any(pid and runs(pid) for pid in pids), "all processes gone")
    assert not any_listens(endpoints)


def test_a_server_that_cannot_start_is_told_with_its_log(root: Path) -> None:
    servers = EmbeddedServers(root, settings={"max_connections": "none"})
    with pytest.raises(DependencyUnavailableError, match=r"(?s)postgres .*max_connections.*hint: "):
        servers.start()
    with EmbeddedServers(root, settings=SETTINGS) as endpoints:  # an old failure stands in nobody's way
        assert query(endpoints.database_url, "select 1") == [(1,)]


def test_postgres_for_tests_that_kill_it_runs_without_redis(root: Path) -> None:
    postgres = EmbeddedPostgres(root, settings=SETTINGS)
    url = postgres.start()
    query(url, "create table kept as select 7 as n")
    first = postgres.pid()
    postgres.kill()
    assert not postgres.alive()
    with pytest.raises(psycopg.OperationalError):
        query(url, "select 1")
    second = EmbeddedPostgres(root, settings=SETTINGS)
    assert second.start() == url
    assert postgres.start() == url  # adopted: another object started it
    adopted = postgres.pid()
    assert adopted not in (None, first)
    pid_file = postgres._pid_file
    pid_text = pid_file.read_text()
    for nobody in ("-1", "0", "1", "-7"):  # whoever may write as the server does signals no others through us
        pid_file.write_text(pid_text.replace(str(adopted), nobody, 1))
        assert postgres.pid() is None
    pid_file.write_text(pid_text)
    assert query(url, "select n from kept") == [(7,)]
    postgres.stop()
    assert not second.alive()
    assert not listens(f"{root}/servers/run/.s.PGSQL.5432")
