"""The rules for deleting journal files: all entries are settled, and a day has passed.

Each of our own entries is tracked until it is settled. A file of a dead owner may be deleted once the newest
entry of each of its connections was compared with the database. Entries that were not settled then are
remembered, and their files stay. All times are in memory: a file is statted when it is taken over, and never
again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from uuid import UUID

from fairlead.adapters.journal.newest import key_of
from fairlead.engine.ports import JournalHead

_SLACK = 0.001
"""The fraction of the retention time by which a file's time on disk may be behind."""


@dataclass(slots=True, eq=False)
class KeptFile:
    """A file that this process may delete.

    Attributes:
        since: When it was last written, or an entry of it was settled.
        touched: The same time as recorded on disk.
        unsettled: How many of our own entries in it are not settled.
        compared: Whether its newest entries were compared with the database. False at first for a file
            that was taken over.
    """

    name: str
    since: float
    touched: float
    unsettled: int = 0
    compared: bool = True
    lowest: int = 0
    highest: int = -1


@dataclass(slots=True, eq=False)
class HeldEntry:
    """One of our own entries that is not settled yet, and its file once it is on disk."""

    epoch: int
    file: KeptFile | None = None
    settled: bool = False


class JournalRetention:
    """The files that this process may delete.

    Args:
        retention_s: How long a file is kept once all its entries are settled.
        now: The wall clock.
    """

    def __init__(self, retention_s: float, now: Callable[[], float]) -> None:
        self._retention_s = retention_s
        self._now = now
        self._files: dict[str, KeptFile] = {}
        self._entries: dict[UUID, list[HeldEntry]] = {}
        self._owed: dict[UUID, int] = {}  # connections of adopted files with an unsettled newest entry

    def __contains__(self, name: str) -> bool:
        return name in self._files

    @property
    def names(self) -> set[str]:
        """Our own files and those that were taken over."""
        return set(self._files)

    @property
    def owed_keys(self) -> set[int]:
        """Keys of connections with unsettled entries in adopted files."""
        return {key_of(connection_id) for connection_id in self._owed}

    # ---- our own entries

    def hold(self, connection_id: UUID, epoch: int) -> HeldEntry:
        """Track an entry that is about to be written."""
        entry = HeldEntry(epoch)
        self._entries.setdefault(connection_id, []).append(entry)
        return entry

    def drop(self, connection_id: UUID, entry: HeldEntry) -> None:
        """Stop tracking an entry that could not be written."""
        if not entry.settled:
            self._entries[connection_id].remove(entry)

    def record_file(self, entry: HeldEntry, name: str) -> bool:
        """Record the file of an entry; return whether the file is new."""
        file, now = self._files.get(name), self._now()
        is_new = file is None
        if file is None:
            file = self._files[name] = KeptFile(name, now, now)
        file.since = file.touched = now
        file.unsettled += not entry.settled
        entry.file = file
        return is_new

    def settle(self, connection_id: UUID, epoch: int, *, just_now: bool) -> list[str]:
        """Record that no entry of the connection up to *epoch* is needed any more.

        Returns:
            The files with a time on disk that must be set to now.
        """
        touched = []
        entries = self._entries.pop(connection_id, None)
        if entries:
            later = [entry for entry in entries if entry.epoch > epoch]
            if later:
                self._entries[connection_id] = later
            for entry in entries:
                entry.settled = entry.epoch <= epoch
                if entry.settled and entry.file is not None:
                    entry.file.unsettled -= 1
                    touched.append(entry.file)
        if connection_id in self._owed:
            if self._owed[connection_id] <= epoch:
                del self._owed[connection_id]
            touched += [file for file in self._files.values() if file.lowest <= epoch <= file.highest]
        return [file.name for file in touched if just_now and self._is_stale(file)]

    def _is_stale(self, file: KeptFile) -> bool:
        """Restart the retention time of *file*; return whether its time on disk must be updated."""
        file.since = self._now()
        stale = file.since - file.touched > self._retention_s * _SLACK
        if stale:
            file.touched = file.since
        return stale

    # ---- files taken over

    def take_over(self, name: str, modified: float, lowest: int, highest: int) -> None:
        """Add the file of a dead owner, with entries of these epochs. It is kept until it is compared."""
        self._files[name] = KeptFile(name, modified, modified, compared=False, lowest=lowest, highest=highest)

    def owe(self, heads: Iterable[JournalHead]) -> None:
        """Track the newest entries that are about to be compared, each until it is settled."""
        for head in heads:
            self._owed[head.connection_id] = max(head.epoch, self._owed.get(head.connection_id, 0))

    def compared(self, names: Collection[str]) -> None:
        """Record that the newest entries of these files were all compared."""
        for name in names:
            if name in self._files:
                self._files[name].compared = True

    # ---- deletion

    def due(self, active: str | None) -> list[str]:
        """Return the files past their retention. An adopted one may still hold tracked entries."""
        until = self._now() - self._retention_s * (1 + _SLACK)
        return [
            file.name
            for file in self._files.values()
            if file.since < until and not file.unsettled and file.compared and file.name != active
        ]

    def forget(self, names: Iterable[str]) -> None:
        """Remove deleted files."""
        for name in names:
            self._files.pop(name, None)
