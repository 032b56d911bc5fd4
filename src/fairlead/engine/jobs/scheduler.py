"""Fire schedules: every process tries, and the store lets one succeed for each run.

A run is recorded by a compare-and-set of the schedule's last run, in the same transaction as its job. So each
schedule fires exactly once for each time, whenever a process dies. Missed runs are made up for: all of them
(``catch_up``), or by one job (``coalesce``).

A schedule may outlive the code that handles its kind. Once no worker takes its kind, its runs are coalesced,
and after an hour it is paused with the reason ``no_handler``, until a worker takes the kind again. Spec: R4,
T3.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Literal, cast
from uuid import UUID

from fairlead._core.clock import Clock, Draw
from fairlead._core.faultpoint import faultpoint
from fairlead._core.ids import Ids
from fairlead.engine.base.service import Service, is_outage
from fairlead.engine.jobs.heartbeat import Heartbeat
from fairlead.engine.jobs.schedules import PAUSED_BY, new_run_job, no_handler_reason
from fairlead.engine.ports import ScheduleState, ScheduleStore
from fairlead.errors import SetupError
from fairlead.events import Emit, ScheduleFired, ServiceFailed
from fairlead.policy.jobs.cron import DueRuns, due_runs, run_times_between
from fairlead.policy.jobs.schedule import COALESCE_AFTER_S, made_without_handler, run_delay_s
from fairlead.policy.reasons.job_reasons import NO_HANDLER
from fairlead.policy.text.safe import safe_text

CHECK_INTERVAL_S = 15.0
"""How often schedules are read when no run is near, and so the longest delay of a changed schedule."""
MAX_RUNS_PER_PASS = 100
"""The most missed runs of one schedule that one pass makes up for."""


class Scheduler:
    """The service that enqueues the jobs of schedules when they are due."""

    def __init__(self, schedule_store: ScheduleStore, heartbeat: Heartbeat, *, ids: Ids, emit: Emit) -> None:
        self._store = schedule_store
        self._heartbeat = heartbeat
        self._ids = ids
        self._emit = emit
        self._reported_reasons: dict[str, str] = {}
        self._started_at: datetime | None = None

    def service(self, *, clock: Clock, draw: Draw) -> Service:
        """Return this as a service."""
        return Service(
            "scheduler",
            self.one_pass,
            interval_s=CHECK_INTERVAL_S,
            clock=clock,
            draw=draw,
            emit=self._emit,
            ready=self._heartbeat.has_session,
        )

    async def one_pass(self) -> float:
        """Fire what is due, and return the seconds until the next run, at most 15."""
        session_id = self._heartbeat.session_id
        if session_id is None:
            return 1.0
        wait_s = CHECK_INTERVAL_S
        states = await self._store.schedules()
        if any(state.last_run_at > state.now for state in states):
            for name in await self._store.rewind():
                message = f"schedule {name!r} begins now: the clock was set back behind its last run"
                self._emit(ServiceFailed("scheduler", message))
        for state in states:
            wait_s = min(wait_s, await self._fire_or_pause(state, session_id))
        return wait_s

    async def _fire_or_pause(self, state: ScheduleState, session_id: UUID) -> float:
        """Fire one schedule if a worker takes its kind, else pause it; return the seconds to its next run."""
        self._started_at = self._started_at or state.now
        watched_s = (state.now - self._started_at).total_seconds()
        schedule = state.schedule
        if state.paused:
            await self._resume_if_handled(state)
            return CHECK_INTERVAL_S
        missed = made_without_handler(schedule.missed, state.unhandled_s, watched_s)
        if missed is None:
            reason = (
                f"{NO_HANDLER.code}: no worker takes kind {schedule.kind!r} from queue {schedule.queue!r}"
            )
            await self._store.pause(schedule.name, PAUSED_BY, reason)
            self._emit(ServiceFailed("scheduler", f"schedule {schedule.name!r} is paused: {reason}"))
            return CHECK_INTERVAL_S
        return await self._fire_due_runs(
            replace(state, schedule=replace(schedule, missed=missed)), session_id
        )

    async def _resume_if_handled(self, state: ScheduleState) -> None:
        """Resume a schedule that was paused for lack of a handler, if there is one now; skip missed runs."""
        if no_handler_reason(state) is not None and state.unhandled_s < COALESCE_AFTER_S:
            await self._store.resume(state.schedule.name, make_up=False)

    async def _fire_due_runs(self, state: ScheduleState, session_id: UUID) -> float:
        """Fire the due runs of one schedule, and return the seconds until the next."""
        name = state.schedule.name
        try:
            due, wait_s = _due_runs(state), _next_run_in_s(state)
        except Exception as error:  # noqa: BLE001 (a schedule that cannot be computed stops no other)
            self._report_once(name, safe_text(error))
            return CHECK_INTERVAL_S
        try:
            await self._fire(state, due, session_id)
        except Exception as error:  # nor does one with a job that cannot be created or stored
            if is_outage(error) or isinstance(error, SetupError):
                raise
            self._report_once(name, safe_text(error))
            return CHECK_INTERVAL_S
        self._reported_reasons.pop(name, None)
        return 0.0 if len(due.run_times) == MAX_RUNS_PER_PASS else wait_s

    async def _fire(self, state: ScheduleState, due: DueRuns, session_id: UUID) -> None:
        """Record *due* runs one by one, and stop if another process was first: it records the later ones."""
        schedule, last_run_at = state.schedule, state.last_run_at
        for run_at in due.run_times:
            delay_s = run_delay_s(schedule, run_at)
            job = new_run_job(schedule, run_at, due.coalesced, self._ids.uuid7(), delay_s=delay_s)
            faultpoint("schedule_run.before_take")
            if not await self._store.record_run(
                schedule.name, last_run_at, run_at, due.coalesced, session_id, job
            ):
                break
            faultpoint("schedule_run.after_take")
            self._emit(ScheduleFired(schedule.name, due.coalesced))
            last_run_at = run_at

    def _report_once(self, name: str, reason: str) -> None:
        """Emit an event once for each schedule and reason, not once a pass."""
        if self._reported_reasons.get(name) != reason:
            self._reported_reasons[name] = reason
            self._emit(ServiceFailed("scheduler", f"schedule {name!r} is left out: {reason}"))


def _due_runs(state: ScheduleState) -> DueRuns:
    """Return the runs of a schedule that are due and not recorded yet."""
    schedule = state.schedule
    missed = cast(Literal["coalesce", "catch_up"], schedule.missed)
    return due_runs(
        schedule.expression, schedule.timezone, missed, state.last_run_at, state.now, limit=MAX_RUNS_PER_PASS
    )


def _next_run_in_s(state: ScheduleState) -> float:
    """Return the seconds until the next run of a schedule, at most the interval of passes."""
    schedule, now = state.schedule, state.now
    until = now + timedelta(seconds=CHECK_INTERVAL_S)
    ahead = run_times_between(schedule.expression, schedule.timezone, now, until, limit=1)
    return (ahead[0] - now).total_seconds() if ahead else CHECK_INTERVAL_S
