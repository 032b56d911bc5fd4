"""Parts of the world without a safeguard of jobs or refreshes, as careless as the systems they come from."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from fairlead.engine.jobs.grant_waits import RunEnd
from fairlead.engine.ports import (
    ClaimFilter,
    ConnectionKey,
    Enqueued,
    HttpResponse,
    Job,
    NewJob,
    NoResponse,
    Outcome,
    Renewed,
    Rescheduled,
    SentMark,
    Settlement,
    SettleVerdict,
)
from fairlead.errors import DependencyUnavailableError
from fairlead.policy.jobs import job as asked
from fairlead.policy.jobs.states import JobState
from fairlead.policy.tokens.token import PublicToken
from fairlead.testing._memory.database import statement
from fairlead.testing._memory.enqueue import insert
from fairlead.testing._memory.lane_turns import is_wanted, settle
from fairlead.testing._memory.rows import JobRow, SessionRow
from tests.simulation.stores import Parts, WatchedJobs, WatchedSessions, plain
from tests.simulation.watch import Freed
from tests.support.memory_credentials import MemoryCredentialStore

# ---- jobs --------------------------------------------------------------------------------------


class NoFence(WatchedJobs):
    """An outcome is taken from whoever brings it."""

    def _leased(self, job_id: UUID, lease_id: int) -> JobRow | None:
        return self.database.jobs.get(job_id)


class ReplaysCommits(WatchedJobs):
    """What was committed and not answered is sent again as a new transaction."""

    async def enqueue(self, jobs: Iterable[NewJob]) -> list[Enqueued]:
        new_jobs = list(jobs)
        try:
            return await super().enqueue(new_jobs)
        except DependencyUnavailableError:
            again = [replace(job, job_id=self.database.ids.uuid7()) for job in new_jobs]
            return [insert(self.database, job) for job in again]


class FirstComeFirstServed(WatchedJobs):
    """The longest due first, whoever's it is."""

    async def claim(self, claim_filter: ClaimFilter, demand: int, session_id: UUID) -> list[Job]:
        await self.link.arrive("claim")
        self._hand_back_lost()
        claimed_rows = self._due(claim_filter)[:demand] if self.database.is_open(session_id) else []
        for row in claimed_rows:
            row.started_at = self.database.now
        jobs = [self._claimed(row, session_id) for row in claimed_rows]
        await self._answer_claim("claim", jobs)
        return jobs

    def _due(self, claim_filter: ClaimFilter) -> list[JobRow]:
        lanes = settle(self.database).items()
        due = [row for lane, rows in lanes for row in rows if is_wanted(lane, claim_filter)]
        return sorted(due, key=lambda row: (row.run_at, row.job_id))


class FailuresAreForgotten(WatchedJobs):
    """A failure lengthens no streak: each that comes is the first of its category."""

    def _write(self, row: JobRow, outcome: Outcome) -> None:
        if isinstance(outcome, Rescheduled) and outcome.failure is not None:
            outcome = replace(outcome, streaks=row.streaks)
        super()._write(row, outcome)


class CrashesAreFree(WatchedSessions):
    """A rescue counts for nothing."""

    def _rescue_one(self, row: JobRow, max_crashes: int) -> bool:
        row.crash_count = 0
        return super()._rescue_one(row, max_crashes)


class DeclaresAtOnce(WatchedSessions):
    """Silence is silence, though nobody could be heard."""

    def _is_sure(self, row: SessionRow, since: datetime) -> bool:
        return True


class HasNothingToGiveBack(WatchedSessions):
    """A claim takes the job out of the store, so what the dead held is gone with them."""

    def _rescue_one(self, row: JobRow, max_crashes: int) -> bool:
        self.watch.tell(Freed(row.job_id, row.lease_id, crash=row.started_at is not None))
        del self.database.jobs[row.job_id]
        return False


class GivesBackEverybodys(WatchedSessions):
    """Who stops gives back all that runs, whoever runs it."""

    @statement
    def close(self, session_id: UUID) -> None:
        for row in self.database.jobs.values():
            if row.state is JobState.RUNNING:
                row.session_id = session_id
        plain(WatchedSessions.close)(self, session_id)


def silent_while_it_works(program: Any) -> None:
    """No sign of life while a handler runs."""
    ask = program.sessions.heartbeat

    async def heartbeat(session_id: UUID, *more: Any) -> Renewed | None:
        if program.desk.running:
            raise DependencyUnavailableError("nobody asked")
        renewed: Renewed | None = await ask(session_id, *more)
        return renewed

    program.sessions.heartbeat = heartbeat


def cut_off_as(answer: asked.Outcome) -> Callable[[], Parts]:
    """Whatever runs into its timeout ends as if its handler had answered so."""

    def alter(program: Any) -> None:
        decider = program.executor._decider
        decide = decider.decide

        def decided(job: Job, run_end: RunEnd, ran_s: float) -> Outcome:
            timed_out = isinstance(run_end, asked.Retry) and run_end.failure.timed_out_after_s is not None
            outcome: Outcome = decide(job, answer if timed_out else run_end, ran_s)
            return outcome

        decider.decide = decided

    return lambda: Parts(alter=alter)


# ---- refreshes ---------------------------------------------------------------------------------


class LockByTime(MemoryCredentialStore):
    """A lock with an end in the place of intent and SENT mark: whoever comes after its end sends."""

    @statement
    def mark_sent(self, connection_id: UUID, attempt_id: UUID) -> SentMark | None:
        attempt, now = self._held(connection_id, attempt_id), self.database.now
        return None if attempt is None else SentMark(now, now)


class SavesWhateverStands(MemoryCredentialStore):
    """An answer is stored though another has been meanwhile."""

    @statement
    def settle(self, settlement: Settlement) -> SettleVerdict:
        row = self.database.tokens.credentials.get(settlement.connection_id)
        if row is not None:
            row.generation, row.settled_epoch = settlement.from_generation, 0
        verdict: SettleVerdict = plain(MemoryCredentialStore.settle)(
            self, replace(settlement, expected_sealed=None)
        )
        return verdict


class KeepsThePlaceOfTheMark(MemoryCredentialStore):
    """A send that left late counts as of its mark."""

    @statement
    def mark_late(self, connection_id: UUID, from_generation: int, left_at: datetime) -> int | None:
        return None


def takes_refusals_for_losses(program: Any) -> None:
    """A complete 429 or 503 leaves open what became of the token."""
    sender = program.coordinator._sender
    post = sender._post

    async def posted(*args: Any) -> HttpResponse | NoResponse:
        answer: HttpResponse | NoResponse = await post(*args)
        if isinstance(answer, HttpResponse) and answer.status in (429, 503):
            return NoResponse(sent=True, kind="reset", why="the answer did not come")
        return answer

    sender._post = posted


def replays_at_once(program: Any) -> None:
    """A replay does not ask whether the send before it may still be under way."""
    program.unknown._settings = replace(program.unknown._settings, request_deadline_s=0.0)


def with_tokens_of_no_tenant(program: Any) -> None:
    """What is kept in memory is kept without its tenant: whoever asks is served the first that is there."""
    ask, cache = program.reader.cached, program.reader._cache

    def cached(key: ConnectionKey) -> PublicToken | None:
        tokens = (ask(session) for session in [*cache])
        return next((token for token in tokens if token is not None), None)

    program.reader.cached = cached
