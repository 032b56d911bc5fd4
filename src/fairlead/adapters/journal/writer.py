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


_Command = Append | Stop


class Writer(threading.Thread):
    """Writes frames into *segments*."""

    def __init__(self, segments: Segments, disk: Disk) -> None:
        super().__init__(name="fairlead-journal", daemon=True)
        self._segments = segments
        self._disk = disk
        self._commands: queue.SimpleQueue[_Command] = queue.SimpleQueue()
        self._busy_since_mono: float | None = None

    def put(self, command: _Command) -> None:
        """Hand over *command* without waiting."""
        self._commands.put(command)

    def busy_s(self) -> float:
        """Return how long the present batch has taken so far."""
        since_mono = self._busy_since_mono
        return 0.0 if since_mono is None else time.monotonic() - since_mono

    def run(self) -> None:
        """Write until a Stop arrives."""
        stopping = False
        while not stopping:
            commands = self._take()
            stopping = any(isinstance(command, Stop) for command in commands)
            self._busy_since_mono = time.monotonic()
            self._commit([command for command in commands if isinstance(command, Append)])
            self._busy_since_mono = None

    def _take(self) -> list[_Command]:
        """Return all waiting commands; wait for the first."""
        commands = [self._commands.get()]
        while True:
            try:
                commands.append(self._commands.get_nowait())
            except queue.Empty:
                return commands

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
                segment = self._segment_for(len(appends[0].frame))
            except OSError as failed:  # no spare can be made
                return len(appends), error or failed
            fitting = _count_fitting(appends, segment.free_bytes)
            try:
                self._write_and_sync(segment, appends[:fitting])
            except OSError as failed:
                segment.bad = True
                error = failed
            else:
                return fitting, None
        return len(appends), error

    def _segment_for(self, frame_bytes: int) -> Segment:
        active = self._segments.active
        if active is None or active.bad or active.free_bytes < frame_bytes:
            active = self._segments.advance()
        return active

    def _write_and_sync(self, segment: Segment, appends: Sequence[Append]) -> None:
        self._disk.write(segment.descriptor, b"".join(append.frame for append in appends), segment.used)
        self._disk.sync(segment.descriptor)
        for append in appends:
            segment.entries.add(append.key, append.epoch, segment.used)
            segment.used += len(append.frame)


def _count_fitting(appends: Sequence[Append], free_bytes: int) -> int:
    """Return how many of *appends*, from the first, fit into *free_bytes*."""
    count = 0
    for append in appends:
        free_bytes -= len(append.frame)
        if free_bytes < 0:
            break
        count += 1
    return count


def _notify(appends: Sequence[Append], segment: Segment | None, error: OSError | None) -> None:
    """Wake each waiting loop once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Append]] = {}
    for append in appends:
        by_loop.setdefault(append.loop, []).append(append)
    for loop, loop_appends in by_loop.items():
        with suppress(RuntimeError):  # the loop was closed, so that no task waits
            loop.call_soon_threadsafe(_notify_here, loop_appends, segment, error)


def _notify_here(appends: Sequence[Append], segment: Segment | None, error: OSError | None) -> None:
    for append in appends:
        append.on_done(segment, error)
