"""What the simulated fleet is there for: jobs of some tenants, calls in jobs and beside them, bad ones too.

A piece of work has a number that its job carries; what a handler does is told to the watch, as to a sink.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from fairlead.engine.calls.request import Call
from fairlead.engine.jobs.handler import Handler, JobContext
from fairlead.errors import FairleadError
from tests.simulation.providers import RULES
from tests.simulation.stores import WORK
from tests.simulation.upstream import CALL_HEADER
from tests.simulation.watch import Ran, Read, Returned

if TYPE_CHECKING:
    from tests.simulation.program import Program

NOISY = "noisy"
TENANTS = (NOISY, "quiet-a", "quiet-b", "quiet-c", "quiet-d")
JOBS = 40
TIMEOUT_S = 20.0
TAKES_S, FLOOD_S = (0.05, 2.0), (3.0, 6.0)
"""How long work takes; that of the flood is what others would have to wait for."""
SLOW_S = 45.0
CALL_EACH_S = 8.0
"""About so often each process makes a call for a tenant, outside of any job."""
BURSTS, AT_ONCE = 3, 24
"""Jobs that make many calls at once, and how many: more than an account may have in flight."""
SHARE_OF_BURSTS = 0.1
"""Of the calls outside of jobs that are such a burst, too."""
CALLING = ("call", "burst")
"""Kinds that make calls: their group waits where one of them must. The others wait for their turn alone."""


@dataclass
class Hazards:
    """How many jobs are bad ones: *slow* beyond their timeout, *poison* always failing, *killer* of their
    process. *noisy*: how many jobs one tenant has beside the others, all at once."""

    slow: int = 0
    poison: int = 0
    killer: int = 0
    noisy: int = 0


Run = Callable[[JobContext], Awaitable[object]]


class Order(NamedTuple):
    """A job to be enqueued at *at_s*."""

    at_s: float
    work: int
    tenant: str
    kind: str
    takes_s: float
    kills: int


def vendors_of(draw: Random) -> dict[str, str]:
    """Each tenant's vendor: every vendor has one of them, whichever it is."""
    return dict(zip(TENANTS, draw.sample(sorted(RULES), len(RULES)), strict=True))


