"""Frames among torn tails and flipped bytes: what is given out is right, and damage costs itself alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.adapters.journal.record import (
    decode_entry,
    encode_entry,
    frames,
)
from fairlead.engine.ports import JournalEntry, Sealed

ENTRIES = st.builds(
    JournalEntry,
    connection_id=st.uuids(),
    tenant=st.text(max_size=60).filter(lambda text: len(text.encode("utf-8", "replace")) <= 200),
    provider=st.from_regex(r"\A[a-z0-9][a-z0-9_.-]{0,20}\Z"),
    attempt_id=st.uuids(),
    from_generation=st.integers(0, 2**63 - 1),
    epoch=st.integers(0, 2**63 - 1),
    sent_at=st.datetimes(timezones=st.just(UTC)),
    sealed=st.builds(Sealed, key_id=st.uuids(), blob=st.binary(max_size=300)),
)


def entry_number(number: int, blob: bytes = b"sealed") -> JournalEntry:
    return JournalEntry(
        connection_id=UUID(int=number),
        tenant="acme",
        provider="mercadolibre",
        attempt_id=UUID(int=1000 + number),
        from_generation=number,
        epoch=number,
        sent_at=datetime(2026, 11, 20, tzinfo=UTC) + timedelta(microseconds=number),
        sealed=Sealed(UUID(int=7), blob),
    )


def read(data: bytes) -> list[JournalEntry]:
    return [decode_entry(frame) for frame in frames(data)]


@given(st.lists(ENTRIES, max_size=5), st.integers(0, 64))
def test_entries_come_back_as_they_were(entries: list[JournalEntry], zeros: int) -> None:
    assert read(b"".join(map(encode_entry, entries)) + bytes(zeros)) == entries


THREE = [entry_number(number) for number in range(3)]
DATA = b"".join(map(encode_entry, THREE))
ENDS = [len(encode_entry(THREE[0])) * count for count in range(4)]


@pytest.mark.parametrize("filler", [b"", bytes(200)], ids=["short", "zeros"])
def test_cut_at_every_byte(filler: bytes) -> None:
    for length in range(len(DATA)):
        complete_count = sum(end <= length for end in ENDS[1:])
        assert read(DATA[:length] + filler) == THREE[:complete_count]


def test_every_flipped_bit_costs_one_entry() -> None:
    for position in range(len(DATA)):
        for bit in range(8):
            flipped = bytearray(DATA)
            flipped[position] ^= 1 << bit
            hit = sum(end <= position for end in ENDS[1:])
            assert read(bytes(flipped)) == THREE[:hit] + THREE[hit + 1 :]


@given(st.binary(max_size=200), st.lists(ENTRIES, min_size=1, max_size=2))
def test_rubbish_before_the_entries_does_not_hide_them(rubbish: bytes, entries: list[JournalEntry]) -> None:
    assert read(rubbish + b"".join(map(encode_entry, entries)))[-len(entries) :] == entries


def test_a_frame_within_an_answer_is_not_read() -> None:
    inner = encode_entry(entry_number(9))
    outer = entry_number(1, blob=inner)
    assert read(encode_entry(outer)) == [outer]
