"""``fairlead dlq redrive``, ``resolve``, ``abandon`` and ``prune``: changes to dead letters. Spec: Q9, Q11."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.dlq.options import OPEN, DeadLetterFilterOptions, read_entry
from fairlead.cli.kit.changes import (
    AuditEntry,
    Change,
    ChangeOptions,
    ConfirmOptions,
    Done,
    Plan,
    Unchanged,
    change_each,
    change_one,
)
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import Invocation, Limit
from fairlead.cli.kit.times import parse_duration
from fairlead.errors import InvalidInputError
from fairlead.policy.jobs.dead_letter import check_closing
from fairlead.policy.jobs.states import DeadLetterStatus, Resolution

if TYPE_CHECKING:
    from fairlead.assembly.runtime import Runtime
    from fairlead.engine.ports import DeadLetter

EntryIds = Annotated[
    list[str] | None, typer.Argument(metavar="[ID]...", help="Ids of entries.", show_default=False)
]
Reason = Annotated[str, typer.Option("--reason", help="Your reason; kept with the entry.")]

CHANGED = "unchanged: it was closed or failed again meanwhile"
REPLAY = {
    "closed": "",
    "cancelled": ", its replay is cancelled",
    "running": ", its replay is asked to stop and runs until then",
}
"""The state of the replay when its entry is closed."""
PRUNE_BATCH = 1_000
_NO_BOUND = 1 << 40
"""More than any queue holds: only the age counts."""


def redrive(
    call: Invocation,
    *,
    filter_: DeadLetterFilterOptions,
    entry_ids: EntryIds = None,
    limit: Limit = 1000,
    spread: Annotated[
        str | None,
        typer.Option("--spread", metavar="TIME", help="Spread the jobs over this time: 90s, 10m, 1h."),
    ] = None,
    options: ChangeOptions,
) -> Exit | None:
    """Retry the work of these entries, or of all open ones that match the filter, oldest first.

    At most --limit at a time, without entries with work under way. An entry stays open until its
    new job succeeds; a failure reopens it. Each retains its history and counts its replays.
    """
    selection = _Selection(entry_ids, filter_, limit, at_rest=True)
    spread_s = 0.0 if spread is None else parse_duration(spread, "--spread")

    async def act(runtime: Runtime, entry: DeadLetter) -> Done | Unchanged:
        from fairlead.engine.jobs.dead_letter import replay_job

        delay_s = spread_s * selection.position(entry)
        job = replay_job(entry, runtime.ids, delay_s=delay_s)
        store = runtime.dead_letters
        if not await store.redrive(entry.dead_letter_id, job, last_at=entry.last_at, by=call.actor):
            return Unchanged("under way already")
        return Done(details={"job_id": str(job.job_id), "replays": str(entry.replays + 1)})

    return _change_entries(call, selection, act, "redrive", "redriven", options)


def resolve(
    call: Invocation,
    *,
    reason: Reason,
    filter_: DeadLetterFilterOptions,
    entry_ids: EntryIds = None,
    resolution: Annotated[
        str,
        typer.Option(
            "--resolution", help="reauthorize, config_fix, manual_refresh or redrive: how it was repaired."
        ),
    ] = "config_fix",
    limit: Limit = 1000,
    options: ConfirmOptions,
) -> Exit | None:
    """Close entries after you have repaired the cause: these, or all open ones that match, oldest first."""
    if resolution not in set(Resolution):
        raise InvalidInputError(f"{resolution!r} is no resolution", hint=f"one of: {', '.join(Resolution)}")
    closing = _Closing(call, DeadLetterStatus.MANUAL_RESOLVED, Resolution(resolution), reason)
    selection = _Selection(entry_ids, filter_, limit)
    return _change_entries(call, selection, closing.close, "resolve", closing.status.value, options)


def abandon(
    call: Invocation,
    *,
    reason: Reason,
    filter_: DeadLetterFilterOptions,
    entry_ids: EntryIds = None,
    limit: Limit = 1000,
    options: ConfirmOptions,
) -> Exit | None:
    """Give up these entries, or all open ones that match the filter: their work is not retried.

    A waiting replay of theirs is cancelled, and a running one is asked to stop.
    """
    closing = _Closing(call, DeadLetterStatus.ABANDONED, Resolution.ABANDONED, reason)
    selection = _Selection(entry_ids, filter_, limit)
    return _change_entries(call, selection, closing.close, "abandon", closing.status.value, options)


def prune(
    call: Invocation,
    *,
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="TIME", help="Closed so long ago: 90s, 1h, 30d.")
    ] = "30d",
    options: ChangeOptions,
) -> Exit | None:
    """Delete entries that were closed long ago; open ones are never deleted.

    The clean-up does so too, after the retention of the settings.
    """
    older_than_s = parse_duration(older_than, "--older-than")

    async def find(runtime: Runtime) -> Plan:
        store = runtime.dead_letters
        entries = await store.closed_count(older_than_s)
        if not entries:
            return Unchanged("nothing to delete", {"entries": 0})

        async def act() -> Done:
            deleted = 0
            while batch := await store.prune(older_than_s, _NO_BOUND, PRUNE_BATCH):
                deleted += batch
            return Done(fields={"entries": deleted}, details={"entries": deleted})

        audit = AuditEntry("dead_letters.pruned", {"older_than_s": older_than_s})
        question = f"Delete {entries} closed dead letter(s)?"
        return Change("deleted", act, {"entries": entries}, question, audit)

    return change_one(call, find, options)


# ---- which entries, and what is done to each -----------------------------------------------------


@dataclass(slots=True)
class _Selection:
    """Entries named by their ids, or the open ones that match the filter; exactly one of the two.

    Attributes:
        at_rest: Choose no entry with a replay under way.
        last_at: When each chosen entry was last discarded, if known, by its id, in order.
    """

    entry_ids: list[str] | None
    filter_: DeadLetterFilterOptions
    limit: int
    at_rest: bool = False
    last_at: Mapping[str, datetime | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if bool(self.entry_ids) == (self.filter_ != DeadLetterFilterOptions()):
            hint = "a filter is --category, --code, --tenant, --provider, --kind, --queue or --older-than"
            raise InvalidInputError("name entries by their ids, or choose them by a filter", hint=hint)

    async def choose(self, runtime: Runtime) -> list[str]:
        """Return the ids of the chosen entries, at most *limit*."""
        if self.entry_ids:
            self.last_at = dict.fromkeys(self.entry_ids)
        else:
            entries = await runtime.dead_letters.find(
                self.filter_.filter(), limit=self.limit, oldest_first=True, at_rest=self.at_rest
            )
            self.last_at = {str(entry.dead_letter_id): entry.last_at for entry in entries}
        return list(self.last_at)

    def position(self, entry: DeadLetter) -> float:
        """Return where the entry stands among all, from 0 to below 1."""
        return list(self.last_at).index(str(entry.dead_letter_id)) / len(self.last_at)

    def has_changed(self, entry_id: str, entry: DeadLetter) -> bool:
        """Return whether the entry was discarded again since it was chosen."""
        return self.last_at[entry_id] not in (None, entry.last_at)


@dataclass(frozen=True, slots=True)
class _Closing:
    """How entries are closed, and why."""

    call: Invocation
    status: DeadLetterStatus
    resolution: Resolution
    reason: str

    def __post_init__(self) -> None:
        check_closing(self.status, self.resolution, self.call.actor, self.reason)

    async def close(self, runtime: Runtime, entry: DeadLetter) -> Done | Unchanged:
        """Close *entry*, unless it has changed since it was read."""
        replay = await runtime.dead_letters.resolve(
            entry.dead_letter_id,
            status=self.status.value,
            resolution=self.resolution.value,
            by=self.call.actor,
            reason=self.reason,
            tenant_id=entry.tenant_id,
            last_at=entry.last_at,
        )
        if replay is None:
            return Unchanged(CHANGED)
        details = {"resolution": self.resolution.value, "reason": self.reason}
        return Done(f"{self.status.value}{REPLAY[replay]}", details=details)


def _change_entries(
    call: Invocation,
    selection: _Selection,
    act: Callable[[Runtime, DeadLetter], Awaitable[Done | Unchanged]],
    verb: str,
    result: str,
    options: ConfirmOptions,
) -> Exit:
    """Change each chosen entry. *verb* is for the question, *result* for the row and the audit record."""

    async def find(runtime: Runtime, entry_id: str) -> Plan:
        entry = await read_entry(runtime, entry_id)
        if entry.status != OPEN:
            raise InvalidInputError(f"the entry is {entry.status}", tenant=entry.tenant_id, hint="leave it")
        if selection.has_changed(entry_id, entry):
            return Unchanged(CHANGED)
        audit = AuditEntry(
            f"dead_letter.{result}",
            {"dead_letter_id": str(entry.dead_letter_id)},
            entry.tenant_id,
            entry.provider,
            entry.connection_id,
        )
        return Change(result, lambda: act(runtime, entry), audit=audit, planned=f"would {verb}")

    return change_each(
        call,
        selection.choose,
        find,
        options,
        noun="dead_letter_id",
        question=f"{verb.capitalize()} {{count}} dead letter(s)?",
        none="no such dead letters",
    )
