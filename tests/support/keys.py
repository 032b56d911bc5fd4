"""A key store in memory, and vaults over any store."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from fairlead._core.clock import Clock
from fairlead.adapters.local.system import SystemIds
from fairlead.adapters.vault import MasterKey, MasterKeyring, TenantVault
from fairlead.engine.ports import DataKey, KeyStore, SealContext
from fairlead.testing._kit.clock import ManualClock

MASTER_1 = MasterKey(bytes(range(32)))
MASTER_2 = MasterKey(bytes(range(100, 132)))


class MemoryKeyStore:
    """Satisfies ``fairlead.engine.ports.KeyStore`` for one process."""

    def __init__(self) -> None:
        self.keys: dict[UUID, DataKey] = {}

    async def current(self, tenant: str) -> DataKey | None:
        return next((key for key in self.keys.values() if key.tenant == tenant and key.current), None)

    async def get(self, key_id: UUID) -> DataKey | None:
        return self.keys.get(key_id)

    async def adopt(self, key: DataKey) -> DataKey:
        current = await self.current(key.tenant)
        return current or self.keys.setdefault(key.key_id, key)

    async def succeed(self, old: DataKey, new: DataKey) -> bool:
        stored_key = self.keys.get(old.key_id)
        if stored_key is None or not stored_key.current:
            return False
        self.keys[old.key_id] = replace(stored_key, current=False)
        self.keys[new.key_id] = new
        return True

    async def rewrap(self, old: DataKey, new: DataKey) -> bool:
        stored_key = self.keys[old.key_id]
        if stored_key.wrapped != old.wrapped:
            return False
        self.keys[old.key_id] = replace(stored_key, master_id=new.master_id, wrapped=new.wrapped)
        return True

    async def foreign(
        self, master_id: str, *, current_only: bool, cursor: UUID | None, limit: int
    ) -> list[DataKey]:
        matches = [
            key
            for key in self.keys.values()
            if key.master_id != master_id
            and (key.current or not current_only)
            and (cursor is None or key.key_id > cursor)
        ]
        return sorted(matches, key=lambda key: key.key_id)[:limit]

    async def samples(self) -> list[DataKey]:
        return list({key.master_id: key for key in self.keys.values()}.values())


def vault_over(
    keys: KeyStore, *masters: MasterKey, clock: Clock | None = None, **more: object
) -> TenantVault:
    """Return a vault with these master keys (default: the first)."""
    return TenantVault(
        keys,
        MasterKeyring(masters or (MASTER_1,)),
        clock=clock or ManualClock(),
        ids=SystemIds(),
        **more,  # type: ignore[arg-type]
    )


def context_of(number: int = 1, tenant: str = "acme", generation: int = 1) -> SealContext:
    """Return the sealing context of the credential of connection *number*."""
    return SealContext(tenant, UUID(int=number), "mercadolibre", "credential", generation)
