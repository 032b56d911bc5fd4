"""After the mending: what was begun comes to its end, and who asks anew is served.

Rest alone would show little: a fleet that claims nothing, or refreshes nothing, is at rest. So once all has
ended the customer consents again where a grant is gone, and each tenant orders a job and a call: both must be
done soon. Some seeds are watched on until each grant was refreshed once more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator

from tests.simulation import endings
from tests.simulation.customer import Customer
from tests.simulation.providers import ACCESS_TTL_S
from tests.simulation.watch import Broken
from tests.simulation.world import World

HEAL_S = 600.0
LOOK_S = 5.0
"""How often it is looked whether all has come to its end."""
SERVED_S = 120.0
"""How long what is asked after the mending may take: as long as a breaker may still be open."""
SOON_S = 1.0
"""How often it is looked whether it has."""
WATCHED_ON = 4
"""Of so many seeds one is watched until all grants are refreshed: it takes a sixth of a seed's steps."""
REFRESHED_S = 2 * ACCESS_TTL_S


class Mending:
    """The second phase of one seed. *rested_s*: how long all that was begun took; None: it did not end."""

    def __init__(self, world: World, customer: Customer, ordering: asyncio.Task[None]) -> None:
        self._world = world
        self._customer = customer
        self._ordering = ordering
        self.rested_s: float | None = None

    async def run(self, *, on: bool) -> Broken | None:
        """What is broken then, None: nothing. *on*: watch on until all grants are refreshed."""
        world, mended = self._world, self._world.now()
        broken = await self._until(self._begun_left, LOOK_S, HEAL_S)
        if broken is not None:
            return broken
        self.rested_s = world.now() - mended
        broken = endings.at_end(world.watch, world.database, world.issuer)
        if broken is not None:
            return broken
        await self._in_his_process(self._customer.come_back())
        broken = await self._until(self._asked_left, SOON_S, SERVED_S)
        if broken is None and on:
            broken = await self._until(self._refreshed(), LOOK_S, REFRESHED_S)
        return broken or endings.at_end(world.watch, world.database, world.issuer)

    async def _in_his_process(self, work: Coroutine[None, None, None]) -> None:
        context = self._customer.process.context()
        await self._world.loop.create_task(work, name="customer", context=context)

    async def _until(
        self, remaining: Callable[[], Iterator[str]], each_s: float, most_s: float
    ) -> Broken | None:
        """Wait until nothing is *left*; what still is after *most_s*."""
        world = self._world
        latest_s = world.now() + most_s
        while True:
            await asyncio.sleep(each_s)
            why = next(remaining(), None)
            if why is None:
                return None
            if world.now() >= latest_s:
                return Broken("liveness", world.now(), f"{most_s:g} s later {why}")

    # ---- what is still to come -----------------------------------------------------------------

    def _begun_left(self) -> Iterator[str]:
        world = self._world
        if self._ordering.done():
            self._ordering.result()  # raises what it met: nothing is asked of a world without its customer
        else:
            yield "the customer still has orders to place"
        yield from endings.work_left(world.database)
        yield from self._held_left()

    def _asked_left(self) -> Iterator[str]:
        yield from endings.grants_gone(self._world.database)
        yield from self._work_left()

    def _work_left(self) -> Iterator[str]:
        world = self._world
        yield from endings.asked_left(world.database, self._customer.orders_after)
        yield from endings.jobs_due(world.database)
        yield from world.redis.breakers_open()
        yield from self._held_left()

    def _held_left(self) -> Iterator[str]:
        world = self._world
        yield from endings.refreshes_left(world.database)
        yield from world.redis.slots_in_use()
        yield from world.in_the_air()

    def _refreshed(self) -> Callable[[], Iterator[str]]:
        """What has the generation that it has now.

        A loss of before the mending may come to light with the next refresh: then the grant is gone, and
        `endings.at_end` judges whether it may be.
        """
        rows = self._world.database.tokens.credentials.values()
        generations = {row.connection_id: row.generation for row in rows}

        def remaining() -> Iterator[str]:
            for row in rows:
                if row.state == "active" and row.generation == generations[row.connection_id]:
                    yield f"the grant of {row.key.tenant} was not refreshed"
            yield from endings.endpoints_shut(self._world.database)
            yield from self._work_left()

        return remaining
