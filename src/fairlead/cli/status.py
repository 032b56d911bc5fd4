"""``fairlead status``: the state of an installation in numbers, and its problems."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fairlead.cli.gate.breakers import ALL_COLUMNS as BREAKERS
from fairlead.cli.gate.breakers import open_breakers, problem_of
from fairlead.cli.jobs.pauses import COLUMNS as PAUSES
from fairlead.cli.jobs.pauses import pause_record
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import Invocation, command, single
from fairlead.cli.kit.output import Output, Record, fields_of, record_of
from fairlead.cli.processes import processes, with_trouble
from fairlead.cli.tenants.fairness import WAITING as TENANTS
from fairlead.cli.tenants.fairness import turn_record
from fairlead.errors import LimiterUnavailableError
from fairlead.policy.failures.category import Category
from fairlead.policy.jobs.states import CredentialState, JobState

if TYPE_CHECKING:
    from fairlead.assembly.runtime import Runtime
    from fairlead.engine.jobs.schedules import ScheduleView

app = single()

MOST_SHOWN = 20
OVERDUE_S = 60.0
"""A run that is overdue for this long means that no scheduler works."""
WITHOUT_REDIS = "no Redis is set, so each process has breakers of its own"
"""Why breakers are not shown, where that is no fault."""


@command(app, "status")
def status(call: Invocation) -> Exit | None:
    """Show connections, jobs, dead letters, processes, breakers, schedules, pauses and waiting tenants.

    Ends with 4 if something is unhealthy: no process runs, a process cannot connect to anything because of a
    fault of its own, the journal of this host is full or not writable, its clock is wrong, a breaker or a
    pause of a token endpoint stops refreshes, the breaker of a host stops calls, a schedule is overdue, or no
    worker takes the kind of a due job (no_handler). An outage of a provider is enough for that, so do not use
    this command as a probe that restarts processes.
    """
    overview = call.with_runtime(_overview)
    problems = list(list_problems(overview))
    if call.out.as_json:
        call.out.record({"healthy": not problems, "problems": problems, **overview})
    else:
        _show(call.out, overview)
        for problem in problems:
            call.out.warn(problem)
    return Exit.UNHEALTHY if problems else Exit.OK


async def _overview(runtime: Runtime) -> dict[str, Any]:
    from fairlead.assembly.doctor.host_checks import inspect_host
    from fairlead.engine.jobs.schedules import schedule_view

    return {
        "connections": _all_of(CredentialState, await runtime.credentials.counts()),
        "jobs": _all_of([*JobState, "scheduled", "retryable"], await runtime.jobs.counts()),
        "dead_letters": _all_of(Category, await runtime.dead_letters.counts()),
        "processes": await processes(runtime),
        "host_checks": [
            record_of(check) for check in await inspect_host(runtime.settings, runtime.database_url)
        ],
        "endpoints": [dict(endpoint) for endpoint in await runtime.endpoints.search()],
        **await _breakers(runtime),
        "schedules": [_schedule(schedule_view(state)) for state in await runtime.schedule_store.schedules()],
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


def _all_of(words: Iterable[str], counts: Mapping[str, int]) -> dict[str, int]:
    """Return *counts* with a 0 for each word that has none, so that a script finds every key."""
    return {**{str(word): 0 for word in words}, **counts}


def _schedule(view: ScheduleView) -> Record:
    from fairlead.engine.jobs.schedules import no_handler_reason

    return {
        **fields_of(view.state.schedule, "schedule=name expression"),
        **fields_of(view.state, "last_run_at paused"),
        **fields_of(view, "next_run_at overdue_s problem"),
        "stopped": no_handler_reason(view.state),
    }


def _process_problems(processes: Sequence[Record]) -> Iterator[str]:
    if not any(process["state"] == "alive" for process in processes):
        yield "no process runs: nothing is refreshed (hint: start `fairlead run`)"
    for process in processes:
        if process["trouble"]:
            named = f"{process['host']} {process['pid']}"
            yield f"process {named} claims no jobs: it cannot connect to anything ({process['trouble']})"


def list_problems(overview: Mapping[str, Any]) -> Iterator[str]:
    """Yield one line for each problem of the installation."""
    yield from _process_problems(overview["processes"])
    for check in overview["host_checks"]:
        if check["status"] == "fail":
            yield f"{check['name']} of this host: {check['detail']} (hint: {check['hint']})"
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
            yield f"schedule {schedule['schedule']} is overdue (hint: `fairlead run --role scheduler`)"
        if schedule["stopped"]:
            problem = f"schedule {schedule['schedule']} is paused: {schedule['stopped']}"
            yield f"{problem} (hint: it resumes once a worker takes it, or `fairlead schedules remove` it)"
        if schedule["problem"]:
            yield f"schedule {schedule['schedule']} takes no runs: {schedule['problem']}"


def _show(out: Output, overview: Mapping[str, Any]) -> None:
    """Print *overview* for people, with a table for each list that is not empty."""
    for title in ("connections", "jobs", "dead_letters"):
        out.heading(title)
        out.record(overview[title])
    columns = ("host", "pid", "state", "running_jobs", "heartbeat_age_s")
    _list(out, "processes", with_trouble(overview["processes"]), columns)
    endpoints = ("provider", "client_id", "state", "failures", "open_for_s", "reason")
    _list(out, "endpoints", overview["endpoints"], endpoints)
    _list(out, "breakers", overview["breakers"][:MOST_SHOWN], BREAKERS)
    _list(
        out,
        "schedules",
        overview["schedules"],
        ("schedule", "expression", "last_run_at", "next_run_at", "overdue_s"),
    )
    _list(out, "unhandled", overview["unhandled"], ("queue", "kind", "jobs"))
    _list(out, "pauses", overview["pauses"], PAUSES)
    _list(out, "tenants", overview["tenants"], TENANTS)
    if overview["breakers_unseen"] == WITHOUT_REDIS:
        out.say(f"breakers are not shown: {WITHOUT_REDIS} (hint: set REDIS_URL to share them)")
    if overview["row_security"] == "off":
        out.say("row-level security is off: only the statements separate tenants (hint: `fairlead doctor`)")


def _list(out: Output, title: str, records: Sequence[Record], columns: Sequence[str]) -> None:
    if records:
        out.heading(title)
        out.rows(records, columns)
