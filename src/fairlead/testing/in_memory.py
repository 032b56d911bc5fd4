"""A Fairlead on stores in memory, for tests of your own jobs: no server, no waiting, no chance.

    async with MemoryFairlead(fl) as mem:
        await place_order(42)              # your code: it enqueues by fl, or by a handler's own enqueue
        (job,) = await mem.drain()         # run what is due
        assert job.result == {"sent": True}

While it is open everything that ``fl`` enqueues, reads and schedules happens here; the stores pass the same
contract suites as the real ones. Nothing runs by itself: ``drain`` runs what is due, one job after another,
and the clock stands still until ``drain(within_s=...)`` or ``advance`` moves it.
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

MOST_RUNS = 10_000
MOST_SHOWN = 100_000
LEASE_S = 30.0
HELD_LOOK_S = 1.0
"""How far to go on where work is due and may not be had."""


class Door(Protocol):
    """The part of a Fairlead that is used here."""

    @property
    def handlers(self) -> Sequence[Handler]: ...
    @property
    def schedules(self) -> Sequence[Schedule]: ...
    def _use_memory_stores(self, memory: Any) -> None: ...


class MemoryFairlead:
    """See the module. *start*: what the clock shows at first; default 2026-01-01 in UTC.

    Usable by ``async with`` and, from tests without asyncio, by ``with`` and ``asyncio.run(mem.drain())``.
    With a *transaction* jobs are stored at once, whatever becomes of it.
    """

    def __init__(self, fairlead: Door, *, start: datetime | None = None) -> None:
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
        self._raised: list[Exception] = []
        self.events: list[Event] = []
        """What was told to the logs, oldest first."""

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
        self, within_s: float = 0.0, *, raise_errors: bool = False, max_runs: int = MOST_RUNS
    ) -> list[JobView]:
        """Run what is due, and what becomes due by that; the jobs as each run left them, in order.

        With *within_s* the clock goes on from one due job, retry or run to the next, up to that many seconds
        (default 0: it stands still). *raise_errors*: raise what a handler raised where it counted as a
        failure (default False: it is in the job's ``failures``). *max_runs* bounds the runs, default 10,000;
        beyond it AssertionError, since jobs that make jobs may never end. Kinds without a handler stay.
        """
        executor, session_id = self._open_executor(), await self._session()
        wanted = ClaimFilter(queues=(), kinds=executor.kinds)
        ends_at = self._clock.monotonic() + within_s
        ran: list[JobView] = []
        while True:
            await self._take_runs(session_id)
            await self._jobs.expire_due(MOST_SHOWN)
            claimed = await self._jobs.claim(wanted, 1, session_id) if wanted.kinds else []
            if claimed:
                ran.append(await self._run(executor, claimed[0], raise_errors=raise_errors))
                assert len(ran) <= max_runs, f"{max_runs} runs, and no end: does a job make the next one?"
            elif not await self._pass_time(ends_at, wanted):
                return ran

    async def advance(self, delay_s: float) -> None:
        """Let *delay_s* seconds pass. Nothing runs by that: ``drain`` then does what is due."""
        await self._clock.advance(delay_s)

    @property
    def now(self) -> datetime:
        """What the clock shows."""
        return self._database.now

    # ---- looking -------------------------------------------------------------------------------

    async def job(self, job_id: UUID) -> JobView:
        """One job as it stands; NotFoundError where there is none."""
        job = await self._jobs.get(job_id)
        if job is None:
            raise NotFoundError(f"there is no job {job_id}", hint="was it enqueued while this was open?")
        return job

    async def jobs(
        self, *, kind: str | None = None, tenant: str | None = None, state: str | None = None
    ) -> list[JobView]:
        """Jobs as they stand, the oldest first; *state* as `fairlead jobs list --state` knows it."""
        found = await self._jobs.search(
            state=state, kind=kind, tenant_id=tenant, queue=None, limit=MOST_SHOWN
        )
        return found[::-1]

    async def dead_letters(self, *, kind: str | None = None, tenant: str | None = None) -> list[DeadLetter]:
        """Open dead letters."""
        return await self._dead_letters.search(
            status="pending_review", category=None, tenant_id=tenant, kind=kind, limit=MOST_SHOWN
        )

    async def pauses(self) -> list[PauseView]:
        """Pauses in force, as ``ctx.pause`` makes them."""
        return await self._lanes.pauses(MOST_SHOWN)

    # ---- giving --------------------------------------------------------------------------------

    def give_token(
        self, tenant: str, provider: str, access_token: str = "test-token", *, account: str = "default"
    ) -> PublicToken:
        """From now on ``fl.token`` finds this one; without, it raises NotFoundError.

        ``fl.refresh`` with its generation gives a further one, ``test-token-2`` and so on.
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
        self._raised.clear()
        outcome = await executor.run(job)
        await self._jobs.acknowledge([outcome])
        failed = isinstance(outcome, Rescheduled | Discarded) and outcome.failure is not None
        if raise_errors and failed and self._raised:
            raise self._raised[0]
        return await self.job(job.job_id)

    def _watched(self, handler: Handler) -> Handler:
        async def run(context: JobContext) -> object:
            try:
                return await handler.run(context)
            except Exception as error:
                self._raised.append(error)
                raise

        return replace(handler, run=run)

    async def _take_runs(self, session_id: UUID) -> None:
        heartbeat = cast(Heartbeat, _Alive(session_id))
        scheduler = Scheduler(self._schedule_store, heartbeat, ids=self._ids, emit=self.events.append)
        await scheduler.one_pass()

    async def _pass_time(self, ends_at: float, wanted: ClaimFilter) -> bool:
        """Move the clock to what comes next; False where nothing comes before *ends_at*."""
        left_s = ends_at - self._clock.monotonic()
        if left_s <= 0:
            return False
        waits = [await self._jobs.next_due_in_s(wanted)] if wanted.kinds else []
        waits += [self._until_run_s(schedule) for schedule in self._fairlead.schedules]
        wait_s = min([wait_s for wait_s in waits if wait_s is not None], default=left_s)
        await self._clock.advance(min(wait_s if wait_s > 0 else HELD_LOOK_S, left_s))
        return True

    def _until_run_s(self, schedule: Schedule) -> float | None:
        run_at = None if schedule.paused else next_run_at(schedule.expression, schedule.timezone, self.now)
        return None if run_at is None else (run_at - self.now).total_seconds()


# ---- in the place of a runtime's rooms -----------------------------------------------------------


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
    """Stores at once: memory knows nothing of anybody's transaction."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database

    async def store(self, connection: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return self.store_blocking(connection, jobs)

    def store_blocking(self, connection: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return [insert(self._database, job) for job in jobs]


class _Tokens:
    """Tokens that a test has given."""

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
    """For whoever waits for a job: time passes as fast as it is asked for, and nothing happens meanwhile."""

    def __init__(self) -> None:
        self._now = 0.0

    def monotonic(self) -> float:
        return self._now

    async def sleep(self, delay_s: float) -> None:
        self._now += delay_s
        await asyncio.sleep(0)

    def call_later(self, delay_s: float, act: Callable[[], None]) -> Callable[[], None]:
        return asyncio.get_running_loop().call_soon(act).cancel
