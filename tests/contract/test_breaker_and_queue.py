"""Jobs that an open breaker sends back, through the queue (G6)."""

from __future__ import annotations

from fairlead.engine.jobs.handler import JobContext
from fairlead.engine.ports import Rescheduled
from fairlead.policy.limits.breaker import DestinationHealth
from tests.contract.stores import ANY, Stores, a_session
from tests.support.engine import new_job
from tests.support.entrances import ConnectionUnderTest

QUEUED = {"a": 2, "b": 2, "urgent 1": 1, "c": 2, "urgent 2": 1}


class Work:
    """Jobs of one connection; *served* names those that had their call."""

    def __init__(self, stores: Stores) -> None:
        self.stores = stores
        self.way = ConnectionUnderTest(settings={"breaker_failures": 2, "breaker_open_s": 60.0})
        self.served: list[tuple[str, int, int]] = []
        self.executor = self.way.executor(self.work, stores.lanes)

    async def work(self, context: JobContext) -> None:
        await self.call(DestinationHealth.HEALTHY)
        self.served.append((str(context.args["name"]), context.job.priority, context.attempt))

    async def call(self, health: DestinationHealth) -> None:
        async with self.way.call_admitter.enter(self.way.wish(wait_s=0.0)) as admission:
            admission.record_health(health)

    async def enqueue(self) -> None:
        for name, priority in QUEUED.items():
            job = new_job(
                args={"name": name}, priority=priority, provider="stripe", group_key="stripe/default"
            )
            await self.stores.jobs.enqueue([job])

    async def pass_time(self, delay_s: float) -> None:
        await self.stores.pass_time(delay_s)
        await self.way.pass_time(delay_s)


async def test_breaker_opens_queued_work_keeps_its_order_and_class(stores: Stores) -> None:
    work, session_id = Work(stores), await a_session(stores, lease_s=100_000.0)
    for _ in range(2):
        await work.call(DestinationHealth.UNHEALTHY)
    await work.enqueue()
    jobs = await stores.jobs.claim(ANY, 10, session_id)
    outcomes = [await work.executor.run(job) for job in jobs]
    assert outcomes == [Rescheduled(job.job_id, job.lease_id, None) for job in jobs]
    await stores.jobs.acknowledge(outcomes)
    assert await stores.jobs.claim(ANY, 10, session_id) == [], "its group waits for the breaker"
    for _ in range(2 * len(QUEUED)):
        await work.pass_time(61)
        for job in await stores.jobs.claim(ANY, 1, session_id) + await stores.jobs.claim(ANY, 1, session_id):
            await stores.jobs.acknowledge([await work.executor.run(job)])
    assert work.served == [
        ("urgent 1", 1, 1),
        ("urgent 2", 1, 1),
        ("a", 2, 1),
        ("b", 2, 1),
        ("c", 2, 1),
    ]
