"""Sealing of secrets, data keys, and the journal that stores a response before it is used."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from fairlead.engine.ports.connection import Sealed


@dataclass(frozen=True, slots=True)
class SealContext:
    """The place that a sealed record is bound to: copied to another row, it does not open.

    Attributes:
        field: What is sealed, such as a credential or a journal entry.
    """

    tenant: str
    connection_id: UUID
    provider: str
    field: str
    generation: int


class Vault(Protocol):
    """Seals and opens secrets under a data key per tenant. Spec: T9."""

    async def preflight(self, tenant: str) -> object:
        """Load the tenant's data key, so that sealing a response cannot fail later.

        Hold the returned object until everything is sealed; otherwise the key may be evicted.
        """
        ...

    def seal(self, context: SealContext, plain: bytes) -> Sealed:
        """Seal under the tenant's current data key, which preflight() must have loaded."""
        ...

    async def open(self, context: SealContext, sealed: Sealed) -> bytes:
        """Return the plain text of *sealed*. A failure changes no data.

        Raises:
            MasterKeyMissingError, MasterKeyMismatchError, CredentialUnreadableError: It does not open.
        """
        ...


# ---- data keys ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DataKey:
    """A key that seals a tenant's records, wrapped by the master key *master_id*.

    A tenant has one current key. Retired keys only open records.
    """

    key_id: UUID
    tenant: str
    master_id: str
    wrapped: bytes
    current: bool = True


class KeyStore(Protocol):
    """The store of wrapped data keys. Each method is atomic."""

    async def current(self, tenant: str) -> DataKey | None:
        """Return the key that seals new records of *tenant*."""
        ...

    async def get(self, key_id: UUID) -> DataKey | None:
        """Return a key, current or retired."""
        ...

    async def adopt(self, key: DataKey) -> DataKey:
        """Store *key* as its tenant's first, unless another process was faster; return the current one."""
        ...

    async def succeed(self, old: DataKey, new: DataKey) -> bool:
        """Retire *old* and make *new* current, at once. Return False if *old* was not current."""
        ...

    async def rewrap(self, old: DataKey, new: DataKey) -> bool:
        """Replace the wrapping of one key by compare-and-set on the old wrapping."""
        ...

    async def foreign(
        self, master_id: str, *, current_only: bool, cursor: UUID | None, limit: int
    ) -> list[DataKey]:
        """Return a page of keys that another master key than *master_id* wrapped, in the order of their ids.

        Args:
            master_id: The newest master key.
            current_only: Whether to leave out retired keys.
            cursor: The last id of the page before. None: the first page.
            limit: The most keys of a page.
        """
        ...

    async def samples(self) -> list[DataKey]:
        """Return one data key for each master key that wraps any, to test whether each can be opened."""
        ...


class KeyRotator(Protocol):
    """The part of a key rotation that opens data keys; the rest of the engine sees only wrapped ones."""

    @property
    def master_id(self) -> str:
        """The id of the newest master key, which wraps all keys from now on."""
        ...

    @property
    def retired_writes_s(self) -> float:
        """How long other processes may still seal under a key that was just retired."""
        ...

    async def check(self) -> None:
        """Check that the stored data keys open in this process.

        Raises:
            MasterKeyMissingError, MasterKeyMismatchError, CredentialUnreadableError: One does not.
        """
        ...

    async def renew(self, old: DataKey) -> bool:
        """Retire *old* and make a new data key current. Return False if *old* was not current."""
        ...

    async def rewrap(self, old: DataKey) -> bool:
        """Wrap *old* under the newest master key. Return False if another process did."""
        ...


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A sealed record in its table, with the context that it is bound to."""

    record_id: UUID
    context: SealContext
    sealed: Sealed


class SealedRecords(Protocol):
    """One table of sealed records, which can be verified and resealed."""

    async def page(self, *, retired_only: bool, cursor: UUID | None, limit: int) -> list[StoredRecord]:
        """Return a page of records, in the order of their ids.

        Args:
            retired_only: Whether to return only those sealed under retired keys.
            cursor: The last id of the page before. None: the first page.
            limit: The most records of a page.
        """
        ...

    async def replace(self, changes: Sequence[tuple[StoredRecord, Sealed]]) -> int:
        """Replace each record by compare-and-set, and return how many were replaced.

        Records that a writer has locked or changed are skipped.
        """
        ...


# ---- the journal -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JournalHead:
    """A journal entry without its contents: which send it is the response to."""

    connection_id: UUID
    attempt_id: UUID
    from_generation: int
    epoch: int
    sent_at: datetime


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """A response in the journal. *sealed* holds its raw bytes."""

    connection_id: UUID
    tenant: str
    provider: str
    attempt_id: UUID
    from_generation: int
    epoch: int
    sent_at: datetime
    sealed: Sealed


EntryFilter = Callable[[JournalEntry], bool]


def any_entry(entry: JournalEntry) -> bool:
    """Accept every entry."""
    return True


class Journal(Protocol):
    """A host-local, append-only, fsynced log of responses to refreshes. Spec: R6, R11."""

    def preflight(self) -> None:
        """Raise RefusedError if an entry could not be written now, before a token is spent."""
        ...

    async def append(self, entry: JournalEntry) -> None:
        """Write *entry* to disk; concurrent entries share one fsync.

        Raises:
            OSError: The disk failed.
        """
        ...

    def settled(self, connection_id: UUID, epoch: int, *, just_now: bool = True) -> None:
        """Record that the database has this connection's responses up to *epoch*.

        Args:
            just_now: Whether they were stored now, so that their entries are deleted after 24 h. False: they
                were found to be stored earlier.
        """
        ...

    async def find(
        self,
        connection_id: UUID,
        from_generation: int,
        fits: EntryFilter = any_entry,
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
            RefusedError: The journals cannot be read.
        """
        ...

    async def orphans(self) -> Sequence[object]:
        """Adopt the journal files of dead processes. No other process gets them while this one lives.

        Returns:
            The files that this process adopted.
        """
        ...

    def heads(self) -> AsyncIterator[Sequence[JournalHead]]:
        """Yield, in pages, the newest entry of each connection, settled or not.

        Only entries in files of this process or adopted ones are included, so each is handled by one process.
        The entry with the highest epoch is in the first page. Settle the entries of a page
        before requesting the next one; entries that are not settled then stay.

        Spec: R11.
        """
        ...
