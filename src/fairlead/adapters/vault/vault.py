"""Data keys in memory: one current per tenant to seal with, any number to open with, both bounded.

A tenant's first key is created when it is first needed. If two processes create one at once, the store takes
one, and the other process adopts it. The current key is looked up again after `recheck_s`, or when
`refresh_keys` is called, so that this process follows a key rotation by another one.

The newest master key that every live process holds wraps data keys. So while processes are restarted one by
one with a new key, those that lack it can open what the others seal.
"""

from __future__ import annotations

import math
import os
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID
from weakref import WeakValueDictionary

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from fairlead._core.clock import Clock
from fairlead._core.ids import Ids
from fairlead.adapters.vault.envelope import KEY_BYTES, key_of, seal, unreadable, unseal
from fairlead.adapters.vault.master import MasterKeyring
from fairlead.engine.ports import DataKey, KeyHolder, KeyStore, SealContext, Sealed
from fairlead.errors import FairleadError, MasterKeyElsewhereError, MasterKeyMissingError

ELSEWHERE_RETRY_S = 5.0
"""The retry delay of a process that lacks a master key which another process holds."""
ELSEWHERE_GONE_S = 60.0
"""After its end, the last process that holds a key counts as restarting for so long."""
_RESTORE = "restore the table data_key from a backup of the same time as the credentials"


@dataclass(frozen=True, slots=True)
class _Opened:
    """A data key in clear."""

    key_id: UUID
    tenant: str
    cipher: AESGCM


@dataclass(slots=True, weakref_slot=True)
class _Current:
    """A tenant's current data key, returned by a preflight. Sealing works while it is referenced."""

    opened: _Opened
    looked_s: float  # when the store last said that it is the current one


class Holders(Protocol):
    """Which processes hold which master keys; see ``SessionStore.key_holders``."""

    async def __call__(self, seen_within_s: float = 0.0) -> Sequence[KeyHolder]: ...


async def _nobody_else(seen_within_s: float = 0.0) -> Sequence[KeyHolder]:
    return ()


