"""What a safe refresh costs: intent, SENT mark, journal and compare-and-set, over a bare POST and UPDATE.

Both sides send through the same client to the same issuer process and store in the same PostgreSQL (fsync
on). The bare loop is what one writes without a second thought: POST, then one committed UPDATE. Beside it:
CPU of the process per refresh, its memory, and what a scan of due connections reads at 10^3 and 10^6 rows.
"""

from __future__ import annotations

import asyncio
import json
import resource
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from bench.databases import servers
from bench.due import due_buffers
from bench.report import Row
from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.postgres.migrate import Migrator
from fairlead.adapters.postgres.session import DatabaseSettings
from fairlead.app import Fairlead
from fairlead.config import Config, load
from fairlead.engine.ports import HttpAnswer, TokenCall
from fairlead.secret import Secret
from fairlead.testing.issuer import IssuerConfig, IssuerProcess, ProviderConfig

PROVIDERS = {"refresh": "strict", "refresh.kept": "stable"}
"""Row and replay policy: under strict each request opens a connection, under stable it is kept."""
CONCURRENCY = 100
BARE_TABLE = "CREATE TABLE bare (name text PRIMARY KEY, token text) WITH (fillfactor = 50)"


@dataclass(slots=True)
class Side:
    """One way of refreshing: *once* takes a number of a connection."""

    once: Callable[[int], Awaitable[None]]
    rates: list[float]
    cpu_ms: list[float]


async def run(*, rounds: int, quick: bool) -> list[Row]:
    """All rows."""
    connections, seconds = (100, 0.5) if quick else (1_000, 3.0)
    rows = []
    async with _world(connections) as world:
        for name, policy in PROVIDERS.items():
            rows.append(await _compare(world, name, policy, rounds, connections, seconds))
        rows.append(_memory(rounds))
    small, large = await due_buffers(1_000, 10_000 if quick else 1_000_000)
    rows.append(
        Row(
            bench="refresh.scan_buffers",
            ours=large,
            unit="buffers",
            limit=small,
            goal={"ratio_limit": 1.5},
            at_most=True,
            n=1,
            more={"rows": [1_000, 10_000 if quick else 1_000_000]},
        )
    )
    return rows


async def _compare(
    world: World, name: str, policy: str, rounds: int, connections: int, seconds: float
) -> Row:
    ours = Side(lambda number: _safe(world, policy, number), [], [])
    bare = Side(lambda number: _bare(world, policy, number), [], [])
    for round_number in range(rounds + 1):
        for side in (ours, bare):
            rate, cpu_ms = await _measure(side.once, connections, seconds)
            if round_number:  # the first one warms up
                side.rates.append(rate)
                side.cpu_ms.append(cpu_ms)
    return Row(
        bench=name,
        ours=statistics.median(ours.rates),
        unit="refreshes/s",
        limit=statistics.median(bare.rates),
        goal={"ratio_limit": 0.4},
        aim={"ratio_limit": 0.6},
        n=rounds,
        more={
            "policy": policy,
            "cpu_ms": round(statistics.median(ours.cpu_ms), 3),
            "cpu_ms_limit": round(statistics.median(bare.cpu_ms), 3),
        },
    )


async def _measure(
    once: Callable[[int], Awaitable[None]], connections: int, seconds: float
) -> tuple[float, float]:
    """Refreshes per second and CPU milliseconds of this process per refresh."""
    stop_at = time.perf_counter() + seconds
    cpu, started, done = _cpu_s(), time.perf_counter(), 0

    async def loop(first: int) -> None:
        nonlocal done
        number = first
        while time.perf_counter() < stop_at:
            await once(number)
            done += 1
            number = (number + CONCURRENCY) % connections

    async with asyncio.TaskGroup() as group:
        for first in range(min(CONCURRENCY, connections)):
            group.create_task(loop(first))
    took = time.perf_counter() - started
    return done / took, (_cpu_s() - cpu) / done * 1000


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


# ---- the two sides -----------------------------------------------------------------------------


@dataclass(slots=True)
class World:
    """One fairlead with its connections, and what the bare loop needs of it."""

    fl: Fairlead
    issuer_url: str
    ids: dict[tuple[str, int], UUID]
    generations: dict[UUID, int]
    bare_tokens: dict[tuple[str, int], str]


async def _safe(world: World, policy: str, number: int) -> None:
    connection_id = world.ids[policy, number]
    fresh = await world.fl.runtime.coordinator.refresh(connection_id, world.generations[connection_id])
    world.generations[connection_id] = fresh.generation


