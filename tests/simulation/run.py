"""One seed: a swarm of faults for a while, then all is mended, and all that was begun must come to its end.

Safety: what may never happen is looked for at each thing that is seen. Liveness: within ten virtual minutes
after the mending nothing is left running or due, and nobody holds what he does not use.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import Context
from dataclasses import dataclass, field
from pathlib import Path

from tests.simulation import invariants, points
from tests.simulation.chance import Chance
from tests.simulation.customer import Customer
from tests.simulation.loop import Deadlock, Spinning, Stopped
from tests.simulation.mending import WATCHED_ON, Mending
from tests.simulation.stores import Parts
from tests.simulation.strikes import passed
from tests.simulation.swarm import Swarm
from tests.simulation.trouble import Trouble
from tests.simulation.unexplained import Calm, LeftToItsLease, sent_twice
from tests.simulation.watch import Broken
from tests.simulation.workload import orders
from tests.simulation.world import World

SAFETY_S = 90.0
ORDERED_S = 68.0
"""Work is ordered in so much of it."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a run is decided by, besides the code. *without*: faults that are left out; *fifo*: steps (from,
    to) that take the oldest callback, whatever is drawn; *parts*: what the world is built from."""

    seed: int
    without: frozenset[str] = frozenset()
    fifo: tuple[tuple[int, int], ...] = ()
    parts: Parts = field(default_factory=Parts)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it. *hash*: of its steps and all that was told; *last*: the latest steps, in words;
    *words*: its faults."""

    options: Options
    hash: str
    steps: int
    simulated_s: float
    healed_s: float | None
    """How long it took after the mending; None: it did not come so far."""
    broken: Broken | None
    words: list[str]
    last: list[str]
    seen: dict[str, int]
    """How often each thing was told: by the engine, and by those who watch it."""
    struck: dict[str, int]
    """How often each fault struck, and how often each fault point was passed (`strikes`)."""


def run_seed(options: Options) -> Outcome:
    """Run it. Whatever goes wrong in it is in the outcome, also where the world itself comes to a stop."""
    with _no_collector():
        return _Run(options).outcome()


class _Run:
    def __init__(self, options: Options) -> None:
        self._options = options
        chance = Chance(options.seed)
        self._swarm = Swarm.of(chance.swarm).without(options.without)
        self._world = world = World(chance, self._swarm, options.parts, options.fifo)
        calm = () if self._swarm.faults else (Calm(),)
        world.watch.invariants = (*invariants.watching(), LeftToItsLease(), *calm)
        world.loop.after_step = self._is_broken
        self._trouble = Trouble(self._swarm, chance.faults, world)
        self._mending: Mending | None = None
        self._broken: Broken | None = None

    def _is_broken(self) -> bool:
        world = self._world
        return world.watch.broken is not None or world.crashed is not None or bool(world.loop.complaints)

    def outcome(self) -> Outcome:
        world = self._world
        kills = points.MOST * self._swarm.strength("points")
        stops = points.MOST_STOPS * self._swarm.strength("stop")
        self._dice = points.Dice(world.chance.points, kills, stops)
        try:
            with points.armed(self._dice, world.strike_here):
                story = world.loop.create_task(self._story(), name="story", context=Context())
                world.loop.run_until_complete(story)
        except Stopped:
            pass
        except (Deadlock, Spinning) as error:
            self._broken = Broken("liveness", world.now(), str(error))
        except Exception as error:  # of the world itself: its seed is told as that of any other breach
            self._broken = Broken("harness", world.now(), _where(error))
        broken = world.watch.broken or world.crashed or self._complaint() or self._broken
        counts = {**world.events, **world.watch.counts()}
        outcome = Outcome(
            self._options,
            self._hash(),
            world.loop.steps,
            world.now(),
            self._mending and self._mending.rested_s,
            broken,
            self._swarm.words(),
            world.loop.last,
            counts,
            self._struck(),
        )
        world.close()
        return outcome

    def _hash(self) -> str:
        digest = hashlib.blake2b(self._world.loop.trace.encode(), digest_size=8)
        for entry in self._world.watch.told:
            digest.update(repr(entry).encode())
        return digest.hexdigest()

    def _struck(self) -> dict[str, int]:
        passes = {passed(point): count for point, count in self._dice.passes.items()}
        return {**self._world.watch.strikes, **passes}

    def _complaint(self) -> Broken | None:
        """An error that nobody handled."""
        complaints = self._world.loop.complaints
        return Broken("unhandled", self._world.now(), complaints[0]) if complaints else None

    async def _story(self) -> None:
        world = self._world
        outside = await world.set_up()
        world.start_all()
        customer = Customer(world, outside, orders(world.chance.workload, world.hazards, ORDERED_S))
        context = outside.process.context()
        ordering = world.loop.create_task(customer.run(), name="customer", context=context)
        self._trouble.begin()
        await asyncio.sleep(SAFETY_S)
        self._trouble.heal()
        self._dice.heal()
        world.bad = False
        world.start_all()
        self._mending = Mending(world, customer, ordering)
        self._broken = await self._mending.run(on=self._options.seed % WATCHED_ON == 0)
        if not self._swarm.faults:
            self._broken = self._broken or sent_twice(world.issuer.ledger(), world.now())


def _where(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{error!r} in {last.name} ({Path(last.filename).name}, line {last.lineno})"


@contextmanager
def _no_collector() -> Iterator[None]:
    """A collection would end tasks of the dead at some step or other; a seed makes little garbage."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
