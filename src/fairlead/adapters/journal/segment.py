"""The files of one owner: the segment that is written, and a spare that is ready before it is needed."""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from fairlead.adapters.journal.disk import Disk
from fairlead.adapters.journal.trailer import Entries, encode_trailer


@dataclass(slots=True)
class Segment:
    """A file of zeros, written from the front. *entries* lists what is on disk so far."""

    path: Path
    descriptor: int
    inode: int
    size: int
    used: int = 0
    bad: bool = False  # a write or sync failed: read it, never write it again
    entries: Entries = field(default_factory=Entries)

    @property
    def free_bytes(self) -> int:
        """The bytes that are not used yet."""
        return self.size - self.used

    def close(self, disk: Disk) -> None:
        """Cut off the unused space and append the index."""
        with suppress(OSError):  # leftover zeros are harmless; a file without an index is read whole
            if not self.bad:
                os.ftruncate(self.descriptor, self.used)
                if self.used:
                    disk.write(self.descriptor, encode_trailer(self.entries), self.used)
        with suppress(OSError):
            os.close(self.descriptor)


class Segments:
    """The active segment and its spare. Only the writer's thread calls `advance`; any thread may call the rest."""

    def __init__(self, folder: Path, owner: str, size: int, disk: Disk) -> None:
        self._folder = folder
        self._owner = owner
        self._size = size
        self._disk = disk
        self._number = 0
        self._maker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="fairlead-journal-spare")
        self._spare: Future[Segment] = self._maker.submit(self._make)
        self._swapping = threading.Lock()  # a preflight may repair the spare while the writer takes it
        self.active: Segment | None = None
        self.last_error: OSError | None = None  # why no file could be made, until one is made again

    def advance(self) -> Segment:
        """Close the active segment and continue in the spare; raise OSError if no spare can be made."""
        if self.active is not None:
            self._maker.submit(self.active.close, self._disk)  # frees space before the next spare
            self.active = None
        self.repair()
        spare = self._spare
        self.active = spare.result()
        with self._swapping:
            self._spare = self._maker.submit(self._make)
        return self.active

    def repair(self) -> None:
        """Try again to make a spare that could not be made."""
        with self._swapping:
            if self._spare.done() and self._spare.exception() is not None:
                self._spare = self._maker.submit(self._make)

    def ready(self) -> bool:
        """Return whether all responses in flight fit: into half a segment, or a whole spare."""
        active = self.active
        if active is not None and not active.bad and active.free_bytes * 2 >= active.size:
            return True
        return self._spare.done() and self._spare.exception() is None

    def in_place(self) -> bool:
        """Return whether the file of the active segment is still in place."""
        active = self.active
        try:
            return active is None or os.stat(active.path).st_ino == active.inode
        except OSError:
            return False

    def close(self, timeout_s: float) -> bool:
        """Close the active segment and the spare, and delete those without entries.

        Returns:
            False if the spare was not ready within *timeout_s* seconds; then nothing is closed.
        """
        self._maker.shutdown(wait=False)
        try:
            segments = [] if self._spare.exception(timeout_s) else [self._spare.result()]
        except TimeoutError:
            return False
        if self.active is not None:
            segments.append(self.active)
        for segment in segments:
            segment.close(self._disk)
            if segment.used == 0 and not segment.bad:
                segment.path.unlink(missing_ok=True)
        return True

    def _make(self) -> Segment:
        self._number += 1
        path = self._folder / f"{self._owner}.{self._number:06d}.journal"
        try:
            descriptor = self._disk.create(path, self._size)
        except OSError as error:
            self.last_error = error
            raise
        self.last_error = None
        return Segment(path, descriptor, os.fstat(descriptor).st_ino, self._size)
