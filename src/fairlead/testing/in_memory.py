"""A Fairlead on stores in memory, for tests of your own jobs without servers, waiting or chance.

    async with MemoryFairlead(fl) as mem:
        await place_order(42)              # your code: it enqueues by fl, or by a handler's own enqueue
        (job,) = await mem.drain()         # run what is due
        assert job.result == {"sent": True}

While it is open, everything that ``fl`` enqueues, reads and schedules happens in memory; the stores pass the same
contract suites as the real ones. Nothing runs by itself: ``drain`` runs due jobs one after another, and the clock
stands still until ``drain(within_s=...)`` or ``advance`` moves it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from types import TracebackType
from typing import Any, Protocol, cast
from uuid import UUID

from fairlead._core.secret import Secret
from fairlead.engine.jobs.executor import Executor
from fairlead.engine.jobs.handler import Handler, JobContext
from fairlead.engine.jobs.heartbeat import Heartbeat
from fairlead.engine.jobs.scheduler import Scheduler
from fairlead.engine.ports import (
    ClaimFilter,
    ConnectionKey,
    DeadLetter,
    Discarded,
    Enqueued,
    Job,
    JobView,
    NewJob,
    PauseView,
    ProcessIdentity,
    Rescheduled,
    Schedule,
)
from fairlead.errors import InvalidConfigError, NotFoundError
from fairlead.events import Event
from fairlead.policy.jobs.cron import next_run_at
from fairlead.policy.tokens.token import PublicToken
from fairlead.testing._kit.clock import ManualClock
from fairlead.testing._kit.ids import CountedIds
from fairlead.testing._memory import (
    MemoryDatabase,
    MemoryDeadLetterStore,
    MemoryJobStore,
    MemoryLaneStore,
    MemoryScheduleStore,
    MemorySessionStore,
)
from fairlead.testing._memory.enqueue import insert

MAX_RUNS = 10_000
MAX_ROWS = 100_000
LEASE_S = 30.0
PAUSED_STEP_S = 1.0
"""How far to move the clock when due work is paused or capped."""


class FairleadParts(Protocol):
    """The parts of a Fairlead that `MemoryFairlead` uses."""

    @property
    def handlers(self) -> Sequence[Handler]: ...
    @property
    def schedules(self) -> Sequence[Schedule]: ...
    def _use_memory_stores(self, memory: Any) -> None: ...


class MemoryFairlead:
    """A Fairlead in memory, used by ``async with`` or ``with``.

    With a *transaction* jobs are stored at once, even if it is rolled back.

    Args:
        start: The first reading of the clock; default 2026-01-01 in UTC.
    """

    def __init__(self, fairlead: FairleadParts, *, start: datetime | None = None) -> None:
        self._fairlead = fairlead
        self._clock = ManualClock()
        ids = CountedIds()
        self._database = (
            MemoryDatabase(self._clock, ids, started=start) if start else MemoryDatabase(self._clock, ids)
        )
        link = self._database.link()
        self._jobs = MemoryJobStore(link)
        self._lanes = MemoryLaneStore(link)
        self._sessions = MemorySessionStore(link)
        self._schedule_store = MemoryScheduleStore(link)
        self._dead_letters = MemoryDeadLetterStore(link)
        self._tokens = _Tokens()
        self._ids = ids
        self._session_id: UUID | None = None
        self._executor: Executor | None = None
        self._errors: list[Exception] = []
        self.events: list[Event] = []
        """The events for the logs, oldest first."""

    def __enter__(self) -> MemoryFairlead:
        self._fairlead._use_memory_stores(
            _Stores(self._jobs, _Callers(self._database), self._tokens, self._ids, _NoTime())
        )
        self._executor = Executor(
            [self._watched(handler) for handler in self._fairlead.handlers],
            clock=self._clock,
            draw=lambda: 0.5,
            ids=self._ids,
            emit=self.events.append,
            pauses=self._lanes,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._fairlead._use_memory_stores(None)
        self._executor = None

    async def __aenter__(self) -> MemoryFairlead:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    # ---- running -------------------------------------------------------------------------------

    async def drain(
        self, within_s: float = 0.0, *, raise_errors: bool = False, max_runs: int = MAX_RUNS
    ) -> list[JobView]:
        """Run the due jobs and those that they make due, and return each job after its run, in order.

        Jobs without a handler are left alone.

        Args:
            within_s: Move the clock from one due job, retry or scheduled run to the next, up to that many seconds.
            raise_errors: Raise the error of a handler that counted as a failure; by default it is only in the
                job's ``failures``.
            max_runs: Raise AssertionError after so many runs, since jobs that enqueue jobs may never end.
        """
        executor, session_id = self._open_executor(), await self._session()
        claim_filter = ClaimFilter(queues=(), kinds=executor.kinds)
        ends_at = self._clock.monotonic() + within_s
        ran: list[JobView] = []
        while True:
            await self._enqueue_due_runs(session_id)
            await self._jobs.expire_due(MAX_ROWS)
            claimed = await self._jobs.claim(claim_filter, 1, session_id) if claim_filter.kinds else []
            if claimed:
                ran.append(await self._run(executor, claimed[0], raise_errors=raise_errors))
                assert len(ran) <= max_runs, f"{max_runs} runs, and no end: does a job make the next one?"
            elif not await self._pass_time(ends_at, claim_filter):
                return ran

    async def advance(self, delay_s: float) -> None:
        """Move the clock by *delay_s* seconds. Nothing runs until ``drain``."""
        await self._clock.advance(delay_s)

    @property
    def now(self) -> datetime:
        """The clock's reading."""
        return self._database.now

    # ---- reading -------------------------------------------------------------------------------

    async def job(self, job_id: UUID) -> JobView:
        """Return a job; raise NotFoundError if there is none."""
        job = await self._jobs.get(job_id)
        if job is None:
            raise NotFoundError(f"there is no job {job_id}", hint="was it enqueued while this was open?")
        return job

    async def jobs(
        self, *, kind: str | None = None, tenant: str | None = None, state: str | None = None
    ) -> list[JobView]:
        """Return jobs, the oldest first; *state* as for `fairlead jobs list --state`."""
        jobs = await self._jobs.search(state=state, kind=kind, tenant_id=tenant, queue=None, limit=MAX_ROWS)
        return jobs[::-1]

    async def dead_letters(self, *, kind: str | None = None, tenant: str | None = None) -> list[DeadLetter]:
        """Return open dead letters."""
        return await self._dead_letters.search(
            status="pending_review", category=None, tenant_id=tenant, kind=kind, limit=MAX_ROWS
        )

    async def pauses(self) -> list[PauseView]:
        """Return the pauses in force, which ``ctx.pause`` creates."""
        return await self._lanes.pauses(MAX_ROWS)

    # ---- tokens --------------------------------------------------------------------------------

    def give_token(
        self, tenant: str, provider: str, access_token: str = "test-token", *, account: str = "default"
    ) -> PublicToken:
        """Set the token that ``fl.token`` returns; without one it raises NotFoundError.

        ``fl.refresh`` with its generation returns the next one, ``test-token-2`` and so on.
        """
        return self._tokens.give(ConnectionKey(tenant, provider, account), access_token)

    # ---- one step ------------------------------------------------------------------------------

    def _open_executor(self) -> Executor:
        if self._executor is None:
            raise InvalidConfigError(
                "this MemoryFairlead is not open", hint="use it inside `async with` or `with`"
            )
        return self._executor

    async def _session(self) -> UUID:
        if self._session_id is None:
            self._session_id = self._ids.uuid7()
            identity = ProcessIdentity("memory", "boot", "pid", 1, "0")
            await self._sessions.open(self._session_id, identity, LEASE_S, "test")
            await self._schedule_store.sync_schedules(self._fairlead.schedules)
        return self._session_id

    async def _run(self, executor: Executor, job: Job, *, raise_errors: bool) -> JobView:
        self._errors.clear()
        outcome = await executor.run(job)
        await self._jobs.acknowledge([outcome])
        failed = isinstance(outcome, Rescheduled | Discarded) and outcome.failure is not None
        if raise_errors and failed and self._errors:
            raise self._errors[0]
        return await self.job(job.job_id)

    def _watched(self, handler: Handler) -> Handler:
        async def run(context: JobContext) -> object:
            try:
                return await handler.run(context)
            except Exception as error:
                self._errors.append(error)
                raise

        return replace(handler, run=run)

    async def _enqueue_due_runs(self, session_id: UUID) -> None:
        """Enqueue the jobs of all schedules with a due run, as a worker's scheduler does."""
        heartbeat = cast(Heartbeat, _Alive(session_id))
        scheduler = Scheduler(self._schedule_store, heartbeat, ids=self._ids, emit=self.events.append)
        await scheduler.one_pass()

    async def _pass_time(self, ends_at: float, claim_filter: ClaimFilter) -> bool:
        """Move the clock to the next due work, at most to *ends_at*, and return True; False if it is there already.

        Work that is due and still not claimed is paused or under a full cap, so the clock then moves one step.
        """
        remaining_s = ends_at - self._clock.monotonic()
        if remaining_s <= 0:
            return False
        waits = [await self._jobs.next_due_in_s(claim_filter)] if claim_filter.kinds else []
        waits += [self._until_run_s(schedule) for schedule in self._fairlead.schedules]
        wait_s = min([wait_s for wait_s in waits if wait_s is not None], default=remaining_s)
        await self._clock.advance(min(wait_s if wait_s > 0 else PAUSED_STEP_S, remaining_s))
        return True

    def _until_run_s(self, schedule: Schedule) -> float | None:
        run_at = None if schedule.paused else next_run_at(schedule.expression, schedule.timezone, self.now)
        return None if run_at is None else (run_at - self.now).total_seconds()


