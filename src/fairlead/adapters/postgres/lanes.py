"""Fair shares on PostgreSQL: see fairlead.engine.ports.lanes.LaneStore.

A setting is written first, in a statement of its own. Then `lane_barrier` waits until every lane that is
being created is visible: one created later has read the new setting. Only then are the lanes changed. So no
lane is missed, and no deadlock with a transaction that holds a lane is possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.driver import Row
from fairlead.adapters.postgres.job_rows import with_values
from fairlead.adapters.postgres.jsonb import decoded
from fairlead.adapters.postgres.statements import statement
from fairlead.engine.ports import (
    Explanation,
    GroupCap,
    JobView,
    PauseView,
    Swept,
    TenantShare,
    TenantTurn,
    Tier,
    UnhandledKind,
)
from fairlead.errors import InvalidInputError
from fairlead.policy.jobs.explain import FullCap, HeldBy, JobFacts, explain_wait
from fairlead.policy.jobs.lane import LONGEST_WAIT_S, QUANTUM, STRIDE, Scope, ScopeKind, current_priority
from fairlead.policy.text.names import shown

COUNT_BOUND = 1_000
WAKE_AT_ONCE = 1_000
"""Lanes that the end of a pause makes ready; the next claims wake the others."""
SWEEP_BATCH, MOST_BATCHES = 10_000, 10
FOREIGN_KEY_VIOLATION = "23503"

FLOORS, AGE, SWEEP = "lane_floors", "lane_age", "lane_sweep"


class PostgresLaneStore:
    """The LaneStore port on PostgreSQL. *notify* False: workers poll."""

    def __init__(self, database: Database, *, notify: bool = True) -> None:
        self._database = database
        self._notify = notify

    # ---- pauses --------------------------------------------------------------------------------

    async def pause(self, scope: Scope, for_s: float | None, *, reason: str, by: str) -> int:
        about = _columns(scope)
        values = {**about, "for_s": for_s, "reason": reason, "by": by}
        of = self._database.for_tenants(scope.owner)
        await self._database.resolve_doubt(lambda: of.fetch(statement("pause_set"), **values))
        lane_ids = await self._settled_lanes(about)
        await self._database.resolve_doubt(
            lambda: self._database.fetch(statement("lane_pause"), lane_ids=lane_ids, **about)
        )
        return await self._due_among(lane_ids)

    async def hold(self, tenant: str, group: str, for_s: float, *, reason: str) -> None:
        # No barrier: jobs of a lane that is being created meanwhile meet the limit, and hold the lane again.
        about = {"tenant_id": tenant, "key": group}
        values = {**about, "for_s": for_s, "reason": reason}
        await self._database.resolve_doubt(lambda: self._database.fetch(statement("rate_hold"), **values))
        lane_ids = await self._lanes({"scope": ScopeKind.GROUP.value, **about})
        await self._database.resolve_doubt(
            lambda: self._database.fetch(statement("lane_hold"), lane_ids=lane_ids, **about)
        )

    async def resume(self, scope: Scope) -> bool:
        about = _columns(scope)
        of = self._database.for_tenants(scope.owner)
        row = await self._database.resolve_doubt(lambda: of.first(statement("pause_end"), **about))
        # A statement that parked a lane had locked the pause, so the lane is visible now.
        lane_ids = await self._lanes(about)
        await self._database.resolve_doubt(
            lambda: self._database.fetch(statement("lane_unpause"), lane_ids=lane_ids, notify=self._notify)
        )
        await self._database.resolve_doubt(
            lambda: self._database.fetch(statement("lane_wake_up"), most=WAKE_AT_ONCE)
        )
        return row is not None and bool(row["in_force"])

    async def due_lanes(self, scope: Scope) -> int:
        return await self._due_among(await self._lanes(_columns(scope)))

    async def pauses(self, limit: int) -> list[PauseView]:
        rows = await self._database.fetch(statement("pause_list"), limit=limit, bound=COUNT_BOUND)
        return [
            PauseView(_scope(row), row["until"], row["reason"], row["paused_by"], row["since"], row["lanes"])
            for row in rows
        ]

    async def _settled_lanes(self, about: dict[str, str]) -> list[UUID]:
        """Return the lanes of a scope, once none is being created from older settings."""
        await self._database.resolve_doubt(lambda: self._database.fetch(statement("lane_barrier")))
        return await self._lanes(about)

    async def _lanes(self, about: dict[str, str]) -> list[UUID]:
        rows = await self._database.fetch(statement("lane_in_scope"), **about)
        return [row["lane_id"] for row in rows]

    async def _due_among(self, lane_ids: Sequence[UUID]) -> int:
        row = await self._database.first(statement("lane_due_count"), lane_ids=lane_ids)
        return int(row["lanes"]) if row else 0

    # ---- shares --------------------------------------------------------------------------------

    async def set_tenant(self, share: TenantShare) -> None:
        values: dict[str, object] = {"tenant_id": share.tenant_id}
        name = "tenant_forget"
        if share != TenantShare(share.tenant_id):
            name = "tenant_set"
            values |= {"tier": share.tier, "weight": share.weight, "max_running": share.max_running}
        try:
            await self._database.resolve_doubt(lambda: self._write_shares(name, values, [share.tenant_id]))
        except InvalidInputError as error:
            if error.reason != FOREIGN_KEY_VIOLATION:
                raise
            hint = "see `fairlead tenants tiers`"
            message = f"there is no tier {shown(share.tier)}"
            raise InvalidInputError(message, tenant=share.tenant_id, hint=hint) from None
        await self._apply([share.tenant_id])

    async def set_tier(self, tier: Tier) -> int:
        values: dict[str, object] = {
            "name": tier.name,
            "weight": tier.weight,
            "max_running": tier.max_running,
        }
        tenant_ids = await self._database.resolve_doubt(lambda: self._write_shares("tier_set", values, None))
        await self._apply(tenant_ids)
        return len(tenant_ids)

    async def _write_shares(
        self, name: str, values: dict[str, object], tenant_ids: list[str] | None
    ) -> list[str]:
        """Write settings and the resulting caps of *tenant_ids*, or of a tier's tenants if it is None."""
        of = self._database.for_tenants(*([None] if tenant_ids is None else tenant_ids))
        async with of.transaction() as transaction:
            await transaction.fetch(statement("tenant_lock"))
            await transaction.fetch(statement(name), **values)
            if tenant_ids is None:
                rows = await transaction.fetch(statement("tier_tenants"), tier=values["name"])
                tenant_ids = [row["tenant_id"] for row in rows]
            await transaction.fetch(statement("concurrency_cap_apply"), tenant_ids=tenant_ids)
        return tenant_ids

    async def remove_tier(self, name: str) -> bool:
        row = await self._database.resolve_doubt(lambda: self._locked(None, "tier_remove", name=name))
        assert row is not None
        if row["tenants"]:
            hint = "give them another tier first: `fairlead tenants tiers assign`"
            raise InvalidInputError(f"{row['tenants']} tenants have tier {shown(name)}", hint=hint)
        return bool(row["removed"])

    async def set_group_cap(self, cap: GroupCap) -> None:
        values = {"group_key": cap.group_key, "tenant_id": cap.tenant_id or ""}
        await self._database.resolve_doubt(
            lambda: self._locked(cap.tenant_id, "group_cap_set", **values, max_running=cap.max_running)
        )
        await self._apply_group(cap.group_key, cap.tenant_id)

    async def clear_group_cap(self, group_key: str, tenant_id: str | None) -> bool:
        values = {"group_key": group_key, "tenant_id": tenant_id or ""}
        row = await self._database.resolve_doubt(lambda: self._locked(tenant_id, "group_cap_clear", **values))
        await self._apply_group(group_key, tenant_id)
        return row is not None

    async def _apply(self, tenant_ids: list[str]) -> None:
        await self._apply_to(tenant_ids, None)
        await self._uncap(tenant_ids, [])

    async def _apply_group(self, group_key: str, tenant_id: str | None) -> None:
        await self._apply_to([] if tenant_id is None else [tenant_id], group_key)
        await self._uncap([], [group_key])

    async def _apply_to(self, tenant_ids: list[str], group_key: str | None) -> None:
        """Apply the settings to existing lanes."""
        await self._database.resolve_doubt(lambda: self._database.fetch(statement("lane_barrier")))
        await self._database.resolve_doubt(
            lambda: self._locked(None, "lane_apply", tenant_ids=tenant_ids, group_key=group_key)
        )

    async def _uncap(self, tenant_ids: list[str], group_keys: list[str]) -> None:
        """Make lanes ready that were parked for a full cap of these tenants or groups, if it has free places."""
        values = {"tenant_ids": tenant_ids, "group_keys": group_keys, "notify": self._notify}
        await self._database.resolve_doubt(lambda: self._database.fetch(statement("lane_uncap"), **values))

    async def _locked(self, tenant: str | None, name: str, /, **values: object) -> Row | None:
        """Run a statement, for one tenant or all, without a concurrent change of settings."""
        async with self._database.for_tenants(tenant).transaction() as transaction:
            await transaction.fetch(statement("tenant_lock"))
            rows = await transaction.fetch(statement(name), **values)
        return rows[0] if rows else None

    async def tenant(self, tenant_id: str) -> TenantShare | None:
        row = await self._database.for_tenants(tenant_id).first(
            statement("tenant_list"), tenant_id=tenant_id, limit=1
        )
        return TenantShare(**dict(row.items())) if row else None

    async def tenants(self, limit: int) -> list[TenantShare]:
        rows = await self._database.fetch(statement("tenant_list"), tenant_id=None, limit=limit)
        return [TenantShare(**dict(row.items())) for row in rows]

    async def tiers(self) -> Sequence[Tier]:
        rows = await self._database.fetch(statement("tier_list"))
        return [Tier(**dict(row.items())) for row in rows]

    async def group_caps(self, limit: int) -> list[GroupCap]:
        rows = await self._database.fetch(statement("group_cap_list"), limit=limit)
        return [GroupCap(**dict(row.items())) for row in rows]

    # ---- looking -------------------------------------------------------------------------------

    async def turns(self, *, queue: str | None, tenant_id: str | None, limit: int) -> list[TenantTurn]:
        rows = await self._database.fetch(
            statement("lane_turns"),
            queue=queue,
            tenant_id=tenant_id,
            limit=limit,
            bound=COUNT_BOUND,
            quantum=QUANTUM * STRIDE,
        )
        return [
            TenantTurn(**dict(row.items()), current_priority=current_priority(row["rounds_without_service"]))
            for row in rows
        ]

    async def explain(self, job_id: UUID, asker: UUID | None = None) -> Explanation | None:
        row = await self._database.first(
            statement("job_explain"), job_id=job_id, asker=asker, bound=COUNT_BOUND
        )
        return _explanation(row) if row else None

    # ---- handlers ------------------------------------------------------------------------------

    async def report_kinds(self, queues: Sequence[str], kinds: Sequence[str]) -> None:
        await self._database.fetch(statement("kind_report"), queues=queues, kinds=kinds)

    async def unhandled_kinds(self, limit: int) -> list[UnhandledKind]:
        rows = await self._database.fetch(statement("kind_unhandled"), limit=limit, bound=COUNT_BOUND)
        return [UnhandledKind(**dict(row.items())) for row in rows]

    # ---- upkeep --------------------------------------------------------------------------------

    async def raise_floors(self, every_s: float) -> bool:
        if not await self._due(FLOORS, every_s):
            return False
        await self._database.fetch(statement("lane_raise_floors"))
        return True

    async def age(self, every_s: float) -> int:
        if not await self._due(AGE, every_s):
            return 0
        row = await self._database.first(statement("lane_age"), longest_wait_s=LONGEST_WAIT_S)
        return int(row["lanes"]) if row else 0

    async def sweep(self, every_s: float, share: float = 1.0) -> Swept | None:
        """Sweep in small statements, each with its own commit. Expired pauses are deleted, too."""
        if not await self._due(SWEEP, every_s, share):
            return None
        try:
            return await self._swept()
        finally:  # a sweep that always times out must not be tried at every interval
            await self._database.fetch(statement("maintenance_run_cost"), sweep=SWEEP)

    async def _swept(self) -> Swept:
        deleted = await self._forgotten()
        freed = await self._database.first(statement("pause_sweep"), limit=SWEEP_BATCH)
        swept = await self._database.first(statement("lane_sweep_lost"))
        assert freed is not None
        assert swept is not None
        return Swept(swept["opened"], await self._brought_up_to_date(), freed["lanes"], deleted)

    async def _forgotten(self) -> int:
        """Delete old lanes without jobs, at most ten batches, and return how many."""
        deleted = 0
        for _ in range(MOST_BATCHES):
            row = await self._database.first(statement("lane_forget"), most=SWEEP_BATCH)
            batch = int(row["lanes"]) if row else 0
            deleted += batch
            if batch < SWEEP_BATCH:
                break
        return deleted

    async def _brought_up_to_date(self) -> int:
        """Park lanes that a pause has not reached yet, page by page, and return how many."""
        behind, parked = UUID(int=0), 0
        while behind is not None:
            row = await self._database.first(statement("lane_sweep_page"), behind=behind, most=SWEEP_BATCH)
            assert row is not None
            behind, parked = row["last"], parked + row["parked"]
        return parked

    async def _due(self, sweep: str, every_s: float, share: float = 1.0) -> bool:
        """Return True for the one process that should do it now; after a crash the next interval follows."""
        values = {"sweep": sweep, "every_s": every_s, "share": share}
        return await self._database.first(statement("maintenance_run_take"), **values) is not None


