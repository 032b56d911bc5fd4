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
    priority_class: int | None = None
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

    __slots__ = (
        "_call_admitter",
        "_request",
        "_wait_end",
        "admitted_call",
        "connection",
        "counted",
        "plan",
        "retry",
    )

    def __init__(self, call_admitter: CallAdmitter, request: CallRequest, wait_end: bool) -> None:
        self._call_admitter = call_admitter
        self._request = request
        self._wait_end = wait_end
        self.admitted_call: AdmittedCall | None = None
        self.connection: Connection | None = None
        self.plan: Plan | None = None
        self.counted = self.retry = False

    async def __aenter__(self) -> Admission:
        try:
            return await self._call_admitter.begin(self._request, self)
        except BaseException as error:
            await self._leave(error)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._leave(error)

    async def _leave(self, error: BaseException | None) -> None:
        admitted_call, lost = self.admitted_call, None
        try:
            self._call_admitter.over(self._request, self)
        finally:
            if admitted_call is not None:
                lost = admitted_call.release_local(error)
                if not self._wait_end:
                    admitted_call.release_soon()
                else:
                    await admitted_call.release()
        if lost is not None:
            raise lost from None


class CallAdmitter:
    """One per process."""

    def __init__(
        self,
        read: ReadConnection,
        plans: Plans,
        admitter: Admitter,
        overrides: Overrides,
        learned_limits: LearnedLimitsWriter,
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
        self._admitter = admitter
        self._overrides = overrides
        self._learned_limits = learned_limits
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

    def enter(self, request: CallRequest, *, wait_end: bool = True) -> AdmissionContext:
        """The block runs admitted; see Admitter.enter. NotFoundError where there is no such connection.

        What people switched by hand comes first, also for a connection that only observes. *wait_end*: leave
        the block when the gate has said that what was taken is given back (default); else when that is on its
        way, which is a round trip earlier; see AdmittedCall.end.
        """
        return AdmissionContext(self, request, wait_end)

    async def begin(self, request: CallRequest, entering: AdmissionContext) -> Admission:
        """Get in, and note in *entering* what is to be undone at its end."""
        key = request.key
        if not self._takes_part:
            await self._in_time(self._ready(), request, "the gate")
            self._takes_part = True
        self._overrides.check(key)
        connection = self.known(key)
        if connection is None:
            connection = await self._in_time(self.connection(key), request, "its connection")
        call = self._plans.of(connection, request.api, request.host)
        context = current_job.get()
        entry = self._entry(request, call, context)
        if self._overrides.bypasses(key):
            self._retries.count(key)
            entering.counted = True
            return _unlimited(entry, call)
        retry = request.retry
        if retry is None:
            retry = context is not None and context.attempt > 1
        self._check(request, entry, call, retry=retry)
        if retry:
            self._retries.count(key, retry=True)
            entering.retry = True
        admitted_call = await self._admitted(request, entry, call)
        if admitted_call is None:
            admission = _unlimited(entry, call)
        else:
            admission, entering.admitted_call = admitted_call.admission, admitted_call
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

    async def _in_time(self, asked: Awaitable[T], request: CallRequest, what: str) -> T:
        """What is *asked* for, within the time of the call; DeadlineExceededError where it is not there then."""
        late = partial(
            DeadlineExceededError,
            f"{what} was not available before the call's deadline",
            tenant=request.key.tenant,
            provider=request.key.provider,
        )
        return await with_deadline(asked, self._clock, request.call_s, late)

    async def _admitted(
        self, request: CallRequest, entry: AdmissionRequest, call: CallPlan
    ) -> AdmittedCall | None:
        """None: it would have been refused, and is only observed."""
        began_s = self._clock.monotonic()
        try:
            admitted_call = await self._admitter.begin(entry)
            if self._turns:
                self._turns.pop((entry.reservation_id, request.operation), None)
            return admitted_call
        except LimitExceededError as refused:
            if call.observe:
                self._emit_observed(entry, refused)
                return None
            if (
                entry.reservation_id and request.cost is None
            ):  # a turn is identified by its cost, which changes
                if len(self._turns) >= _MOST_TURNS:
                    self._turns.clear()
                self._turns[entry.reservation_id, request.operation] = entry.costs
            if refused.reason in _WAITED_FOR:
                _note_wait(began_s)
            self._count(entry)
            raise

    def over(self, request: CallRequest, entering: AdmissionContext) -> None:
        """It runs no more: what was counted is uncounted, what was learnt is kept."""
        if entering.counted:
            self._retries.uncount(request.key)
        if entering.retry:
            self._retries.uncount(request.key, retry=True)
        admitted_call, plan, connection = entering.admitted_call, entering.plan, entering.connection
        if admitted_call is None or plan is None or connection is None:
            return
        admission = admitted_call.admission
        for limit in admission.ignored:
            if len(self._ignored) >= _MOST_TURNS:
                self._ignored.clear()
            self._ignored[request.key, limit] = total = self._ignored.get((request.key, limit), 0) + 1
            if total & (total - 1) == 0:  # the first one, then at growing intervals
                self._emit(LimitIgnored(request.key.tenant, request.key.provider, limit, total))
        if admission.observed or admission.observed_slots is not None:
            self._learned_limits.record(connection, plan, admission.observed, admission.observed_slots)
        for index, cost in admission.estimated_cost.items():
            bucket = plan.buckets[index]
            self._costs.record(_operation(request), bucket.name or bucket.key, cost)

    async def plan(self, key: ConnectionKey, api: str | None = None, host: str = "") -> CallPlan:
        """The limits of such a call. NotFoundError where there is no such connection."""
        return self._plans.of(await self.connection(key), api, host)

    def _check_again(self, key: ConnectionKey, admission: Admission) -> None:
        """It may have waited while somebody stopped its calls."""
        try:
            self._overrides.check(key)
        except LimitExceededError:
            admission.not_sent()
            raise

    def _check(self, request: CallRequest, entry: AdmissionRequest, call: CallPlan, *, retry: bool) -> None:
        """LimitExceededError where there is no need to ask anybody."""
        now_s = self._clock.monotonic()
        throttled_s = self._rapid.throttled_s(entry.tenant, now_s)
        if throttled_s is not None and not call.observe:
            raise _too_rapid(entry, throttled_s)
        if retry and not self._may_retry(request, now_s):
            refused = _too_many_retries(entry, RETRY_AGAIN_S * (1 + self._draw()))
            if not call.observe:
                raise refused
            self._emit_observed(entry, refused)

    def _may_retry(self, request: CallRequest, now_s: float) -> bool:
        """A job that was tried before makes many calls, each for the first time: their pace is no retry's."""
        if request.retry:
            return self._retries.takes_retry(request.key, now_s)
        return self._retries.may_retry(request.key)

    def _emit_observed(self, entry: AdmissionRequest, refused: LimitExceededError) -> None:
        reason = refused.reason or "unknown"
        self._emit(GateWouldRefuse(entry.tenant, entry.provider, reason, refused.retry_after_s))

    def _count(self, entry: AdmissionRequest) -> None:
        if self._rapid.refused(entry.tenant, self._clock.monotonic()):
            self._emit(TenantThrottled(entry.tenant, entry.provider, self._rapid.most))

    def _entry(self, request: CallRequest, call: CallPlan, context: JobContext | None) -> AdmissionRequest:
        entry = AdmissionRequest(
            call.plan,
            request.key.tenant,
            request.key.provider,
            costs=self._costs_of(request, call),
            priority_class=request.priority_class or 2,
            wait_s=call.inline_wait_s if request.wait_s is None else request.wait_s,
            call_s=request.call_s,
            existed_s=self._connections.existed_s(request.key) if call.own else math.inf,
            account=request.key.account,
            host=request.host,
            plan_now=partial(self._plan_now, request, call),
        )
        if call.observe:  # decided at once, and sent whatever the decision
            return entry._replace(wait_s=0.0)
        if context is None:
            return entry
        job, since_s = context.job, context._call_waiting_since
        reservation_id = (job.job_id.int ^ call.mark) & _MASK or 1
        return entry._replace(
            costs=entry.costs
            if request.cost is not None
            else self._turns.get((reservation_id, request.operation), entry.costs),
            job=str(job.job_id),
            waited_s=0.0 if since_s is None else self._clock.monotonic() - since_s,
            priority_class=request.priority_class or _CLASS[Priority(job.priority)],
            wait_s=min(entry.wait_s, context.remaining_s),
            reserve_ahead_s=BOOK_AHEAD_S,
            reservation_id=reservation_id,
            call_s=min(entry.call_s, max(1.0, context.remaining_s)),
        )

    def _plan_now(self, request: CallRequest, call: CallPlan) -> Plan:
        connection = self.known(request.key)
        return call.plan if connection is None else self._plans.of(connection, request.api, request.host).plan

    def _costs_of(self, request: CallRequest, call: CallPlan) -> tuple[float, ...]:
        if request.cost is not None:
            return (request.cost,) * len(call.plan.buckets)
        known = self._costs.of(_operation(request))
        if not known:
            return call.unknown_costs
        # Once the limit was larger: what it holds now must do.
        return tuple(
            min(known.get(bucket.name or bucket.key, UNKNOWN), bucket.capacity)
            for bucket in call.plan.buckets
        )

    def is_limited(self, key: ConnectionKey, api: str | None, host: str) -> bool:
        """Whether a refusal would keep such a call out: its limits are not switched off, nor observed."""
        if not self._overrides.enforces(key):
            return False
        connection = self.known(key)
        return connection is None or not self._plans.of(connection, api, host).observe


def _operation(request: CallRequest) -> Hashable:
    return request.key, request.api, request.operation


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
