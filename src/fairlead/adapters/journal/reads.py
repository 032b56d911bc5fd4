"""The system calls that read a journal file: its end, its index, one frame."""

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
    """Return whether nothing is written at *offset*.

    Raises:
        OSError: The page is not in memory, so only the disk could answer.
    """
    if _NO_WAIT is None:
        return False
    peeked = bytearray(len(_NOTHING))
    return os.preadv(descriptor, [peeked], offset, _NO_WAIT) == len(peeked) and peeked == _NOTHING


def entries_in(descriptor: int) -> Entries:
    """Return the entries of a closed file, from its index or, without one, from its frames."""
    indexed = read_trailer(descriptor)
    if indexed is not None:
        return indexed
    return entries_of(os.pread(descriptor, os.fstat(descriptor).st_size, 0))[0]


def read_written(descriptor: int, offset: int) -> bytes:
    """Return the bytes from *offset* to the next long run of zeros, which is unused space."""
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
    """Return the frame at *offset*, or None if its checksum is wrong."""
    data = os.pread(descriptor, _FRAME_BYTES, offset)
    frame = frame_at(data, 0)
    if frame is None and len(data) == _FRAME_BYTES:  # the frame may be longer
        frame = frame_at(os.pread(descriptor, os.fstat(descriptor).st_size - offset, offset), 0)
    return frame