class TenantVault:
    """The ports Vault and KeyRotator over a key store and a keyring of master keys.

    Args:
        max_keys: The most data keys in memory. Those with a referenced preflight result are kept in addition.
            Default 10,000.
        recheck_s: Seconds for which a key counts as the current one before it is looked up. Default 300.
        promise_s: Seconds that are longer than any refresh. Default 120.
        holders: Returns the live processes with their master keys. Default: none.
    """

    def __init__(
        self,
        keys: KeyStore,
        masters: MasterKeyring,
        *,
        clock: Clock,
        ids: Ids,
        max_keys: int = 10_000,
        recheck_s: float = 300.0,
        promise_s: float = 120.0,
        holders: Holders = _nobody_else,
    ) -> None:
        self._keys = keys
        self._masters = masters
        self._clock = clock
        self._ids = ids
        self._max_keys = max_keys
        self._recheck_s = recheck_s
        self._promise_s = promise_s
        self._holders = holders
        self._current: OrderedDict[str, _Current] = OrderedDict()  # least recently used first
        self._in_use: WeakValueDictionary[str, _Current] = (
            WeakValueDictionary()
        )  # cached keys, and those in use by refreshes
        self._opened: OrderedDict[UUID, _Opened] = OrderedDict()

    # ---- Vault

    async def preflight(self, tenant: str) -> object:
        """Load the tenant's data key, which stays while the result is referenced, or create the first one."""
        current, now = self._in_use.get(tenant), self._clock.monotonic()
        if current is None or now - current.looked_s >= self._recheck_s:
            key = await self._keys.current(tenant) or await self._keys.adopt(
                await self._mint(tenant, await self.sealing_master_id())
            )
            opened = await self._unwrap(key)
            if current is None:
                current = self._in_use.setdefault(tenant, _Current(opened, now))
            current.opened, current.looked_s = opened, now
        self._current[tenant] = current
        self._current.move_to_end(tenant)
        if len(self._current) > self._max_keys:
            self._current.popitem(last=False)
        return current

    async def refresh_keys(self) -> None:
        """Forget the current data keys, after a rotation by another process.

        Keys that refreshes under way use are looked up again at once, so that these refreshes seal under the
        new ones.
        """
        self._current.clear()  # what `_in_use` still has after this is referenced by refreshes
        for tenant, current in list(self._in_use.items()):
            current.looked_s = -math.inf
            with suppress(FairleadError):  # the next preflight raises the error
                await self.preflight(tenant)

    def seal(self, context: SealContext, plain: bytes) -> Sealed:
        """Seal under the tenant's current key; RuntimeError without a preflight."""
        current = self._in_use.get(context.tenant)
        if current is None:
            raise RuntimeError("seal() without preflight(): the tenant's data key is not in memory")
        return seal(current.opened.cipher, current.opened.key_id, context, plain)

    async def open(self, context: SealContext, sealed: Sealed) -> bytes:
        """Open a record; raise MasterKeyMissingError, MasterKeyMismatchError, CredentialUnreadableError or
        MasterKeyElsewhereError.
        """
        try:
            opened = await self._key(key_of(context, sealed))
        except FairleadError as error:
            error.tenant, error.provider = context.tenant, context.provider
            raise
        if opened.tenant != context.tenant:
            raise unreadable(context, "is sealed under another tenant's key")
        return unseal(opened.cipher, context, sealed)

    # ---- KeyRotator

    @property
    def master_id(self) -> str:
        """The newest master key of this process, which wraps everything after a rotation."""
        return self._masters.current_id

    @property
    def master_ids(self) -> tuple[str, ...]:
        """The master keys of this process, newest first."""
        return self._masters.ids

    async def sealing_master_id(self) -> str:
        """Return the newest master key that every live process holds, or else the first of this process."""
        current = [holder.master_ids for holder in await self._holders() if holder.master_ids is not None]
        common = (mine for mine in self._masters.ids if all(mine in ids for ids in current))
        return next(common, self._masters.current_id)

    @property
    def retired_writes_s(self) -> float:
        """The time until every process has looked up the key again and finished what it had in flight."""
        return self._recheck_s + self._promise_s

    async def check(self) -> None:
        """Open one data key of each master that wrapped any; for start-up and `fairlead doctor`."""
        for key in await self._keys.samples():
            await self._masters.unwrap(key.wrapped, key.tenant, key.key_id.bytes, key.master_id)

    async def renew(self, old: DataKey) -> bool:
        """Retire *old* and make a new data key current, always under the newest master key.

        A rotation begins when every process holds that key. A process that starts later without it returns its
        work. Under an older key, each renewed key would have to be renewed again, without end.
        """
        renewed = await self._keys.succeed(old, await self._mint(old.tenant, self.master_id))
        if (current := self._in_use.get(old.tenant)) is not None:
            current.looked_s = (
                -math.inf
            )  # refreshes under way seal under the retired key, as in other processes
        return renewed

    async def rewrap(self, old: DataKey) -> bool:
        """Wrap the same data key under the present master key. Keys in memory do not change."""
        plain = await self._masters.unwrap(old.wrapped, old.tenant, old.key_id.bytes, old.master_id)
        return await self._keys.rewrap(old, await self._wrap(old.key_id, old.tenant, plain, self.master_id))

    async def _mint(self, tenant: str, master_id: str) -> DataKey:
        return await self._wrap(self._ids.uuid7(), tenant, os.urandom(KEY_BYTES), master_id)

    async def _wrap(self, key_id: UUID, tenant: str, plain: bytes, master_id: str) -> DataKey:
        wrapped = await self._masters.wrap(plain, tenant, key_id.bytes, master_id)
        return DataKey(key_id=key_id, tenant=tenant, master_id=master_id, wrapped=wrapped)

    # ---- keys in memory

    async def _key(self, key_id: UUID) -> _Opened:
        opened = self._opened.get(key_id)
        if opened is not None:
            self._opened.move_to_end(key_id)
            return opened
        key = await self._keys.get(key_id)
        if key is None:
            raise MasterKeyMissingError(f"the data key {key_id} is not in the database", hint=_RESTORE)
        return await self._unwrap(key)

    async def _unwrap(self, key: DataKey) -> _Opened:
        """Return *key* in clear, from memory or from its master key."""
        opened = self._opened.get(key.key_id)
        if opened is None:
            opened = _Opened(key.key_id, key.tenant, AESGCM(await self._plain(key)))
            self._opened[key.key_id] = opened
            if len(self._opened) > self._max_keys:
                self._opened.popitem(last=False)
        return opened

    async def _plain(self, key: DataKey) -> bytes:
        try:
            return await self._masters.unwrap(key.wrapped, key.tenant, key.key_id.bytes, key.master_id)
        except MasterKeyMissingError:
            if any(
                key.master_id in (holder.master_ids or ()) for holder in await self._holders(ELSEWHERE_GONE_S)
            ):
                message = f"another process holds the master key {key.master_id!r}, and this one does not"
                raise MasterKeyElsewhereError(
                    message, tenant=key.tenant, retry_after_s=ELSEWHERE_RETRY_S
                ) from None
            raise
