"""Changes to the shares of tenants, tiers and groups. Spec: Q6."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fairlead.cli.kit.changes import (
    AuditEntry,
    Change,
    ChangeOptions,
    Plan,
    Unchanged,
    change_each,
    change_one,
)
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import Invocation
from fairlead.cli.kit.output import Record, fields_of
from fairlead.engine.ports import GroupCap, TenantShare, Tier
from fairlead.errors import NotFoundError
from fairlead.policy.text.names import check_tenant

if TYPE_CHECKING:
    from fairlead.assembly.runtime import Runtime
    from fairlead.policy.jobs.lane import Scope

MOST = 100_000
SAME = "as it was"


def effective(share: TenantShare, tiers: Mapping[str, Tier]) -> dict[str, Any]:
    """Return what holds for a tenant: its own values, else its tier's, else weight 1 and no cap."""
    tier = tiers.get(share.tier or "")
    weight = share.weight or (tier.weight if tier else None) or 1.0
    max_running = share.max_running or (tier.max_running if tier else None)
    return {"tenant": share.tenant_id, "tier": share.tier, "weight": weight, "max_running": max_running}


def change_tenants(
    call: Invocation, tenants: Sequence[str], changes: Mapping[str, Any], options: ChangeOptions
) -> Exit:
    """Change settings of each of *tenants*."""

    async def choose(_: Runtime) -> Sequence[str]:
        return tenants

    async def find(runtime: Runtime, tenant: str) -> Plan:
        old = await runtime.lanes.tenant(check_tenant(tenant)) or TenantShare(tenant)
        new = replace(old, **changes)
        if new.tier is not None:
            await read_tier(runtime, new.tier)
        fields = {**_share(new), "before": _share(old)}
        if new == old:
            return Unchanged(SAME, fields)
        audit = AuditEntry("tenant.share_set", fields, tenant=tenant)
        return Change("set", lambda: runtime.lanes.set_tenant(new), fields, audit=audit)

    return change_each(call, choose, find, options, noun="tenant", columns=tuple(changes))


def _share(share: TenantShare) -> Record:
    return fields_of(share, "tier weight max_running")


def change_tier(
    call: Invocation, name: str, changes: Mapping[str, Any], options: ChangeOptions, *, create: bool = False
) -> Exit:
    """Change the settings of a tier; *create* it if it does not exist."""

    async def find(runtime: Runtime) -> Plan:
        old = await _tier(runtime, name) if create else await read_tier(runtime, name)
        new = replace(old or Tier(name), **changes)
        tenants = sum(share.tier == name for share in await runtime.lanes.tenants(MOST))
        fields = {
            **fields_of(new, "tier=name weight max_running"),
            "tenants": tenants,
            "before": fields_of(old, "weight max_running") if old else None,
        }
        if new == old:
            return Unchanged(SAME, fields)
        question = f"Change tier {name}, which {tenants} tenants have?" if tenants > 1 else None
        audit = AuditEntry("tier.set", fields)
        return Change("set", lambda: runtime.lanes.set_tier(new), fields, question, audit)

    return change_one(call, find, options)


def change_group_cap(call: Invocation, scope: Scope, cap: int | None, options: ChangeOptions) -> Exit:
    """Set or clear (None) the cap of a group, of one tenant or shared by all."""
    group, tenant = scope.key, scope.tenant

    async def find(runtime: Runtime) -> Plan:
        caps = {(row.group_key, row.tenant_id): row for row in await runtime.lanes.group_caps(MOST)}
        cap_before = caps.get((group, tenant))
        old = cap_before.max_running if cap_before else None
        fields = {"group": group, "tenant": tenant, "max_running": cap, "before": old}
        if old == cap:
            return Unchanged(SAME, fields)

        async def act() -> None:
            if cap is None:
                await runtime.lanes.clear_group_cap(group, tenant)
            else:
                await runtime.lanes.set_group_cap(GroupCap(group, tenant, cap))

        question = f"Change the cap of {scope}, which all tenants share?" if tenant is None else None
        details = {"group": group, "max_running": cap, "before": old}
        return Change("set", act, fields, question, AuditEntry("group.cap_set", details, tenant=tenant))

    return change_one(call, find, options)


async def read_tier(runtime: Runtime, name: str) -> Tier:
    """Return the tier of this name.

    Raises:
        NotFoundError: There is none.
    """
    tier = await _tier(runtime, name)
    if tier is None:
        hint = "see `fairlead tenants tiers`; `fairlead tenants tiers set` makes one"
        raise NotFoundError(f"there is no tier {name!r}", hint=hint)
    return tier


async def _tier(runtime: Runtime, name: str) -> Tier | None:
    return next((tier for tier in await runtime.lanes.tiers() if tier.name == name), None)
