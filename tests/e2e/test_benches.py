"""The benchmarks run, small, and say what they are to say. What they measure so is not looked at."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bench.child import WARM_UP
from bench.gate import PROGRAM
from bench.gate_sides import must
from bench.sides import SideFailedError, SkippedError, ask, started
from bench.valkey import connected
from fairlead.adapters.embedded import Endpoints
from tests.support.servers import drop_database, fresh_database

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
PEERS_DB = 9
"""A database of Valkey that no other test uses."""


async def bench(*words: str) -> dict[str, dict[str, Any]]:
    """The rows of one benchmark, by their names."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "bench", *words, "--json"),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    assert process.returncode in (0, 1), errors.decode()  # 1: a goal is missed, as it may be in this size
    rows = [json.loads(line) for line in output.splitlines()]
    assert rows, errors.decode()
    return {row["bench"]: row for row in rows}


async def test_queue_beside_the_limit() -> None:
    rows = await bench("queue", "--quick", "--rounds", "1", "--no-peers")
    assert rows.keys() == {"queue.noop", "queue.enqueue_one", "queue.enqueue_bulk"}
    for row in rows.values():
        assert row["ours"] > 0
        assert row["limit"] > 0
        assert row["beside"].keys() == {"fairlead_logged"}
    assert rows["queue.noop"]["goal"] == {"ratio_limit": 0.45}


async def test_compare_measures_two_trees_in_turns() -> None:
    rows = await bench("compare", str(ROOT), "queue", "gate", "--quick", "--rounds", "2")
    assert rows.keys() == {"queue.rate", "queue.cpu", "gate.rate", "gate.cpu"}
    for row in rows.values():
        assert row["ours"] > 0
        assert row["limit"] > 0
        assert len(row["ratio_quartiles"]) == 3


@pytest.mark.parametrize("name", ["pgqueuer", "procrastinate", "oban", "awa"])
async def test_a_peer_works(name: str, servers: Endpoints) -> None:
    module = f"bench.peers.{name}"
    url = await fresh_database(servers.database_url)
    try:
        prepared = await ask(module, "prepare", url, 60.0)
        stored = await ask(module, "enqueue", url, 60.0, singles=5, bulk=50)
        done = await ask(module, "drain", url, 60.0, jobs=5 + 50 + 2 * WARM_UP, for_s=30.0)
    except SkippedError as reason:
        assert name == "oban"  # the others are in the lock
        pytest.skip(str(reason))
    finally:
        await drop_database(servers.database_url, url)
    assert prepared["version"]
    assert min(stored.values()) > 0
    assert done["jobs"] == 5 + 50 + 2 * WARM_UP


async def test_a_side_that_dies_says_why(servers: Endpoints) -> None:
    with pytest.raises(SideFailedError, match="does not exist"):
        await ask("bench.limits.queue", "enqueue", servers.database_url, 60.0, singles=1, bulk=1)


async def test_bloat_under_a_pinned_snapshot() -> None:
    rows = await bench("bloat", "--quick", "--no-peers")
    assert rows.keys() == {"bloat.claim_p99", "bloat.backlog", "bloat.drained", "bloat.dead"}
    claims = rows["bloat.claim_p99"]
    assert all(minute["claims"] > 0 and minute["p99"] > 0 for minute in claims["minutes"])
    assert rows["bloat.dead"]["ours"] > 0  # the snapshot holds them
    assert rows["bloat.backlog"]["pass"] == (rows["bloat.backlog"]["ours"] <= 1.0)


async def test_fairness_beside_a_plain_claim() -> None:
    rows = await bench("fairness", "--quick", "--rounds", "1")
    shares = {f"fairness.{name}" for name in ("quiet", "unfairness", "wrongorderness", "weights", "groups")}
    costs = {f"fairness.{name}" for name in ("tax_100", "tax_48", "flat_tenants", "flat_jobs")}
    assert rows.keys() == shares | costs
    assert all(rows[name]["pass"] for name in shares)  # turns are counted, not timed
    assert all(rows[name]["ours"] > 0 < rows[name]["limit"] for name in costs)


async def test_refresh_beside_a_bare_loop() -> None:
    rows = await bench("refresh", "--quick", "--rounds", "1")
    figures = {"refresh.rss", "refresh.scan_buffers", "refresh.start", "refresh.start_rss"}
    assert rows.keys() == {"refresh", "refresh.kept", "refresh.files_100"} | figures
    assert all(row["ours"] > 0 for name, row in rows.items() if name != "refresh.start_rss")


async def test_gate_beside_the_limits() -> None:
    rows = await bench("gate", "--quick", "--rounds", "1", "--no-peers")
    throughput = {"gate.bucket_1", "gate.bucket_1000", "gate.pair_1", "gate.pair_1000"}
    assert rows.keys() == throughput | {
        *("gate.full_1", "gate.full_1000", "gate.serial", "gate.herd", "gate.herd_bucket"),
        *("gate.open_loop", "gate.flat"),
        *(f"gate.cluster_{plan}_{keys}" for plan in ("bucket", "full", "pair") for keys in (1, 1_000)),
    }
    for row in rows.values():
        assert row["ours"] > 0
    for name in throughput:
        assert rows[name]["limit"] > 0
        assert rows[name]["beside"].keys() == {"incrby", "script_single"}
        assert "goal" not in rows[name]  # it is over a peer
    assert rows["gate.flat"]["pair_us"].keys() == {"10", "100"}


