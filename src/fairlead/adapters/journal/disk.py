"""The system calls that make a journal durable. Tests put a failing disk in its place."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

_CHUNK = 1 << 20
_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)  # macOS: fsync alone stops at the drive's cache


class Disk:
    """Files that are on the disk when a method returns; each raises OSError."""

    def create(self, path: Path, size: int) -> int:
        """Create a file of *size* zeros, mode 0600, durable with its name; return its descriptor.

        Zeros are written out, not only reserved: writing over them later needs neither space nor a change
        of the file's metadata, which is what makes the sync of an entry cheap and unable to meet ENOSPC.
        """
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            for offset in range(0, size, _CHUNK):
                self.write(descriptor, bytes(min(_CHUNK, size - offset)), offset)
            self.sync(descriptor)
            self.sync_folder(path.parent)
        except BaseException:
            os.close(descriptor)
            path.unlink(missing_ok=True)  # what it took of a full disk is given back
            raise
        return descriptor

    def write(self, descriptor: int, data: bytes, offset: int) -> None:
        """Write all of *data* at *offset*."""
        done = 0
        while done < len(data):
            done += os.pwrite(descriptor, data[done:] if done else data, offset + done)

    def sync(self, descriptor: int) -> None:
        """Flush all that was written to the disk."""
        if _FULL_SYNC is not None:
            fcntl.fcntl(descriptor, _FULL_SYNC)
        else:
            os.fdatasync(descriptor)

    def sync_folder(self, folder: Path) -> None:
        """Flush the names in *folder* to the disk."""
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
