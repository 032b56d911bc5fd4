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
from fairlead.engine.jobs.schedules import STOPPED_BY, run_job, stopped_because
from fairlead.engine.ports import ScheduleState, ScheduleStore
from fairlead.errors import SetupError
from fairlead.events import Emit, ScheduleFired, ServiceFailed
from fairlead.policy.jobs.cron import DueRuns, due_runs, run_times_between
from fairlead.policy.jobs.schedule import COALESCE_AFTER_S, made_without_handler, run_delay_s
from fairlead.policy.reasons.job_reasons import NO_HANDLER
from fairlead.policy.text.safe import safe_text

CHECK_INTERVAL_S = 15.0
"""How often schedules are read when no run is near, and so the longest delay of a changed schedule."""
MOST_AT_ONCE = 100
"""Missed runs of one schedule that one pass makes up for."""


class Scheduler:
    """One pass over all schedules."""

    def __init__(self, schedule_store: ScheduleStore, heartbeat: Heartbeat, *, ids: Ids, emit: Emit) -> None:
        self._store = schedule_store
        self._heartbeat = heartbeat
        self._ids = ids
        self._emit = emit
        self._unreadable: dict[str, str] = {}
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
            ready=self._heartbeat.holds,
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
            wait_s = min(wait_s, await self._with_handler(state, session_id))
        return wait_s

    async def _with_handler(self, state: ScheduleState, session_id: UUID) -> float:
        """Run one schedule while a worker takes its kind, else pause it; return the seconds to wait."""
        self._started_at = self._started_at or state.now
        watched_s = (state.now - self._started_at).total_seconds()
        schedule = state.schedule
        if state.paused:
            await self._continue(state)
            return CHECK_INTERVAL_S
        missed = made_without_handler(schedule.missed, state.unhandled_s, watched_s)
        if missed is None:
            reason = (
                f"{NO_HANDLER.code}: no worker takes kind {schedule.kind!r} from queue {schedule.queue!r}"
            )
            await self._store.pause(schedule.name, STOPPED_BY, reason)
            self._emit(ServiceFailed("scheduler", f"schedule {schedule.name!r} is paused: {reason}"))
            return CHECK_INTERVAL_S
        return await self._one_schedule(replace(state, schedule=replace(schedule, missed=missed)), session_id)

    async def _continue(self, state: ScheduleState) -> None:
        """Resume a schedule paused for lack of a handler once there is one; skip the runs it missed."""
        if stopped_because(state) is not None and state.unhandled_s < COALESCE_AFTER_S:
            await self._store.resume(state.schedule.name, make_up=False)

    async def _one_schedule(self, state: ScheduleState, session_id: UUID) -> float:
        """Fire the due runs of one schedule, and return the seconds until the next."""
        name = state.schedule.name
        try:
            due, wait_s = _due(state), _next_s(state)
        except Exception as error:  # noqa: BLE001 (a schedule that cannot be computed stops no other)
            self._report_unreadable(name, safe_text(error))
            return CHECK_INTERVAL_S
        try:
            await self._fire(state, due, session_id)
        except Exception as error:  # nor does one with a job that cannot be created or stored
            if is_outage(error) or isinstance(error, SetupError):
                raise
            self._report_unreadable(name, safe_text(error))
            return CHECK_INTERVAL_S
        self._unreadable.pop(name, None)
        return 0.0 if len(due.run_times) == MOST_AT_ONCE else wait_s

    async def _fire(self, state: ScheduleState, due: DueRuns, session_id: UUID) -> None:
        """Record *due* runs one by one, until another process has recorded one: it does the later ones."""
        schedule, last_run_at = state.schedule, state.last_run_at
        for run_at in due.run_times:
            delay_s = run_delay_s(schedule, run_at)
            job = run_job(schedule, run_at, due.coalesced, self._ids.uuid7(), delay_s=delay_s)
            faultpoint("schedule_run.before_take")
            if not await self._store.record_run(
                schedule.name, last_run_at, run_at, due.coalesced, session_id, job
            ):
                break
            faultpoint("schedule_run.after_take")
            self._emit(ScheduleFired(schedule.name, due.coalesced))
            last_run_at = run_at

    def _report_unreadable(self, name: str, reason: str) -> None:
        """Emit an event once for each schedule and reason, not once a pass."""
        if self._unreadable.get(name) != reason:
            self._unreadable[name] = reason
            self._emit(ServiceFailed("scheduler", f"schedule {name!r} is left out: {reason}"))


def _due(state: ScheduleState) -> DueRuns:
    schedule = state.schedule
    missed = cast(Literal["coalesce", "catch_up"], schedule.missed)
    return due_runs(
        schedule.expression, schedule.timezone, missed, state.last_run_at, state.now, limit=MOST_AT_ONCE
    )


def _next_s(state: ScheduleState) -> float:
    schedule, now = state.schedule, state.now
    until = now + timedelta(seconds=CHECK_INTERVAL_S)
    ahead = run_times_between(schedule.expression, schedule.timezone, now, until, limit=1)
    return (ahead[0] - now).total_seconds() if ahead else CHECK_INTERVAL_S
