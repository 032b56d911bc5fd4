"""Admission of calls, and what an admitted call holds while it runs. Spec: G1, R25, R26.

    request ─► admitted ─► the call, its lease kept by the renewer ─► release
     ▲ │
     │ ├─ a reservation in the buckets ─► sleep until then ───┐
     │ ├─ in the wait queue for a slot ─► its signal, or 1 s ─┤
     └─┴──────────────────────────────────────────────────────┘   refused for longer: LimitExceededError

The gate itself never waits. Only the admitter waits, for as long as the caller allows, and holds nothing
meanwhile. However this ends, a place in the queue, a late grant and an unused reservation are given back.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from functools import partial

from fairlead._core.clock import Clock, Draw
from fairlead._core.ids import Ids
from fairlead.engine.base.timing import wait_event, with_deadline
from fairlead.engine.limits.admission import Admission, AdmissionRequest, AdmittedCall
from fairlead.engine.limits.lease_renewer import (
    SLOT_LOST_MESSAGE,
    STORE_GONE,
    GrantSignal,
    LeaseRenewer,
)
from fairlead.engine.ports import (
    AdmitRequest,
    AdmitResult,
    Admitted,
    Gate,
    GateRefusal,
    Queued,
    RefusedBy,
    Release,
    Released,
    Reserved,
)
from fairlead.errors import DeadlineExceededError, LimitExceededError, SlotLostError
from fairlead.events import Emit, GateBreakerClosed, GateBreakerOpened
from fairlead.policy.calls.deadline import has_time
from fairlead.policy.limits.breaker import DestinationHealth
from fairlead.policy.limits.limit import Plan
from fairlead.policy.limits.pool import Holder
from fairlead.policy.reasons import limit_reasons

QUEUE_PLACE_S = 3.0
"""A waiter that was not renewed for this long loses its place in the wait queue."""
REQUEST_EVERY_S = 1.0
"""How often a waiting call sends its request again, in case a signal is lost or a lease expires."""
LAST_REQUEST_S = 0.1
"""How long the last request, at the end of the call's time, waits for its result."""
PROMPT_S = 10.0
"""The longest time that the gate takes to decide. Only a call with less time left needs a timer.

The gate treats its store as unavailable after 0.8 s without a response, or 5 s on one connection.
"""
CHECK_PLAN_S = 0.8
"""How often a call that sleeps until its reservation is due checks whether its limits have changed."""
_NAMES = {
    RefusedBy.BREAKER: limit_reasons.BREAKER.code,
    RefusedBy.QUOTA: limit_reasons.QUOTA.code,
    RefusedBy.SLOT: limit_reasons.SLOT.code,
    RefusedBy.BUCKET: limit_reasons.RATE.code,
    RefusedBy.RECOVERY: limit_reasons.RECOVERY.code,
    RefusedBy.OUTAGE: limit_reasons.OUTAGE.code,
}


