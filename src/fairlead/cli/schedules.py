"""``fairlead schedules``: which jobs are enqueued by the clock, and when. Spec: Q8."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.kit.changes import (
    AuditEntry,
    Change,
    ChangeOptions,
    ConfirmOptions,
    Done,
    Plan,
    Unchanged,
    change_each,
)
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import Invocation, command, group
from fairlead.cli.kit.output import Record, fields_of

if TYPE_CHECKING:
    from fairlead.assembly.runtime import Runtime
    from fairlead.engine.jobs.schedules import ScheduleView
    from fairlead.engine.ports import ScheduleRun

app = group("Schedules: which jobs are enqueued by the clock, and when.")

COLUMNS = ("schedule", "state", "expression", "timezone", "kind", "last_run_at", "next_run_at", "overdue_s")
NONE = "no schedules: the first `fairlead run` stores them"

Names = Annotated[
    list[str], typer.Argument(metavar="NAME...", help="Names of schedules.", show_default=False)
]


@command(app, "list")
def list_schedules(call: Invocation) -> Exit | None:
    """List schedules with their last and next runs.

    Programs declare schedules, and each `fairlead run` stores its own. The state is active, paused, or broken
    where the runs cannot be computed.
    """
    views = call.with_runtime(lambda runtime: runtime.schedules.views())
    call.out.rows(map(schedule_record, views), COLUMNS, none=NONE)
    return None


@command(app, "show")
def show(
    call: Invocation,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of a schedule.")],
    count: Annotated[int, typer.Option("--count", min=0, max=1000, help="How many future runs.")] = 5,
    past: Annotated[int, typer.Option("--taken", min=0, max=1000, help="How many past runs.")] = 5,
) -> Exit | None:
    """Show one schedule: the job that it enqueues, its pause, its next runs and its last ones."""

    async def work(runtime: Runtime) -> tuple[ScheduleView, list[ScheduleRun]]:
        return await runtime.schedules.get(name), await runtime.schedules.runs(name, past)

    view, runs = call.with_runtime(work)
    records = [fields_of(run, "run_at taken_at coalesced job_id session_id") for run in runs]
    call.out.record({**schedule_record(view), "upcoming": _upcoming(view, count), "taken": records})
    return None


@command(app, "pause")
def pause(
    call: Invocation,
    *,
    names: Names,
    reason: Annotated[
        str, typer.Option("--reason", help="Your reason; kept with the schedule.")
    ] = "paused by hand",
    options: ConfirmOptions,
) -> Exit | None:
    """Enqueue no more jobs of these schedules until they are resumed; a restart does not resume them.

    Jobs that they have enqueued before run as usual.
    """

    async def find(runtime: Runtime, name: str) -> Plan:
        view = await runtime.schedules.get(name)
        if view.state.pause is not None:
            return Unchanged("paused already")

        async def act() -> None:
            await runtime.schedules.pause(name, by=call.actor, reason=reason)

        return Change("paused", act, audit=_audit("schedule.paused", view, reason=reason))

    return _change_each(call, names, find, options)


@command(app, "resume")
def resume(
    call: Invocation,
    *,
    names: Names,
    make_up: Annotated[
        bool, typer.Option("--make-up", help="Runs during the pause count as missed, and are made up.")
    ] = False,
    options: ChangeOptions,
) -> Exit | None:
    """End the pause of these schedules. Runs during the pause are skipped, unless --make-up is given.

    A schedule that its program declares as paused stays paused.
    """

    async def find(runtime: Runtime, name: str) -> Plan:
        view = await runtime.schedules.get(name)
        if view.state.pause is None:
            return Unchanged("paused by its program" if view.state.paused else "not paused")

        async def act() -> None:
            await runtime.schedules.resume(name, make_up=make_up)

        return Change("resumed", act, audit=_audit("schedule.resumed", view, make_up=make_up))

    return _change_each(call, names, find, options)


@command(app, "run")
def run(call: Invocation, *, names: Names, options: ChangeOptions) -> Exit | None:
    """Enqueue the jobs of these schedules now, outside of their timetable, paused or not.

    If a schedule coalesces and its last job has not ended, no second job is enqueued.
    """

    async def find(runtime: Runtime, name: str) -> Plan:
        view = await runtime.schedules.get(name)

        async def act() -> object:
            stored = await runtime.schedules.run(name)
            job = {"job_id": str(stored.job_id)}
            if not stored.inserted:
                return Unchanged("its last job has not ended", job)
            return Done(fields=job, details=job)

        return Change("enqueued", act, audit=_audit("schedule.run", view), planned="would be run")

    return _change_each(call, names, find, options, columns=() if options.dry_run else ("job_id",))


@command(app, "remove")
def remove(call: Invocation, *, names: Names, options: ChangeOptions) -> Exit | None:
    """Delete schedules that no program declares any more. A schedule that is still declared comes back.

    The record of their runs stays until the clean-up deletes it.
    """

    async def find(runtime: Runtime, name: str) -> Plan:
        view = await runtime.schedules.get(name)

        async def act() -> None:
            await runtime.schedules.remove(name)

        return Change("removed", act, audit=_audit("schedule.removed", view))

    return _change_each(call, names, find, options, question="Remove {count} schedule(s)?")


def schedule_record(view: ScheduleView) -> Record:
    """Return a schedule as a JSON record."""
    schedule, pause = view.state.schedule, view.state.pause
    return {
        "schedule": schedule.name,
        "state": "broken" if view.problem else "paused" if view.state.paused else "active",
        **fields_of(
            schedule, "expression timezone missed jitter_s kind queue tenant=tenant_id priority args"
        ),
        "last_run_at": view.state.last_run_at,
        **fields_of(view, "next_run_at overdue_s problem"),
        "paused_by_program": schedule.paused,
        "paused_at": pause.at if pause else None,
        "paused_by": pause.by if pause else None,
        "pause_reason": pause.reason if pause else None,
    }


def _upcoming(view: ScheduleView, count: int) -> list[Record]:
    """Return the next *count* runs, with when the job of each is due."""
    from fairlead.engine.jobs.schedules import next_run_times
    from fairlead.policy.jobs.schedule import run_delay_s

    schedule = view.state.schedule
    return [
        {"run_at": run_at, "due_at": run_at + timedelta(seconds=run_delay_s(schedule, run_at))}
        for run_at in next_run_times(view.state, count)
    ]


def _change_each(call: Invocation, names: list[str], find: Any, options: ConfirmOptions, **more: Any) -> Exit:
    async def choose(_: Runtime) -> list[str]:
        return names

    return change_each(call, choose, find, options, noun="schedule", **more)


def _audit(action: str, view: ScheduleView, **details: Any) -> AuditEntry:
    schedule = view.state.schedule
    return AuditEntry(action, {"schedule": schedule.name, **details}, tenant=schedule.tenant_id)
