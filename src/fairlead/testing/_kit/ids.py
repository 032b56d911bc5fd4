"""Identifiers for tests: counted, so that a run repeats itself."""

from __future__ import annotations

from uuid import UUID

from fairlead._core.ids import uuid7_from


class CountedIds:
    """A source of the ids 1, 2, 3, ... for ``fairlead._core.ids.Ids``; *start* keeps several sources apart."""

    def __init__(self, start: int = 0) -> None:
        self._count = start

    def uuid7(self) -> UUID:
        """Return the next number as a version 7 UUID; later ones sort after earlier ones."""
        return uuid7_from(self._next(), 0)

    def lease_id(self) -> int:
        """Return the next number."""
        return self._next()

    def nonce(self) -> str:
        """Return the next number as text."""
        return str(self._next())

    def _next(self) -> int:
        self._count += 1
        return self._count