class Admitter:
    """Admits the calls of one process; *process* identifies it to the others."""

    def __init__(
        self,
        gate: Gate,
        renewer: LeaseRenewer,
        *,
        process: str,
        clock: Clock,
        draw: Draw,
        ids: Ids,
        emit: Emit,
    ) -> None:
        self._gate = gate
        self._renewer = renewer
        self._process = process
        self._clock = clock
        self._draw = draw
        self._ids = ids
        self._emit = emit

    @asynccontextmanager
    async def enter(self, request: AdmissionRequest) -> AsyncIterator[Admission]:
        """Run the block admitted. A block that loses its slot is cancelled, as another call may have it.

        Raises:
            LimitExceededError, LimiterUnavailableError: The call is not admitted; nothing is held then.
            SlotLostError: The slot was lost while the block ran.
        """
        admission = await self.admit(request)
        try:
            yield admission
        except BaseException as error:
            if lost := self.release_local(admission, error):
                raise lost from None
            raise
        else:
            self.release_local(admission)
        finally:
            await self.release(admission)

    def release_local(
        self, admission: AdmittedCall, error: BaseException | None = None
    ) -> SlotLostError | None:
        """Stop renewing the lease; return SlotLostError if *error* is the cancellation by a lost slot."""
        if not self._renewer.release_local(admission.lease, error):
            return None
        # Cancelled because its slot was lost, which says nothing about the destination.
        admission.health = DestinationHealth.NEUTRAL
        request = admission.request
        return SlotLostError(SLOT_LOST_MESSAGE, tenant=request.tenant, provider=request.provider)

    def release_soon(self, admission: AdmittedCall) -> None:
        """Start to release the call at the gate, with what its response says. A cancellation does not stop it.

        Later requests of this process are decided after it; other processes find the slot free a round trip
        later.
        """
        self._gate.release_soon(_to_release(admission), partial(self._on_released, admission))

    async def release(self, admission: AdmittedCall) -> None:
        """Release the call and wait for it. If the caller is cancelled, the release still completes."""
        await self._renewer.run_to_completion(self._release(admission))

    async def _release(self, admission: AdmittedCall) -> None:
        self._emit_breaker(admission, await self._gate.release(_to_release(admission)))

    def _report_responding(self, admission: AdmittedCall) -> None:
        """Report to the breaker that its probe got good response headers."""
        self._gate.release_soon(
            Release(admission.admitted, DestinationHealth.RESPONDING),
            partial(self._on_released, admission),
        )

    def _on_released(self, admission: AdmittedCall, result: Released | Exception) -> None:
        if isinstance(result, Released):
            self._emit_breaker(admission, result)
        elif not isinstance(result, STORE_GONE):
            raise result

    def _emit_breaker(self, admission: AdmittedCall, released: Released) -> None:
        """Emit the event of a breaker that this call opened or closed."""
        request = admission.request
        names = (request.tenant, request.provider, request.account, request.host)
        if released.opened_s is not None:
            self._emit(GateBreakerOpened(*names, released.opened_s, admission.cause))
        elif released.closed:
            self._emit(GateBreakerClosed(*names))

    async def admit(self, request: AdmissionRequest, *, renewed: bool = True) -> AdmittedCall:
        """Wait for admission. The caller has to release it: `release_local`, then `release` or `release_soon`.

        Args:
            request: The call.
            renewed: Whether its slot is renewed from now on (default). If not, the caller has to renew it, and
                only `release` or `release_soon` ends it.

        Raises:
            LimitExceededError, LimiterUnavailableError: The call is not admitted; nothing is held then.
        """
        began_mono = self._clock.monotonic()
        holder = self.holder(request) if request.plan.pool is not None else None
        reservation_id = request.reservation_id or (
            self._ids.lease_id() if holder is None else holder.lease_id
        )
        signal = self._renewer.grant_signal(holder)
        admit: AdmitRequest | None = None
        result: AdmitResult | None = None
        was_queued = False
        try:
            while True:
                waited_s = self._clock.monotonic() - began_mono
                left_s = max(0.0, request.wait_s - waited_s)
                admit = self._admit_request(request, holder, reservation_id, waited_s, left_s)
                signal.clear()
                result = await self._decide(request, admit, waited_s)
                if isinstance(result, Admitted):
                    return self._admitted(request, result, began_mono, waited_s, renewed=renewed)
                if isinstance(result, GateRefusal) and (costs := result.clamped_costs(admit)):
                    request = request._replace(costs=costs)
                    continue
                was_queued = was_queued or isinstance(result, Queued)
                await self._wait_for_retry(request, result, signal, left_s)
                if (plan := _plan_now(request)) is not request.plan:
                    if isinstance(result, Reserved):  # computed from the earlier limits
                        await self._renewer.run_to_completion(self._gate.cancel(admit))
                    request = request._replace(plan=plan)
        except BaseException:
            if (
                admit is not None
                and (undo := self._request_to_cancel(request, admit, result, was_queued)) is not None
            ):
                self._renewer.start(self._gate.cancel(undo))  # the caller's deadline may have passed
            raise
        finally:
            self._renewer.forget_signal(holder)

    def _admitted(
        self,
        request: AdmissionRequest,
        admitted: Admitted,
        began_mono: float,
        waited_s: float,
        *,
        renewed: bool,
    ) -> AdmittedCall:
        requested_mono = began_mono + waited_s
        admission = AdmittedCall(admitted, waited_s, requested_mono=requested_mono, request=request)
        if renewed:
            admission.lease = self._renewer.hold(admitted, requested_mono)
        if admitted.probe:
            admission.report_responding = partial(self._report_responding, admission)
        return admission

    def _decide(
        self, request: AdmissionRequest, admit: AdmitRequest, waited_s: float
    ) -> Awaitable[AdmitResult]:
        """Return the gate's decision, or raise DeadlineExceededError at the call's deadline."""
        left_s = request.call_s - waited_s if request.wait_s <= request.call_s else request.call_s
        if left_s > PROMPT_S:  # as for most calls: a timer would cost each of them 25 us
            return self._gate.admit(admit)
        message = "the gate did not answer before the call's deadline"
        late = partial(DeadlineExceededError, message, tenant=request.tenant, provider=request.provider)
        return with_deadline(self._gate.admit(admit), self._clock, max(LAST_REQUEST_S, left_s), late)

    def holder(self, request: AdmissionRequest) -> Holder:
        """Return a new identity under which *request* may hold a slot."""
        plan = request.plan
        number = min(request.priority_class, plan.pool.classes) if plan.pool else 1
        return Holder(self._ids.lease_id(), self._process, request.tenant, request.job, number, plan.quota)

    def _admit_request(
        self,
        request: AdmissionRequest,
        holder: Holder | None,
        reservation_id: int,
        waited_s: float,
        left_s: float,
    ) -> AdmitRequest:
        return AdmitRequest(
            request.plan,
            request.costs,
            holder,
            waited_s=request.waited_s + waited_s,
            wait_s=QUEUE_PLACE_S if left_s > 0 else 0.0,
            reserve_ahead_s=max(left_s, request.reserve_ahead_s),
            reservation_id=reservation_id if left_s > 0 or request.reserve_ahead_s > 0 else 0,
            call_s=request.call_s,
            existed_s=request.existed_s + waited_s,
        )

    async def _wait_for_retry(
        self, request: AdmissionRequest, result: AdmitResult, signal: GrantSignal, left_s: float
    ) -> None:
        """Wait until the call may be admitted, or raise LimitExceededError if that is too late for it.

        Args:
            request: The call.
            result: The gate's decision: a reservation, a place in the queue, or a refusal.
            signal: Is set once the gate grants a slot.
            left_s: How much longer the call may wait.
        """
        spare_s = max(0.0, request.call_s - request.wait_s)
        match result:
            case Reserved(delay_s) if delay_s <= left_s:
                due_mono = self._clock.monotonic() + delay_s
                while delay_s > 0 and _plan_now(request) is request.plan:
                    await self._clock.sleep(min(delay_s, CHECK_PLAN_S))
                    delay_s = due_mono - self._clock.monotonic()
            case Queued() if left_s > 0:
                await wait_event(
                    signal, self._clock, min(left_s, REQUEST_EVERY_S * (0.6 + 0.4 * self._draw()))
                )
            case GateRefusal(RefusedBy.BREAKER | RefusedBy.RECOVERY, float(delay_s)) if (
                delay_s <= left_s and has_time(left_s + spare_s, delay_s, request.call_s)
            ):
                await self._clock.sleep(delay_s * (1 + 0.1 * self._draw()))
            case _:
                raise refusal_error(request, result)

    @staticmethod
    def _request_to_cancel(
        request: AdmissionRequest, admit: AdmitRequest, result: AdmitResult | None, was_queued: bool
    ) -> AdmitRequest | None:
        """Return the request that the gate must cancel when the caller leaves; None: nothing.

        A reservation for a later attempt stays, but not a slot that the queue handed over. A refusal holds
        nothing. Without a result the gate itself undoes the request.
        """
        if isinstance(result, Reserved) and request.reserve_ahead_s > 0:
            return admit._replace(reservation_id=0) if was_queued else None
        return admit if isinstance(result, Queued | Reserved) else None


