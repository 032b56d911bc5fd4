"""The gate's state that must survive Redis: learned limits, and whether slots were ever granted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from fairlead.engine.ports.connection import Connection, ConnectionKey

SLOTS_LIMIT = "*slots"
"""In place of a limit's name, for the number of calls in flight; no limit can have this name."""


@dataclass(frozen=True, slots=True)
class LearnedLimit:
    """One limit of a connection, as responses stated it.

    Attributes:
        limit: The name of the limit, or SLOTS_LIMIT.
        version: The version of the connection and so of the settings to which it applies.
        per_s: Units per second; 1 and without meaning for SLOTS_LIMIT.
    """

    connection_id: UUID
    limit: str
    version: int
    capacity: float
    per_s: float


class GateNotes(Protocol):
    """The store of this state. Its methods raise DependencyUnavailableError while it is unavailable."""

    async def connection(self, key: ConnectionKey) -> Connection | None:
        """Return the connection with its learned limits, or None if there is none. Batched."""
        ...

    async def save(self, limits: Sequence[LearnedLimit]) -> None:
        """Store *limits*, which name each limit once. Those of removed connections are ignored."""
        ...

    async def record_first_use(self, prefix: str) -> bool:
        """Record that slots may be granted under the key prefix *prefix*.

        Returns:
            True if this call was the first to record it, so that no slot was ever granted before.
        """
        ...
