"""Vault and journal of the simulated fleet: nothing is encrypted, and a disk outlives who writes to it."""

from __future__ import annotations

import asyncio
import errno
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextvars import Context
from dataclasses import dataclass, field
from uuid import UUID

from fairlead.engine.ports import EntryFilter, JournalEntry, JournalHead, SealContext, Sealed, any_entry
from fairlead.errors import CredentialUnreadableError, RefusedError
from tests.simulation.loop import SimLoop
from tests.simulation.process import SimProcess, never

WRITE_S = (0.001, 0.02)
_KEY = UUID(int=1)


class SimVault:
    """Binds a record to its place, as the real one does, and hides nothing."""

    async def preflight(self, tenant: str) -> None:
        """The key is always there."""

    def seal(self, context: SealContext, plain: bytes) -> Sealed:
        """As the port says."""
        return Sealed(_KEY, _bound(context) + plain)

    async def open(self, context: SealContext, sealed: Sealed) -> bytes:
        """As the port says."""
        bound = _bound(context)
        if not sealed.blob.startswith(bound):
            raise CredentialUnreadableError(
                "a sealed record was moved to another place", tenant=context.tenant
            )
        return sealed.blob[len(bound) :]


def _bound(context: SealContext) -> bytes:
    return f"{context}\n".encode()


@dataclass(slots=True)
class _StoredEntry:
    entry: JournalEntry
    owner: SimProcess


@dataclass(slots=True)
class HostDisk:
    """The journal folder of one host. *full*: nothing more can be written.

    *strikes* counts who was told so.
    """

    kept: list[_StoredEntry] = field(default_factory=list)
    full: bool = False
    strikes: Counter[str] = field(default_factory=Counter)

    def refuses(self) -> bool:
        """Whether somebody who wants to write cannot."""
        self.strikes["disk_full"] += self.full
        return self.full


class SimJournal:
    """The port Journal of one process on the disk of its host."""

    def __init__(
        self,
        disk: HostDisk,
        process: SimProcess,
        loop: SimLoop,
        between: Callable[[tuple[float, float]], float],
    ) -> None:
        self._disk = disk
        self._process = process
        self._loop = loop
        self._between = between

    def preflight(self) -> None:
        """As the port says."""
        if self._disk.refuses():
            raise RefusedError(
                "the refresh was not sent, because its response could not be stored", retry_after_s=1.0
            )

    async def append(self, entry: JournalEntry) -> None:
        """On disk a moment later: what was written stays, also where its process is killed meanwhile."""
        if self._process.dead:
            await never()
        if self._disk.refuses():
            raise OSError(errno.ENOSPC, "the disk is full")
        done: asyncio.Future[None] = self._loop.create_future()
        self._loop.call_later(self._between(WRITE_S), self._land, entry, done, context=Context())
        await done

    def _land(self, entry: JournalEntry, done: asyncio.Future[None]) -> None:
        self._disk.kept.append(_StoredEntry(entry, self._process))
        if not done.done():
            done.set_result(None)

    def settled(self, connection_id: UUID, epoch: int, *, just_now: bool = True) -> None:
        """Nothing is ever dropped here."""

    async def find(
        self,
        connection_id: UUID,
        from_generation: int,
        fits: EntryFilter = any_entry,
        *,
        newer_than: int = -1,
    ) -> JournalEntry | None:
        """As the port says: anybody's of this host, the latest send that fits."""
        entry_key = (connection_id, from_generation)
        entries = [
            stored.entry
            for stored in self._disk.kept
            if (stored.entry.connection_id, stored.entry.from_generation) == entry_key
            and stored.entry.epoch > newer_than
            and fits(stored.entry)
        ]
        return max(entries, key=lambda entry: entry.epoch, default=None)

    async def orphans(self) -> list[JournalEntry]:
        """As the port says."""
        orphaned = [stored for stored in self._disk.kept if stored.owner.dead]
        for orphan in orphaned:
            orphan.owner = self._process
        return [stored.entry for stored in orphaned]

    def heads(self) -> AsyncIterator[list[JournalHead]]:
        """As the port says, in one page."""
        in_order = sorted(self._disk.kept, key=lambda stored: stored.entry.epoch)
        newest = {stored.entry.connection_id: stored for stored in in_order}
        ours = [stored.entry for stored in newest.values() if stored.owner is self._process]
        return _OnePage(
            [JournalHead(e.connection_id, e.attempt_id, e.from_generation, e.epoch, e.sent_at) for e in ours]
        )


class _OnePage(AsyncIterator[list[JournalHead]]):
    """No generator: the loop would close one of a killed process at some moment of its own."""

    def __init__(self, page: list[JournalHead]) -> None:
        self._pages = [page]

    async def __anext__(self) -> list[JournalHead]:
        if not self._pages:
            raise StopAsyncIteration
        return self._pages.pop()
