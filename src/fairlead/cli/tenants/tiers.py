"""``fairlead tenants tiers``: named settings for many tenants (Q6, Q16)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.kit.bulk_actions import record_act
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import DryRun, Invocation, Yes, command, listing
from fairlead.cli.kit.output import Record
from fairlead.cli.tenants.share_actions import MOST, change_tenants, change_tier, tier_named

if TYPE_CHECKING:
    from fairlead.app import Fairlead

TierName = Annotated[str, typer.Argument(metavar="TIER", help="A tier.")]
Tenants = Annotated[list[str], typer.Argument(metavar="TENANT...", help="Tenants' ids.", show_default=False)]


def add_tiers(app: typer.Typer) -> None:
    """The group ``tiers`` below *app*."""
    tiers = listing(app, "tiers")(list_tiers)
    command(tiers, "set")(set_tier)
    command(tiers, "assign")(assign)
    command(tiers, "unassign")(unassign)
    command(tiers, "remove")(remove)


def list_tiers(call: Invocation) -> Exit | None:
    """Tiers: settings for many tenants.

    Lists them, with how many tenants each has.
    """

    async def work(fairlead: Fairlead) -> list[Record]:
        lanes = fairlead.runtime.lanes
        members = [share.tier for share in await lanes.tenants(MOST)]
        return [
            {
                "tier": tier.name,
                "weight": tier.weight,
                "max_running": tier.max_running,
                "tenants": members.count(tier.name),
            }
            for tier in await lanes.tiers()
        ]

    columns = ("tier", "weight", "max_running", "tenants")
    call.out.rows(call.with_fairlead(work), columns, none="there are no tiers")
    return None


def set_tier(
    call: Invocation,
    name: TierName,
    weight: Annotated[float | None, typer.Option("--weight", help="Of each of its tenants.")] = None,
    cap: Annotated[
        int | None, typer.Option("--cap", help="At most so many jobs of each of its tenants run at once.")
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> Exit | None:
    """Make a tier, or change what it says.

    To have it say nothing again: `fairlead tenants weights clear --tier`, `caps clear --tier`.
    """
    from fairlead.policy.jobs.lane import check_cap, check_weight
    from fairlead.policy.text.names import check_name

    check_name("tier", name)
    given: dict[str, Any] = {}
    if weight is not None:
        given["weight"] = check_weight(weight)
    if cap is not None:
        given["max_running"] = check_cap(cap)
    return change_tier(call, name, given, make=True, dry_run=dry_run, yes=yes)


def assign(call: Invocation, tier: TierName, tenants: Tenants, dry_run: DryRun = False) -> Exit | None:
    """Put tenants into a tier; what is set for a tenant itself still comes first."""
    return change_tenants(call, tenants, {"tier": tier}, dry_run=dry_run)


def unassign(call: Invocation, tenants: Tenants, dry_run: DryRun = False) -> Exit | None:
    """Take tenants out of their tiers."""
    return change_tenants(call, tenants, {"tier": None}, dry_run=dry_run)


def remove(call: Invocation, name: TierName, dry_run: DryRun = False, yes: Yes = False) -> Exit | None:
    """Forget a tier that no tenant is in."""
    if not dry_run:
        call.confirm(f"Remove tier {name}?", yes=yes)

    async def work(fairlead: Fairlead) -> Record:
        runtime = fairlead.runtime
        await tier_named(runtime, name)
        if dry_run:
            return {"tier": name, "result": "would be removed"}
        await runtime.lanes.remove_tier(name)
        await record_act(runtime, "tier.removed", call.actor, {"tier": name})
        return {"tier": name, "result": "removed"}

    call.out.record(call.with_fairlead(work))
    return None
