"""All that a seed simulates: stores, servers and disks, and the processes to which everything happens."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import NoReturn

from fairlead._core.secret import Secret
from fairlead.engine.ports import ConnectionKey
from fairlead.engine.tokens.connection_grant import Grant
from fairlead.errors import DependencyUnavailableError
from fairlead.events import Event
from fairlead.policy.limits.limit import MICRO
from fairlead.testing._kit.ids import CountedIds
from fairlead.testing._memory import MemoryDatabase
from tests.simulation.chance import Chance
from tests.simulation.issuer import SimIssuer
from tests.simulation.loop import SimLoop
from tests.simulation.machine import WorldClock
from tests.simulation.process import ProcessKilled, SimProcess, current
from tests.simulation.program import Program
from tests.simulation.providers import ACCESS_TTL_S
from tests.simulation.roads import RoadManner, Roads
from tests.simulation.sealing import HostDisk
from tests.simulation.stores import Parts
from tests.simulation.swarm import Swarm
from tests.simulation.unexplained import bug_in
from tests.simulation.upstream import SimUpstream
from tests.simulation.watch import Broken, Over, Struck, Watch
from tests.simulation.workload import TENANTS, Hazards, vendors_of

FLEET = {"p1": "host-a", "p2": "host-a", "p3": "host-b"}
"""Processes and their hosts: two are neighbours, who see each other die."""
OUTSIDE = "c1"
"""The process that sets up and orders; no fault meets it but on its road."""
LATENCY_S = (0.002, 0.02)
"""One way to a server that is no database."""
BACK_S = (0.5, 5.0)
"""Until a process that ended by itself is started again."""
FIRST_LIFE_S = (10.0, 120.0)
"""How long the first tokens live: refreshes come at different times."""
STOPPED_S = (10.0, 75.0)
"""For how long a process stands still at a fault point: longer than a lease, mostly."""
DATABASE_IDS = 10**11


class World:
    """One seed's. *bad* is True while faults are about to happen, and work is ordered."""

    def __init__(
        self, chance: Chance, swarm: Swarm, parts: Parts, fifo: Sequence[tuple[int, int]] = ()
    ) -> None:
        self.chance = chance
        self.swarm = swarm
        self.loop = SimLoop(chance.sched, fifo)
        self.database = MemoryDatabase(WorldClock(self.loop), CountedIds(start=DATABASE_IDS))
        self._roads = Roads(self.loop, self.database, chance)
        self.watch = Watch(self.now, self._roads.whose, self._roads.strikes)
        self.issuer = SimIssuer(self.now, chance.issuer, self.watch.strikes)
        self.upstream = SimUpstream(self.now, chance.upstream, self.watch, self.issuer)
        self.redis = parts.redis(lambda: round(self.now() * MICRO), chance.redis, self.watch)
        self.disks = {
            host: HostDisk(strikes=self.watch.strikes)
            for host in {**dict.fromkeys(FLEET.values()), OUTSIDE: None}
        }
        self.gate_started: set[str] = set()
        self.hazards = _hazards(swarm)
        self.vendors = vendors_of(chance.vendors)
        """That of each tenant."""
        self.bad = True
        self.lives: list[SimProcess] = []
        self.programs: dict[str, Program] = {}
        self.events: Counter[str] = Counter()
        """What the engine told, by name: of use to whoever reads a report, and to nothing else."""
        self.crashed: Broken | None = None
        """A process that ended by an error of its own, or told of one."""
        self._parts = parts

    def now(self) -> float:
        """Virtual seconds."""
        return self.loop.time()

    def key_of(self, tenant: str) -> ConnectionKey:
        """The one connection of *tenant*."""
        return ConnectionKey(tenant, self.vendors[tenant])

    def latency_s(self) -> float:
        """One way to a server, drawn."""
        return self._roads.between(LATENCY_S)

    def note_event(self, program: Program, event: Event) -> None:
        """The engine told something; what nothing explains is a bug."""
        self.events[event.name] += 1
        why = bug_in(event, self.swarm.faults)
        if why is not None:
            self.crashed = self.crashed or Broken("bug", self.now(), f"{program.process.label}: {why}")

    @property
    def carriers(self) -> Roads:
        """What carries operations to the database."""
        return self._roads

    def in_the_air(self) -> Iterator[str]:
        """Refreshes that a process is at: an answer may be on disk alone, and the database not know."""
        for program in self.programs.values():
            if program.coordinator._refreshes:
                yield f"{program.process.label} is at a refresh"

    # ---- set up --------------------------------------------------------------------------------

    async def set_up(self) -> Program:
        """Each tenant has consented, and is connected; the process that did it is there to order jobs."""
        process = SimProcess(OUTSIDE, OUTSIDE)
        outside = self._program(process)
        self.lives.append(process)
        await self.loop.create_task(self._connect(outside), context=process.context())
        return outside

    async def _connect(self, outside: Program) -> None:
        for tenant in self.vendors:
            await self.consent(outside, tenant, self.chance.workload.uniform(*FIRST_LIFE_S))

    async def consent(self, outside: Program, tenant: str, life_s: float = ACCESS_TTL_S) -> None:
        """The customer gives a grant, the first or a new one, whose access token lives for *life_s*."""
        key = self.key_of(tenant)
        tokens = self.issuer.register(key.provider, tenant, life_s)
        grant = Grant(
            access_token=Secret(tokens.access_token),
            refresh_token=Secret(tokens.refresh_token),
            expires_in_s=tokens.expires_in_s,
            account_id=tokens.account_id,
        )
        await outside.connections.upsert(key, grant, actor="setup")

    def _program(self, process: SimProcess) -> Program:
        return process.context().run(Program, self, process, self._parts, len(self.lives))

    # ---- processes -----------------------------------------------------------------------------

    def start(self, name: str) -> None:
        """A new life of *name*, unless it lives."""
        if name in self.programs:
            return
        number = 1 + sum(life.name == name for life in self.lives)
        process = SimProcess(name, FLEET[name], number)
        program = self.programs[name] = self._program(process)
        self.lives.append(process)
        task = self.loop.create_task(program.run(), name=process.label, context=process.context())
        task.add_done_callback(partial(self._ended, program), context=Context())

    def start_all(self) -> None:
        """Everybody lives and moves."""
        for name in FLEET:
            self.start(name)
            self._thaw(self.programs[name].process)

    def _ended(self, program: Program, task: asyncio.Task[None]) -> None:
        """A process has come to its end: it was asked to, or could not begin without the database.

        One that is at work outlives an outage (P14).
        """
        error = None if task.cancelled() else task.exception()
        if program.process.dead:
            return
        self._bury(program)
        if error is not None and (program.begun or not _is_outage(error)):
            why = f"{program.process.label} ended by {error!r}"
            self.crashed = self.crashed or Broken("crash", self.now(), why)
        self._later(self._roads.between(BACK_S), self.start, program.name)

    def _bury(self, program: Program) -> None:
        process = program.process
        if process.state == "frozen":
            self.watch.tell(Over("freeze"), process.name)
        self.programs.pop(process.name, None)
        process.remains = self.loop.remains_of(process)
        process.die()

    def _later(self, delay_s: float, act: object, *args: object) -> None:
        self.loop.call_later(delay_s, act, *args, context=Context())

    # ---- what happens to them (see Afflicted) --------------------------------------------------

    @property
    def roads(self) -> RoadManner:
        """How the way to the database is."""
        return self._roads.manner

    def processes(self) -> list[str]:
        """Those of the fleet that run."""
        return [name for name, program in self.programs.items() if program.process.state == "running"]

    def living(self) -> list[str]:
        """The same, and those that stand still."""
        return [*self.programs]

    def kill(self, name: str, back_in_s: float) -> None:
        """SIGKILL, and a new life after *back_in_s* seconds. None of its code runs again."""
        program = self.programs.get(name)
        if program is None:
            return
        self.watch.tell(Struck("kill", self.now() + back_in_s), name)
        self._bury(program)
        self._later(back_in_s, self.start, name)

    def kill_here(self, program: Program) -> NoReturn:
        """The same for the process whose code asks, which ends where it stands."""
        if not program.process.dead:
            self.kill(program.name, self._roads.between(BACK_S))
        raise ProcessKilled

    def freeze(self, name: str, for_s: float) -> None:
        """SIGSTOP for a while: what comes due meanwhile is run at once when it goes on."""
        program = self.programs.get(name)
        if program is None or program.process.state != "running":
            return
        self.watch.tell(Struck("freeze", self.now() + for_s), name)
        program.process.state = "frozen"
        self._later(for_s, self._thaw, program.process)

    def _thaw(self, process: SimProcess) -> None:
        if process.state == "frozen":
            self.watch.tell(Over("freeze"), process.name)
            process.state = "running"
            handles, process.held = process.held, []
            self.loop.take_back(handles)

    def restart(self, name: str) -> None:
        """Ask it to stop; it begins anew once it has."""
        program = self.programs.get(name)
        if program is not None:
            self.watch.tell(Struck("restart", self.now()), name)
            program.process.context().run(program.stop)

    def jump_clock(self, name: str, by_s: float) -> None:
        """Its time of day is another from now on."""
        program = self.programs.get(name)
        if program is not None:
            self.watch.tell(Struck("jump", self.now()), name)
            program.clock.wall_s += by_s

    def rush(self, share: float) -> None:
        """Many calls of one tenant at once, by each process."""
        for program in self.programs.values():
            if self.bad:
                program.desk.rush(TENANTS[int(share * len(TENANTS))])

    def strike_here(self, point: str, action: str) -> None:
        """Kill or stop the process whose code passes a fault point; one that no fault meets goes on."""
        process = current()
        program = None if process is None else self.programs.get(process.name)
        if program is None or program.process is not process:
            return
        for counted in (f"{action} {point}", "points" if action == "kill" else action):
            self.watch.strikes[counted] += 1
        if action == "kill":
            self.kill_here(program)
        self.freeze(program.name, self._roads.between(STOPPED_S))

    # ---- the end -------------------------------------------------------------------------------

    def close(self) -> None:
        """Let go of all tasks without running any of their code: ports of the dead wait for ever."""
        tasks = [*asyncio.all_tasks(self.loop)]
        for life in self.lives:
            tasks += life.remains
            if not life.dead:
                life.die()
        self.loop.close()
        for task in tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            _close(task)


def _close(task: asyncio.Task[object]) -> None:
    """End its code; whatever that wants to wait for on its way out is not to be had.

    Each place that waits on its way out takes a turn of its own.
    """
    for _ in range(20):
        with suppress(BaseException):
            task.get_coro().close()  # type: ignore[union-attr]
            return


def _is_outage(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_is_outage(exception) for exception in error.exceptions)
    return isinstance(error, DependencyUnavailableError)


def _hazards(swarm: Swarm) -> Hazards:
    def count(name: str, most: int) -> int:
        return round(swarm.strength(name) * most + 0.499)

    return Hazards(count("slow_jobs", 4), count("poison", 3), count("killer", 3), count("noisy", 60))
