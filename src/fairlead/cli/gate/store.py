"""``fairlead gate memory``, ``orphans`` and ``doctor``: the gate's store in Redis. Spec: G9, G12.

`orphans --recover` asks, acts and records by itself instead of by `cli.kit.changes.change_each`: all leases are watched
in one interval and released through one connection to each server, not one by one.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.kit.changes import AuditEntry, ChangeOptions, record_audit
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.findings import show
from fairlead.cli.kit.invocation import Invocation
from fairlead.cli.kit.output import Record, fields_of
from fairlead.cli.kit.times import parse_duration
from fairlead.errors import DependencyUnavailableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairlead.assembly.doctor.check import Check
    from fairlead.assembly.runtime import Runtime
    from fairlead.engine.limits.orphaned_leases import Orphan, OrphanReport
    from fairlead.engine.ports import KeySurvey

KINDS = ("kind", "keys", "size_bytes", "share", "no_ttl")
ORPHANS = ("tenant", "why", "process", "host", "job", "ends_in_s", "result")


def no_redis() -> DependencyUnavailableError:
    """Return the error of commands that need Redis."""
    return DependencyUnavailableError(
        "no Redis is set, so each process counts on its own", hint="set REDIS_URL to see one count"
    )


def memory(
    call: Invocation,
    most: Annotated[
        int, typer.Option("--most", min=100, max=100_000_000, help="How many keys of the server to scan.")
    ] = 100_000,
    sample: Annotated[
        int, typer.Option("--sample", min=1, max=100_000, help="How many keys of each kind to measure.")
    ] = 200,
) -> Exit | None:
    """Show what the gate keeps in Redis, by kind: keys, memory, and keys that never expire.

    The server is scanned page by page; of foreign keys only the name is read. Sizes are estimated from a
    sample. Unknown keys under our prefix are shown as unknown.
    """

    async def work(runtime: Runtime) -> KeySurvey:
        keys = runtime.gate.keys
        if keys is None:
            raise no_redis()
        return await keys.survey(max_keys=most, sample=sample)

    survey = call.with_runtime(work)
    totals = {
        **fields_of(survey, "keys size_bytes server_keys looked_at=keys_scanned complete used_bytes"),
        "max_bytes": survey.max_bytes or None,
        "used_share": round(survey.used_bytes / survey.max_bytes, 4) if survey.max_bytes else None,
    }
    if call.out.as_json:
        call.out.record({**totals, "kinds": _kinds(survey), "no_ttl": list(survey.no_ttl)})
        return None
    call.out.rows(_kinds(survey), KINDS, none="the gate keeps nothing yet")
    call.out.heading("redis")
    call.out.record(totals)
    if not survey.complete:
        call.out.warn(f"only {survey.keys_scanned} of {survey.server_keys} keys were scanned: raise --most")
    return None


def _kinds(survey: KeySurvey) -> list[Record]:
    total = survey.size_bytes
    return [
        {
            **fields_of(use, "kind keys size_bytes no_ttl"),
            "share": None if not total or use.size_bytes is None else f"{use.size_bytes / total:.0%}",
        }
        for use in survey.kinds
    ]


def orphans(
    call: Invocation,
    *,
    recover: Annotated[bool, typer.Option("--recover", help="Release their slots.")] = False,
    watch: Annotated[
        str,
        typer.Option(
            "--watch", metavar="TIME", help="With --recover: spare leases renewed within this time."
        ),
    ] = "14s",
    options: ChangeOptions,
) -> Exit | None:
    """List slots of ended processes, and slots with an ended lease that no call has asked for since.

    Such slots are released when their lease ends; --recover releases them now. A live process renews a lease
    of 30 s within 14 s. Slots with longer leases (locks of bulk work) are renewed less often: watch those for
    a third of their lease, and make sure that their process is gone.
    """
    watch_s = parse_duration(watch, "--watch")

    async def work(runtime: Runtime) -> tuple[OrphanReport, dict[str, str]]:
        search = runtime.gate.orphans
        if search is None:
            raise no_redis()
        if not recover:
            return await search.find(), {}
        with call.out.progress("looking twice, so that no live process loses a slot"):
            search_result = await search.confirm(watch_s)
        leases = search_result.orphans
        if options.dry_run or not leases:
            return search_result, {_name(orphan): "would be given back" for orphan in leases}
        call.confirm(f"Release {len(leases)} slot(s)?", yes=options.yes)
        return search_result, await _release(call, runtime, leases, options)

    search_result, results = call.with_runtime(work)
    rows = [
        {**orphan_record(orphan), "result": results.get(_name(orphan))} for orphan in search_result.orphans
    ]
    columns = ORPHANS if recover else ORPHANS[:-1]
    call.out.rows(rows, columns, none="no orphans")
    if not search_result.complete:
        call.out.warn("not every key of the server was scanned: there may be more orphans")
    return None


async def _release(
    call: Invocation, runtime: Runtime, orphans: Sequence[Orphan], options: ChangeOptions
) -> dict[str, str]:
    """Release the slots of *orphans* and return the result of each by its name."""
    assert runtime.gate.orphans is not None
    released = {_name(orphan) for orphan in await runtime.gate.orphans.release(orphans)}
    results = {}
    for orphan in orphans:
        name, lease = _name(orphan), orphan.lease
        results[name] = "given back" if name in released else "renewed or gone meanwhile"
        if name in released:
            details = {"lease": f"{lease.lease_id:016x}", "process": lease.process, "why": orphan.why}
            entry = AuditEntry("gate.orphan_recovered", details, tenant=lease.tenant or None)
            await record_audit(runtime, call.actor, entry, options)
    return results


def _name(orphan: Orphan) -> str:
    return f"{orphan.lease.key} {orphan.lease.holder}"


def orphan_record(orphan: Orphan) -> Record:
    """Return an orphan as a JSON record."""
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
    """Check the gate's Redis with the commands that the gate uses, and leave nothing changed.

    Ends with 4 where the gate cannot use it; a warning alone does not.
    """
    return show(call, asyncio.run(_checks(call)))


async def _checks(call: Invocation) -> list[Check]:
    from fairlead.assembly.doctor.gate_checks import gate_checkup

    return [check async for check in gate_checkup(call.config().settings)]
