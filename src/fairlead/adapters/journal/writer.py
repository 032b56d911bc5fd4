"""The writer's thread. Entries that wait during a sync share the next one (group commit).

After a failed write or sync a segment is not used again: the kernel may have dropped the pages, and a second
fsync would succeed. The unacknowledged entries are written to the spare. If that fails too, their callers get
the error.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from fairlead.adapters.journal.disk import Disk
from fairlead.adapters.journal.segment import Segment, Segments


@dataclass(slots=True, eq=False)
class Append:
    """A request to write one frame.

    Attributes:
        frame: The bytes.
        key: The connection's key, for the index of the file.
        epoch: The epoch of the entry, for the index of the file.
        loop: The event loop that *on_done* is called on.
        on_done: Called once the frame is on disk with its segment, or else with the error.
    """

    frame: bytes
    key: int
    epoch: int
    loop: asyncio.AbstractEventLoop
    on_done: Callable[[Segment | None, OSError | None], None]


@dataclass(slots=True, eq=False)
class Stop:
    """A request to write all earlier entries, and end."""


_Job = Append | Stop


class Writer(threading.Thread):
    """Writes frames into *segments*."""

    def __init__(self, segments: Segments, disk: Disk) -> None:
        super().__init__(name="fairlead-journal", daemon=True)
        self._segments = segments
        self._disk = disk
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._busy_since_mono: float | None = None

    def put(self, job: _Job) -> None:
        """Hand over *job*; never waits."""
        self._jobs.put(job)

    def busy_s(self) -> float:
        """Return how long the present batch has taken so far."""
        since_mono = self._busy_since_mono
        return 0.0 if since_mono is None else time.monotonic() - since_mono

    def run(self) -> None:
        """Write until a Stop arrives."""
        stopping = False
        while not stopping:
            jobs = self._take()
            stopping = any(isinstance(job, Stop) for job in jobs)
            self._busy_since_mono = time.monotonic()
            self._commit([job for job in jobs if isinstance(job, Append)])
            self._busy_since_mono = None

    # ---- what goes together

    def _take(self) -> list[_Job]:
        """Return all waiting jobs; wait for the first."""
        jobs = [self._jobs.get()]
        while True:
            try:
                jobs.append(self._jobs.get_nowait())
            except queue.Empty:
                return jobs

    # ---- to the disk

    def _commit(self, appends: Sequence[Append]) -> None:
        while appends:
            fitting, error = self._write_first(appends)
            _notify(appends[:fitting], self._segments.active if error is None else None, error)
            appends = appends[fitting:]

    def _write_first(self, appends: Sequence[Append]) -> tuple[int, OSError | None]:
        """Write as many as fit, to a second segment if one fails; return how many, and the error."""
        error: OSError | None = None
        for _ in range(2):
            try:
                segment = self._room_for(len(appends[0].frame))
            except OSError as failed:  # no spare can be made
                return len(appends), error or failed
            fitting = _fitting(appends, segment.room)
            try:
                self._put_down(segment, appends[:fitting])
            except OSError as failed:
                segment.bad = True
                error = failed
            else:
                return fitting, None
        return len(appends), error

    def _room_for(self, needed: int) -> Segment:
        active = self._segments.active
        if active is None or active.bad or active.room < needed:
            active = self._segments.advance()
        return active

    def _put_down(self, segment: Segment, appends: Sequence[Append]) -> None:
        self._disk.write(segment.descriptor, b"".join(job.frame for job in appends), segment.used)
        self._disk.sync(segment.descriptor)
        for job in appends:
            segment.entries.add(job.key, job.epoch, segment.used)
            segment.used += len(job.frame)


def _fitting(appends: Sequence[Append], room: int) -> int:
    count = 0
    for job in appends:
        room -= len(job.frame)
        if room < 0:
            break
        count += 1
    return count


def _notify(appends: Sequence[Append], segment: Segment | None, error: OSError | None) -> None:
    """Wake each waiting loop once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Append]] = {}
    for job in appends:
        by_loop.setdefault(job.loop, []).append(job)
    for loop, jobs in by_loop.items():
        with suppress(RuntimeError):  # the loop was closed, so that no task waits
            loop.call_soon_threadsafe(_notify_here, jobs, segment, error)


def _notify_here(jobs: Sequence[Append], segment: Segment | None, error: OSError | None) -> None:
    for job in jobs:
        job.on_done(segment, error)
