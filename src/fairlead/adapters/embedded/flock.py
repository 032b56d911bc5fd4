"""Whole-file locks that the kernel drops when their last holder is gone.

`flock` belongs to the open file, not to the process: a child that inherits the descriptor holds the lock
with its parent. That is used on purpose: a server inherits its guard, so "the lock is free" proves that
it and all its children are dead, without pids. (The filelock package has neither shared nor inherited
locks.)
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

__all__ = ["POLL_S", "is_locked", "lock_file", "open_lock", "try_flock", "unlock"]

POLL_S = 0.01


def open_lock(path: Path) -> int:
    """A descriptor of the lock file *path*, made if absent; closing it drops what was locked by it."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def try_flock(descriptor: int, *, shared: bool = False) -> bool:
    """Lock the open file now, or tell that somebody else has it."""
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock(descriptor: int) -> None:
    """Drop the lock, keep the file open."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)


def lock_file(path: Path, *, shared: bool = False, timeout_s: float = 0.0) -> int | None:
    """A descriptor that holds the lock, or None if it could not be had within *timeout_s*."""
    deadline = time.monotonic() + timeout_s
    descriptor = open_lock(path)
    while not try_flock(descriptor, shared=shared):
        if time.monotonic() >= deadline:
            os.close(descriptor)
            return None
        time.sleep(POLL_S)
    return descriptor


def is_locked(path: Path) -> bool:
    """Whether somebody holds *path* exclusively. An absent file is held by nobody."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not try_flock(descriptor, shared=True)  # shared: two who ask do not see each other
    finally:
        os.close(descriptor)
