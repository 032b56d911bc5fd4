"""Sealing secrets, and the journal that keeps an answer before anybody is told of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from fairlead.engine.ports.credentials import Sealed


@dataclass(frozen=True, slots=True)
class SealContext:
    """What a sealed record is bound to: moved to another place, it does not open."""

    tenant: str
    connection_id: UUID
    provider: str
    field: str
    generation: int


class Vault(Protocol):
    """Seals and opens secrets under a data key per tenant (T9)."""

    async def preflight(self, tenant: str) -> None:
        """Have the tenant's data key in memory, so that sealing an answer cannot fail later."""
        ...

    def seal(self, context: SealContext, plain: bytes) -> Sealed:
        """Seal under the tenant's current data key; it must be in memory (preflight)."""
        ...

    async def open(self, context: SealContext, sealed: Sealed) -> bytes:
        """Open; raises KeyMissing, KeyWrong or CredentialUnreadable. Data is never changed by a failure."""
        ...


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """A sealed answer, on disk before anybody is told of it. *sealed* holds the raw answer."""

    connection_id: UUID
    tenant: str
    provider: str
    rotation_id: UUID
    from_generation: int
    epoch: int
    sent_at: datetime
    sealed: Sealed


class Journal(Protocol):
    """Host-local, append-only, fsynced (R6, R11)."""

    def preflight(self) -> None:
        """Raise Refused if an entry could not be written now (disk full, folder gone): refuse, do not burn."""
        ...

    async def append(self, entry: JournalEntry) -> None:
        """Return once the entry is on disk; entries that wait together share one fsync."""
        ...

    def settled(self, rotation_id: UUID, epoch: int) -> None:
        """The entry is in the database now; it is kept for 24 h and then dropped."""
        ...

    async def find(self, connection_id: UUID, from_generation: int) -> JournalEntry | None:
        """The newest entry of this generation in the journals of this host, living or dead owners alike."""
        ...

    async def orphans(self) -> list[JournalEntry]:
        """Unsettled entries in journals whose owner is dead, for replay at start."""
        ...
