"""The gates behind one handle whose clock a test sets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import Random
from secrets import token_hex
from typing import Any

import pytest
from redis.asyncio import Redis, RedisCluster

from fairlead._core.secret import Secret
from fairlead.adapters.local.local_gate import LocalGate
from fairlead.adapters.local.system import SystemClock
from fairlead.adapters.redis.node import ScriptRun
from fairlead.adapters.redis.redis_gate import RedisGate
from fairlead.engine.ports import (
    AdmitRequest,
    AdmitResult,
    Admitted,
    Gate,
    Lease,
    OnReleased,
    Release,
    Released,
    Renewal,
    Wake,
)
from fairlead.errors import LimiterUnavailableError
from fairlead.policy.limits.key import Keyspace
from fairlead.policy.limits.limit import MICRO
from tests.simulation.redis import SimRedis
from tests.simulation.shared_gate import SharedGate
from tests.simulation.watch import NOBODY, Watch

T0_US = 1_800_000_000 * MICRO


@dataclass
class Timed:
    """A gate, and the clock it goes by."""

    gate: Gate
    set_us: Callable[[int], None]
    lose: Callable[[], Awaitable[None]]
    """All that it knows is gone."""
    replace: Callable[[], Awaitable[None]]
    """Another server takes its place that knows all of it, though nobody can be sure of that."""
    now_us: int = T0_US

    def tick(self, seconds: float) -> None:
        """Let time pass."""
        self.now_us += round(seconds * MICRO)
        self.set_us(self.now_us)

    async def admit(self, ask: AdmitRequest) -> AdmitResult:
        """What the gate says to *ask*."""
        return await self.gate.admit(ask)

    async def admitted(self, ask: AdmitRequest) -> Admitted:
        """The same, where it must be yes."""
        answer = await self.gate.admit(ask)
        assert isinstance(answer, Admitted), answer
        return answer


STORES = ("valkey", "redis_62", "valkey_cluster", "redis_62_cluster")
"""What a gate's keys may lie on."""


def store_of(request: pytest.FixtureRequest) -> str:
    """The URL of the one of STORES that is the parameter."""
    if request.param == "valkey":
        return str(request.getfixturevalue("servers").redis_url)
    return str(request.getfixturevalue(request.param))


def client_of(request: pytest.FixtureRequest, **options: Any) -> Any:
    """A client of the same that finds every key."""
    kind = RedisCluster if "cluster" in request.param else Redis
    return kind.from_url(store_of(request), **options)


class Model(LocalGate):
    """The gate of one process in the place of a store: it is always there."""

    async def ping(self) -> None:
        return None

    def abandon(self, error: LimiterUnavailableError) -> None:
        """Nobody waits for it."""

    @property
    def is_settled(self) -> bool:
        return True


def local_gate(*, new: bool = True) -> Timed:
    """The gate of one process. Not *new*: what it knew was lost just now."""
    state = {"now_us": T0_US}
    gate = Model(lambda: state["now_us"], birth_us=0 if new else T0_US)
    return Timed(gate, lambda now_us: state.update(now_us=now_us), _never, _never)


async def _never() -> None:
    raise AssertionError("what one process has goes with it")


class Simulated:
    """The Gate port on the server of the simulated world (tests/simulation/redis.py): no way lies between."""

    def __init__(self, now_us: Callable[[], int], kind: type[SharedGate]) -> None:
        self.redis = SimRedis(now_us, Random(0), Watch(lambda: now_us() / MICRO, lambda: NOBODY), kind)

    async def admit(self, ask: AdmitRequest) -> AdmitResult:
        return await self.redis.state.admit(ask)

    async def release(self, release: Release) -> Released:
        return await self.redis.state.release(release)

    def release_soon(self, release: Release, callback: OnReleased) -> None:
        self.redis.state.release_soon(release, callback)

    async def cancel(self, ask: AdmitRequest) -> None:
        await self.redis.state.cancel(ask)

    async def renew(self, renewals: Sequence[Renewal]) -> list[Lease]:
        return await self.redis.state.renew(renewals)

    async def listen(self, wake: Wake) -> None:
        await self.redis.state.listen(wake)

    async def lose(self) -> None:
        self.redis.lose()

    async def replace(self) -> None:
        self.redis.keep()
        self.redis.bring_back()


def simulated_gate(kind: type[SharedGate] = SharedGate) -> Timed:
    """Return the gate of the simulation; *kind* is its judgement."""
    state = {"now_us": T0_US}
    gate = Simulated(lambda: state["now_us"], kind)
    return Timed(gate, lambda now_us: state.update(now_us=now_us), gate.lose, gate.replace)


def redis_gate(url: str, name: str, *, new: bool = True, **options: Any) -> Timed:
    """The gate on a server, under a prefix of its own."""
    gate = RedisGate(
        Secret(url), clock=SystemClock(), keys=Keyspace(name), new=new, pinned_us=T0_US, **options
    )

    def set_us(now_us: int) -> None:
        gate.params.pinned_us = now_us

    async def lose() -> None:
        await notice()
        async with Redis.from_url(url) as server:
            await server.delete(*[key async for key in server.scan_iter(f"{Keyspace(name).prefix}*")])
        await notice()

    async def replace() -> None:
        await notice()
        gate._seed.run_id = token_hex(20).encode()
        await notice()

    async def notice() -> None:
        """What there was to be greeted is, and what is to be noticed with a batch is now."""
        await gate._seed.ready()
        await gate._seed.run([ScriptRun(gate._seed.marker, 0, ())])

    return Timed(gate, set_us, lose, replace)