# ---- rows ------------------------------------------------------------------------------------------


def _columns(scope: Scope) -> dict[str, str]:
    """Return the columns of *scope*; no tenant is ''."""
    return {"scope": scope.kind.value, "tenant_id": scope.tenant or "", "key": scope.key}


def _scope(row: Row) -> Scope:
    return Scope(ScopeKind(row["scope"]), row["key"], row["tenant_id"] or None)


def _explanation(row: Row) -> Explanation:
    values = with_values(row, "args", "failures", "result")
    job = JobView(**{field.name: values[field.name] for field in fields(JobView)})
    worker = f"{row['worker_host']}:{row['worker_pid']}" if row["worker_pid"] is not None else None
    explanation = explain_wait(_facts(row, job, worker))
    return Explanation(
        job=job,
        why=explanation.reason.code,
        detail=explanation.detail,
        until=explanation.until,
        ahead_in_lane=row["ahead_in_lane"],
        lanes_ahead=row["lanes_ahead"],
        running_on=worker if job.state == "running" else None,
        workers=row["workers"],
    )


_FACTS = {field.name for field in fields(JobFacts)}


def _facts(row: Row, job: JobView, worker: str | None) -> JobFacts:
    last = job.failures[-1] if isinstance(job.failures, list) and job.failures else {}
    result = job.result if isinstance(job.result, dict) else {}
    ready = row["lane_state"] == "ready" and not row["unseen"]
    served_at: datetime | None = row["served_at"]
    return replace(
        JobFacts(**{name: value for name, value in row.items() if name in _FACTS}),
        dead_letter_id=str(row["dead_letter_id"]) if row["dead_letter_id"] else None,
        cancelled_because=result.get("cancelled"),
        last_failure=last.get("code"),
        worker=worker,
        silent_s=row["silent_s"] or 0.0,
        lease_s=row["lease_s"] or 0.0,
        pauses=[_held_by(pause) for pause in decoded(row["pauses"]) or ()],
        full_caps=[FullCap(**cap) for cap in decoded(row["full_caps"]) or ()],
        lane_ready=ready,
        lane_wakes_at=row["wake_at"],
        lane_waits_s=(row["now"] - served_at).total_seconds() if ready and served_at else 0.0,
    )


def _held_by(pause: dict[str, Any]) -> HeldBy:
    """Return a pause from the JSON of `job_explain`."""
    scope = Scope(ScopeKind(pause["scope"]), pause["key"], pause["tenant_id"])
    until = datetime.fromisoformat(pause["until"]) if pause["until"] else None
    return HeldBy(scope, until, pause["reason"], pause["by"])
