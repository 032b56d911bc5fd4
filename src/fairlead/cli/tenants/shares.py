"""``fairlead tenants weights`` and ``caps``: what people set about shares (Q6, Q16)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.kit.bulk_actions import record_act
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import DryRun, Invocation, Limit, Yes, command, listing
from fairlead.cli.kit.output import Record
from fairlead.cli.tenants.share_actions import DRY, MOST, SAME, SET, change_tenants, change_tier, effective
from fairlead.errors import InvalidInputError

if TYPE_CHECKING:
    from fairlead.app import Fairlead
    from fairlead.assembly.runtime import Runtime
    from fairlead.engine.ports import LaneStore
    from fairlead.policy.jobs.lane import Scope

Name = Annotated[str, typer.Argument(metavar="NAME", help="A tenant's id; with --tier, a tier.")]
OfTier = Annotated[bool, typer.Option("--tier", help="NAME is a tier: it holds for each of its tenants.")]
CapName = Annotated[
    str, typer.Argument(metavar="NAME", help="A tenant's id; with --tier, a tier; with --shared, a group.")
]
Group = Annotated[
    str | None, typer.Option("--group", "-g", help="Only this group of the tenant, such as shopify/default.")
]
Shared = Annotated[
    bool, typer.Option("--shared", help="NAME is a group: of all tenants' jobs in it together.")
]


def add_shares(app: typer.Typer) -> None:
    """The groups ``weights`` and ``caps`` below *app*."""
    weights = listing(app, "weights")(list_weights)
    command(weights, "set")(set_weight)
    command(weights, "clear")(clear_weight)
    caps = listing(app, "caps")(list_caps)
    command(caps, "set")(set_cap)
    command(caps, "clear")(clear_cap)


# ---- weights -------------------------------------------------------------------------------------


def list_weights(call: Invocation, limit: Limit = 1000) -> Exit | None:
    """Weights: who gets how many turns.

    Lists those of tiers, and of tenants that have settings of their own. Everybody else has 1.
    """

    async def work(fairlead: Fairlead) -> list[Record]:
        lanes = fairlead.runtime.lanes
        tiers = {tier.name: tier for tier in await lanes.tiers()}
        of_tiers = [_weight(None, tier.name, tier.weight, "tier") for tier in tiers.values()]
        of_tenants = [
            _weight(
                share.tenant_id,
                share.tier,
                effective(share, tiers)["weight"],
                "tenant" if share.weight is not None else "tier" if share.tier is not None else None,
            )
            for share in await lanes.tenants(limit)
        ]
        return of_tiers + of_tenants

    found = call.with_fairlead(work)
    call.out.rows(found, ("tenant", "tier", "weight", "set_for"), none="every tenant has weight 1")
    return None


def _weight(tenant: str | None, tier: str | None, weight: float | None, set_for: str | None) -> Record:
    return {"tenant": tenant, "tier": tier, "weight": weight, "set_for": set_for}


def set_weight(
    call: Invocation,
    name: Name,
    weight: Annotated[
        float, typer.Argument(metavar="WEIGHT", help="Its share: 3 gets three turns where 1 gets one.")
    ],
    tier: OfTier = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> Exit | None:
    """Give a tenant, or a tier, a weight of 0.001 to 1000. It holds from the next claim on."""
    from fairlead.policy.jobs.lane import check_weight

    changes = {"weight": check_weight(weight)}
    if tier:
        return change_tier(call, name, changes, make=False, dry_run=dry_run, yes=yes)
    return change_tenants(call, [name], changes, dry_run=dry_run)


def clear_weight(
    call: Invocation, name: Name, tier: OfTier = False, dry_run: DryRun = False, yes: Yes = False
) -> Exit | None:
    """Forget the weight of a tenant, so that its tier's holds, or 1; or that of a tier."""
    if tier:
        return change_tier(call, name, {"weight": None}, make=False, dry_run=dry_run, yes=yes)
    return change_tenants(call, [name], {"weight": None}, dry_run=dry_run)


# ---- caps ----------------------------------------------------------------------------------------


def list_caps(call: Invocation, limit: Limit = 1000) -> Exit | None:
    """Caps: how many jobs may run at once.

    Lists those of tiers (for each of their tenants by itself), of tenants, and of groups.
    """
    found = call.with_fairlead(lambda fairlead: _caps(fairlead.runtime.lanes, limit))
    call.out.rows(found, ("tenant", "tier", "group", "max_running", "set_for"), none="there are no caps")
    return None


