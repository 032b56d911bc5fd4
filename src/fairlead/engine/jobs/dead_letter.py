"""The job ``dead_letter.process``: take the next action for each due dead letter, each by itself.

A dead letter that cannot be handled is reported and postponed, and the others are handled. If a run dies, the
next one repeats its actions without harm: jobs have a unique key for each dead letter, and dead letters
change by compare-and-set. Spec: Q10.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from fairlead._core.clock import Draw
from fairlead._core.ids import Ids
from fairlead.engine.jobs.handler import Handler, JobContext
from fairlead.engine.ports import DeadLetter, DeadLetterStore, JobStore, Json, NewJob
from fairlead.events import DeadLetterFailed, DeadLettersFull, DeadLettersProcessed, Emit
from fairlead.policy.jobs.dead_letter import (
    DEFAULT_DEAD_LETTER_RULES,
    Abandon,
    Action,
    Closed,
    DeadLetterRules,
    LastNotice,
    RedriveNow,
    StartReauth,
    WaitForPerson,
    WaitUntil,
    action_in_s,
    bound_verdict,
    next_action,
)
from fairlead.policy.jobs.job import Priority
from fairlead.policy.jobs.kinds import NEEDS_REAUTH, REFRESH
from fairlead.policy.jobs.states import DeadLetterStatus, Resolution
from fairlead.policy.text.safe import safe_text

PROCESS = "dead_letter.process"
SPREAD_S = 60.0
"""Replays of one run are spread over this long, so that an outage does not end in a herd."""
NOTICE_UNIQUE_FOR_S = 8 * 86_400.0
"""A notice's unique key outlives the dead letter, so that a run that died half-way sends nothing twice."""
RETRY_AFTER_S = 900.0
"""When a dead letter that could not be handled is retried."""
ACTOR = "fairlead"
"""The author of abandonments."""

_TIMEOUT_S = 300.0
_MIN_LEFT_S = 15.0
"""The least time left of the job's timeout for another batch."""


