"""The port Journal over files of this host: append, find, and take over what the dead left."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from fairlead.adapters.journal.disk import Disk
from fairlead.adapters.journal.owners import Owners
from fairlead.adapters.journal.record import encode_entry
from fairlead.adapters.journal.segment import Segments
from fairlead.adapters.journal.shelf import MAX_FILE_BYTES, Shelf, heads_of, trim
from fairlead.adapters.journal.writer import Append, Stop, Writer
from fairlead.engine.ports import JournalEntry, JournalHead
from fairlead.engine.ports.sealing import Fits, whichever
from fairlead.errors import ConfigInvalid, Refused

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class JournalSettings:
    """Sizes in bytes, times in seconds."""

    segment_bytes: int = 4 << 20
    """One file, written out beforehand; default 4 MiB, at most 16 MiB."""
    keep_s: float = 86_400.0
    """How long a file is kept after its last entry was settled; default 24 h (R11)."""
    sync_timeout_s: float = 5.0
    """An append fails, and new refreshes are refused, if the disk does not answer for so long; default 5."""
    max_waiting: int = 4096
    """Appends not on disk yet; new refreshes are refused at half of it. Default 4096."""


@dataclass(slots=True, eq=False)
class _Held:
    """An entry that is not settled yet, and its file once it is on disk."""

    epoch: int
    path: Path | None = None
    settled: bool = False


class FileJournal:
    """See ``fairlead.engine.ports.Journal``. *session_id* names our files; use it for one journal only.

        async with FileJournal(folder, session_id) as journal: ...

    The folder is made with mode 0700 if it is absent; ConfigInvalid if it is open to others. *now* is the
    wall clock that judges the age of files, and nothing else.
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
        self._now = now
        self._owners = Owners(folder, self._name)
        self._shelf = Shelf()
        self._reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="fairlead-journal-reader")
        self._held: dict[UUID, list[_Held]] = {}  # by connection
        self._kept: dict[Path, int] = {}  # our files and those we took over: unsettled entries
        self._waiting = 0
        self._open = False

    async def open(self) -> None:
        """Take our lock and have the first files on disk; a full disk is left to `preflight` to tell.

        Raises ConfigInvalid for a folder that cannot be used.
        """
        await asyncio.to_thread(self._owners.open)
        self._segments = Segments(self._folder, self._name, self._settings.segment_bytes, self._disk)
        with suppress(OSError):
            await asyncio.to_thread(self._segments.advance)
        self._writer = Writer(self._segments, self._disk)
        self._writer.start()
        self._open = True

    async def close(self) -> None:
        """Write what waits and let go of all files; unsettled entries go to whoever starts next.

        A disk that hangs is not waited for longer than *sync_timeout_s*; what it holds is let go by our end.
        """
        if self._open:
            self._open = False
            self._writer.put(Stop())
            await asyncio.to_thread(self._close_files)

    def _close_files(self) -> None:
        self._writer.join(self._settings.sync_timeout_s)
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
        """Raise Refused unless an answer could be kept now."""
        trouble = self._trouble()
        if trouble is not None:
            raise _refused(*trouble)

    def _trouble(self) -> tuple[str, str] | None:
        if not self._open:
            return "the journal is closed", "this process is stopping; ask another one"
        if not self._owners.in_place() or not self._segments.in_place():
            return f"the journal folder {self._folder} was removed", "restart this process"
        busy_s = self._writer.busy_s()
        if busy_s > self._settings.sync_timeout_s:
            return f"the journal's disk has not answered for {busy_s:.0f} s", "look at the disk of this host"
        if self._waiting * 2 >= self._settings.max_waiting:
            return "too many answers wait for the journal's disk", "ask again in a moment"
        if not self._segments.ready():
            self._segments.repair()
            error = self._segments.trouble
            if error is None:
                return "the journal's next file is not ready yet", "ask again in a moment"
            return f"the journal cannot grow: {error.strerror}", f"see to the disk of {self._folder}"
        return None

    async def append(self, entry: JournalEntry) -> None:
        """Return once the entry is on disk; OSError if it could not be had there in time."""
        frame = encode_entry(entry)
        if not self._open or self._waiting >= self._settings.max_waiting:
            raise OSError(errno.ENOBUFS, "the journal takes no more entries")
        if len(frame) > self._settings.segment_bytes:
            raise OSError(errno.EFBIG, "the entry is larger than a journal file")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        held = self._hold(entry.connection_id, _Held(entry.epoch))
        self._waiting += 1

        def on_done(path: Path | None, error: OSError | None) -> None:
            self._written(entry.connection_id, held, path)
            if not done.done():
                done.set_result(None) if error is None else done.set_exception(error)

        self._writer.put(Append(frame, loop, on_done))
        async with asyncio.timeout(self._settings.sync_timeout_s):
            await done

    def _hold(self, connection_id: UUID, held: _Held) -> _Held:
        self._held.setdefault(connection_id, []).append(held)
        return held

    def _written(self, connection_id: UUID, held: _Held, path: Path | None) -> None:
        self._waiting -= 1
        if path is None:
            if not held.settled:
                self._held[connection_id].remove(held)
            return
        if path not in self._kept:
            self._kept[path] = 0
            self._prune_later()
        held.path = path
        self._kept[path] += not held.settled

    def settled(self, connection_id: UUID, epoch: int, *, just_now: bool = True) -> None:
        """Nothing up to *epoch* is needed any more; files are kept for *keep_s* from now, if it is news."""
        known = self._held.pop(connection_id, [])
        later = [held for held in known if held.epoch > epoch]
        if later:
            self._held[connection_id] = later
        for held in known:
            held.settled = held.epoch <= epoch
            if held.settled and held.path is not None:
                self._kept[held.path] -= 1
                self._touch(held.path, just_now)

    def _touch(self, path: Path, just_now: bool) -> None:
        """Have the time of keeping begin; that of the active file begins when it is closed."""
        active = self._segments.active
        if just_now and (active is None or path != active.path):
            with suppress(RuntimeError):  # at the interpreter's exit executors take no more
                self._reader.submit(os.utime, path)

    # ---- reading

    async def find(
        self, connection_id: UUID, from_generation: int, fits: Fits = whichever
    ) -> JournalEntry | None:
        """The newest entry of this generation that fits, in anybody's files of this host."""
        try:
            async with asyncio.timeout(self._settings.sync_timeout_s):
                return await self._read(
                    lambda: self._shelf.find(self._owners.all_files(), connection_id, from_generation, fits)
                )
        except OSError as error:  # a time-out is one, too
            why = f"the journal cannot be read: {error.strerror or 'its disk does not answer'}"
            mine = isinstance(error, PermissionError)
            hint = f"{f'chown -R {os.geteuid()}' if mine else 'see to the disk of'} {self._folder}"
            raise _refused(why, hint) from error

    async def orphans(self) -> list[Path]:
        """Take over the files of dead owners; return those that were not ours before."""
        try:
            paths = [path for path in await self._read(self._owners.take_over) if path not in self._kept]
            for path in paths:
                self._kept[path] = 1  # not to be dropped while it is read
                await self._read(partial(trim, path))
                heads = await self._read(partial(heads_of, path))
                self._kept[path] = len([self._hold(h.connection_id, _Held(h.epoch, path)) for h in heads])
        except PermissionError as error:
            what = f"the journal file {error.filename} belongs to another user"
            raise ConfigInvalid(what, hint=f"chown -R {os.geteuid()} {self._folder}") from error
        self._prune_later()
        return paths

    async def heads(self) -> list[JournalHead]:
        """The newest entry of each connection, in our files and those we took over."""
        newest: dict[UUID, JournalHead] = {}
        for path in sorted(self._kept):
            for head in await self._read(partial(heads_of, path)):
                known = newest.get(head.connection_id)
                if known is None or known.epoch < head.epoch:
                    newest[head.connection_id] = head
        return list(newest.values())

    async def _read(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._reader, work)

    # ---- dropping what was kept for long enough

    def _prune_later(self) -> None:
        """Delete, on the reader's thread, settled files older than *keep_s*."""
        if not self._open:
            return
        active = self._segments.active
        idle = [
            path
            for path, count in self._kept.items()
            if count == 0 and (active is None or path != active.path)
        ]
        with suppress(RuntimeError):  # at the interpreter's exit executors take no more; answers still come
            dropped = asyncio.get_running_loop().run_in_executor(self._reader, self._prune, idle)
            dropped.add_done_callback(self._forget)

    def _prune(self, paths: Sequence[Path]) -> list[Path]:
        old = [path for path in paths if self._age_s(path) > self._settings.keep_s]
        for path in old:
            path.unlink(missing_ok=True)
        self._owners.release_empty()
        return old

    def _forget(self, dropped: asyncio.Future[list[Path]]) -> None:
        for path in dropped.result():
            self._kept.pop(path, None)

    def _age_s(self, path: Path) -> float:
        """Since it was last written to or settled from; infinite if it is gone."""
        try:
            return self._now() - os.stat(path).st_mtime
        except FileNotFoundError:
            return float("inf")


def _refused(why: str, hint: str) -> Refused:
    return Refused(
        f"no answer could be kept, so none is asked for: {why}",
        hint=hint,
        retry_after_s=1.0,
        category="transient_network",
        reason="journal_unavailable",
    )
