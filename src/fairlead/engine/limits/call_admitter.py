"""The way in for calls by connection: which limits, how long to wait, and what a job does meanwhile (C7).

Outside of a job the caller says how long it waits. Inside one it waits for a moment only; then it takes a
turn, and LimitExceededError ends the run: the job goes back into its place, its group waits for that turn, and its
worker is free for others.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import TypeVar

from fairlead._core.clock import Clock, Draw
from fairlead.engine.base.timing import with_deadline
from fairlead.engine.jobs.handler import JobContext, current_job
from fairlead.engine.limits.admission import Admission
from fairlead.engine.limits.admitter import AdmissionRequest, AdmittedCall, Admitter
from fairlead.engine.limits.connection_cache import ConnectionCache, ReadConnection
from fairlead.engine.limits.learned_limits import LearnedLimitsWriter
from fairlead.engine.limits.limit_plans import CallPlan, Plans
from fairlead.engine.limits.observations import LimitIgnored
from fairlead.engine.limits.override_cache import Overrides
from fairlead.engine.ports import Connection, ConnectionKey
from fairlead.engine.ports.gate import Admitted
from fairlead.errors import DeadlineExceededError, InvalidInputError, LimitExceededError
from fairlead.events import Emit, GateWouldRefuse, TenantThrottled
from fairlead.policy.jobs.job import Priority
from fairlead.policy.limits.estimate import UNKNOWN, CostEstimates
from fairlead.policy.limits.limit import MAX_LEASE_S, MAX_UNITS, Plan
from fairlead.policy.limits.refusal_throttle import RefusalThrottle
from fairlead.policy.limits.retry_budget import RetryBudget
from fairlead.policy.text.names import shown
from fairlead.policy.text.number import number_of

BOOK_AHEAD_S = 900.0
"""How far ahead a job takes a turn, to come back for it."""
CALL_S = 60.0
RETRY_AGAIN_S = 1.0
"""When a retry that its budget refused is to come back, at the earliest; twice that at the latest."""
_MASK = (1 << 63) - 1
_MOST_TURNS = 10_000
_WAITED_FOR = ("slot", "quota")
"""Reasons of a refusal that put a call in line: a rate gives each its turn instead."""
_CLASS = {Priority.CRITICAL: 1, Priority.URGENT: 1, Priority.NORMAL: 2, Priority.LOW: 3}

T = TypeVar("T")


@dataclass(slots=True)  # not to be changed; frozen, each field would cost a call 0.1 us
class CallRequest:
    """What a caller wants to send. None: as its job has it, else the default."""

    key: ConnectionKey
    api: str | None = None
    host: str = ""
    cost: float | None = None
    """Units of each limit that it meets; None: as calls of its *operation* cost before, one at first."""
    class_number: int | None = None
    wait_s: float | None = None
    call_s: float = CALL_S
    retry: bool | None = None
    """Whether the call was tried before; None: as the job was, of which it is a part."""
    operation: str = ""
    """Calls of one operation cost alike."""

    def __post_init__(self) -> None:
        """InvalidInputError for a cost or a wait that is none: less than nothing would fill the buckets."""
        most = (("cost", self.cost, MAX_UNITS), ("wait_s", self.wait_s, MAX_LEASE_S))
        for name, value, limit in most:
            if value is not None and not 0 <= number_of(value) <= limit:  # NaN fails this comparison
                text = f"{value:g}" if type(value) in (int, float) else shown(value)
                raise InvalidInputError(
                    f"{name} is {text}",
                    tenant=self.key.tenant,
                    provider=self.key.provider,
                    hint=f"give 0 to {limit:g}",
                )


class AdmissionContext:
    """What `CallAdmitter.enter` gives: a block, and what is to be undone whatever way it ends."""

    __slots__ = ("_entrance", "_wait_end", "_wish", "connection", "counted", "inside", "plan", "retry")

    def __init__(self, entrance: CallAdmitter, wish: CallRequest, wait_end: bool) -> None:
        self._entrance = entrance
        self._wish = wish
        self._wait_end = wait_end
        self.inside: AdmittedCall | None = None
        self.connection: Connection | None = None
        self.plan: Plan | None = None
        self.counted = self.retry = False

    async def __aenter__(self) -> Admission:
        try:
            return await self._entrance.begin(self._wish, self)
        except BaseException as error:
            await self._leave(error)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._leave(error)

    async def _leave(self, error: BaseException | None) -> None:
        inside, lost = self.inside, None
        try:
            self._entrance.over(self._wish, self)
        finally:
            if inside is not None:
                lost = inside.let_go(error)
                if not self._wait_end:
                    inside.end()
                else:
                    await inside.ended()
        if lost is not None:
            raise lost from None


class CallAdmitter:
    """One per process."""

    def __init__(
        self,
        read: ReadConnection,
        plans: Plans,
        admissions: Admitter,
        switches: Overrides,
        notebook: LearnedLimitsWriter,
        *,
        ready: Callable[[], Awaitable[None]],
        clock: Clock,
        draw: Draw,
        emit: Emit,
    ) -> None:
        self._connections = ConnectionCache(read, clock=clock, emit=emit)
        self.known = (
            self._connections.known
        )  # each call asks: another method around it would cost all of them
        self.connection = self._connections.connection
        self._plans = plans
        self._admissions = admissions
        self._switches = switches
        self._notebook = notebook
        self._ready = ready
        self._clock = clock
        self._draw = draw
        self._emit = emit
        self._rapid = RefusalThrottle()
        self._retries = RetryBudget()
        self._costs = CostEstimates()
        self._ignored: dict[tuple[ConnectionKey, str], int] = {}
        self._turns: dict[tuple[int, str], tuple[float, ...]] = {}
        self._takes_part = False

    def enter(self, wish: CallRequest, *, wait_end: bool = True) -> AdmissionContext:
        """The block runs admitted; see Admitter.enter. NotFoundError where there is no such connection.

        What people switched by hand comes first, also for a connection that only observes. *wait_end*: leave
        the block when the gate has said that what was taken is given back (default); else when that is on its
        way, which is a round trip earlier; see AdmittedCall.end.
        """
        return AdmissionContext(self, wish, wait_end)

    async def begin(self, wish: CallRequest, entering: AdmissionContext) -> Admission:
        """Get in, and note in *entering* what is to be undone at its end."""
        key = wish.key
        if not self._takes_part:
            await self._in_time(self._ready(), wish, "the gate")
            self._takes_part = True
        self._switches.check(key)
        connection = self.known(key)
        if connection is None:
            connection = await self._in_time(self.connection(key), wish, "its connection")
        call = self._plans.of(connection, wish.api, wish.host)
        context = current_job.get()
        entry = self._entry(wish, call, context)
        if self._switches.lets_by(key):
            self._retries.count(key)
            entering.counted = True
            return _unlimited(entry, call)
        retry = wish.retry
        if retry is None:
            retry = context is not None and context.attempt > 1
        self._check(wish, entry, call, retry=retry)
        if retry:
            self._retries.count(key, retry=True)
            entering.retry = True
        inside = await self._admitted(wish, entry, call)
        if inside is None:
            admission = _unlimited(entry, call)
        else:
            admission, entering.inside = inside.admission, inside
            entering.connection, entering.plan = connection, call.plan
            admission.dialect, admission.doubts = call.dialect, call.doubts
            self._check_again(key, admission)
            if context is not None:
                context._call_waiting_since = None
            if not retry:
                self._retries.note_first(key, self._clock.monotonic())
        self._retries.count(key)
        entering.counted = True
        return admission

    async def _in_time(self, asked: Awaitable[T], wish: CallRequest, what: str) -> T:
        """What is *asked* for, within the time of the call; DeadlineExceededError where it is not there then."""
        late = partial(
            DeadlineExceededError,
            f"{what} was not available before the call's deadline",
            tenant=wish.key.tenant,
            provider=wish.key.provider,
        )
        return await with_deadline(asked, self._clock, wish.call_s, late)

    async def _admitted(
        self, wish: CallRequest, entry: AdmissionRequest, call: CallPlan
    ) -> AdmittedCall | None:
        """None: it would have been refused, and is only observed."""
        began_s = self._clock.monotonic()
        try:
            inside = await self._admissions.begin(entry)
            if self._turns:
                self._turns.pop((entry.booking, wish.operation), None)
            return inside
        except LimitExceededError as refused:
            if call.observe:
                self._emit_observed(entry, refused)
                return None
            if entry.booking and wish.cost is None:  # a turn is identified by its cost, which changes
                if len(self._turns) >= _MOST_TURNS:
                    self._turns.clear()
                self._turns[entry.booking, wish.operation] = entry.costs
            if refused.reason in _WAITED_FOR:
                _note_wait(began_s)
            self._count(entry)
            raise

    def over(self, wish: CallRequest, entering: AdmissionContext) -> None:
        """It runs no more: what was counted is uncounted, what was learnt is kept."""
        if entering.counted:
            self._retries.uncount(wish.key)
        if entering.retry:
            self._retries.uncount(wish.key, retry=True)
        inside, plan, connection = entering.inside, entering.plan, entering.connection
        if inside is None or plan is None or connection is None:
            return
        admission = inside.admission
        for limit in admission.ignored:
            if len(self._ignored) >= _MOST_TURNS:
                self._ignored.clear()
            self._ignored[wish.key, limit] = total = self._ignored.get((wish.key, limit), 0) + 1
            if total & (total - 1) == 0:  # the first one, then at growing intervals
                self._emit(LimitIgnored(wish.key.tenant, wish.key.provider, limit, total))
        if admission.observed or admission.observed_slots is not None:
            self._notebook.heard(connection, plan, admission.observed, admission.observed_slots)
        for index, cost in admission.estimated_cost.items():
            bucket = plan.buckets[index]
            self._costs.heard(_operation(wish), bucket.name or bucket.key, cost)

    async def plan(self, key: ConnectionKey, api: str | None = None, host: str = "") -> CallPlan:
        """The limits of such a call. NotFoundError where there is no such connection."""
        return self._plans.of(await self.connection(key), api, host)

    def _check_again(self, key: ConnectionKey, admission: Admission) -> None:
        """It may have waited while somebody stopped its calls."""
        try:
            self._switches.check(key)
        except LimitExceededError:
            admission.not_sent()
            raise

    def _check(self, wish: CallRequest, entry: AdmissionRequest, call: CallPlan, *, retry: bool) -> None:
        """LimitExceededError where there is no need to ask anybody."""
        now_s = self._clock.monotonic()
        throttled_s = self._rapid.throttled_s(entry.tenant, now_s)
        if throttled_s is not None and not call.observe:
            raise _too_rapid(entry, throttled_s)
        if retry and not self._may_retry(wish, now_s):
            refused = _too_many_retries(entry, RETRY_AGAIN_S * (1 + self._draw()))
            if not call.observe:
                raise refused
            self._emit_observed(entry, refused)

    def _may_retry(self, wish: CallRequest, now_s: float) -> bool:
        """A job that was tried before makes many calls, each for the first time: their pace is no retry's."""
        if wish.retry:
            return self._retries.takes_retry(wish.key, now_s)
        return self._retries.may_retry(wish.key)

    def _emit_observed(self, entry: AdmissionRequest, refused: LimitExceededError) -> None:
        reason = refused.reason or "unknown"
        self._emit(GateWouldRefuse(entry.tenant, entry.provider, reason, refused.retry_after_s))

    def _count(self, entry: AdmissionRequest) -> None:
        if self._rapid.refused(entry.tenant, self._clock.monotonic()):
            self._emit(TenantThrottled(entry.tenant, entry.provider, self._rapid.most))

    def _entry(self, wish: CallRequest, call: CallPlan, context: JobContext | None) -> AdmissionRequest:
        entry = AdmissionRequest(
            call.plan,
            wish.key.tenant,
            wish.key.provider,
            costs=self._costs_of(wish, call),
            class_number=wish.class_number or 2,
            wait_s=call.inline_wait_s if wish.wait_s is None else wish.wait_s,
            call_s=wish.call_s,
            existed_s=self._connections.existed_s(wish.key) if call.own else math.inf,
            account=wish.key.account,
            host=wish.host,
            plan_now=partial(self._plan_now, wish, call),
        )
        if call.observe:  # decided at once, and sent whatever the decision
            return entry._replace(wait_s=0.0)
        if context is None:
            return entry
        job, since_s = context.job, context._call_waiting_since
        booking = (job.job_id.int ^ call.mark) & _MASK or 1
        return entry._replace(
            costs=entry.costs
            if wish.cost is not None
            else self._turns.get((booking, wish.operation), entry.costs),
            job=str(job.job_id),
            since_s=0.0 if since_s is None else self._clock.monotonic() - since_s,
            class_number=wish.class_number or _CLASS[Priority(job.priority)],
            wait_s=min(entry.wait_s, context.remaining_s),
            book_s=BOOK_AHEAD_S,
            booking=booking,
            call_s=min(entry.call_s, max(1.0, context.remaining_s)),
        )

    def _plan_now(self, wish: CallRequest, call: CallPlan) -> Plan:
        connection = self.known(wish.key)
        return call.plan if connection is None else self._plans.of(connection, wish.api, wish.host).plan

    def _costs_of(self, wish: CallRequest, call: CallPlan) -> tuple[float, ...]:
        if wish.cost is not None:
            return (wish.cost,) * len(call.plan.buckets)
        known = self._costs.of(_operation(wish))
        if not known:
            return call.unknown_costs
        # Once the limit was larger: what it holds now must do.
        return tuple(
            min(known.get(bucket.name or bucket.key, UNKNOWN), bucket.capacity)
            for bucket in call.plan.buckets
        )

    def is_limited(self, key: ConnectionKey, api: str | None, host: str) -> bool:
        """Whether a refusal would keep such a call out: its limits are not switched off, nor observed."""
        if not self._switches.limits(key):
            return False
        connection = self.known(key)
        return connection is None or not self._plans.of(connection, api, host).observe


