"""``fairlead dlq``: dead letters, what they died of, and what becomes of them (Q9-Q11, Q16)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.acts import Tally, on_each, parsed_id, record_act
from fairlead.cli.exits import Exit
from fairlead.cli.invocation import DryRun, Invocation, Limit, Yes, command, group
from fairlead.cli.output import Record
from fairlead.errors import InputInvalid, NotFound

if TYPE_CHECKING:
    from fairlead.app import Fairlead
    from fairlead.engine.ports import DeadLetter
    from fairlead.policy.states import DeadLetterStatus, Resolution
    from fairlead.runtime import Runtime

app = group("Dead letters: what needs a person.")

COLUMNS = ("dead_letter_id", "tenant", "provider", "kind", "category", "code", "status", "age_s", "reason")
OPEN = "pending_review"
MOST_COUNTED = 100_000

Status = Annotated[
    str,
    typer.Option("--status", help="pending_review, auto_resolved, manual_resolved, abandoned, or any."),
]
Category = Annotated[str | None, typer.Option("--category", help="Only this failure category.")]
Tenant = Annotated[str | None, typer.Option("--tenant", "-t", help="Only this tenant's.")]
Kind = Annotated[str | None, typer.Option("--kind", help="Only jobs of this kind.")]
Ids = Annotated[
    list[str] | None, typer.Argument(metavar="[ID]...", help="Ids of entries.", show_default=False)
]
Why = Annotated[str, typer.Option("--why", help="Why; kept with the entry.")]


class By(StrEnum):
    """What to count by."""

    CATEGORY = "category"
    CODE = "code"
    TENANT = "tenant"
    PROVIDER = "provider"
    KIND = "kind"
    STATUS = "status"


@command(app, "list")
def list_entries(
    call: Invocation,
    status: Status = OPEN,
    category: Category = None,
    tenant: Tenant = None,
    kind: Kind = None,
    limit: Limit = 100,
) -> Exit | None:
    """List entries, the newest first; those that are open if nothing else is said."""
    found = call.with_fairlead(lambda fairlead: _search(fairlead, status, category, tenant, kind, limit))
    call.out.rows(map(as_record, found), COLUMNS, none="no such dead letters")
    return None


@command(app, "show")
def show(
    call: Invocation, entry_id: Annotated[str, typer.Argument(metavar="ID", help="Id of an entry.")]
) -> Exit | None:
    """Show one entry: why it died, attempt by attempt, and what it was to do."""
    entry = call.with_fairlead(lambda fairlead: _entry(fairlead.runtime, entry_id))
    call.out.record(as_record(entry))
    return None


@command(app, "stats")
def stats(
    call: Invocation,
    by: Annotated[By, typer.Option("--by", help="What to count by.")] = By.CATEGORY,
    top: Annotated[int, typer.Option("--top", min=1, max=1000, help="The largest so many.")] = 10,
    status: Status = OPEN,
) -> Exit | None:
    """Count entries by what they have in common, the most frequent first."""
    found = call.with_fairlead(lambda fairlead: _search(fairlead, status, None, None, None, MOST_COUNTED))
    counts = Counter(str(as_record(entry)[by.value]) for entry in found)
    oldest: dict[str, float] = {}
    for entry in found:
        word = str(as_record(entry)[by.value])
        oldest[word] = max(oldest.get(word, 0.0), entry.age_s)
    rows = [
        {by.value: word, "entries": count, "oldest_age_s": oldest[word]}
        for word, count in sorted(counts.items(), key=lambda each: (-each[1], each[0]))[:top]
    ]
    call.out.rows(rows, (by.value, "entries", "oldest_age_s"), none="no such dead letters")
    return None


@command(app, "redrive")
def redrive(
    call: Invocation,
    entry_ids: Ids = None,
    category: Category = None,
    tenant: Tenant = None,
    kind: Kind = None,
    limit: Limit = 100,
    spread: Annotated[
        float, typer.Option("--spread", min=0, max=86_400, help="Seconds over which the jobs are spread.")
    ] = 0.0,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> Exit | None:
    """Try the work again: these entries, or all open ones that fit the filter, at most --limit.

    An entry stays open until its new job succeeds; a failure reopens it.
    """

    async def act(runtime: Runtime, entry: DeadLetter, place: float) -> str:
        from fairlead.engine.dead_letter import replay_of

        job = replay_of(entry, runtime.ids, delay_s=spread * place)
        if not await runtime.dead_letters.redrive(entry.dead_letter_id, job):
            return "under way already"
        await _record(call, runtime, "dead_letter.redriven", entry, job_id=str(job.job_id))
        return "redriven"

    choose = _chooser(entry_ids, category, tenant, kind, limit)
    return _on_entries(call, choose, act, verb="redrive", dry_run=dry_run, yes=yes)


@command(app, "resolve")
def resolve(
    call: Invocation,
    why: Why,
    entry_ids: Ids = None,
    resolution: Annotated[
        str,
        typer.Option(
            "--resolution", help="reauthorize, config_fix, manual_refresh or redrive: what healed it."
        ),
    ] = "config_fix",
    category: Category = None,
    tenant: Tenant = None,
    kind: Kind = None,
    limit: Limit = 100,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> Exit | None:
    """Close entries whose cause a person has mended."""
    from fairlead.policy.states import DeadLetterStatus

    status = DeadLetterStatus.MANUAL_RESOLVED
    act = _closing(call, status, _resolution(resolution), why)
    choose = _chooser(entry_ids, category, tenant, kind, limit)
    return _on_entries(call, choose, act, verb="resolve", dry_run=dry_run, yes=yes)


@command(app, "abandon")
def abandon(
    call: Invocation,
    why: Why,
    entry_ids: Ids = None,
    category: Category = None,
    tenant: Tenant = None,
    kind: Kind = None,
    limit: Limit = 100,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> Exit | None:
    """Give entries up: nobody tries their work again."""
    from fairlead.policy.states import DeadLetterStatus, Resolution

    act = _closing(call, DeadLetterStatus.ABANDONED, Resolution.ABANDONED, why)
    choose = _chooser(entry_ids, category, tenant, kind, limit)
    return _on_entries(call, choose, act, verb="abandon", dry_run=dry_run, yes=yes)


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


# ---- which entries, and what is done to each -----------------------------------------------------

Chooser = Callable[["Runtime"], Awaitable[Sequence[str]]]
Act = Callable[["Runtime", "DeadLetter", float], Awaitable[str]]


def _chooser(
    entry_ids: list[str] | None, category: str | None, tenant: str | None, kind: str | None, limit: int
) -> Chooser:
    """The named entries, or the open ones that fit the filter: one of the two must be given."""
    filtered = any(each is not None for each in (category, tenant, kind))
    if bool(entry_ids) == filtered:
        raise InputInvalid(
            "name entries by their ids, or choose them by a filter", hint="--category, --tenant, --kind"
        )

    async def choose(runtime: Runtime) -> Sequence[str]:
        if entry_ids:
            return entry_ids
        found = await runtime.dead_letters.search(
            status=OPEN, category=category, tenant_id=tenant, kind=kind, limit=limit
        )
        return [str(entry.dead_letter_id) for entry in found]

    return choose


def _closing(call: Invocation, status: DeadLetterStatus, resolution: Resolution, why: str) -> Act:
    from fairlead.policy.dead_letter import check_closing

    check_closing(status, resolution, call.actor, why)

    async def act(runtime: Runtime, entry: DeadLetter, place: float) -> str:
        closed = await runtime.dead_letters.resolve(
            entry.dead_letter_id, status=status.value, resolution=resolution.value, by=call.actor, why=why
        )
        if not closed:
            return "closed meanwhile"
        await _record(
            call, runtime, f"dead_letter.{status.value}", entry, resolution=resolution.value, why=why
        )
        return status.value

    return act


def _on_entries(call: Invocation, choose: Chooser, act: Act, *, verb: str, dry_run: bool, yes: bool) -> Exit:
    """Do *act* to each chosen entry, spread evenly from 0 to 1; a closed one is an error of its own."""

    async def work(fairlead: Fairlead) -> Tally:
        runtime = fairlead.runtime
        chosen = list(await choose(runtime))
        if chosen and not dry_run:
            call.confirm(f"{verb.capitalize()} {len(chosen)} dead letter(s)?", yes=yes)
        places = {entry_id: at / max(1, len(chosen)) for at, entry_id in enumerate(chosen)}

        async def one(entry_id: str) -> str:
            entry = await _entry(runtime, entry_id)
            if entry.status != OPEN:
                raise InputInvalid(f"the entry is {entry.status}", tenant=entry.tenant_id, hint="leave it")
            return f"would {verb}" if dry_run else await act(runtime, entry, places[entry_id])

        return await on_each(chosen, lambda entry_id: {"dead_letter_id": entry_id}, one)

    tally = call.with_fairlead(work)
    call.out.rows(tally.rows, ("dead_letter_id", "result", "error"), none="no such dead letters")
    return tally.exit


async def _search(
    fairlead: Fairlead, status: str, category: str | None, tenant: str | None, kind: str | None, limit: int
) -> list[DeadLetter]:
    from fairlead.policy.category import Category as Known
    from fairlead.policy.states import DeadLetterStatus

    if status != "any" and status not in set(DeadLetterStatus):
        hint = f"one of: {', '.join(DeadLetterStatus)}, any"
        raise InputInvalid(f"{status!r} is no status of a dead letter", hint=hint)
    if category is not None and category not in set(Known):
        raise InputInvalid(f"{category!r} is no failure category", hint=f"one of: {', '.join(Known)}")
    return await fairlead.runtime.dead_letters.search(
        status=None if status == "any" else status,
        category=category,
        tenant_id=tenant,
        kind=kind,
        limit=limit,
    )


async def _entry(runtime: Runtime, entry_id: str) -> DeadLetter:
    entry = await runtime.dead_letters.get(parsed_id(entry_id, "dead letter"))
    if entry is None:
        raise NotFound(f"there is no dead letter {entry_id}", hint="see `fairlead dlq list --status any`")
    return entry


def _resolution(word: str) -> Resolution:
    from fairlead.policy.states import Resolution

    if word not in set(Resolution):
        raise InputInvalid(f"{word!r} is no resolution", hint=f"one of: {', '.join(Resolution)}")
    return Resolution(word)


async def _record(call: Invocation, runtime: Runtime, act: str, entry: DeadLetter, **details: str) -> None:
    await record_act(
        runtime,
        act,
        call.actor,
        {"dead_letter_id": str(entry.dead_letter_id), **details},
        tenant=entry.tenant_id,
        provider=entry.provider,
        connection_id=entry.connection_id,
    )
