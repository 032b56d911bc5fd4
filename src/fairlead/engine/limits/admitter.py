"""How a call gets in, and what it holds while it runs (G1, R25, R26).

    ask ─► admitted ─► the call, its slot kept by the keeper ─► finish
     ▲ │
     │ ├─ a turn in the buckets ──► sleep until then ──┐
     │ ├─ in line for a slot ─────► a hint, or 1 s ────┤
     └─┴───────────────────────────────────────────────┘   refused for longer than it may wait: LimitExceededError

The gate itself never waits; only here somebody does, for as long as the caller allows, and holds nothing
meanwhile. Whatever way this ends, a place in line, a grant that came too late and a turn that nobody will
take are given back.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import NamedTuple

from fairlead._core.clock import Clock, Draw
from fairlead._core.ids import Ids
from fairlead.engine.base.timing import wait_event, with_deadline
from fairlead.engine.limits.admission import Admission
from fairlead.engine.limits.lease_renewer import (
    SLOT_LOST_MESSAGE,
    STORE_GONE,
    GrantSignal,
    HeldLease,
    LeaseRenewer,
)
from fairlead.engine.ports.gate import (
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

LINE_S = 3.0
"""Who stands in line and was not heard of for so long is passed over."""
AGAIN_S = 1.0
"""Who stands in line asks again within it: should the hint be lost, or a lease end that nobody gives back."""
LAST_S = 0.1
"""Who asks a last time at the end of its time waits so long for the answer."""
PROMPT_S = 10.0
"""Within it the gate answers or gives its store up, after 0.8 s of silence or 5 s of one connection: only who
has less time left needs a timer."""
LOOK_S = 0.8
"""How often a call that sleeps until its turn looks whether its limits are still those that it came with."""
_NAMES = {
    RefusedBy.BREAKER: "breaker",
    RefusedBy.QUOTA: "quota",
    RefusedBy.SLOT: "slot",
    RefusedBy.BUCKET: "rate",
    RefusedBy.RECOVERY: "recovery",
    RefusedBy.OUTAGE: "outage",
}


class AdmissionRequest(NamedTuple):
    """What a call wants to get in with.

    *wait_s*: how long it may wait here; *reserve_ahead_s*: how far ahead it takes turns, to come back for them with
    the same *reservation_id* (default: as long as it may wait). *waited_s*: how long the work has waited already.
    *existed_s*: for how long its connection has existed, where that is known; see AdmitRequest.
    """

    plan: Plan
    tenant: str
    provider: str
    costs: tuple[float, ...] = ()
    job: str = ""
    priority_class: int = 1
    wait_s: float = 0.0
    reserve_ahead_s: float = 0.0
    reservation_id: int = 0
    waited_s: float = 0.0
    call_s: float = 60.0
    existed_s: float = math.inf
    account: str = "default"
    """Of the connection; with *host*, it is what events call the breaker."""
    host: str = ""
    plan_now: Callable[[], Plan] | None = None
    """The limits of such a call by what is known now. Costs are of the same buckets as in *plan*."""


class AdmittedCall:
    """An admitted call whose slot is kept. Whatever becomes of it: let go of it, then end it, once each."""

    __slots__ = ("_admitter", "admission", "entry", "held")

    def __init__(
        self, admitter: Admitter, entry: AdmissionRequest, admission: Admission, held: HeldLease | None
    ) -> None:
        self._admitter = admitter
        self.entry = entry
        self.admission = admission
        self.held = held

    def release_local(self, error: BaseException | None = None) -> SlotLostError | None:
        """It runs no more. SlotLostError where *error* is the cancellation that a lost slot brought about."""
        return self._admitter.release_local(self, error)

    def release_soon(self) -> None:
        """Give back what was taken, and tell the gate what was learnt: begun at once, surely done.

        Nobody waits for it, and a cancellation stops nothing. Whatever this process asks later is judged
        after it; other processes find the slot free a round trip later.
        """
        self._admitter.release_soon(self)

    async def release(self) -> None:
        """The same, and return when it is done. Who is cancelled meanwhile waits no longer; it is done all
        the same."""
        await self._admitter.release(self)

    def to_release(self) -> Release:
        """Return what the gate is told."""
        now = self.admission
        return Release(
            now.admitted, now.health, now.actual_cost, now.observed, now.keeps_slot, cause=now.cause
        )

    def report_responding(self) -> None:
        """Report a good beginning of the probe to the breaker."""
        self._admitter.report_responding(self)


class Admitter:
    """Lets calls of one process in. *process* is who it is to the others."""

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
    async def enter(self, entry: AdmissionRequest) -> AsyncIterator[Admission]:
        """The block runs admitted. LimitExceededError, or LimiterUnavailableError, where it may not; nothing
        is held then.

        A block whose slot is lost is cancelled and raises SlotLostError: somebody else may have it by now.
        """
        admitted_call = await self.begin(entry)
        try:
            yield admitted_call.admission
        except BaseException as error:
            if lost := admitted_call.release_local(error):
                raise lost from None
            raise
        else:
            admitted_call.release_local()
        finally:
            await admitted_call.release()

    async def begin(self, entry: AdmissionRequest) -> AdmittedCall:
        """The same without a block: what is given back is to `let_go`, and then to end."""
        admission = await self.admitted(entry)
        admitted_call = AdmittedCall(
            self, entry, admission, self._renewer.hold(admission.admitted, admission.requested_mono)
        )
        if admission.admitted.probe:
            admission.report_responding = admitted_call.report_responding
        return admitted_call

    def release_local(self, admitted_call: AdmittedCall, error: BaseException | None) -> SlotLostError | None:
        if not self._renewer.release_local(admitted_call.held, error):
            return None
        admitted_call.admission.health = (
            DestinationHealth.NEUTRAL
        )  # it was cancelled because its slot was lost
        return SlotLostError(
            SLOT_LOST_MESSAGE, tenant=admitted_call.entry.tenant, provider=admitted_call.entry.provider
        )

    def release_soon(self, admitted_call: AdmittedCall) -> None:
        self._gate.release_soon(admitted_call.to_release(), partial(self._ended, admitted_call))

    def report_responding(self, admitted_call: AdmittedCall) -> None:
        self._gate.release_soon(
            Release(admitted_call.admission.admitted, DestinationHealth.RESPONDING),
            partial(self._ended, admitted_call),
        )

    async def release(self, admitted_call: AdmittedCall) -> None:
        await self._renewer.run_to_completion(self._finished(admitted_call))

    async def _finished(self, admitted_call: AdmittedCall) -> None:
        self._tell(admitted_call, await self._gate.release(admitted_call.to_release()))

    def _ended(self, admitted_call: AdmittedCall, result: Released | Exception) -> None:
        if isinstance(result, Released):
            self._tell(admitted_call, result)
        elif not isinstance(result, STORE_GONE):
            raise result

    def _tell(self, admitted_call: AdmittedCall, finished: Released) -> None:
        """Of a breaker that this call opened or closed."""
        entry = admitted_call.entry
        named = (entry.tenant, entry.provider, entry.account, entry.host)
        if finished.opened_s is not None:
            self._emit(GateBreakerOpened(*named, finished.opened_s, admitted_call.admission.cause))
        elif finished.closed:
            self._emit(GateBreakerClosed(*named))

    async def admitted(self, entry: AdmissionRequest) -> Admission:
        """Get in as `enter` does, and stay: what was taken is the caller's to keep and to give back."""
        began_s = self._clock.monotonic()
        holder = self.holder(entry) if entry.plan.pool is not None else None
        reservation_id = entry.reservation_id or (self._ids.lease_id() if holder is None else holder.lease_id)
        line = self._renewer.line(holder)
        ask: AdmitRequest | None = None
        answer: AdmitResult | None = None
        was_in_line = False
        try:
            while True:
                waited_s = self._clock.monotonic() - began_s
                left_s = max(0.0, entry.wait_s - waited_s)
                ask = self._ask(entry, holder, reservation_id, waited_s, left_s)
                line.clear()
                answer = await self._answer(entry, ask, waited_s)
                if isinstance(answer, Admitted):
                    return Admission(answer, waited_s, requested_mono=began_s + waited_s)
                if isinstance(answer, GateRefusal) and (costs := answer.clamped_costs(ask)):
                    entry = entry._replace(costs=costs)
                    continue
                was_in_line = was_in_line or isinstance(answer, Queued)
                await self._wait(entry, answer, line, left_s)
                if (plan := _plan_now(entry)) is not entry.plan:
                    if isinstance(answer, Reserved):  # its turn was computed from the earlier limits
                        await self._renewer.run_to_completion(self._gate.cancel(ask))
                    entry = entry._replace(plan=plan)
        except BaseException:
            if ask is not None and (undo := self._undo(entry, ask, answer, was_in_line)) is not None:
                self._renewer.start(self._gate.cancel(undo))  # the caller's deadline may have passed
            raise
        finally:
            self._renewer.leave(holder)

    def _answer(self, entry: AdmissionRequest, ask: AdmitRequest, waited_s: float) -> Awaitable[AdmitResult]:
        """Return the gate's answer; raise DeadlineExceededError if there is none before the call's deadline."""
        left_s = entry.call_s - waited_s if entry.wait_s <= entry.call_s else entry.call_s
        if left_s > PROMPT_S:  # as for most calls: a timer would cost each of them 25 us
            return self._gate.admit(ask)
        what = "the gate did not answer before the call's deadline"
        late = partial(DeadlineExceededError, what, tenant=entry.tenant, provider=entry.provider)
        return with_deadline(self._gate.admit(ask), self._clock, max(LAST_S, left_s), late)

    def holder(self, entry: AdmissionRequest) -> Holder:
        """Who asks with *entry*; another one each time."""
        plan = entry.plan
        number = min(entry.priority_class, plan.pool.classes) if plan.pool else 1
        return Holder(self._ids.lease_id(), self._process, entry.tenant, entry.job, number, plan.quota)

    def _ask(
        self,
        entry: AdmissionRequest,
        holder: Holder | None,
        reservation_id: int,
        waited_s: float,
        left_s: float,
    ) -> AdmitRequest:
        return AdmitRequest(
            entry.plan,
            entry.costs,
            holder,
            waited_s=entry.waited_s + waited_s,
            wait_s=LINE_S if left_s > 0 else 0.0,
            reserve_ahead_s=max(left_s, entry.reserve_ahead_s),
            reservation_id=reservation_id if left_s > 0 or entry.reserve_ahead_s > 0 else 0,
            call_s=entry.call_s,
            existed_s=entry.existed_s + waited_s,
        )

    async def _wait(
        self, entry: AdmissionRequest, answer: AdmitResult, line: GrantSignal, left_s: float
    ) -> None:
        """Wait until it is time to ask again; raise LimitExceededError if that is too late for the call."""
        spare_s = max(0.0, entry.call_s - entry.wait_s)
        match answer:
            case Reserved(delay_s) if delay_s <= left_s:
                due_s = self._clock.monotonic() + delay_s
                while delay_s > 0 and _plan_now(entry) is entry.plan:
                    await self._clock.sleep(min(delay_s, LOOK_S))
                    delay_s = due_s - self._clock.monotonic()
            case Queued() if left_s > 0:
                await wait_event(line, self._clock, min(left_s, AGAIN_S * (0.6 + 0.4 * self._draw())))
            case GateRefusal(RefusedBy.BREAKER | RefusedBy.RECOVERY, float(delay_s)) if (
                delay_s <= left_s and has_time(left_s + spare_s, delay_s, entry.call_s)
            ):
                await self._clock.sleep(delay_s * (1 + 0.1 * self._draw()))
            case _:
                raise closed(entry, answer)

    @staticmethod
    def _undo(
        entry: AdmissionRequest, ask: AdmitRequest, answer: AdmitResult | None, was_in_line: bool
    ) -> AdmitRequest | None:
        """Return what the gate must undo of *ask*, whose caller leaves; None: nothing.

        A reservation for a later attempt stays, but not a slot that was handed over in line. A refusal holds
        nothing. Without an answer the gate itself undoes the request.
        """
        if isinstance(answer, Reserved) and entry.reserve_ahead_s > 0:
            return ask._replace(reservation_id=0) if was_in_line else None
        return ask if isinstance(answer, Queued | Reserved) else None