# ---- the parts of a runtime ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Stores:
    jobs: MemoryJobStore
    callers: _Callers
    reader: _Tokens
    ids: CountedIds
    clock: _NoTime


@dataclass(frozen=True, slots=True)
class _Alive:
    session_id: UUID


class _Callers:
    """A store for the caller's transactions that stores at once: memory has no transactions."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database

    async def store(self, connection: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return self.store_blocking(connection, jobs)

    def store_blocking(self, connection: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return [insert(self._database, job) for job in jobs]


class _Tokens:
    """The tokens that a test has set."""

    def __init__(self) -> None:
        self._tokens: dict[ConnectionKey, PublicToken] = {}
        self._texts: dict[ConnectionKey, str] = {}

    def give(self, key: ConnectionKey, text: str) -> PublicToken:
        self._texts[key] = text
        self._tokens[key] = PublicToken(Secret(text), "Bearer", None, None, None, generation=1)
        return self._tokens[key]

    async def token(self, key: ConnectionKey) -> PublicToken:
        if key not in self._tokens:
            hint = "give it one: mem.give_token(tenant, provider)"
            raise NotFoundError("no token was given", tenant=key.tenant, provider=key.provider, hint=hint)
        return self._tokens[key]

    async def refreshed_after(self, key: ConnectionKey, newer_than: int | None) -> PublicToken:
        token = await self.token(key)
        generation = token.generation or 1
        if newer_than is not None and generation <= newer_than:
            fresh = Secret(f"{self._texts[key]}-{newer_than + 1}")
            token = replace(token, access_token=fresh, generation=newer_than + 1)
            self._tokens[key] = token
        return token


class _NoTime:
    """A clock for code that waits for a job: each sleep returns at once, and nothing runs meanwhile."""

    def __init__(self) -> None:
        self._now = 0.0

    def monotonic(self) -> float:
        return self._now

    async def sleep(self, delay_s: float) -> None:
        self._now += delay_s
        await asyncio.sleep(0)

    def call_later(self, delay_s: float, act: Callable[[], None]) -> Callable[[], None]:
        return asyncio.get_running_loop().call_soon(act).cancel
