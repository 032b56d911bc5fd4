"""Bulk operations, what was learnt, and the first minute of an installation, on real stores."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from fairlead import Fairlead, RawResponse
from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.database import Database
from fairlead.assembly.config import load
from fairlead.engine.jobs.handler import JobContext
from fairlead.engine.ports import ConnectionKey
from fairlead.errors import DependencyUnavailableError, LimitExceededError
from tests.faults.support.valkey import OwnValkey, own_valkey
from tests.support.rows import rows

SETTINGS = """
home = "{home}"
worker.poll_s = 0.05
worker.lease_s = 3
redis.prefix = "{prefix}"
providers_dir = "{profiles}"
"""
PROFILE = """
name = "shop"
title = "A shop with the limits of Shopify, whose jobs come back sooner"
strategy = "static_key"

[limits]
dialect = "shopify"
calls.points = { capacity = 1000, per_s = 50, apis = ["graphql"] }

[limits.bulk]
kinds = ["query"]
api_version = "2025-10"
versions = [{ capacity = 1, per_kind = true }]
retry_after_s = 1.0
"""
STATUS = {"maximumAvailable": 2000.0, "currentlyAvailable": 2000, "restoreRate": 100.0}
THROTTLED = RawResponse(200, body={"data": {}, "extensions": {"cost": {"throttleStatus": STATUS}}})
ONE_SLOT = {"concurrency_limit": 1}


@pytest.fixture
def valkey() -> Iterator[OwnValkey]:
    """A server that a test may empty."""
    with own_valkey() as server:
        yield server


@pytest.fixture
def new_fairlead(
    valkey: OwnValkey, database_settings: DatabaseSettings, tmp_path: Path
) -> Callable[..., Fairlead]:
    file, profiles = tmp_path / "fairlead.toml", tmp_path / "profiles"
    profiles.mkdir()
    (profiles / "shop.toml").write_text(PROFILE)
    prefix = f"e2e-{token_hex(6)}"
    file.write_text(SETTINGS.format(home=tmp_path / "home", prefix=prefix, profiles=profiles))

    def make(**environ: str) -> Fairlead:
        secrets = {
            "DATABASE_URL": database_settings.dsn,
            "REDIS_URL": valkey.url,
            "FAIRLEAD_MASTER_KEY": "k1:" + "0123456789abcdef" * 4,
            "FAIRLEAD_DATABASE__SCHEMA_NAME": database_settings.schema or "",
        }
        return Fairlead(load({name: value for name, value in (secrets | environ).items() if value}, file))

    return make


async def connect(fl: Fairlead, tenant: str = "acme", **settings: Any) -> None:
    await fl.connections.upsert(tenant, "shop", api_key="key_1", account_id=f"{tenant}-1", settings=settings)


async def call(fl: Fairlead, tenant: str = "acme", **options: Any) -> None:
    async with fl.admission(tenant, "shop", **({"wait_s": 0} | options)):
        pass


# ---- bulk (G5) -------------------------------------------------------------------------------------


async def test_two_bulk_jobs_on_one_shop_the_second_waits_other_shops_run_attempts_unchanged(
    new_fairlead: Callable[..., Fairlead], database: Database
) -> None:
    """The place of the first outlives the job that began it; another one polls, and gives it back."""
    fl = new_fairlead()
    starts: list[tuple[str, int]] = []
    at_once: dict[str, int] = {}
    first_began, others_ran, all_done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @fl.job(kind="export")
    async def export(ctx: JobContext, number: int) -> None:
        async with fl.bulk(ctx.tenant, "shop", kind="QUERY") as operation:
            at_once[ctx.tenant] = at_once.get(ctx.tenant, 0) + 1
            assert at_once[ctx.tenant] == 1
            starts.append((ctx.tenant, number))
            operation.started(f"gid://shopify/BulkOperation/{number}")
            token = operation.token
        first_began.set()
        if ctx.tenant == "beta":
            others_ran.set()
        await fl.enqueue("poll", {"token": token}, tenant=ctx.tenant, provider="shop")

    @fl.job(kind="poll")
    async def poll(ctx: JobContext, token: str) -> None:
        if ctx.tenant == "acme":  # it runs at the vendor until everybody else had their turn
            await others_ran.wait()
        async with fl.bulk(ctx.tenant, "shop", kind="QUERY", token=token) as operation:
            assert operation.running_id is not None
            at_once[ctx.tenant] -= 1
            operation.finished()
        if len(starts) == 3:
            all_done.set()

    async with fl:
        await connect(fl)
        await connect(fl, "beta")
        running = asyncio.create_task(fl.run())
        await fl.enqueue("export", {"number": 1}, tenant="acme", provider="shop")
        await asyncio.wait_for(first_began.wait(), 30)
        await fl.enqueue("export", {"number": 2}, tenant="acme", provider="shop")
        await waits(database, 2)
        await fl.enqueue("export", {"number": 3}, tenant="beta", provider="shop")
        await asyncio.wait_for(others_ran.wait(), 30)
        assert starts == [("acme", 1), ("beta", 3)]
        await asyncio.wait_for(all_done.wait(), 60)
        fl.stop()
        await running
    assert starts == [("acme", 1), ("beta", 3), ("acme", 2)]
    jobs_found = await rows(database, "SELECT state, attempt, failures::text AS failures FROM job")
    assert {(row["state"], row["attempt"], row["failures"]) for row in jobs_found} == {("completed", 1, "[]")}


async def test_a_place_is_no_orphan_when_the_process_that_took_it_has_ended(
    new_fairlead: Callable[..., Fairlead],
) -> None:
    async with new_fairlead() as fl:
        await connect(fl)
        async with fl.bulk("acme", "shop") as operation:
            operation.started("gid://shopify/BulkOperation/1")
    async with new_fairlead() as fl:
        orphans = fl.runtime.gate.orphans
        assert orphans is not None
        assert (await orphans.find()).orphans == []
        async with fl.bulk("acme", "shop", token=operation.token) as again:
            again.finished()


async def waits(database: Database, number: int) -> None:
    """Return once job *number* was run and put off."""
    limits = (
        "SELECT 1 FROM job WHERE kind = 'export' AND (args->>'number')::integer = $1 "
        "AND state = 'available' AND run_at > now()"
    )
    async with asyncio.timeout(30):
        while not await rows(database, limits, number):
            await asyncio.sleep(0.02)


# ---- learnt (G3) -----------------------------------------------------------------------------------


async def rate(fl: Fairlead) -> tuple[float, float]:
    """Capacity and rate with which a bucket of points would begin now."""
    (bucket,) = (
        await fl.runtime.gate.call_admitter.plan(ConnectionKey("acme", "shop"), "graphql")
    ).plan.buckets
    return bucket.capacity, bucket.per_s


async def test_observed_limits_survive_redis_and_the_process(
    new_fairlead: Callable[..., Fairlead], valkey: OwnValkey
) -> None:
    async with new_fairlead() as fl:
        await connect(fl)
        assert await rate(fl) == (1000, 50), "the guess"
        async with fl.admission("acme", "shop", api="graphql") as admission:
            admission.record_response(THROTTLED)
    await valkey.tell("FLUSHALL")
    async with new_fairlead() as fl:
        assert await rate(fl) == (2000, 100)
        with pytest.raises(LimitExceededError) as refused:
            await call(fl, api="graphql", cost=1500)
        assert refused.value.retry_after_s is not None, "more than the guess would ever hold"
        assert refused.value.retry_after_s <= 15


async def test_observed_limits_are_stored_while_the_process_runs(
    new_fairlead: Callable[..., Fairlead], database: Database
) -> None:
    """For a process may end without an end."""
    async with new_fairlead() as fl:
        await connect(fl)
        async with fl.admission("acme", "shop", api="graphql") as admission:
            admission.record_response(THROTTLED)
        async with asyncio.timeout(30):
            while not await rows(database, "SELECT 1 FROM observed_limit"):
                await asyncio.sleep(0.05)


async def test_newer_settings_end_what_was_learnt(
    new_fairlead: Callable[..., Fairlead], valkey: OwnValkey
) -> None:
    async with new_fairlead() as fl:
        await connect(fl)
        async with fl.admission("acme", "shop", api="graphql") as admission:
            admission.record_response(THROTTLED)
    async with new_fairlead() as fl:
        slower = {"points": {"capacity": 100.0, "per_s": 10.0, "apis": ["graphql"]}}
        await connect(fl, calls=slower)
        assert await rate(fl) == (100, 10)


# ---- a fresh installation (R23) --------------------------------------------------------------------


async def refused_for(fl: Fairlead) -> str | None:
    with pytest.raises(LimitExceededError) as refused:
        await call(fl)
    return refused.value.reason


async def test_a_fresh_installation_begins_at_once(new_fairlead: Callable[..., Fairlead]) -> None:
    async with new_fairlead() as fl:
        await connect(fl, **ONE_SLOT)
        await call(fl, api="graphql", cost=900)


async def test_two_processes_that_start_together_are_not_both_new(
    new_fairlead: Callable[..., Fairlead],
) -> None:
    """Whichever meets the server first, its marker stands; at most one may say that nothing was granted."""
    async with new_fairlead() as first, new_fairlead() as other:
        await connect(first, **ONE_SLOT)
        await asyncio.gather(first.runtime.gate.ready(), other.runtime.gate.ready())
        is_new = [fl.runtime.gate._first_use.is_new() for fl in (first, other)]
        assert sorted(is_new) == [False, True]


async def test_a_server_that_lost_all_is_not_taken_for_a_fresh_one(
    new_fairlead: Callable[..., Fairlead], valkey: OwnValkey
) -> None:
    async with new_fairlead() as fl:
        await connect(fl, **ONE_SLOT)
        await call(fl)
    await valkey.tell("FLUSHALL")
    async with new_fairlead() as fl:
        assert await refused_for(fl) == "recovery"


async def test_a_connection_that_came_after_a_loss_is_not_made_to_wait_for_it(
    new_fairlead: Callable[..., Fairlead], valkey: OwnValkey
) -> None:
    """It cannot have spent anything before; who was there then waits until the bucket has filled up."""
    async with new_fairlead() as fl:
        await connect(fl)
        await connect(fl, "gamma")
        await call(fl, api="graphql")
        await valkey.tell("FLUSHALL")
        await call(fl, api="graphql", cost=50, wait_s=10)  # which takes the bucket a second
        await connect(fl, "beta")
        await call(fl, "beta", api="graphql", cost=1000)
        for there_before in ("acme", "gamma"):
            with pytest.raises(LimitExceededError, match="the rate lets it through"):
                await call(fl, there_before, api="graphql", cost=1000)


async def test_another_server_is_not_a_fresh_installation(new_fairlead: Callable[..., Fairlead]) -> None:
    """Leases may be held on the old one still."""
    async with new_fairlead() as fl:
        await connect(fl, **ONE_SLOT)
        await call(fl)
    with own_valkey() as second:
        async with new_fairlead(REDIS_URL=second.url) as fl:
            assert await refused_for(fl) == "recovery"


async def test_first_use_without_redis_counts_as_first_use(
    new_fairlead: Callable[..., Fairlead], database: Database, valkey: OwnValkey
) -> None:
    async with new_fairlead(REDIS_URL="") as fl:
        await connect(fl, **ONE_SLOT)
        await call(fl, api="graphql", wait_s=5)  # for the rate; the slot is there
    assert len(await rows(database, "SELECT prefix FROM gate_first_use")) == 1
    async with new_fairlead() as fl:
        await connect(fl, **ONE_SLOT)
        assert await refused_for(fl) == "recovery"


async def test_without_an_answer_of_the_database_the_gate_does_not_begin(
    new_fairlead: Callable[..., Fairlead], database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with new_fairlead() as fl:
        await connect(fl, **ONE_SLOT)

        async def away(prefix: str) -> bool:
            raise DependencyUnavailableError("the database does not answer")

        with monkeypatch.context() as patched:
            patched.setattr(fl.runtime.gate._notes, "record_first_use", away)
            with pytest.raises(DependencyUnavailableError):
                await call(fl)
        assert await rows(database, "SELECT 1 FROM gate_first_use") == []
        await call(fl)
