"""The job queue in memory; see ``fairlead.engine.ports.JobStore``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from uuid import UUID

from fairlead.engine.ports import (
    Cancelled,
    ClaimFilter,
    Completed,
    Discarded,
    Enqueued,
    Job,
    JobView,
    NewJob,
    Outcome,
    Rescheduled,
)
from fairlead.policy.failures.category import Category
from fairlead.policy.jobs.states import JobState
from fairlead.testing._memory.capacity import CAP_POLL_S, CapUsage, last_end, pauses_of
from fairlead.testing._memory.database import MemoryLink, MemoryStore, seconds, statement
from fairlead.testing._memory.dead_lettering import (
    end_cancelled,
    failure_json,
    replay_ended,
    save_progress,
    to_dead_letter,
    unrun_to_dead_letter,
)
from fairlead.testing._memory.enqueue import holds_key, insert_all
from fairlead.testing._memory.lane_rows import lane_key
from fairlead.testing._memory.lane_turns import Turns, is_claimable, is_wanted
from fairlead.testing._memory.rows import OPEN, JobRow, copied
from fairlead.testing._memory.views import job_view


class MemoryJobStore(MemoryStore):
    """Jobs of a `MemoryDatabase`."""

    def __init__(self, link: MemoryLink) -> None:
        super().__init__(link)
        self._turn = 0
        self._lost: list[Job] = []  # claimed, and the answer was lost
        self._in_doubt: set[int] = set()  # lease ids of outcomes with a lost answer

    @statement
    def enqueue(self, jobs: Iterable[NewJob]) -> list[Enqueued]:
        return insert_all(self.database, jobs)

    # ---- claiming ------------------------------------------------------------------------------

    async def claim(self, claims: ClaimFilter, demand: int, session_id: UUID) -> list[Job]:
        await self.link.arrive("claim")
        self._hand_back_lost()
        rows: list[JobRow] = []
        if self.database.is_open(session_id):  # a lost session gets nothing
            self._turn += 1
            rows = Turns(self.database, claims, self._turn).take(demand)
        for row in rows:
            row.started_at = self.database.now
        jobs = [self._claimed(row, session_id) for row in rows]
        await self._answer_claim("claim", jobs)
        return jobs

    async def claim_suspect(self, claims: ClaimFilter, session_id: UUID) -> Job | None:
        await self.link.arrive("claim_suspect")
        self._hand_back_lost()
        suspects = list(self._suspects(claims)) if self.database.is_open(session_id) else []
        suspects.sort(key=lambda row: (row.priority, row.run_at, row.job_id))
        jobs = [self._claimed(row, session_id) for row in suspects[:1]]
        await self._answer_claim("claim_suspect", jobs)
        return jobs[0] if jobs else None

    async def _answer_claim(self, operation: str, jobs: Sequence[Job]) -> None:
        try:
            await self.link.answer(operation)
        except BaseException:
            self._lost.extend(jobs)
            raise

    def _hand_back_lost(self) -> None:
        """Return the jobs of earlier claims with a lost answer."""
        for job in self._lost:
            row = self._leased(job.job_id, job.lease_id)
            if row is not None:
                row.restore()
        self._lost = []

    @statement
    def start_suspect(self, job_id: UUID, lease_id: int) -> bool:
        row = self._leased(job_id, lease_id)
        if row is None:
            return False
        row.started_at = row.started_at or self.database.now
        return True

    def _suspects(self, claims: ClaimFilter) -> Iterator[JobRow]:
        usage = CapUsage(self.database)
        for row in self._available(claims):
            if row.crash_count == 0 or not is_claimable(row, self.database.now):
                continue
            if not pauses_of(self.database, lane_key(row)) and usage.allows(lane_key(row)):
                yield row

    def _available(self, claims: ClaimFilter) -> Iterator[JobRow]:
        for row in self.database.jobs.values():
            if row.state is JobState.AVAILABLE and is_wanted(lane_key(row), claims):
                yield row

    def _claimed(self, row: JobRow, session_id: UUID) -> Job:
        row.state, row.session_id = JobState.RUNNING, session_id
        row.lease_id = self.database.ids.lease_id()
        row.attempt += 1
        now, since = self.database.now, row.call_waits_since
        return copied(
            Job,
            row,
            args=dict(row.args),
            streaks=dict(row.streaks),
            waited_s=(now - row.run_at).total_seconds(),
            call_waited_s=None if since is None else (now - since).total_seconds(),
        )

    # ---- outcomes ------------------------------------------------------------------------------

    async def acknowledge(self, outcomes: Sequence[Outcome]) -> set[UUID]:
        if not outcomes:
            return set()
        await self.link.arrive("acknowledge")
        accepted = {outcome.job_id for outcome in outcomes if self._accept(outcome)}
        try:
            await self.link.answer("acknowledge")
        except BaseException:
            self._in_doubt |= {outcome.lease_id for outcome in outcomes}
            raise
        self._in_doubt -= {outcome.lease_id for outcome in outcomes}
        return accepted

    def _accept(self, outcome: Outcome) -> bool:
        """Write *outcome*, or detect that an earlier call with a lost answer wrote it."""
        row = self._leased(outcome.job_id, outcome.lease_id)
        if row is not None:
            row.settled_lease_id = row.lease_id
            self._write(row, outcome)
            return True
        row = self.database.jobs.get(outcome.job_id)
        settled = row is not None and row.settled_lease_id == outcome.lease_id
        return settled and outcome.lease_id in self._in_doubt

    def _leased(self, job_id: UUID, lease_id: int) -> JobRow | None:
        row = self.database.jobs.get(job_id)
        return row if row is not None and row.lease_id == lease_id else None

    def _write(self, row: JobRow, outcome: Outcome) -> None:
        now = self.database.now
        if row.started_at is not None or not isinstance(outcome, Rescheduled):
            row.crash_count = 0  # any end without a crash clears the count (R3)
        if isinstance(outcome, Rescheduled):
            waited_s = outcome.call_waited_s
            row.call_waits_since = None if waited_s is None else now - seconds(waited_s)
        if isinstance(outcome, Rescheduled | Discarded) and outcome.args is not None:
            row.args = dict(outcome.args)
        match outcome:
            case Completed():
                row.result = outcome.result
                row.end(JobState.COMPLETED, now)
                replay_ended(self.database, row)
            case Cancelled():
                row.result = row.result or {"cancelled": outcome.reason}
                row.end(JobState.CANCELLED, now)
                replay_ended(self.database, row)
            case Rescheduled(failure=None):
                row.attempt -= 1
                row.streaks = dict(outcome.streaks) or row.streaks
                row.give_back(row.run_at if outcome.delay_s is None else now + seconds(outcome.delay_s))
            case Rescheduled():
                assert outcome.failure is not None
                assert outcome.delay_s is not None
                row.add_failure(failure_json(outcome.failure, now))
                row.streaks = dict(outcome.streaks)
                row.give_back(now + seconds(outcome.delay_s))
            case Discarded():
                save_progress(self.database, row)
                to_dead_letter(
                    self.database,
                    row,
                    outcome.failure,
                    dead_letter_id=outcome.dead_letter_id,
                    action_s=outcome.action_in_s,
                    connection_id=outcome.connection_id,
                    token_expires_at=outcome.token_expires_at,
                )

    # ---- maintenance ---------------------------------------------------------------------------

    @statement
    def expire_due(self, limit: int) -> int:
        now = self.database.now
        late = [
            row
            for row in self.database.jobs.values()
            if row.state is JobState.AVAILABLE and row.expires_at is not None and row.expires_at <= now
        ]
        for row in late[:limit]:
            if row.cancelling:  # it did not expire, so its history has no entry of that
                end_cancelled(self.database, row)
                continue
            reason = f"not run before its expiry at {row.expires_at:%Y-%m-%dT%H:%M:%SZ}"
            unrun_to_dead_letter(self.database, row, Category.PERMANENT_REQUEST, "expired", reason)
        return len(late[:limit])

    @statement
    def next_due_in_s(self, claims: ClaimFilter) -> float | None:
        usage = CapUsage(self.database)
        waits = [self._wait_s(row, usage) for row in self._available(claims)]
        return min((wait_s for wait_s in waits if wait_s is not None), default=None)

    def _wait_s(self, row: JobRow, usage: CapUsage) -> float | None:
        """Return the seconds until *row* can be claimed; None while its pause has no end, or if it has expired."""
        now, lane = self.database.now, lane_key(row)
        pauses = pauses_of(self.database, lane)
        ends_at = last_end(pauses) if pauses else now
        if ends_at is None or (row.expires_at is not None and row.expires_at <= now):
            return None
        wait_s = max(0.0, (max(row.run_at, ends_at) - now).total_seconds())
        return wait_s if usage.allows(lane) else max(wait_s, CAP_POLL_S)

    @statement
    def prune(self, retention_s: Mapping[str, float], limit: int) -> int:
        old = [row for row in self.database.jobs.values() if self._is_old(row, retention_s)][:limit]
        for row in old:
            del self.database.jobs[row.job_id]
        return len(old)

    def _is_old(self, row: JobRow, retention_s: Mapping[str, float]) -> bool:
        keep_s = retention_s.get(row.state.value)
        if row.finished_at is None or keep_s is None or holds_key(self.database, row):
            return False
        return row.finished_at + seconds(keep_s) < self.database.now

    async def listen(self, on_wake: Callable[[str], None]) -> Callable[[], Awaitable[None]]:
        await self.link.arrive("listen")
        self.database.listeners.append(on_wake)

        async def unlisten() -> None:
            self.database.listeners.remove(on_wake)

        return unlisten

    # ---- inspection ----------------------------------------------------------------------------

    @statement
    def get(self, job_id: UUID) -> JobView | None:
        row = self.database.jobs.get(job_id)
        return None if row is None else job_view(self.database, row)

    @statement
    def search(
        self, *, state: str | None, kind: str | None, tenant_id: str | None, queue: str | None, limit: int
    ) -> list[JobView]:
        filters = {"kind": kind, "tenant_id": tenant_id, "queue": queue}
        views = [
            job_view(self.database, row)
            for row in sorted(self.database.jobs.values(), key=lambda row: row.job_id, reverse=True)
            if all(value is None or getattr(row, name) == value for name, value in filters.items())
        ]
        return [view for view in views if state is None or state in (view.state, view.label)][:limit]

    @statement
    def retry_now(self, job_id: UUID, *, tenant_id: str | None = None) -> bool:
        row = self._one_of(tenant_id, job_id)
        if row is None or row.state is not JobState.AVAILABLE:
            return False
        row.run_at, row.follow_at = min(row.run_at, self.database.now), None
        return True

    @statement
    def cancel(
        self, job_id: UUID, reason: str, *, tenant_id: str | None = None, state: str | None = None
    ) -> str | None:
        row = self._one_of(tenant_id, job_id)
        if row is None or row.state not in OPEN or state not in (None, row.state):
            return None
        became = row.cancel(reason, self.database.now)
        replay_ended(self.database, row)
        return became

    def _one_of(self, tenant_id: str | None, job_id: UUID) -> JobRow | None:
        row = self.database.jobs.get(job_id)
        return row if row is not None and tenant_id in (None, row.tenant_id) else None

    @statement
    def counts(self) -> Mapping[str, int]:
        return Counter(job_view(self.database, row).label for row in self.database.jobs.values())
