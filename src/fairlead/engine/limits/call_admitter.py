"""Admission of the calls of a connection: their limits, how long they wait, and what a job does meanwhile.

Outside a job the caller says how long to wait. Inside a job the call waits for a moment only. Then it makes a
reservation, and LimitExceededError ends the run: the job goes back into its lane, its group waits until the
reservation is due, and its worker is free for other jobs. Spec: C7.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from types import TracebackType
from typing import TypeVar

from fairlead._core.clock import Clock, Draw
from fairlead.engine.base.timing import with_deadline
from fairlead.engine.jobs.handler import JobContext, current_job
from fairlead.engine.limits.admission import Admission, AdmissionRequest, AdmittedCall, CallRequest
from fairlead.engine.limits.admitter import Admitter
from fairlead.engine.limits.connection_cache import ConnectionCache, ReadConnection
from fairlead.engine.limits.learned_limits import LearnedLimitsWriter
from fairlead.engine.limits.limit_plans import CallPlan, Plans
from fairlead.engine.limits.observations import LimitIgnored
from fairlead.engine.limits.override_cache import Overrides
from fairlead.engine.ports import Admitted, Connection, ConnectionKey
from fairlead.errors import DeadlineExceededError, LimitExceededError, SlotLostError
from fairlead.events import Emit, GateWouldRefuse, TenantThrottled
from fairlead.policy.jobs.job import Priority
from fairlead.policy.limits.estimate import UNKNOWN, CostEstimates
from fairlead.policy.limits.limit import Plan
from fairlead.policy.limits.refusal_throttle import RefusalThrottle
from fairlead.policy.limits.retry_budget import RetryBudget
from fairlead.policy.reasons import limit_reasons

RESERVE_AHEAD_S = 900.0
"""How far ahead a job reserves units, to come back for them."""
RETRY_AGAIN_S = 1.0
"""The least delay after which a retry without budget may come back; the most is twice that."""
_MASK = (1 << 63) - 1
_MAX_ENTRIES = 10_000
_QUEUE_REASONS = ("slot", "quota")
"""Reasons of a refusal after which a call queues. A rate limit reserves units instead."""
_PRIORITY_CLASSES = {Priority.CRITICAL: 1, Priority.URGENT: 1, Priority.NORMAL: 2, Priority.LOW: 3}

T = TypeVar("T")


class AdmittedBlock:
    """The context manager of `CallAdmitter.enter`. A generator in its place would cost 4 us."""

    __slots__ = ("_admission", "_admitter", "_request")

    def __init__(self, admitter: CallAdmitter, request: CallRequest) -> None:
        self._admitter = admitter
        self._request = request
        self._admission: AdmittedCall

    async def __aenter__(self) -> Admission:
        self._admission = admission = await self._admitter.admit(self._request)
        return admission

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if lost := await self._admitter.release(self._admission, error):
            raise lost from None


class CallAdmitter:
    """Admits the calls of one process."""

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
        # Looked up by every call: a method around it would cost all of them.
        self.cached_connection = self._connections.cached
        self.connection = self._connections.connection
        self._plans = plans
        self._admitter = admitter
        self._overrides = overrides
        self._learned_limits = learned_limits
        self._ready = ready
        self._clock = clock
        self._draw = draw
        self._emit = emit
        self._throttle = RefusalThrottle()
        self._retries = RetryBudget()
        self._costs = CostEstimates()
        self._ignored: dict[tuple[ConnectionKey, str], int] = {}
        self._reserved_costs: dict[tuple[int, str], tuple[float, ...]] = {}
        self._is_ready = False

    def enter(self, request: CallRequest) -> AdmittedBlock:
        """Return a context manager that runs its block admitted, by `admit` and `release`.

        A block that loses its slot is cancelled, and SlotLostError raised.
        """
        return AdmittedBlock(self, request)

    async def admit(self, request: CallRequest) -> AdmittedCall:
        """Wait until every limit admits the call. The caller has to `release` it, or to `release_soon`.

        Overrides apply first, also for a connection that only observes.

        Raises:
            LimitExceededError, LimiterUnavailableError, DeadlineExceededError: It is not admitted, and holds nothing.
            NotFoundError: There is no such connection.
        """
        key = request.key
        if not self._is_ready:
            await self._before_deadline(self._ready(), request, "the gate")
            self._is_ready = True
        self._overrides.check(key)
        connection = self.cached_connection(key)
        if connection is None:
            connection = await self._before_deadline(self.connection(key), request, "its connection")
        call = self._plans.of(connection, request.api, request.host)
        job = current_job.get()
        entry = self._admission_request(request, call, job)
        if self._overrides.bypasses(key):
            return self._count_in_flight(_unlimited(entry, call), request, retry=False)
        retry = request.retry
        if retry is None:
            retry = job is not None and job.attempt > 1
        self._check_locally(request, entry, call, retry=retry)
        if not retry:
            admission = await self._admit_by_limits(request, entry, call, connection, job)
            if admission.plan is not None:
                self._retries.count_first_attempt(key, self._clock.monotonic())
            return self._count_in_flight(admission, request, retry=False)
        self._retries.start(key, retry=True)
        try:
            admission = await self._admit_by_limits(request, entry, call, connection, job)
        except BaseException:
            self._retries.end(key, retry=True)
            raise
        return self._count_in_flight(admission, request, retry=True)

    def _count_in_flight(self, admission: AdmittedCall, request: CallRequest, *, retry: bool) -> AdmittedCall:
        """Count a call in flight, until `_finish`."""
        admission.call, admission.retry = request, retry
        self._retries.start(request.key)
        return admission

    async def _admit_by_limits(
        self,
        request: CallRequest,
        entry: AdmissionRequest,
        call: CallPlan,
        connection: Connection,
        job: JobContext | None,
    ) -> AdmittedCall:
        """Admit the call by its limits. If they are only observed, a refused call runs without them."""
        began_mono = self._clock.monotonic()
        try:
            admission = await self._admitter.admit(entry)
        except LimitExceededError as refused:
            if call.observe:
                self._emit_observed(entry, refused)
                return _unlimited(entry, call)
            self._record_refusal(request, entry, refused, began_mono)
            raise
        if self._reserved_costs:
            self._reserved_costs.pop((entry.reservation_id, request.operation), None)
        admission.connection, admission.plan = connection, call.plan
        admission.dialect, admission.doubts = call.dialect, call.doubts
        try:
            self._overrides.check(request.key)  # one may have stopped the connection's calls meanwhile
        except LimitExceededError:
            admission.not_sent()
            self._admitter.release_local(admission)
            await self._admitter.release(admission)
            raise
        if job is not None:
            job._call_waiting_since = None
        return admission

    def release_soon(
        self, admission: AdmittedCall, error: BaseException | None = None
    ) -> SlotLostError | None:
        """End the call with *error*, and start to release it at the gate; see `Admitter.release_soon`.

        Returns:
            The error to raise if *error* is the cancellation of a call that lost its slot.
        """
        lost = self._admitter.release_local(admission, error)
        try:
            self._record_end(admission)
        finally:
            if admission.plan is not None:
                self._admitter.release_soon(admission)
        return lost

    async def release(
        self, admission: AdmittedCall, error: BaseException | None = None
    ) -> SlotLostError | None:
        """End the call as `release_soon` does, and wait until the gate has confirmed its release."""
        lost = self._admitter.release_local(admission, error)
        try:
            self._record_end(admission)
        finally:
            if admission.plan is not None:
                await self._admitter.release(admission)
        return lost

    async def _before_deadline(self, query: Awaitable[T], request: CallRequest, noun: str) -> T:
        """Return the result of *query*; raise DeadlineExceededError if it takes longer than the call may."""
        late = partial(
            DeadlineExceededError,
            f"{noun} was not available before the call's deadline",
            tenant=request.key.tenant,
            provider=request.key.provider,
        )
        return await with_deadline(query, self._clock, request.call_s, late)

    def _record_refusal(
        self, request: CallRequest, entry: AdmissionRequest, refused: LimitExceededError, began_mono: float
    ) -> None:
        """Record what the next attempt of a refused call, and the throttle of its tenant, need to know."""
        # A reservation is identified by its cost, and a learned cost may change.
        if entry.reservation_id and request.cost is None:
            if len(self._reserved_costs) >= _MAX_ENTRIES:
                self._reserved_costs.clear()
            self._reserved_costs[entry.reservation_id, request.operation] = entry.costs
        if refused.reason in _QUEUE_REASONS:
            _record_wait(began_mono)
        if self._throttle.record_refusal(entry.tenant, self._clock.monotonic()):
            self._emit(TenantThrottled(entry.tenant, entry.provider, self._throttle.max_refused))

    def _record_end(self, admission: AdmittedCall) -> None:
        """Stop counting a call that has ended, and record the limits and costs that its response states."""
        request, plan, connection = admission.call, admission.plan, admission.connection
        assert request is not None
        self._retries.end(request.key)
        if admission.retry:  # counted a second time, among the retries in flight
            self._retries.end(request.key, retry=True)
        if plan is None or connection is None:
            return
        for limit in admission.ignored:
            self._count_ignored(request.key, limit)
        if admission.observed or admission.observed_slots is not None:
            self._learned_limits.record(connection, plan, admission.observed, admission.observed_slots)
        for index, cost in admission.estimated_cost.items():
            bucket = plan.buckets[index]
            self._costs.record(_operation(request), bucket.name or bucket.key, cost)

    def _count_ignored(self, key: ConnectionKey, limit: str) -> None:
        """Count a limit in a response that was ignored, and report it at growing intervals."""
        if len(self._ignored) >= _MAX_ENTRIES:
            self._ignored.clear()
        self._ignored[key, limit] = total = self._ignored.get((key, limit), 0) + 1
        if total & (total - 1) == 0:  # the first one, then at growing intervals
            self._emit(LimitIgnored(key.tenant, key.provider, limit, total))

    async def plan(self, key: ConnectionKey, api: str | None = None, host: str = "") -> CallPlan:
        """Return the limits of such a call; raise NotFoundError if there is no such connection."""
        return self._plans.of(await self.connection(key), api, host)

    def _check_locally(
        self, request: CallRequest, entry: AdmissionRequest, call: CallPlan, *, retry: bool
    ) -> None:
        """Raise LimitExceededError if this process throttles the tenant or the retry."""
        now_mono = self._clock.monotonic()
        throttled_s = self._throttle.throttled_s(entry.tenant, now_mono)
        if throttled_s is not None and not call.observe:
            raise _throttled(entry, throttled_s)
        if retry and not self._may_retry(request, now_mono):
            refused = _too_many_retries(entry, RETRY_AGAIN_S * (1 + self._draw()))
            if not call.observe:
                raise refused
            self._emit_observed(entry, refused)

    def _may_retry(self, request: CallRequest, now_mono: float) -> bool:
        """Return whether the budget allows a retry.

        A retried job makes many calls, each for the first time, so only an explicit retry is paced.
        """
        if request.retry:
            return self._retries.take_retry(request.key, now_mono)
        return self._retries.may_retry(request.key)

    def _emit_observed(self, entry: AdmissionRequest, refused: LimitExceededError) -> None:
        """Report a call that runs only because its limits are observed, not enforced."""
        reason = refused.reason or "unknown"
        self._emit(GateWouldRefuse(entry.tenant, entry.provider, reason, refused.retry_after_s))

    def _admission_request(
        self, request: CallRequest, call: CallPlan, context: JobContext | None
    ) -> AdmissionRequest:
        entry = AdmissionRequest(
            call.plan,
            request.key.tenant,
            request.key.provider,
            costs=self._estimate_costs(request, call),
            priority_class=request.priority_class or 2,
            wait_s=call.inline_wait_s if request.wait_s is None else request.wait_s,
            call_s=request.call_s,
            existed_s=self._connections.existed_s(request.key) if call.is_exclusive else math.inf,
            account=request.key.account,
            host=request.host,
            plan_now=partial(self._plan_now, request, call),
        )
        if call.observe:  # decided at once, and sent whatever the decision
            return entry._replace(wait_s=0.0)
        if context is None:
            return entry
        job, waiting_since = context.job, context._call_waiting_since
        reservation_id = (job.job_id.int ^ call.mark) & _MASK or 1
        return entry._replace(
            costs=entry.costs
            if request.cost is not None
            else self._reserved_costs.get((reservation_id, request.operation), entry.costs),
            job=str(job.job_id),
            waited_s=0.0 if waiting_since is None else self._clock.monotonic() - waiting_since,
            priority_class=request.priority_class or _PRIORITY_CLASSES[Priority(job.priority)],
            wait_s=min(entry.wait_s, context.remaining_s),
            reserve_ahead_s=RESERVE_AHEAD_S,
            reservation_id=reservation_id,
            call_s=min(entry.call_s, max(1.0, context.remaining_s)),
        )

    def _plan_now(self, request: CallRequest, call: CallPlan) -> Plan:
        connection = self.cached_connection(request.key)
        return call.plan if connection is None else self._plans.of(connection, request.api, request.host).plan

    def _estimate_costs(self, request: CallRequest, call: CallPlan) -> tuple[float, ...]:
        """Return the cost of a call in each bucket: as it states, else as its operation cost before."""
        if request.cost is not None:
            return (request.cost,) * len(call.plan.buckets)
        estimates = self._costs.of(_operation(request))
        if not estimates:
            return call.unknown_costs
        # The limit may have been larger when the estimate was made.
        return tuple(
            min(estimates.get(bucket.name or bucket.key, UNKNOWN), bucket.capacity)
            for bucket in call.plan.buckets
        )

    def is_limited(self, key: ConnectionKey, api: str | None, host: str) -> bool:
        """Return whether such a call can be refused: its limits are neither disabled nor only observed."""
        if not self._overrides.enforces(key):
            return False
        connection = self.cached_connection(key)
        return connection is None or not self._plans.of(connection, api, host).observe


def _operation(request: CallRequest) -> Hashable:
    return request.key, request.api, request.operation


def _record_wait(began_mono: float) -> None:
    """Record, within a job, that a call waits since *began_mono* or since an earlier refusal."""
    context = current_job.get()
    if context is not None and context._call_waiting_since is None:
        context._call_waiting_since = began_mono


def _unlimited(entry: AdmissionRequest, call: CallPlan) -> AdmittedCall:
    """Return an admission that holds nothing."""
    nothing = Admitted(Plan(entry.plan.domain), None, 0, 0, (), ())
    return AdmittedCall(nothing, 0.0, dialect=call.dialect, request=entry)


def _throttled(entry: AdmissionRequest, wait_s: float) -> LimitExceededError:
    message = "the tenant asks again and again without waiting as it is told"
    return _refused(
        entry, message, wait_s, limit_reasons.RAPID.code, "wait for retry_after_s before asking again"
    )


def _too_many_retries(entry: AdmissionRequest, wait_s: float) -> LimitExceededError:
    hint = "wait for retry_after_s; a fifth of the calls in flight may be retries, and three always may"
    return _refused(
        entry,
        "too many of the connection's calls are retries already",
        wait_s,
        limit_reasons.RETRIES.code,
        hint,
    )


def _refused(
    entry: AdmissionRequest, message: str, wait_s: float, reason: str, hint: str
) -> LimitExceededError:
    return LimitExceededError(
        message, tenant=entry.tenant, provider=entry.provider, retry_after_s=wait_s, reason=reason, hint=hint
    )
