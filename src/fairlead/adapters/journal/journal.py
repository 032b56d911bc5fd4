"""The port Journal on files of this host: append, find, and take over the files of dead processes."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from fairlead.adapters.journal.disk import Disk
from fairlead.adapters.journal.index import EntryIndex, Search
from fairlead.adapters.journal.newest import NONE, key_of
from fairlead.adapters.journal.owners import Owners
from fairlead.adapters.journal.record import encode_entry
from fairlead.adapters.journal.retention import HeldEntry, JournalRetention
from fairlead.adapters.journal.segment import Segment, Segments
from fairlead.adapters.journal.writer import Append, Stop, Writer
from fairlead.engine.base.batch import Batcher
from fairlead.engine.ports import EntryFilter, JournalEntry, JournalHead, any_entry
from fairlead.errors import InvalidConfigError, RefusedError
from fairlead.policy.reasons.token_reasons import JOURNAL_UNAVAILABLE

T = TypeVar("T")
_log = logging.getLogger("fairlead.journal")
_PROGRESS = "reading the journals of this host before the start: %d of %d files"

MAX_FILE_BYTES = 1 << 24
_SLICE_S = 0.25
"""Seconds of reading at the start between two reports of progress."""
_REPORT_EVERY_S = 2.0


@dataclass(frozen=True, slots=True)
class JournalSettings:
    """Sizes in bytes, times in seconds."""

    segment_bytes: int = 4 << 20
    """One file, written out beforehand; default 4 MiB, at most 16 MiB."""
    retention_s: float = 86_400.0
    """How long a file is kept after its last entry was settled; default 24 h (R11)."""
    sync_timeout_s: float = 5.0
    """An append fails, and new refreshes are refused, if the disk does not respond for so long; default 5."""
    max_waiting: int = 4096
    """Appends not on disk yet; new refreshes are refused at half of it. Default 4096."""


class FileJournal:
    """See ``fairlead.engine.ports.Journal``.

        async with FileJournal(folder, session_id) as journal: ...

    A start that reads for longer than 2 s logs its progress as a warning, because no event listener is
    subscribed yet.

    Args:
        folder: Where the files are. It is created with mode 0700 if it is missing.
        session_id: The name of this process's files. Use it for one journal only.
        settings: See `JournalSettings`.
        disk: The system calls that write. Default: the real ones.
        now: The wall clock. Only the age of files is judged by it.

    Raises:
        InvalidConfigError: The folder is open to other users.
    """

    def __init__(
        self,
        folder: Path,
        session_id: UUID,
        settings: JournalSettings = JournalSettings(),
        *,
        disk: Disk | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        assert 0 < settings.segment_bytes <= MAX_FILE_BYTES
        self._folder = folder
        self._name = str(session_id)
        self._settings = settings
        self._disk = disk or Disk()
        self._owners = Owners(folder, self._name)
        self._index = EntryIndex(folder, self._name)
        self._retention = JournalRetention(settings.retention_s, now)
        self._reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="fairlead-journal-reader")
        self._searches: Batcher[Search, JournalEntry | None] = Batcher(self._look_up, name="journal")
        self._waiting = 0
        self._open = False

    async def open(self) -> None:
        """Take the lock, read the journals of this host, and create the first files.

        A full disk is reported by `preflight`, and one that cannot be read by `find`.

        Raises:
            InvalidConfigError: The folder cannot be used.
        """
        await asyncio.to_thread(self._owners.open)
        with suppress(OSError):
            await self._read_all()
        self._segments = Segments(self._folder, self._name, self._settings.segment_bytes, self._disk)
        with suppress(OSError):
            await asyncio.to_thread(self._segments.advance)
        self._writer = Writer(self._segments, self._disk)
        self._writer.start()
        self._open = True

    async def _read_all(self) -> None:
        loop, progress = asyncio.get_running_loop(), self._index.progress
        reported_at = started_at = loop.time()
        while not await self._read(partial(self._index.catch_up, _SLICE_S)):
            if loop.time() >= reported_at + _REPORT_EVERY_S:
                reported_at = loop.time()
                _log.warning(_PROGRESS, progress.files, progress.total)
        if reported_at > started_at:
            _log.warning(_PROGRESS, progress.files, progress.total)

    async def close(self) -> None:
        """Write all waiting entries and release all files; the next process settles the rest.

        A disk that hangs is not waited for longer than *sync_timeout_s*; the exit of the process releases its files.
        """
        if self._open:
            self._open = False
            self._writer.put(Stop())
            await asyncio.to_thread(self._close_files)

    def _close_files(self) -> None:
        self._writer.join(self._settings.sync_timeout_s)
        self._reader.submit(self._index.close)
        self._reader.shutdown(wait=False)
        if not self._writer.is_alive() and self._segments.close(self._settings.sync_timeout_s):
            self._owners.close()

    async def __aenter__(self) -> FileJournal:
        await self.open()
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        await self.close()

    # ---- writing

    def preflight(self) -> None:
        """Raise RefusedError unless an entry could be written now."""
        refusal = self._write_refusal()
        if refusal is not None:
            raise _refused(*refusal)

    def _write_refusal(self) -> tuple[str, str] | None:
        """Return why no entry could be written now, and a hint; None if one could."""
        if not self._open:
            return "the journal is closed", "this process is stopping; use another one"
        if not self._owners.in_place() or not self._segments.in_place():
            return f"the journal folder {self._folder} was removed", "restart this process"
        busy_s = self._writer.busy_s()
        if busy_s > self._settings.sync_timeout_s:
            return f"the journal's disk has not responded for {busy_s:.0f} s", "check the disk of this host"
        if self._waiting * 2 >= self._settings.max_waiting:
            return "too many responses wait for the journal's disk", "try again in a moment"
        if not self._segments.ready():
            self._segments.repair()
            error = self._segments.last_error
            if error is None:
                return "the journal's next file is not ready yet", "try again in a moment"
            return f"the journal cannot grow: {error.strerror}", f"check the disk of {self._folder}"
        return None

    async def append(self, entry: JournalEntry) -> None:
        """Return once *entry* is on disk; raise OSError if the disk fails or is too slow."""
        frame = encode_entry(entry)
        if not self._open or self._waiting >= self._settings.max_waiting:
            raise OSError(errno.ENOBUFS, "the journal takes no more entries")
        if len(frame) > self._settings.segment_bytes:
            raise OSError(errno.EFBIG, "the entry is larger than a journal file")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        pending_entry = self._retention.hold(entry.connection_id, entry.epoch)
        self._waiting += 1

        def on_done(segment: Segment | None, error: OSError | None) -> None:
            self._written(entry.connection_id, pending_entry, segment)
            if not done.done():
                done.set_result(None) if error is None else done.set_exception(error)

        self._writer.put(Append(frame, key_of(entry.connection_id), entry.epoch, loop, on_done))
        timer = loop.call_later(self._settings.sync_timeout_s, _expire, done)
        try:
            await done
        finally:
            timer.cancel()

    def _written(self, connection_id: UUID, pending_entry: HeldEntry, segment: Segment | None) -> None:
        self._waiting -= 1
        if segment is None:
            self._retention.drop(connection_id, pending_entry)
            return
        name = segment.path.name
        self._index.add(name, segment.entries, key_of(connection_id), pending_entry.epoch)
        if self._retention.record_file(pending_entry, name):
            self._prune_later()
        if self._index.is_crowded:
            self._later(self._index.grow)

    def settled(self, connection_id: UUID, epoch: int, *, just_now: bool = True) -> None:
        """Record that the responses up to *epoch* are stored; if *just_now*, keep their files for *retention_s*."""
        names = self._retention.settle(connection_id, epoch, just_now=just_now)
        if names:
            self._later(partial(self._touch, names))

    def _later(self, work: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # executors accept no work while the interpreter exits
            self._reader.submit(work)

    def _touch(self, names: Sequence[str]) -> None:
        """Set the modification time of files to now, because their retention begins now."""
        for name in names:
            with suppress(OSError):
                os.utime(self._folder / name)

    # ---- reading

    async def find(
        self,
        connection_id: UUID,
        from_generation: int,
        fits: EntryFilter = any_entry,
        *,
        newer_than: int = NONE,
    ) -> JournalEntry | None:
        """Return the newest entry of this generation that fits, from all files of this host.

        If the table has none above *newer_than*, which is the common case, nothing is read or awaited.
        """
        key = key_of(connection_id)
        if self._index.is_current() and not self._index.is_newer(key, newer_than):
            return None

        def accepts(entry: JournalEntry) -> bool:
            key_and_generation = (entry.connection_id, entry.from_generation)
            return key_and_generation == (connection_id, from_generation) and fits(entry)

        try:
            return await self._searches(Search(key, newer_than, accepts))
        except OSError as error:  # a time-out is one, too
            why = f"the journal cannot be read: {error.strerror or 'its disk does not respond'}"
            is_denied = isinstance(error, PermissionError)
            hint = f"{f'chown -R {os.geteuid()}' if is_denied else 'check the disk of'} {self._folder}"
            raise _refused(why, hint) from error

    async def _look_up(self, searches: Sequence[Search]) -> list[JournalEntry | None]:
        await self._read(partial(self._index.find, searches), self._settings.sync_timeout_s)
        return [search.result for search in searches]

    async def orphans(self) -> list[Path]:
        """Take over the files of dead owners; return those that were not ours before."""
        try:
            paths = await self._read(self._owners.take_over)
            paths = [path for path in paths if path.name not in self._retention]
            for adopted in await self._read(partial(self._index.take_over, paths)):
                self._retention.take_over(*adopted)
        except PermissionError as error:
            message = f"the journal file {error.filename} belongs to another user"
            raise InvalidConfigError(message, hint=f"chown -R {os.geteuid()} {self._folder}") from error
        self._prune_later()
        return paths

    async def heads(self) -> AsyncIterator[Sequence[JournalHead]]:
        """Yield, in pages, the newest entry of each connection that our or adopted files hold."""
        names = self._retention.names
        pages = self._index.heads(names)
        while (page := await self._read(partial(next, pages, None))) is not None:
            self._retention.owe(page)
            yield page
        self._retention.compared(names)

    async def _read(self, work: Callable[[], T], within_s: float | None = None) -> T:
        """Run *work* on the reader's thread.

        Raises:
            TimeoutError: The disk has not responded for *within_s* seconds. Work that makes progress may
                take longer.
        """
        future = asyncio.get_running_loop().run_in_executor(self._reader, work)
        try:
            while True:
                steps = self._index.progress.steps
                await asyncio.wait((future,), timeout=within_s)
                if future.done():
                    return future.result()
                if self._index.progress.steps == steps:
                    raise TimeoutError
        finally:
            future.cancel()

    # ---- retention

    def _prune_later(self) -> None:
        """Delete, on the reader's thread, settled files older than *retention_s*."""
        active = self._segments.active if self._open else None
        names = self._retention.due(None if active is None else active.path.name)
        if self._open and names:
            with suppress(RuntimeError):  # executors accept no work while the interpreter exits
                deletion = asyncio.get_running_loop().run_in_executor(
                    self._reader, self._prune, names, self._retention.owed_keys
                )
                deletion.add_done_callback(self._forget_deleted)

    def _prune(self, names: Sequence[str], owed: set[int]) -> list[str]:
        old = [name for name in names if not self._index.holds_any(name, owed)]
        for name in old:
            (self._folder / name).unlink(missing_ok=True)
        self._owners.release_empty()
        return old

    def _forget_deleted(self, deletion: asyncio.Future[list[str]]) -> None:
        self._retention.forget(deletion.result())


def _expire(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_exception(TimeoutError())


def _refused(why: str, hint: str) -> RefusedError:
    return RefusedError(
        f"the refresh was not sent, because its response could not be stored: {why}",
        hint=hint,
        retry_after_s=1.0,
        category="transient_network",
        reason=JOURNAL_UNAVAILABLE.code,
    )
