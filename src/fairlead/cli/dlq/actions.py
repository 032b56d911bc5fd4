"""``fairlead dlq redrive``, ``resolve`` and ``abandon``: what a person does about dead letters (Q9, Q11)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.dlq.options import OPEN, Fitting, entry_of, record_entry
from fairlead.cli.kit.bulk_actions import Tally, on_each
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import DryRun, Invocation, Limit, Yes
from fairlead.cli.kit.times import parse_duration
from fairlead.errors import InvalidInputError

if TYPE_CHECKING:
    from fairlead.app import Fairlead
    from fairlead.assembly.runtime import Runtime
    from fairlead.engine.ports import DeadLetter
    from fairlead.policy.jobs.states import DeadLetterStatus, Resolution

Ids = Annotated[
    list[str] | None, typer.Argument(metavar="[ID]...", help="Ids of entries.", show_default=False)
]
CHANGED = "unchanged: it was closed or failed again meanwhile"
REPLAY = {
    "closed": "",
    "cancelled": ", its replay is cancelled",
    "running": ", its replay is asked to stop and runs until then",
}
"""The state of the replay when its entry is closed."""

Why = Annotated[str, typer.Option("--reason", help="Why; kept with the entry.")]


def redrive(
    call: Invocation,
    fitting: Fitting,
    entry_ids: Ids = None,
    limit: Limit = 1000,
    spread: Annotated[
        str | None,
        typer.Option("--spread", metavar="TIME", help="Spread the jobs over this time: 90s, 10m, 1h."),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> Exit | None:
    """Retry the work of these entries, or of all open ones that match the filter, oldest first.

    At most --limit at a time, without entries whose work is already under way. An entry stays open until its
    new job succeeds; a failure reopens it. Each retains its history and counts its replays.
    """
    chosen = _Chosen(entry_ids, fitting, limit, at_rest=True)
    spread_s = 0.0 if spread is None else parse_duration(spread, "--spread")

    async def act(runtime: Runtime, entry: DeadLetter, place: float) -> str:
        from fairlead.engine.jobs.dead_letter import replay_of

        job = replay_of(entry, runtime.ids, delay_s=spread_s * place)
        redrive = runtime.dead_letters.redrive
        if not await redrive(entry.dead_letter_id, job, last_at=entry.last_at, by=call.actor):
            return "under way already"
        replays = str(entry.replays + 1)
        await record_entry(
            call, runtime, "dead_letter.redriven", entry, job_id=str(job.job_id), replays=replays
        )
        return "redriven"

    return _on_entries(call, chosen, act, verb="redrive", dry_run=dry_run, yes=yes)


def resolve(
    call: Invocation,
    why: Why,
    fitting: Fitting,
    entry_ids: Ids = None,
    resolution: Annotated[
        str,
        typer.Option(
            "--resolution", help="reauthorize, config_fix, manual_refresh or redrive: what healed it."
        ),
    ] = "config_fix",
    limit: Limit = 1000,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> Exit | None:
    """Close entries whose cause a person has mended: these, or all open ones that fit, the oldest first."""
    from fairlead.policy.jobs.states import DeadLetterStatus

    chosen = _Chosen(entry_ids, fitting, limit)
    act = _closing(call, DeadLetterStatus.MANUAL_RESOLVED, _resolution(resolution), why)
    return _on_entries(call, chosen, act, verb="resolve", dry_run=dry_run, yes=yes)


def abandon(
    call: Invocation,
    why: Why,
    fitting: Fitting,
    entry_ids: Ids = None,
    limit: Limit = 1000,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> Exit | None:
    """Give up these entries, or all open ones that match the filter: their work is not retried.

    A waiting replay of theirs is cancelled, and a running one is asked to stop.
    """
    from fairlead.policy.jobs.states import DeadLetterStatus, Resolution

    chosen = _Chosen(entry_ids, fitting, limit)
    act = _closing(call, DeadLetterStatus.ABANDONED, Resolution.ABANDONED, why)
    return _on_entries(call, chosen, act, verb="abandon", dry_run=dry_run, yes=yes)


# ---- which entries, and what is done to each -----------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The named entries, or the open ones that fit the filter: one of the two must be given."""

    entry_ids: list[str] | None
    fitting: Fitting
    limit: int
    at_rest: bool = False

    def __post_init__(self) -> None:
        if bool(self.entry_ids) == self.fitting.any_given:
            hint = "a filter is --category, --code, --tenant, --provider, --kind, --queue or --older-than"
            raise InvalidInputError("name entries by their ids, or choose them by a filter", hint=hint)

    async def find(self, runtime: Runtime) -> Mapping[str, datetime | None]:
        """Return the ids of the chosen entries, at most *limit*, each with the time it last died if known."""
        if self.entry_ids:
            return dict.fromkeys(self.entry_ids)
        chosen = self.fitting.filter()
        entries = await runtime.dead_letters.find(
            chosen, limit=self.limit, oldest_first=True, at_rest=self.at_rest
        )
        return {str(entry.dead_letter_id): entry.last_at for entry in entries}


Act = Callable[["Runtime", "DeadLetter", float], Awaitable[str]]


def _closing(call: Invocation, status: DeadLetterStatus, resolution: Resolution, why: str) -> Act:
    from fairlead.policy.jobs.dead_letter import check_closing

    check_closing(status, resolution, call.actor, why)

    async def act(runtime: Runtime, entry: DeadLetter, place: float) -> str:
        closed = await runtime.dead_letters.resolve(
            entry.dead_letter_id,
            status=status.value,
            resolution=resolution.value,
            by=call.actor,
            why=why,
            tenant_id=entry.tenant_id,
            last_at=entry.last_at,
        )
        if closed is None:
            return CHANGED
        details = {"resolution": resolution.value, "why": why}
        await record_entry(call, runtime, f"dead_letter.{status.value}", entry, **details)
        return f"{status.value}{REPLAY[closed]}"

    return act


def _on_entries(call: Invocation, chosen: _Chosen, act: Act, *, verb: str, dry_run: bool, yes: bool) -> Exit:
    """Do *act* to each chosen entry, spread evenly from 0 to 1; a closed one is an error of its own."""

    async def work(fairlead: Fairlead) -> Tally:
        runtime = fairlead.runtime
        last_died = await chosen.find(runtime)
        entry_ids = list(last_died)
        if entry_ids and not dry_run:
            call.confirm(f"{verb.capitalize()} {len(entry_ids)} dead letter(s)?", yes=yes)
        places = {entry_id: at / max(1, len(entry_ids)) for at, entry_id in enumerate(entry_ids)}

        async def one(entry_id: str) -> str:
            entry = await entry_of(runtime, entry_id)
            if entry.status != OPEN:
                raise InvalidInputError(
                    f"the entry is {entry.status}", tenant=entry.tenant_id, hint="leave it"
                )
            if last_died[entry_id] not in (None, entry.last_at):
                return CHANGED
            return f"would {verb}" if dry_run else await act(runtime, entry, places[entry_id])

        return await on_each(entry_ids, lambda entry_id: {"dead_letter_id": entry_id}, one)

    tally = call.with_fairlead(work)
    call.out.rows(tally.rows, ("dead_letter_id", "result", "error"), none="no such dead letters")
    return tally.exit


def _resolution(word: str) -> Resolution:
    from fairlead.policy.jobs.states import Resolution

    if word not in set(Resolution):
        raise InvalidInputError(f"{word!r} is no resolution", hint=f"one of: {', '.join(Resolution)}")
    return Resolution(word)
