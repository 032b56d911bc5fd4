"""``fairlead status``: how it stands, in numbers, and what is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from fairlead.cli.exits import Exit
from fairlead.cli.invocation import Invocation, command, single
from fairlead.cli.output import Output, Record

if TYPE_CHECKING:
    from fairlead.app import Fairlead
    from fairlead.engine.ports import ScheduleState

app = single()

OVERDUE_S = 60.0
"""A tick that nobody took for this long means that no scheduler runs."""


@command(app, "status")
def status(call: Invocation) -> Exit | None:
    """Connections, jobs, dead letters, processes, token endpoints and schedules.

    Ends with 4 where something is unhealthy: no process runs, a token endpoint is closed off by its breaker
    or a pause, or a schedule was not kept.
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
    from fairlead.policy.category import Category
    from fairlead.policy.states import CredentialState, JobState

    runtime = fairlead.runtime
    own = runtime.heartbeat.session_id
    sessions = await runtime.sessions.search()
    return {
        "connections": _all_of(CredentialState, await runtime.credentials.counts()),
        "jobs": _all_of([*JobState, "scheduled", "retryable"], await runtime.jobs.counts()),
        "dead_letters": _all_of(Category, await runtime.dead_letters.counts()),
        "processes": [
            {
                "session_id": session.session_id,
                "host": session.identity.host,
                "pid": session.identity.pid,
                "state": session.state,
                "running_jobs": session.running_jobs,
                "heartbeat_age_s": session.heartbeat_age_s,
                "started_at": session.started_at,
                "version": session.version,
            }
            for session in sessions
            if session.session_id != own and session.state in {"alive", "late"}
        ],
        "endpoints": [dict(endpoint) for endpoint in await runtime.endpoints.search()],
        "schedules": [_schedule(state) for state in await runtime.duties.schedules()],
    }


def _all_of(words: Iterable[str], counts: Mapping[str, int]) -> dict[str, int]:
    """*counts* with a 0 for each of *words* that is not among them: a script finds every key."""
    return {**{str(word): 0 for word in words}, **counts}


def _schedule(state: ScheduleState) -> Record:
    return {
        "schedule": state.schedule.name,
        "expression": state.schedule.expression,
        "last_tick": state.last_tick,
        "overdue_s": overdue_s(state),
        "paused": state.schedule.paused,
    }


def overdue_s(state: ScheduleState) -> float:
    """For how long the next tick has been due; 0.0 where it is not due yet."""
    from fairlead.policy.cron import ticks_between

    schedule = state.schedule
    missed = ticks_between(schedule.expression, schedule.timezone, state.last_tick, state.now, limit=1)
    return (state.now - missed[0]) / timedelta(seconds=1) if missed and not schedule.paused else 0.0


def _problems(found: Mapping[str, Any]) -> Iterator[str]:
    if not any(process["state"] == "alive" for process in found["processes"]):
        yield "no process runs: nothing is refreshed (hint: start `fairlead run`)"
    for endpoint in found["endpoints"]:
        if endpoint["state"] != "closed":
            way_out = (
                "`fairlead providers resume`" if endpoint["state"] == "paused" else "it tries again by itself"
            )
            yield (
                f"the token endpoint of {endpoint['provider']} for client {endpoint['client_id']} is "
                f"{endpoint['state']}: {endpoint['reason']} (hint: {way_out})"
            )
    for schedule in found["schedules"]:
        if schedule["overdue_s"] > OVERDUE_S:
            yield f"schedule {schedule['schedule']} was not kept (hint: `fairlead run --role scheduler`)"


def _show(out: Output, found: Mapping[str, Any]) -> None:
    for title in ("connections", "jobs", "dead_letters"):
        out.heading(title)
        out.record(found[title])
    _list(out, "processes", found["processes"], ("host", "pid", "state", "running_jobs", "heartbeat_age_s"))
    endpoints = ("provider", "client_id", "state", "failures", "open_for_s", "reason")
    _list(out, "endpoints", found["endpoints"], endpoints)
    _list(out, "schedules", found["schedules"], ("schedule", "expression", "last_tick", "overdue_s"))


def _list(out: Output, title: str, records: Sequence[Record], columns: Sequence[str]) -> None:
    if records:
        out.heading(title)
        out.rows(records, columns)
