"""Frames on disk, each with one entry: a sealed response.

    magic (4) | length (4) | crc32 of length and payload (4) | payload

A reader goes from frame to frame. After a frame with a wrong checksum it searches for the next magic. A torn
tail is the end, and a damaged frame costs no other. Nothing with a wrong checksum is ever returned.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from fairlead.adapters.journal.newest import key_of_half
from fairlead.engine.ports import JournalEntry, Sealed

MAGIC = b"\xf1FJ\x01"  # the last byte is the version of what follows
_HEAD = struct.Struct(">4sII")
_ENTRY = struct.Struct(">B16sQQ16sq16sHB")
_KIND_ENTRY = 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame with a valid checksum: its start and end in the file, and its content."""

    start: int
    end: int
    payload: bytes


def encode_entry(entry: JournalEntry) -> bytes:
    """Return the frame of *entry*."""
    tenant, provider = entry.tenant.encode(), entry.provider.encode()
    head = _ENTRY.pack(
        _KIND_ENTRY,
        entry.connection_id.bytes,
        entry.from_generation,
        entry.epoch,
        entry.attempt_id.bytes,
        (entry.sent_at - _EPOCH) // _MICROSECOND,
        entry.sealed.key_id.bytes,
        len(tenant),
        len(provider),
    )
    return _frame(b"".join((head, tenant, provider, entry.sealed.blob)))


def frames(data: bytes, start: int = 0) -> Iterator[Frame]:
    """Yield all frames of *data* with a valid checksum, in order."""
    position = data.find(MAGIC, start)
    while position >= 0:
        frame = frame_at(data, position)
        if frame is not None:
            yield frame
        position = data.find(MAGIC, frame.end if frame else position + 1)


def frame_at(data: bytes, position: int) -> Frame | None:
    """Return the frame that starts at *position*; None if it is torn or damaged, or holds no entry."""
    if len(data) < position + _HEAD.size:
        return None
    magic, length, crc = _HEAD.unpack_from(data, position)
    begin = position + _HEAD.size
    payload = data[begin : begin + length]
    if magic != MAGIC or len(payload) != length or _crc(payload) != crc or payload[0] != _KIND_ENTRY:
        return None
    return Frame(position, begin + length, payload)


def decode_entry(frame: Frame) -> JournalEntry:
    """Return the entry that *frame* holds."""
    fields = _ENTRY.unpack_from(frame.payload)
    _, connection, generation, epoch, rotation, sent_us, key, tenant_length, provider_length = fields
    tenant_end = _ENTRY.size + tenant_length
    provider_end = tenant_end + provider_length
    return JournalEntry(
        connection_id=UUID(bytes=connection),
        tenant=frame.payload[_ENTRY.size : tenant_end].decode(),
        provider=frame.payload[tenant_end:provider_end].decode(),
        attempt_id=UUID(bytes=rotation),
        from_generation=generation,
        epoch=epoch,
        sent_at=_EPOCH + sent_us * _MICROSECOND,
        sealed=Sealed(UUID(bytes=key), frame.payload[provider_end:]),
    )


def key_and_epoch(frame: Frame) -> tuple[int, int]:
    """Return the connection's key (see `newest.key_of`) and the epoch of an entry; decode no other field."""
    fields = _ENTRY.unpack_from(frame.payload)
    return key_of_half(fields[1][8:]), fields[3]


def _frame(payload: bytes) -> bytes:
    return _HEAD.pack(MAGIC, len(payload), _crc(payload)) + payload


def _crc(payload: bytes) -> int:
    return zlib.crc32(payload, zlib.crc32(len(payload).to_bytes(4, "big")))
