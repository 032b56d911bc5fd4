"""``fairlead status``: how it stands, in numbers, and what is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fairlead.cli.breakers import ALL_COLUMNS, open_breakers, problem_of
from fairlead.cli.exits import Exit
from fairlead.cli.invocation import Invocation, command, single
from fairlead.cli.output import Output, Record
from fairlead.cli.pauses import COLUMNS as PAUSES
from fairlead.cli.pauses import as_record as pause_record
from fairlead.cli.turns import WAITING, turn_record
from fairlead.errors import GateUnavailable

if TYPE_CHECKING:
    from fairlead.app import Fairlead
    from fairlead.engine.schedules import ScheduleView
    from fairlead.runtime import Runtime

app = single()

MOST_SHOWN = 20
OVERDUE_S = 60.0
"""A tick that nobody took for this long means that no scheduler runs."""


@command(app, "status")
def status(call: Invocation) -> Exit | None:
    """Show connections, jobs, dead letters, processes, breakers, schedules, pauses and who waits longest.

    Ends with 4 where something is unhealthy: no process runs, one reaches nobody for a fault of its own, a
    token endpoint is closed off by its breaker or a pause, calls of a connection are stopped by the breaker
    of a host, a schedule was not kept, or no worker takes the kind of a job that is due (no_handler). A
    vendor's outage is enough for that: it is no probe, do not restart processes by it.
    """
    found = call.with_fairlead(_gather)
    problems = list(_problems(found))
    if call.out.as_json:
        call.out.record({"healthy": not problems, "problems": problems, **found})
    else:
        _show(call.out, found)
        for problem in problems:
            call.out.warn(problem)
    return Exit.UNHEALTHY if problems else Exit.OK


async def _gather(fairlead: Fairlead) -> dict[str, Any]:
    from fairlead.engine.schedules import view
    from fairlead.policy.category import Category
    from fairlead.policy.states import CredentialState, JobState

    runtime = fairlead.runtime
    return {
        "connections": _all_of(CredentialState, await runtime.credentials.counts()),
        "jobs": _all_of([*JobState, "scheduled", "retryable"], await runtime.jobs.counts()),
        "dead_letters": _all_of(Category, await runtime.dead_letters.counts()),
        "processes": await processes(runtime),
        "endpoints": [dict(endpoint) for endpoint in await runtime.endpoints.search()],
        **await _breakers(runtime),
        "schedules": [_schedule(view(state)) for state in await runtime.duties.schedules()],
        "row_security": "on" if runtime.database.walled else "off",
        "unhandled": [asdict(each) for each in await runtime.lanes.unhandled_kinds(MOST_SHOWN)],
        "pauses": [pause_record(pause) for pause in await runtime.lanes.pauses(MOST_SHOWN)],
        "tenants": [
            turn_record(turn)
            for turn in await runtime.lanes.turns(queue=None, tenant_id=None, limit=MOST_SHOWN)
            if turn.waiting or turn.running
        ],
    }


async def _breakers(runtime: Runtime) -> dict[str, Any]:
    """Return the breakers that stop calls, or why they cannot be seen."""
    try:
        return {"breakers": await open_breakers(runtime), "breakers_unseen": None}
    except GateUnavailable as error:
        return {"breakers": [], "breakers_unseen": error.what}


async def processes(runtime: Runtime) -> list[Record]:
    """Return those that live, or are late; without this one, which only looks."""
    own = runtime.heartbeat.session_id
    return [
        {
            "session_id": session.session_id,
            "host": session.identity.host,
            "pid": session.identity.pid,
            "state": session.state,
            "running_jobs": session.running_jobs,
            "heartbeat_age_s": round(session.heartbeat_age_s, 1),
            "started_at": session.started_at,
            "version": session.version,
            "app_version": session.app_version,
            "trouble": session.trouble,
        }
        for session in await runtime.sessions.search()
        if session.session_id != own and session.state in {"alive", "late"}
    ]


def _all_of(words: Iterable[str], counts: Mapping[str, int]) -> dict[str, int]:
    """*counts* with a 0 for each of *words* that is not among them: a script finds every key."""
    return {**{str(word): 0 for word in words}, **counts}


def _schedule(view: ScheduleView) -> Record:
    from fairlead.engine.schedules import stopped_because

    return {
        "schedule": view.state.schedule.name,
        "expression": view.state.schedule.expression,
        "last_tick": view.state.last_tick,
        "next_tick": view.next_tick,
        "overdue_s": view.overdue_s,
        "paused": view.state.paused,
        "stopped": stopped_because(view.state),
        "problem": view.problem,
    }


def _process_problems(processes: Sequence[Record]) -> Iterator[str]:
    if not any(process["state"] == "alive" for process in processes):
        yield "no process runs: nothing is refreshed (hint: start `fairlead run`)"
    for process in processes:
        if process["trouble"]:
            named = f"{process['host']} {process['pid']}"
            yield f"process {named} claims no jobs: it reaches nobody ({process['trouble']})"


def _problems(found: Mapping[str, Any]) -> Iterator[str]:
    yield from _process_problems(found["processes"])
    for each in found["unhandled"]:
        yield (
            f"no_handler: no worker takes {each['jobs']} due jobs of kind {each['kind']} in queue"
            f" {each['queue']} (hint: start one that declares the kind)"
        )
    for endpoint in found["endpoints"]:
        if endpoint["state"] != "closed":
            way_out = (
                "`fairlead providers resume`" if endpoint["state"] == "paused" else "it tries again by itself"
            )
            yield (
                f"the token endpoint of {endpoint['provider']} for client {endpoint['client_id']} is "
                f"{endpoint['state']}: {endpoint['reason']} (hint: {way_out})"
            )
    if found["breakers_unseen"]:
        yield f"breakers cannot be seen: {found['breakers_unseen']} (hint: `fairlead doctor`)"
    for breaker in found["breakers"][:MOST_SHOWN]:
        yield problem_of(breaker)
    if len(found["breakers"]) > MOST_SHOWN:
        more = len(found["breakers"]) - MOST_SHOWN
        yield f"{more} more breakers stop calls (hint: `fairlead status --json`)"
    yield from _schedule_problems(found)


def _schedule_problems(found: Mapping[str, Any]) -> Iterator[str]:
    for schedule in found["schedules"]:
        if schedule["overdue_s"] > OVERDUE_S:
            yield f"schedule {schedule['schedule']} was not kept (hint: `fairlead run --role scheduler`)"
        if schedule["stopped"]:
            told = f"schedule {schedule['schedule']} is paused: {schedule['stopped']}"
            yield f"{told} (hint: it goes on once one does, or `fairlead schedules remove` it)"
        if schedule["problem"]:
            yield f"schedule {schedule['schedule']} takes no ticks: {schedule['problem']}"


def _show(out: Output, found: Mapping[str, Any]) -> None:
    for title in ("connections", "jobs", "dead_letters"):
        out.heading(title)
        out.record(found[title])
    _list(out, "processes", found["processes"], ("host", "pid", "state", "running_jobs", "heartbeat_age_s"))
    endpoints = ("provider", "client_id", "state", "failures", "open_for_s", "reason")
    _list(out, "endpoints", found["endpoints"], endpoints)
    _list(out, "breakers", found["breakers"][:MOST_SHOWN], ALL_COLUMNS)
    _list(
        out,
        "schedules",
        found["schedules"],
        ("schedule", "expression", "last_tick", "next_tick", "overdue_s"),
    )
    _list(out, "unhandled", found["unhandled"], ("queue", "kind", "jobs"))
    _list(out, "pauses", found["pauses"], PAUSES)
    _list(out, "tenants", found["tenants"], WAITING)
    if found["row_security"] == "off":
        out.say("row security is off: only the statements keep tenants apart (hint: `fairlead doctor`)")


def _list(out: Output, title: str, records: Sequence[Record], columns: Sequence[str]) -> None:
    if records:
        out.heading(title)
        out.rows(records, columns)
