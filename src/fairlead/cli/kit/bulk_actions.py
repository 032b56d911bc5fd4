"""What a person does to stored things: written to the audit; of several, none stops the others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.output import Record
from fairlead.errors import FairleadError, InvalidInputError
from fairlead.policy.text.redact import redact

if TYPE_CHECKING:
    from fairlead.assembly.runtime import Runtime

T = TypeVar("T")


async def record_act(
    runtime: Runtime,
    act: str,
    actor: str,
    details: Mapping[str, Any],
    *,
    tenant: str | None = None,
    provider: str | None = None,
    connection_id: UUID | None = None,
) -> None:
    """One line in the audit (T13)."""
    from fairlead.engine.ports import AuditRecord

    audit_id = runtime.ids.uuid7()
    record = AuditRecord(audit_id, act, actor, tenant, provider, connection_id, details)
    await runtime.audit.append([record])


@dataclass(slots=True)
class Tally:
    """The outcomes of one act on several things."""

    rows: list[Record] = field(default_factory=list)
    failed: int = 0

    @property
    def exit(self) -> Exit:
        """All, some, or none were done."""
        if not self.failed:
            return Exit.OK
        return Exit.PARTIAL if self.failed < len(self.rows) else Exit.FAILED


async def on_each(
    things: Iterable[T],
    name: Callable[[T], Record],
    act: Callable[[T], Awaitable[str]],
    *,
    but: tuple[type[FairleadError], ...] = (FairleadError,),
) -> Tally:
    """Do *act* to each; a row for each: its *name*, its ``result`` (*act*'s word, or ``failed``) and why.

    *but*: errors that concern one of them; others end it. By default all of ours.
    """
    tally = Tally()
    for thing in things:
        result, error = "failed", None
        try:
            result = await act(thing)
        except but as told:
            tally.failed += 1
            error = told
        more = _error_fields(error) if error else {}
        tally.rows.append({**name(thing), "result": result, **more})
    return tally


def _error_fields(error: FairleadError) -> Record:
    """Return *error* as a record, with secrets masked: a file may hold a secret in place of a name."""
    return {"error": redact(error.message), "code": error.code, "hint": redact(error.hint)}


def parse_id(text: str, noun: str) -> UUID:
    """The id of a *noun*; InvalidInputError if *text* is none."""
    try:
        return UUID(text)
    except ValueError:
        raise InvalidInputError(
            f"{text!r} is no {noun} id", hint="an id is a UUID, see `--json` of the list"
        ) from None
