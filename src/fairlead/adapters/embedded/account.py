"""Which account the servers run under.

PostgreSQL refuses to run as root, so root hands its servers to an existing unprivileged account; any
other user runs them as itself. No account is created and no foreign folder is opened up: where the
account cannot reach a folder, the servers go elsewhere (home.py) or their programs are copied (wheels.py).
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

__all__ = ["Account", "can_enter", "can_use_tree", "explain_os_errors", "server_account"]

UNPRIVILEGED = ("nobody", "daemon")


@dataclass(frozen=True, slots=True)
class Account:
    """An account to start programs under. ``switch`` tells whether it differs from this process's own."""

    uid: int
    gid: int
    switch: bool

    def popen_options(self) -> dict[str, Any]:
        """What `subprocess` needs to start a program under this account."""
        if not self.switch:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def own(self, path: Path) -> None:
        """Make *path* belong to this account."""
        if self.switch:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)


def server_account() -> Account:
    """The account for the servers of this process. Raises DependencyUnavailableError if root finds none."""
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid(), switch=False)
    for name in UNPRIVILEGED:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid, switch=True)
    raise DependencyUnavailableError(
        "PostgreSQL does not run as root, and this system has no account 'nobody' or 'daemon'",
        hint="run as an ordinary user, or set DATABASE_URL and REDIS_URL",
    )


def can_enter(account: Account, folder: Path) -> bool:
    """Whether *account* may pass *folder* and all its parents. Our own account: the kernel will tell."""
    if not account.switch:
        return True
    real = folder.resolve()
    return all(_allows(account, one, 0o1) for one in (real, *real.parents))


def can_use_tree(account: Account, top: Path) -> bool:
    """Whether *account* may read and enter *top*, all its parents and all that lies in it."""
    if not account.switch:
        return True
    return can_enter(account, top) and all(
        _allows(account, path, 0o5 if path.is_dir() else 0o4) for path in (top, *top.rglob("*"))
    )


def _allows(account: Account, path: Path, need: int) -> bool:
    # The kernel looks at one class only: an owner without the bit is refused though others have it.
    status = path.stat()
    if status.st_uid == account.uid:
        granted = status.st_mode >> 6
    elif status.st_gid == account.gid:
        granted = status.st_mode >> 3
    else:
        granted = stat.S_IMODE(status.st_mode)
    return granted & need == need


@contextmanager
def explain_os_errors(what: str) -> Iterator[None]:
    """Turn a file system's refusal into an error with a way out."""
    try:
        yield
    except OSError as error:
        raise DependencyUnavailableError(
            f"{what}: {error}",
            hint="use a folder that this user may write to, or set DATABASE_URL and REDIS_URL",
        ) from error
