"""Sealing secrets, and the journal that keeps an answer before anybody is told of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
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

    async def preflight(self, tenant: str) -> object:
        """Load the tenant's data key, so that sealing a response cannot fail later.

        Hold the returned object until everything is sealed; otherwise the key may be evicted.
        """
        ...

    def seal(self, context: SealContext, plain: bytes) -> Sealed:
        """Seal under the tenant's current data key; it must be in memory (preflight)."""
        ...

    async def open(self, context: SealContext, sealed: Sealed) -> bytes:
        """Open; raises MasterKeyMissingError, MasterKeyMismatchError or CredentialUnreadableError. Data is
        never changed by a failure.
        """
        ...


# ---- data keys ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DataKey:
    """The key that seals a tenant's records, itself wrapped by the master key *master_id*.

    One is current per tenant; the others still open what they sealed.
    """

    key_id: UUID
    tenant: str
    master_id: str
    wrapped: bytes
    current: bool = True


class KeyStore(Protocol):
    """Where wrapped data keys are kept. Each method is atomic."""

    async def current(self, tenant: str) -> DataKey | None:
        """The key that seals new records of *tenant*."""
        ...

    async def get(self, key_id: UUID) -> DataKey | None:
        """Any key, current or retired."""
        ...

    async def adopt(self, key: DataKey) -> DataKey:
        """Store *key* as its tenant's first; gives the current one, which is another's if that was faster."""
        ...

    async def succeed(self, old: DataKey, new: DataKey) -> bool:
        """Retire *old* and make *new* current, at once. False: *old* was not current any more."""
        ...

    async def rewrap(self, old: DataKey, new: DataKey) -> bool:
        """Replace the wrapping of one key by compare-and-set on the old one."""
        ...

    async def foreign(
        self, master_id: str, *, current_only: bool, after: UUID | None, limit: int
    ) -> list[DataKey]:
        """Keys not wrapped by *master_id*, in the order of their ids, beyond *after*."""
        ...

    async def samples(self) -> list[DataKey]:
        """One key of each master that wrapped any."""
        ...


class KeyRotator(Protocol):
    """The side of a key rotation that sees keys in clear."""

    @property
    def master_id(self) -> str:
        """The master key that wraps from now on."""
        ...

    @property
    def retired_writes_s(self) -> float:
        """For how long other processes may go on sealing under a key that was just retired."""
        ...

    async def check(self) -> None:
        """Raise MasterKeyMissingError, MasterKeyMismatchError or CredentialUnreadableError if stored data
        keys do not open here.
        """
        ...

    async def renew(self, old: DataKey) -> bool:
        """Retire *old* and make a new data key current. False: *old* was not current any more."""
        ...

    async def rewrap(self, old: DataKey) -> bool:
        """Wrap the same data key under the present master. False: another process did."""
        ...


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A sealed record where it is stored, with all it is bound to."""

    record_id: UUID
    context: SealContext
    sealed: Sealed


class SealedRecords(Protocol):
    """One table of sealed records, to be verified and sealed anew."""

    async def page(self, *, retired_only: bool, after: UUID | None, limit: int) -> list[StoredRecord]:
        """Records in the order of their ids, beyond *after*; only those under retired keys if asked so."""
        ...

    async def replace(self, changes: Sequence[tuple[StoredRecord, Sealed]]) -> int:
        """Replace by compare-and-set on the old record; never waits for a writer. How many were replaced."""
        ...


# ---- the journal -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JournalHead:
    """The send that a journal entry is the response to."""

    connection_id: UUID
    attempt_id: UUID
    from_generation: int
    epoch: int
    sent_at: datetime


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """A sealed answer, on disk before anybody is told of it. *sealed* holds the raw answer."""

    connection_id: UUID
    tenant: str
    provider: str
    attempt_id: UUID
    from_generation: int
    epoch: int
    sent_at: datetime
    sealed: Sealed


Fits = Callable[[JournalEntry], bool]


def whichever(entry: JournalEntry) -> bool:
    """Every entry fits."""
    return True


class Journal(Protocol):
    """Host-local, append-only, fsynced (R6, R11)."""

    def preflight(self) -> None:
        """Raise Refused if no entry could be written now (disk full, folder gone): refuse, do not burn."""
        ...

    async def append(self, entry: JournalEntry) -> None:
        """Return once the entry is on disk; entries that wait together share one fsync. Raises OSError."""
        ...

    def settled(self, connection_id: UUID, epoch: int, *, just_now: bool = True) -> None:
        """Record that no entry of this connection up to *epoch* is needed any more: the database is as new.

        Entries that were settled *just_now* are deleted after 24 h.
        """
        ...

    async def find(
        self,
        connection_id: UUID,
        from_generation: int,
        fits: Fits = whichever,
        *,
        newer_than: int = -1,
    ) -> JournalEntry | None:
        """Return the newest matching entry of this generation in the journals of this host.

        Args:
            connection_id: The connection of the entry.
            from_generation: The generation that was spent.
            fits: Whether an entry matches. It may be called on another thread.
            newer_than: Only entries with a higher epoch match. If this host has none, nothing is read.

        Raises:
            Refused: The journals cannot be read.
        """
        ...

    async def orphans(self) -> Sequence[object]:
        """Take over the files of dead owners. No other process gets them while this one lives.

        Returns:
            The files that this process did not own before.
        """
        ...

    def heads(self) -> AsyncIterator[Sequence[JournalHead]]:
        """Yield, in pages, the newest entry of each connection, settled or not.

        Only connections whose newest entry is in our own or adopted files are included, so each is handled
        by one process. The entry with the highest epoch is in the first page. Settle the entries of a page
        before requesting the next one; entries that are not settled then stay.

        Spec: R11.
        """
        ...
