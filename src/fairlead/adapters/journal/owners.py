"""Who owns which files. An owner holds `<owner>.lock`; the kernel drops the lock however the owner dies.

So a lock that can be had is proof of death on this host, without pids and without clocks. Whoever takes it
is the new owner; if that one dies too, the next can take it: nothing is moved, so nothing can be lost.
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
    """The owners in *folder* whose files this process may write: itself, and the dead it took over."""

    def __init__(self, folder: Path, own: str) -> None:
        self._folder = folder
        self._own = own
        self._held: dict[str, int] = {}
        self._own_path = str(self._lock_path(own))
        _in_this_process.add(self)

    def open(self) -> None:
        """Make the folder if need be, and take our own lock. InvalidConfigError if others could read it."""
        try:
            _checked_folder(self._folder)
            descriptor = _new_lock(self._lock_path(self._own))
        except OSError as error:
            raise InvalidConfigError(
                f"the journal folder {self._folder} cannot be used: {error.strerror}",
                hint="name a folder of your own on a local disk",
            ) from error
        if descriptor is None:
            raise InvalidConfigError(
                f"there is a journal of session {self._own}", hint="use a new session id"
            )
        self._held[self._own] = descriptor

    def close(self) -> None:
        """Let go of all; files stay for whoever comes next, locks without files do not."""
        try:
            present = self._with_files()
        except FileNotFoundError:  # the folder was removed
            present = set()
        except OSError:  # no descriptor is left to look with: a lock too many does no harm
            present = set(self._held)
        for owner in list(self._held):
            self._release(owner, has_files=owner in present)

    def forget(self) -> None:
        """Close the descriptors after a fork, and leave the locks to the parent."""
        for descriptor in self._held.values():
            os.close(descriptor)
        self._held.clear()

    def take_over(self) -> list[Path]:
        """Lock what dead owners left; the files of all the dead that are ours by now."""
        for owner in sorted(self._present() - set(self._held)):
            descriptor = _lock(self._lock_path(owner))
            if descriptor is not None:
                self._held[owner] = descriptor
        dead = self._held.keys() - {self._own}
        return sorted(self._folder / name for name in self._listing(JOURNAL) if owner_of(name) in dead)

    def release_empty(self) -> None:
        """Forget the dead whose last file is gone."""
        for owner in self._held.keys() - {self._own} - self._with_files():
            self._release(owner, has_files=False)

    def in_place(self) -> bool:
        """Whether our lock is still where others look for it."""
        descriptor = self._held.get(self._own)
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
        os.close(self._held.pop(owner))

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
    """A descriptor that holds a new lock; None if *path* exists. It has its name only once it is locked."""
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
    """A descriptor that holds the lock, or None if somebody alive has it."""
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
        found = os.stat(path)
    except OSError:
        return False
    held = os.fstat(descriptor)
    return held.st_ino == found.st_ino and held.st_dev == found.st_dev


def _checked_folder(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat()
    if found.st_uid != os.geteuid():
        raise InvalidConfigError(
            f"the journal folder {folder} belongs to another user",
            hint=f"chown -R {os.geteuid()} {folder}",
        )
    if stat.S_IMODE(found.st_mode) & 0o077:
        mode = stat.S_IMODE(found.st_mode)
        raise InvalidConfigError(
            f"the journal folder {folder} has mode {mode:04o}: others can look in", hint=f"chmod 700 {folder}"
        )
