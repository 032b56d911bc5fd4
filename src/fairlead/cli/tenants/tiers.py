"""``fairlead tenants tiers``: named settings for many tenants. Spec: Q6, Q16."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.kit.changes import AuditEntry, Change, ChangeOptions, Plan, change_one
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import Invocation, command, listing
from fairlead.cli.kit.output import Record, fields_of
from fairlead.cli.tenants.share_changes import MOST, change_tenants, change_tier, read_tier
from fairlead.policy.jobs.lane import check_cap, check_weight
from fairlead.policy.text.names import check_name

if TYPE_CHECKING:
    from fairlead.assembly.runtime import Runtime

TierName = Annotated[str, typer.Argument(metavar="TIER", help="A tier.")]
Tenants = Annotated[list[str], typer.Argument(metavar="TENANT...", help="Tenants' ids.", show_default=False)]


def add_tiers(app: typer.Typer) -> None:
    """Add the group ``tiers`` to *app*."""
    tiers = listing(app, "tiers")(list_tiers)
    command(tiers, "set")(set_tier)
    command(tiers, "assign")(assign)
    command(tiers, "unassign")(unassign)
    command(tiers, "remove")(remove)


def list_tiers(call: Invocation) -> Exit | None:
    """List tiers: settings for many tenants.

    Shows each with its number of tenants.
    """

    async def work(runtime: Runtime) -> list[Record]:
        members = [share.tier for share in await runtime.lanes.tenants(MOST)]
        return [
            {**fields_of(tier, "tier=name weight max_running"), "tenants": members.count(tier.name)}
            for tier in await runtime.lanes.tiers()
        ]

    columns = ("tier", "weight", "max_running", "tenants")
    call.out.rows(call.with_runtime(work), columns, none="there are no tiers")
    return None


def set_tier(
    call: Invocation,
    *,
    name: TierName,
    weight: Annotated[float | None, typer.Option("--weight", help="Of each of its tenants.")] = None,
    cap: Annotated[
        int | None, typer.Option("--cap", help="How many jobs of each of its tenants may run at once.")
    ] = None,
    options: ChangeOptions,
) -> Exit | None:
    """Make a tier, or change its settings.

    To remove a setting: `fairlead tenants weights clear --tier`, `caps clear --tier`.
    """
    check_name("tier", name)
    changes: dict[str, Any] = {}
    if weight is not None:
        changes["weight"] = check_weight(weight)
    if cap is not None:
        changes["max_running"] = check_cap(cap)
    return change_tier(call, name, changes, options, create=True)


def assign(call: Invocation, *, tier: TierName, tenants: Tenants, options: ChangeOptions) -> Exit | None:
    """Put tenants into a tier; settings of a tenant itself take precedence."""
    return change_tenants(call, tenants, {"tier": tier}, options)


def unassign(call: Invocation, *, tenants: Tenants, options: ChangeOptions) -> Exit | None:
    """Take tenants out of their tiers."""
    return change_tenants(call, tenants, {"tier": None}, options)


def remove(call: Invocation, *, name: TierName, options: ChangeOptions) -> Exit | None:
    """Delete a tier that no tenant is in."""

    async def find(runtime: Runtime) -> Plan:
        await read_tier(runtime, name)
        return Change(
            "removed",
            lambda: runtime.lanes.remove_tier(name),
            {"tier": name},
            question=f"Remove tier {name}?",
            audit=AuditEntry("tier.removed", {"tier": name}),
        )

    return change_one(call, find, options)
