"""``fairlead schedules``: what comes by itself, when, and whether it is stopped (Q8)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.kit.bulk_actions import Tally, on_each, record_act
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import DryRun, Invocation, Yes, command, group
from fairlead.cli.kit.output import Record

if TYPE_CHECKING:
    from fairlead.app import Fairlead
    from fairlead.assembly.runtime import Runtime
    from fairlead.engine.jobs.schedules import Schedules, ScheduleView
    from fairlead.engine.ports import ScheduleRun

app = group("Schedules: what comes by itself, and when.")

COLUMNS = ("schedule", "state", "expression", "timezone", "kind", "last_run_at", "next_run_at", "overdue_s")
NONE = "no schedules: the first `fairlead run` brings them"

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of a schedule.")]
Names = Annotated[
    list[str], typer.Argument(metavar="NAME...", help="Names of schedules.", show_default=False)
]


@command(app, "list")
def list_schedules(call: Invocation) -> Exit | None:
    """List schedules with their last and next runs.

    Programs declare them, each `fairlead run` brings its own. The state is active, paused, or broken where
    the runs cannot be computed.
    """
    found = call.with_fairlead(lambda fairlead: fairlead.runtime.schedules.views())
    call.out.rows(map(as_record, found), COLUMNS, none=NONE)
    return None


@command(app, "show")
def show(
    call: Invocation,
    name: Name,
    count: Annotated[int, typer.Option("--count", min=0, max=1000, help="So many runs to come.")] = 5,
    taken: Annotated[int, typer.Option("--taken", min=0, max=1000, help="So many of the past.")] = 5,
) -> Exit | None:
    """Show one schedule: what it makes, who paused it and why, its runs to come and those taken."""

    async def work(fairlead: Fairlead) -> tuple[ScheduleView, list[ScheduleRun]]:
        schedules = fairlead.runtime.schedules
        return await schedules.get(name), await schedules.runs(name, taken)

    view, past = call.with_fairlead(work)
    record = {**as_record(view), "upcoming": _upcoming(view, count), "taken": [_taken(each) for each in past]}
    call.out.record(record)
    return None


@command(app, "pause")
def pause(
    call: Invocation,
    names: Names,
    why: Annotated[str, typer.Option("--reason", help="Why; kept with the schedule.")] = "paused by hand",
    dry_run: DryRun = False,
) -> Exit | None:
    """Take no more runs of these, through any restart, until they are resumed.

    Jobs that they have made run all the same.
    """

    async def act(desk: _Desk, view: ScheduleView) -> str:
        if view.state.pause is not None:
            return "paused already"
        if dry_run:
            return "would be paused"
        await desk.schedules.pause(_name(view), by=call.actor, why=why)
        await desk.record("schedule.paused", view, why=why)
        return "paused"

    return _on_each(call, names, act)


@command(app, "resume")
def resume(
    call: Invocation,
    names: Names,
    make_up: Annotated[
        bool, typer.Option("--make-up", help="Runs that fell into the pause count as missed.")
    ] = False,
    dry_run: DryRun = False,
) -> Exit | None:
    """Lift the pause of these; runs that fell into it are let go, unless they shall be made up.

    One that its program declares as paused stays so.
    """

    async def act(desk: _Desk, view: ScheduleView) -> str:
        if view.state.pause is None:
            return "paused by its program" if view.state.paused else "not paused"
        if dry_run:
            return "would be resumed"
        await desk.schedules.resume(_name(view), make_up=make_up)
        await desk.record("schedule.resumed", view, make_up=make_up)
        return "resumed"

    return _on_each(call, names, act)


@command(app, "run")
def run(call: Invocation, names: Names, dry_run: DryRun = False) -> Exit | None:
    """Make the jobs of these now, apart from their runs, paused or not.

    Where a schedule coalesces and its last job has not ended, that one stands for this run too.
    """
    made: dict[str, Record] = {}

    async def act(desk: _Desk, view: ScheduleView) -> str:
        if dry_run:
            return "would be run"
        stored = await desk.schedules.run(_name(view))
        made[_name(view)] = {"job_id": str(stored.job_id)}
        if not stored.inserted:
            return "its last job has not ended"
        await desk.record("schedule.run", view, **made[_name(view)])
        return "enqueued"

    return _on_each(call, names, act, made)


@command(app, "remove")
def remove(call: Invocation, names: Names, dry_run: DryRun = False, yes: Yes = False) -> Exit | None:
    """Forget schedules that no program declares any more; one that is still declared comes back.

    The record of their runs stays until the clean-up takes it.
    """
    if not dry_run:
        call.confirm(f"Remove {len(names)} schedule(s)?", yes=yes)

    async def act(desk: _Desk, view: ScheduleView) -> str:
        if dry_run:
            return "would be removed"
        await desk.schedules.remove(_name(view))
        await desk.record("schedule.removed", view)
        return "removed"

    return _on_each(call, names, act)


# ---- as JSON has them ----------------------------------------------------------------------------


def as_record(view: ScheduleView) -> Record:
    """A schedule as JSON has it."""
    schedule, pause = view.state.schedule, view.state.pause
    return {
        "schedule": schedule.name,
        "state": "broken" if view.problem else "paused" if view.state.paused else "active",
        "expression": schedule.expression,
        "timezone": schedule.timezone,
        "missed": schedule.missed,
        "jitter_s": schedule.jitter_s,
        "kind": schedule.kind,
        "queue": schedule.queue,
        "tenant": schedule.tenant_id,
        "priority": schedule.priority,
        "args": schedule.args,
        "last_run_at": view.state.last_run_at,
        "next_run_at": view.next_run_at,
        "overdue_s": view.overdue_s,
        "problem": view.problem,
        "paused_by_program": schedule.paused,
        "paused_at": pause.at if pause else None,
        "paused_by": pause.by if pause else None,
        "paused_why": pause.why if pause else None,
    }


def _upcoming(view: ScheduleView, count: int) -> list[Record]:
    """Return the next runs, with when the job of each is due."""
    from fairlead.engine.jobs.schedules import upcoming
    from fairlead.policy.jobs.schedule import run_delay_s

    schedule = view.state.schedule
    return [
        {"run_at": run_at, "due_at": run_at + timedelta(seconds=run_delay_s(schedule, run_at))}
        for run_at in upcoming(view.state, count)
    ]


def _taken(taken: ScheduleRun) -> Record:
    return {
        "run_at": taken.run_at,
        "taken_at": taken.taken_at,
        "coalesced": taken.coalesced,
        "job_id": taken.job_id,
        "session_id": taken.session_id,
    }


# ---- what is done to each ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Desk:
    """Where acts are done and written to the audit."""

    call: Invocation
    runtime: Runtime

    @property
    def schedules(self) -> Schedules:
        return self.runtime.schedules

    async def record(self, act: str, view: ScheduleView, **details: Any) -> None:
        told = {"schedule": _name(view), **details}
        tenant = view.state.schedule.tenant_id
        await record_act(self.runtime, act, self.call.actor, told, tenant=tenant)


Act = Callable[[_Desk, "ScheduleView"], Awaitable[str]]


def _on_each(
    call: Invocation, names: list[str], act: Act, made: Mapping[str, Record] = MappingProxyType({})
) -> Exit:
    """Do *act* to each; *made* holds, at the end, what is told of each besides its result."""

    async def work(fairlead: Fairlead) -> Tally:
        desk = _Desk(call, fairlead.runtime)

        async def one(name: str) -> str:
            return await act(desk, await desk.schedules.get(name))

        return await on_each(names, lambda name: {"schedule": name}, one)

    tally = call.with_fairlead(work)
    rows = [{**row, **made.get(str(row["schedule"]), {})} for row in tally.rows]
    call.out.rows(rows, ("schedule", "result", *(["job_id"] if made else []), "error"))
    return tally.exit


def _name(view: ScheduleView) -> str:
    return view.state.schedule.name
