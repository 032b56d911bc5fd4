"""Reading from a journal file: its end, its index, one frame."""

from __future__ import annotations

import os

from fairlead.adapters.journal.record import Frame, frame_at
from fairlead.adapters.journal.trailer import Entries, entries_of, read_trailer

_PEEK_BYTES = 4 << 10
_STRETCH_BYTES = 256 << 10
_FRAME_BYTES = 8 << 10
_NO_WAIT: int | None = getattr(os, "RWF_NOWAIT", None)
_NOTHING = bytes(4)


def ends_at(descriptor: int, offset: int) -> bool:
    """Return whether nothing is written at *offset*. Raises OSError where only the disk can say."""
    if _NO_WAIT is None:
        return False
    found = bytearray(len(_NOTHING))
    return os.preadv(descriptor, [found], offset, _NO_WAIT) == len(found) and found == _NOTHING


def entries_in(descriptor: int) -> Entries:
    """Return the entries of a closed file, by its index or, where it has none, by its frames."""
    indexed = read_trailer(descriptor)
    if indexed is not None:
        return indexed
    return entries_of(os.pread(descriptor, os.fstat(descriptor).st_size, 0))[0]


def written(descriptor: int, offset: int) -> bytes:
    """Return what stands from *offset* on; a long stretch of zeros is room that waits to be written."""
    parts = []
    stretch = _PEEK_BYTES
    while chunk := os.pread(descriptor, stretch, offset):
        if chunk == bytes(len(chunk)):
            break
        parts.append(chunk)
        offset += len(chunk)
        stretch = _STRETCH_BYTES
    return b"".join(parts)


def read_frame(descriptor: int, offset: int) -> Frame | None:
    """Return the frame at *offset*, if it checks."""
    data = os.pread(descriptor, _FRAME_BYTES, offset)
    frame = frame_at(data, 0)
    if frame is None and len(data) == _FRAME_BYTES:  # it may be a longer one
        frame = frame_at(os.pread(descriptor, os.fstat(descriptor).st_size - offset, offset), 0)
    return frame
