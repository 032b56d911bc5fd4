"""``fairlead tenants``: weights and caps, by tenant or tier, and how each tenant fares. Spec: Q6, Q16."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.jobs.pauses import pause_record
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import Invocation, Limit, command, group
from fairlead.cli.kit.output import Record, fields_of
from fairlead.cli.tenants.fairness import TURNS, turn_record
from fairlead.cli.tenants.share_changes import MOST, effective
from fairlead.cli.tenants.shares import add_shares
from fairlead.cli.tenants.tiers import add_tiers
from fairlead.engine.ports import TenantShare
from fairlead.policy.text.names import check_tenant

if TYPE_CHECKING:
    from fairlead.assembly.runtime import Runtime

app = group("Shares of tenants, and how each fares.")

add_shares(app)
add_tiers(app)


@command(app, "fairness")
def fairness(
    call: Invocation,
    tenant: Annotated[str | None, typer.Option("--tenant", "-t", help="Only this tenant's.")] = None,
    queue: Annotated[str | None, typer.Option("--queue", help="Only in this queue.")] = None,
    limit: Limit = 50,
) -> Exit | None:
    """Show how each tenant fares in each queue; the one that waits longest for a turn comes first.

    The current priority is 5 for a tenant that was just served, and 1 for one that has waited four rounds or
    more. In a round each of the other tenants gets one turn. Jobs are counted up to 1,000.
    """
    turns = call.with_runtime(lambda runtime: runtime.lanes.turns(queue=queue, tenant_id=tenant, limit=limit))
    call.out.rows(map(turn_record, turns), TURNS, none="no tenant has had work yet")
    return None


@command(app, "show")
def show(
    call: Invocation, tenant: Annotated[str, typer.Argument(metavar="TENANT", help="A tenant's id.")]
) -> Exit | None:
    """Show one tenant: its own and its effective settings, its groups' caps, its pauses, how it fares."""
    check_tenant(tenant)

    async def work(runtime: Runtime) -> Record:
        lanes = runtime.lanes
        share = await lanes.tenant(tenant) or TenantShare(tenant)
        caps = [cap for cap in await lanes.group_caps(MOST) if cap.tenant_id == tenant]
        pauses = [pause for pause in await lanes.pauses(MOST) if pause.scope.owner == tenant]
        turns = await lanes.turns(queue=None, tenant_id=tenant, limit=100)
        return {
            **effective(share, {tier.name: tier for tier in await lanes.tiers()}),
            **fields_of(share, "own_weight=weight own_max_running=max_running"),
            "group_caps": [fields_of(cap, "group=group_key max_running") for cap in caps],
            "pauses": [pause_record(pause) for pause in pauses],
            "turns": [turn_record(turn) for turn in turns],
        }

    call.out.record(call.with_runtime(work))
    return None
