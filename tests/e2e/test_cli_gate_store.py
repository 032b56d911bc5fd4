"""`fairlead gate memory`, `orphans` and `doctor` on a real Redis, and what `gate status` tells of a line."""

from __future__ import annotations

from collections.abc import AsyncIterator
from secrets import token_hex

import pytest
from redis.asyncio import Redis

from fairlead._core.secret import Secret
from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.local.system import SystemClock
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.redis.keys import RedisKeys
from fairlead.adapters.redis.redis_gate import RedisGate
from fairlead.engine.ports import AdmitRequest, Admitted
from fairlead.policy.limits.key import LAYOUT, Keyspace
from fairlead.policy.limits.limit import Domain, Plan, PoolLimit
from fairlead.policy.limits.pool import Holder
from tests.faults.support.valkey import own_valkey
from tests.support.cli import Shell
from tests.support.rows import rows

DEAD = "01890000-0000-7000-8000-00000000dead"
PLAN = Plan(Domain(("tenant", "acme")), pool=PoolLimit("slots", 2))


@pytest.fixture
async def gate(shell: Shell, servers: Endpoints) -> AsyncIterator[RedisGate]:
    """One of a process that no session knows, on the Redis of the shell."""
    prefix = f"cli-{token_hex(6)}"
    shell.environ |= {"REDIS_URL": servers.redis_url, "FAIRLEAD_REDIS__PREFIX": prefix}
    url, keys = Secret(servers.redis_url), Keyspace(prefix)
    gate = RedisGate(url, clock=SystemClock(), process=DEAD, keys=keys, new=True)
    yield gate
    await gate.close()
    await RedisKeys(url, keys).clear()


def holder(number: int) -> Holder:
    return Holder(number, DEAD, "acme", "")


async def test_memory_tells_kinds_and_what_is_none_of_ours(
    shell: Shell, gate: RedisGate, servers: Endpoints
) -> None:
    await gate.admit(AdmitRequest(PLAN, holder=holder(1)))
    prefix = shell.environ["FAIRLEAD_REDIS__PREFIX"]
    async with Redis.from_url(servers.redis_url) as client:
        await client.set(f"{prefix}{LAYOUT}:of-somebody", "x")
    memory = (await shell("gate", "memory", "--json")).record
    kinds = {use["kind"]: use for use in memory["kinds"]}
    assert {name: use["keys"] for name, use in kinds.items()} == {
        "cells": 1, "leases": 1, "marker": 1, "unknown": 1,
    }  # fmt: skip
    assert memory["no_ttl"] == [f"{prefix}{LAYOUT}:of-somebody"]
    assert memory["keys"] == 4
    assert 0 < memory["size_bytes"] < memory["used_bytes"]
    assert memory["complete"] is True
    shown = await shell("gate", "memory")
    assert shown.code == 0
    assert "unknown" in shown.out


async def test_orphans_are_listed_tried_and_given_back(
    shell: Shell, gate: RedisGate, database: Database
) -> None:
    for number in (1, 2):
        assert isinstance(await gate.admit(AdmitRequest(PLAN, holder=holder(number))), Admitted)
    listed = (await shell("gate", "orphans", "--json")).rows
    assert [(row["tenant"], row["process"], row["why"], row["result"]) for row in listed] == [
        ("acme", DEAD, "its process is gone", None)
    ] * 2
    trial = await shell("gate", "orphans", "--recover", "--dry-run", "--watch", "0.05s", "--json")
    assert {row["result"] for row in trial.rows} == {"would be given back"}
    assert len((await shell("gate", "orphans", "--json")).rows) == 2, "a trial changes nothing"
    done = await shell("gate", "orphans", "--recover", "--watch", "0.05s", "--yes", "--json")
    assert [row["result"] for row in done.rows] == ["given back"] * 2, done.err
    assert (await shell("gate", "orphans", "--json")).rows == []
    assert isinstance(await gate.admit(AdmitRequest(PLAN, holder=holder(3))), Admitted)
    acts = await rows(database, "SELECT act, actor, tenant_id, details FROM audit WHERE act LIKE 'gate.%'")
    assert [(act["act"], act["tenant_id"]) for act in acts] == [("gate.orphan_recovered", "acme")] * 2
    assert all(act["actor"].startswith("cli:") for act in acts)


async def test_doctor_finds_a_sound_server_sound_and_leaves_nothing(
    shell: Shell, gate: RedisGate, servers: Endpoints
) -> None:
    done = await shell("gate", "doctor", "--json")
    assert done.code == 0, done.out
    rows_by_check = {row["check"]: row for row in done.rows}
    names = "version role eviction persistence memory ping script scripts clock prefix"
    assert list(rows_by_check) == names.split()
    for name in ("version", "role", "eviction", "persistence", "scripts", "prefix"):
        assert rows_by_check[name]["status"] == "ok", rows_by_check[name]
    async with Redis.from_url(servers.redis_url, decode_responses=True) as client:
        assert [key async for key in client.scan_iter("*-doctor-*")] == []


async def test_doctor_finds_what_is_wrong(shell: Shell) -> None:
    with own_valkey({"maxmemory-policy": "allkeys-lru"}) as evicting:
        shell.environ["REDIS_URL"] = evicting.url
        done = await shell("gate", "doctor", "--json")
    rows_by_check = {row["check"]: row for row in done.rows}
    assert done.code == 4
    assert (rows_by_check["eviction"]["status"], rows_by_check["persistence"]["status"]) == ("fail", "warn")
    assert rows_by_check["script"]["status"] == "fail", "the gate itself refuses it"
    assert "everysec" in rows_by_check["persistence"]["hint"]


async def test_doctor_without_a_redis_that_answers(shell: Shell) -> None:
    shell.environ["REDIS_URL"] = "redis://127.0.0.1:1/0"
    done = await shell("gate", "doctor", "--json")
    assert done.code == 4
    assert [(row["check"], row["status"]) for row in done.rows] == [("redis", "fail")]
    del shell.environ["REDIS_URL"]
    done = await shell("gate", "doctor", "--json")
    assert done.code == 0
    assert [(row["check"], row["status"]) for row in done.rows] == [("redis", "warn")]


@pytest.mark.parametrize("command", ["memory", "orphans"])
async def test_without_redis_there_is_the_way_out(shell: Shell, command: str) -> None:
    done = await shell("gate", command)
    assert done.code == 69
    assert "REDIS_URL" in done.err