def _plan_now(entry: AdmissionRequest) -> Plan:
    """Return the newest limits if they are of the same kind as the ones *entry* was made with."""
    now, then = entry.plan if entry.plan_now is None else entry.plan_now(), entry.plan
    return now if now is then or now.keys == then.keys else then


def closed(entry: AdmissionRequest, answer: AdmitResult) -> LimitExceededError:
    """Why *entry* does not get in, and when to come back."""
    assert isinstance(answer, Reserved | Queued | GateRefusal)
    if isinstance(answer, GateRefusal) and answer.retry_after_s is None:
        assert answer.bucket is not None
        limit = entry.plan.buckets[answer.bucket]
        most = limit.configured or limit.capacity
        return LimitExceededError(
            f"the call costs more than the limit {limit.key!r} holds by the settings ({most:g})",
            tenant=entry.tenant,
            provider=entry.provider,
            hint="make the call smaller, or correct the limit in the settings",
            reason="too_large",
            category="permanent_request",
        )
    by = RefusedBy.BUCKET if isinstance(answer, Reserved) else answer.by
    delay_s = answer.delay_s if isinstance(answer, Reserved) else answer.retry_after_s
    assert delay_s is not None
    return LimitExceededError(
        f"no room for the call: the {_NAMES[by]} lets it through in {delay_s:.3g} s at the earliest",
        tenant=entry.tenant,
        provider=entry.provider,
        retry_after_s=delay_s,
        reason=_NAMES[by],
    )