def _operation(wish: CallRequest) -> Hashable:
    return wish.key, wish.api, wish.operation


def _note_wait(began_s: float) -> None:
    """Record, within a job, that a call waits since *began_s* or since an earlier refusal."""
    context = current_job.get()
    if context is not None and context._call_waiting_since is None:
        context._call_waiting_since = began_s


def _unlimited(entry: AdmissionRequest, call: CallPlan) -> Admission:
    """A passage that holds nothing."""
    nothing = Admitted(Plan(entry.plan.domain), None, 0, 0, (), ())
    return Admission(nothing, 0.0, dialect=call.dialect)


def _too_rapid(entry: AdmissionRequest, wait_s: float) -> LimitExceededError:
    what = "the tenant asks again and again without waiting as it is told"
    return _refused(entry, what, wait_s, "rapid", "wait for retry_after_s before asking again")


def _too_many_retries(entry: AdmissionRequest, wait_s: float) -> LimitExceededError:
    hint = "wait for retry_after_s; a fifth of the calls in flight may be retries, and three always may"
    return _refused(entry, "too many of the connection's calls are retries already", wait_s, "retries", hint)


def _refused(entry: AdmissionRequest, what: str, wait_s: float, reason: str, hint: str) -> LimitExceededError:
    return LimitExceededError(
        what, tenant=entry.tenant, provider=entry.provider, retry_after_s=wait_s, reason=reason, hint=hint
    )
