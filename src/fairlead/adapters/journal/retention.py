"""Which of its files a process may delete, and when: what they hold was settled, and a day has gone by.

Of our own entries each is known until it is settled. A file of a dead owner may go once the newest entry of
each of its connections was compared with the database; those that were not settled then are remembered, and
keep the files that they are in. All times are in memory: a file is statted when it is taken over, and never
after.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from uuid import UUID

from fairlead.adapters.journal.newest import key_of
from fairlead.engine.ports import JournalHead

_SLACK = 0.001
"""Share of the time of keeping by which the time on disk may be behind: a file is touched once in so long."""


@dataclass(slots=True, eq=False)
class KeptFile:
    """A file of ours. *since*: when it was last written, or settled from; *touched*: the same, on disk."""

    name: str
    since: float
    touched: float
    unsettled: int = 0
    compared: bool = True  # with the database; not at first for a file that was taken over
    lowest: int = 0
    highest: int = -1


@dataclass(slots=True, eq=False)
class HeldEntry:
    """An entry of ours that is not settled yet, and its file once it is on disk."""

    epoch: int
    file: KeptFile | None = None
    settled: bool = False


class Retention:
    """The files that this process may delete. *now* is the wall clock."""

    def __init__(self, keep_s: float, now: Callable[[], float]) -> None:
        self._keep_s = keep_s
        self._now = now
        self._files: dict[str, KeptFile] = {}
        self._entries: dict[UUID, list[HeldEntry]] = {}
        self._owed: dict[UUID, int] = {}  # connections of files taken over whose newest answer is not settled

    def __contains__(self, name: str) -> bool:
        return name in self._files

    @property
    def names(self) -> set[str]:
        """Our files and those that were taken over."""
        return set(self._files)

    @property
    def owed_keys(self) -> set[int]:
        """Whose entries keep the files taken over that they are in."""
        return {key_of(connection_id) for connection_id in self._owed}

    # ---- our own entries

    def hold(self, connection_id: UUID, epoch: int) -> HeldEntry:
        """Note an entry that is about to be written."""
        entry = HeldEntry(epoch)
        self._entries.setdefault(connection_id, []).append(entry)
        return entry

    def failed(self, connection_id: UUID, entry: HeldEntry) -> None:
        """Forget an entry that could not be written."""
        if not entry.settled:
            self._entries[connection_id].remove(entry)

    def written(self, entry: HeldEntry, name: str) -> bool:
        """Note where an entry was written; True if that is a new file."""
        file, now = self._files.get(name), self._now()
        is_new = file is None
        if file is None:
            file = self._files[name] = KeptFile(name, now, now)
        file.since = file.touched = now
        file.unsettled += not entry.settled
        entry.file = file
        return is_new

    def settled(self, connection_id: UUID, epoch: int, *, just_now: bool) -> list[str]:
        """Note that nothing up to *epoch* is needed any more.

        Returns:
            The files whose time on disk has to be set to now.
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
        """Have the time of keeping begin anew; whether the time on disk has to follow."""
        file.since = self._now()
        stale = file.since - file.touched > self._keep_s * _SLACK
        if stale:
            file.touched = file.since
        return stale

    # ---- files taken over

    def take_over(self, name: str, modified: float, lowest: int, highest: int) -> None:
        """Keep the file of a dead owner, with entries of these epochs, at least until it was compared."""
        self._files[name] = KeptFile(name, modified, modified, compared=False, lowest=lowest, highest=highest)

    def owe(self, heads: Iterable[JournalHead]) -> None:
        """Note newest entries that are about to be compared: each is owed until it is settled."""
        for head in heads:
            self._owed[head.connection_id] = max(head.epoch, self._owed.get(head.connection_id, 0))

    def compared(self, names: Collection[str]) -> None:
        """Note that all newest entries of these files were given out."""
        for name in names:
            if name in self._files:
                self._files[name].compared = True

    # ---- what may go

    def due(self, active: str | None) -> list[str]:
        """Return the files that were kept for long enough; one that was taken over may hold what is owed."""
        until = self._now() - self._keep_s * (1 + _SLACK)
        return [
            file.name
            for file in self._files.values()
            if file.since < until and not file.unsettled and file.compared and file.name != active
        ]

    def forget(self, names: Iterable[str]) -> None:
        """Forget files that are gone."""
        for name in names:
            self._files.pop(name, None)
