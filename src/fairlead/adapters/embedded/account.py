"""Selects the operating system account that the servers run under.

PostgreSQL refuses to run as root, so root starts the servers under an existing unprivileged account. Any
other user starts them under its own account. No account is created, and the mode of an existing folder is
never widened. If the account cannot reach a folder, the servers use another one (home.py), or their programs
are copied (wheels.py).
"""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairlead.errors import DependencyUnavailableError

__all__ = ["ServerAccount", "can_enter", "can_use_tree", "explain_os_errors", "server_account"]

UNPRIVILEGED = ("nobody", "daemon")


@dataclass(frozen=True, slots=True)
class ServerAccount:
    """An account to start programs under.

    Attributes:
        switch: Whether the account differs from that of this process.
    """

    uid: int
    gid: int
    switch: bool

    def popen_options(self) -> dict[str, Any]:
        """Return the keyword arguments with which `subprocess` starts a program under this account."""
        if not self.switch:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def take_ownership(self, path: Path) -> None:
        """Make this account the owner of *path*."""
        if self.switch:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)


def server_account() -> ServerAccount:
    """Return the account for the servers that this process starts.

    Raises:
        DependencyUnavailableError: This process is root, and the system has no unprivileged account.
    """
    if os.geteuid() != 0:
        return ServerAccount(os.geteuid(), os.getegid(), switch=False)
    for name in UNPRIVILEGED:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return ServerAccount(entry.pw_uid, entry.pw_gid, switch=True)
    raise DependencyUnavailableError(
        "PostgreSQL does not run as root, and this system has no account 'nobody' or 'daemon'",
        hint="run as an ordinary user, or set DATABASE_URL and REDIS_URL",
    )


def can_enter(account: ServerAccount, folder: Path) -> bool:
    """Return whether *account* may pass through *folder* and all its parents.

    For the account of this process it is always True: a later access fails with the kernel's error.
    """
    if not account.switch:
        return True
    real = folder.resolve()
    return all(_allows(account, ancestor, 0o1) for ancestor in (real, *real.parents))


def can_use_tree(account: ServerAccount, top: Path) -> bool:
    """Return whether *account* may pass the parents of *top*, and read *top* and everything below it.

    For the account of this process it is always True: a later access fails with the kernel's error.
    """
    if not account.switch:
        return True
    return can_enter(account, top) and all(
        _allows(account, path, 0o5 if path.is_dir() else 0o4) for path in (top, *top.rglob("*"))
    )


def _allows(account: ServerAccount, path: Path, need: int) -> bool:
    # The kernel checks one class only: it refuses an owner without the bit even if others have it.
    status = path.stat()
    if status.st_uid == account.uid:
        granted = status.st_mode >> 6
    elif status.st_gid == account.gid:
        granted = status.st_mode >> 3
    else:
        granted = stat.S_IMODE(status.st_mode)
    return granted & need == need


@contextmanager
def explain_os_errors(problem: str) -> Iterator[None]:
    """Turn an OSError of the block into a DependencyUnavailableError that begins with *problem*."""
    try:
        yield
    except OSError as error:
        raise DependencyUnavailableError(
            f"{problem}: {error}",
            hint="use a folder that this user may write to, or set DATABASE_URL and REDIS_URL",
        ) from error
