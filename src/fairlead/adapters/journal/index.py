"""The search for entries in the journal files of this host.

A search checks the table of newest epochs first, and mostly ends there: no file is opened and no thread is
woken. The table is filled from the index of each file once, when the file is first listed, and then with each
new entry: our own when they are acknowledged, those of other processes by following the end of their open
files. A closed file is not read again until the table says that it holds a response newer than the
database's.

All methods but `is_current`, `is_newer` and `add` run on the reader's thread.
"""

from __future__ import annotations

import itertools
import os
import time
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from fairlead.adapters.journal.newest import NONE, NewestEpochs
from fairlead.adapters.journal.owners import JOURNAL, owner_of
from fairlead.adapters.journal.reads import ends_at, entries_in, read_frame, read_written
from fairlead.adapters.journal.record import decode_entry
from fairlead.adapters.journal.trailer import MAGIC_INDEX, MAX_EPOCH, Entries, entries_of, read_trailer, seal
from fairlead.engine.ports import JournalEntry, JournalHead

_TICKS_NS = 30_000_000
"""The granularity of file times: a file created this soon after the folder's last change may leave its
time unchanged."""
_SECOND_NS = 1_000_000_000
"""Some file systems store times in whole seconds, or in steps of two."""
PAGE_ENTRIES = 256


@dataclass(slots=True, eq=False)
class Search:
    """A search for the entry with the highest epoch above *newer_than* that *accepts* allows."""

    key: int
    newer_than: int
    accepts: Callable[[JournalEntry], bool]
    result: JournalEntry | None = None

    @property
    def above(self) -> int:
        """The epoch that a better entry must exceed."""
        return self.newer_than if self.result is None else self.result.epoch


@dataclass(slots=True, eq=False)
class _File:
    name: str
    number: int
    lowest: int = 0
    highest: int = NONE
    entries: Entries | None = None  # held in memory until the file is closed
    is_indexed: bool = False  # the file ends with its index
    descriptor: int | None = None  # of an open file of another process
    read_to: int = 0

    def close(self) -> None:
        self.entries = None
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


class AdoptedFile(NamedTuple):
    """A file taken over from a dead owner: the time of its last write, and the range of its epochs."""

    name: str
    modified: float
    lowest: int
    highest: int


class _Watch(NamedTuple):
    """The files' state for which the table is complete; replaced as a whole, as the event loop reads it."""

    folder: tuple[int, int] | None = None
    ends: tuple[tuple[int, int], ...] = ()


@dataclass(slots=True)
class Progress:
    """How many of the files are read, and *steps*, a count that grows while the disk responds."""

    files: int = 0
    total: int = 0
    steps: int = field(default=0)


