"""The audit trail on PostgreSQL: see fairlead.engine.ports.AuditStore."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.driver import Row
from fairlead.adapters.postgres.jsonb import decoded, tamed
from fairlead.adapters.postgres.statements import statement
from fairlead.engine.ports import AuditRecord


class PostgresAuditStore:
    """The AuditStore port on PostgreSQL."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def append(self, records: Sequence[AuditRecord]) -> None:
        if not records:
            return
        columns = {
            "audit_ids": [record.audit_id for record in records],
            "acts": [record.act for record in records],
            "actors": [record.actor for record in records],
            "tenant_ids": [record.tenant for record in records],
            "providers": [record.provider for record in records],
            "connection_ids": [record.connection_id for record in records],
            "details": [tamed(dict(record.details)) for record in records],
        }
        await self._database.resolve_doubt(lambda: self._database.fetch(statement("audit_append"), **columns))

    async def search(self, *, tenant: str | None, limit: int) -> list[tuple[datetime, AuditRecord]]:
        if tenant is None:
            rows = await self._database.fetch(statement("audit_search"), limit=limit)
        else:
            search = statement("audit_search_tenant")
            rows = await self._database.for_tenants(tenant).fetch(search, tenant_id=tenant, limit=limit)
        return [(row["at"], _record(row)) for row in rows]


def _record(row: Row) -> AuditRecord:
    return AuditRecord(
        audit_id=row["audit_id"],
        act=row["act"],
        actor=row["actor"],
        tenant=row["tenant_id"],
        provider=row["provider"],
        connection_id=row["connection_id"],
        details=decoded(row["details"]),
    )
