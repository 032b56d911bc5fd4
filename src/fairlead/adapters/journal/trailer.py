"""The index at the end of a closed file, which locates the entries of a connection without reading frames.

    magic (4) | keys (8 each) | epochs (8 each) | offsets (4 each) | footer

    footer: magic (4) | entries (4) | lowest epoch (8) | highest epoch (8) | crc32 of all before it (4)

Integers are little-endian, except in the footer, and entries are ordered by key and epoch. The footer is the
end of the file. Without a valid footer a file has no index and is read whole: its process died before it
wrote one, an older version wrote the file, or a byte flipped. The index is not synced, because the frames
hold the same information. Readers of frames skip it, because its magics differ from theirs.
"""

from __future__ import annotations

import os
import struct
import sys
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from fairlead.adapters.journal.newest import NONE
from fairlead.adapters.journal.record import frames, key_and_epoch

MAGIC_INDEX = b"\xf1FJ\x02"
_MAGIC_FOOTER = b"\xf1FJ\x03"
_FOOTER = struct.Struct(">4sIQQI")
_ENTRY_BYTES = 20
MAX_EPOCH = (1 << 64) - 1
"""Above every epoch."""


@dataclass(slots=True)
class Entries:
    """Key, epoch and offset of each entry of a file, in columns. *offsets* grows last.

    Attributes:
        lowest: The lowest epoch.
        highest: The highest epoch.
    """

    keys: array[int] = field(default_factory=lambda: array("Q"))
    epochs: array[int] = field(default_factory=lambda: array("Q"))
    offsets: array[int] = field(default_factory=lambda: array("I"))
    lowest: int = MAX_EPOCH
    highest: int = NONE
    is_sorted: bool = False

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, key: int, epoch: int, offset: int) -> None:
        """Append one entry."""
        self.lowest, self.highest = min(self.lowest, epoch), max(self.highest, epoch)
        self.keys.append(key)
        self.epochs.append(epoch)
        self.offsets.append(offset)

    def extend(self, other: Entries) -> None:
        """Append the entries of *other*."""
        self.lowest, self.highest = min(self.lowest, other.lowest), max(self.highest, other.highest)
        self.keys.extend(other.keys)
        self.epochs.extend(other.epochs)
        self.offsets.extend(other.offsets)

    def of(self, key: int) -> Iterator[tuple[int, int]]:
        """Yield epoch and offset of each entry of *key*."""
        if not self.is_sorted:
            entries = zip(self.keys, self.epochs, self.offsets, strict=False)
            yield from [(epoch, offset) for other, epoch, offset in entries if other == key]
            return
        position = bisect_left(self.keys, key)
        while position < len(self.keys) and self.keys[position] == key:
            yield self.epochs[position], self.offsets[position]
            position += 1

    def in_order(self) -> Entries:
        """Return the same entries, ordered by key and epoch."""
        count = len(self)
        order = sorted(range(count), key=lambda at: (self.keys[at], self.epochs[at]))
        keys, epochs, offsets = (
            array(c.typecode, [c[at] for at in order]) for c in (self.keys, self.epochs, self.offsets)
        )
        return Entries(keys, epochs, offsets, self.lowest, self.highest, is_sorted=True)


def entries_of(data: bytes, start: int = 0) -> tuple[Entries, int]:
    """Find the entries in the frames of *data*, which begins at *start* in its file.

    Returns:
        The entries, and the offset in the file at which the last of them ends (*start* without any).
    """
    entries, end = Entries(), start
    for frame in frames(data):
        entries.add(*key_and_epoch(frame), start + frame.start)
        end = start + frame.end
    return entries, end


def encode_trailer(entries: Entries) -> bytes:
    """Return the index of *entries*, which are not empty."""
    ordered = entries.in_order()
    columns = (_little_endian(c).tobytes() for c in (ordered.keys, ordered.epochs, ordered.offsets))
    data = b"".join((MAGIC_INDEX, *columns))
    head = _FOOTER.pack(_MAGIC_FOOTER, len(ordered), ordered.lowest, ordered.highest, 0)[:-4]
    return data + head + zlib.crc32(head, zlib.crc32(data)).to_bytes(4, "big")


def read_trailer(descriptor: int) -> Entries | None:
    """Return the index at the end of an open file; None if it has no valid one."""
    size = os.fstat(descriptor).st_size
    footer = os.pread(descriptor, _FOOTER.size, max(0, size - _FOOTER.size))
    if len(footer) < _FOOTER.size:
        return None
    magic, count, lowest, highest, crc = _FOOTER.unpack(footer)
    start = size - _FOOTER.size - count * _ENTRY_BYTES - len(MAGIC_INDEX)
    if magic != _MAGIC_FOOTER or start < 0 or not count:
        return None
    data = os.pread(descriptor, size - _FOOTER.size - start, start)
    if not data.startswith(MAGIC_INDEX) or zlib.crc32(footer[:-4], zlib.crc32(data)) != crc:
        return None
    columns = []
    at = len(MAGIC_INDEX)
    for typecode, width in (("Q", 8), ("Q", 8), ("I", 4)):
        column = array(typecode)
        column.frombytes(data[at : at + width * count])
        columns.append(_little_endian(column))
        at += width * count
    keys, epochs, offsets = columns
    return Entries(keys, epochs, offsets, lowest, highest, is_sorted=True)


def seal(path: Path) -> None:
    """Close the file of a dead owner: cut off unused zeros and append an index, or delete it if it is empty.

    Damaged bytes stay, for analysis. The file's modification time does not change.
    """
    with suppress(OSError):  # sealing only saves space and time
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if read_trailer(descriptor) is None:
                _truncate_and_index(path, descriptor)
        finally:
            os.close(descriptor)


def _truncate_and_index(path: Path, descriptor: int) -> None:
    status = os.fstat(descriptor)
    data = os.pread(descriptor, status.st_size, 0)
    entries, end = entries_of(data)
    used = max(end, len(data.rstrip(b"\0")))
    if used == 0:
        path.unlink()
        return
    os.ftruncate(descriptor, used)
    if len(entries):
        os.pwrite(descriptor, encode_trailer(entries), used)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def _little_endian(column: array[int]) -> array[int]:
    if sys.byteorder == "big":
        column = column[:]
        column.byteswap()
    return column
