"""Places among the bulk operations of a shop: semaphores that outlive the run that took them (G5).

    take ─► the block, its lease renewed ─► nothing runs at the vendor: the place is free again
                    │
                    └─ an operation runs there (begun, or adopted) ─► the place stays taken for a lease,
                       and whoever comes with its token goes on, until it says finished

A bulk operation runs for minutes to hours at the vendor, while jobs look after it now and then. So its place
is not tied to a run but to a token. Whoever dies leaves a place that is taken until its lease has passed,
which is right: the operation that he began runs on. A token whose lease has passed reaches nothing any more.

A store that lost everything grants slots again before such a lease has passed. So for the rest of it no place
is given to anybody new, and whoever comes with a token has his place again (R23).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

from fairlead.engine.jobs.handler import current_job
from fairlead.engine.limits.admitter import AdmissionRequest, Admitter
from fairlead.engine.limits.failover_gate import FailoverGate
from fairlead.engine.limits.lease_renewer import LeaseRenewer
from fairlead.engine.limits.limit_plans import BulkPlan, Plans
from fairlead.engine.limits.override_cache import Overrides
from fairlead.engine.ports import Connection, ConnectionKey
from fairlead.engine.ports.gate import Admitted, Lease, Release, Renewal
from fairlead.engine.ports.gate_view import GateViewer
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
from fairlead.policy.text.safe import safe_text


@dataclass(frozen=True, slots=True)
class BulkRequest:
    """What a caller wants to run in bulk. *token*: of the place that it has already.

    *own*: it knows what runs, whatever the place: a token whose place is lost is given another one, and a job
    without a token goes on in the place that an earlier run of it left taken.
    """

    key: ConnectionKey
    kind: str
    api_version: str | None = None
    token: str | None = None
    wait_s: float = 0.0
    own: bool = False


class BulkOperation:
    """A place among the bulk operations of a shop. Say what runs in it: `started` or `adopt`, later `finished`."""

    def __init__(
        self, key: ConnectionKey, token: BulkToken, dialect: str, emit: Emit, *, resumed: bool = False
    ) -> None:
        self.resumed = resumed
        """Whether it was taken by an earlier block; an operation may run in it."""
        self._key = key
        self._token = token
        self._dialect = dialect
        self._emit = emit

    @property
    def token(self) -> str:
        """To be kept with the operation: with it another run or process goes on in this place."""
        return str(self._token)

    @property
    def fence(self) -> int:
        """Grows with each place that is given: whoever comes later has a larger one."""
        return self._token.fence

    @property
    def running_id(self) -> str | None:
        """The vendor's name of the operation that runs in this place; None while none does."""
        return self._token.running_id or None

    def rejection_code(self, reply: RawResponse) -> str | None:
        """The vendor's code where *reply* says that no operation was begun since others run; else None.

        Shopify: OPERATION_IN_PROGRESS or LIMIT_REACHED. Look for the one that runs, and `adopt` it.
        """
        for item in parse_limits(self._dialect, reply, now_epoch_s=None):
            if item.limit == BULK and item.refused:
                return item.code or BULK
        return None

    def started(self, running_id: str) -> None:
        """The vendor runs the operation *running_id* now: the place stays taken after the block."""
        if not is_running_id(running_id):
            raise InvalidInputError(
                "the name of a bulk operation is not acceptable",
                tenant=self._key.tenant,
                provider=self._key.provider,
                hint="give the id that the vendor's answer has, 1 to 200 visible characters",
            )
        self._token = replace(self._token, running_id=running_id)

    def adopt(self, running_id: str) -> None:
        """An operation that was running already takes this place: look after it instead of beginning one."""
        self.started(running_id)
        self._emit(BulkAdopted(self._key.tenant, self._key.provider, safe_text(running_id)))

    def finished(self) -> None:
        """It runs no more: the place is free again after the block."""
        self._token = replace(self._token, running_id="")


class _BulkSlot(NamedTuple):
    """Where a block may run. *resumed*: an earlier block took it; *asked_s*: when this one asked for it."""

    resumed: bool
    admitted: Admitted
    token: BulkToken
    asked_s: float


