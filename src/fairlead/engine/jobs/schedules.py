"""The operations on schedules: programs declare them; operators pause, resume and run them. Spec: Q8.

jobs/scheduler.py fires them. Both create jobs with `run_job`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from fairlead._core.ids import Ids
from fairlead.engine.ports import (
    Enqueued,
    JobStore,
    NewJob,
    Schedule,
    ScheduleRun,
    ScheduleState,
    ScheduleStore,
)
from fairlead.errors import InvalidInputError, NotFoundError
from fairlead.events import Emit, ScheduleReplaced
from fairlead.policy.jobs.cron import next_run_at, run_times_between
from fairlead.policy.jobs.job import check_new_job
from fairlead.policy.jobs.schedule import check_schedule
from fairlead.policy.reasons.job_reasons import NO_HANDLER
from fairlead.policy.text.safe import safe_text

PAUSED_BY = "fairlead"
"""The author of the pauses that fairlead sets itself, for lack of a handler."""


@dataclass(frozen=True, slots=True)
class ScheduleView:
    """A schedule and its state. *problem* explains why its runs cannot be computed, else None."""

    state: ScheduleState
    next_run_at: datetime | None
    """None while it is paused, if no run is left, or with a problem."""
    overdue_s: float
    """For how long its oldest missed run has been due; 0.0 without one."""
    problem: str | None = None


class Schedules:
    """The schedules of one database."""

    def __init__(self, schedule_store: ScheduleStore, jobs: JobStore, *, ids: Ids) -> None:
        self._store = schedule_store
        self._jobs = jobs
        self._ids = ids

    async def declare(self, schedules: Sequence[Schedule], emit: Emit | None = None) -> None:
        """Insert or update these schedules; others, last runs and operators' pauses stay as they are.

        Args:
            schedules: The schedules of this program.
            emit: Receives an event for each name that had another kind of job, because another service may
                declare the same name. Default None.

        Raises:
            InvalidInputError: A schedule is not valid or a name is repeated; nothing is stored.
        """
        for schedule in schedules:
            check_schedule(schedule)
        names = [schedule.name for schedule in schedules]
        for name in names:
            if names.count(name) > 1:
                raise InvalidInputError(
                    f"two schedules are named {name!r}", hint="give one of them another name"
                )
        kinds = {state.schedule.name: state.schedule.kind for state in await self._store.schedules()}
        await self._store.sync_schedules(schedules)
        for schedule in schedules:
            if emit is not None and kinds.get(schedule.name, schedule.kind) != schedule.kind:
                emit(ScheduleReplaced(schedule.name, kinds[schedule.name], schedule.kind))

    async def views(self) -> list[ScheduleView]:
        """Return all schedules, by name."""
        return [schedule_view(state) for state in await self._store.schedules()]

    async def get(self, name: str) -> ScheduleView:
        """Return one schedule.

        Raises:
            NotFoundError: There is no such schedule.
        """
        for schedule in await self.views():
            if schedule.state.schedule.name == name:
                return schedule
        raise _unknown(name)

    async def runs(self, name: str, limit: int = 10) -> list[ScheduleRun]:
        """Return the latest runs of a schedule, the newest first, as far back as they are stored."""
        return await self._store.runs(name, limit)

    async def pause(self, name: str, *, by: str, reason: str) -> None:
        """Stop firing a schedule until `resume`, across restarts. Jobs that exist still run.

        A pause that exists retains its *by* and *reason*.

        Raises:
            NotFoundError: There is no such schedule.
            InvalidInputError: The reason is empty.
        """
        if not reason.strip():
            raise InvalidInputError(
                "a pause without a reason", hint="give the reason in one sentence; operators read it later"
            )
        if not await self._store.pause(name, safe_text(by), safe_text(reason)):
            raise _unknown(name)

    async def resume(self, name: str, *, make_up: bool = False) -> None:
        """End an operator's pause.

        Args:
            name: The schedule.
            make_up: Count the runs during the pause as missed. Default False: they are skipped.

        Raises:
            NotFoundError: There is no such schedule.
        """
        if not await self._store.resume(name, make_up=make_up):
            raise _unknown(name)

    async def remove(self, name: str) -> None:
        """Delete a schedule that no program declares any more.

        Raises:
            NotFoundError: There is no such schedule.
        """
        await self.get(name)
        await self._store.remove(name)

    async def run(self, name: str) -> Enqueued:
        """Enqueue the job of a schedule now, whether the schedule is paused or not.

        If it coalesces and its last job has not ended, that job stands for this run too.

        Raises:
            NotFoundError: There is no such schedule.
        """
        state = (await self.get(name)).state
        is_manual = new_run_job(state.schedule, state.now, 0, self._ids.uuid7(), is_manual=True)
        check_new_job(is_manual)
        (stored,) = await self._jobs.enqueue([is_manual])
        return stored


def schedule_view(state: ScheduleState) -> ScheduleView:
    """Return a schedule with its next run and how long it is overdue. It never raises."""
    schedule = state.schedule
    try:
        if state.paused:
            return ScheduleView(state, None, 0.0)
        ahead = next_run_at(schedule.expression, schedule.timezone, state.now)
        due = run_times_between(schedule.expression, schedule.timezone, state.last_run_at, state.now, limit=1)
    except Exception as error:  # noqa: BLE001 (one that cannot be computed hides no other)
        return ScheduleView(state, None, 0.0, safe_text(error))
    return ScheduleView(state, ahead, (state.now - due[0]).total_seconds() if due else 0.0)


def no_handler_reason(state: ScheduleState) -> str | None:
    """Return the reason of a pause for lack of a handler; None if the schedule has no such pause."""
    pause = state.pause
    if pause is None or pause.by != PAUSED_BY or not pause.reason.startswith(NO_HANDLER.code):
        return None
    return pause.reason


def next_run_times(state: ScheduleState, count: int) -> list[datetime]:
    """Return the next *count* times of a schedule from now on, as if it were not paused.

    The list is empty if they cannot be computed.
    """
    schedule, run_times = state.schedule, [state.now]
    with suppress(InvalidInputError):
        while len(run_times) <= count:
            run_at = next_run_at(schedule.expression, schedule.timezone, run_times[-1])
            if run_at is None:
                break
            run_times.append(run_at)
    return run_times[1:]


def new_run_job(
    schedule: Schedule,
    run_at: datetime,
    coalesced: int,
    job_id: UUID,
    *,
    delay_s: float = 0.0,
    is_manual: bool = False,
) -> NewJob:
    """Return the job of one run.

    A coalescing schedule has one open job: a job that has not ended stands for later runs too.

    Args:
        run_at: The time of the schedule that is run.
        coalesced: How many missed runs this one stands for.
        delay_s: How long after *run_at* it is due.
        is_manual: Whether an operator runs it now; it then has no unique key of its time.
    """
    unique_key: str | None = f"schedule:{schedule.name}"
    if schedule.missed == "catch_up":
        unique_key = None if is_manual else f"{unique_key}:{run_at.isoformat()}"
    return NewJob(
        job_id=job_id,
        kind=schedule.kind,
        tenant_id=schedule.tenant_id,
        queue=schedule.queue,
        priority=schedule.priority,
        delay_s=delay_s,
        args={
            **schedule.args,
            "schedule": schedule.name,
            "run_at": run_at.isoformat(),
            "coalesced": coalesced,
        },
        unique_key=unique_key,
    )


def _unknown(name: str) -> NotFoundError:
    return NotFoundError(f"there is no schedule {safe_text(name)!r}", hint="see `fairlead schedules list`")