async def _bare(world: World, policy: str, number: int) -> None:
    call = TokenCall(
        url=f"{world.issuer_url}/{policy}/token",
        headers={"content-type": Secret("application/x-www-form-urlencoded")},
        form={
            "grant_type": Secret("refresh_token"),
            "refresh_token": Secret(world.bare_tokens[policy, number]),
            "client_id": Secret("app"),
            "client_secret": Secret("secret"),
        },
        deadline_s=15.0,
        reuse_connection=policy != "strict",
    )
    answer = await world.fl.runtime.wires.tokens.send(call, _nothing)
    assert isinstance(answer, HttpAnswer), answer
    token = str(json.loads(answer.body).get("refresh_token") or world.bare_tokens[policy, number])
    world.bare_tokens[policy, number] = token
    async with world.fl.runtime.database._lender.lent() as connection:
        await connection.execute("UPDATE bare SET token = $1 WHERE name = $2", token, f"{policy} {number}")


async def _nothing() -> None:
    return


@asynccontextmanager
async def _world(connections: int) -> AsyncIterator[World]:
    providers = {policy: ProviderConfig(policy=policy, ttl_s=3600.0) for policy in PROVIDERS.values()}
    with servers() as endpoints, tempfile.TemporaryDirectory(prefix="fl-bench-", dir="/tmp") as top:
        folder = Path(top)
        await Migrator(DatabaseSettings(dsn=endpoints.database_url)).apply()
        async with (
            IssuerProcess(IssuerConfig(providers=providers), ledger=folder / "ledger") as issuer,
            Fairlead(_config(folder, issuer.url, endpoints)) as fl,
        ):
            world = World(fl, issuer.url, {}, {}, {})
            await _connect(world, issuer, connections)
            yield world


def _config(folder: Path, issuer_url: str, endpoints: Endpoints) -> Config:
    """Default settings but for the cooldown (the same connections are refreshed over and over)."""
    (folder / "profiles").mkdir()
    for policy in PROVIDERS.values():
        (folder / "profiles" / f"{policy}.toml").write_text(PROFILE.format(policy=policy, url=issuer_url))
    settings = folder / "fairlead.toml"
    settings.write_text(SETTINGS.format(folder=folder))
    told = {"DATABASE_URL": endpoints.database_url, "REDIS_URL": endpoints.redis_url}
    return load(told | {"FAIRLEAD_MASTER_KEY": "bench:" + "0123456789abcdef" * 4}, settings)


PROFILE = """
name = "{policy}"
title = "{policy}"
strategy = "refresh_token"
allow_http = true
ttl_default_s = 3600
endpoints.token = "{url}/{policy}/token"
replay.policy = "{policy}"
rate = {{ limit = 1000000, per_s = 1 }}
"""
SETTINGS = """
home = "{folder}/home"
providers_dir = "{folder}/profiles"
refresh.cooldown_s = 0
http.allow_private_addresses = true
[providers.strict]
client_id = "app"
client_secret = "secret"
[providers.stable]
client_id = "app"
client_secret = "secret"
"""


async def _connect(world: World, issuer: IssuerProcess, connections: int) -> None:
    async with world.fl.runtime.database._lender.lent() as connection:
        await connection.execute(
            "CREATE TABLE bare (name text PRIMARY KEY, token text) WITH (fillfactor = 50)"
        )
    for policy in PROVIDERS.values():
        names = [f"{side} {number}" for side in ("ours", "bare") for number in range(connections)]
        wanted = [{"provider": policy, "connection": name} for name in names]
        grants = (await issuer.control("register", connections=wanted))["grants"]
        tokens = {grant["connection"]: grant for grant in grants}
        for number in range(connections):
            await _connect_one(world, policy, number, tokens[f"ours {number}"])
            world.bare_tokens[policy, number] = tokens[f"bare {number}"]["refresh_token"]
            async with world.fl.runtime.database._lender.lent() as connection:
                await connection.execute("INSERT INTO bare VALUES ($1, '')", f"{policy} {number}")


async def _connect_one(world: World, policy: str, number: int, grant: Mapping[str, Any]) -> None:
    view = await world.fl.connections.upsert(
        f"tenant {number % 50}",
        policy,
        bucket=f"b{number}",
        refresh_token=grant["refresh_token"],
        access_token=grant["access_token"],
        expires_in_s=3600,
    )
    world.ids[policy, number] = view.connection_id
    world.generations[view.connection_id] = view.generation


def _memory(rounds: int) -> Row:
    used_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Row(bench="refresh.rss", ours=used_mb, unit="MiB", n=rounds)
