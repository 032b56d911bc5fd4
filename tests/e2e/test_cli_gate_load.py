"""`fairlead gate simulate-load`: a real load on a real gate, and nothing of it stays."""

from __future__ import annotations

import asyncio
import json
import signal
from secrets import token_hex

import pytest
from redis.asyncio import Redis

from fairlead.adapters.embedded import Endpoints
from fairlead.policy.limits.key import LAYOUT
from tests.faults.support.valkey import own_valkey
from tests.support.cli import Shell

SMALL = (
    "--seconds",
    "2",
    "--rate",
    "80",
    "--limit",
    "5",
    "--capacity",
    "5",
    "--slots",
    "2",
    "--hold-ms",
    "20",
)


@pytest.mark.slow
async def test_a_load_is_limited_shown_and_gone(bare: Shell, servers: Endpoints) -> None:
    prefix = f"sim-{token_hex(4)}"
    bare.environ |= {"REDIS_URL": servers.redis_url, "FAIRLEAD_REDIS__PREFIX": prefix}
    client = Redis.from_url(servers.redis_url, decode_responses=True)
    try:
        await client.set(f"{prefix}{LAYOUT}:of-somebody", "kept", ex=60)
        done = await bare("gate", "simulate-load", *SMALL, "--wait-ms", "100", "--json")
        assert done.code == 0, done.err
        keys_left = [key async for key in client.scan_iter(f"{prefix}*")]
        assert keys_left == [f"{prefix}{LAYOUT}:of-somebody"]
    finally:
        await client.delete(f"{prefix}{LAYOUT}:of-somebody")
        await client.aclose()
    report = json.loads(done.out)
    summary = report["summary"]
    assert summary["limit_held"] is True
    assert summary["offered"] == summary["admitted"] + summary["refused"]
    assert summary["upstream"]["arrived"] == summary["admitted"] > 0
    assert summary["refused_by"].keys() <= {"rate", "slot"}
    assert summary["refused"] > 0, "twice and more of what is allowed was offered"
    assert summary["admitted_without_redis"] == summary["unavailable"] == 0
    assert sum(second["admitted_per_s"] for second in report["series"]) > 0
    assert min(second["level"] for second in report["series"]) < 5


@pytest.mark.slow
async def test_people_see_charts(bare: Shell, servers: Endpoints) -> None:
    bare.environ |= {"REDIS_URL": servers.redis_url, "FAIRLEAD_REDIS__PREFIX": f"sim-{token_hex(4)}"}
    done = await bare("gate", "simulate-load", *SMALL, "--seconds", "1", "--processes", "1")
    assert done.code == 0, done.err
    for title in ("admitted/s (limit 20)", "refused/s", "bucket", "wait, p95, ms"):
        assert title in done.out
    assert "█" in done.out
    assert "the limit held" in done.err


@pytest.mark.slow
async def test_a_load_that_is_ended_leaves_nothing(bare: Shell, servers: Endpoints) -> None:
    prefix = f"sim-{token_hex(4)}"
    bare.environ |= {"REDIS_URL": servers.redis_url, "FAIRLEAD_REDIS__PREFIX": prefix}
    async with Redis.from_url(servers.redis_url, decode_responses=True) as client:
        child = bare.start("gate", "simulate-load", *SMALL, "--seconds", "60")
        while not [key async for key in client.scan_iter(f"{prefix}*:c")]:
            await asyncio.sleep(0.02)
        child.kill(signal.SIGTERM)
        done = await bare.end(child)
        assert done.code == 143
        assert [key async for key in client.scan_iter(f"{prefix}*")] == []


@pytest.mark.slow
async def test_a_redis_that_dies_meanwhile_spoils_no_report(bare: Shell) -> None:
    with own_valkey() as server:
        bare.environ["REDIS_URL"] = server.url
        # Without Redis a process may use only the slots that it held when Redis died, so the calls are long
        # enough to hold one at that moment.
        child = bare.start("gate", "simulate-load", *SMALL, "--hold-ms", "1000", "--seconds", "8", "--json")
        async with Redis.from_url(server.url, decode_responses=True) as client:
            while not [key async for key in client.scan_iter("*:c")]:
                await asyncio.sleep(0.02)
        server.kill()
        done = await bare.end(child)
    assert done.code in {0, 1}, done.err
    summary = done.record["summary"]
    assert summary["admitted_without_redis"] > 0
    assert summary["events"]["gate_degraded"] == 2
    assert "Redis is unavailable" in done.err


async def test_a_load_that_cannot_be_judged_is_refused(bare: Shell) -> None:
    done = await bare("gate", "simulate-load", "--seconds", "600", "--rate", "5000")
    assert done.code == 2
    assert "shorter load" in done.err


async def test_a_redis_that_is_away(bare: Shell) -> None:
    bare.environ["REDIS_URL"] = "redis://127.0.0.1:1/0"
    done = await bare("gate", "simulate-load", "--seconds", "1")
    assert done.code == 69
    assert "REDIS_URL" in done.err
