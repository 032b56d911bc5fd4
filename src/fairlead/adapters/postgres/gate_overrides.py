"""Switches of the gate as rows: see fairlead.engine.ports.overrides.OverrideStore."""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.driver import Row
from fairlead.adapters.postgres.statements import statement
from fairlead.engine.ports.overrides import Override, Rollout
from fairlead.policy.limits.override import STEPS, OverrideKind, OverrideScope


class PostgresOverrideStore:
    """See the port. Each write may be repeated, so one in doubt is."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def search(self) -> Sequence[Override]:
        return [
            _switch(row)
            for row in await self._database.fetch(statement("gate_override_list"), steps=len(STEPS))
        ]

    async def put(self, act: OverrideKind, reach: OverrideScope, *, reason: str, actor: str) -> None:
        values = {"act": act.value, **_columns(reach), "reason": reason, "actor": actor}
        of = self._database.for_tenants(reach.tenant)
        await self._database.resolve_doubt(lambda: of.fetch(statement("gate_override_set"), **values))

    async def end(self, act: OverrideKind, reach: OverrideScope) -> bool:
        values = {"act": act.value, **_columns(reach), "steps": len(STEPS)}
        of = self._database.for_tenants(reach.tenant)
        row = await self._database.resolve_doubt(lambda: of.first(statement("gate_override_end"), **values))
        return row is not None and bool(row["in_force"])

    async def fade(self, reach: OverrideScope, step_s: float) -> bool:
        values = {**_columns(reach), "step_s": step_s}
        of = self._database.for_tenants(reach.tenant)
        row = await self._database.resolve_doubt(
            lambda: of.first(statement("gate_override_expire"), **values)
        )
        return row is not None


def _columns(reach: OverrideScope) -> dict[str, object]:
    tenant, provider, account = reach.names
    return {"tenant_id": tenant, "provider": provider, "bucket": account}


def _switch(row: Row) -> Override:
    reach = OverrideScope(row["tenant_id"] or None, row["provider"] or None, row["bucket"] or None)
    rollout = None if row["step_s"] is None else Rollout(row["on_s"], row["step_s"])
    return Override(OverrideKind(row["act"]), reach, row["reason"], row["actor"], row["since"], rollout)
