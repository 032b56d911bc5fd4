"""Slots for the bulk operations of a connection: semaphores that outlive the run that acquired them.

    acquire ─► the block, its lease renewed ─► nothing runs at the vendor: the slot is free again
                    │
                    └─ an operation runs there (started or adopted) ─► the slot stays taken for a lease, and
                       a later run with the token goes on in it, until it reports that it has finished

A bulk operation runs for minutes to hours at the vendor, while jobs check it now and then. So its slot belongs
to a token, not to a run. The slot of a process that dies stays taken until its lease ends, because the
operation that it started runs on. A token is worthless once its lease has ended.

A store that lost its state grants slots again before such a lease has ended. So for the rest of that lease no
new slot is granted, and every token gets its slot back. Spec: G5, R23.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

from fairlead.engine.jobs.handler import current_job
from fairlead.engine.limits.admission import AdmissionRequest
from fairlead.engine.limits.admitter import Admitter
from fairlead.engine.limits.failover_gate import FailoverGate
from fairlead.engine.limits.lease_renewer import LeaseRenewer
from fairlead.engine.limits.limit_plans import BulkPlan, Plans
from fairlead.engine.limits.override_cache import Overrides
from fairlead.engine.ports import Admitted, Connection, ConnectionKey, GateInspector, Lease, Release, Renewal
from fairlead.errors import (
    BulkLimitReachedError,
    InvalidInputError,
    LimiterUnavailableError,
    LimitExceededError,
    RefusedError,
    SlotLostError,
)
from fairlead.events import BulkAdopted, Emit, GateWouldRefuse
from fairlead.policy.limits.bulk_token import UNTIED, BulkToken, is_running_id, parse_token
from fairlead.policy.limits.feedback.dialect import parse_limits
from fairlead.policy.limits.feedback.raw_response import BULK, RawResponse
from fairlead.policy.limits.limit import Domain, Plan
from fairlead.policy.reasons import limit_reasons
from fairlead.policy.text.safe import safe_text


@dataclass(frozen=True, slots=True)
class BulkRequest:
    """A request for a bulk operation.

    Attributes:
        token: The token of a slot that the caller has already.
        knows_running: Whether the caller knows by itself what runs. Then a token that has lost its slot gets
            another one, and a job without a token goes on in the slot that an earlier run of it left taken.
    """

    key: ConnectionKey
    kind: str
    api_version: str | None = None
    token: str | None = None
    wait_s: float = 0.0
    knows_running: bool = False


class BulkOperation:
    """A slot for a bulk operation. Report what runs in it: `started` or `adopt`, later `finished`."""

    def __init__(
        self, key: ConnectionKey, token: BulkToken, dialect: str, emit: Emit, *, resumed: bool = False
    ) -> None:
        self.resumed = resumed
        """Whether an earlier block acquired the slot, so that an operation may run in it."""
        self._key = key
        self._token = token
        self._dialect = dialect
        self._emit = emit

    @property
    def token(self) -> str:
        """The token to store with the operation: with it another run or process goes on in this slot."""
        return str(self._token)

    @property
    def fence(self) -> int:
        """The fencing token: each later slot has a larger one."""
        return self._token.fence

    @property
    def running_id(self) -> str | None:
        """The vendor's id of the operation that runs in this slot; None while none does."""
        return self._token.running_id or None

    def rejection_code(self, response: RawResponse) -> str | None:
        """Return the vendor's code if *response* rejects the start because others run; else None.

        Shopify: OPERATION_IN_PROGRESS or LIMIT_REACHED. Look for the one that runs, and `adopt` it.
        """
        for item in parse_limits(self._dialect, response, now_epoch_s=None):
            if item.limit == BULK and item.refused:
                return item.code or BULK
        return None

    def started(self, running_id: str) -> None:
        """Report that the vendor runs the operation *running_id* now: the slot stays taken after the block."""
        if not is_running_id(running_id):
            raise InvalidInputError(
                "the name of a bulk operation is not acceptable",
                tenant=self._key.tenant,
                provider=self._key.provider,
                hint="give the id in the provider's response, 1 to 200 visible characters",
            )
        self._token = replace(self._token, running_id=running_id)

    def adopt(self, running_id: str) -> None:
        """Put an operation that was running already into this slot, instead of starting one."""
        self.started(running_id)
        self._emit(BulkAdopted(self._key.tenant, self._key.provider, safe_text(running_id)))

    def finished(self) -> None:
        """Report that no operation runs any more: the slot is free again after the block."""
        self._token = replace(self._token, running_id="")


