"""``fairlead gate breaker|promote|clear``: manual repairs of the gate's store. Spec: G6, G12."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.gate.breakers import of_scope
from fairlead.cli.gate.overrides import (
    COLUMNS,
    OverrideTarget,
    find_override,
    override_audit,
    override_record,
    resume_groups,
    scope_record,
)
from fairlead.cli.gate.store import no_redis
from fairlead.cli.kit.changes import (
    AuditEntry,
    Change,
    ChangeOptions,
    Done,
    Plan,
    Unchanged,
    carry_out,
    change_one,
)
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import Invocation
from fairlead.cli.kit.names import Account, Provider, Tenant, connection_key
from fairlead.cli.kit.output import Record
from fairlead.errors import InvalidInputError, NotFoundError
from fairlead.policy.limits.breaker import Destination, Mode
from fairlead.policy.limits.override import OverrideKind, OverrideScope

if TYPE_CHECKING:
    from fairlead.assembly.runtime import Runtime
    from fairlead.engine.ports import GateOperator


# ---- breakers ------------------------------------------------------------------------------------


def isolations(call: Invocation) -> Exit | None:
    """List the isolations in force; `fairlead gate status` shows the breakers of one connection."""
    overrides = call.with_runtime(lambda runtime: runtime.gate.override_store.search())
    rows = (override_record(row) for row in overrides if row.kind is OverrideKind.ISOLATED)
    call.out.rows(rows, COLUMNS, none="nothing is isolated")
    return None


def reset(
    call: Invocation,
    *,
    target: OverrideTarget,
    host: Annotated[
        str | None, typer.Option("--host", help="Only the breaker of calls to this host. Default: all.")
    ] = None,
    options: ChangeOptions,
) -> Exit | None:
    """End the isolation of what you name, and close its open breakers, by default at all hosts.

    Name an isolation as it was made. After a reset, a breaker admits calls step by step, 2 in the first
    second. Jobs that waited for it are due at once.
    """
    scope = target.scope()

    async def work(runtime: Runtime) -> Record:
        return await carry_out(call, runtime, await _reset_plan(runtime, scope, host), options)

    row = call.with_runtime(work)
    if call.out.as_json:
        call.out.record(row)
    else:
        call.out.record({name: value for name, value in row.items() if name != "breakers"})
        if row["breakers"]:
            call.out.heading("breakers")
            call.out.rows(row["breakers"], ("tenant", "provider", "account", "host", "was"))
    if row["result"] == "nothing to reset":
        where = "" if host is None else f" for the host {host!r}"
        call.out.warn(f"nothing is isolated and no breaker is open{where} (hint: `fairlead status`)")
    return None


async def _reset_plan(runtime: Runtime, scope: OverrideScope, host: str | None) -> Plan:
    is_isolated = await find_override(runtime, OverrideKind.ISOLATED, scope) is not None
    breakers = await _close_breakers(runtime, scope, host, dry_run=True)
    if not is_isolated and runtime.gate.operator is None:
        raise no_redis()
    isolation = "would be lifted" if is_isolated else "none"
    fields = {**scope_record(scope), "isolation": isolation, "breakers": breakers}
    if not is_isolated and not breakers:
        return Unchanged("nothing to reset", fields)

    async def act() -> Done:
        if is_isolated:
            await runtime.gate.override_store.end(OverrideKind.ISOLATED, scope)
        closed = await _close_breakers(runtime, scope, host, dry_run=False)
        isolation = "lifted" if is_isolated else "none"
        return Done(fields={"isolation": isolation, "breakers": closed}, details={"breakers": closed})

    return Change(
        "reset",
        act,
        fields,
        audit=override_audit("gate.reset", scope, isolated=is_isolated),
        afterwards=lambda: resume_groups(runtime, scope),
    )


async def _close_breakers(
    runtime: Runtime, scope: OverrideScope, host: str | None, *, dry_run: bool
) -> list[Record]:
    """Close open breakers and return each with its former mode; none without Redis."""
    closed: list[Record] = []
    if runtime.gate.operator is None:
        return closed
    for destination in await _open_destinations(runtime, scope, host):
        key = connection_key(destination.tenant, destination.provider, destination.account)
        if await runtime.tokens.connections.find(key) is None:  # a breaker may outlive its connection
            continue
        planned = await runtime.gate.call_admitter.plan(key, host=destination.host)
        was = await runtime.gate.operator.reset_breaker(planned.plan, dry_run=dry_run)
        if was is not Mode.CLOSED:
            mode = was.name.lower().replace("_", "-")
            closed.append({**destination._asdict(), "host": destination.host or None, "was": mode})
    return closed


async def _open_destinations(runtime: Runtime, scope: OverrideScope, host: str | None) -> list[Destination]:
    """Return destinations that may have an open breaker; for one *host* also without a recorded failure."""
    tenant, provider, account = scope.names
    if scope.is_connection and host is not None:
        return [Destination(provider, account, tenant, host)]
    open_now = [view.destination for view in await of_scope(runtime, scope) if view.breaker.mode != "closed"]
    return [destination for destination in open_now if host in (None, destination.host)]


# ---- waiting calls, and the whole store ----------------------------------------------------------


def promote(
    call: Invocation,
    *,
    lease: Annotated[str, typer.Argument(metavar="LEASE", help="As `fairlead gate status` shows it.")],
    tenant: Tenant,
    provider: Provider,
    account: Account = "default",
    options: ChangeOptions,
) -> Exit | None:
    """Move a call that waits for a slot before all others: it gets the next free one."""
    key, lease_id = connection_key(tenant, provider, account), _lease_id(lease)
    lease = f"{lease_id:016x}"

    async def find(runtime: Runtime) -> Plan:
        operator = _operator(runtime)
        planned = await runtime.gate.call_admitter.plan(key)
        missing = NotFoundError(
            f"no call waits under the lease {lease}",
            tenant=tenant,
            provider=provider,
            hint="`fairlead gate status` shows the calls that wait",
        )
        if not await operator.promote(planned.plan, lease_id, dry_run=True):
            raise missing

        async def act() -> None:
            if not await operator.promote(planned.plan, lease_id):
                raise missing

        fields = {"tenant": tenant, "provider": provider, "account": account, "lease": lease}
        details = {"account": account, "lease": lease}
        return Change("promoted", act, fields, audit=AuditEntry("gate.promoted", details, tenant, provider))

    return change_one(call, find, options)


def clear(call: Invocation, *, options: ChangeOptions) -> Exit | None:
    """Delete all that this installation keeps in Redis: keys of its own prefix, and no others.

    Limits hold meanwhile: buckets begin empty, calls in flight keep their slots, and others get one once the
    longest lease (30 s) has passed. Waiting calls lose their place, and breakers close. Learnt limits come
    back from the database. Needs --yes, also in a script.
    """
    if not (options.yes or options.dry_run):
        raise InvalidInputError(
            "this deletes every count, waiting call and breaker of the gate",
            hint="give --yes to do it, --dry-run to see how much it is",
        )

    async def find(runtime: Runtime) -> Plan:
        operator = _operator(runtime)
        prefix = runtime.settings.redis.prefix

        async def act() -> Done:
            count = {"keys": await operator.clear()}
            return Done(fields=count, details=count)

        fields = {"prefix": prefix, "keys": await operator.clear(dry_run=True)}
        return Change("cleared", act, fields, audit=AuditEntry("gate.cleared", {"prefix": prefix}))

    return change_one(call, find, options)


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
        hint = "16 hex digits, see `fairlead gate status`"
        raise InvalidInputError(f"{text[:40]!r} is no lease", hint=hint)
    return number
