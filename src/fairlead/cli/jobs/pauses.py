"""``fairlead jobs pause``, ``resume`` and ``pauses``: hold work back, and let it go again (Q7, Q16)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.kit.bulk_actions import record_act
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import DryRun, Invocation, Limit, Yes
from fairlead.cli.kit.output import Record
from fairlead.cli.kit.times import parse_duration
from fairlead.errors import InvalidInputError

if TYPE_CHECKING:
    from fairlead.app import Fairlead
    from fairlead.assembly.runtime import Runtime
    from fairlead.engine.ports import PauseView
    from fairlead.policy.jobs.lane import Scope

COLUMNS = ("scope", "key", "tenant", "until", "lanes", "paused_by", "since", "reason")
MOST_PAUSES = 100_000


@dataclass(frozen=True, slots=True)
class What:
    """The options that name what is paused as one: exactly one thing, and for a group perhaps whose."""

    queue: Annotated[str | None, typer.Option("--queue", help="All work of this queue.")] = None
    kind: Annotated[str | None, typer.Option("--kind", help="All work of this kind.")] = None
    tenant: Annotated[
        str | None,
        typer.Option("--tenant", "-t", help="All work of this tenant; with --group, whose group."),
    ] = None
    provider: Annotated[str | None, typer.Option("--provider", "-p", help="All work for this provider.")] = (
        None
    )
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            help="The work of this group, such as shopify/default: of one tenant with --tenant, else of all.",
        ),
    ] = None

    def scope(self) -> Scope:
        """What they name; InvalidInputError if that is nothing, or more than one thing."""
        from fairlead.policy.jobs.lane import Scope, ScopeKind

        given = {
            ScopeKind.QUEUE: self.queue,
            ScopeKind.KIND: self.kind,
            ScopeKind.PROVIDER: self.provider,
            ScopeKind.GROUP: self.group,
            ScopeKind.TENANT: None if self.group is not None else self.tenant,
        }
        named = [(kind, key) for kind, key in given.items() if key is not None]
        if len(named) != 1:
            raise InvalidInputError(
                "name one thing to pause or resume",
                hint="one of --queue, --kind, --tenant, --provider, --group; --tenant may go with --group",
            )
        ((kind, key),) = named
        return Scope(kind, key, self.tenant if kind is ScopeKind.GROUP else None)


def pause(
    call: Invocation,
    what: What,
    for_: Annotated[
        str | None,
        typer.Option("--for", metavar="TIME", help="90s, 10m, 1h30m, 7d. Default until it is resumed."),
    ] = None,
    reason: Annotated[
        str, typer.Option("--reason", help="Why; shown to whoever asks why a job waits.")
    ] = "paused by hand",
    dry_run: DryRun = False,
    yes: Yes = False,
) -> Exit | None:
    """Begin no more work of one queue, kind, tenant, provider or group. What runs goes on.

    Paused again, the later end counts. A pause ends by itself after --for, or with `fairlead jobs resume`.
    """
    scope = what.scope()
    for_s = None if for_ is None else parse_duration(for_, "--for")

    async def work(fairlead: Fairlead) -> Record:
        runtime = fairlead.runtime
        if what.provider is not None:
            runtime.profiles.refuse_misspelt(what.provider)
        lanes = await runtime.lanes.due_lanes(scope)
        if dry_run:
            return {**_named(scope), "result": "would be paused", "for_s": for_s, "lanes": lanes}
        if _is_wide(scope):
            call.confirm(f"Pause {scope}, of which {lanes} lane(s) have work now?", yes=yes)
        lanes = await runtime.lanes.pause(scope, for_s, reason=reason, by=call.actor)
        await _record(call, runtime, "jobs.paused", scope, for_s=for_s, reason=reason)
        return {**_named(scope), "result": "paused", "for_s": for_s, "lanes": lanes}

    call.out.record(call.with_fairlead(work))
    return None


def resume(
    call: Invocation,
    what: What,
    dry_run: DryRun = False,
) -> Exit | None:
    """End one pause, named as it was made. What other pauses hold stays held."""
    scope = what.scope()

    async def work(fairlead: Fairlead) -> Record:
        runtime = fairlead.runtime
        if dry_run:
            paused = any(one.scope == scope for one in await runtime.lanes.pauses(MOST_PAUSES))
            return {**_named(scope), "result": "would be resumed" if paused else "not paused"}
        resumed = await runtime.lanes.resume(scope)
        if resumed:
            await _record(call, runtime, "jobs.resumed", scope)
        return {**_named(scope), "result": "resumed" if resumed else "not paused"}

    call.out.record(call.with_fairlead(work))
    return None


def pauses(call: Invocation, limit: Limit = 100) -> Exit | None:
    """List the pauses in force, the newest first: how many lanes with due work each holds, and until when."""
    found = call.with_fairlead(lambda fairlead: fairlead.runtime.lanes.pauses(limit))
    call.out.rows(map(as_record, found), COLUMNS, none="nothing is paused")
    return None


def as_record(pause: PauseView) -> Record:
    """A pause as JSON has it."""
    return {
        **_named(pause.scope),
        "until": pause.until,
        "lanes": pause.lanes,
        "paused_by": pause.by,
        "since": pause.since,
        "reason": pause.reason,
    }


def _is_wide(scope: Scope) -> bool:
    """True for what concerns more than one tenant."""
    return scope.owner is None


def _named(scope: Scope) -> Record:
    return {"scope": scope.kind, "key": scope.key, "tenant": scope.tenant}


async def _record(call: Invocation, runtime: Runtime, act: str, scope: Scope, **details: Any) -> None:
    from fairlead.policy.jobs.lane import ScopeKind

    provider = scope.key if scope.kind is ScopeKind.PROVIDER else None
    told = {"scope": scope.kind.value, "key": scope.key, **details}
    await record_act(runtime, act, call.actor, told, tenant=scope.owner, provider=provider)
