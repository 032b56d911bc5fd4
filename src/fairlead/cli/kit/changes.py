"""The steps of every command that changes something: find, dry run, confirm, act, audit record, result row.

A command looks up the present state and returns a `Change`, or `Unchanged` if there is nothing to do. The other
steps are here, so that ``--dry-run``, ``--yes``, ``--reason`` and ``--json`` mean the same in all commands.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from uuid import UUID

import typer

from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import Invocation
from fairlead.cli.kit.output import Record
from fairlead.errors import FairleadError, InvalidInputError
from fairlead.policy.text.redact import redact

if TYPE_CHECKING:
    from fairlead.assembly.runtime import Runtime

T = TypeVar("T")

DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.")]


@dataclass(frozen=True, slots=True)
class ConfirmOptions:
    """The options of a command that changes something."""

    dry_run: DryRun = False
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False


@dataclass(frozen=True, slots=True)
class ChangeOptions(ConfirmOptions):
    """The same, with a reason for the audit trail. Commands that store the reason define their own option."""

    reason: Annotated[str | None, typer.Option("--reason", help="Your reason; kept in the audit trail.")] = (
        None
    )


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """What the audit trail records about a change. Spec: T13."""

    action: str
    details: Mapping[str, Any]
    tenant: str | None = None
    provider: str | None = None
    connection_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class Unchanged:
    """Nothing to do, or nothing done because the state changed meanwhile. *result* says which."""

    result: str
    fields: Record = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Done:
    """What an act did, where its `Change` could not know it beforehand.

    Attributes:
        result: Replaces the result of the change.
        fields: Further fields of the result row.
        details: Further details of the audit record.
    """

    result: str | None = None
    fields: Record = field(default_factory=dict)
    details: Record = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Change:
    """A change that a command is about to make.

    Attributes:
        result: The past participle for the result row, such as ``paused``. A dry run shows ``would be paused``.
        act: Makes the change. It may return `Done` or `Unchanged`; any other value counts as done.
        fields: Further fields of the result row.
        question: Asked at a terminal before acting. None: the change needs no confirmation.
        audit: Recorded after acting. None: the engine records the change itself.
        planned: Replaces the result of a dry run.
        afterwards: Runs after the audit record, and returns further fields of the result row.
    """

    result: str
    act: Callable[[], Awaitable[object]]
    fields: Record = field(default_factory=dict)
    question: str | None = None
    audit: AuditEntry | None = None
    planned: str | None = None
    afterwards: Callable[[], Awaitable[Record]] | None = None


Plan = Change | Unchanged


async def carry_out(call: Invocation, runtime: Runtime, plan: Plan, options: ConfirmOptions) -> Record:
    """Make a change, or only describe it in a dry run. Return the fields of its result row."""
    if isinstance(plan, Unchanged):
        return {**plan.fields, "result": plan.result}
    if options.dry_run:
        return {**plan.fields, "result": plan.planned or f"would be {plan.result}"}
    if plan.question is not None:
        call.confirm(plan.question, yes=options.yes)
    outcome = await plan.act()
    if isinstance(outcome, Unchanged):
        return {**plan.fields, **outcome.fields, "result": outcome.result}
    done = outcome if isinstance(outcome, Done) else Done()
    if plan.audit is not None:
        await record_audit(runtime, call.actor, plan.audit, options, done.details)
    later = await plan.afterwards() if plan.afterwards is not None else {}
    return {**plan.fields, **done.fields, **later, "result": done.result or plan.result}


async def record_audit(
    runtime: Runtime,
    actor: str,
    entry: AuditEntry,
    options: ConfirmOptions | None = None,
    more: Record = MappingProxyType({}),
) -> None:
    """Append *entry* to the audit trail, with *more* details and the reason among *options*."""
    from fairlead.engine.ports import AuditRecord

    reason = getattr(options, "reason", None)
    details = {**entry.details, **more, **({"reason": reason} if reason else {})}
    record = AuditRecord(
        runtime.ids.uuid7(), entry.action, actor, entry.tenant, entry.provider, entry.connection_id, details
    )
    await runtime.audit.append([record])


def change_one(call: Invocation, find: Callable[[Runtime], Awaitable[Plan]], options: ConfirmOptions) -> Exit:
    """Run a command that makes one change, and print its result row."""

    async def work(runtime: Runtime) -> Record:
        return await carry_out(call, runtime, await find(runtime), options)

    call.out.record(call.with_runtime(work))
    return Exit.OK


# ---- several changes -----------------------------------------------------------------------------


@dataclass(slots=True)
class BulkResult:
    """One row for each of several things, and the number of those that failed."""

    rows: list[Record] = field(default_factory=list)
    failures: int = 0

    @property
    def exit(self) -> Exit:
        """The exit code: all, some or none were done."""
        if not self.failures:
            return Exit.OK
        return Exit.PARTIAL if self.failures < len(self.rows) else Exit.FAILED


async def for_each(
    items: Iterable[T],
    name: Callable[[T], Record],
    act: Callable[[T], Awaitable[Record]],
    *,
    expected: tuple[type[FairleadError], ...] = (FairleadError,),
) -> BulkResult:
    """Call *act* for each item. Its row holds *name* and what *act* returns, or the error.

    Args:
        expected: Errors that concern one item only. Others end the command.
    """
    bulk = BulkResult()
    for item in items:
        try:
            row = await act(item)
        except expected as error:
            bulk.failures += 1
            row = _failure(error)
        bulk.rows.append({**name(item), **row})
    return bulk


def _failure(error: FairleadError) -> Record:
    """Return *error* as a row, with secrets masked: a file may hold a secret in place of a name."""
    message, hint = redact(error.message), redact(error.hint)
    return {"result": "failed", "error": message, "code": error.code, "hint": hint}


def change_each(
    call: Invocation,
    choose: Callable[[Runtime], Awaitable[Sequence[str]]],
    find: Callable[[Runtime, str], Awaitable[Plan]],
    options: ConfirmOptions,
    *,
    noun: str,
    question: str | None = None,
    columns: Sequence[str] = (),
    none: str = "nothing found",
) -> Exit:
    """Run a command that changes several things: print a row for each, and return the exit code.

    Args:
        choose: Returns the names of the things.
        find: Returns the change of one of them.
        noun: The field that holds the name.
        question: Asked once, with ``{count}``. None: no confirmation is needed.
        columns: Further columns of the table, between name and result.
        none: Printed if there is none.
    """

    async def work(runtime: Runtime) -> BulkResult:
        names = await choose(runtime)
        if question is not None and names and not options.dry_run:
            call.confirm(question.replace("{count}", str(len(names))), yes=options.yes)

        async def change(name: str) -> Record:
            return await carry_out(call, runtime, await find(runtime, name), options)

        return await for_each(names, lambda name: {noun: name}, change)

    bulk = call.with_runtime(work)
    call.out.rows(bulk.rows, (noun, *columns, "result", "error"), none=none)
    return bulk.exit


def parse_id(text: str, noun: str) -> UUID:
    """Return the id of a *noun*.

    Raises:
        InvalidInputError: *text* is not a UUID.
    """
    try:
        return UUID(text)
    except ValueError:
        hint = "an id is a UUID, see `--json` of the list"
        raise InvalidInputError(f"{text!r} is no {noun} id", hint=hint) from None
