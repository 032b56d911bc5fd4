"""Wrapped data keys and the tables of sealed records, for the vault and for key rotation (T9)."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.driver import Row
from fairlead.adapters.postgres.row_security import is_of
from fairlead.adapters.postgres.statements import statement
from fairlead.engine.ports import DataKey, SealContext, Sealed, StoredRecord
from fairlead.engine.tokens.deps import PAYLOAD_FIELD
from fairlead.errors import DependencyUnavailableError


class PostgresKeyStore:
    """See ``fairlead.engine.ports.KeyStore``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def current(self, tenant: str) -> DataKey | None:
        """Return the key that seals new records of *tenant*."""
        row = await self._database.first(statement("data_key_current"), tenant_id=tenant)
        return _key(row) if row and is_of(row, tenant) else None

    async def get(self, key_id: UUID) -> DataKey | None:
        """Return a key, current or retired."""
        row = await self._database.first(statement("data_key_get"), key_id=key_id)
        return _key(row) if row else None

    async def adopt(self, key: DataKey) -> DataKey:
        """Insert *key* unless its tenant has one, and return the tenant's current key."""

        async def work() -> DataKey:
            await self._database.for_tenants(key.tenant).fetch(
                statement("data_key_insert"),
                key_id=key.key_id,
                tenant_id=key.tenant,
                master_id=key.master_id,
                wrapped=key.wrapped,
            )
            current = await self.current(key.tenant)
            if current is None:
                raise DependencyUnavailableError("a data key vanished as it was stored", tenant=key.tenant)
            return current

        return await self._database.resolve_doubt(work)

    async def succeed(self, old: DataKey, new: DataKey) -> bool:
        """Retire *old* and make *new* current, in one statement."""

        async def work() -> bool:
            row = await self._database.first(
                statement("data_key_succeed"),
                old_key_id=old.key_id,
                key_id=new.key_id,
                master_id=new.master_id,
                wrapped=new.wrapped,
            )
            return row is not None or await self.get(new.key_id) is not None

        return await self._database.resolve_doubt(work)

    async def rewrap(self, old: DataKey, new: DataKey) -> bool:
        """Replace the wrapping of a key by compare-and-set on the old one."""

        async def work() -> bool:
            row = await self._database.first(
                statement("data_key_rewrap"),
                key_id=old.key_id,
                old_wrapped=old.wrapped,
                master_id=new.master_id,
                wrapped=new.wrapped,
            )
            return row is not None

        return await self._database.resolve_doubt(work)

    async def foreign(
        self, master_id: str, *, current_only: bool, cursor: UUID | None, limit: int
    ) -> list[DataKey]:
        """Return a page of the keys that another master key wrapped."""
        rows = await self._database.fetch(
            statement("data_key_foreign"),
            master_id=master_id,
            current_only=current_only,
            after=cursor,
            limit=limit,
        )
        return [_key(row) for row in rows]

    async def samples(self) -> list[DataKey]:
        """Return one key of each master key that wrapped any."""
        return [_key(row) for row in await self._database.fetch(statement("data_key_samples"))]


class PostgresSealedRecords:
    """See ``fairlead.engine.ports.SealedRecords``. Uses the statements ``sealed_credential_*``."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._page = statement("sealed_credential_page")
        self._replace = statement("sealed_credential_replace")

    async def page(self, *, retired_only: bool, cursor: UUID | None, limit: int) -> list[StoredRecord]:
        """Return the records after *cursor* in the order of their ids."""
        rows = await self._database.fetch(self._page, retired_only=retired_only, after=cursor, limit=limit)
        return [self._record(row) for row in rows]

    async def replace(self, changes: Sequence[tuple[StoredRecord, Sealed]]) -> int:
        """Replace records by compare-and-set on the old ones, in one statement."""
        rows = await self._database.fetch(
            self._replace,
            record_ids=[record.record_id for record, _ in changes],
            olds=[record.sealed.blob for record, _ in changes],
            news=[new.blob for _, new in changes],
            key_ids=[new.key_id for _, new in changes],
        )
        return len(rows)

    def _record(self, row: Row) -> StoredRecord:
        context = SealContext(
            tenant=row["tenant_id"],
            connection_id=row["connection_id"],
            provider=row["provider"],
            field=PAYLOAD_FIELD,
            generation=row["generation"],
        )
        return StoredRecord(row["record_id"], context, Sealed(row["key_id"], row["sealed"]))


def sealed_tables(database: Database) -> dict[str, PostgresSealedRecords]:
    """Return the stores of all tables with sealed records, by table name."""
    return {"credential": PostgresSealedRecords(database)}


def _key(row: Row) -> DataKey:
    return DataKey(
        key_id=row["key_id"],
        tenant=row["tenant_id"],
        master_id=row["master_id"],
        wrapped=row["wrapped"],
        current=row["current"],
    )
