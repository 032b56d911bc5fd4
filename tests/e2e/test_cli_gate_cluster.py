"""Every `fairlead gate` command that goes to Redis, on a cluster: what is asked of lies on another server."""

from __future__ import annotations

import asyncio
from secrets import token_hex
from typing import Any

import pytest
from redis.asyncio import RedisCluster

from fairlead import Fairlead
from fairlead._core.secret import Secret
from fairlead.adapters.local.system import SystemClock
from fairlead.adapters.redis.cluster import hash_slot_of
from fairlead.adapters.redis.redis_gate import RedisGate
from fairlead.assembly.config import load
from fairlead.engine.limits.gate_maintenance import GateMaintenance
from fairlead.engine.ports import AdmitRequest, Admitted
from fairlead.errors import LimitExceededError
from fairlead.policy.limits.feedback.raw_response import RawResponse
from fairlead.policy.limits.key import LAYOUT, KeyKind, Keyspace
from fairlead.policy.limits.limit import Domain, Plan, PoolLimit
from fairlead.policy.limits.pool import Holder
from tests.support.cli import Shell

ACME = ("-t", "acme", "-p", "stripe")
DEAD = "01890000-0000-7000-8000-00000000dead"
PLAN = Plan(Domain(("tenant", "acme")), pool=PoolLimit("slots", 2))
SETTINGS = """
home = "{home}"
worker.poll_s = 0.05
redis.prefix = "{prefix}"
"""


@pytest.fixture
async def clustered(shell: Shell, valkey_cluster: str) -> Shell:
    """On a cluster that is known to have lost nothing."""
    prefix = f"cl-{token_hex(6)}"
    cell = Keyspace(prefix).key(KeyKind.CELL, PLAN.domain)
    async with RedisCluster.from_url(valkey_cluster) as client:
        home = client.get_node_from_key(cell)
        assert home is not None
        assert f":{home.port}/" not in valkey_cluster, hash_slot_of(cell.encode())
    shell.environ["REDIS_URL"] = valkey_cluster
    shell.settings(SETTINGS.format(home=shell.folder / "home", prefix=prefix))
    first = gate_of(shell)
    await first.ping()
    await first.close()
    return shell


def prefix_of(shell: Shell) -> str:
    return load(shell.environ, shell.folder / "fairlead.toml").settings.redis.prefix


def gate_of(shell: Shell, process: str = "-") -> RedisGate:
    keys = Keyspace(prefix_of(shell))
    return RedisGate(
        Secret(shell.environ["REDIS_URL"]), clock=SystemClock(), process=process, keys=keys, new=True
    )


def app(shell: Shell) -> Fairlead:
    return Fairlead(load(shell.environ, shell.folder / "fairlead.toml"))


async def connect(fl: Fairlead, **settings: Any) -> None:
    await fl.connections.upsert("acme", "stripe", api_key="sk_live_1", settings=settings)
    await fl.runtime.gate.ready()


async def done(shell: Shell, *arguments: str) -> Any:
    """The record of a command that went well."""
    done = await shell("gate", *arguments, "--json")
    assert done.code == 0, done.err
    return done.record


async def refusal(fl: Fairlead) -> str | None:
    """Why a call is refused now; None: it is let through."""
    try:
        async with fl.admission("acme", "stripe", wait_s=0):
            return None
    except LimitExceededError as refused:
        return refused.reason


async def test_doctor_checks_every_primary(clustered: Shell) -> None:
    doctor = await clustered("gate", "doctor", "--json")
    assert doctor.code == 0, doctor.out
    rows_by_check = {row["check"]: row for row in doctor.rows}
    assert rows_by_check["role"]["detail"] == "cluster, 3 primaries, state ok"
    for name in ("version", "role", "eviction", "script", "scripts", "prefix"):
        assert rows_by_check[name]["status"] == "ok", rows_by_check[name]
    async with RedisCluster.from_url(clustered.environ["REDIS_URL"]) as client:
        assert [key async for key in client.scan_iter("*-doctor-*")] == []


