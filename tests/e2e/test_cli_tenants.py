"""`fairlead tenants`: weights, caps, tiers, and how each tenant fares; who looks after lanes."""

from __future__ import annotations

import asyncio
import json
import signal

from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.jobs import PostgresJobStore
from fairlead.adapters.postgres.lanes import PostgresLaneStore
from fairlead.engine.ports import ClaimFilter, GroupCap, TenantShare, Tier
from tests.support.cli import Shell
from tests.support.engine import IDS, new_job
from tests.support.rows import rows
from tests.support.seeds import a_session


async def test_weights_of_tenants_and_tiers(shell: Shell, database: Database) -> None:
    lanes = PostgresLaneStore(database)
    assert (await shell("tenants", "weights")).err == "every tenant has weight 1\n"
    dry = await shell("tenants", "weights", "set", "acme", "3", "--dry-run", "--json")
    assert (dry.record["result"], dry.record["weight"]) == ("would be set", 3.0)
    assert await lanes.tenant("acme") is None
    done = await shell("tenants", "weights", "set", "acme", "3", "--json")
    assert (done.code, done.record["result"], done.record["before"]["weight"]) == (0, "set", None)
    assert await lanes.tenant("acme") == TenantShare("acme", weight=3.0)
    same = await shell("tenants", "weights", "--json", "set", "acme", "3.0")
    assert same.record["result"] == "as it was"
    missing = await shell("tenants", "weights", "set", "gold", "2", "--tier", "--json")
    assert (missing.code, missing.error["code"]) == (1, "not_found")
    tier = await shell("tenants", "tiers", "set", "gold", "--weight", "2", "--json")
    assert (tier.record["tenants"], tier.record["result"]) == (0, "set")
    moved = await shell("tenants", "tiers", "assign", "gold", "acme", "b\x1b]0;x\x07", "c", "--json")
    assert (moved.code, [row["result"] for row in moved.rows]) == (3, ["set", "failed", "set"])
    await shell("tenants", "weights", "set", "gold", "5", "--tier")
    listed = (await shell("tenants", "weights", "--json")).rows
    assert [(row["tenant"], row["tier"], row["weight"], row["set_for"]) for row in listed] == [
        (None, "gold", 5.0, "tier"),
        ("acme", "gold", 3.0, "tenant"),
        ("c", "gold", 5.0, "tier"),
    ]
    await shell("tenants", "weights", "clear", "acme")
    assert await lanes.tenant("acme") == TenantShare("acme", tier="gold")
    refused = await shell("tenants", "tiers", "remove", "gold", "--json")
    assert (refused.code, refused.error["code"]) == (2, "invalid_input")
    await shell("tenants", "tiers", "unassign", "acme", "c")
    assert (await shell("tenants", "tiers", "remove", "gold", "--dry-run", "--json")).code == 0
    removed = await shell("tenants", "tiers", "remove", "gold", "--json")
    assert (removed.record["result"], await lanes.tiers(), await lanes.tenants(9)) == ("removed", [], [])
    audit = await rows(database, "SELECT act, count(*) FROM audit GROUP BY act ORDER BY act")
    assert {row["act"]: row["count"] for row in audit} == {
        "tenant.share_set": 6,
        "tier.removed": 1,
        "tier.set": 2,
    }


