"""Overrides of the gate as rows: see fairlead.engine.ports.overrides.OverrideStore."""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.driver import Row
from fairlead.adapters.postgres.statements import statement
from fairlead.engine.ports import Override, Rollout
from fairlead.policy.limits.override import STEPS, OverrideKind, OverrideScope


class PostgresOverrideStore:
    """The overrides in PostgreSQL. Each write is idempotent, so one in doubt is repeated."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def search(self) -> Sequence[Override]:
        rows = await self._database.fetch(statement("gate_override_list"), steps=len(STEPS))
        return [_override(row) for row in rows]

    async def put(self, kind: OverrideKind, scope: OverrideScope, *, reason: str, actor: str) -> None:
        values = {"kind": kind.value, **_columns(scope), "reason": reason, "actor": actor}
        await self._write("gate_override_set", scope, values)

    async def end(self, kind: OverrideKind, scope: OverrideScope) -> bool:
        values = {"kind": kind.value, **_columns(scope), "steps": len(STEPS)}
        row = await self._write("gate_override_end", scope, values)
        return row is not None and bool(row["in_force"])

    async def start_rollout(self, scope: OverrideScope, step_s: float) -> bool:
        return (
            await self._write("gate_override_rollout", scope, {**_columns(scope), "step_s": step_s})
            is not None
        )

    async def _write(self, name: str, scope: OverrideScope, values: dict[str, object]) -> Row | None:
        database = self._database.for_tenants(scope.tenant)
        return await self._database.resolve_doubt(lambda: database.first(statement(name), **values))


def _columns(scope: OverrideScope) -> dict[str, object]:
    tenant, provider, account = scope.names
    return {"tenant_id": tenant, "provider": provider, "account": account}


def _override(row: Row) -> Override:
    scope = OverrideScope(row["tenant_id"] or None, row["provider"] or None, row["account"] or None)
    rollout = None if row["step_s"] is None else Rollout(row["rollout_age_s"], row["step_s"])
    return Override(OverrideKind(row["kind"]), scope, row["reason"], row["actor"], row["since"], rollout)
