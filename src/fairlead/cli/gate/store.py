"""``fairlead gate memory``, ``orphans`` and ``doctor``: its store, and what is left in it (G9, G12)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.kit.bulk_actions import record_act
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.findings import show
from fairlead.cli.kit.invocation import DryRun, Invocation, Yes
from fairlead.cli.kit.output import Record
from fairlead.cli.kit.times import parse_duration
from fairlead.errors import DependencyUnavailableError

if TYPE_CHECKING:
    from fairlead.app import Fairlead
    from fairlead.assembly.doctor.check import Check
    from fairlead.engine.limits.orphaned_leases import Orphan, OrphanReport, OrphanSearch
    from fairlead.engine.ports import KeySurvey

KINDS = ("kind", "keys", "size_bytes", "share", "no_ttl")
ORPHANS = ("tenant", "why", "process", "host", "job", "ends_in_s", "result")


def no_redis() -> DependencyUnavailableError:
    """There is no Redis to look at."""
    return DependencyUnavailableError(
        "no Redis is set, so each process counts by itself", hint="set REDIS_URL to see one count"
    )


def memory(
    call: Invocation,
    most: Annotated[
        int, typer.Option("--most", min=100, max=100_000_000, help="Keys of the server to pass at most.")
    ] = 100_000,
    sample: Annotated[
        int, typer.Option("--sample", min=1, max=100_000, help="Keys of each kind that are weighed.")
    ] = 200,
) -> Exit | None:
    """Show what the gate keeps in Redis, by kind: keys, memory, and keys that would stay for ever.

    The server is passed page by page; of keys of others only the name is seen. Sizes are computed from a
    sample. Keys of no kind of ours under our prefix are shown as unknown.
    """

    async def work(fairlead: Fairlead) -> KeySurvey:
        keys = fairlead.runtime.gate.keys
        if keys is None:
            raise no_redis()
        return await keys.survey(max_keys=most, sample=sample)

    survey = call.with_fairlead(work)
    kinds = _kinds(survey)
    totals = {
        "keys": survey.keys,
        "size_bytes": survey.size_bytes,
        "server_keys": survey.server_keys,
        "looked_at": survey.keys_scanned,
        "complete": survey.complete,
        "used_bytes": survey.used_bytes,
        "max_bytes": survey.max_bytes or None,
        "used_share": round(survey.used_bytes / survey.max_bytes, 4) if survey.max_bytes else None,
    }
    if call.manner.as_json:
        call.out.record({**totals, "kinds": kinds, "no_ttl": list(survey.no_ttl)})
        return None
    call.out.rows(kinds, KINDS, none="the gate keeps nothing yet")
    call.out.heading("redis")
    call.out.record(totals)
    if not survey.complete:
        call.out.warn(f"only {survey.keys_scanned} of {survey.server_keys} keys were looked at: raise --most")
    return None


def _kinds(survey: KeySurvey) -> list[Record]:
    whole = survey.size_bytes
    return [
        {
            "kind": use.kind,
            "keys": use.keys,
            "size_bytes": use.size_bytes,
            "share": None if not whole or use.size_bytes is None else f"{use.size_bytes / whole:.0%}",
            "no_ttl": use.no_ttl,
        }
        for use in survey.kinds
    ]


def orphans(
    call: Invocation,
    recover: Annotated[bool, typer.Option("--recover", help="Give their slots back.")] = False,
    watch: Annotated[
        str,
        typer.Option(
            "--watch", metavar="TIME", help="With --recover: spare what is renewed within this time."
        ),
    ] = "14s",
    dry_run: DryRun = False,
    yes: Yes = False,
) -> Exit | None:
    """List slots whose holder is gone, or whose lease is over while nobody asked for them since.

    They come back by themselves when their lease ends; --recover gives them back now. A holder that lives
    renews a lease of 30 s within 14 s. Slots with longer leases (locks of bulk work) are renewed less often:
    watch those for a third of their lease, and be sure that their process is gone.
    """
    watch_s = parse_duration(watch, "--watch")

    async def work(fairlead: Fairlead) -> tuple[OrphanReport, dict[str, str]]:
        search = fairlead.runtime.gate.orphans
        if search is None:
            raise no_redis()
        if not recover:
            return await search.find(), {}
        with call.out.progress("looking twice, so that nobody who lives loses a slot"):
            found = await search.confirm(watch_s)
        if dry_run or not found.orphans:
            return found, {_name(orphan): "would be given back" for orphan in found.orphans}
        call.confirm(f"Give back {len(found.orphans)} slot(s)?", yes=yes)
        return found, await _given_back(call, fairlead, search, found)

    found, results = call.with_fairlead(work)
    rows = [{**as_record(orphan), "result": results.get(_name(orphan))} for orphan in found.orphans]
    columns = ORPHANS if recover else ORPHANS[:-1]
    call.out.rows(rows, columns, none="no orphans")
    if not found.complete:
        call.out.warn("not every key of the server was looked at: there may be more")
    return None


async def _given_back(
    call: Invocation, fairlead: Fairlead, search: OrphanSearch, found: OrphanReport
) -> dict[str, str]:
    given = {_name(orphan) for orphan in await search.release(found.orphans)}
    for orphan in found.orphans:
        if _name(orphan) in given:
            lease = orphan.lease
            told = {"lease": f"{lease.lease_id:016x}", "process": lease.process, "why": orphan.why}
            await record_act(
                fairlead.runtime,
                "gate.orphan_recovered",
                call.actor,
                told,
                tenant=lease.tenant or None,
            )
    return {
        _name(orphan): "given back" if _name(orphan) in given else "renewed or gone meanwhile"
        for orphan in found.orphans
    }


def _name(orphan: Orphan) -> str:
    return f"{orphan.lease.key} {orphan.lease.holder}"


def as_record(orphan: Orphan) -> Record:
    """An orphan as JSON has it."""
    lease, session = orphan.lease, orphan.session
    return {
        "tenant": lease.tenant,
        "why": orphan.why,
        "process": lease.process,
        "host": session.identity.host if session else None,
        "job": lease.job or None,
        "ends_in_s": round(lease.ends_in_s, 3),
        "lease": f"{lease.lease_id:016x}",
        "key": lease.key,
    }


def doctor(call: Invocation) -> Exit | None:
    """Check the Redis of the gate as the gate uses it, and leave nothing changed.

    Ends with 4 where the gate cannot use it; a warning alone does not.
    """
    return show(call, asyncio.run(_checks(call)))


async def _checks(call: Invocation) -> list[Check]:
    from fairlead.assembly.doctor.gate_checks import gate_checkup

    return [check async for check in gate_checkup(call.config().settings)]