async def test_caps_of_tenants_tiers_and_groups(shell: Shell, database: Database) -> None:
    lanes = PostgresLaneStore(database)
    assert (await shell("tenants", "caps")).err == "there are no caps\n"
    await lanes.set_tier(Tier("free", max_running=2))
    await lanes.set_tenant(TenantShare("acme", tier="free"))
    await lanes.set_tenant(TenantShare("b", weight=2.0))
    for arguments in (
        ("acme", "5"),
        ("free", "3", "--tier"),
        ("acme", "1", "--group", "shopify/default"),
        ("shopify/default", "9", "--shared"),
    ):
        done = await shell("tenants", "caps", "set", *arguments, "--json")
        assert (done.code, done.record["result"]) == (0, "set"), arguments
    listed = (await shell("tenants", "caps", "--json")).rows
    assert [(row["tenant"], row["tier"], row["group"], row["max_running"]) for row in listed] == [
        (None, "free", None, 3),
        ("acme", "free", None, 5),
        (None, None, "shopify/default", 9),
        ("acme", None, "shopify/default", 1),
    ]
    shown = (await shell("tenants", "show", "acme", "--json")).record
    assert (shown["weight"], shown["max_running"], shown["own_max_running"]) == (1.0, 5, 5)
    assert shown["group_caps"] == [{"group": "shopify/default", "max_running": 1}]
    await shell("tenants", "caps", "clear", "acme")
    assert (await shell("tenants", "show", "acme", "--json")).record["max_running"] == 3
    dry = await shell("tenants", "caps", "clear", "shopify/default", "--shared", "--dry-run", "--json")
    assert (dry.record["result"], dry.record["before"]) == ("would be set", 9)
    await shell("tenants", "caps", "clear", "shopify/default", "--shared")
    assert await lanes.group_caps(9) == [GroupCap("shopify/default", "acme", 1)]


async def test_invalid_weights_caps_and_tiers_are_refused(shell: Shell) -> None:
    for arguments in (
        ("weights", "set", "acme", "0"),
        ("weights", "set", "acme", "nan"),
        ("weights", "set", "acme", "many"),
        ("weights", "set", "acme\n", "1"),
        ("caps", "set", "acme", "0"),
        ("caps", "set", "acme", "2", "--tier", "--shared"),
        ("caps", "set", "acme", "1000001"),
        ("tiers", "set", "Gold!", "--weight", "1"),
        ("weights", "acme"),
    ):
        done = await shell("tenants", *arguments, "--json")
        assert done.code in {1, 2}, arguments
        assert (done.code == 2) or done.record["result"] == "failed", arguments
    assert (await shell("tenants", "weights", "--json")).rows == []


async def test_how_tenants_fare(shell: Shell, database: Database) -> None:
    store = PostgresJobStore(database, IDS)
    assert (await shell("tenants", "fairness")).err == "no tenant has had work yet\n"
    await store.enqueue([new_job(tenant_id=name) for name in "aaaab"])
    await store.enqueue([new_job(tenant_id="a", queue="mail")])
    running = await store.claim(ClaimFilter(), 2, await a_session(database))
    turns = (await shell("tenants", "fairness", "--json")).rows
    assert {(row["tenant"], row["queue"]) for row in turns} == {
        ("a", "default"),
        ("a", "mail"),
        ("b", "default"),
    }
    assert sum(row["running"] for row in turns) == sum(row["processed"] for row in turns) == len(running)
    assert sum(row["waiting"] for row in turns) == 4
    assert all(1 <= row["current_priority"] <= 5 for row in turns)
    only = (await shell("tenants", "fairness", "--tenant", "a", "--queue", "mail", "--json")).record
    assert (only["waiting"], only["ready_lanes"], only["max_running"]) == (1, 1, None)
    people = (await shell("tenants", "fairness")).out.splitlines()
    assert people[0].split()[:2] == ["tenant", "queue"]
    assert len((await shell("tenants", "show", "a", "--json")).record["turns"]) == 2


async def test_a_process_that_works_looks_after_the_lanes(shell: Shell, database: Database) -> None:
    child = shell.start("run", "--role", "scheduler", "--json")
    assert json.loads(await child.line())["event"] == "ready"
    settings = {"lane_floors", "lane_age", "lane_sweep"}
    async with asyncio.timeout(30):
        while not settings <= {
            row["name"] for row in await rows(database, "SELECT name FROM maintenance_run")
        }:
            await asyncio.sleep(0.05)
    child.kill(signal.SIGTERM)
    assert (await shell.end(child)).code == 0