@pytest.mark.parametrize(
    ("module", "options"),
    [
        ("limits_", {"strategy": "moving", "client": "redispy"}),
        ("limits_", {"strategy": "sliding", "client": "redispy"}),
        ("limits_", {"strategy": "fixed", "client": "redispy"}),
        ("limits_", {"strategy": "fixed", "client": "coredis"}),
        ("throttled", {"using": "token_bucket"}),
        ("throttled", {"using": "gcra"}),
        ("pyrate", {"bucket": "log"}),
        ("pyrate", {"bucket": "state"}),
    ],
)
async def test_a_peer_of_the_gate_works(module: str, options: dict[str, str], servers: Endpoints) -> None:
    size = {"tasks": 4, "keys": 3, "warm_s": 0.02, "for_s": 0.05}
    url = f"{servers.redis_url}?db={PEERS_DB}"
    try:
        rate = await ask(f"bench.peers.{module}", "rate", url, 60.0, program=PROGRAM, **size, **options)
    except SkippedError as reason:
        assert options.get("client") == "coredis"  # the others are in the lock
        pytest.skip(str(reason))
    finally:
        async with connected(url) as client:
            await client.flushdb()
    assert rate["version"]
    assert rate["per_s"] > 0


async def test_a_refusal_is_no_answer() -> None:
    must(True, "a side")
    with pytest.raises(SideFailedError, match="a side refused"):
        must(False, "a side")


async def test_an_option_that_a_benchmark_does_not_take_is_refused() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "bench", "queue", "--seconds", "1"),
        cwd=ROOT,
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await process.communicate()
    assert process.returncode == 2
    assert b"takes no --seconds" in errors


async def test_calls_beside_bare_ones_and_glued_ones() -> None:
    rows = await bench("call", "--quick", "--rounds", "1")
    assert rows.keys() == {"call.bare", "call.httpx2", "call.aiohttp", "call.added"}
    sides = {"fairlead", "aiohttp", "glued_httpx2", "glued_aiohttp"}
    assert rows["call.bare"]["cpu_us"].keys() == sides  # nobody was left out
    assert rows["call.bare"]["goal"] == {"ratio_limit": 0.5}
    assert rows["call.bare"]["limit"] > 0
    for client, goal in {"httpx2": 4.0, "aiohttp": 1.5}.items():
        assert rows[f"call.{client}"]["peers"][f"glued_{client}"] > 0
        assert rows[f"call.{client}"]["goal"] == {"ratio_best_peer": goal}
    assert rows["call.added"]["rate"] > 0


async def test_a_call_without_a_token_is_not_measured() -> None:
    """The server of the calls turns it away, and whoever is measured takes that for a failure."""
    async with started("api", "serve", "", program="bench.call_server") as server:
        api_url = (await server.line())["url"]
        async with aiohttp.ClientSession() as session, session.get(f"{api_url}/v1/orders.json") as refused:
            assert refused.status == 401
        size = {"tasks": 2, "keys": 2, "warm_s": 0.02, "for_s": 0.05}
        rate = await ask(
            "bench.limits.bare_aiohttp", "rate", "", 60.0, program=PROGRAM, api_url=api_url, **size
        )
    assert rate["per_s"] > 0


async def test_handing_over() -> None:
    rows = await bench("handover", "--quick")
    assert rows.keys() == {"handover.idle", "handover.p95"}
    assert rows["handover.p95"]["n"] == 19


async def test_utilisation_and_the_apis_own_ledger() -> None:
    rows = await bench("utilisation", "--quick")
    assert rows.keys() == {"utilisation.throttles", "utilisation.rest", "utilisation.graphql"}
    assert rows["utilisation.throttles"]["ours"] == 0
    assert rows["utilisation.rest"]["calls"] > 0


async def test_a_storm_and_who_comes_through_it() -> None:
    rows = await bench("storm", "--quick")
    assert rows.keys() == {
        *("storm.amplification", "storm.recovery"),
        *("storm.shed_amplification", "storm.shed_recovery"),
    }
    assert 1 <= rows["storm.shed_amplification"]["ours"] < rows["storm.shed_amplification"]["retries_only"]
    assert rows["storm.amplification"]["calls"] > 30


async def test_a_sweep_of_lanes() -> None:
    rows = await bench("sweep", "--quick", "--rounds", "2")
    assert rows.keys() == {"sweep.share", "sweep.found"}
    assert rows["sweep.found"]["ours"] == rows["sweep.found"]["goal"]["ours"] == 2 * 3
    assert 0 < rows["sweep.share"]["ours"] < 1
