"""``fairlead gate``: the limits of calls, their state, and manual changes. Spec: G12."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.gate import breakers, overrides, repairs, store
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import Invocation, command, group, listing
from fairlead.cli.kit.names import Account, Provider, Tenant, connection_key
from fairlead.cli.kit.output import Record, fields_of
from fairlead.policy.limits.override import scopes_covering

if TYPE_CHECKING:
    from fairlead.assembly.runtime import Runtime
    from fairlead.engine.ports import ConnectionKey, GateView, HolderView, PromotionView, WaiterView

BUCKETS = ("name", "remaining", "capacity", "per second", "reserved", "blocked_s")
HOLDERS = ("lease", "process", "tenant", "job", "class", "renewed_s_ago", "ends_in_s")
WAITERS = ("lease", "process", "tenant", "job", "class", "waits_s", "alive_for_s")
CLASSES = ("class", "waiting", "p50_s", "longest_s")
PROMOTIONS = ("ago_s", "lease", "process", "tenant", "job", "class")
FAILURES = ("ago_s", "host", "cause", "process", "tenant", "job", "opened_s")
MOST_FAILURES = 20
EVENTS = ("k", "n", "c", "h")

app = group("Limits of calls: what is left, the slots and waiting calls; and overrides for emergencies.")

command(app, "isolate")(overrides.isolate)
command(app, "disable")(overrides.disable)
command(app, "enable")(overrides.enable)
command(app, "degrade")(overrides.degrade)
command(app, "restore")(overrides.restore)
command(app, "overrides")(overrides.list_overrides)
command(app, "promote")(repairs.promote)
command(app, "clear")(repairs.clear)
command(listing(app, "breaker")(repairs.isolations), "reset")(repairs.reset)

command(app, "memory")(store.memory)
command(app, "orphans")(store.orphans)
command(app, "doctor")(store.doctor)


@command(app, "status")
def status(
    call: Invocation,
    tenant: Tenant,
    provider: Provider,
    account: Account = "default",
    api: Annotated[str | None, typer.Option("--api", help="Which API. Default its usual one.")] = None,
    events: Annotated[
        int, typer.Option("--events", min=0, max=1000, help="Latest events and promotions.")
    ] = 50,
) -> Exit | None:
    """Show the limits of one connection: breakers by host, buckets, slots, and waiting calls.

    Also shows the latest 50 promotions (calls that got a slot before others because they had waited too
    long), and the latest 20 failures of each breaker. A breaker without a failure in the last day is closed,
    and is not shown.
    """
    key = connection_key(tenant, provider, account)
    record = call.with_runtime(lambda runtime: _status(runtime, key, api, events))
    if call.out.as_json:
        call.out.record(record)
    else:
        _show(call, record)
    return None


async def _status(runtime: Runtime, key: ConnectionKey, api: str | None, events: int) -> Record:
    planned = await runtime.gate.call_admitter.plan(key, api)
    if runtime.gate.viewer is None:
        raise store.no_redis()
    pool = planned.plan.pool
    view = await runtime.gate.viewer.inspect(planned.plan, events=events)
    views = await breakers.of_connection(runtime, key, failures=max(1, min(events, MOST_FAILURES)))
    failures = [
        breakers.failure_record(breaker, failure) for breaker in views for failure in breaker.failures
    ]
    names = scopes_covering(key.tenant, key.provider, key.account)
    in_force = await runtime.gate.override_store.search()
    return {
        "overrides": [
            overrides.override_record(override) for override in in_force if override.scope.names in names
        ],
        **_view_record(view, pool.lease_s if pool else 0.0),
        "breaker": {"mode": breakers.worst_mode(views)},
        "breakers": [breakers.breaker_record(breaker) for breaker in views],
        "failures": failures if events else [],
    }


def _show(call: Invocation, record: Record) -> None:
    call.out.record({name: record[name] for name in ("breaker", "slots")})
    # per_s is a rate here; a column with this name would be printed as a duration
    limits = [{**limit, "per second": limit["per_s"]} for limit in record["limits"]]
    tables: list[tuple[str, Sequence[Record], tuple[str, ...]]] = [
        (
            "unreadable, reset by the next call",
            [{"part": part} for part in record["unreadable"]],
            ("part",),
        ),
        ("overrides", record["overrides"], overrides.COLUMNS),
        ("breakers, by host", record["breakers"], breakers.COLUMNS),
        ("limits", limits, BUCKETS),
        ("slots in use", record["holders"], HOLDERS),
        ("waiting calls, by class", record["queue"], CLASSES),
        ("waiting calls", record["waiters"], WAITERS),
        ("latest promotions", record["promotions"], PROMOTIONS),
        ("latest failures that a breaker counted", record["failures"], FAILURES),
        ("latest events", record["events"], EVENTS),
    ]
    for title, rows, columns in tables:
        if rows:
            call.out.heading(title)
            call.out.rows(rows, columns)


def _view_record(view: GateView, lease_s: float) -> Record:
    """Return the gate's state as a JSON record."""
    return {
        "slots": {"limit": view.capacity, "in_use": len(view.holders), "waiting": len(view.waiters)},
        "limits": [
            {
                "name": bucket.name,
                "remaining": round(bucket.level, 3),
                "capacity": bucket.capacity,
                "per_s": round(bucket.per_s, 6),
                "reserved": bucket.reserved,
                "blocked_s": round(bucket.blocked_s, 3),
            }
            for bucket in view.buckets
        ],
        "holders": [
            {
                **_lease(holder),
                "renewed_s_ago": round(max(0.0, lease_s - holder.ends_in_s), 3),
                "ends_in_s": round(holder.ends_in_s, 3),
            }
            for holder in view.holders
        ],
        "waiters": [
            {
                **_lease(waiter),
                "waits_s": round(waiter.waits_s, 3),
                "alive_for_s": round(waiter.alive_for_s, 3),
            }
            for waiter in view.waiters
        ],
        "queue": queue_record(view),
        "promotions": [
            {"ago_s": round(promotion.ago_s, 3), **_lease(promotion)} for promotion in view.promotions
        ],
        "events": [dict(event) for event in view.events],
        "unreadable": list(view.unreadable),
    }


def _lease(view: HolderView | WaiterView | PromotionView) -> Record:
    return {
        "lease": f"{view.lease_id:016x}",
        **fields_of(view, "process tenant class=priority_class"),
        "job": view.job or None,
    }


def queue_record(view: GateView) -> list[Record]:
    """Return the waiting calls by class: their number, and the median and longest wait."""
    classes: dict[int, list[float]] = {}
    for waiter in view.waiters:
        classes.setdefault(waiter.priority_class, []).append(waiter.waits_s)
    return [
        {
            "class": number,
            "waiting": len(waits),
            "p50_s": round(sorted(waits)[(len(waits) - 1) // 2], 3),
            "longest_s": round(max(waits), 3),
        }
        for number, waits in sorted(classes.items())
    ]
