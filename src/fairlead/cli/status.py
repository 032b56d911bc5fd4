"""``fairlead status``: the state of an installation in numbers, and its problems."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fairlead.cli.gate.breakers import ALL_COLUMNS, open_breakers, problem_of
from fairlead.cli.jobs.pauses import COLUMNS as PAUSES
from fairlead.cli.jobs.pauses import as_record as pause_record
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import Invocation, command, single
from fairlead.cli.kit.output import Output, Record
from fairlead.cli.tenants.fairness import WAITING, turn_record
from fairlead.errors import LimiterUnavailableError

if TYPE_CHECKING:
    from fairlead.app import Fairlead
    from fairlead.assembly.runtime import Runtime
    from fairlead.engine.jobs.schedules import ScheduleView

app = single()

MOST_SHOWN = 20
OVERDUE_S = 60.0
"""A run that nobody took for this long means that no scheduler runs."""
WITHOUT_REDIS = "no Redis is set, so each process has breakers of its own"
"""Why breakers are not shown, where that is no fault."""


@command(app, "status")
def status(call: Invocation) -> Exit | None:
    """Show connections, jobs, dead letters, processes, breakers, schedules, pauses and waiting tenants.

    Ends with 4 if something is unhealthy: no process runs, a process cannot connect to anything because of a
    fault of its own, the breaker or a pause of a token endpoint stops refreshes, the breaker of a host stops
    calls of a connection, a schedule is overdue, or no worker takes the kind of a due job (no_handler). An
    outage of a provider is enough for that, so do not use this command as a probe that restarts processes.
    """
    overview = call.with_fairlead(_gather)
    problems = list(_problems(overview))
    if call.out.as_json:
        call.out.record({"healthy": not problems, "problems": problems, **overview})
    else:
        _show(call.out, overview)
        for problem in problems:
            call.out.warn(problem)
    return Exit.UNHEALTHY if problems else Exit.OK


async def _gather(fairlead: Fairlead) -> dict[str, Any]:
    from fairlead.engine.jobs.schedules import view
    from fairlead.policy.failures.category import Category
    from fairlead.policy.jobs.states import CredentialState, JobState

    runtime = fairlead.runtime
    return {
        "connections": _all_of(CredentialState, await runtime.credentials.counts()),
        "jobs": _all_of([*JobState, "scheduled", "retryable"], await runtime.jobs.counts()),
        "dead_letters": _all_of(Category, await runtime.dead_letters.counts()),
        "processes": await processes(runtime),
        "endpoints": [dict(endpoint) for endpoint in await runtime.endpoints.search()],
        **await _breakers(runtime),
        "schedules": [_schedule(view(state)) for state in await runtime.schedule_store.schedules()],
        "row_security": "on" if runtime.database.row_security_enabled else "off",
        "unhandled": [asdict(kind) for kind in await runtime.lanes.unhandled_kinds(MOST_SHOWN)],
        "pauses": [pause_record(pause) for pause in await runtime.lanes.pauses(MOST_SHOWN)],
        "tenants": [
            turn_record(turn)
            for turn in await runtime.lanes.turns(queue=None, tenant_id=None, limit=MOST_SHOWN)
            if turn.waiting or turn.running
        ],
    }


async def _breakers(runtime: Runtime) -> dict[str, Any]:
    """Return the breakers that stop calls, or why they cannot be read."""
    if runtime.gate.viewer is None:
        return {"breakers": [], "breakers_unseen": WITHOUT_REDIS}
    try:
        return {"breakers": await open_breakers(runtime), "breakers_unseen": None}
    except LimiterUnavailableError as error:
        return {"breakers": [], "breakers_unseen": error.message}


async def processes(runtime: Runtime) -> list[Record]:
    """Return the processes that are alive or late, without this one."""
    own_id = runtime.heartbeat.session_id
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
        if session.session_id != own_id and session.state in {"alive", "late"}
    ]


def _all_of(words: Iterable[str], counts: Mapping[str, int]) -> dict[str, int]:
    """*counts* with a 0 for each of *words* that is not among them: a script finds every key."""
    return {**{str(word): 0 for word in words}, **counts}


def _schedule(view: ScheduleView) -> Record:
    from fairlead.engine.jobs.schedules import stopped_because

    return {
        "schedule": view.state.schedule.name,
        "expression": view.state.schedule.expression,
        "last_run_at": view.state.last_run_at,
        "next_run_at": view.next_run_at,
        "overdue_s": view.overdue_s,
        "paused": view.state.paused,
        "stopped": stopped_because(view.state),
        "problem": view.problem,
    }


def with_trouble(processes: Sequence[Record]) -> list[Record]:
    """Return *processes* for a table: one that claims no jobs has the state ``unhealthy``."""
    return [{**process, "state": "unhealthy"} if process["trouble"] else process for process in processes]


def _process_problems(processes: Sequence[Record]) -> Iterator[str]:
    if not any(process["state"] == "alive" for process in processes):
        yield "no process runs: nothing is refreshed (hint: start `fairlead run`)"
    for process in processes:
        if process["trouble"]:
            named = f"{process['host']} {process['pid']}"
            yield f"process {named} claims no jobs: it cannot connect to anything ({process['trouble']})"


def _problems(overview: Mapping[str, Any]) -> Iterator[str]:
    yield from _process_problems(overview["processes"])
    for unhandled in overview["unhandled"]:
        yield (
            f"no_handler: no worker takes {unhandled['jobs']} due jobs of kind {unhandled['kind']} in queue"
            f" {unhandled['queue']} (hint: start one that declares the kind)"
        )
    for endpoint in overview["endpoints"]:
        if endpoint["state"] != "closed":
            way_out = (
                "`fairlead providers resume`" if endpoint["state"] == "paused" else "it tries again by itself"
            )
            yield (
                f"the token endpoint of {endpoint['provider']} for client {endpoint['client_id']} is "
                f"{endpoint['state']}: {endpoint['reason']} (hint: {way_out})"
            )
    if overview["breakers_unseen"] not in (None, WITHOUT_REDIS):
        yield f"breakers cannot be read: {overview['breakers_unseen']} (hint: `fairlead doctor`)"
    for breaker in overview["breakers"][:MOST_SHOWN]:
        yield problem_of(breaker)
    if len(overview["breakers"]) > MOST_SHOWN:
        more = len(overview["breakers"]) - MOST_SHOWN
        yield f"{more} more breakers stop calls (hint: `fairlead status --json`)"
    yield from _schedule_problems(overview)


def _schedule_problems(overview: Mapping[str, Any]) -> Iterator[str]:
    for schedule in overview["schedules"]:
        if schedule["overdue_s"] > OVERDUE_S:
            yield f"schedule {schedule['schedule']} was not kept (hint: `fairlead run --role scheduler`)"
        if schedule["stopped"]:
            problem = f"schedule {schedule['schedule']} is paused: {schedule['stopped']}"
            yield f"{problem} (hint: it resumes once one does, or `fairlead schedules remove` it)"
        if schedule["problem"]:
            yield f"schedule {schedule['schedule']} takes no runs: {schedule['problem']}"


def _show(out: Output, overview: Mapping[str, Any]) -> None:
    for title in ("connections", "jobs", "dead_letters"):
        out.heading(title)
        out.record(overview[title])
    columns = ("host", "pid", "state", "running_jobs", "heartbeat_age_s")
    _list(out, "processes", with_trouble(overview["processes"]), columns)
    endpoints = ("provider", "client_id", "state", "failures", "open_for_s", "reason")
    _list(out, "endpoints", overview["endpoints"], endpoints)
    _list(out, "breakers", overview["breakers"][:MOST_SHOWN], ALL_COLUMNS)
    _list(
        out,
        "schedules",
        overview["schedules"],
        ("schedule", "expression", "last_run_at", "next_run_at", "overdue_s"),
    )
    _list(out, "unhandled", overview["unhandled"], ("queue", "kind", "jobs"))
    _list(out, "pauses", overview["pauses"], PAUSES)
    _list(out, "tenants", overview["tenants"], WAITING)
    if overview["breakers_unseen"] == WITHOUT_REDIS:
        out.say(f"breakers are not shown: {WITHOUT_REDIS} (hint: set REDIS_URL to share them)")
    if overview["row_security"] == "off":
        out.say("row security is off: only the statements keep tenants apart (hint: `fairlead doctor`)")


def _list(out: Output, title: str, records: Sequence[Record], columns: Sequence[str]) -> None:
    if records:
        out.heading(title)
        out.rows(records, columns)
