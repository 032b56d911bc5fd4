"""What the benchmark of refreshes and the guard by counts refresh: one fairlead, its connections, an issuer.

Beside it is the bare loop, the simplest code that refreshes: POST, then one committed UPDATE. Both send
through the same client to the same issuer process and store in the same PostgreSQL.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from fairlead._core.secret import Secret
from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.migrate import Migrator
from fairlead.app import Fairlead
from fairlead.assembly.config import Config, load
from fairlead.assembly.stores import tune_collector
from fairlead.engine.ports import HttpResponse, TokenCall
from fairlead.testing.issuer import IssuerConfig, IssuerProcess, ProviderConfig

POLICIES = ("strict", "stable")
"""Replay policies: under strict each request opens a connection, under stable it is kept."""


@dataclass(slots=True)
class World:
    """One fairlead with its connections, and the tokens of the bare loop."""

    fl: Fairlead
    issuer_url: str
    ids: dict[tuple[str, int], UUID]
    generations: dict[UUID, int]
    bare_tokens: dict[tuple[str, int], str]


async def safe(world: World, policy: str, number: int) -> None:
    """Refresh one connection through the coordinator."""
    connection_id = world.ids[policy, number]
    fresh = await world.fl.runtime.tokens.coordinator.refresh(connection_id, world.generations[connection_id])
    world.generations[connection_id] = fresh.generation


async def bare(world: World, policy: str, number: int) -> None:
    """Refresh one connection with a bare POST and UPDATE."""
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
    answer = await world.fl.runtime.http.tokens.send(call, _nothing)
    assert isinstance(answer, HttpResponse), answer
    token = str(json.loads(answer.body).get("refresh_token") or world.bare_tokens[policy, number])
    world.bare_tokens[policy, number] = token
    async with world.fl.runtime.database._checkouts.checkout() as connection:
        await connection.execute("UPDATE bare SET token = $1 WHERE name = $2", token, f"{policy} {number}")


async def _nothing() -> None:
    return


@asynccontextmanager
async def opened(
    endpoints: Endpoints,
    folder: Path,
    connections: int,
    *,
    more_profiles: Sequence[str] = (),
    declare: Callable[[Fairlead], None] = lambda _fl: None,
) -> AsyncIterator[World]:
    """Yield a world of *connections* for each policy and each side; its files are in *folder*.

    Args:
        more_profiles: TOML of further providers.
        declare: Called with the Fairlead before it is opened.
    """
    providers = {policy: ProviderConfig(policy=policy, ttl_s=3600.0) for policy in POLICIES}
    await Migrator(DatabaseSettings(dsn=endpoints.database_url)).apply()
    async with IssuerProcess(IssuerConfig(providers=providers), ledger=folder / "ledger") as issuer:
        fl = Fairlead(_config(folder, issuer.url, endpoints, more_profiles))
        declare(fl)
        async with fl:
            world = World(fl, issuer.url, {}, {}, {})
            await _connect(world, issuer, connections)
            tune_collector()  # as `fairlead run` does; it serves both sides
            yield world


def _config(folder: Path, issuer_url: str, endpoints: Endpoints, more_profiles: Sequence[str]) -> Config:
    """Return default settings, without the cooldown, because the same connections are refreshed repeatedly."""
    (folder / "profiles").mkdir()
    for text in more_profiles:
        (folder / "profiles" / f"{tomllib.loads(text)['name']}.toml").write_text(text)
    for policy in POLICIES:
        (folder / "profiles" / f"{policy}.toml").write_text(PROFILE.format(policy=policy, url=issuer_url))
    settings = folder / "fairlead.toml"
    settings.write_text(SETTINGS.format(folder=folder))
    environ = {"DATABASE_URL": endpoints.database_url, "REDIS_URL": endpoints.redis_url}
    return load(environ | {"FAIRLEAD_MASTER_KEY": "bench:" + "0123456789abcdef" * 4}, settings)


PROFILE = """
name = "{policy}"
title = "{policy}"
strategy = "refresh_token"
allow_http = true
ttl_default_s = 3600
endpoints.token = "{url}/{policy}/token"
replay.policy = "{policy}"
rate = {{ limit = 1000000, window_s = 1 }}
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
    async with world.fl.runtime.database._checkouts.checkout() as connection:
        await connection.execute(
            "CREATE TABLE bare (name text PRIMARY KEY, token text) WITH (fillfactor = 50)"
        )
    for policy in POLICIES:
        names = [f"{side} {number}" for side in ("ours", "bare") for number in range(connections)]
        registrations = [{"provider": policy, "connection": name} for name in names]
        grants = (await issuer.control("register", connections=registrations))["grants"]
        tokens = {grant["connection"]: grant for grant in grants}
        for number in range(connections):
            await _connect_one(world, policy, number, tokens[f"ours {number}"])
            world.bare_tokens[policy, number] = tokens[f"bare {number}"]["refresh_token"]
            async with world.fl.runtime.database._checkouts.checkout() as connection:
                await connection.execute("INSERT INTO bare VALUES ($1, '')", f"{policy} {number}")


async def _connect_one(world: World, policy: str, number: int, grant: Mapping[str, Any]) -> None:
    view = await world.fl.connections.upsert(
        f"tenant {number % 50}",
        policy,
        account=f"b{number}",
        refresh_token=grant["refresh_token"],
        access_token=grant["access_token"],
        expires_in_s=3600,
    )
    world.ids[policy, number] = view.connection_id
    world.generations[view.connection_id] = view.generation
