"""``fairlead tenants``: weights and caps, by tenant or tier, and how each tenant fares (Q6, Q16)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.jobs.pauses import as_record as pause_record
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import Invocation, Limit, command, group
from fairlead.cli.tenants.fairness import TURNS, turn_record
from fairlead.cli.tenants.share_actions import MOST, effective
from fairlead.cli.tenants.shares import add_shares
from fairlead.cli.tenants.tiers import add_tiers

if TYPE_CHECKING:
    from fairlead.app import Fairlead
    from fairlead.engine.ports import TenantTurn

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
    """Tell how each tenant fares in each queue, who waits longest for a turn first.

    The current priority is 5 for who was just served and 1 for who waits four rounds or more, a round being
    one turn of everybody else. Jobs are counted up to 1,000.
    """

    async def work(fairlead: Fairlead) -> list[TenantTurn]:
        return await fairlead.runtime.lanes.turns(queue=queue, tenant_id=tenant, limit=limit)

    call.out.rows(map(turn_record, call.with_fairlead(work)), TURNS, none="no tenant has had work yet")
    return None


@command(app, "show")
def show(
    call: Invocation, tenant: Annotated[str, typer.Argument(metavar="TENANT", help="A tenant's id.")]
) -> Exit | None:
    """Show one tenant: what is set for it and what holds, its groups' caps, its pauses, how it fares."""
    from fairlead.policy.text.names import check_tenant

    check_tenant(tenant)

    async def work(fairlead: Fairlead) -> dict[str, Any]:
        from fairlead.engine.ports import TenantShare

        lanes = fairlead.runtime.lanes
        tiers = {tier.name: tier for tier in await lanes.tiers()}
        share = await lanes.tenant(tenant) or TenantShare(tenant)
        return {
            **effective(share, tiers),
            "own_weight": share.weight,
            "own_max_running": share.max_running,
            "group_caps": [
                {"group": cap.group_key, "max_running": cap.max_running}
                for cap in await lanes.group_caps(MOST)
                if cap.tenant_id == tenant
            ],
            "pauses": [
                pause_record(pause)
                for pause in await lanes.pauses(MOST)
                if tenant in (pause.scope.tenant, pause.scope.key if pause.scope.kind == "tenant" else None)
            ],
            "turns": [turn_record(one) for one in await lanes.turns(queue=None, tenant_id=tenant, limit=100)],
        }

    call.out.record(call.with_fairlead(work))
    return None
