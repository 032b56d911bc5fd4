"""Dead letters on the command line: which are chosen, and how they are shown. Spec: Q9."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.kit.changes import parse_id
from fairlead.cli.kit.output import Record, fields_of
from fairlead.cli.kit.times import parse_duration
from fairlead.engine.ports import DeadLetterFilter
from fairlead.errors import InvalidInputError, NotFoundError
from fairlead.policy.failures.category import Category
from fairlead.policy.jobs.states import DeadLetterStatus

if TYPE_CHECKING:
    from fairlead.assembly.runtime import Runtime
    from fairlead.engine.ports import DeadLetter

OPEN = "pending_review"

Status = Annotated[
    str,
    typer.Option("--status", help="pending_review, auto_resolved, manual_resolved, abandoned, or any."),
]


@dataclass(frozen=True, slots=True)
class DeadLetterFilterOptions:
    """The options that choose entries."""

    category: Annotated[str | None, typer.Option("--category", help="Only this failure category.")] = None
    code: Annotated[str | None, typer.Option("--code", help="Only this code, such as http_503.")] = None
    tenant: Annotated[str | None, typer.Option("--tenant", "-t", help="Only this tenant's.")] = None
    provider: Annotated[str | None, typer.Option("--provider", "-p", help="Only work for this provider.")] = (
        None
    )
    kind: Annotated[str | None, typer.Option("--kind", help="Only jobs of this kind.")] = None
    queue: Annotated[str | None, typer.Option("--queue", help="Only jobs of this queue.")] = None
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="TIME", help="Only first discarded so long ago: 90s, 1h, 7d."),
    ] = None

    def filter(self, status: str = OPEN) -> DeadLetterFilter:
        """Return the filter of these options and *status*.

        Raises:
            InvalidInputError: The status or category does not exist, or a duration cannot be read.
        """
        if status != "any" and status not in set(DeadLetterStatus):
            hint = f"one of: {', '.join(DeadLetterStatus)}, any"
            raise InvalidInputError(f"{status!r} is no status of a dead letter", hint=hint)
        if self.category is not None and self.category not in set(Category):
            hint = f"one of: {', '.join(Category)}"
            raise InvalidInputError(f"{self.category!r} is no failure category", hint=hint)
        return DeadLetterFilter(
            **fields_of(self, "category code tenant_id=tenant provider kind queue"),
            status=None if status == "any" else status,
            older_than_s=None if self.older_than is None else parse_duration(self.older_than, "--older-than"),
        )


async def read_entry(runtime: Runtime, entry_id: str) -> DeadLetter:
    """Return the entry of this id.

    Raises:
        NotFoundError: There is none.
    """
    entry = await runtime.dead_letters.get(parse_id(entry_id, "dead letter"))
    if entry is None:
        hint = "see `fairlead dlq list --status any`"
        raise NotFoundError(f"there is no dead letter {entry_id}", hint=hint)
    return entry


def entry_record(entry: DeadLetter) -> Record:
    """Return an entry as a JSON record."""
    return fields_of(
        entry,
        "dead_letter_id job_id tenant=tenant_id provider connection_id kind queue category code reason status"
        " resolution resolved_by resolution_reason resolved_at replays replay_job_id reauth_started_at"
        " last_notice_at token_expires_at first_at last_at age_s args details history",
    )
