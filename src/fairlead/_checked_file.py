"""The only function that reads files which hold secrets or configure fairlead; tests/lint enforces that.

Such a file must be a regular file of root or of the user that runs this process, and must not be writable for
others. A file with a secret must not be readable for others, except for a group of this process, because
Kubernetes mounts secrets so (fsGroup). All checks use the descriptor that is read, so replacing the file has
no effect. A pipe or a device cannot block the caller. Links are followed, because mounted secrets are links.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NamedTuple

from fairlead.errors import FairleadError, InvalidConfigError

SETTINGS_BYTES = 1 << 20


class CheckedFile(NamedTuple):
    """The content of a file and its status, for a later check_private if it proves to be secret."""

    file: Path
    data: bytes
    about: os.stat_result


def check_private(file: Path, about: os.stat_result, error: type[FairleadError] = InvalidConfigError) -> None:
    """Raise *error* if others can read or write *file*; a group of this process may read it."""
    is_ours = about.st_gid in (os.getegid(), *os.getgroups())
    if about.st_mode & (0o037 if is_ours else 0o077):
        message = f"{file} holds a secret and has mode {stat.S_IMODE(about.st_mode):04o}: others can read it"
        raise error(message, hint=f"chmod 600 {file}")


def check_folder(folder: Path) -> None:
    """Raise InvalidConfigError if others can replace files of *folder*, which is not mounted read-only."""
    mode = folder.stat().st_mode
    if mode & 0o022 and not mode & stat.S_ISVTX and not os.statvfs(folder).f_flag & os.ST_RDONLY:
        message = f"{folder} has mode {stat.S_IMODE(mode):04o}: others can replace its files"
        raise InvalidConfigError(message, hint=f"chmod go-w {folder}")


def others_reach(file: Path) -> bool:
    """Return whether other users can traverse every folder above *file*."""
    return all(folder.stat().st_mode & 0o011 for folder in file.resolve().parents)


def read_checked(
    file: Path,
    *,
    most_bytes: int = SETTINGS_BYTES,
    is_secret: bool = False,
    error: type[FairleadError] = InvalidConfigError,
) -> CheckedFile:
    """Read a file that this process may trust.

    Args:
        most_bytes: A larger file is refused. Default 1 MiB.
        is_secret: Whether others must not be able to read it. Default False.
        error: The class of the error for a refused file.

    Raises:
        OSError: The file does not exist or cannot be opened.
    """
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        about = os.fstat(descriptor)
        _check_trusted(file, about, is_secret, error)
        with os.fdopen(descriptor, "rb", closefd=False) as opened:
            checked = CheckedFile(file, opened.read(most_bytes + 1), about)
    finally:
        os.close(descriptor)
    if len(checked.data) > most_bytes:
        raise error(f"{file} is larger than {most_bytes} bytes", hint="name a smaller file")
    return checked


def _check_trusted(file: Path, about: os.stat_result, is_secret: bool, error: type[FairleadError]) -> None:
    """Raise *error* unless *file* is a regular file that only root and this process's user can change."""
    if not stat.S_ISREG(about.st_mode):
        raise error(f"{file} is not a regular file", hint="name a file, not a pipe, folder or device")
    if about.st_uid not in (0, os.geteuid()):
        raise error(f"{file} belongs to another user", hint=f"chown {os.geteuid()} {file}")
    if is_secret:
        check_private(file, about, error)
    if about.st_mode & 0o022:
        message = f"{file} has mode {stat.S_IMODE(about.st_mode):04o}: others can write it"
        raise error(message, hint=f"chmod go-w {file}")
