"""Whole-file locks that the kernel releases when the last holder ends.

`flock` belongs to the open file, not to the process: a child that inherits the descriptor holds the lock
together with its parent. The servers rely on this. Each one inherits a locked file, its guard, so a free
guard proves without pids that the server and all its children have ended. The filelock package has neither
shared nor inherited locks.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

__all__ = ["POLL_S", "is_locked", "lock_file", "open_lock", "try_flock", "unlock"]

POLL_S = 0.01


def open_lock(path: Path) -> int:
    """Open the lock file *path*, which is created if absent, and return its descriptor.

    Closing the descriptor releases its lock.
    """
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def try_flock(descriptor: int, *, shared: bool = False) -> bool:
    """Lock the open file without waiting. Return False if another open file holds a conflicting lock."""
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock(descriptor: int) -> None:
    """Release the lock; the file stays open."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)


def lock_file(path: Path, *, shared: bool = False, timeout_s: float = 0.0) -> int | None:
    """Lock the file *path*, waiting up to *timeout_s*.

    Returns:
        A descriptor that holds the lock, or None after the timeout.
    """
    deadline_mono = time.monotonic() + timeout_s
    descriptor = open_lock(path)
    while not try_flock(descriptor, shared=shared):
        if time.monotonic() >= deadline_mono:
            os.close(descriptor)
            return None
        time.sleep(POLL_S)
    return descriptor


def is_locked(path: Path) -> bool:
    """Return whether an exclusive lock on *path* is held. An absent file is not locked."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not try_flock(descriptor, shared=True)  # shared, so that two concurrent checks do not conflict
    finally:
        os.close(descriptor)
