"""The table of newest epochs against a dict, and the index at the end of a closed file against its damage."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.adapters.journal.newest import NONE, NewestEpochs, key_of
from fairlead.adapters.journal.record import decode_entry, encode_entry, frames
from fairlead.adapters.journal.trailer import Entries, encode_trailer, entries_of, read_trailer, seal
from tests.unit.adapters.test_journal_record import entry_number

KEYS = st.one_of(st.integers(1, 40), st.integers(1, (1 << 64) - 1))
ENTRIES = st.lists(st.tuples(KEYS, st.integers(0, 1 << 62)), max_size=60)


def table_of(chunks: list[list[tuple[int, int]]]) -> NewestEpochs:
    table = NewestEpochs()
    for number, chunk in enumerate(chunks):
        if chunk:
            keys, epochs = zip(*chunk, strict=True)
            table.update(keys, epochs, number, min(epochs))
    return table


@given(st.lists(ENTRIES, max_size=8))
def test_the_table_knows_the_highest_epoch_of_each_key(chunks: list[list[tuple[int, int]]]) -> None:
    expected: dict[int, tuple[int, int]] = {}
    for number, chunk in enumerate(chunks):
        for key, epoch in chunk:
            if key not in expected or expected[key][0] < epoch:
                expected[key] = (epoch, number)
    table = table_of(chunks)
    assert {key: (epoch, file) for key, epoch, file in table.items()} == expected
    assert all(table.newest(key) == epoch for key, (epoch, _) in expected.items())
    assert table.newest((1 << 63) + 12_345) == expected.get((1 << 63) + 12_345, (NONE,))[0]


def test_the_table_grows_and_drops_what_has_no_file_any_more() -> None:
    table, count = NewestEpochs(), 20_000
    for key in range(1, count + 1):
        table.add(key, key, 0)
    assert all(table.newest(key) == key for key in range(1, count + 1))
    table.set_floor(lambda: count // 2)
    table._grow(0)
    assert sum(1 for _ in table.items()) == count // 2 + 1
    assert table.newest(count) == count
    assert table.newest(1) == NONE


def test_an_entry_below_the_floor_that_comes_later_is_not_dropped() -> None:
    """The clock of the database was set back: its newest sends have lower epochs than files hold."""
    table = NewestEpochs()
    table.add(1, 1_000, 0)
    table.set_floor(lambda: 1_000)
    table.add(2, 5, 1)
    table._grow(0)
    assert table.newest(2) == 5


def test_entry_added_while_the_table_grows_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_of([[(key, key) for key in range(1, 500)]])
    items = table.items

    def items_and_more() -> object:
        yield from items()
        table._update((7_000,), (3,), 1, 3)

    monkeypatch.setattr(table, "items", items_and_more)
    table._grow(0)
    assert table.newest(7_000) == 3


def test_a_million_connections_take_forty_mib() -> None:
    slots = 1 << 21  # it is half full at most when it was grown, and grown when three quarters are taken
    assert slots // 2 >= 1_000_000
    assert slots * sum(column.itemsize for column in NewestEpochs()._table[1:]) == 40 << 20


# ---- the index of a closed file


FRAMES = [encode_entry(entry_number(number, os.urandom(50))) for number in range(20)]
DATA = b"".join(FRAMES)


def closed(path: Path, data: bytes = DATA) -> bytes:
    """Write a file as its process closes it; returns the index."""
    trailer = encode_trailer(entries_of(data)[0])
    path.write_bytes(data + trailer)
    return trailer


def read(path: Path) -> Entries | None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return read_trailer(descriptor)
    finally:
        os.close(descriptor)


def test_the_index_says_where_each_entry_is(tmp_path: Path) -> None:
    closed(tmp_path / "f")
    entries = read(tmp_path / "f")
    assert entries is not None
    assert (entries.lowest, entries.highest, len(entries)) == (0, 19, 20)
    offset = 0
    for number, frame in enumerate(FRAMES):
        assert list(entries.of(key_of(UUID(int=number)))) == [(number, offset)]
        offset += len(frame)
    assert list(entries.of(12_345)) == []


def test_readers_of_frames_do_not_see_the_index(tmp_path: Path) -> None:
    closed(tmp_path / "f")
    epochs = [decode_entry(frame).epoch for frame in frames((tmp_path / "f").read_bytes())]
    assert epochs == list(range(20))


def test_an_index_with_a_flipped_or_lost_byte_is_none(tmp_path: Path) -> None:
    trailer = closed(tmp_path / "f")
    for position in range(len(trailer)):
        damaged = bytearray(trailer)
        damaged[position] ^= 0x10
        (tmp_path / "f").write_bytes(DATA + damaged)
        assert read(tmp_path / "f") is None
        (tmp_path / "f").write_bytes(DATA + trailer[:position])
        assert read(tmp_path / "f") is None


@pytest.mark.parametrize("tail", [b"", b"torn", bytes(5_000), FRAMES[0][:30] + bytes(99), b"x" * 24])
def test_a_dead_owners_file_gets_its_index_and_keeps_its_time(tmp_path: Path, tail: bytes) -> None:
    path = tmp_path / "f"
    path.write_bytes(DATA + tail)
    os.utime(path, (1000, 2000))
    seal(path)
    entries = read(path)
    assert entries is not None
    assert len(entries) == 20
    assert path.read_bytes().startswith(DATA + tail.rstrip(b"\0"))
    assert path.stat().st_mtime == 2000
    sealed = path.read_bytes()
    seal(path)
    assert path.read_bytes() == sealed


def test_a_dead_owners_empty_file_is_deleted(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes(5_000))
    seal(tmp_path / "f")
    assert not (tmp_path / "f").exists()
