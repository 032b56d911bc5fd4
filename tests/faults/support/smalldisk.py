"""A disk of the experiment's own that is as small as it likes, and can be filled to the last byte.

It is a tmpfs: who may not mount one is told so, and the experiment is skipped with that reason.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

MiB = 1 << 20


@cache
def why_not() -> str:
    """Why no disk can be made here; "" where one can."""
    if sys.platform != "linux":
        return "small disks are tmpfs of Linux"
    try:
        with small_disk(1):
            return ""
    except (OSError, subprocess.CalledProcessError) as error:
        return f"no tmpfs can be mounted: {getattr(error, 'stderr', '') or error}".strip()


class Disk:
    """Made by `small_disk`. *folder* is where it is mounted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        """Leave no byte free, whoever else writes meanwhile."""
        status = os.statvfs(self.folder)
        size = status.f_bfree * status.f_frsize
        with self._ballast.open("ab") as file:
            while size >= status.f_frsize:
                try:
                    os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, size)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    size //= 2

    def free(self) -> None:
        """Make room again."""
        self._ballast.unlink()


@contextmanager
def small_disk(size_mib: int) -> Iterator[Disk]:
    """A disk of *size_mib*, which anybody may pass."""
    folder = tempfile.mkdtemp(prefix="fl-", dir="/tmp")  # short: sockets lie in it
    options = f"size={size_mib}m,mode=0711"
    try:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder]
        subprocess.run(command, check=True, capture_output=True, text=True)
        try:
            yield Disk(Path(folder))
        finally:
            subprocess.run(["umount", "--lazy", folder], check=True, capture_output=True, text=True)
    finally:
        os.rmdir(folder)