def _to_release(admission: Admission) -> Release:
    """Return what the gate is to record of a call."""
    return Release(
        admission.admitted,
        admission.health,
        admission.actual_cost,
        admission.observed,
        admission.keeps_slot,
        cause=admission.cause,
    )


def _plan_now(request: AdmissionRequest) -> Plan:
    """Return the newest limits of *request*, if they are of the same kind as those it was made with."""
    current, previous = request.plan if request.plan_now is None else request.plan_now(), request.plan
    return current if current is previous or current.keys == previous.keys else previous


def refusal_error(request: AdmissionRequest, result: AdmitResult) -> LimitExceededError:
    """Return the error that says why *request* is not admitted, and when to come back."""
    assert isinstance(result, Reserved | Queued | GateRefusal)
    if isinstance(result, GateRefusal) and result.retry_after_s is None:
        assert result.bucket is not None
        limit = request.plan.buckets[result.bucket]
        capacity = limit.configured or limit.capacity
        return LimitExceededError(
            f"the call costs more than the limit {limit.key!r} holds by the settings ({capacity:g})",
            tenant=request.tenant,
            provider=request.provider,
            hint="make the call smaller, or correct the limit in the settings",
            reason=limit_reasons.COST_ABOVE_LIMIT.code,
            category="permanent_request",
        )
    by = RefusedBy.BUCKET if isinstance(result, Reserved) else result.by
    delay_s = result.delay_s if isinstance(result, Reserved) else result.retry_after_s
    assert delay_s is not None
    return LimitExceededError(
        f"no room for the call: the {_NAMES[by]} lets it through in {delay_s:.3g} s at the earliest",
        tenant=request.tenant,
        provider=request.provider,
        retry_after_s=delay_s,
        reason=_NAMES[by],
    )
