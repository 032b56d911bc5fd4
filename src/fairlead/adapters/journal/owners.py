"""Ownership of journal files. An owner holds `<owner>.lock`, which the kernel releases when its process dies.

So a free lock proves that the owner is dead, without pids or clocks. The process that takes the lock is the
new owner. If it dies too, the next one can take over: files are not moved, so that none is lost.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from weakref import WeakSet

from fairlead.errors import InvalidConfigError

_LOCK, JOURNAL = ".lock", ".journal"


class Owners:
    """The owners of files that this process may write: itself, and dead ones that it has replaced."""

    def __init__(self, folder: Path, owner: str) -> None:
        self._folder = folder
        self._owner = owner
        self._locks: dict[str, int] = {}
        self._own_path = str(self._lock_path(owner))
        _in_this_process.add(self)

    def open(self) -> None:
        """Create the folder and take our own lock; raise InvalidConfigError if others can read the folder."""
        try:
            _checked_folder(self._folder)
            descriptor = _new_lock(self._lock_path(self._owner))
        except OSError as error:
            raise InvalidConfigError(
                f"the journal folder {self._folder} cannot be used: {error.strerror}",
                hint="name a folder of your own on a local disk",
            ) from error
        if descriptor is None:
            raise InvalidConfigError(
                f"there is a journal of session {self._owner}", hint="use a new session id"
            )
        self._locks[self._owner] = descriptor

    def close(self) -> None:
        """Release all locks and delete those without files; files stay for the next process."""
        try:
            present = self._with_files()
        except FileNotFoundError:  # the folder was removed
            present = set()
        except OSError:  # no file descriptor is left: a remaining lock does no harm
            present = set(self._locks)
        for owner in list(self._locks):
            self._release(owner, has_files=owner in present)

    def forget(self) -> None:
        """Close the descriptors after a fork, and leave the locks to the parent."""
        for descriptor in self._locks.values():
            os.close(descriptor)
        self._locks.clear()

    def take_over(self) -> list[Path]:
        """Lock the files of dead owners; return the files of all dead owners that this process replaced."""
        for owner in sorted(self._present() - set(self._locks)):
            descriptor = _lock(self._lock_path(owner))
            if descriptor is not None:
                self._locks[owner] = descriptor
        dead = self._locks.keys() - {self._owner}
        return sorted(self._folder / name for name in self._listing(JOURNAL) if owner_of(name) in dead)

    def release_empty(self) -> None:
        """Release the locks of dead owners without files."""
        for owner in self._locks.keys() - {self._owner} - self._with_files():
            self._release(owner, has_files=False)

    def in_place(self) -> bool:
        """Return whether our lock file is still in place."""
        descriptor = self._locks.get(self._owner)
        return descriptor is not None and _is_at(descriptor, self._own_path)

    def _present(self) -> set[str]:
        return {owner_of(name) for name in self._listing(_LOCK, JOURNAL)}

    def _with_files(self) -> set[str]:
        return {owner_of(name) for name in self._listing(JOURNAL)}

    def _listing(self, *suffixes: str) -> Iterator[str]:
        return (entry.name for entry in os.scandir(self._folder) if entry.name.endswith(suffixes))

    def _release(self, owner: str, *, has_files: bool) -> None:
        if not has_files:
            self._lock_path(owner).unlink(missing_ok=True)
        os.close(self._locks.pop(owner))

    def _lock_path(self, owner: str) -> Path:
        return self._folder / f"{owner}{_LOCK}"


_in_this_process: WeakSet[Owners] = WeakSet()


def _forget_all() -> None:
    """Drop inherited locks: a child that outlives its parent would keep other processes from its files."""
    for owners in _in_this_process:
        owners.forget()


os.register_at_fork(after_in_child=_forget_all)


def owner_of(name: str) -> str:
    """Return the owner of the file *name*."""
    return name.partition(".")[0]


def _new_lock(path: Path) -> int | None:
    """Return a descriptor with a new lock, named once it is locked; None if *path* exists."""
    unnamed = path.with_suffix(".new")
    descriptor = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.link(unnamed, path)
    except (BlockingIOError, FileExistsError):
        os.close(descriptor)
        return None
    finally:
        unnamed.unlink(missing_ok=True)
    return descriptor


def _lock(path: Path) -> int | None:
    """Return a descriptor with the lock, or None if a live process has it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        if _is_at(descriptor, path):
            return descriptor
        os.close(descriptor)  # its last owner deleted it between our open and our lock


def _is_at(descriptor: int, path: str | Path) -> bool:
    try:
        at_path = os.stat(path)
    except OSError:
        return False
    opened = os.fstat(descriptor)
    return opened.st_ino == at_path.st_ino and opened.st_dev == at_path.st_dev


def _checked_folder(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.geteuid():
        raise InvalidConfigError(
            f"the journal folder {folder} belongs to another user",
            hint=f"chown -R {os.geteuid()} {folder}",
        )
    if stat.S_IMODE(status.st_mode) & 0o077:
        mode = stat.S_IMODE(status.st_mode)
        raise InvalidConfigError(
            f"the journal folder {folder} has mode {mode:04o}: others can look in", hint=f"chmod 700 {folder}"
        )
