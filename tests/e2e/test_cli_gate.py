"""`fairlead gate`: what people see of limits."""

from __future__ import annotations

import json
from secrets import token_hex

import pytest

from fairlead.adapters.embedded import Endpoints
from tests.support.cli import Shell

WHERE = ("--tenant", "acme", "--provider", "stripe")


@pytest.fixture
def with_redis(shell: Shell, servers: Endpoints) -> Shell:
    shell.environ["REDIS_URL"] = servers.redis_url
    shell.environ["FAIRLEAD_REDIS__PREFIX"] = f"cli-{token_hex(6)}"
    return shell


async def connected(shell: Shell) -> None:
    added = await shell("connections", "add", *WHERE, stdin="sk_live_canary")
    assert added.code == 0, added.err


async def test_a_connection_shows_its_limits(with_redis: Shell) -> None:
    await connected(with_redis)
    shown = await with_redis("gate", "status", *WHERE, "--json")
    assert shown.code == 0, shown.err
    record = json.loads(shown.out)
    assert record["breaker"] == {"mode": "closed"}
    assert [(limit["name"], limit["capacity"], limit["per_s"]) for limit in record["limits"]] == [
        ("requests", 25, 25)
    ]
    assert record["slots"] == {"limit": None, "in_use": 0, "waiting": 0}
    assert record["queue"] == record["promotions"] == record["failures"] == []
    status = await with_redis("gate", "status", *WHERE)
    assert "requests" in status.out


async def test_without_redis_there_is_the_way_out(shell: Shell) -> None:
    await connected(shell)
    status = await shell("gate", "status", *WHERE)
    assert status.code == 69
    assert "REDIS_URL" in status.err


async def test_a_connection_that_is_not_there(with_redis: Shell) -> None:
    status = await with_redis("gate", "status", *WHERE)
    assert status.code == 1
    assert "connections add" in status.err
