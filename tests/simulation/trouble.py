"""Has the faults of a swarm happen to a world, each by its own draws: to leave one out shifts no other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from random import Random
from typing import Protocol

from tests.simulation.issuer import SimIssuer
from tests.simulation.redis import SimRedis
from tests.simulation.sealing import HostDisk
from tests.simulation.swarm import FAULTS, Swarm
from tests.simulation.upstream import SimUpstream
from tests.simulation.watch import NOBODY, Over, Struck, Watch

MOST_FROZEN_S = 120.0
MOST_AWAY_S = 45.0
MOST_FULL_S = 60.0


class Roads(Protocol):
    """The way to the database: shares of operations, and for how long it is away."""

    cut_before: float
    cut_after: float
    slow: float
    held: float

    def away(self, process: str | None, for_s: float) -> None:
        """Away from one process, by its name, or (None) from all."""
        ...

    def heal(self) -> None:
        """All arrives and is answered."""
        ...


class Afflicted(Protocol):
    """What a world lets happen to it. Processes go by their names."""

    issuer: SimIssuer
    upstream: SimUpstream
    redis: SimRedis
    disks: Mapping[str, HostDisk]
    watch: Watch

    @property
    def roads(self) -> Roads:
        """The way to the database."""
        ...

    def processes(self) -> Sequence[str]:
        """Those that run."""
        ...

    def living(self) -> Sequence[str]:
        """Those that run, and those that stand still."""
        ...

    def kill(self, name: str, back_in_s: float) -> None: ...

    def freeze(self, name: str, for_s: float) -> None: ...

    def restart(self, name: str) -> None: ...

    def jump_clock(self, name: str, by_s: float) -> None: ...

    def rush(self, share: float) -> None:
        """Many calls of one tenant at once, from everywhere; *whose* in [0, 1) says which."""
        ...


class Trouble:
    """The faults of one seed. *draw* gives each fault the seed of its own draws."""

    def __init__(self, swarm: Swarm, draw: Random, afflicted: Afflicted) -> None:
        self._swarm = swarm
        self._world = afflicted
        self._draws = {name: Random(draw.getrandbits(64)) for name in FAULTS}
        self._tasks: list[asyncio.Task[None]] = []
        self._acts: Mapping[str, tuple[float, Callable[[Random, float], float]]] = {
            "kill": (40.0, self._kill),
            "freeze": (60.0, self._freeze),
            "restart": (60.0, self._restart),
            "jump": (40.0, self._jump),
            "database_away": (80.0, self._database_away),
            "redis_loss": (60.0, self._redis_loss),
            "redis_old": (40.0, self._redis_old),
            "redis_stall": (40.0, self._redis_stall),
            "redis_away": (60.0, self._redis_away),
            "disk_full": (60.0, self._disk_full),
        }
        self._shares: Mapping[str, tuple[object, str, float]] = {
            "cut": (afflicted.roads, "cut_before", 0.2),
            "lost_commit": (afflicted.roads, "cut_after", 0.2),
            "slow_store": (afflicted.roads, "slow", 0.3),
            "late_store": (afflicted.roads, "held", 0.05),
            "redis_lost": (afflicted.redis, "lost", 0.1),
            "storm": (afflicted.upstream.manner, "storm", 1.0),
            "ill": (afflicted.upstream.manner, "ill", 1.0),
            "slow_calls": (afflicted.upstream.manner, "slow", 0.6),
            "cut_calls": (afflicted.upstream.manner, "cut", 0.5),
            "issuer_late": (afflicted.issuer.manner, "late", 0.6),
            "issuer_slow": (afflicted.issuer.manner, "slow", 0.6),
            "issuer_lost": (afflicted.issuer.manner, "lost", 0.4),
            "issuer_cut": (afflicted.issuer.manner, "cut", 0.4),
            "issuer_down": (afflicted.issuer.manner, "down", 1.0),
            "issuer_busy": (afflicted.issuer.manner, "busy", 0.8),
            "issuer_ill": (afflicted.issuer.manner, "ill", 0.8),
        }

    def begin(self) -> None:
        """From now on it happens."""
        loop = asyncio.get_running_loop()
        for name, strength in self._swarm.faults.items():
            if name in self._acts:
                every_s, act = self._acts[name]
                work = self._now_and_then(self._draws[name], strength, every_s, act)
            elif name in self._shares:
                work = self._in_spells(self._draws[name], strength, *self._shares[name])
            else:  # the workload's own
                continue
            self._tasks.append(loop.create_task(work, name=f"trouble-{name}", context=Context()))

    def heal(self) -> None:
        """From now on nothing happens, and all is well; who is dead or frozen is for the world to mend."""
        for task in self._tasks:
            task.cancel()
        self._tasks = []
        for whom in (NOBODY, *self._world.living()):
            for fault in ("cut", "away"):
                self._world.watch.tell(Over(fault), whom)
        for mended in (self._world.roads, self._world.redis, self._world.issuer.manner):
            mended.heal()
        self._world.upstream.manner.heal()
        for disk in self._world.disks.values():
            disk.full = False

    # ---- when ----------------------------------------------------------------------------------

    async def _now_and_then(
        self, draw: Random, strength: float, every_s: float, act: Callable[[Random, float], float]
    ) -> None:
        """An act, again and again, at full strength *every_s* apart. It gives how long it lasts."""
        while True:
            await asyncio.sleep(draw.expovariate(1.0) * every_s / (0.4 + 0.6 * strength))
            await asyncio.sleep(act(draw, strength))

    async def _in_spells(
        self, draw: Random, strength: float, behaviour: object, label: str, most: float
    ) -> None:
        """A share that rises for a while, and falls again."""
        while True:
            await asyncio.sleep(draw.uniform(1.0, 40.0))
            setattr(behaviour, label, most * strength * draw.uniform(0.3, 1.0))
            lasts_s = draw.uniform(5.0, 60.0)
            if behaviour is self._world.roads:
                self._struck("cut", lasts_s)
            await asyncio.sleep(lasts_s)
            setattr(behaviour, label, 0.0)

    def _struck(self, fault: str, for_s: float, process: str = NOBODY) -> None:
        until = asyncio.get_running_loop().time() + for_s
        self._world.watch.tell(Struck(fault, until), process)

    def _count(self, fault: str) -> None:
        """It has met somebody."""
        self._world.watch.strikes[fault] += 1

    # ---- what ----------------------------------------------------------------------------------

    def _anybody(self, draw: Random) -> str | None:
        return _one_of(draw, self._world.processes())

    def _kill(self, draw: Random, strength: float) -> float:
        """Of who stands still, too: nobody waits for it to go on."""
        name, back_in_s = _one_of(draw, self._world.living()), draw.uniform(0.5, 40.0)
        if name is not None:
            self._count("kill")
            self._world.watch.strikes["kill frozen"] += name not in self._world.processes()
            self._world.kill(name, back_in_s)
        return 0.0

    def _freeze(self, draw: Random, strength: float) -> float:
        name, for_s = self._anybody(draw), draw.choice((3.0, 20.0, 45.0, MOST_FROZEN_S)) * draw.random()
        if name is not None:
            self._count("freeze")
            self._world.freeze(name, for_s)
        return 0.0

    def _restart(self, draw: Random, strength: float) -> float:
        name = self._anybody(draw)
        if name is not None:
            self._count("restart")
            self._world.restart(name)
        return 0.0

    def _jump(self, draw: Random, strength: float) -> float:
        name, by_s = self._anybody(draw), draw.choice((-3600.0, -60.0, -5.0, 5.0, 60.0, 3600.0))
        if name is not None:
            self._count("jump")
            self._world.jump_clock(name, by_s)
        return 0.0

    def _database_away(self, draw: Random, strength: float) -> float:
        name, all_of_them = self._anybody(draw), draw.random() < 0.5
        for_s = draw.uniform(1.0, MOST_AWAY_S)
        whom = None if all_of_them else name
        self._world.roads.away(whom, for_s)
        self._struck("away", for_s, whom or NOBODY)
        return for_s

    def _redis_loss(self, draw: Random, strength: float) -> float:
        """In the middle of a rush: what was spent is what there is to forget."""
        after_s, share = draw.uniform(0.2, 2.0), draw.random()
        self._world.rush(share)
        loop = asyncio.get_running_loop()
        loop.call_later(after_s, self._world.redis.lose, context=Context())
        loop.call_later(after_s + 0.1, self._world.rush, share, context=Context())
        return after_s

    def _redis_old(self, draw: Random, strength: float) -> float:
        """A snapshot now, a restart with it at the next turn."""
        if draw.random() < 0.5:
            self._world.redis.keep()
        else:
            self._world.redis.bring_back()
        return 0.0

    def _redis_stall(self, draw: Random, strength: float) -> float:
        for_s = draw.choice((0.6, 1.0, 5.0, 20.0)) * draw.uniform(0.5, 1.0)
        self._world.redis.stall_for(for_s)
        return for_s

    def _redis_away(self, draw: Random, strength: float) -> float:
        name, all_of_them = self._anybody(draw), draw.random() < 0.5
        for_s = draw.uniform(0.5, MOST_AWAY_S)
        self._world.redis.away_for(for_s, NOBODY if all_of_them or name is None else name)
        return for_s

    def _disk_full(self, draw: Random, strength: float) -> float:
        """Somebody tidies up after a while; what was written stays."""
        disk, for_s = (
            self._world.disks[draw.choice(sorted(self._world.disks))],
            draw.uniform(1.0, MOST_FULL_S),
        )
        disk.full = True
        loop = asyncio.get_running_loop()
        loop.call_later(for_s, setattr, disk, "full", False, context=Context())
        return for_s


def _one_of(draw: Random, names: Sequence[str]) -> str | None:
    draw_value = draw.random()
    return sorted(names)[int(draw_value * len(names))] if names else None
