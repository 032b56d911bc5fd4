"""An available job is in a lane that is ready, or that wakes by itself (R17): after any history at all.

Many things happen to many lanes, several at once. What is left over must then be had by claims alone: no
sweep mends anything here, and nobody says where to look.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

import pytest

from fairlead.engine.ports import (
    Cancelled,
    ClaimFilter,
    Completed,
    GroupCap,
    Job,
    Outcome,
    Rescheduled,
    TenantShare,
)
from fairlead.policy.jobs.lane import Scope, ScopeKind
from tests.contract.lane_steps import drained
from tests.contract.stores import Stores, a_session, discarded, failed
from tests.support.engine import new_job

QUEUES, KINDS, PROVIDERS = ("default", "mail"), ("work", "other"), ("shopify", "xero")
TENANTS, GROUPS = ("a", "b", "c"), ("", "g", "h")
EVERYTHING = ClaimFilter(queues=QUEUES)
STEPS, AT_ONCE = 40, 6


class History:
    """What happened so far: who is alive and what he holds."""

    def __init__(self, stores: Stores, seed: int) -> None:
        self.stores = stores
        self.draw = random.Random(seed)
        self.held: dict[UUID, list[Job]] = {}
        self.known: list[UUID] = []
        self.paused: set[Scope] = set()
        self._pid = 0

    async def run(self) -> None:
        for _ in range(3):
            await self.begin()
        for _ in range(STEPS):
            acts = self.draw.choices(list(ACTS), list(ACTS.values()), k=AT_ONCE)
            async with asyncio.TaskGroup() as group:
                for act in acts:
                    group.create_task(act(self))
            if self.draw.random() < 0.4:
                await self.stores.pass_time(self.draw.choice([0.3, 2.0, 15.0, 90.0]))

    async def end(self) -> None:
        """Whoever holds something stops; what was paused without an end is resumed. Caps stay."""
        for session_id in list(self.held):
            await self._stop(session_id)
        await self.stores.sessions.rescue(await self.begin(), 0.0, 3, 1000)  # who claimed as he died
        for pause in await self.stores.lanes.pauses(1000):
            if pause.until is None:
                await self.stores.lanes.resume(pause.scope)

    # ---- what may happen -----------------------------------------------------------------------

    async def enqueue(self) -> None:
        jobs = [self._job() for _ in range(self.draw.randint(1, 6))]
        self.known += [stored.job_id for stored in await self.stores.jobs.enqueue(jobs)]

    def _job(self) -> Any:
        draw = self.draw
        fields: dict[str, object] = {
            "kind": draw.choice(KINDS),
            "queue": draw.choice(QUEUES),
            "tenant_id": draw.choice(TENANTS),
            "group_key": draw.choice(GROUPS),
            "provider": draw.choice([None, *PROVIDERS]),
            "priority": draw.randrange(4),
            "delay_s": draw.choice([0.0, 0.0, 0.0, 1.5, 30.0]),
            "expires_in_s": draw.choice([None, None, None, 40.0]),
        }
        if draw.random() < 0.3:
            fields["unique_key"] = f"key{draw.randrange(4)}"
        return new_job(**fields)

    async def claim(self) -> None:
        session_id = self._anybody()
        claim_filter = self.draw.choice(
            [
                EVERYTHING,
                ClaimFilter(queues=("mail",)),
                ClaimFilter(queues=QUEUES, kinds=("work",)),
                ClaimFilter(queues=QUEUES, kinds=KINDS, providers=("xero",)),
            ]
        )
        jobs = await self.stores.jobs.claim(claim_filter, self.draw.choice([1, 3, 20]), session_id)
        self._holds(session_id, jobs)

    async def claim_suspect(self) -> None:
        session_id = self._anybody()
        job = await self.stores.jobs.claim_suspect(EVERYTHING, session_id)
        if job is not None:
            self._holds(session_id, [job])
            await self.stores.jobs.start_suspect(job.job_id, job.lease_id)

    async def acknowledge(self) -> None:
        session_id = self._anybody()
        jobs = self.held[session_id]
        self.draw.shuffle(jobs)
        ending = [jobs.pop() for _ in range(self.draw.randint(0, len(jobs)))]
        await self.stores.jobs.acknowledge([self._outcome(job) for job in ending])

    def _outcome(self, job: Job) -> Outcome:
        which = self.draw.randrange(6)
        if which == 0:
            return failed(job, delay_s=self.draw.choice([0.0, 5.0]))
        if which == 1:
            return Rescheduled(job.job_id, job.lease_id, self.draw.choice([0.0, 0.5, 20.0]))
        if which == 2:
            return Cancelled(job.job_id, job.lease_id, "not wanted")
        if which == 3:
            return discarded(job)
        return Completed(job.job_id, job.lease_id)

    async def cancel(self) -> None:
        if self.known:
            await self.stores.jobs.cancel(self.draw.choice(self.known), "operator")

    async def retry_now(self) -> None:
        if self.known:
            await self.stores.jobs.retry_now(self.draw.choice(self.known))

    async def pause(self) -> None:
        scope = self._scope()
        for_s = self.draw.choice([1.0, 10.0, 60.0, None])
        if for_s is None:
            self.paused.add(scope)
        await self.stores.lanes.pause(scope, for_s, reason="429", by="test")

    async def resume(self) -> None:
        scope = self.draw.choice(sorted(self.paused, key=str)) if self.paused else self._scope()
        self.paused.discard(scope)
        await self.stores.lanes.resume(scope)

    def _scope(self) -> Scope:
        keys = {
            ScopeKind.QUEUE: QUEUES,
            ScopeKind.KIND: KINDS,
            ScopeKind.TENANT: TENANTS,
            ScopeKind.PROVIDER: PROVIDERS,
            ScopeKind.GROUP: GROUPS[1:],
        }
        kind = self.draw.choice(list(keys))
        tenant = self.draw.choice([None, *TENANTS]) if kind is ScopeKind.GROUP else None
        return Scope(kind, self.draw.choice(keys[kind]), tenant)

    async def cap(self) -> None:
        tenant_id, lanes = self.draw.choice(TENANTS), self.stores.lanes
        most = self.draw.choice([None, 1, 2, 5])
        which = self.draw.randrange(3)
        if which == 0:
            weight = self.draw.choice([None, 0.1, 5.0])
            await lanes.set_tenant(TenantShare(tenant_id, weight=weight, max_running=most))
            return
        tenant = tenant_id if which == 1 else None
        if most is None:
            await lanes.clear_group_cap("g", tenant)
        else:
            await lanes.set_group_cap(GroupCap("g", tenant, most))

    async def crash(self) -> None:
        victim, witness = self._anybody(), await self.begin()
        self.held.pop(victim, None)
        await self.stores.sessions.mark_dead([victim])
        await self.stores.sessions.rescue(witness, 0.0, 3, 1000)

    async def leave(self) -> None:
        await self.begin()
        await self._stop(self._anybody())

    async def expire(self) -> None:
        await self.stores.jobs.expire_due(100)

    async def age(self) -> None:
        await self.stores.lanes.age(0.0)

    # ---- who ---------------------------------------------------------------------------------------

    async def begin(self) -> UUID:
        self._pid += 1
        session_id = await a_session(self.stores, self._pid, lease_s=100_000.0)
        self.held[session_id] = []
        return session_id

    def _anybody(self) -> UUID:
        return self.draw.choice(list(self.held))

    def _holds(self, session_id: UUID, jobs: list[Job]) -> None:
        if session_id in self.held:  # else he died meanwhile
            self.held[session_id] += jobs

    async def _stop(self, session_id: UUID) -> None:
        self.held.pop(session_id, None)
        await self.stores.sessions.close(session_id)


ACTS: dict[Callable[[History], Coroutine[Any, Any, None]], int] = {
    History.enqueue: 10,
    History.claim: 10,
    History.acknowledge: 8,
    History.claim_suspect: 2,
    History.pause: 2,
    History.resume: 2,
    History.cap: 2,
    History.cancel: 2,
    History.retry_now: 1,
    History.crash: 1,
    History.leave: 1,
    History.expire: 1,
    History.age: 1,
}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 5))
async def test_claims_alone_drain_the_lanes_after_any_history(stores: Stores, seed: int) -> None:
    history = History(stores, seed)
    await history.run()
    await history.end()
    await drained(stores, await history.begin(), claim_filter=EVERYTHING)
    counts = {label: count for label, count in (await stores.jobs.counts()).items() if count}
    assert set(counts) <= {"completed", "cancelled", "discarded"}