class _BulkSlot(NamedTuple):
    """The slot of a block.

    Attributes:
        resumed: Whether an earlier block acquired it.
        requested_mono: When this block requested it.
    """

    resumed: bool
    admitted: Admitted
    token: BulkToken
    requested_mono: float


class BulkAdmitter:
    """Admits bulk operations. One per process."""

    def __init__(
        self,
        connection: Callable[[ConnectionKey], Awaitable[Connection]],
        plans: Plans,
        overrides: Overrides,
        admitter: Admitter,
        gate: FailoverGate,
        renewer: LeaseRenewer,
        *,
        granting_s: Callable[[Domain], Awaitable[float]],
        ready: Callable[[], Awaitable[None]],
        emit: Emit,
        viewer: GateInspector | None = None,
    ) -> None:
        """Create it.

        Args:
            granting_s: Returns for how long the store has granted slots of a domain since it last lost them.
            viewer: Reads which slots are taken; None: a job never finds the slot of an earlier run.
        """
        self._granting_s = granting_s
        self._viewer = viewer
        self._active: set[int] = set()
        self._connection = connection
        self._plans = plans
        self._overrides = overrides
        self._admitter = admitter
        self._gate = gate
        self._renewer = renewer
        self._ready = ready
        self._emit = emit

    @asynccontextmanager
    async def enter(self, request: BulkRequest) -> AsyncIterator[BulkOperation]:
        """Run the block in a slot. A block that loses its slot is cancelled.

        Overrides apply first: where limits are off, no block is refused.

        Raises:
            BulkLimitReachedError: No slot is free.
            SlotLostError: The token's slot was lost, or the block's.
            LimitExceededError: Calls are stopped by an override.
        """
        await self._ready()
        self._overrides.check(request.key)
        bulk = self._plans.bulk(
            await self._connection(request.key), request.kind.lower(), request.api_version
        )
        if self._overrides.bypasses(request.key):
            bulk = replace(bulk, observe=True)
        resumed, admitted, token, requested_mono = await self._get_slot(request, bulk)
        operation = BulkOperation(request.key, token, bulk.dialect, self._emit, resumed=resumed)
        self._active.add(token.lease_id)
        try:
            with self._renewer.keep(admitted, requested_mono):
                yield operation
        except SlotLostError as lost:
            raise SlotLostError(str(lost), tenant=request.key.tenant, provider=request.key.provider) from None
        finally:
            self._active.discard(token.lease_id)
            await self._renewer.run_to_completion(self._release(admitted, operation))

    async def _get_slot(self, request: BulkRequest, bulk: BulkPlan) -> _BulkSlot:
        """Return the slot of the request's token, or a new one if the request has no token.

        A caller that knows what runs gets the slot of an earlier run of this job, too, and a new slot if the one of
        its token was lost.

        Raises:
            SlotLostError: The slot of the token was lost, and the caller does not know what runs.
        """
        if not request.knows_running:
            if request.token is not None:
                return await self._resume_slot(request, bulk)
            return await self._acquire_slot(request, bulk)
        token = request.token or await self._find_token_of_job(request, bulk)
        if token is not None:
            with suppress(SlotLostError):
                return await self._resume_slot(replace(request, token=token), bulk)
        return await self._acquire_slot(request, bulk)

    async def _find_token_of_job(self, request: BulkRequest, bulk: BulkPlan) -> str | None:
        """Return the token of a slot that a run of this job acquired and that no block here uses, if any."""
        context = current_job.get()
        if context is None or self._viewer is None:
            return None
        try:
            holders = (await self._viewer.inspect(bulk.plan, events=0)).holders
        except LimiterUnavailableError:
            return None
        job = str(context.job.job_id)
        for holder in holders:
            is_of_job = holder.job == job and holder.tenant == request.key.tenant
            is_free = holder.ends_in_s > 0 and holder.lease_id not in self._active
            if is_of_job and is_free and holder.process.startswith(UNTIED):
                return str(BulkToken(holder.lease_id, 0, holder.process, holder.job))
        return None

    async def _acquire_slot(self, request: BulkRequest, bulk: BulkPlan) -> _BulkSlot:
        """Wait for a free slot. If limits are only observed, the operation runs without one."""
        context = current_job.get()
        wait_s = request.wait_s if context is None else min(request.wait_s, context.remaining_s)
        job = "" if context is None else str(context.job.job_id)
        key = request.key
        admission_request = AdmissionRequest(bulk.plan, key.tenant, key.provider, job=job, wait_s=wait_s)
        try:
            admitted, requested_mono = await self._admit(admission_request, bulk)
        except (LimitExceededError, LimiterUnavailableError) as refused:
            if not bulk.observe:
                raise _busy(request, bulk, refused) from None
            self._would_refuse(request, refused.reason or "outage")
            admitted = Admitted(
                Plan(bulk.plan.domain), self._admitter.holder(admission_request), 0, 0, (), ()
            )
            requested_mono = 0.0
        holder = admitted.holder or self._admitter.holder(admission_request)  # degraded and unlimited
        token = BulkToken(holder.lease_id, admitted.fence, holder.process, holder.job)
        return _BulkSlot(False, admitted, token, requested_mono)

    async def _admit(self, request: AdmissionRequest, bulk: BulkPlan) -> tuple[Admitted, float]:
        """Acquire a slot at the gate; return it and when it was requested.

        Raises:
            LimitExceededError: No slot is free, or operations that a lost state of Redis admitted may run.
        """
        admission = await self._admitter.admit(request, renewed=False)
        admitted = admission.admitted
        try:
            if admitted.local or not await self._may_older_leases_run(bulk):
                return admitted, admission.requested_mono
        except BaseException:
            await self._renewer.run_to_completion(self._gate.release(Release(admitted)))
            raise
        await self._renewer.run_to_completion(self._gate.release(Release(admitted)))
        raise LimitExceededError(
            "Redis lost its state, and bulk operations from before may still run",
            reason=limit_reasons.RECOVERY.code,
        )

    async def _may_older_leases_run(self, bulk: BulkPlan) -> bool:
        """Return whether operations may still run with leases that the store has lost."""
        return await self._granting_s(bulk.plan.domain) < bulk.pool.lease_s

    async def _resume_slot(self, request: BulkRequest, bulk: BulkPlan) -> _BulkSlot:
        """Continue in the slot of the request's token; raise SlotLostError if it was lost."""
        token = parse_token(request.token or "")
        if token is None:
            raise InvalidInputError(
                "that is no token of a bulk operation",
                tenant=request.key.tenant,
                provider=request.key.provider,
                hint="give operation.token as it was",
            )
        holder = token.holder(request.key.tenant)
        renewal = Renewal(bulk.plan.domain, bulk.pool, holder, had_slot=True)
        requested_mono = self._renewer.now_mono()
        state = await self._gate.attach(renewal)
        if state is not Lease.ACTIVE and await self._may_older_leases_run(bulk):
            state = await self._gate.attach(replace(renewal, adopt=True))
        if state is Lease.ACTIVE:
            return _BulkSlot(True, Admitted(bulk.plan, holder, token.fence, 0, (), ()), token, requested_mono)
        if not bulk.observe:
            raise SlotLostError(
                "the place of the bulk operation was not renewed in time, or given back",
                tenant=request.key.tenant,
                provider=request.key.provider,
                hint="take a place anew without the token, and adopt the operation if it still runs",
            )
        self._would_refuse(request, "slot")
        admitted = Admitted(Plan(bulk.plan.domain), holder, token.fence, 0, (), ())
        return _BulkSlot(True, admitted, token, requested_mono)

    async def _release(self, admitted: Admitted, operation: BulkOperation) -> None:
        """Release the slot; if an operation still runs in it, renew it once for the next block instead."""
        pool, holder = admitted.plan.pool, admitted.holder
        if pool is None or holder is None:
            return
        if operation.running_id is None:
            await self._gate.release(Release(admitted))
        else:
            await self._gate.detach(Renewal(admitted.plan.domain, pool, holder, had_slot=True))

    def _would_refuse(self, request: BulkRequest, reason: str) -> None:
        self._emit(GateWouldRefuse(request.key.tenant, request.key.provider, reason, None))


def _busy(request: BulkRequest, bulk: BulkPlan, refused: RefusedError) -> BulkLimitReachedError:
    """Return the error of a full limit. Slots are released early, so it does not wait for the first lease."""
    retry_after_s = bulk.bulk.retry_after_s
    full = refused.reason == limit_reasons.SLOT.code
    return BulkLimitReachedError(
        f"{bulk.pool.capacity} bulk operation(s) of this shop run already" if full else refused.message,
        tenant=request.key.tenant,
        provider=request.key.provider,
        retry_after_s=min(retry_after_s, refused.retry_after_s or retry_after_s),
        reason=refused.reason,
    )
