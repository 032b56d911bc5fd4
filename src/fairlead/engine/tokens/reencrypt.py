"""Key rotation and verification while everything runs. Only ports are used; no key is visible here.

    rotate           makes a new data key for every tenant with a key under an older master key, reseals all
                     records under it, then wraps the retired keys with the newest master key
    rotate, rewrap   only the last step: cheap, but the data keys stay the same
    verify           opens every record and counts

The remaining work is read from the rows, so an interrupted rotation resumes where it stopped. Locked rows are
not waited for: the next pass finds them. A rotation begins only when every live process holds the newest
master key, and it ends when each of them has looked up the new data keys. Spec: T9, S12.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal
from uuid import UUID

from fairlead._core.clock import Clock
from fairlead.engine.ports import (
    DataKey,
    KeyHolder,
    KeyRotator,
    KeyStore,
    Sealed,
    SealedRecords,
    SessionStore,
    StoredRecord,
    Vault,
)
from fairlead.errors import (
    CredentialUnreadableError,
    InvalidConfigError,
    MasterKeyElsewhereError,
    MasterKeyMismatchError,
    MasterKeyMissingError,
)
from fairlead.policy.text.names import listed

UNREADABLE = (
    MasterKeyMissingError,
    MasterKeyMismatchError,
    CredentialUnreadableError,
    MasterKeyElsewhereError,
)
MAX_EXAMPLES = 20
BUSY_ROWS_S = 0.1
"""The pause between passes while all remaining rows are locked."""
BUSY_MOST_S = 60.0
"""How long locked rows are retried before they count as remaining."""
POLL_S = 1.0
KEY_REFRESH_S = 5.0
"""How long a process may take to look up the data keys after they were renewed."""


@dataclass(frozen=True, slots=True)
class RotationProgress:
    """How far one phase has come: *done* keys or records so far."""

    phase: Literal["renew", "reseal", "rewrap"]
    done: int


@dataclass(frozen=True, slots=True)
class RotationReport:
    """The result of a rotation.

    *remaining* counts records still under retired keys: those that do not open, and those that stayed locked.
    """

    renewed: int
    resealed: int
    rewrapped: int
    remaining: int


@dataclass(slots=True)
class VerifyReport:
    """Records by outcome; *problems* by error code, *examples* name the first few."""

    checked: int = 0
    readable: int = 0
    problems: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)


class Reencryptor:
    """Rotates and verifies the tables of sealed records.

    Args:
        tables: The tables of sealed records, by name.
        sessions: The sessions of the processes that seal. Default None: a rotation waits for as long as
            another process may seal under a retired key.
        own_session: Returns the session id of this process.
        batch: Rows read at a time.
    """

    def __init__(
        self,
        *,
        vault: Vault,
        rotator: KeyRotator,
        keys: KeyStore,
        tables: Mapping[str, SealedRecords],
        clock: Clock,
        sessions: SessionStore | None = None,
        own_session: Callable[[], UUID | None] = lambda: None,
        batch: int = 200,
    ) -> None:
        self._sessions = sessions
        self._own_session = own_session
        self._vault = vault
        self._rotator = rotator
        self._keys = keys
        self._tables = tables
        self._clock = clock
        self._batch = batch
        self._current_since_mono: float | None = None  # since then no other process is behind

    async def rotate(
        self,
        *,
        rewrap_only: bool = False,
        progress: Callable[[RotationProgress], None] = lambda _: None,
    ) -> RotationReport:
        """Reseal everything that an older master key opens. An error is raised before the first change.

        Raises:
            MasterKeyMissingError: This process lacks a master key that is in use.
            MasterKeyMismatchError: A master key of this process does not open what it should.
            InvalidConfigError: Another live process does not hold the newest master key.
        """
        await self._rotator.check()
        await self._check_holders()
        renewed = resealed = remaining = 0
        if not rewrap_only:
            renewed = await self._each_key(self._rotator.renew, "renew", progress, current_only=True)
            if self._sessions is not None:
                await self._sessions.data_keys_renewed()
            resealed, remaining = await self._reseal_until_done(self._clock.monotonic(), progress)
        rewrapped = await self._each_key(self._rotator.rewrap, "rewrap", progress, current_only=False)
        return RotationReport(renewed, resealed, rewrapped, remaining)

    async def verify(self, progress: Callable[[int], None] = lambda _: None) -> VerifyReport:
        """Open every record; nothing is changed."""
        report = VerifyReport()
        for table in self._tables.values():
            async for page in self._pages(table, retired_only=False):
                for record in page:
                    await self._verify(record, report)
                progress(report.checked)
        return report

    # ---- other processes

    async def _others(self) -> list[KeyHolder]:
        holders = [] if self._sessions is None else await self._sessions.key_holders()
        return [holder for holder in holders if holder.session_id != self._own_session()]

    async def _check_holders(self) -> None:
        newest = self._rotator.master_id
        lacking = [
            f"pid {holder.pid} on {holder.host}"
            for holder in await self._others()
            if holder.master_ids is not None and newest not in holder.master_ids
        ]
        if lacking:
            raise InvalidConfigError(
                f"{len(lacking)} live processes lack the master key {newest}: {listed(lacking)}",
                hint="restart them with the new key in front of the old one, and rotate again",
            )

    async def _late_writers_s(self, retired_mono: float) -> float:
        """Return the seconds for which other processes may still seal under a retired key; 0.0: none may."""
        left_s = retired_mono + self._rotator.retired_writes_s - self._clock.monotonic()
        if self._sessions is None or left_s <= 0:
            return max(0.0, left_s)
        others = await self._others()
        if not others:
            return 0.0
        if any(holder.is_behind or holder.master_ids is None for holder in others):
            self._current_since_mono = None
            return min(left_s, POLL_S)
        if self._current_since_mono is None:
            self._current_since_mono = self._clock.monotonic()
        return min(left_s, max(0.0, self._current_since_mono + KEY_REFRESH_S - self._clock.monotonic()))

    # ---- keys

    async def _each_key(
        self,
        act: Callable[[DataKey], Awaitable[bool]],
        phase: Literal["renew", "rewrap"],
        progress: Callable[[RotationProgress], None],
        *,
        current_only: bool,
    ) -> int:
        done = 0
        cursor: UUID | None = None
        while page := await self._keys.foreign(
            self._rotator.master_id, current_only=current_only, cursor=cursor, limit=self._batch
        ):
            for key in page:
                done += await act(key)
            cursor = page[-1].key_id
            progress(RotationProgress(phase, done))
        return done

    # ---- records

    async def _reseal_until_done(
        self, retired_mono: float, progress: Callable[[RotationProgress], None]
    ) -> tuple[int, int]:
        """Repeat passes over all tables until one that began after the last late writer finds nothing.

        Return the numbers of resealed and of remaining records.
        """
        resealed, progress_mono = 0, self._clock.monotonic()
        while True:
            late_writers_s = await self._late_writers_s(retired_mono)
            resealable = replaced = unreadable = 0
            for table in self._tables.values():
                async for page in self._pages(table, retired_only=True):
                    changes = await self._resealed(page)
                    resealable += len(changes)
                    unreadable += len(page) - len(changes)
                    replaced += await table.replace(changes) if changes else 0
                    progress(RotationProgress("reseal", resealed + replaced))
            resealed += replaced
            if replaced or not resealable:
                progress_mono = self._clock.monotonic()
            stuck = self._clock.monotonic() - progress_mono >= BUSY_MOST_S
            if late_writers_s <= 0 and (stuck or not resealable):
                return resealed, unreadable + resealable - replaced
            if replaced == 0:
                await self._clock.sleep(late_writers_s if resealable == 0 else BUSY_ROWS_S)

    async def _resealed(self, page: Sequence[StoredRecord]) -> list[tuple[StoredRecord, Sealed]]:
        """Return new seals for the records of *page* that open; the others stay unchanged."""
        changes = []
        for record in page:
            try:
                plain = await self._vault.open(record.context, record.sealed)
            except UNREADABLE:
                continue
            _key = await self._vault.preflight(record.context.tenant)
            changes.append((record, self._vault.seal(record.context, plain)))
        return changes

    async def _pages(self, table: SealedRecords, *, retired_only: bool) -> AsyncIterator[list[StoredRecord]]:
        cursor: UUID | None = None
        while page := await table.page(retired_only=retired_only, cursor=cursor, limit=self._batch):
            yield page
            cursor = page[-1].record_id

    async def _verify(self, record: StoredRecord, report: VerifyReport) -> None:
        report.checked += 1
        try:
            await self._vault.open(record.context, record.sealed)
        except UNREADABLE as error:
            report.problems[error.code] += 1
            if len(report.examples) < MAX_EXAMPLES:
                report.examples.append(str(error))
        else:
            report.readable += 1
