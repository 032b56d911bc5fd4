"""What the gate needs to survive Redis: connections with what was learnt of them, and its own beginning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from fairlead.engine.ports.credentials import Connection, ConnectionKey

SLOTS = "*slots"
"""Stands for the calls in flight where else a limit is named; no limit can have this name."""


@dataclass(frozen=True, slots=True)
class LearnedLimit:
    """What answers told of one limit of a connection, while its settings were of *version*.

    Of calls in flight (SLOTS) *per_s* means nothing and is 1.
    """

    connection_id: UUID
    limit: str
    version: int
    capacity: float
    per_s: float


class GateNotes(Protocol):
    """Notes of the gate. Every method raises DependencyUnavailableError where the store is away."""

    async def connection(self, key: ConnectionKey) -> Connection | None:
        """The connection, with what was learnt under its present settings; None: there is none. *Batched.*"""
        ...

    async def keep(self, learnt: Sequence[LearnedLimit]) -> None:
        """Write down what was learnt, each limit once. Of removed connections nothing is kept."""
        ...

    async def starts(self, prefix: str) -> bool:
        """Note that from now on slots may be granted under *prefix*; True for the first who ever said so."""
        ...
