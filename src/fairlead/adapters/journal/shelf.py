"""Reading everybody's files: an index of eight bytes an entry, kept for each file and only ever extended.

An index number is a hash of 40 bits of the entry's place (connection and generation) and 24 bits of its
offset. Two places may share a hash; the entry itself is read and compared.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from io import RawIOBase
from pathlib import Path
from uuid import UUID

from fairlead.adapters.journal.record import (
    Frame,
    decode_entry,
    decode_head,
    frame_at,
    frames,
    place_of,
)
from fairlead.engine.ports import JournalEntry, JournalHead
from fairlead.engine.ports.sealing import Fits, whichever

MAX_FILE_BYTES = 1 << 24
_PLACE_MASK = (1 << 40) - 1
_OFFSET_MASK = MAX_FILE_BYTES - 1
_STRETCH_BYTES = 256 << 10
_PEEK_BYTES = 4 << 10
_MAX_INDEXES = 1024  # about 3,000 entries each: 24 MB at the most


@dataclass(slots=True)
class _Index:
    inode: int
    scanned_to: int = 0
    numbers: array[int] = field(default_factory=lambda: array("Q"))


class Shelf:
    """Finds entries by connection and generation. Not for several threads at once."""

    def __init__(self) -> None:
        self._indexes: OrderedDict[Path, _Index] = OrderedDict()

    def find(
        self, paths: Sequence[Path], connection_id: UUID, generation: int, fits: Fits = whichever
    ) -> JournalEntry | None:
        """The entry of the highest epoch for this place in *paths*, of those that fit."""
        found = [
            entry
            for path in paths
            for entry in self._candidates(path, connection_id.bytes, generation)
            if (entry.connection_id, entry.from_generation) == (connection_id, generation) and fits(entry)
        ]
        return max(found, key=lambda entry: entry.epoch, default=None)

    def _candidates(self, path: Path, connection: bytes, generation: int) -> Iterator[JournalEntry]:
        try:
            numbers = self._index(path).numbers
        except FileNotFoundError:  # kept for long enough, and gone
            return
        first = _number(connection, generation, 0)
        position = bisect_left(numbers, first)
        while position < len(numbers) and numbers[position] <= first | _OFFSET_MASK:
            frame = _frame(path, numbers[position] & _OFFSET_MASK)
            if frame is not None:
                yield decode_entry(frame)
            position += 1

    def _index(self, path: Path) -> _Index:
        known, found = self._indexes.get(path), path.stat()
        if known and (known.inode, known.scanned_to) == (found.st_ino, found.st_size):
            return known  # it was closed, and is read to its end
        with path.open("rb", buffering=0) as file:
            inode = os.fstat(file.fileno()).st_ino
            index = self._indexes.get(path)
            if index is None or index.inode != inode:
                index = self._indexes[path] = _Index(inode)
            self._indexes.move_to_end(path)
            start = index.scanned_to
            file.seek(start)
            added = _written(file, _PEEK_BYTES if start else _STRETCH_BYTES)
        for frame in frames(added):
            index.scanned_to = start + frame.end
            index.numbers.append(_number(*place_of(frame), start + frame.start))
        if added:
            index.numbers = array("Q", sorted(index.numbers))
        if len(self._indexes) > _MAX_INDEXES:
            self._indexes.popitem(last=False)
        return index


def heads_of(path: Path) -> list[JournalHead]:
    """Which sends the entries of a file are of; none if it is gone."""
    try:
        return [decode_head(frame) for frame in frames(path.read_bytes())]
    except FileNotFoundError:
        return []


def trim(path: Path) -> None:
    """Give back the unused zeros of a dead owner's file, or all of a file that holds nothing."""
    with suppress(OSError):  # it only saves space
        data = path.read_bytes()
        last = max((frame.end for frame in frames(data)), default=0)
        used = max(last, len(data.rstrip(b"\0")))  # what does not check stays: somebody may want to see it
        if used == 0:
            path.unlink()
        elif used < len(data):
            kept = path.stat()
            os.truncate(path, used)
            os.utime(path, ns=(kept.st_atime_ns, kept.st_mtime_ns))


def _written(file: RawIOBase, stretch: int) -> bytes:
    """What stands in *file* from here on; a long stretch of zeros is room that waits to be written.

    Behind what was read a shorter one, *stretch*, shows that nothing was written since.
    """
    parts = []
    while chunk := file.read(stretch):
        if chunk == bytes(len(chunk)):
            break
        parts.append(chunk)
        stretch = _STRETCH_BYTES
    return b"".join(parts)


def _number(connection: bytes, generation: int, offset: int) -> int:
    place = hash((connection, generation)) & _PLACE_MASK  # differs by process, as does the index
    return place << 24 | offset


def _frame(path: Path, offset: int) -> Frame | None:
    try:
        return frame_at(path.read_bytes(), offset)
    except FileNotFoundError:
        return None
