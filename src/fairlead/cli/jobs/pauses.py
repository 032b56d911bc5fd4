"""``fairlead jobs pause``, ``resume`` and ``pauses``: stop work of one scope, and start it again. Spec: Q7, Q16."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.kit.changes import (
    AuditEntry,
    Change,
    ChangeOptions,
    ConfirmOptions,
    Done,
    Plan,
    Unchanged,
    change_one,
)
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import Invocation, Limit
from fairlead.cli.kit.output import Record, fields_of
from fairlead.cli.kit.times import parse_duration
from fairlead.errors import InvalidInputError
from fairlead.policy.jobs.lane import Scope, ScopeKind

if TYPE_CHECKING:
    from fairlead.assembly.runtime import Runtime
    from fairlead.engine.ports import PauseView

COLUMNS = ("scope", "key", "tenant", "until", "lanes", "paused_by", "since", "reason")
MOST_PAUSES = 100_000


@dataclass(frozen=True, slots=True)
class PauseTarget:
    """The options that name what is paused: exactly one scope."""

    queue: Annotated[str | None, typer.Option("--queue", help="All work of this queue.")] = None
    kind: Annotated[str | None, typer.Option("--kind", help="All work of this kind.")] = None
    tenant: Annotated[
        str | None,
        typer.Option("--tenant", "-t", help="All work of this tenant; with --group, its group."),
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
        """Return the scope.

        Raises:
            InvalidInputError: No scope is named, or several.
        """
        keys = {
            ScopeKind.QUEUE: self.queue,
            ScopeKind.KIND: self.kind,
            ScopeKind.PROVIDER: self.provider,
            ScopeKind.GROUP: self.group,
            ScopeKind.TENANT: None if self.group is not None else self.tenant,
        }
        named = [(kind, key) for kind, key in keys.items() if key is not None]
        if len(named) != 1:
            raise InvalidInputError(
                "name one thing to pause or resume",
                hint="one of --queue, --kind, --tenant, --provider, --group; --tenant may go with --group",
            )
        ((kind, key),) = named
        return Scope(kind, key, self.tenant if kind is ScopeKind.GROUP else None)


def pause(
    call: Invocation,
    *,
    target: PauseTarget,
    for_: Annotated[
        str | None,
        typer.Option("--for", metavar="TIME", help="90s, 10m, 1h30m, 7d. Default until it is resumed."),
    ] = None,
    reason: Annotated[
        str, typer.Option("--reason", help="Why; shown where a job waits because of it.")
    ] = "paused by hand",
    options: ConfirmOptions,
) -> Exit | None:
    """Start no more jobs of one queue, kind, tenant, provider or group. Running jobs continue.

    If it is paused already, the later end counts. A pause ends after --for, or with `fairlead jobs resume`.
    """
    scope = target.scope()
    for_s = None if for_ is None else parse_duration(for_, "--for")

    async def find(runtime: Runtime) -> Plan:
        if target.provider is not None:
            runtime.profiles.refuse_misspelt(target.provider)
        lanes = await runtime.lanes.due_lanes(scope)

        async def act() -> Done:
            paused = await runtime.lanes.pause(scope, for_s, reason=reason, by=call.actor)
            return Done(fields={"lanes": paused})

        concerns_many = scope.owner is None
        return Change(
            "paused",
            act,
            {**_names(scope), "for_s": for_s, "lanes": lanes},
            question=f"Pause {scope}, of which {lanes} lane(s) have work now?" if concerns_many else None,
            audit=_audit("jobs.paused", scope, for_s=for_s, reason=reason),
        )

    return change_one(call, find, options)


def resume(call: Invocation, *, target: PauseTarget, options: ChangeOptions) -> Exit | None:
    """End one pause; name it as it was made. Work that other pauses stop stays paused."""
    scope = target.scope()

    async def find(runtime: Runtime) -> Plan:
        names = _names(scope)
        if all(pause.scope != scope for pause in await runtime.lanes.pauses(MOST_PAUSES)):
            return Unchanged("not paused", names)

        async def act() -> object:
            return None if await runtime.lanes.resume(scope) else Unchanged("not paused")

        return Change("resumed", act, names, audit=_audit("jobs.resumed", scope))

    return change_one(call, find, options)


def pauses(call: Invocation, limit: Limit = 100) -> Exit | None:
    """List the pauses in force, newest first, with the lanes of due work that each stops, and its end.

    A lane holds the jobs of one queue, kind, provider, priority, tenant and group.
    """
    views = call.with_runtime(lambda runtime: runtime.lanes.pauses(limit))
    call.out.rows(map(pause_record, views), COLUMNS, none="nothing is paused")
    return None


def pause_record(pause: PauseView) -> Record:
    """Return a pause as a JSON record."""
    return {**_names(pause.scope), **fields_of(pause, "until lanes paused_by=by since reason")}


def _names(scope: Scope) -> Record:
    return {"scope": scope.kind, "key": scope.key, "tenant": scope.tenant}


def _audit(action: str, scope: Scope, **details: Any) -> AuditEntry:
    provider = scope.key if scope.kind is ScopeKind.PROVIDER else None
    details = {"scope": scope.kind.value, "key": scope.key, **details}
    return AuditEntry(action, details, tenant=scope.owner, provider=provider)
