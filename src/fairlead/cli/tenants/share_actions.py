"""How settings of tenants and tiers are changed from the command line: told, tried, written to the audit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fairlead.cli.kit.bulk_actions import Tally, on_each, record_act
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import Invocation
from fairlead.cli.kit.output import Record
from fairlead.errors import NotFoundError

if TYPE_CHECKING:
    from fairlead.app import Fairlead
    from fairlead.assembly.runtime import Runtime
    from fairlead.engine.ports import TenantShare, Tier

MOST = 100_000
SAME, DRY, SET = "as it was", "would be set", "set"


def effective(share: TenantShare, tiers: Mapping[str, Tier]) -> dict[str, Any]:
    """What holds for a tenant: its own values, else its tier's, else weight 1 and no cap."""
    tier = tiers.get(share.tier or "")
    weight = share.weight or (tier.weight if tier else None) or 1.0
    max_running = share.max_running or (tier.max_running if tier else None)
    return {"tenant": share.tenant_id, "tier": share.tier, "weight": weight, "max_running": max_running}


def change_tenants(
    call: Invocation, names: Sequence[str], changes: Mapping[str, Any], *, dry_run: bool
) -> Exit:
    """Change settings of tenants; a row for each."""
    made: dict[str, Record] = {}

    async def work(fairlead: Fairlead) -> Tally:
        async def one(name: str) -> str:
            made[name] = await _write_tenant(call, fairlead.runtime, name, changes, dry_run)
            return str(made[name]["result"])

        return await on_each(names, lambda name: {"tenant": name}, one)

    tally = call.with_fairlead(work)
    rows = [{**made.get(str(row["tenant"]), {}), **row} for row in tally.rows]
    call.out.rows(rows, ("tenant", *changes, "result", "error"))
    return tally.exit


async def _write_tenant(
    call: Invocation, runtime: Runtime, name: str, changes: Mapping[str, Any], dry_run: bool
) -> Record:
    from fairlead.engine.ports import TenantShare
    from fairlead.policy.text.names import check_tenant

    before = await runtime.lanes.tenant(check_tenant(name)) or TenantShare(name)
    after = replace(before, **changes)
    if after.tier is not None:
        await tier_named(runtime, after.tier)
    told = {"tenant": name, **_fields(after), "before": _fields(before)}
    if after == before or dry_run:
        return {**told, "result": SAME if after == before else DRY}
    await runtime.lanes.set_tenant(after)
    details = {**_fields(after), "before": _fields(before)}
    await record_act(runtime, "tenant.share_set", call.actor, details, tenant=name)
    return {**told, "result": SET}


def _fields(share: TenantShare) -> dict[str, Any]:
    return {"tier": share.tier, "weight": share.weight, "max_running": share.max_running}


def change_tier(
    call: Invocation, name: str, changes: Mapping[str, Any], *, make: bool, dry_run: bool, yes: bool
) -> Exit:
    """Change what a tier says; *make* it if it is not there."""

    async def work(fairlead: Fairlead) -> Record:
        from fairlead.engine.ports import Tier

        runtime = fairlead.runtime
        before = await _tier(runtime, name) if make else await tier_named(runtime, name)
        after = replace(before or Tier(name), **changes)
        tenants = sum(share.tier == name for share in await runtime.lanes.tenants(MOST))
        old = {"weight": before.weight, "max_running": before.max_running} if before else None
        told = {"tier": name, "weight": after.weight, "max_running": after.max_running, "tenants": tenants}
        if after == before or dry_run:
            return {**told, "before": old, "result": SAME if after == before else DRY}
        if tenants > 1:
            call.confirm(f"Change tier {name}, which {tenants} tenants have?", yes=yes)
        await runtime.lanes.set_tier(after)
        await record_act(runtime, "tier.set", call.actor, {**told, "before": old})
        return {**told, "before": old, "result": SET}

    call.out.record(call.with_fairlead(work))
    return Exit.OK


async def tier_named(runtime: Runtime, name: str) -> Tier:
    """The tier of this name; NotFoundError if there is none."""
    found = await _tier(runtime, name)
    if found is None:
        hint = "see `fairlead tenants tiers`; `fairlead tenants tiers set` makes one"
        raise NotFoundError(f"there is no tier {name!r}", hint=hint)
    return found


async def _tier(runtime: Runtime, name: str) -> Tier | None:
    return next((tier for tier in await runtime.lanes.tiers() if tier.name == name), None)
