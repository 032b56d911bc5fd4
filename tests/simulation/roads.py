"""The road from a process to the database: each operation takes a while, and may be lost on either way.

An operation is one atomic step of the world, at the moment of its arrival. It is done whatever has become of
who asked: the dead have sent what they sent, and who gave up may be heard all the same. A caller learns of a
break, never of what was done.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import Context
from functools import partial
from typing import Any

from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.errors import DependencyUnavailableError
from fairlead.testing._memory.database import MemoryDatabase, MemoryLink
from tests.simulation.chance import Chance
from tests.simulation.loop import SimLoop
from tests.simulation.process import SimProcess, current, never

LATENCY_S = (0.0005, 0.004)
"""One way, on a good day."""
NOTICED_S = (0.01, 1.0)
"""Until a caller learns that its connection broke."""
DEADLINE_S = DatabaseSettings("").command_timeout_s
"""After so long a client drops the connection; what it has sent may still arrive."""
HELD_S = (DEADLINE_S, 2 * DEADLINE_S)
"""For so long an operation is held up that arrives when nobody waits for it any more."""
NOBODY = ""


class RoadManner:
    """How bad the road is now; changed at any time. Shares are of all operations.

    *cut_before*: lost on the way there. *cut_after*: done, and the answer is lost. *slow*: late by up to
    *slow_s* on the way there, so that it is done late. *held*: so late that its caller has given it up.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._away: dict[str, float] = {}
        self.heal()

    def heal(self) -> None:
        """A good road again."""
        self.cut_before = self.cut_after = self.slow = self.held = 0.0
        self.slow_s = 5.0
        self.latency_s = LATENCY_S
        self._away.clear()

    def away(self, process: str | None, for_s: float) -> None:
        """The database cannot be reached for *for_s* seconds: by *process*, or by anybody (None)."""
        whom = process or NOBODY
        self._away[whom] = max(self._away.get(whom, 0.0), self._now() + for_s)

    def is_away(self, process: str) -> bool:
        """Whether *process* cannot reach it now."""
        now = self._now()
        return bool(self._away) and any(self._away.get(whom, -math.inf) > now for whom in (NOBODY, process))


class Parting:
    """Where an operation that is done stands until its answer has arrived, or is lost."""

    def __await__(self) -> Generator[Parting, None, None]:
        yield self


class Roads:
    """All of a world."""

    def __init__(self, loop: SimLoop, database: MemoryDatabase, chance: Chance) -> None:
        self.loop = loop
        self.strikes: Counter[str] = Counter()
        """What faults really did, by their names."""
        self.manner = RoadManner(loop.time)
        self.fate = chance.faults.random
        self._latency = chance.latency.random
        self._database = database
        self._serving: SimProcess | None = None

    def whose(self) -> str:
        """The process whose step this is, or that the database works for; "" for the world itself."""
        process = self._serving or current()
        return NOBODY if process is None else process.name

    def link(self) -> MemoryLink:
        """A way to the database for the stores of one process; its operations are done by `carry` alone."""
        link = self._database.link()
        link.on_answer = _part
        return link

    def between(self, least_most_s: tuple[float, float]) -> float:
        """A drawn time."""
        least_s, most_s = least_most_s
        return least_s + (most_s - least_s) * self._latency()

    async def carry(
        self,
        process: SimProcess,
        operation: Callable[..., Coroutine[Any, Any, Any]],
        *args: Any,
        **named: Any,
    ) -> Any:
        """Have *operation* done for *process*; its answer, or DependencyUnavailableError where it got none."""
        if process.dead:
            await never()
        trip = _Trip(self, process, partial(operation, *args, **named))
        try:
            return await trip.answer
        except asyncio.CancelledError:
            trip.hang_up()
            raise

    def serve(self, process: SimProcess, act: Callable[[], Any]) -> Any:
        """*act*, done by the database for *process*."""
        self._serving = process
        try:
            return act()
        finally:
            self._serving = None


