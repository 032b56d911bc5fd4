"""Writes lines to a file descriptor from a thread, so that a reader that stops reading blocks nothing.

``put`` queues a line or drops it, at once. Dropped lines (the queue or the disk is full) are counted, and
reported in a line of their own once lines can be written again. The descriptor is used directly: Python's own
stderr has a lock that a blocked writer would hold at exit.
"""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from collections.abc import Callable
from weakref import WeakSet

MAX_QUEUED_BYTES = 4 << 20
MAX_BATCH_BYTES = 64 << 10
GATHER_S = 0.005
"""Lines within this time are written together, because waking the thread costs more than a line."""


class LineWriter:
    """A bounded queue of lines before *fd*. Threads and the event loop may call it.

    Args:
        loss_line: Returns the line that reports a number of dropped ones.
        max_bytes: The bound of the queue.
    """

    def __init__(
        self, fd: int, loss_line: Callable[[int], bytes], *, max_bytes: int = MAX_QUEUED_BYTES
    ) -> None:
        self._fd = fd
        self._loss_line = loss_line
        self._max_bytes = max_bytes
        self._lines: deque[bytes] = deque()
        self._queued_bytes = 0
        self._unreported = 0
        self._dropped = 0
        self._is_writing = False
        self._last_write_failed = False
        self._ends_mid_line = False
        self._closing = False
        self._is_inherited = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="fairlead-log", daemon=True)
        self._thread.start()
        _in_this_process.add(self)

    def reset_after_fork(self) -> None:
        """Write at once from now on: a forked child has no thread, and its lock may never be released."""
        self._is_inherited, self._changed = True, threading.Condition()
        self._lines.clear()
        self._queued_bytes = 0

    @property
    def dropped(self) -> int:
        """Lines lost so far."""
        return self._dropped

    def put(self, line: bytes) -> bool:
        """Queue *line*, which ends in a newline; return False if it is dropped.

        Never waits for the descriptor.
        """
        if self._is_inherited:
            return self._write(line)
        with self._changed:
            if self._closing or self._queued_bytes + len(line) > self._max_bytes:
                self._drop(1)
                return False
            self._lines.append(line)
            self._queued_bytes += len(line)
            if len(self._lines) == 1:
                self._changed.notify_all()
            return True

    def flush(self, timeout_s: float) -> bool:
        """Wait until all is written, at most *timeout_s* seconds; return whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._lines and not self._is_writing, timeout_s)

    def close(self, timeout_s: float = 1.0) -> bool:
        """Accept no more and write the rest, at most *timeout_s* seconds; return whether it was written."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._is_inherited:
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    # ---- the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                self._is_writing = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._has_work() or self._closing)
                if not self._has_work():
                    return
                self._changed.wait_for(lambda: self._closing, GATHER_S)
                self._is_writing = True
                batch, count, reported = self._take_batch()
            failed = not self._write(batch)
            with self._changed:
                self._last_write_failed = failed
                if failed:
                    self._drop(count)
                    self._unreported += reported

    def _has_work(self) -> bool:
        """Return whether there are lines, or a loss to report unless the last report has just failed."""
        return bool(self._lines) or (self._unreported > 0 and not self._last_write_failed)

    def _take_batch(self) -> tuple[bytes, int, int]:
        """Return the next lines to write, how many of them were queued, and how many lost lines they report."""
        reported, self._unreported = self._unreported, 0
        lines = [self._loss_line(reported)] if reported else []
        size, count = 0, 0
        while self._lines and size < MAX_BATCH_BYTES:
            lines.append(self._lines.popleft())
            size += len(lines[-1])
            count += 1
        self._queued_bytes -= size
        return b"".join(lines), count, reported

    def _write(self, batch: bytes) -> bool:
        """Write all of *batch*; return whether that succeeded."""
        if self._ends_mid_line:  # the next line must start on a line of its own
            batch = b"\n" + batch
        while batch:
            try:
                written = os.write(self._fd, batch)
            except BlockingIOError:  # another process that shares the descriptor made it non-blocking
                select.select([], [self._fd], [])
                continue
            except OSError:  # the disk is full, the reader is gone
                return False
            self._ends_mid_line = not batch[:written].endswith(b"\n")
            batch = batch[written:]
        return True

    def _drop(self, count: int) -> None:
        self._dropped += count
        self._unreported += count
        self._changed.notify_all()


_in_this_process: WeakSet[LineWriter] = WeakSet()


def _reset_after_fork() -> None:
    for writer in _in_this_process:
        writer.reset_after_fork()


os.register_at_fork(after_in_child=_reset_after_fork)
