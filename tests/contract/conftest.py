"""Each suite here runs once per implementation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from secrets import token_hex

import pytest

from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.redis.gate import RedisGate
from tests.contract.gates import Timed, local_gate, redis_gate
from tests.contract.postgres import postgres_stores
from tests.contract.stores import Stores, memory_stores


@pytest.fixture(params=["memory", "postgres"])
def stores(request: pytest.FixtureRequest) -> Stores:
    if request.param == "memory":
        return memory_stores()
    return postgres_stores(request.getfixturevalue("database"))


@pytest.fixture(params=["local", "redis"])
async def timed(request: pytest.FixtureRequest) -> AsyncIterator[Timed]:
    """A gate whose clock the test sets."""
    if request.param == "local":
        yield local_gate()
        return
    servers: Endpoints = request.getfixturevalue("servers")
    made = redis_gate(servers.redis_url, f"test-{token_hex(6)}")
    yield made
    assert isinstance(made.gate, RedisGate)
    await made.gate.close()
