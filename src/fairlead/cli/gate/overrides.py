"""``fairlead gate isolate|disable|enable|degrade|restore|overrides``: control by hand (G6, G8, G12).

A switch stands in the database, with who made it and why, until it is taken back; every process heeds it
within 2 s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.kit.bulk_actions import record_act
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import DryRun, Invocation, Yes
from fairlead.cli.kit.names import connection_key
from fairlead.cli.kit.output import Record
from fairlead.cli.kit.times import parse_duration
from fairlead.errors import InvalidInputError

if TYPE_CHECKING:
    from fairlead.app import Fairlead
    from fairlead.assembly.runtime import Runtime
    from fairlead.engine.ports import Override
    from fairlead.policy.limits.override import OverrideKind, OverrideScope

COLUMNS = ("act", "tenant", "provider", "account", "on_again", "actor", "since", "reason")
HEEDED_S = 2.0
"""By then every process heeds what was switched."""
MOST_HOLDS = 100_000

Reason = Annotated[str, typer.Option("--reason", help="Why; shown to whoever meets it.")]


@dataclass(frozen=True, slots=True)
class What:
    """The options that name what a switch reaches: exactly one thing."""

    tenant: Annotated[str | None, typer.Option("--tenant", "-t", help="Whose; with --provider.")] = None
    provider: Annotated[
        str | None, typer.Option("--provider", "-p", help="Without --tenant: all of its connections.")
    ] = None
    account: Annotated[
        str | None, typer.Option("--account", "-a", help="Which of the tenant's accounts. Default: default.")
    ] = None
    everything: Annotated[bool, typer.Option("--all", help="All connections of all tenants.")] = False

    def reach(self) -> OverrideScope:
        """What they name; InvalidInputError if that is nothing, or more than one thing."""
        from fairlead.policy.limits.override import OverrideScope

        named = (self.tenant, self.provider, self.account) != (None, None, None)
        alone = self.tenant is None and self.account is not None
        if named == self.everything or alone or (named and self.provider is None):
            raise InvalidInputError(
                "name one thing", hint="--tenant with --provider, --provider alone, or --all"
            )
        if self.tenant is None:
            return OverrideScope(provider=self.provider)
        return OverrideScope(self.tenant, self.provider, self.account or "default")


def isolate(
    call: Invocation, what: What, reason: Reason, dry_run: DryRun = False, yes: Yes = False
) -> Exit | None:
    """Stop calls: each is refused before anything else, until `fairlead gate breaker reset`.

    Jobs that meet it keep their place and burn no attempt. What is under way goes on.
    """
    from fairlead.policy.limits.override import OverrideKind

    return _switch(call, OverrideKind.ISOLATED, what.reach(), reason, dry_run=dry_run, yes=yes)


def disable(
    call: Invocation, what: What, reason: Reason, dry_run: DryRun = False, yes: Yes = False
) -> Exit | None:
    """Let calls through without any limit, until `fairlead gate enable`. They are counted."""
    from fairlead.policy.limits.override import OverrideKind

    return _switch(call, OverrideKind.DISABLED, what.reach(), reason, dry_run=dry_run, yes=yes)


def degrade(
    call: Invocation,
    reason: Reason,
    everything: Annotated[
        bool, typer.Option("--all", help="All of it: a process counts one way or the other.")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> Exit | None:
    """Have each process keep to its share of the limits, also while Redis answers, until `gate restore`.

    Connections do as their degraded_mode says, as if Redis were away.
    """
    from fairlead.policy.limits.override import EVERYTHING, OverrideKind

    _check_all(everything)
    return _switch(call, OverrideKind.DEGRADED, EVERYTHING, reason, dry_run=dry_run, yes=yes)


def enable(
    call: Invocation,
    what: What,
    gradual: Annotated[
        bool, typer.Option("--gradual", help="For 10 %, 25 %, 50 %, then all of the connections.")
    ] = False,
    step: Annotated[
        str, typer.Option("--step", metavar="TIME", help="With --gradual: how long each step lasts.")
    ] = "5m",
    dry_run: DryRun = False,
) -> Exit | None:
    """Apply limits again: the end of `fairlead gate disable`, named as it was made."""
    from fairlead.policy.limits.override import OverrideKind

    reach, step_s = what.reach(), parse_duration(step, "--step")
    if not gradual:
        return _end(call, OverrideKind.DISABLED, reach, dry_run=dry_run)

    async def work(fairlead: Fairlead) -> Record:
        runtime = fairlead.runtime
        found = await find(runtime, OverrideKind.DISABLED, reach)
        told = {**named(reach), "act": "enabled", "step_s": step_s}
        if found is None or found.rollout is not None:
            return {**told, "result": "not disabled" if found is None else "on its way already"}
        if dry_run:
            return {**told, "result": "would be enabled step by step"}
        await runtime.gate.override_store.start_rollout(reach, step_s)
        await record_switch(call, runtime, "gate.enabled", reach, step_s=step_s)
        return {**told, "result": "enabled step by step"}

    call.out.record(call.with_fairlead(work))
    return None


def restore(
    call: Invocation,
    everything: Annotated[bool, typer.Option("--all", help="As it was degraded.")] = False,
    dry_run: DryRun = False,
) -> Exit | None:
    """Count by Redis again, which is first told what was spent and held meanwhile: the end of degrade."""
    from fairlead.policy.limits.override import EVERYTHING, OverrideKind

    _check_all(everything)
    return _end(call, OverrideKind.DEGRADED, EVERYTHING, dry_run=dry_run)


def listed(call: Invocation) -> Exit | None:
    """List what is switched by hand: by whom, since when and why."""
    found = call.with_fairlead(lambda fairlead: fairlead.runtime.gate.override_store.search())
    call.out.rows(map(switch_record, found), COLUMNS, none="nothing is switched by hand")
    return None


# ---- what they share -----------------------------------------------------------------------------


def switch_record(switch: Override) -> Record:
    """A switch as JSON has it. *on_again*: the share of connections whose limits are back."""
    from fairlead.policy.limits.override import rollout_share

    rollout = switch.rollout
    return {
        "act": switch.kind.value,
        **named(switch.scope),
        "on_again": None if rollout is None else rollout_share(rollout.age_s, rollout.step_s),
        "actor": switch.actor,
        "since": switch.since,
        "reason": switch.reason,
    }


def _switch(
    call: Invocation, act: OverrideKind, reach: OverrideScope, reason: str, *, dry_run: bool, yes: bool
) -> Exit | None:
    from fairlead.policy.limits.override import check_reason

    check_reason(reason)

    async def work(fairlead: Fairlead) -> Record:
        runtime = fairlead.runtime
        await _check_known(runtime, reach)
        told = {**named(reach), "act": act.value, "reason": reason}
        if dry_run:
            return {**told, "result": f"would be {act}"}
        if not reach.is_connection:
            call.confirm(f"{reach}: to be {act}?", yes=yes)
        await runtime.gate.override_store.put(act, reach, reason=reason, actor=call.actor)
        await record_switch(call, runtime, f"gate.{act}", reach, reason=reason)
        if act.value == "disabled":
            told["groups_due"] = await let_go(runtime, reach)
        return {**told, "result": act.value}

    call.out.record(call.with_fairlead(work))
    return None


def _end(call: Invocation, act: OverrideKind, reach: OverrideScope, *, dry_run: bool) -> Exit | None:
    word = {"disabled": "enabled", "degraded": "restored"}[act.value]

    async def work(fairlead: Fairlead) -> Record:
        runtime = fairlead.runtime
        told = {**named(reach), "act": word}
        if dry_run:
            found = await find(runtime, act, reach) is not None
            return {**told, "result": f"would be {word}" if found else f"not {act}"}
        if not await runtime.gate.override_store.end(act, reach):
            return {**told, "result": f"not {act}"}
        await record_switch(call, runtime, f"gate.{word}", reach)
        return {**told, "result": word}

    call.out.record(call.with_fairlead(work))
    return None


async def find(runtime: Runtime, act: OverrideKind, reach: OverrideScope) -> Override | None:
    """The switch of this name, if it is in force."""
    found = await runtime.gate.override_store.search()
    return next((each for each in found if each.kind is act and each.scope == reach), None)


async def _check_known(runtime: Runtime, reach: OverrideScope) -> None:
    """NotFoundError where nothing is of that name: a switch that reaches nothing would go unnoticed."""
    if reach.is_connection:
        await runtime.gate.call_admitter.plan(connection_key(*reach.names))
    elif reach.provider is not None:
        runtime.profiles.profile(reach.provider, None)


async def let_go(runtime: Runtime, reach: OverrideScope) -> int:
    """Once everybody heeds the switch, groups that wait for a turn are due: it is none any more."""
    from fairlead.policy.jobs.lane import ScopeKind, connection_group

    await runtime.clock.sleep(HEEDED_S)
    tenant, provider, account = reach.names
    held = [
        pause.scope
        for pause in await runtime.lanes.pauses(MOST_HOLDS)
        if pause.scope.kind is ScopeKind.RATE
        and (not provider or pause.scope.key.partition("/")[0] == provider)
        and (
            not tenant
            or (pause.scope.tenant, pause.scope.key) == (tenant, connection_group(provider, account))
        )
    ]
    for scope in held:
        await runtime.lanes.resume(scope)
    return len(held)


def _check_all(everything: bool) -> None:
    if not everything:
        raise InvalidInputError("only all of it counts one way or the other", hint="give --all")


def named(reach: OverrideScope) -> Record:
    """What is reached, as JSON has it."""
    return {"tenant": reach.tenant, "provider": reach.provider, "account": reach.account}


async def record_switch(
    call: Invocation, runtime: Runtime, act: str, reach: OverrideScope, **details: Any
) -> None:
    """One line in the audit."""
    told = {"reach": str(reach), "account": reach.account, **details}
    await record_act(runtime, act, call.actor, told, tenant=reach.tenant, provider=reach.provider)
