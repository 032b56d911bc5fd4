"""Several processes with one store of limits, which can be taken away from all of them or from one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import count
from typing import Any

from fairlead.adapters.local.local_gate import LocalGate
from fairlead.engine.limits.failover_gate import FailoverGate
from fairlead.engine.ports import (
    AdmitRequest,
    AdmitResult,
    Admitted,
    Lease,
    OnReleased,
    Release,
    Released,
    Renewal,
    Wake,
)
from fairlead.errors import LimiterUnavailableError
from fairlead.events import Event
from fairlead.policy.limits.limit import MICRO, BucketLimit, Domain, Plan, PoolLimit
from fairlead.policy.limits.pool import Holder
from fairlead.policy.limits.share import Share
from fairlead.testing._kit.clock import ManualClock
from tests.support.altered import Altered

lease_ids = count(1)
DOMAIN = Domain(("tenant", "acme"))


class Store:
    """The fleet's gate, which can be taken away: from all, or from one of its users."""

    def __init__(self, clock: ManualClock) -> None:
        self.gate = LocalGate(lambda: round(clock.monotonic() * MICRO))
        self.clock = clock
        self.away = False


class SwitchableStore:
    """One process's way to the store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.cut = self.deaf = False
        self.silent: asyncio.Future[None] | None = None
        """An end that is told hears nothing, until it is given up."""
        self.late: asyncio.Event | None = None
        """Until then answers to asks are on their way."""
        self.spoilt: set[int] = set()
        """Leases whose words are errors, of a store that is there."""
        self.bad_domains: set[Domain] = set()
        """Of which the store can read nothing: whatever is told in one batch with it is an error."""
        self._batch: list[Domain] = []
        self.breaks_at = 0
        """The lease whose first cancellation cuts the connection."""
        self.done: list[str] = []
        """What was told on the way back, as it was done."""
        self.answers_in_s = 0.0
        self.abandoned = 0
        self.is_settled = True

    def _check(self) -> LocalGate:
        if self.cut or self.store.away:
            raise LimiterUnavailableError("Redis is not there")
        return self.store.gate

    async def admit(self, ask: AdmitRequest) -> AdmitResult:
        answer = await self._check().admit(ask)
        if self.deaf:
            raise LimiterUnavailableError("its answer was lost")
        if self.late is not None:
            await self.late.wait()
        return answer

    async def release(self, release: Release) -> Released:
        self.done.append("release")
        if self.silent is not None:
            await self.silent
        spoilt = await self._batched_with(release.admitted.plan.domain)
        if spoilt is True:
            raise LimiterUnavailableError("WRONGTYPE")
        finished = await self._check().release(release)
        if spoilt is None:
            return finished
        raise LimiterUnavailableError("WRONGTYPE of another in its batch")

    async def _batched_with(self, domain: Domain) -> bool | None:
        """As a script goes through what was told at once. True: not done; False: done, and not confirmed."""
        if not self.bad_domains:
            return None
        batch = self._batch
        batch.append(domain)
        mine = len(batch)
        await asyncio.sleep(0)
        self._batch = []
        bad = [index for index, domain in enumerate(batch, 1) if domain in self.bad_domains]
        return mine >= bad[0] if bad else None

    def release_soon(self, release: Release, callback: OnReleased) -> None:
        try:
            gate = self._check()
        except LimiterUnavailableError as error:
            callback(error)
        else:
            gate.release_soon(release, callback)

    async def cancel(self, ask: AdmitRequest) -> None:
        self.done.append("cancel")
        if ask.holder is not None and ask.holder.lease_id == self.breaks_at:
            self.cut, self.breaks_at = True, 0
        self._read(ask.holder)
        await self._check().cancel(ask)

    def _read(self, *holders: Holder | None) -> None:
        if self.spoilt.intersection(holder.lease_id for holder in holders if holder is not None):
            raise LimiterUnavailableError("WRONGTYPE")

    async def renew(self, renewals: Sequence[Renewal]) -> list[Lease]:
        await asyncio.sleep(0)  # a batch of its own
        self.done.append("renew")
        self._read(*(renewal.holder for renewal in renewals))
        return await self._check().renew(renewals)

    async def listen(self, wake: Wake) -> None:
        return None

    async def ping(self) -> None:
        self._check()
        if self.deaf:
            raise LimiterUnavailableError("its answer was lost")
        if self.answers_in_s:
            await self.store.clock.sleep(self.answers_in_s)

    def abandon(self, error: LimiterUnavailableError) -> None:
        self.abandoned += 1
        if self.silent is not None:
            self.silent.set_exception(error)
            self.silent = None


class Process:
    """One of several processes."""

    def __init__(self, store: Store, rank: int, of: int, *, storeless: bool = False) -> None:
        clock = store.clock
        self.way = SwitchableStore(store)
        self.link: Any = Altered(self.way)
        self.events: list[Event] = []

        def local_gate() -> LocalGate:
            return LocalGate(
                lambda: round(clock.monotonic() * MICRO), birth_us=round(clock.monotonic() * MICRO)
            )

        self.gate = FailoverGate(
            self.link,
            local_gate,
            share=lambda: Share(of, rank),
            clock=clock,
            draw=lambda: 0.5,
            emit=self.events.append,
            storeless=storeless,
        )

    async def take(self, plan: Plan, *costs: float) -> AdmitResult:
        holder = Holder(next(lease_ids), "p") if plan.pool is not None else None
        return await self.gate.admit(AdmitRequest(plan, costs, holder))

    async def take_all(self, plan: Plan) -> list[Admitted]:
        renewals = []
        while isinstance(answer := await self.take(plan), Admitted):
            renewals.append(answer)
        return renewals


async def look(fleet: Sequence[Process], times: int = 1) -> None:
    """Each of *fleet* looks whether the store is there."""
    for _ in range(times):
        for process in fleet:
            await process.gate.ping_redis()


def rate(capacity: float, per_s: float) -> Plan:
    return Plan(DOMAIN, buckets=(BucketLimit("b", capacity, per_s),))


def slots(capacity: int = 1, **settings: Any) -> Plan:
    return Plan(DOMAIN, pool=PoolLimit("p", capacity, lease_s=30, claim_s=5), **settings)


def waiter(plan: Plan, reservation_id: int = 0) -> AdmitRequest:
    return AdmitRequest(plan, holder=Holder(next(lease_ids), "p"), wait_s=60.0, reservation_id=reservation_id)


def kept(request: AdmitRequest) -> Renewal:
    assert request.plan.pool is not None
    assert request.holder is not None
    return Renewal(DOMAIN, request.plan.pool, request.holder)


async def away(process: Process) -> None:
    process.way.cut = True
    await look([process])
    assert process.gate.is_degraded


async def back(process: Process) -> None:
    process.way.cut = process.way.deaf = False
    await look([process], 2)
    assert not process.gate.is_degraded