class BulkAdmitter:
    """One per process."""

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
        viewer: GateViewer | None = None,
    ) -> None:
        """*granting_s*: for how long the store has granted slots of a domain since it last lost them.

        *viewer* sees whose places are taken; None: a job never finds a place of an earlier run.
        """
        self._granting_s = granting_s
        self._viewer = viewer
        self._inside: set[int] = set()
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
        """The block has a place. BulkLimitReachedError where there is none; SlotLostError where the token's is lost.

        A block whose place is lost is cancelled and raises SlotLostError. What people switched by hand comes
        first: LimitExceededError where calls are stopped, and nobody is refused where limits are off.
        """
        await self._ready()
        self._overrides.check(request.key)
        bulk = self._plans.bulk(
            await self._connection(request.key), request.kind.lower(), request.api_version
        )
        if self._overrides.bypasses(request.key):
            bulk = replace(bulk, observe=True)
        resumed, admitted, token, asked_s = await self._place(request, bulk)
        operation = BulkOperation(request.key, token, bulk.dialect, self._emit, resumed=resumed)
        self._inside.add(token.lease_id)
        try:
            with self._renewer.keep(admitted, asked_s):
                yield operation
        except SlotLostError as lost:
            raise SlotLostError(str(lost), tenant=request.key.tenant, provider=request.key.provider) from None
        finally:
            self._inside.discard(token.lease_id)
            await self._renewer.run_to_completion(self._left(admitted, operation))

    async def _place(self, request: BulkRequest, bulk: BulkPlan) -> _BulkSlot:
        """A place: the one of its token, that of an earlier run of this job, or a new one."""
        if not request.own:
            if request.token is not None:
                return await self._resumed(request, bulk)
            return await self._taken(request, bulk)
        token = request.token or await self._left_by_this_job(request, bulk)
        if token is not None:
            with suppress(SlotLostError):
                return await self._resumed(replace(request, token=token), bulk)
        return await self._taken(request, bulk)

    async def _left_by_this_job(self, request: BulkRequest, bulk: BulkPlan) -> str | None:
        """The token of a place that a run of this job took and that nobody is in here."""
        context = current_job.get()
        if context is None or self._viewer is None:
            return None
        try:
            holders = (await self._viewer.look(bulk.plan, events=0)).holders
        except LimiterUnavailableError:
            return None
        job = str(context.job.job_id)
        for one in holders:
            ours = one.job == job and one.tenant == request.key.tenant and one.process.startswith(UNTIED)
            if ours and one.ends_in_s > 0 and one.lease_id not in self._inside:
                return str(BulkToken(one.lease_id, 0, one.process, one.job))
        return None

    async def _taken(self, request: BulkRequest, bulk: BulkPlan) -> _BulkSlot:
        context = current_job.get()
        wait_s = request.wait_s if context is None else min(request.wait_s, context.remaining_s)
        job = "" if context is None else str(context.job.job_id)
        entry = AdmissionRequest(bulk.plan, request.key.tenant, request.key.provider, job=job, wait_s=wait_s)
        try:
            admitted, asked_s = await self._admitted(entry, bulk)
        except (LimitExceededError, LimiterUnavailableError) as refused:
            if not bulk.observe:
                raise _busy(request, bulk, refused) from None
            self._would_refuse(request, refused.reason or "outage")
            admitted = Admitted(Plan(bulk.plan.domain), self._admitter.holder(entry), 0, 0, (), ())
            asked_s = 0.0
        holder = admitted.holder or self._admitter.holder(entry)  # without a store, and open: nobody's
        token = BulkToken(holder.lease_id, admitted.fence, holder.process, holder.job)
        return _BulkSlot(False, admitted, token, asked_s)

    async def _admitted(self, entry: AdmissionRequest, bulk: BulkPlan) -> tuple[Admitted, float]:
        admission = await self._admitter.admitted(entry)
        admitted = admission.admitted
        try:
            if admitted.local or not await self._lost_lately(bulk):
                return admitted, admission.requested_mono
        except BaseException:
            await self._renewer.run_to_completion(self._gate.release(Release(admitted)))
            raise
        await self._renewer.run_to_completion(self._gate.release(Release(admitted)))
        raise LimitExceededError("it is not known yet who has a place", reason="recovery")

    async def _lost_lately(self, bulk: BulkPlan) -> bool:
        """Whether a lease from before a loss of the store may last still."""
        return await self._granting_s(bulk.plan.domain) < bulk.pool.lease_s

    async def _resumed(self, request: BulkRequest, bulk: BulkPlan) -> _BulkSlot:
        token = parse_token(request.token or "")
        if token is None:
            raise InvalidInputError(
                "that is no token of a bulk operation",
                tenant=request.key.tenant,
                provider=request.key.provider,
                hint="give operation.token as it was",
            )
        holder = token.holder(request.key.tenant)
        renewal = Renewal(bulk.plan.domain, bulk.pool, holder, held=True)
        asked_s = self._renewer.now_s()
        state = await self._gate.attach(renewal)
        if state is not Lease.HELD and await self._lost_lately(bulk):
            state = await self._gate.attach(replace(renewal, adopt=True))
        if state is Lease.HELD:
            return _BulkSlot(True, Admitted(bulk.plan, holder, token.fence, 0, (), ()), token, asked_s)
        if not bulk.observe:
            raise SlotLostError(
                "the place of the bulk operation was not renewed in time, or given back",
                tenant=request.key.tenant,
                provider=request.key.provider,
                hint="take a place anew without the token, and adopt the operation if it still runs",
            )
        self._would_refuse(request, "slot")
        admitted = Admitted(Plan(bulk.plan.domain), holder, token.fence, 0, (), ())
        return _BulkSlot(True, admitted, token, asked_s)

    async def _left(self, admitted: Admitted, operation: BulkOperation) -> None:
        pool, holder = admitted.plan.pool, admitted.holder
        if pool is None or holder is None:
            return
        if operation.running_id is None:
            await self._gate.release(Release(admitted))
        else:
            await self._gate.detach(Renewal(admitted.plan.domain, pool, holder, held=True))

    def _would_refuse(self, request: BulkRequest, reason: str) -> None:
        self._emit(GateWouldRefuse(request.key.tenant, request.key.provider, reason, None))


def _busy(request: BulkRequest, bulk: BulkPlan, refused: RefusedError) -> BulkLimitReachedError:
    """Not until the first lease may end: whoever has the place gives it back as soon as he is done."""
    again_s = bulk.bulk.again_s
    full = refused.reason == "slot"
    return BulkLimitReachedError(
        f"{bulk.pool.capacity} bulk operation(s) of this shop run already" if full else refused.message,
        tenant=request.key.tenant,
        provider=request.key.provider,
        retry_after_s=min(again_s, refused.retry_after_s or again_s),
        reason=refused.reason,
    )
