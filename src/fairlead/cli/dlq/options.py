"""Dead letters as the command line has them: which are meant, and how they are told (Q9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.kit.bulk_actions import parse_id, record_act
from fairlead.cli.kit.invocation import Invocation
from fairlead.cli.kit.output import Record
from fairlead.cli.kit.times import parse_duration
from fairlead.errors import InvalidInputError, NotFoundError

if TYPE_CHECKING:
    from fairlead.assembly.runtime import Runtime
    from fairlead.engine.ports import DeadLetter, DeadLetterFilter

OPEN = "pending_review"

Status = Annotated[
    str,
    typer.Option("--status", help="pending_review, auto_resolved, manual_resolved, abandoned, or any."),
]


@dataclass(frozen=True, slots=True)
class Fitting:
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
        typer.Option("--older-than", metavar="TIME", help="Only what first died so long ago: 90s, 1h, 7d."),
    ] = None

    @property
    def any_given(self) -> bool:
        """True where at least one of them is given."""
        return self != Fitting()

    def filter(self, status: str = OPEN) -> DeadLetterFilter:
        """What they choose, of *status*; InvalidInputError for a word that is none."""
        from fairlead.engine.ports import DeadLetterFilter
        from fairlead.policy.failures.category import Category
        from fairlead.policy.jobs.states import DeadLetterStatus

        if status != "any" and status not in set(DeadLetterStatus):
            hint = f"one of: {', '.join(DeadLetterStatus)}, any"
            raise InvalidInputError(f"{status!r} is no status of a dead letter", hint=hint)
        if self.category is not None and self.category not in set(Category):
            hint = f"one of: {', '.join(Category)}"
            raise InvalidInputError(f"{self.category!r} is no failure category", hint=hint)
        return DeadLetterFilter(
            status=None if status == "any" else status,
            category=self.category,
            code=self.code,
            tenant_id=self.tenant,
            provider=self.provider,
            kind=self.kind,
            queue=self.queue,
            older_than_s=None if self.older_than is None else parse_duration(self.older_than, "--older-than"),
        )


async def entry_of(runtime: Runtime, entry_id: str) -> DeadLetter:
    """The entry of this id; NotFoundError if there is none."""
    entry = await runtime.dead_letters.get(parse_id(entry_id, "dead letter"))
    if entry is None:
        raise NotFoundError(
            f"there is no dead letter {entry_id}", hint="see `fairlead dlq list --status any`"
        )
    return entry


def as_record(entry: DeadLetter) -> Record:
    """An entry as JSON has it."""
    return {
        "dead_letter_id": entry.dead_letter_id,
        "job_id": entry.job_id,
        "tenant": entry.tenant_id,
        "provider": entry.provider,
        "connection_id": entry.connection_id,
        "kind": entry.kind,
        "queue": entry.queue,
        "category": entry.category,
        "code": entry.code,
        "reason": entry.reason,
        "status": entry.status,
        "resolution": entry.resolution,
        "resolved_by": entry.resolved_by,
        "resolved_why": entry.resolved_why,
        "resolved_at": entry.resolved_at,
        "replays": entry.replays,
        "replay_job_id": entry.replay_job_id,
        "reauth_started_at": entry.reauth_started_at,
        "last_notice_at": entry.last_notice_at,
        "token_expires_at": entry.token_expires_at,
        "first_at": entry.first_at,
        "last_at": entry.last_at,
        "age_s": entry.age_s,
        "args": entry.args,
        "details": entry.details,
        "history": entry.history,
    }


async def record_entry(
    call: Invocation, runtime: Runtime, act: str, entry: DeadLetter, **details: str
) -> None:
    """What was done to *entry*, in the audit."""
    await record_act(
        runtime,
        act,
        call.actor,
        {"dead_letter_id": str(entry.dead_letter_id), **details},
        tenant=entry.tenant_id,
        provider=entry.provider,
        connection_id=entry.connection_id,
    )
