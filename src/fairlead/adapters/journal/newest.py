"""The newest epoch of each connection in the journal files: whether a search can find anything at all.

An open hash table in three arrays, 20 bytes a slot and at most three slots in four used: 10^6 connections
take 40 MiB, where a dict takes 140. The key is the random half of the connection's id. Two connections that
share it share the higher epoch, which costs a needless search and never hides an entry.

Readers take no lock: a slot's key is set last, and a grown table replaces the old one in a single assignment.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Iterator, Sequence
from uuid import UUID

NONE = -1
"""Below every epoch: the connection has no entry."""
_MOST = (1 << 64) - 1
_FIRST_SLOTS = 1 << 10
_CROWDED, _FULL = 12, 15
"""Sixteenths of the table in use above which it should grow, and above which `add` has to wait for that."""

_Table = tuple[int, "array[int]", "array[int]", "array[int]"]


def key_of(connection_id: UUID) -> int:
    """Return the key of a connection in the table; never 0, which marks an empty slot."""
    return key_of_half(connection_id.bytes[8:])


def key_of_half(half: bytes) -> int:
    """Return the key for the last eight bytes of a connection's id."""
    return int.from_bytes(half, "big") or _MOST


class NewestEpochs:
    """A table from connections to their highest epoch and the number of the file that holds it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._growing = threading.Lock()
        self._table = _empty(_FIRST_SLOTS)
        self._count = 0
        self._floor = 0
        self._added_while_growing: list[tuple[Sequence[int], Sequence[int], int]] | None = None

    def newest(self, key: int) -> int:
        """Return the highest epoch of *key*, or NONE."""
        mask, keys, epochs, _ = self._table
        slot = key & mask
        while (slot_key := keys[slot]) != key:
            if not slot_key:
                return NONE
            slot = (slot + 1) & mask
        return epochs[slot]

    def add(self, key: int, epoch: int, file: int) -> None:
        """Raise the epoch of one key. To keep this fast, `grow` on another thread when `is_crowded`."""
        if self._is_filled(1, _FULL):
            self._make_room(1, _FULL)
        self._update((key,), (epoch,), file, epoch)

    def update(self, keys: Sequence[int], epochs: Sequence[int], file: int, lowest: int) -> None:
        """Raise the epoch of each key to that of its entry in *file*. *lowest* is the lowest of *epochs*."""
        self._make_room(len(keys), _CROWDED)
        self._update(keys, epochs, file, lowest)

    def _update(self, keys: Sequence[int], epochs: Sequence[int], file: int, lowest: int) -> None:
        """Put the entries into the table, and into the larger one if it is being made."""
        with self._lock:
            self._floor = min(self._floor, lowest)
            self._count += _put(self._table, keys, epochs, file)
            if self._added_while_growing is not None:
                self._added_while_growing.append((keys, epochs, file))

    def items(self) -> Iterator[tuple[int, int, int]]:
        """Yield key, epoch and file number of each connection."""
        _, keys, epochs, files = self._table
        return (item for item in zip(keys, epochs, files, strict=True) if item[0])

    @property
    def floor(self) -> int:
        """The lowest epoch of all files. Entries below it are dropped when the table grows."""
        return self._floor

    def set_floor(self, lowest: Callable[[], int]) -> None:
        """Set the floor to what *lowest* returns while nothing can be added."""
        with self._lock:
            self._floor = lowest()

    @property
    def is_crowded(self) -> bool:
        """Whether `grow` should be called."""
        return self._is_filled(0, _CROWDED)

    def grow(self) -> None:
        """Enlarge the table if it is crowded. Concurrent calls of `add` are hardly delayed."""
        self._make_room(0, _CROWDED)

    def _is_filled(self, more: int, sixteenths: int) -> bool:
        return (self._count + more) * 16 > len(self._table[1]) * sixteenths

    def _make_room(self, more: int, sixteenths: int) -> None:
        with self._growing:
            if self._is_filled(more, sixteenths):
                self._grow(more)

    def _grow(self, more: int) -> None:
        with self._lock:
            self._added_while_growing = []
        floor = self._floor
        more += sum(epoch >= floor for _, epoch, _ in self.items())
        slots = _FIRST_SLOTS
        while more * 2 > slots:
            slots *= 2
        table, count = _empty(slots), 0
        for key, epoch, file in self.items():
            if epoch >= floor:
                count += _put(table, (key,), (epoch,), file)
        with self._lock:
            for added in self._added_while_growing:
                count += _put(table, *added)
            self._table, self._count, self._added_while_growing = table, count, None


def _empty(slots: int) -> _Table:
    return slots - 1, array("Q", bytes(8 * slots)), array("Q", bytes(8 * slots)), array("I", bytes(4 * slots))


def _put(table: _Table, new_keys: Sequence[int], new_epochs: Sequence[int], file: int) -> int:
    """Put entries into *table*; return how many keys were new. With many files, starts wait for this loop."""
    mask, keys, epochs, files = table
    added = 0
    for key, epoch in zip(new_keys, new_epochs, strict=True):
        slot = key & mask
        while (slot_key := keys[slot]) != key:
            if not slot_key:
                epochs[slot], files[slot] = epoch, file
                keys[slot] = key
                added += 1
                break
            slot = (slot + 1) & mask
        else:
            if epochs[slot] < epoch:
                epochs[slot], files[slot] = epoch, file
    return added
