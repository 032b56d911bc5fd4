"""``fairlead gate breaker|promote|clear``: what people mend by hand in the gate's store (G6, G12)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.gate.breakers import of_reach
from fairlead.cli.gate.overrides import COLUMNS, What, find, let_go, named, record_switch, switch_record
from fairlead.cli.gate.store import no_redis
from fairlead.cli.kit.bulk_actions import record_act
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import DryRun, Invocation
from fairlead.cli.kit.names import Account, Provider, Tenant, connection_key
from fairlead.cli.kit.output import Record
from fairlead.errors import InvalidInputError, NotFoundError

if TYPE_CHECKING:
    from fairlead.app import Fairlead
    from fairlead.assembly.runtime import Runtime
    from fairlead.engine.ports import GateOperator
    from fairlead.policy.limits.breaker import Destination
    from fairlead.policy.limits.override import OverrideScope


# ---- breakers ------------------------------------------------------------------------------------


def isolations(call: Invocation) -> Exit | None:
    """List the breakers that people hold open; `fairlead gate status` shows those of one connection."""
    from fairlead.policy.limits.override import OverrideKind

    found = call.with_fairlead(lambda fairlead: fairlead.runtime.gate.override_store.search())
    rows = (switch_record(each) for each in found if each.kind is OverrideKind.ISOLATED)
    call.out.rows(rows, COLUMNS, none="no breaker is held open by hand")
    return None


def reset(
    call: Invocation,
    what: What,
    host: Annotated[
        str | None, typer.Option("--host", help="Only the breaker of calls to this host. Default: all.")
    ] = None,
    dry_run: DryRun = False,
) -> Exit | None:
    """Lift the isolation of what you name, and close its open breakers, by default at all hosts.

    Name an isolation as it was made. After a reset, a breaker admits calls step by step, 2 in the first
    second. Jobs that waited for it are due at once.
    """
    from fairlead.policy.limits.override import OverrideKind

    reach = what.reach()

    async def work(fairlead: Fairlead) -> Record:
        runtime = fairlead.runtime
        lifted = await find(runtime, OverrideKind.ISOLATED, reach) is not None
        if lifted and not dry_run:
            await runtime.gate.override_store.end(OverrideKind.ISOLATED, reach)
        closed = await _close_breakers(runtime, reach, host, dry_run=dry_run)
        result: Record = {**named(reach), "isolation": _ended(lifted, dry_run), "breakers": closed}
        if not lifted and runtime.gate.operator is None:
            raise no_redis()
        if not lifted and not closed:
            return {**result, "result": "nothing to reset"}
        if dry_run:
            return {**result, "result": "would be reset"}
        await record_switch(call, runtime, "gate.reset", reach, isolated=lifted, breakers=closed)
        return {**result, "result": "reset", "groups_due": await let_go(runtime, reach)}

    record = call.with_fairlead(work)
    if call.out.as_json:
        call.out.record(record)
    else:
        call.out.record({name: value for name, value in record.items() if name != "breakers"})
        if record["breakers"]:
            call.out.heading("breakers")
            call.out.rows(record["breakers"], ("tenant", "provider", "account", "host", "was"))
    if record["result"] == "nothing to reset":
        call.out.warn(f"nothing is isolated and no breaker is open{_named(host)} (hint: `fairlead status`)")
    return None


def _named(host: str | None) -> str:
    return "" if host is None else f" for the host {host!r}"


def _ended(lifted: bool, dry_run: bool) -> str:
    if not lifted:
        return "none"
    return "would be lifted" if dry_run else "lifted"


async def _close_breakers(
    runtime: Runtime, reach: OverrideScope, host: str | None, *, dry_run: bool
) -> list[Record]:
    """Close open breakers and return each with its former mode; none without Redis."""
    from fairlead.policy.limits.breaker import Mode

    closed: list[Record] = []
    if runtime.gate.operator is None:
        return closed
    for destination in await _open_destinations(runtime, reach, host):
        key = connection_key(destination.tenant, destination.provider, destination.account)
        if await runtime.tokens.connections.find(key) is None:  # a breaker may outlive its connection
            continue
        planned = await runtime.gate.call_admitter.plan(key, host=destination.host)
        was = await runtime.gate.operator.reset_breaker(planned.plan, dry_run=dry_run)
        if was is not Mode.CLOSED:
            mode = was.name.lower().replace("_", "-")
            closed.append({**destination._asdict(), "host": destination.host or None, "was": mode})
    return closed


async def _open_destinations(runtime: Runtime, reach: OverrideScope, host: str | None) -> list[Destination]:
    """Return the destinations whose breakers may be open; for one *host* also without a recorded failure."""
    from fairlead.policy.limits.breaker import Destination

    tenant, provider, account = reach.names
    if reach.is_connection and host is not None:
        return [Destination(provider, account, tenant, host)]
    open_now = [view.destination for view in await of_reach(runtime, reach) if view.breaker.mode != "closed"]
    return [destination for destination in open_now if host in (None, destination.host)]


# ---- the line, and all of it ---------------------------------------------------------------------


def promote(
    call: Invocation,
    lease: Annotated[str, typer.Argument(metavar="LEASE", help="As `fairlead gate status` shows it.")],
    tenant: Tenant,
    provider: Provider,
    account: Account = "default",
    dry_run: DryRun = False,
) -> Exit | None:
    """Put one who waits for a slot before all others: it gets the next one that comes free."""
    key, lease_id = connection_key(tenant, provider, account), _lease_id(lease)

    async def work(fairlead: Fairlead) -> Record:
        runtime = fairlead.runtime
        operator = _operator(runtime)
        made = await runtime.gate.call_admitter.plan(key)
        if not await operator.promote(made.plan, lease_id, dry_run=dry_run):
            raise NotFoundError(
                f"nobody waits under the lease {lease_id:016x}",
                tenant=tenant,
                provider=provider,
                hint="`fairlead gate status` shows who waits",
            )
        told = {"tenant": tenant, "provider": provider, "account": account, "lease": f"{lease_id:016x}"}
        if dry_run:
            return {**told, "result": "would be promoted"}
        details = {"account": account, "lease": f"{lease_id:016x}"}
        await record_act(runtime, "gate.promoted", call.actor, details, tenant=tenant, provider=provider)
        return {**told, "result": "promoted"}

    call.out.record(call.with_fairlead(work))
    return None


def clear(
    call: Invocation,
    yes: Annotated[bool, typer.Option("--yes", help="Yes, all of it, of every tenant.")] = False,
    dry_run: DryRun = False,
) -> Exit | None:
    """Delete all that this installation keeps in Redis: keys of its own prefix, and no others.

    Limits hold meanwhile: buckets begin empty, who holds a slot keeps it, and others get one once the
    longest lease (30 s) has passed. Lines, turns and breakers are gone. What was learnt of limits comes back
    from the database.
    """
    if not (yes or dry_run):
        raise InvalidInputError(
            "this forgets every count, line and breaker of the gate",
            hint="give --yes to do it, --dry-run to see how much it is",
        )

    async def work(fairlead: Fairlead) -> Record:
        runtime = fairlead.runtime
        count = await _operator(runtime).clear(dry_run=dry_run)
        told = {"prefix": runtime.settings.redis.prefix, "keys": count}
        if dry_run:
            return {**told, "result": "would be cleared"}
        await record_act(runtime, "gate.cleared", call.actor, told)
        return {**told, "result": "cleared"}

    call.out.record(call.with_fairlead(work))
    return None


def _operator(runtime: Runtime) -> GateOperator:
    if runtime.gate.operator is None:
        raise no_redis()
    return runtime.gate.operator


def _lease_id(text: str) -> int:
    try:
        number = int(text, 16)
    except ValueError:
        number = -1
    if not 0 <= number < 1 << 64:
        raise InvalidInputError(
            f"{text[:40]!r} is no lease", hint="16 hex digits, see `fairlead gate status`"
        )
    return number
