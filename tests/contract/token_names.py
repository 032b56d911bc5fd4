"""Ids and epochs by what they stand for, so that two sides that draw their own can be compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from functools import cache
from typing import Any
from uuid import UUID

from fairlead.testing._kit.ids import CountedIds


@cache
def _names_of(kind: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


class Names:
    """Gives ids, the first of them *start*, and shows answers without them."""

    def __init__(self, start: int) -> None:
        self._start = start
        self._epochs: dict[int, int] = {}
        self._names: dict[UUID, str] = {}
        self._made = 0

    def id(self, name: str) -> UUID:
        """A new id, by the name of what it stands for."""
        self._made += 1
        uuid = CountedIds(self._start + self._made).uuid7()
        self._names[uuid] = f"{name} {self._made}"
        return uuid

    def shown(self, value: Any) -> Any:
        """*value* with names in the place of ids, and epochs numbered as they are first seen."""
        if value is None or isinstance(value, str | int | float | datetime | bytes):
            return value
        if isinstance(value, UUID):
            return self._names.get(value, "of the store's own making")
        if isinstance(value, list | tuple):
            return [self.shown(item) for item in value]
        if isinstance(value, Mapping):
            return {name: self._told(name, item) for name, item in value.items()}
        return {name: self._told(name, getattr(value, name)) for name in _names_of(type(value))}

    def _told(self, name: str, value: Any) -> Any:
        if name in ("epoch", "settled_epoch") and value:
            return self._epochs.setdefault(value, len(self._epochs) + 1)
        return self.shown(value)