class DeadLetterProcessor:
    """The processor of due dead letters: oldest first, in batches, while its time lasts.

    An event is emitted for each of *queues* that has reached its bound of open dead letters. Spec: R19.
    """

    def __init__(
        self,
        entries: DeadLetterStore,
        jobs: JobStore,
        *,
        ids: Ids,
        draw: Draw,
        emit: Emit,
        rules: DeadLetterRules = DEFAULT_DEAD_LETTER_RULES,
        queues: Sequence[str] = ("default",),
    ) -> None:
        self._entries = entries
        self._jobs = jobs
        self._ids = ids
        self._draw = draw
        self._emit = emit
        self._rules = rules
        self._queues = queues

    def handler(self) -> Handler:
        """Return the handler of kind ``dead_letter.process``."""
        return Handler(PROCESS, self.run, timeout_s=_TIMEOUT_S)

    async def run(self, context: JobContext) -> dict[str, int]:
        """Handle everything that is due, and return the number of dead letters by action: see ``_act``."""
        counts: Counter[str] = Counter()
        handled: set[object] = set()
        while context.remaining_s > _MIN_LEFT_S:
            batch = await self._entries.due(self._rules.batch)
            due = [entry for entry in batch if entry.dead_letter_id not in handled]
            for entry in due:
                handled.add(entry.dead_letter_id)
                counts[await self._handle(entry)] += 1
            if len(due) < self._rules.batch:
                break
        await self._check_bounds()
        self._emit(DeadLettersProcessed(dict(counts)))
        return dict(counts)

    async def _handle(self, entry: DeadLetter) -> str:
        """Take the next action for one dead letter, and return its name. An error affects no other."""
        try:
            return await self._act(entry)
        except Exception as error:  # noqa: BLE001 (Q10: errors are isolated per entry)
            reason = safe_text(error)
            failed = DeadLetterFailed(str(entry.dead_letter_id), entry.tenant_id, entry.provider, reason)
            self._emit(failed)
            return await self._postpone(entry)

    async def _postpone(self, entry: DeadLetter) -> str:
        """Postpone a dead letter that could not be handled.

        One past the age of abandonment is left to an operator.
        """
        later_s = RETRY_AFTER_S if entry.age_s < self._rules.abandon_after_s else None
        try:
            await self._entries.postpone(entry.dead_letter_id, later_s, last_at=entry.last_at)
        except Exception:  # noqa: BLE001 (reported already; it stays due for the next run)
            return "failed"
        return "failed"

    async def _act(self, entry: DeadLetter) -> str:
        """Take the action that policy decides on, and return its name for the counts of the run."""
        now = entry.first_at + timedelta(seconds=entry.age_s)  # the database's
        match next_action(entry, now, self._rules):
            case RedriveNow():
                return await self._redrive(entry, now)
            case StartReauth():
                if entry.kind != REFRESH:  # a lost grant has its notice from the transaction that recorded it
                    await self._notify(entry, last=False)
                await self._schedule_next_action(
                    replace(entry, reauth_started_at=now), now, reauth_started=True
                )
                return "reauth_started"
            case LastNotice():
                await self._notify(entry, last=True)
                await self._schedule_next_action(replace(entry, last_notice_at=now), now, notified=True)
                return "last_notice"
            case Abandon(reason):
                return await self._abandon(entry, reason)
            case WaitUntil() | WaitForPerson() as action:
                again_in_s = action_in_s(action, now)
                await self._entries.postpone(entry.dead_letter_id, again_in_s, last_at=entry.last_at)
                return "waiting"
            case Closed():
                return "closed"

    async def _redrive(self, entry: DeadLetter, now: datetime) -> str:
        """Enqueue the replay of a dead letter."""
        job = replay_job(entry, self._ids, delay_s=self._draw() * SPREAD_S)
        redriven = await self._entries.redrive(entry.dead_letter_id, job, last_at=entry.last_at)
        # False if it was closed meanwhile, or if the same work is open already: it is retried later
        await self._schedule_next_action(replace(entry, replay_job_id=job.job_id), now)
        return "redriven" if redriven else "left"

    async def _notify(self, entry: DeadLetter, *, last: bool) -> None:
        await self._jobs.enqueue([_notice(entry, self._ids, last=last)])

    async def _schedule_next_action(
        self, entry: DeadLetter, now: datetime, *, reauth_started: bool = False, notified: bool = False
    ) -> None:
        """Store when the action after this one is due, and which one was taken."""
        action: Action = next_action(entry, now, self._rules)
        await self._entries.postpone(
            entry.dead_letter_id,
            action_in_s(action, now),
            last_at=entry.last_at,
            reauth_started=reauth_started,
            notified=notified,
        )

    async def _abandon(self, entry: DeadLetter, reason: str) -> str:
        closed = await self._entries.resolve(
            entry.dead_letter_id,
            status=DeadLetterStatus.ABANDONED.value,
            resolution=Resolution.ABANDONED.value,
            by=ACTOR,
            reason=reason,
            last_at=entry.last_at,
        )
        return "abandoned" if closed else "closed"

    async def _check_bounds(self) -> None:
        """Emit an event for each queue that has too many open dead letters to accept new jobs."""
        for queue in self._queues:
            still_open = await self._entries.open_count(queue)
            if bound_verdict(still_open, 0, self._rules.bound).refuse:
                self._emit(DeadLettersFull(queue, still_open, self._rules.bound))


def replay_job(entry: DeadLetter, ids: Ids, *, delay_s: float = 0.0) -> NewJob:
    """Return the job that retries a dead letter's work, due *delay_s* from now. Spec: R19."""
    return NewJob(
        job_id=ids.uuid7(),
        kind=entry.kind,
        tenant_id=entry.tenant_id,
        queue=entry.queue,
        provider=entry.provider,
        group_key=entry.group_key,
        priority=entry.priority,
        delay_s=delay_s,
        args=entry.args,
        unique_key=entry.unique_key,
        replay_of=entry.dead_letter_id,
    )


def _notice(entry: DeadLetter, ids: Ids, *, last: bool) -> NewJob:
    """Return the job that notifies the customer to grant access again; *last* before it is abandoned."""
    job_id = ids.uuid7()
    about: dict[str, Json] = {
        "event_id": str(job_id),
        "occurred_at": entry.last_at.isoformat(),
        "dead_letter_id": str(entry.dead_letter_id),
        "connection_id": str(entry.connection_id) if entry.connection_id else None,
        "code": entry.code,
        "reason": entry.reason,
        "last": last,
    }
    return NewJob(
        job_id=job_id,
        kind=NEEDS_REAUTH,
        tenant_id=entry.tenant_id,
        provider=entry.provider,
        # as in credential_require_reauth, so that all notices of a connection wait in one lane
        group_key=str(entry.connection_id or ""),
        priority=Priority.URGENT,
        args=about,
        # repeated failures are reported once, and each abandonment is announced
        unique_key=f"last-notice:{entry.lineage_id}" if last else f"reauth:{entry.dead_letter_id}",
        unique_for_s=NOTICE_UNIQUE_FOR_S,
    )
