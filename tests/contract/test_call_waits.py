"""A job that waits for a slot is no live waiter: it brings along since when it waits (R26)."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from fairlead.engine.jobs.handler import JobContext
from fairlead.engine.ports import Job, Outcome, Rescheduled
from tests.contract.stores import ANY, Stores, a_session, claimed, failed
from tests.support.engine import new_job
from tests.support.entrances import ConnectionUnderTest, settled, started_task

ROUND_S = 31.0
"""A refused job comes back when a lease may have ended, and a moment later."""


async def again(stores: Stores, outcome: Outcome) -> Job:
    """The job's next run, 60 s after *outcome*."""
    assert await stores.jobs.acknowledge([outcome]) == {outcome.job_id}
    await stores.pass_time(60)
    session_id = await a_session(stores)
    (job,) = await stores.jobs.claim(ANY, 1, session_id)
    return job


async def test_since_when_a_call_waits_is_kept_until_it_waits_no_more(stores: Stores) -> None:
    job = await claimed(stores, await a_session(stores))
    assert job.call_waited_s is None
    job = await again(stores, Rescheduled(job.job_id, job.lease_id, 0.0, call_waited_s=2.0))
    assert job.call_waited_s == pytest.approx(62, abs=2)
    burnt = failed(job, delay_s=0.0)
    job = await again(
        stores, Rescheduled(job.job_id, job.lease_id, 0.0, burnt.failure, {}, job.call_waited_s)
    )
    assert job.call_waited_s == pytest.approx(122, abs=4)
    job = await again(stores, Rescheduled(job.job_id, job.lease_id, 0.0))
    assert job.call_waited_s is None


async def test_a_suspect_brings_it_along_too(stores: Stores) -> None:
    survivor = await a_session(stores, 1)
    crashed = await a_session(stores, 2)
    job = await claimed(stores, crashed)
    await stores.jobs.acknowledge([Rescheduled(job.job_id, job.lease_id, 0.0, call_waited_s=100.0)])
    await stores.jobs.claim(ANY, 1, crashed)
    await stores.sessions.mark_dead([crashed])
    await stores.sessions.rescue(survivor, 0.0, 3, 100)
    suspect = await stores.jobs.claim_suspect(ANY, survivor)
    assert suspect is not None
    assert suspect.call_waited_s == pytest.approx(100, abs=4)


class Line:
    """One slot, which calls of class 1 hand to each other, and a job of class 3 that wants it, too."""

    def __init__(self, stores: Stores, session_id: UUID) -> None:
        self.stores = stores
        self.session_id = session_id
        self.way = ConnectionUnderTest(settings={"concurrency_limit": 1, "priority_classes": 3})
        self.calls: list[asyncio.Task[None]] = []
        self.over = asyncio.Event()
        self.served = False
        self.executor = self.way.executor(self.work, stores.lanes)

    async def work(self, context: JobContext) -> None:
        await self.way.call()
        self.served = True

    async def urgent(self) -> None:
        """One more call of class 1; the one before it is over."""
        previous, self.over = self.over, asyncio.Event()
        self.calls.append(started_task(self.way.call(self.over, priority_class=1, wait_s=600.0)))
        await settled()
        previous.set()
        await settled()

    async def run(self) -> None:
        """A run of the job: it and a call of class 1 are in line when the slot comes free."""
        (job,) = await self.stores.jobs.claim(ANY, 2, self.session_id)
        run = asyncio.create_task(self.executor.run(job))
        await settled()
        await self.urgent()
        await self.way.clock.advance(3)
        await self.stores.jobs.acknowledge([await run])

    async def pass_time(self, delay_s: float) -> None:
        await self.stores.pass_time(delay_s)
        await self.way.pass_time(delay_s)


async def test_a_6_minute_waiter_is_promoted_through_the_queue(stores: Stores) -> None:
    """Calls of a better class never end; after five minutes of runs in vain it is the job's turn."""
    line = Line(stores, await a_session(stores, lease_s=100_000.0))
    await line.urgent()
    began_s = line.way.clock.monotonic()
    await stores.jobs.enqueue([new_job(priority=3, provider="stripe", group_key="stripe/default")])
    for _ in range(13):
        await line.run()
        if line.served:
            break
        await line.pass_time(ROUND_S)
    assert line.served, "it was passed by calls of a better class for ever"
    assert 300 <= line.way.clock.monotonic() - began_s <= 360
    line.over.set()
    await asyncio.gather(*line.calls)
