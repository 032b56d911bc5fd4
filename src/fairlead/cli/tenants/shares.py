"""``fairlead tenants weights`` and ``caps``: the shares of tenants. Spec: Q6, Q16."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.kit.changes import ChangeOptions
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import Invocation, Limit, command, listing
from fairlead.cli.kit.output import Record
from fairlead.cli.tenants.share_changes import change_group_cap, change_tenants, change_tier, effective
from fairlead.errors import InvalidInputError
from fairlead.policy.jobs.lane import Scope, ScopeKind, check_cap, check_weight

if TYPE_CHECKING:
    from fairlead.assembly.runtime import Runtime

Name = Annotated[str, typer.Argument(metavar="NAME", help="A tenant's id; with --tier, a tier.")]
OfTier = Annotated[bool, typer.Option("--tier", help="NAME is a tier: change it for each of its tenants.")]
CapName = Annotated[
    str, typer.Argument(metavar="NAME", help="A tenant's id; with --tier, a tier; with --shared, a group.")
]


@dataclass(frozen=True, slots=True)
class CapTarget:
    """The options that name what a cap limits."""

    tier: OfTier = False
    group: Annotated[
        str | None,
        typer.Option("--group", "-g", help="Only this group of the tenant, such as shopify/default."),
    ] = None
    shared: Annotated[
        bool, typer.Option("--shared", help="NAME is a group: of all tenants' jobs in it together.")
    ] = False


def add_shares(app: typer.Typer) -> None:
    """Add the groups ``weights`` and ``caps`` to *app*."""
    weights = listing(app, "weights")(list_weights)
    command(weights, "set")(set_weight)
    command(weights, "clear")(clear_weight)
    caps = listing(app, "caps")(list_caps)
    command(caps, "set")(set_cap)
    command(caps, "clear")(clear_cap)


# ---- weights -------------------------------------------------------------------------------------


def list_weights(call: Invocation, limit: Limit = 1000) -> Exit | None:
    """List weights: how many turns each tenant gets.

    Shows the weights of tiers, and of tenants that have settings of their own. All others have weight 1.
    """

    async def work(runtime: Runtime) -> list[Record]:
        tiers = {tier.name: tier for tier in await runtime.lanes.tiers()}
        rows = [_row(None, tier.name, "tier", weight=tier.weight) for tier in tiers.values()]
        for share in await runtime.lanes.tenants(limit):
            source = "tenant" if share.weight is not None else "tier" if share.tier is not None else None
            weight = effective(share, tiers)["weight"]
            rows.append(_row(share.tenant_id, share.tier, source, weight=weight))
        return rows

    columns = ("tenant", "tier", "weight", "set_for")
    call.out.rows(call.with_runtime(work), columns, none="every tenant has weight 1")
    return None


def set_weight(
    call: Invocation,
    *,
    name: Name,
    weight: Annotated[
        float, typer.Argument(metavar="WEIGHT", help="Its share: 3 gets three turns where 1 gets one.")
    ],
    tier: OfTier = False,
    options: ChangeOptions,
) -> Exit | None:
    """Give a tenant, or a tier, a weight of 0.001 to 1000. It takes effect with the next claim."""
    return _change_weight(call, name, check_weight(weight), tier, options)


def clear_weight(
    call: Invocation, *, name: Name, tier: OfTier = False, options: ChangeOptions
) -> Exit | None:
    """Remove the weight of a tenant, so that its tier's weight holds, or 1; or the weight of a tier."""
    return _change_weight(call, name, None, tier, options)


def _change_weight(
    call: Invocation, name: str, weight: float | None, is_tier: bool, options: ChangeOptions
) -> Exit | None:
    if is_tier:
        return change_tier(call, name, {"weight": weight}, options)
    return change_tenants(call, [name], {"weight": weight}, options)


# ---- caps ----------------------------------------------------------------------------------------


def list_caps(call: Invocation, limit: Limit = 1000) -> Exit | None:
    """List caps: how many jobs may run at once.

    Shows the caps of tiers (which hold for each of their tenants separately), of tenants, and of groups.
    """

    async def work(runtime: Runtime) -> list[Record]:
        lanes = runtime.lanes
        tiers = {tier.name: tier for tier in await lanes.tiers()}
        rows = [
            _row(None, tier.name, "tier", group=None, max_running=tier.max_running) for tier in tiers.values()
        ]
        for share in await lanes.tenants(limit):
            source = "tenant" if share.max_running is not None else "tier"
            cap = effective(share, tiers)["max_running"]
            rows.append(_row(share.tenant_id, share.tier, source, group=None, max_running=cap))
        for group in await lanes.group_caps(limit):
            cap = group.max_running
            rows.append(_row(group.tenant_id, None, "group", group=group.group_key, max_running=cap))
        return [row for row in rows if row["max_running"] is not None]

    columns = ("tenant", "tier", "group", "max_running", "set_for")
    call.out.rows(call.with_runtime(work), columns, none="there are no caps")
    return None


def _row(tenant: str | None, tier: str | None, set_for: str | None, **values: object) -> Record:
    return {"tenant": tenant, "tier": tier, **values, "set_for": set_for}


def set_cap(
    call: Invocation,
    *,
    name: CapName,
    max_running: Annotated[int, typer.Argument(metavar="JOBS", help="How many may run at once.")],
    target: CapTarget,
    options: ChangeOptions,
) -> Exit | None:
    """Limit how many jobs of a tenant, of each tenant of a tier, or of a group run at once.

    All queues count together. Jobs that run already continue.
    """
    return _change_cap(call, name, check_cap(max_running), target, options)


def clear_cap(call: Invocation, *, name: CapName, target: CapTarget, options: ChangeOptions) -> Exit | None:
    """Remove the cap of a tenant, so that its tier's cap holds, or none; or the cap of a tier or group."""
    return _change_cap(call, name, None, target, options)


def _change_cap(
    call: Invocation, name: str, cap: int | None, target: CapTarget, options: ChangeOptions
) -> Exit | None:
    if target.tier + target.shared + (target.group is not None) > 1:
        hint = "give one of --tier, --group and --shared"
        raise InvalidInputError("a cap is of a tier, of a tenant's group or of a shared group", hint=hint)
    if target.tier:
        return change_tier(call, name, {"max_running": cap}, options)
    if target.group is not None:
        return change_group_cap(call, Scope(ScopeKind.GROUP, target.group, name), cap, options)
    if target.shared:
        return change_group_cap(call, Scope(ScopeKind.GROUP, name, None), cap, options)
    return change_tenants(call, [name], {"max_running": cap}, options)
