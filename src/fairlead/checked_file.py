"""Reads files that hold secrets or rule what fairlead does: the one way in (tests/lint holds it).

Such a file belongs to root or to the user that runs this, is a regular file, and others cannot write it; what
holds a secret, others cannot read either, but for a group of this process, as Kubernetes mounts secrets
(fsGroup). All is asked of the descriptor that is read, whatever the name
leads to later. A pipe or a device cannot make the caller wait. Links are followed: mounted secrets are links.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NamedTuple

from fairlead.errors import ConfigInvalid, FairleadError

SETTINGS_BYTES = 1 << 20


class CheckedFile(NamedTuple):
    """What a file held, and whose it is, for what turns out to be secret (check_private)."""

    file: Path
    data: bytes
    about: os.stat_result


def check_private(file: Path, about: os.stat_result, error: type[FairleadError] = ConfigInvalid) -> None:
    """Raise *error* if others can read or write *file*; a group of this process may read it."""
    is_ours = about.st_gid in (os.getegid(), *os.getgroups())
    if about.st_mode & (0o037 if is_ours else 0o077):
        told = f"{file} holds a secret and has mode {stat.S_IMODE(about.st_mode):04o}: others can read it"
        raise error(told, hint=f"chmod 600 {file}")


def check_folder(folder: Path) -> None:
    """Raise ConfigInvalid if others can replace files of *folder*, which is not mounted read-only."""
    mode = folder.stat().st_mode
    if mode & 0o022 and not mode & stat.S_ISVTX and not os.statvfs(folder).f_flag & os.ST_RDONLY:
        told = f"{folder} has mode {stat.S_IMODE(mode):04o}: others can replace its files"
        raise ConfigInvalid(told, hint=f"chmod go-w {folder}")


def others_reach(file: Path) -> bool:
    """Return whether each folder above *file* lets others through."""
    return all(folder.stat().st_mode & 0o011 for folder in file.resolve().parents)


def read_checked(
    file: Path,
    *,
    most_bytes: int = SETTINGS_BYTES,
    is_secret: bool = False,
    error: type[FairleadError] = ConfigInvalid,
) -> CheckedFile:
    """Read a file that this process may trust.

    Args:
        most_bytes: A larger file is refused. Default 1 MiB.
        is_secret: Whether others must not be able to read it. Default False.
        error: What is raised for a file that is refused.

    Raises:
        OSError: The file is not there or cannot be opened.
    """
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        about = os.fstat(descriptor)
        _check(file, about, is_secret, error)
        with os.fdopen(descriptor, "rb", closefd=False) as opened:
            found = CheckedFile(file, opened.read(most_bytes + 1), about)
    finally:
        os.close(descriptor)
    if len(found.data) > most_bytes:
        raise error(f"{file} is larger than {most_bytes} bytes", hint="name a smaller file")
    return found


def _check(file: Path, about: os.stat_result, is_secret: bool, error: type[FairleadError]) -> None:
    if not stat.S_ISREG(about.st_mode):
        raise error(f"{file} is no regular file", hint="name a file, not a pipe, folder or device")
    if about.st_uid not in (0, os.geteuid()):
        raise error(f"{file} belongs to another user", hint=f"chown {os.geteuid()} {file}")
    if is_secret:
        check_private(file, about, error)
    if about.st_mode & 0o022:
        told = f"{file} has mode {stat.S_IMODE(about.st_mode):04o}: others can write it"
        raise error(told, hint=f"chmod go-w {file}")
