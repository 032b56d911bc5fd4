"""Who orders the work: now and then it asks again, changes its mind, or has what is dead tried once more."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from fairlead.engine.jobs.dead_letter import replay_job
from fairlead.engine.ports import DeadLetterFilter, NewJob
from fairlead.errors import DependencyUnavailableError
from fairlead.testing._kit.ids import CountedIds
from tests.simulation.stores import WORK
from tests.simulation.watch import AskedAgain, Enqueued, Redriven
from tests.simulation.workload import CALLING, NOISY, TAKES_S, TENANTS, Order

if TYPE_CHECKING:
    from tests.simulation.program import Program
    from tests.simulation.world import World

CALLERS_IDS = 10**9
SHARE_KEYED, SHARE_LATER, SHARE_REGRETTED = 0.5, 0.15, 0.08
"""Of the orders that have a key of their own, that are due later, and that are called off."""
LATER_S, REGRETTED_S, AGAIN_S = (0.5, 15.0), (0.0, 6.0), (0.1, 3.0)
KEY_FOR_S = 7200.0
"""For so long a key stands for its work, also where that is done: longer than anybody asks again."""
LOOK_S = (10.0, 40.0)
"""Between two looks at what is dead."""


class Whim(NamedTuple):
    """How one order is placed. *regrets_s*: it is called off so long after it was acknowledged."""

    keyed: bool
    delay_s: float
    regrets_s: float | None
    again_s: float
    """Between two questions where none is answered."""

    @classmethod
    def of(cls, draw: Random) -> Whim:
        """Drawn."""
        keyed, later, regretted = draw.random(), draw.random(), draw.random()
        delay_s, regrets_s = draw.uniform(*LATER_S), draw.uniform(*REGRETTED_S)
        return cls(
            keyed < SHARE_KEYED,
            delay_s if later < SHARE_LATER else 0.0,
            regrets_s if regretted < SHARE_REGRETTED else None,
            draw.uniform(*AGAIN_S),
        )


AT_ONCE = Whim(keyed=False, delay_s=0.0, regrets_s=None, again_s=0.0)
"""Without any."""


class Customer:
    """Enqueues the orders from a process that no fault ever meets but on its road."""

    def __init__(self, world: World, program: Program, orders: list[Order]) -> None:
        self._world = world
        self._program = program
        self.process = program.process
        self._jobs = program.jobs
        self._dead_letters = program.dead_letters
        self._orders = orders
        self._ids = CountedIds(start=CALLERS_IDS)
        self._draw = world.chance.customer
        self._whims = [Whim.of(self._draw) for _ in orders]
        self.orders_after: list[UUID] = []
        """The jobs that were ordered after the mending."""

    async def run(self) -> None:
        """All of them, each at its time; returns once each is acknowledged, or nobody asks any more."""
        async with asyncio.TaskGroup() as group:
            redriving = group.create_task(self._redrive_now_and_then(), name="redrives")
            for order, whim in zip(self._orders, self._whims, strict=True):
                await asyncio.sleep(max(0.0, order.at_s - self._world.now()))
                group.create_task(self._place(order, whim), name="order")
            redriving.cancel()

    async def come_back(self) -> None:
        """Once all is well: consent anew where a grant is gone; then a job and a call of each tenant."""
        world, number = self._world, len(self._orders)
        for row in [*world.database.tokens.credentials.values()]:
            if row.state != "active":
                await world.consent(self._program, row.key.tenant)
        for tenant in TENANTS:
            for kind in ("work", "call"):
                number += 1
                job = self._job(Order(world.now(), number, tenant, kind, TAKES_S[0], 0), AT_ONCE)
                await self._jobs.enqueue([job])
                self.orders_after.append(job.job_id)
                world.watch.tell(Enqueued(job.job_id, number, tenant))

    async def _place(self, order: Order, whim: Whim) -> None:
        job_id = await self._acknowledged(order, whim)
        if job_id is None:
            return
        self._world.watch.tell(Enqueued(job_id, order.work, order.tenant))
        self._world.watch.strikes["noisy"] += order.kind == "flood" and order.tenant == NOISY
        if whim.regrets_s is not None:
            await asyncio.sleep(whim.regrets_s)
            with suppress(DependencyUnavailableError):
                await self._jobs.cancel(job_id, "it is not wanted any more", tenant_id=order.tenant)

    async def _acknowledged(self, order: Order, whim: Whim) -> UUID | None:
        """Which job stands for it. Without a key it is asked for once: an error may have stored it."""
        job = self._job(order, whim)
        while True:
            try:
                (stored,) = await self._jobs.enqueue([job])
            except DependencyUnavailableError:
                if job.unique_key is None:
                    return None
            else:
                job_id: UUID = stored.job_id
                return job_id
            await asyncio.sleep(whim.again_s)
            self._world.watch.tell(AskedAgain(order.work))
            job = replace(job, job_id=self._ids.uuid7())

    def _job(self, order: Order, whim: Whim) -> NewJob:
        vendor = self._world.vendors[order.tenant] if order.kind in CALLING else None
        return NewJob(
            job_id=self._ids.uuid7(),
            kind=f"sim.{order.kind}",
            tenant_id=order.tenant,
            provider=vendor,
            group_key=vendor or "",
            delay_s=whim.delay_s,
            args={WORK: order.work, "takes_s": order.takes_s, "kills": order.kills},
            unique_key=f"work-{order.work}" if whim.keyed else None,
            unique_for_s=KEY_FOR_S if whim.keyed else None,
        )

    async def _redrive_now_and_then(self) -> None:
        """Have one of the dead letters tried again, whatever the fleet does about it by itself."""
        while True:
            await asyncio.sleep(self._draw.uniform(*LOOK_S))
            which = self._draw.random()
            with suppress(DependencyUnavailableError):
                letters = await self._dead_letters.find(DeadLetterFilter(status="pending_review"), limit=100)
                if letters:
                    entry = letters[int(which * len(letters))]
                    if await self._dead_letters.redrive(entry.dead_letter_id, replay_job(entry, self._ids)):
                        self._world.watch.tell(Redriven(entry.dead_letter_id))