async def _caps(lanes: LaneStore, limit: int) -> list[Record]:
    tiers = {tier.name: tier for tier in await lanes.tiers()}
    of_tiers = [
        _cap(None, tier.name, None, tier.max_running, "tier")
        for tier in tiers.values()
        if tier.max_running is not None
    ]
    of_tenants = []
    for share in await lanes.tenants(limit):
        holds = effective(share, tiers)["max_running"]
        if holds is not None:
            set_for = "tenant" if share.max_running is not None else "tier"
            of_tenants.append(_cap(share.tenant_id, share.tier, None, holds, set_for))
    of_groups = [
        _cap(cap.tenant_id, None, cap.group_key, cap.max_running, "group")
        for cap in await lanes.group_caps(limit)
    ]
    return of_tiers + of_tenants + of_groups


def _cap(tenant: str | None, tier: str | None, group: str | None, max_running: int, set_for: str) -> Record:
    return {"tenant": tenant, "tier": tier, "group": group, "max_running": max_running, "set_for": set_for}


def set_cap(
    call: Invocation,
    name: CapName,
    max_running: Annotated[int, typer.Argument(metavar="JOBS", help="At most so many run at once.")],
    tier: OfTier = False,
    group: Group = None,
    shared: Shared = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> Exit | None:
    """Let at most so many jobs of a tenant, of each tenant of a tier, or of a group run at once.

    All queues count together. What runs already goes on.
    """
    from fairlead.policy.jobs.lane import check_cap

    cap = check_cap(max_running)
    return _change_cap(call, name, cap, tier=tier, group=group, shared=shared, dry_run=dry_run, yes=yes)


def clear_cap(
    call: Invocation,
    name: CapName,
    tier: OfTier = False,
    group: Group = None,
    shared: Shared = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> Exit | None:
    """Forget the cap of a tenant, so that its tier's holds, or none; or that of a tier, or of a group."""
    return _change_cap(call, name, None, tier=tier, group=group, shared=shared, dry_run=dry_run, yes=yes)


def _change_cap(
    call: Invocation,
    name: str,
    cap: int | None,
    *,
    tier: bool,
    group: str | None,
    shared: bool,
    dry_run: bool,
    yes: bool,
) -> Exit:
    from fairlead.policy.jobs.lane import Scope, ScopeKind

    if tier + shared + (group is not None) > 1:
        hint = "give one of --tier, --group and --shared"
        raise InvalidInputError("a cap is of a tier, of a tenant's group or of a shared group", hint=hint)
    if tier:
        return change_tier(call, name, {"max_running": cap}, make=False, dry_run=dry_run, yes=yes)
    if group is None and not shared:
        return change_tenants(call, [name], {"max_running": cap}, dry_run=dry_run)
    scope = Scope(ScopeKind.GROUP, name, None) if group is None else Scope(ScopeKind.GROUP, group, name)
    if shared and not dry_run:
        call.confirm(f"Change the cap of {scope}, which all tenants share?", yes=yes)
    told = call.with_fairlead(lambda fairlead: _write_group_cap(call, fairlead.runtime, scope, cap, dry_run))
    call.out.record(told)
    return Exit.OK


async def _write_group_cap(
    call: Invocation, runtime: Runtime, scope: Scope, cap: int | None, dry_run: bool
) -> Record:
    from fairlead.engine.ports import GroupCap

    caps = {(one.group_key, one.tenant_id): one.max_running for one in await runtime.lanes.group_caps(MOST)}
    before = caps.get((scope.key, scope.tenant))
    told = {"group": scope.key, "tenant": scope.tenant, "max_running": cap, "before": before}
    if before == cap or dry_run:
        return {**told, "result": SAME if before == cap else DRY}
    if cap is None:
        await runtime.lanes.clear_group_cap(scope.key, scope.tenant)
    else:
        await runtime.lanes.set_group_cap(GroupCap(scope.key, scope.tenant, cap))
    details = {"group": scope.key, "max_running": cap, "before": before}
    await record_act(runtime, "group.cap_set", call.actor, details, tenant=scope.tenant)
    return {**told, "result": SET}