def orders(draw: Random, hazards: Hazards, within_s: float) -> list[Order]:
    """What is ordered in the first *within_s* seconds, in order of time."""
    kinds = ["slow"] * hazards.slow + ["poison"] * hazards.poison + ["killer"] * hazards.killer
    kinds += ["burst"] * BURSTS
    kinds += ["work", "call"] * ((JOBS - len(kinds)) // 2)
    planned = [(within_s * draw.random(), draw.choice(TENANTS), kind) for kind in kinds]
    flood_s = within_s * draw.random() / 2
    planned += [(flood_s, NOISY, "flood") for _ in range(hazards.noisy)]
    if hazards.noisy:
        planned += [(flood_s + 1.0, tenant, "flood") for tenant in TENANTS if tenant != NOISY]
    planned.sort()
    return [
        Order(at_s, work, tenant, kind, draw.uniform(*_takes_s(kind)), draw.randint(1, 4))
        for work, (at_s, tenant, kind) in enumerate(planned, 1)
    ]


def _takes_s(kind: str) -> tuple[float, float]:
    return FLOOD_S if kind == "flood" else TAKES_S


class Desk:
    """The handlers of one process."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._calls = 0
        self._rushes: set[asyncio.Task[None]] = set()
        self.running = 0
        """How many handlers run now."""
        self._draw = program.world.chance.product(f"{program.process.label}:desk")

    def handlers(self) -> list[Handler]:
        """What the fleet runs."""
        runs = {
            "work": self.work,
            "flood": self.work,
            "call": self.call,
            "burst": self.burst,
            "slow": self.slow,
            "poison": self.poison,
            "killer": self.killer,
        }
        return [
            Handler(f"sim.{kind}", partial(self._told, run), timeout_s=TIMEOUT_S)
            for kind, run in runs.items()
        ]

    async def _told(self, run: Run, context: JobContext) -> object:
        """*run*, with its effect told, and that it came to its end."""
        job, watch, program = context.job, self._program.world.watch, self._program
        effect = Ran(job.job_id, job.lease_id, context.tenant, job.kind, context.args[WORK])
        watch.tell(effect, program.name)
        self.running += 1
        try:
            result = await run(context)
        finally:
            self.running -= 1
        watch.tell(Returned(job.job_id, job.lease_id), program.name)
        return result

    async def work(self, context: JobContext) -> object:
        """Take a while."""
        await self._program.clock.sleep(context.args["takes_s"])
        return {"work": context.args[WORK]}

    async def call(self, context: JobContext) -> object:
        """A call or two of the tenant's connection."""
        for number in range(1 + context.args[WORK] % 2):
            await self.read(context.tenant, f"{context.job.job_id}/{context.job.lease_id}/{number}")
        return None

    async def burst(self, context: JobContext) -> object:
        """Many calls of the tenant's connection at once; those that find no room are left out.

        Begun anew with all of them, it would never come to its end: there is never room for so many.
        """
        with suppress(FairleadError):
            await self.read_many(context.tenant, f"{context.job.job_id}/{context.job.lease_id}")
        return None

    async def slow(self, context: JobContext) -> object:
        """Run into the timeout at first."""
        self._count("slow_jobs", context.attempt == 1)
        await self._program.clock.sleep(SLOW_S if context.attempt == 1 else context.args["takes_s"])
        return None

    async def poison(self, context: JobContext) -> object:
        """Fail, always."""
        self._count("poison")
        raise ValueError("what it was given makes no sense")

    async def killer(self, context: JobContext) -> object:
        """Take the process along, so often."""
        await self._program.clock.sleep(context.args["takes_s"])
        if context.job.crash_count < context.args["kills"] and self._program.world.bad:
            self._count("killer")
            self._program.world.kill_here(self._program)
        return None

    def _count(self, fault: str, counted: bool = True) -> None:
        self._program.world.watch.strikes[fault] += counted

    async def read(self, tenant: str, name: str) -> None:
        """One call, whose answer tells whose data it is."""
        call = Call(
            self._program.world.key_of(tenant), "GET", "https://api.sim/data", headers={CALL_HEADER: name}
        )
        result = await self._program.pipeline.send(call)
        body_tenant = json.loads(result.response.body)["tenant"]
        self._program.world.watch.tell(Read(tenant, body_tenant), self._program.name)

    async def read_many(self, tenant: str, name: str) -> None:
        """Many at once; raises what the first of those that failed met."""
        reads = [self.read(tenant, f"{name}/{number}") for number in range(AT_ONCE)]
        for error in await asyncio.gather(*reads, return_exceptions=True):
            if isinstance(error, BaseException):
                raise error

    def rush(self, tenant: str) -> None:
        """Many at once, and nobody waits for them."""
        self._calls += 1
        program = self._program
        work = self._rush(tenant, f"{program.process.label}/{self._calls}")
        task = program.world.loop.create_task(work, name="rush", context=program.process.context())
        self._rushes.add(task)
        task.add_done_callback(self._rushes.discard)

    async def _rush(self, tenant: str, name: str) -> None:
        with suppress(FairleadError):
            await self.read_many(tenant, name)

    async def now_and_then(self) -> None:
        """Calls outside of jobs, for as long as the world is at work."""
        world = self._program.world
        while True:
            await self._program.clock.sleep(CALL_EACH_S * 2 * self._draw.random())
            if not world.bad:
                return
            self._calls += 1
            try:
                tenant = TENANTS[int(self._draw.random() * len(TENANTS))]
                read = self.read_many if self._draw.random() < SHARE_OF_BURSTS else self.read
                await read(tenant, f"{self._program.process.label}/{self._calls}")
            except FairleadError:
                continue  # its caller is told, and tries another day