class EntryIndex:
    """The entries of all journal files in *folder*; *owner* is the owner name of our own files."""

    def __init__(self, folder: Path, owner: str) -> None:
        self._folder = folder
        self._owner = owner
        self._newest = NewestEpochs()
        self._files: dict[str, _File] = {}
        self._by_number: dict[int, _File] = {}
        self._numbers = itertools.count()
        self._open: dict[str, _File] = {}
        self._unread: list[_File] = []
        self._listed: tuple[int, int] | None = None
        self._watch = _Watch()
        self.progress = Progress()

    # ---- on the event loop

    def is_current(self) -> bool:
        """Return whether the table has every entry that any process wrote; False if that is unknown.

        Takes two system calls that never wait for the disk, and one more for each open file of another
        process.
        """
        watch = self._watch
        try:
            status = os.stat(self._folder)
            return (status.st_mtime_ns, status.st_ino) == watch.folder and all(
                ends_at(descriptor, offset) for descriptor, offset in watch.ends
            )
        except OSError:
            return False

    @property
    def is_crowded(self) -> bool:
        """Whether `grow` is due."""
        return self._newest.is_crowded

    def is_newer(self, key: int, epoch: int) -> bool:
        """Return whether some file holds an entry of *key* above *epoch*."""
        return self._newest.newest(key) > epoch

    def add(self, name: str, entries: Entries, key: int, epoch: int) -> None:
        """Record an entry that is on disk in our own file *name*, which holds *entries* so far."""
        file = self._files.get(name) or self._file(name)
        if file.entries is None and file.highest == NONE:
            file.entries = entries
            self._open[name] = file
        file.lowest = min(file.lowest, epoch) if file.highest != NONE else epoch
        file.highest = max(file.highest, epoch)
        self._newest.add(key, epoch, file.number)

    # ---- keeping up

    def grow(self) -> None:
        """Enlarge the table."""
        self._newest.grow()

    def catch_up(self, for_s: float | None = None) -> bool:
        """Read what was written since the last call; return False if that takes more than *for_s* seconds."""
        until_s = None if for_s is None else time.monotonic() + for_s
        self._list()
        while self._unread:
            self._read_new(self._unread[-1])
            self._unread.pop()
            self.progress.files += 1
            if until_s is not None and time.monotonic() > until_s:
                return False
        others = [file for file in list(self._open.values()) if not self._is_own(file)]
        for file in others:
            self._follow(file)
        ends = [(file.descriptor, file.read_to) for file in others if file.descriptor is not None]
        self._watch = _Watch(self._listed, tuple(ends))
        return True

    def _list(self) -> None:
        """Add new files and drop deleted ones, if the folder has changed."""
        status = os.stat(self._folder)
        stamp = (status.st_mtime_ns, status.st_ino)
        if stamp == self._listed:
            return
        grain = _TICKS_NS if status.st_mtime_ns % _SECOND_NS else 2 * _SECOND_NS + _TICKS_NS
        is_young = time.time_ns() - status.st_mtime_ns < grain
        listed = set(self._files)  # before the listing: a file that `add` adds meanwhile was not deleted
        names = {entry.name for entry in os.scandir(self._folder) if entry.name.endswith(JOURNAL)}
        for name in listed - names:
            self._drop(name)
        for name in sorted(names - listed):  # the newest one last, because it is read first
            file = self._file(name)
            if self._is_own(file):
                self._open[name] = file
            else:
                self._unread.append(file)
        self.progress.total = self.progress.files + len(self._unread)
        for file in [file for file in list(self._open.values()) if self._is_own(file)]:
            self._free_if_closed(file)
        self._newest.set_floor(self._lowest)
        self._listed = None if is_young else stamp

    def _lowest(self) -> int:
        files = list(self._files.values())
        return 0 if self._unread else min((f.lowest for f in files if f.highest != NONE), default=0)

    def _file(self, name: str) -> _File:
        file = self._files.setdefault(name, _File(name, next(self._numbers)))
        self._by_number[file.number] = file
        return file

    def _is_own(self, file: _File) -> bool:
        return owner_of(file.name) == self._owner

    def _drop(self, name: str) -> None:
        file = self._files.pop(name)
        self._by_number.pop(file.number, None)
        self._open.pop(name, None)
        if file in self._unread:
            self._unread.remove(file)
        file.close()

    def _read_new(self, file: _File) -> None:
        """Read the index of *file*, or its frames if it has none."""
        self.progress.steps += 1
        try:
            file.descriptor = os.open(self._path(file), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # the next listing drops it
            return
        try:
            entries = read_trailer(file.descriptor)
            if entries is None:
                file.entries = Entries()
                self._open[file.name] = file
                self._follow(file)
            else:
                self._add_entries(file, entries)
                file.is_indexed = True
                file.close()
        except OSError:  # the next call reads it from its beginning
            self._open.pop(file.name, None)
            file.close()
            file.read_to = 0
            raise

    def _add_entries(self, file: _File, entries: Entries) -> None:
        if len(entries):
            file.lowest = entries.lowest if file.highest == NONE else min(file.lowest, entries.lowest)
            file.highest = max(file.highest, entries.highest)
            self._newest.update(entries.keys, entries.epochs, file.number, entries.lowest)

    def _follow(self, file: _File) -> None:
        """Read new entries of another process's open file, and close it once that process has closed it."""
        assert file.descriptor is not None
        assert file.entries is not None
        self.progress.steps += 1
        data = read_written(file.descriptor, file.read_to)
        if data:
            added, file.read_to = entries_of(data, file.read_to)
            file.entries.extend(added)
            self._add_entries(file, added)
        end = os.pread(file.descriptor, len(MAGIC_INDEX), file.read_to)
        # an empty file is still being created: its name comes first
        if end == MAGIC_INDEX or (not end and file.read_to):
            self._open.pop(file.name, None)
            file.close()

    def _free_if_closed(self, file: _File) -> None:
        """Free the entries of one of our own files once its index is on disk."""
        try:
            descriptor = os.open(self._path(file), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            if read_trailer(descriptor) is not None:
                file.is_indexed = True
                self._open.pop(file.name, None)
                file.close()
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            file.close()
        self._open.clear()
        self._watch = _Watch()

    # ---- searching

    def find(self, searches: Collection[Search]) -> None:
        """Set the result of each search, in one pass over the files that may hold any of them."""
        self.catch_up()
        pending = [search for search in searches if self.is_newer(search.key, search.newer_than)]
        self._search(pending, list(self._files.values()))

    def _search(self, searches: Collection[Search], files: Iterable[_File]) -> None:
        above = min((search.above for search in searches), default=MAX_EPOCH)
        files = [file for file in files if file.highest > above]
        newest = {search.key: self._newest.newest(search.key) for search in searches}
        for file in sorted(files, key=lambda file: file.highest, reverse=True):
            searches = [search for search in searches if search.above < min(file.highest, newest[search.key])]
            if not searches:
                return
            here = [search for search in searches if newest[search.key] >= file.lowest]
            if here:
                self._search_file(file, here)

    def _search_file(self, file: _File, searches: Collection[Search]) -> None:
        self.progress.steps += 1
        try:
            descriptor = os.open(self._path(file), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # deleted after its retention
            return
        try:
            entries = file.entries or entries_in(descriptor)
            for search in searches:
                for epoch, offset in entries.of(search.key):
                    if epoch > search.above and (frame := read_frame(descriptor, offset)) is not None:
                        entry = decode_entry(frame)
                        search.result = entry if search.accepts(entry) else search.result
        finally:
            os.close(descriptor)

    def holds_any(self, name: str, keys: Collection[int]) -> bool:
        """Return whether a file has an entry of one of *keys*."""
        file = self._files.get(name)
        if file is None or not keys:
            return False
        try:
            descriptor = os.open(self._path(file), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            return not set(keys).isdisjoint((file.entries or entries_in(descriptor)).keys)
        finally:
            os.close(descriptor)

    def take_over(self, paths: Iterable[Path]) -> list[AdoptedFile]:
        """Close files of dead owners for good; return those that hold anything."""
        self.catch_up()
        adopted = []
        for path in paths:
            self.progress.steps += 1
            file = self._files.get(path.name)
            if file is None:
                continue
            if not file.is_indexed:
                seal(path)
                self._open.pop(file.name, None)
                file.close()
                file.read_to = 0
                self._read_new(file)
            with suppress(FileNotFoundError):
                adopted.append(AdoptedFile(file.name, os.stat(path).st_mtime, file.lowest, file.highest))
        return adopted

    # ---- the newest of each connection

    def heads(self, names: Collection[str]) -> Iterator[list[JournalHead]]:
        """Yield, in pages, the newest entry of each connection that has it in one of the files *names*."""
        self.catch_up()
        by_file: dict[int, array[int]] = {}
        damaged: list[int] = []
        for key, epoch, number in self._newest.items():
            file = self._by_number.get(number)
            if file is not None and file.name in names:
                by_file.setdefault(number, array("Q")).append(key)
            elif file is None and epoch >= self._newest.floor:
                damaged.append(key)
        files = [self._by_number[number] for number in by_file]
        heads: list[JournalHead] = []
        for file in sorted(files, key=lambda file: file.highest, reverse=True):
            keys = by_file[file.number]
            for at in range(0, len(keys), PAGE_ENTRIES):
                searches = self._newest_in([file], keys[at : at + PAGE_ENTRIES])
                damaged += [search.key for search in searches if search.result is None]
                heads += _heads_of(searches)
                if len(heads) >= PAGE_ENTRIES:
                    yield heads
                    heads = []
        ours = [file for name, file in list(self._files.items()) if name in names]
        for at in range(0, len(damaged), PAGE_ENTRIES):
            heads += _heads_of(self._newest_in(ours, damaged[at : at + PAGE_ENTRIES]))
        yield heads

    def _newest_in(self, files: Iterable[_File], keys: Iterable[int]) -> list[Search]:
        searches = [Search(key, NONE, lambda _entry: True) for key in keys]
        self._search(searches, files)
        return searches

    def _path(self, file: _File) -> str:
        return f"{self._folder}/{file.name}"


def _heads_of(searches: Iterable[Search]) -> list[JournalHead]:
    return [
        JournalHead(e.connection_id, e.attempt_id, e.from_generation, e.epoch, e.sent_at)
        for e in (search.result for search in searches)
        if e is not None
    ]
