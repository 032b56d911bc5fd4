"""``fairlead gate``: the limits of calls, as they stand, and what people do to them (G12)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.gate import actions, breakers, overrides, store
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import Invocation, command, group, listing
from fairlead.cli.kit.names import Account, Provider, Tenant, connection_key
from fairlead.cli.kit.output import Record

if TYPE_CHECKING:
    from fairlead.app import Fairlead
    from fairlead.engine.ports import (
        ConnectionKey,
        GateView,
        HolderView,
        OverrideStore,
        PromotionView,
        WaiterView,
    )

BUCKETS = ("name", "left", "capacity", "per second", "booked", "blocked_s")
HOLDERS = ("lease", "process", "tenant", "job", "class", "renewed_s_ago", "ends_in_s")
WAITERS = ("lease", "process", "tenant", "job", "class", "waits_s", "alive_for_s")
CLASSES = ("class", "waiting", "p50_s", "longest_s")
PROMOTIONS = ("ago_s", "lease", "process", "tenant", "job", "class")
FAILURES = ("ago_s", "host", "cause", "process", "tenant", "job", "opened_s")
MOST_FAILURES = 20
EVENTS = ("k", "n", "c", "h")

app = group("Limits of calls: what is left, who holds what, who waits; and switches for emergencies.")

command(app, "isolate")(overrides.isolate)
command(app, "disable")(overrides.disable)
command(app, "enable")(overrides.enable)
command(app, "degrade")(overrides.degrade)
command(app, "restore")(overrides.restore)
command(app, "overrides")(overrides.listed)
command(app, "promote")(actions.promote)
command(app, "clear")(actions.clear)
command(listing(app, "breaker")(actions.isolations), "reset")(actions.reset)

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

    Also shows the latest 50 promotions, and the latest 20 failures of each breaker. A breaker without a
    failure in the last day is closed, and is not shown.
    """

    key = connection_key(tenant, provider, account)

    async def work(fairlead: Fairlead) -> Record:
        gate = fairlead.runtime.gate
        made = await gate.call_admitter.plan(key, api)
        if gate.viewer is None:
            raise store.no_redis()
        pool = made.plan.pool
        view = await gate.viewer.inspect(made.plan, events=events)
        stopped = await breakers.of_connection(fairlead.runtime, key, failures=min(events, MOST_FAILURES))
        return {
            **_record(view, pool.lease_s if pool else 0.0, await _overrides(gate.override_store, key)),
            "breaker": {"mode": breakers.worst_mode(stopped)},
            "breakers": [breakers.breaker_record(destination) for destination in stopped],
            "failures": [
                breakers.failure_record(destination, failure)
                for destination in stopped
                for failure in destination.failures
            ]
            if events
            else [],
        }

    record = call.with_fairlead(work)
    if call.manner.as_json:
        call.out.record(record)
        return None
    call.out.record({name: record[name] for name in ("breaker", "slots")})
    unreadable: list[Record] = [{"part": part} for part in record["unreadable"]]
    _table(call, "unreadable, reset by the next call", unreadable, ("part",))
    _table(call, "switched by hand", record["switches"], overrides.COLUMNS)
    limits: list[Record] = [
        {**limit, "per second": limit["per_s"]}  # per_s is a rate; a column of this name, a time
        for limit in record["limits"]
    ]
    _table(call, "breakers, by host", record["breakers"], breakers.COLUMNS)
    _table(call, "limits", limits, BUCKETS)
    _table(call, "slots held", record["holders"], HOLDERS)
    _table(call, "in line, by class", record["queue"], CLASSES)
    _table(call, "in line", record["waiters"], WAITERS)
    _table(call, "latest promotions", record["promotions"], PROMOTIONS)
    _table(call, "latest failures that a breaker counted", record["failures"], FAILURES)
    _table(call, "latest events", record["events"], EVENTS)
    return None


def _table(call: Invocation, title: str, rows: list[Record], columns: tuple[str, ...]) -> None:
    if rows:
        call.out.heading(title)
        call.out.rows(rows, columns)


async def _overrides(store: OverrideStore, key: ConnectionKey) -> list[Record]:
    """What people switched that touches this connection."""
    from fairlead.policy.limits.override import scopes_covering

    names = scopes_covering(key.tenant, key.provider, key.account)
    return [overrides.switch_record(each) for each in await store.search() if each.scope.names in names]


def _record(view: GateView, lease_s: float, overrides: list[Record]) -> Record:
    """Everything as JSON has it."""
    return {
        "switches": overrides,
        "slots": {"limit": view.capacity, "held": len(view.holders), "waiting": len(view.waiters)},
        "limits": [
            {
                "name": one.name,
                "left": round(one.level, 3),
                "capacity": one.capacity,
                "per_s": round(one.per_s, 6),
                "booked": one.reserved,
                "blocked_s": round(one.blocked_s, 3),
            }
            for one in view.buckets
        ],
        "holders": [
            {
                **_who(one),
                "renewed_s_ago": round(max(0.0, lease_s - one.ends_in_s), 3),
                "ends_in_s": round(one.ends_in_s, 3),
            }
            for one in view.holders
        ],
        "waiters": [
            {
                **_who(one),
                "waits_s": round(one.waits_s, 3),
                "alive_for_s": round(one.alive_for_s, 3),
            }
            for one in view.waiters
        ],
        "queue": queue_of(view),
        "promotions": [{"ago_s": round(one.ago_s, 3), **_who(one)} for one in view.promotions],
        "events": [dict(event) for event in view.events],
        "unreadable": list(view.unreadable),
    }


def _who(one: HolderView | WaiterView | PromotionView) -> Record:
    return {
        "lease": f"{one.lease_id:016x}",
        "process": one.process,
        "tenant": one.tenant,
        "job": one.job or None,
        "class": one.priority_class,
    }


def queue_of(view: GateView) -> list[Record]:
    """Who waits, by class: how many, how long half of them have waited at most, and the longest."""
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
