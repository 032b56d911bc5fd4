"""Each suite here runs once per implementation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from secrets import token_hex

import pytest

from fairlead.adapters.redis.redis_gate import RedisGate
from tests.contract.gates import Timed, local_gate, redis_gate
from tests.contract.postgres import postgres_stores
from tests.contract.stores import Stores, memory_stores
from tests.faults.support.cluster import own_cluster
from tests.faults.support.valkey import oldest_redis, own_valkey


@pytest.fixture(params=["memory", "postgres"])
def stores(request: pytest.FixtureRequest) -> Stores:
    if request.param == "memory":
        return memory_stores()
    return postgres_stores(request.getfixturevalue("database"))


@pytest.fixture(scope="session")
def redis_62() -> Iterator[str]:
    """The oldest server that the gate runs on."""
    with own_valkey(program=oldest_redis()) as server:
        yield server.url


@pytest.fixture(scope="session")
def redis_62_cluster() -> Iterator[str]:
    """The same of the oldest."""
    with own_cluster(program=oldest_redis()) as cluster:
        yield cluster.primaries[1].url


GATES = ("local", "valkey", "redis_62", "valkey_cluster", "redis_62_cluster")


@pytest.fixture(params=GATES)
async def timed(request: pytest.FixtureRequest) -> AsyncIterator[Timed]:
    """A gate whose clock the test sets."""
    async for timed in _gates(request, new=True):
        yield timed


@pytest.fixture(params=GATES)
async def emptied(request: pytest.FixtureRequest) -> AsyncIterator[Timed]:
    """Such a gate that has just lost whatever it knew."""
    async for timed in _gates(request, new=False):
        yield timed


async def _gates(request: pytest.FixtureRequest, *, new: bool) -> AsyncIterator[Timed]:
    if request.param == "local":
        yield local_gate(new=new)
        return
    newest = request.param == "valkey"
    url = request.getfixturevalue("servers").redis_url if newest else request.getfixturevalue(request.param)
    gate = redis_gate(url, f"test-{token_hex(6)}", new=new)
    yield gate
    assert isinstance(gate.gate, RedisGate)
    await gate.gate.close()
