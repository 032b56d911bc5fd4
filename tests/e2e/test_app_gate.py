"""Calls within their limits, on real stores: outside of jobs, inside them, and without Redis."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from fairlead import Fairlead, RawResponse
from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.database import Database
from fairlead.assembly.config import load
from fairlead.engine.jobs.handler import JobContext
from fairlead.engine.ports import ConnectionKey
from fairlead.errors import InvalidConfigError, InvalidInputError, LimitExceededError, NotFoundError
from fairlead.events import Event, GateNotPersistent
from tests.faults.support.valkey import own_valkey
from tests.support.engine import a_job
from tests.support.rows import rows

SETTINGS = """
home = "{home}"
worker.poll_s = 0.05
worker.lease_s = 3
redis.prefix = "{prefix}"
"""
FEW = {"calls": {"requests": {"capacity": 1.0, "per_s": 1.0}}}


@pytest.fixture
def new_fairlead(
    servers: Endpoints, database_settings: DatabaseSettings, tmp_path: Path
) -> Callable[..., Fairlead]:
    def make(**environ: str) -> Fairlead:
        file = tmp_path / "fairlead.toml"
        file.write_text(SETTINGS.format(home=tmp_path / "home", prefix=f"e2e-{token_hex(6)}"))
        secrets = {
            "DATABASE_URL": database_settings.dsn,
            "REDIS_URL": servers.redis_url,
            "FAIRLEAD_MASTER_KEY": "k1:" + "0123456789abcdef" * 4,
            "FAIRLEAD_DATABASE__SCHEMA_NAME": database_settings.schema or "",
        }
        return Fairlead(load({name: value for name, value in (secrets | environ).items() if value}, file))

    return make


async def connect(fl: Fairlead, tenant: str = "acme", **settings: Any) -> None:
    await fl.connections.upsert(tenant, "stripe", api_key="sk_live_1", settings=settings)


async def call(fl: Fairlead, tenant: str = "acme", **options: Any) -> None:
    async with fl.admission(tenant, "stripe", **options):
        pass


async def test_a_call_waits_a_moment_or_is_told_when_to_come_back(
    new_fairlead: Callable[..., Fairlead],
) -> None:
    async with new_fairlead() as fl:
        await connect(fl, **FEW)
        await call(fl, wait_s=5)
        with pytest.raises(LimitExceededError, match=r"rate.*acme.*stripe") as refused:
            await call(fl, wait_s=0)
        assert refused.value.retry_after_s is not None
        assert 0 < refused.value.retry_after_s <= 1
        await call(fl)
        with pytest.raises(NotFoundError, match="connections add"):
            await call(fl, tenant="nobody")


async def test_limit_reported_by_the_provider_delays_the_next_call(
    new_fairlead: Callable[..., Fairlead],
) -> None:
    async with new_fairlead() as fl:
        await connect(fl)
        async with fl.admission("acme", "stripe", wait_s=5) as admission:
            admission.record_response(RawResponse(429, {"retry-after": ["120"]}))
        with pytest.raises(LimitExceededError) as refused:
            await call(fl)
        assert refused.value.retry_after_s == pytest.approx(120, abs=1)


async def test_a_connection_that_observed_is_limited_from_one_moment_to_the_next(
    new_fairlead: Callable[..., Fairlead], database: Database
) -> None:
    """Its buckets go on from where they were, and its grant is as it was."""
    calls = {"requests": {"capacity": 2.0, "per_s": 0.001}}
    async with new_fairlead() as fl:
        await connect(fl, calls=calls, observe=True)
        rows_before = await rows(database, "SELECT generation, sealed, refreshed_at FROM credential")
        for _ in range(3):  # the third one is let through and told of
            await call(fl, wait_s=0)
        settings = await fl.connections.configure("acme", "stripe", settings={"observe": False})
        assert settings == {"calls": calls, "observe": False}
        async with asyncio.timeout(30):
            while (await fl.runtime.gate.call_admitter.plan(ConnectionKey("acme", "stripe"))).observe:
                await asyncio.sleep(0.05)
        with pytest.raises(LimitExceededError, match="rate"):
            await call(fl, wait_s=0)
        assert await rows(database, "SELECT generation, sealed, refreshed_at FROM credential") == rows_before


async def test_a_change_of_settings_that_cannot_be_changes_nothing(
    new_fairlead: Callable[..., Fairlead], database: Database
) -> None:
    async with new_fairlead() as fl:
        await connect(fl, concurrency_limit=5)
        connections = fl.connections
        with pytest.raises(InvalidConfigError, match="minimum_slots"):
            await connections.configure("acme", "stripe", settings={"minimum_slots": {"1": 9}})
        with pytest.raises(InvalidInputError, match="it has: concurrency_limit"):
            await connections.configure("acme", "stripe", unset=["observe"])
        with pytest.raises(NotFoundError):
            await connections.configure("beta", "stripe", settings={"observe": True})
        assert await connections.configure("acme", "stripe", settings={"concurrency_limit": 5}) == {
            "concurrency_limit": 5
        }
        acts = await rows(database, "SELECT act FROM audit")
        assert [row["act"] for row in acts] == ["connection.created"], "what is as it was is no change"


async def test_of_two_writers_of_settings_none_is_lost(
    new_fairlead: Callable[..., Fairlead], database: Database
) -> None:
    async with new_fairlead() as fl:
        await connect(fl)
        settings = {"concurrency_limit": 5, "tenant_slots": 6, "observe": True}
        configure = fl.connections.configure
        writers = [configure("acme", "stripe", settings={name: value}) for name, value in settings.items()]
        await asyncio.gather(*writers)
        assert await configure("acme", "stripe") == settings
        audit = await rows(database, "SELECT details FROM audit WHERE act = 'connection.configured'")
        details = sorted((json.loads(row["details"]) for row in audit), key=str)
        assert details == sorted(({"set": {name: settings[name]}, "unset": []} for name in settings), key=str)


async def test_jobs_take_their_turns_and_other_tenants_run_on(
    new_fairlead: Callable[..., Fairlead], database: Database
) -> None:
    """Forty calls of one tenant at twenty a second: none failed, no attempt burnt, nobody else waits."""
    fl = new_fairlead()
    starts: list[tuple[str, int]] = []
    done = asyncio.Event()

    @fl.job(kind="orders.sync")
    async def sync(ctx: JobContext, number: int) -> None:
        async with fl.admission(ctx.tenant, "stripe", wait_s=0.1):
            starts.append((ctx.tenant, number))
            if len(starts) == 45:
                done.set()

    async with fl:
        await connect(fl, calls={"requests": {"capacity": 2.0, "per_s": 20.0}})
        await connect(fl, tenant="beta", calls={"requests": {"capacity": 50.0, "per_s": 50.0}})
        for number in range(40):
            await fl.enqueue("orders.sync", {"number": number}, tenant="acme", provider="stripe")
        for number in range(5):
            await fl.enqueue("orders.sync", {"number": number}, tenant="beta", provider="stripe")
        running = asyncio.create_task(fl.run())
        await asyncio.wait_for(done.wait(), 60)
        fl.stop()
        await running
    acme = [number for tenant, number in starts if tenant == "acme"]
    assert sorted(acme) == list(range(40))
    assert starts.index(("beta", 4)) < 30, "another tenant's work was not behind it"
    jobs_found = await rows(
        database, "SELECT state, attempt, failures::text AS failures FROM job WHERE kind = 'orders.sync'"
    )
    assert {(row["state"], row["attempt"], row["failures"]) for row in jobs_found} == {("completed", 1, "[]")}


async def test_without_redis_each_process_keeps_to_its_share(new_fairlead: Callable[..., Fairlead]) -> None:
    async with new_fairlead(REDIS_URL="") as fl:
        await connect(fl, **FEW)
        await call(fl, wait_s=5)
        with pytest.raises(LimitExceededError):
            await call(fl, wait_s=0)


async def test_observation_alone_never_blocks(new_fairlead: Callable[..., Fairlead]) -> None:
    async with new_fairlead() as fl:
        await connect(fl, observe=True, **FEW)
        for _ in range(5):
            await call(fl, wait_s=0)


async def test_a_redis_that_drops_keys_is_refused_at_the_start(new_fairlead: Callable[..., Fairlead]) -> None:
    with own_valkey({"maxmemory-policy": "allkeys-lru"}) as server:
        async with new_fairlead(REDIS_URL=server.url) as fl:
            with pytest.raises(
                InvalidConfigError, match=r"allkeys-lru.*hint: set maxmemory-policy noeviction"
            ):
                await fl.run()


@pytest.mark.parametrize(("appends", "expected"), [("no", 1), ("yes", 0)])
async def test_a_redis_that_forgets_is_told_of_at_the_start(
    new_fairlead: Callable[..., Fairlead], appends: str, expected: int
) -> None:
    with own_valkey({"appendonly": appends}) as server:
        async with new_fairlead(REDIS_URL=server.url) as fl:
            advice: list[GateNotPersistent] = []
            fl.runtime.bus.subscribe(lambda event: _keep(event, advice))
            await fl.runtime.gate.check()
    assert len(advice) == expected
    assert all("everysec" in event.advice and event.server.startswith("Valkey") for event in advice)


def _keep(event: Event, advice: list[GateNotPersistent]) -> None:
    if isinstance(event, GateNotPersistent):
        advice.append(event)


async def test_the_clean_up_looks_after_the_gate_and_tells_of_it(
    new_fairlead: Callable[..., Fairlead],
) -> None:
    async with new_fairlead() as fl:
        await connect(fl, **FEW)
        await call(fl, wait_s=5)
        context = JobContext(a_job("clean_up"), lambda: 100.0)
        done = await fl.runtime.job_components.pruner.run(context)
        assert done["gate"] == 0, "there is nothing left over"
        assert fl.runtime.bus.counts["gate_maintenance_done"] == 1
