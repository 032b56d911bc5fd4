"""Where the servers of one root keep their data and their sockets.

Normally `root/servers`. Two things can forbid that, and then `servers`, or `servers/run` in it, is a link:
root's servers run under an account that may be unable to reach root (a checkout in a 0700 home), and a
socket's path must be short. A link, not a computed name: moving or removing root moves or removes it too.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from fairlead.adapters.embedded.account import can_enter, explain_os_errors, server_account
from fairlead.adapters.embedded.layout import Layout
from fairlead.errors import DependencyUnavailableError

__all__ = ["Home"]

STATE_FOLDER = Path("/var/lib/fairlead")  # not a temporary folder: those are swept while we run
SHORT_FOLDER = Path("/tmp")  # noqa: S108 - only sockets, in a 0700 folder with a random name
LONGEST_SOCKET_FOLDER_BYTES = 85  # sun_path holds 104 bytes on macOS; `/.s.PGSQL.5432.lock` needs 19
OTHERS = 0o077
_PLAIN = re.compile(r"[A-Za-z0-9_./-]+")  # needs no quoting in a URL or in a list of folders


class Home:
    """The settled folders of one root. Making one touches the disk and may be repeated."""

    def __init__(self, root: Path) -> None:
        """Raises DependencyUnavailableError where the servers cannot have a place here."""
        self.layout = Layout(root.resolve())
        self.account = server_account()
        self.layout.make()
        with explain_os_errors(f"cannot make a place for the servers of {root}"):
            self.servers = self._settle()

    def folder(self, name: str) -> Path:
        """A folder for one server, which belongs to its account alone."""
        return self._own_folder(self.servers / name)

    def sockets(self) -> Path:
        """The folder of the sockets: short, and plain enough to stand in a URL."""
        run = self.servers / "run"
        fits = len(os.fsencode(run)) <= LONGEST_SOCKET_FOLDER_BYTES and _PLAIN.fullmatch(str(run))
        if fits and not run.is_symlink():
            return self._own_folder(run)
        if not self._is_ours(run):  # a first start, or the folder was swept, or a stranger put his there
            short = self._temporary_folder(SHORT_FOLDER)
            run.unlink(missing_ok=True)
            run.symlink_to(short)
        return run.readlink()

    def _settle(self) -> Path:
        servers = self.layout.servers
        if not os.path.lexists(servers):
            self._make_servers(servers)
        self._check(servers)
        return servers.resolve()

    def _make_servers(self, servers: Path) -> None:
        if can_enter(self.account, servers.parent):
            unfinished = self._temporary_folder(servers.parent)
            try:
                unfinished.rename(servers)
            except OSError:  # another process was faster; its folder is as good
                unfinished.rmdir()
            return
        STATE_FOLDER.mkdir(exist_ok=True)
        STATE_FOLDER.chmod(0o711)
        target = self._temporary_folder(STATE_FOLDER)
        try:
            servers.symlink_to(target)
        except FileExistsError:
            target.rmdir()

    def _check(self, servers: Path) -> None:
        if not servers.exists():
            raise DependencyUnavailableError(
                f"{servers} points to {servers.readlink()}, which is gone, and the data with it",
                hint=f"bring that folder back, or remove {servers} to start with empty servers",
            )
        owner = servers.stat().st_uid
        if owner != self.account.uid:
            raise DependencyUnavailableError(
                f"{servers} belongs to user id {owner}, but servers started here run as {self.account.uid}",
                hint="run as the user who made that folder, or use another one",
            )
        if not can_enter(self.account, servers):
            raise DependencyUnavailableError(
                f"user id {self.account.uid}, which runs the servers, can no longer reach {servers}",
                hint=f"let it pass the parent folders again, as when {servers} was made",
            )
        self._check_private(servers.resolve())

    def _temporary_folder(self, parent: Path) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="fairlead-", dir=parent))  # 0700
        self.account.own(folder)
        return folder

    def _own_folder(self, path: Path) -> Path:
        with suppress(FileExistsError):  # of an earlier start, or another process was faster
            path.mkdir(mode=0o700)
        self._check_private(path)
        self.account.own(path)
        return path

    def _check_private(self, path: Path) -> None:
        """The servers ask for no password: who gets into their folders may do everything."""
        status = path.lstat()
        if not stat.S_ISDIR(status.st_mode):
            raise DependencyUnavailableError(
                f"{path} is a link or a file, so others may decide what lies there",
                hint="put the folder itself in its place",
            )
        if status.st_uid not in {self.account.uid, os.geteuid()}:  # root's own: made, not yet handed over
            raise DependencyUnavailableError(
                f"{path} belongs to user id {status.st_uid}, and the servers run as {self.account.uid}",
                hint="run as the user who made that folder, or use another root",
            )
        if status.st_mode & OTHERS:
            raise DependencyUnavailableError(
                f"{path} is open to others, and the servers ask nobody who comes in for a password",
                hint=f"see who was there, then chmod 700 {path}",
            )

    def _is_ours(self, run: Path) -> bool:
        try:
            status = run.readlink().lstat()  # a link there would be whoever's who may write to SHORT_FOLDER
        except OSError:
            return False
        private = stat.S_ISDIR(status.st_mode) and not status.st_mode & OTHERS
        return private and status.st_uid == self.account.uid
