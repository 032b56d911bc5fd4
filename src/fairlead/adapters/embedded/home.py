"""The folders of data and sockets of the servers that belong to one root folder.

Normally these are `root/servers` and `root/servers/run`. In two cases one of them is a symbolic link to
another place. `servers` is a link if the account of the servers cannot reach the root folder, as with a
checkout in a 0700 home that root uses. `servers/run` is a link if its path is too long for a socket. A link
is moved and removed together with the root folder; a computed path would not be.
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

STATE_FOLDER = Path("/var/lib/fairlead")  # not a temporary folder: those are cleaned while servers run
SHORT_FOLDER = Path("/tmp")  # noqa: S108 - only sockets, in a 0700 folder with a random name
LONGEST_SOCKET_FOLDER_BYTES = 85  # sun_path holds 104 bytes on macOS; `/.s.PGSQL.5432.lock` needs 19
OTHERS = 0o077
_PLAIN = re.compile(r"[A-Za-z0-9_./-]+")  # needs no quoting in a URL or in a list of folders


class Home:
    """The folders of one root. Creating an instance creates the folders, and may be repeated."""

    def __init__(self, root: Path) -> None:
        """Create the folders, or check those that exist.

        Raises:
            DependencyUnavailableError: A folder cannot be created, belongs to another user, is gone, or is
                open to others.
        """
        self.layout = Layout(root.resolve())
        self.account = server_account()
        self.layout.make()
        with explain_os_errors(f"cannot create the folder for the servers of {root}"):
            self.servers = self._resolve_servers()

    def folder(self, name: str) -> Path:
        """Create the folder of the server *name* if it is absent, and return it.

        Only the account of the servers has access to it.
        """
        return self._private_folder(self.servers / name)

    def sockets(self) -> Path:
        """Return the folder of the sockets. Its path is short, and needs no quoting in a URL."""
        run = self.servers / "run"
        fits = len(os.fsencode(run)) <= LONGEST_SOCKET_FOLDER_BYTES and _PLAIN.fullmatch(str(run))
        if fits and not run.is_symlink():
            return self._private_folder(run)
        if not self._is_ours(run):  # a first start, a removed folder, or one that another user put there
            short = self._temporary_folder(SHORT_FOLDER)
            run.unlink(missing_ok=True)
            run.symlink_to(short)
        return run.readlink()

    def _resolve_servers(self) -> Path:
        servers = self.layout.servers
        if not os.path.lexists(servers):
            self._create_servers(servers)
        self._check(servers)
        return servers.resolve()

    def _create_servers(self, servers: Path) -> None:
        if can_enter(self.account, servers.parent):
            unfinished = self._temporary_folder(servers.parent)
            try:
                unfinished.rename(servers)
            except OSError:  # another process created it first
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
                f"{servers} points to {servers.readlink()}, which does not exist any more, nor does its data",
                hint=f"restore that folder, or remove {servers} to start with empty servers",
            )
        owner = servers.stat().st_uid
        if owner != self.account.uid:
            raise DependencyUnavailableError(
                f"{servers} belongs to user id {owner}, but servers started here run as {self.account.uid}",
                hint="run as the user who created that folder, or use another one",
            )
        if not can_enter(self.account, servers):
            raise DependencyUnavailableError(
                f"user id {self.account.uid}, which runs the servers, can no longer reach {servers}",
                hint=f"give it access to the parent folders again, as when {servers} was created",
            )
        self._check_private(servers.resolve())

    def _temporary_folder(self, parent: Path) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="fairlead-", dir=parent))  # 0700
        self.account.take_ownership(folder)
        return folder

    def _private_folder(self, path: Path) -> Path:
        with suppress(FileExistsError):  # of an earlier start, or another process created it first
            path.mkdir(mode=0o700)
        self._check_private(path)
        self.account.take_ownership(path)
        return path

    def _check_private(self, path: Path) -> None:
        """Raise DependencyUnavailableError if another account may enter *path*.

        The servers ask for no password, so access to their folders is access to all data.
        """
        status = path.lstat()
        if not stat.S_ISDIR(status.st_mode):
            raise DependencyUnavailableError(
                f"{path} is a link or a file instead of a folder, so others may control what it leads to",
                hint="replace it by the folder itself",
            )
        if status.st_uid not in {self.account.uid, os.geteuid()}:  # root: created, not yet handed over
            raise DependencyUnavailableError(
                f"{path} belongs to user id {status.st_uid}, and the servers run as {self.account.uid}",
                hint="run as the user who created that folder, or use another root",
            )
        if status.st_mode & OTHERS:
            raise DependencyUnavailableError(
                f"{path} is open to other users, and the servers in it require no password",
                hint=f"check whether others used it, then run chmod 700 {path}",
            )

    def _is_ours(self, run: Path) -> bool:
        try:
            status = run.readlink().lstat()  # not stat: any user can put a link into SHORT_FOLDER
        except OSError:
            return False
        private = stat.S_ISDIR(status.st_mode) and not status.st_mode & OTHERS
        return private and status.st_uid == self.account.uid