async def test_a_breaker_is_seen_and_closed(clustered: Shell) -> None:
    async with app(clustered) as fl:
        await connect(fl)
        for _ in range(10):
            async with fl.admission("acme", "stripe", wait_s=5) as admission:
                admission.record_response(RawResponse(503, {}, b""))
        assert await refusal(fl) == "breaker"
        shown = await done(clustered, "status", *ACME)
        assert (shown["breaker"]["mode"], len(shown["failures"])) == ("open", 10)
        stopped = (await clustered("status", "--json")).record["breakers"]
        assert [(breaker["tenant"], breaker["mode"]) for breaker in stopped] == [("acme", "open")]
        trial = await done(clustered, "breaker", "reset", *ACME, "--dry-run")
        assert [breaker["was"] for breaker in trial["breakers"]] == ["open"]
        assert await refusal(fl) == "breaker"
        closed = await done(clustered, "breaker", "reset", *ACME)
        assert [breaker["was"] for breaker in closed["breakers"]] == ["open"]
        assert await refusal(fl) is None


async def test_waiting_call_is_promoted_and_all_is_cleared(clustered: Shell) -> None:
    async with app(clustered) as fl:
        await connect(fl, concurrency_limit=1)
        order: list[int] = []

        async def wait(number: int) -> None:
            async with fl.admission("acme", "stripe", wait_s=60):
                order.append(number)

        async with (
            asyncio.timeout(60),
            asyncio.TaskGroup() as group,
            fl.admission("acme", "stripe", wait_s=5),
        ):
            for number in range(2):
                group.create_task(wait(number))
                while len((await done(clustered, "status", *ACME))["waiters"]) <= number:
                    await asyncio.sleep(0.02)
            last = (await done(clustered, "status", *ACME))["waiters"][-1]["lease"]
            assert (await done(clustered, "promote", last, *ACME))["result"] == "promoted"
        assert order == [1, 0]
        other = f"{prefix_of(clustered)}{LAYOUT - 1}:"
        async with RedisCluster.from_url(clustered.environ["REDIS_URL"], decode_responses=True) as client:
            foreign = [f"{other}{number}" for number in range(9)]
            for key in foreign:
                await client.set(key, "theirs", ex=60)
            count = (await done(clustered, "clear", "--dry-run"))["keys"]
            assert count > 0
            assert (await done(clustered, "clear", "--yes"))["keys"] >= count
            assert await client.exists(*foreign) == len(foreign)
            await client.delete(*foreign)
        async with asyncio.timeout(30):  # its bucket, which began empty, has a unit before its slots are back
            while await refusal(fl) != "recovery":
                await asyncio.sleep(0.02)


async def test_memory_orphans_and_the_hourly_look(clustered: Shell) -> None:
    gate = gate_of(clustered, DEAD)
    for number in (1, 2):
        ask = AdmitRequest(PLAN, holder=Holder(number, DEAD, "acme", ""))
        assert isinstance(await gate.admit(ask), Admitted)
    memory = await done(clustered, "memory")
    kinds = {use["kind"]: use["keys"] for use in memory["kinds"]}
    assert kinds == {"cells": 1, "leases": 1, "marker": 4}, "of the domain, and of three servers"
    assert memory["complete"] is True
    listed = (await clustered("gate", "orphans", "--json")).rows
    assert [row["tenant"] for row in listed] == ["acme"] * 2
    recovery = await clustered("gate", "orphans", "--recover", "--watch", "0.05s", "--yes", "--json")
    assert [row["result"] for row in recovery.rows] == ["given back"] * 2, recovery.err
    told_of: list[Any] = []
    async with app(clustered) as fl:
        assert fl.runtime.gate.keys is not None
        async with RedisCluster.from_url(clustered.environ["REDIS_URL"]) as client:
            await client.persist(Keyspace(prefix_of(clustered)).key(KeyKind.CELL, PLAN.domain))
        assert await GateMaintenance(fl.runtime.gate.keys, emit=told_of.append).run() == 1
    assert isinstance(await gate.admit(AdmitRequest(PLAN, holder=Holder(3, DEAD, "acme", ""))), Admitted)
    await gate.close()
    (event,) = told_of
    assert (event.orphans, event.cleaned, event.complete) == (2, 1, True)
