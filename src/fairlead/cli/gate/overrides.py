"""``fairlead gate isolate|disable|enable|degrade|restore|overrides``: manual changes of the gate.

An override is in the database, with its actor and reason, until it is taken back. Every process applies it within
2 s.

Spec: G6, G8, G12.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.kit.changes import (
    AuditEntry,
    Change,
    ChangeOptions,
    ConfirmOptions,
    Plan,
    Unchanged,
    change_one,
)
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import Invocation
from fairlead.cli.kit.names import connection_key
from fairlead.cli.kit.output import Record, fields_of
from fairlead.cli.kit.times import parse_duration
from fairlead.errors import InvalidInputError
from fairlead.policy.jobs.lane import ScopeKind, connection_group
from fairlead.policy.limits.override import (
    EVERYTHING,
    OverrideKind,
    OverrideScope,
    check_reason,
    rollout_share,
)

if TYPE_CHECKING:
    from fairlead.assembly.runtime import Runtime
    from fairlead.engine.ports import Override

COLUMNS = ("act", "tenant", "provider", "account", "on_again", "actor", "since", "reason")
APPLIED_S = 2.0
"""After this time every process applies a new override."""
MOST_PAUSES = 100_000

Reason = Annotated[str, typer.Option("--reason", help="Why; shown where calls meet the override.")]
All = Annotated[bool, typer.Option("--all", help="Required: it always concerns all connections.")]


@dataclass(frozen=True, slots=True)
class OverrideTarget:
    """The options that name the scope of an override: exactly one."""

    tenant: Annotated[
        str | None, typer.Option("--tenant", "-t", help="One tenant's connection; with --provider.")
    ] = None
    provider: Annotated[
        str | None, typer.Option("--provider", "-p", help="Without --tenant: all of its connections.")
    ] = None
    account: Annotated[
        str | None, typer.Option("--account", "-a", help="Which of the tenant's accounts. Default: default.")
    ] = None
    everything: Annotated[bool, typer.Option("--all", help="All connections of all tenants.")] = False

    def scope(self) -> OverrideScope:
        """Return the scope.

        Raises:
            InvalidInputError: No scope is named, or several.
        """
        is_named = (self.tenant, self.provider, self.account) != (None, None, None)
        has_account_only = self.tenant is None and self.account is not None
        if is_named == self.everything or has_account_only or (is_named and self.provider is None):
            raise InvalidInputError(
                "name one thing", hint="--tenant with --provider, --provider alone, or --all"
            )
        if self.tenant is None:
            return OverrideScope(provider=self.provider)
        return OverrideScope(self.tenant, self.provider, self.account or "default")


def isolate(
    call: Invocation, *, target: OverrideTarget, reason: Reason, options: ConfirmOptions
) -> Exit | None:
    """Refuse all calls, before any other check, until `fairlead gate breaker reset`.

    Jobs with refused calls wait, and use up no attempt. Calls in flight continue.
    """
    return _put_override(call, OverrideKind.ISOLATED, target.scope(), reason, options)


def disable(
    call: Invocation, *, target: OverrideTarget, reason: Reason, options: ConfirmOptions
) -> Exit | None:
    """Admit calls without any limit, until `fairlead gate enable`. They are still counted."""
    return _put_override(call, OverrideKind.DISABLED, target.scope(), reason, options)


def degrade(
    call: Invocation, *, reason: Reason, everything: All = False, options: ConfirmOptions
) -> Exit | None:
    """Have each process use only its share of the limits, although Redis answers, until `gate restore`.

    Connections follow their degraded_mode, as if Redis were unavailable.
    """
    _check_all(everything)
    return _put_override(call, OverrideKind.DEGRADED, EVERYTHING, reason, options)


def enable(
    call: Invocation,
    *,
    target: OverrideTarget,
    gradual: Annotated[
        bool, typer.Option("--gradual", help="For 10 %, 25 %, 50 %, then all of the connections.")
    ] = False,
    step: Annotated[
        str, typer.Option("--step", metavar="TIME", help="With --gradual: how long each step lasts.")
    ] = "5m",
    options: ChangeOptions,
) -> Exit | None:
    """Apply limits again: end `fairlead gate disable`. Name the same connections."""
    scope, step_s = target.scope(), parse_duration(step, "--step")
    if not gradual:
        return _end_override(call, OverrideKind.DISABLED, scope, "enabled", options)

    async def find(runtime: Runtime) -> Plan:
        override = await find_override(runtime, OverrideKind.DISABLED, scope)
        fields = {**scope_record(scope), "act": "enabled", "step_s": step_s}
        if override is None or override.rollout is not None:
            return Unchanged("not disabled" if override is None else "on its way already", fields)
        return Change(
            "enabled step by step",
            lambda: runtime.gate.override_store.start_rollout(scope, step_s),
            fields,
            audit=override_audit("gate.enabled", scope, step_s=step_s),
        )

    return change_one(call, find, options)


def restore(call: Invocation, *, everything: All = False, options: ChangeOptions) -> Exit | None:
    """Count limits in Redis again: end `gate degrade`. What was spent and held meanwhile is reported first."""
    _check_all(everything)
    return _end_override(call, OverrideKind.DEGRADED, EVERYTHING, "restored", options)


def list_overrides(call: Invocation) -> Exit | None:
    """List the overrides in force, with actor, start and reason."""
    overrides = call.with_runtime(lambda runtime: runtime.gate.override_store.search())
    call.out.rows(map(override_record, overrides), COLUMNS, none="no override is in force")
    return None


# ---- shared --------------------------------------------------------------------------------------


def override_record(override: Override) -> Record:
    """Return an override as a JSON record. *on_again*: the share of connections with limits again."""
    rollout = override.rollout
    return {
        "act": override.kind.value,
        **scope_record(override.scope),
        "on_again": None if rollout is None else rollout_share(rollout.age_s, rollout.step_s),
        **fields_of(override, "actor since reason"),
    }


def _put_override(
    call: Invocation, kind: OverrideKind, scope: OverrideScope, reason: str, options: ConfirmOptions
) -> Exit:
    check_reason(reason)

    async def find(runtime: Runtime) -> Plan:
        await _check_exists(runtime, scope)

        return Change(
            kind.value,
            lambda: runtime.gate.override_store.put(kind, scope, reason=reason, actor=call.actor),
            {**scope_record(scope), "act": kind.value, "reason": reason},
            question=None if scope.is_connection else f"{scope}: to be {kind}?",
            audit=override_audit(f"gate.{kind}", scope, reason=reason),
            afterwards=(lambda: resume_groups(runtime, scope)) if kind is OverrideKind.DISABLED else None,
        )

    return change_one(call, find, options)


def _end_override(
    call: Invocation, kind: OverrideKind, scope: OverrideScope, result: str, options: ChangeOptions
) -> Exit:
    fields = {**scope_record(scope), "act": result}

    async def find(runtime: Runtime) -> Plan:
        if await find_override(runtime, kind, scope) is None:
            return Unchanged(f"not {kind}", fields)

        async def act() -> object:
            return None if await runtime.gate.override_store.end(kind, scope) else Unchanged(f"not {kind}")

        return Change(result, act, fields, audit=override_audit(f"gate.{result}", scope))

    return change_one(call, find, options)


async def find_override(runtime: Runtime, kind: OverrideKind, scope: OverrideScope) -> Override | None:
    """Return the override of exactly this kind and scope, if it is in force."""
    overrides = await runtime.gate.override_store.search()
    return next((row for row in overrides if (row.kind, row.scope) == (kind, scope)), None)


async def _check_exists(runtime: Runtime, scope: OverrideScope) -> None:
    """Raise NotFoundError if the scope names nothing: the override would have no effect."""
    if scope.is_connection:
        await runtime.gate.call_admitter.plan(connection_key(*scope.names))
    elif scope.provider is not None:
        runtime.profiles.profile(scope.provider, None)


async def resume_groups(runtime: Runtime, scope: OverrideScope) -> Record:
    """Make job groups due that wait for the limits of *scope*, once every process applies the override."""
    await runtime.clock.sleep(APPLIED_S)
    tenant, provider, account = scope.names
    group = (tenant, connection_group(provider, account))
    waiting = [
        pause.scope
        for pause in await runtime.lanes.pauses(MOST_PAUSES)
        if pause.scope.kind is ScopeKind.RATE
        and provider in ("", pause.scope.key.partition("/")[0])
        and (not tenant or (pause.scope.tenant, pause.scope.key) == group)
    ]
    for pause_scope in waiting:
        await runtime.lanes.resume(pause_scope)
    return {"groups_due": len(waiting)}


def _check_all(everything: bool) -> None:
    if not everything:
        raise InvalidInputError("this changes all connections", hint="give --all")


def scope_record(scope: OverrideScope) -> Record:
    """Return a scope as a JSON record."""
    return fields_of(scope, "tenant provider account")


def override_audit(action: str, scope: OverrideScope, **details: Any) -> AuditEntry:
    """Return the audit entry of a change to *scope*."""
    details = {"reach": str(scope), "account": scope.account, **details}
    return AuditEntry(action, details, tenant=scope.tenant, provider=scope.provider)
