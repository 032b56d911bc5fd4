"""``fairlead dlq``: dead letters, what they died of, and what becomes of them (Q9-Q11, Q16)."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.dlq.actions import abandon, redrive, resolve
from fairlead.cli.dlq.export import export
from fairlead.cli.dlq.options import OPEN, Fitting, Status, as_record, entry_of
from fairlead.cli.kit.bulk_actions import record_act
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import DryRun, Invocation, Limit, Yes, command, group
from fairlead.cli.kit.output import Record
from fairlead.cli.kit.times import parse_duration

if TYPE_CHECKING:
    from fairlead.app import Fairlead

app = group("Dead letters: what needs a person.")

COLUMNS = ("dead_letter_id", "tenant", "provider", "kind", "category", "code", "status", "age_s", "reason")
PRUNE_BATCH = 1_000


class By(StrEnum):
    """What to count by."""

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
    fitting: Fitting,
    status: Status = OPEN,
    limit: Limit = 100,
) -> Exit | None:
    """List entries, the newest first; those that are open if nothing else is said."""
    chosen = fitting.filter(status)
    found = call.with_fairlead(lambda fairlead: fairlead.runtime.dead_letters.find(chosen, limit=limit))
    call.out.rows(map(as_record, found), COLUMNS, none="no such dead letters")
    return None


@command(app, "show")
def show(
    call: Invocation, entry_id: Annotated[str, typer.Argument(metavar="ID", help="Id of an entry.")]
) -> Exit | None:
    """Show one entry: why it died, attempt by attempt, and what it was to do."""
    entry = call.with_fairlead(lambda fairlead: entry_of(fairlead.runtime, entry_id))
    call.out.record(as_record(entry))
    return None


@command(app, "stats")
def stats(
    call: Invocation,
    fitting: Fitting,
    by: Annotated[By, typer.Option("--by", help="What to count by.")] = By.CATEGORY,
    top: Annotated[int, typer.Option("--top", min=1, max=1000, help="The largest so many.")] = 10,
    status: Status = OPEN,
) -> Exit | None:
    """Count entries by what they have in common, the most frequent first."""
    chosen = fitting.filter(status)
    column = "tenant_id" if by is By.TENANT else by.value

    async def work(fairlead: Fairlead) -> list[Record]:
        groups = await fairlead.runtime.dead_letters.group(chosen, column, top)
        return [
            {by.value: group.value, "entries": group.entries, "oldest_age_s": group.oldest_age_s}
            for group in groups
        ]

    columns = (by.value, "entries", "oldest_age_s")
    call.out.rows(call.with_fairlead(work), columns, none="no such dead letters")
    return None


command(app, "redrive")(redrive)
command(app, "resolve")(resolve)
command(app, "abandon")(abandon)
command(app, "export")(export)


@command(app, "prune")
def prune(
    call: Invocation,
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="TIME", help="Closed so long ago: 90s, 1h, 30d.")
    ] = "30d",
    dry_run: DryRun = False,
    yes: Yes = False,
) -> Exit | None:
    """Delete entries that were closed long ago; open ones never.

    The clean-up does so by itself, after the retention of the settings.
    """
    older_than_s = parse_duration(older_than, "--older-than")

    async def work(fairlead: Fairlead) -> Record:
        letters = fairlead.runtime.dead_letters
        entries = await letters.closed_count(older_than_s)
        if dry_run or not entries:
            return {"entries": entries, "result": "would be deleted" if entries else "nothing to delete"}
        call.confirm(f"Delete {entries} closed dead letter(s)?", yes=yes)
        deleted = 0
        while batch := await letters.prune(older_than_s, _NO_BOUND, PRUNE_BATCH):
            deleted += batch
        details = {"entries": deleted, "older_than_s": older_than_s}
        await record_act(fairlead.runtime, "dead_letters.pruned", call.actor, details)
        return {"entries": deleted, "result": "deleted"}

    call.out.record(call.with_fairlead(work))
    return None


_NO_BOUND = 1 << 40
"""More than any queue holds: only the age counts."""
