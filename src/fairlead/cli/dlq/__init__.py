"""``fairlead dlq``: list, retry and close dead letters. Spec: Q9, Q10, Q11, Q16."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from fairlead.cli.dlq.actions import abandon, prune, redrive, resolve
from fairlead.cli.dlq.export import export
from fairlead.cli.dlq.options import OPEN, DeadLetterFilterOptions, Status, entry_record, read_entry
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import Invocation, Limit, command, group
from fairlead.cli.kit.output import fields_of

app = group("Dead letters: discarded jobs that need you.")

COLUMNS = ("dead_letter_id", "tenant", "provider", "kind", "category", "code", "status", "age_s", "reason")


class By(StrEnum):
    """The fields to count by."""

    CATEGORY = "category"
    CODE = "code"
    TENANT = "tenant"
    PROVIDER = "provider"
    KIND = "kind"
    QUEUE = "queue"
    STATUS = "status"


@command(app, "list")
def list_entries(
    call: Invocation,
    filter_: DeadLetterFilterOptions,
    status: Status = OPEN,
    limit: Limit = 100,
) -> Exit | None:
    """List entries, the newest first; by default those that are open."""
    filter_by = filter_.filter(status)
    entries = call.with_runtime(lambda runtime: runtime.dead_letters.find(filter_by, limit=limit))
    call.out.rows(map(entry_record, entries), COLUMNS, none="no such dead letters")
    return None


@command(app, "show")
def show(
    call: Invocation, entry_id: Annotated[str, typer.Argument(metavar="ID", help="Id of an entry.")]
) -> Exit | None:
    """Show one entry: why its job was discarded, attempt by attempt, and the job's arguments."""
    call.out.record(entry_record(call.with_runtime(lambda runtime: read_entry(runtime, entry_id))))
    return None


@command(app, "stats")
def stats(
    call: Invocation,
    filter_: DeadLetterFilterOptions,
    by: Annotated[By, typer.Option("--by", help="What to count by.")] = By.CATEGORY,
    top: Annotated[
        int, typer.Option("--top", min=1, max=1000, help="How many groups, the largest first.")
    ] = 10,
    status: Status = OPEN,
) -> Exit | None:
    """Count entries by what they have in common, the most frequent first."""
    filter_by = filter_.filter(status)
    column = "tenant_id" if by is By.TENANT else by.value
    groups = call.with_runtime(lambda runtime: runtime.dead_letters.group(filter_by, column, top))
    rows = [fields_of(group, f"{by.value}=value entries oldest_age_s") for group in groups]
    call.out.rows(rows, (by.value, "entries", "oldest_age_s"), none="no such dead letters")
    return None


command(app, "redrive")(redrive)
command(app, "resolve")(resolve)
command(app, "abandon")(abandon)
command(app, "export")(export)
command(app, "prune")(prune)