class _Trip:
    """One operation on its way there and back."""

    __slots__ = ("_cut", "_process", "_roads", "_steps", "_work", "answer")

    def __init__(
        self, roads: Roads, process: SimProcess, work: Callable[[], Coroutine[Any, Any, Any]]
    ) -> None:
        self._roads = roads
        self._process = process
        self._work = work
        self._steps: Coroutine[Any, Any, Any] | None = None
        """What the store has still to do once it has answered."""
        self.answer = roads.loop.create_future()
        road_manner, fate, late = roads.manner, roads.fate(), roads.fate()
        self._cut = "cut" if fate < road_manner.cut_before else ""
        if road_manner.cut_before <= fate < road_manner.cut_before + road_manner.cut_after:
            self._cut = "lost_commit"
        delay_s = roads.between(road_manner.latency_s)
        if late < road_manner.held:
            delay_s += roads.between(HELD_S)
        elif late < road_manner.held + road_manner.slow:
            delay_s += roads.between((0.0, road_manner.slow_s))
            roads.strikes["slow_store"] += 1
        if delay_s >= DEADLINE_S:
            self._later(DEADLINE_S, self._fail, _disconnected())
        self._later(delay_s, self._arrive)

    def _later(self, delay_s: float, act: Callable[..., None], *args: Any) -> None:
        self._roads.loop.call_later(delay_s, act, *args, context=Context())

    def _arrive(self) -> None:
        if self._is_lost("cut"):
            self._later(self._roads.between(NOTICED_S), self._fail, _disconnected())
            return
        self._steps = self._work()
        home_s = self._roads.between(self._roads.manner.latency_s)
        try:
            self._roads.serve(self._process, partial(self._steps.send, None))
        except StopIteration as done:  # it has nothing to say of its answer
            self._end(home_s, self._give, done.value)
        except Exception as error:  # the store's answer, whatever it is
            self._end(home_s, self._fail, error)
        else:
            if self.answer.done():
                self._roads.strikes["late_store"] += not self.answer.cancelled()
                self._lose()
            else:
                self._later(home_s, self._depart)

    def _is_lost(self, cut: str) -> bool:
        """Whether it does not get further: it is *cut* here, or the database has gone away."""
        away = self._roads.manner.is_away(self._process.name)
        if self._cut == cut or away:
            self._roads.strikes["database_away" if away else cut] += 1
            self._roads.strikes["database_away one"] += away and not self._roads.manner.is_away(NOBODY)
            return True
        return False

    def _end(self, home_s: float, tell: Callable[[Any], None], value: object) -> None:
        """The store's own code has ended; *what* is its answer."""
        self._steps = None
        self._later(home_s, tell, value)

    def _depart(self) -> None:
        """The answer arrives, unless it is lost or nobody waits for it any more: then the store is told."""
        if self._steps is None:  # who waited has hung up meanwhile
            return
        if self._process.dead or self.answer.done() or self._is_lost("lost_commit"):
            self._lose()
            return
        try:
            self._steps.send(None)
        except StopIteration as done:
            self._give(done.value)

    def hang_up(self) -> None:
        """Who waited does not any more. Where it was done already the store learns that it never answered."""
        if self._steps is not None:
            self._lose()

    def _lose(self) -> None:
        """What the store makes of it that its answer is lost is what the caller is told."""
        assert self._steps is not None
        steps, self._steps = self._steps, None
        noticed_s = self._roads.between(NOTICED_S)
        try:
            steps.throw(_disconnected())
        except StopIteration as done:  # it has an answer all the same
            self._later(noticed_s, self._give, done.value)
        except Exception as raised:
            self._later(noticed_s, self._fail, raised)

    def _give(self, value: object) -> None:
        if not self.answer.done():
            self.answer.set_result(value)

    def _fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class Road:
    """A store by way of the road: all of its operations, and nothing else."""

    def __init__(self, roads: Roads, process: SimProcess, store: object) -> None:
        self._roads = roads
        self._process = process
        self._store = store

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        carried = partial(self._roads.carry, self._process, getattr(self._store, name))
        self.__dict__[name] = carried
        return carried


class JobsRoad(Road):
    """The queue's, which also calls: that work has come."""

    async def listen(self, on_wake: Callable[[str], None]) -> Callable[[], Awaitable[None]]:
        """As the port says. What is told while the road is cut is missed."""
        roads, process = self._roads, self._process

        def on_notify(queue: str) -> None:
            if not roads.manner.is_away(process.name):
                roads.loop.call_later(
                    roads.between(roads.manner.latency_s), on_wake, queue, context=process.context()
                )

        listen = self._store.listen  # type: ignore[attr-defined]
        unlisten = await roads.carry(process, listen, on_notify)
        forget = process.on_death(lambda: _finish(unlisten()))

        async def end() -> None:
            if not process.dead:
                forget()
                _finish(unlisten())

        return end


def _finish(work: Coroutine[Any, Any, None]) -> None:
    """Run what never waits to its end."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise AssertionError("it waits")


async def _part(_operation: str) -> None:
    await Parting()


def _disconnected() -> DependencyUnavailableError:
    return DependencyUnavailableError("the connection to the database was lost")
