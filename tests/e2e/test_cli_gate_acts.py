"""`fairlead gate` by hand: what a person switches holds in a running app, and ends (G6, G8, G12)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from secrets import token_hex
from typing import Any

import pytest

from fairlead import Fairlead, RawResponse
from fairlead._core.secret import Secret
from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.redis.redis_gate import RedisGate
from fairlead.assembly.config import load
from fairlead.engine.jobs.handler import JobContext
from fairlead.engine.limits.admission import CallRequest
from fairlead.engine.limits.override_cache import REFRESH_INTERVAL_S
from fairlead.engine.ports import ConnectionKey
from fairlead.errors import LimitExceededError
from fairlead.policy.limits.key import Keyspace
from fairlead.policy.limits.override import OverrideKind, OverrideScope
from fairlead.testing._kit.clock import SystemClock
from tests.support.cli import Shell
from tests.support.rows import rows

ACME = ("-t", "acme", "-p", "stripe")
WHY = ("--reason", "the vendor asked us to")
FEW = {"calls": {"requests": {"capacity": 1.0, "per_s": 0.001}}}
SETTINGS = """
home = "{home}"
worker.poll_s = 0.05
worker.lease_s = 3
redis.prefix = "{prefix}"
"""


@pytest.fixture
async def with_redis(shell: Shell, servers: Endpoints) -> Shell:
    """On a Redis that is known to have lost nothing: buckets are full, and slots are granted at once."""
    prefix = f"hand-{token_hex(6)}"
    shell.environ["REDIS_URL"] = servers.redis_url
    shell.settings(SETTINGS.format(home=shell.folder / "home", prefix=prefix))
    first = RedisGate(Secret(servers.redis_url), clock=SystemClock(), keys=Keyspace(prefix), new=True)
    await first.ping()
    await first.close()
    return shell


def app(shell: Shell) -> Fairlead:
    return Fairlead(load(shell.environ, shell.folder / "fairlead.toml"))


async def connect(fl: Fairlead, tenant: str = "acme", **settings: Any) -> None:
    await fl.connections.upsert(tenant, "stripe", api_key="sk_live_1", settings=settings)


async def refusal(fl: Fairlead, tenant: str = "acme") -> str | None:
    """Why a call is refused now; None: it is let through."""
    try:
        async with fl.admission(tenant, "stripe", wait_s=0):
            return None
    except LimitExceededError as refused:
        return refused.reason


async def heeded(check: Callable[[], Any]) -> None:
    """Return once *check* says so: another process was told something."""
    async with asyncio.timeout(30):
        while not await check():
            await asyncio.sleep(0.02)


async def done(shell: Shell, *arguments: str) -> Any:
    """The record of a command that went well."""
    done = await shell("gate", *arguments, "--json")
    assert done.code == 0, done.err
    return done.record


def test_every_process_looks_often_enough_for_two_seconds() -> None:
    assert REFRESH_INTERVAL_S * 1.05 < 1.5


async def test_isolated_tenant_is_refused_in_a_running_app(with_redis: Shell, database: Database) -> None:
    async with app(with_redis) as fl:
        for tenant in ("acme", "beta"):
            await connect(fl, tenant)
            assert await refusal(fl, tenant) is None
        trial = await done(with_redis, "isolate", *ACME, *WHY, "--dry-run")
        assert trial["result"] == "would be isolated"
        assert (await with_redis("gate", "overrides", "--json")).rows == []
        assert (await done(with_redis, "isolate", *ACME, *WHY))["result"] == "isolated"
        await heeded(lambda: _is(refusal(fl), "isolated"))
        assert await refusal(fl, "beta") is None
        (shown,) = (await done(with_redis, "status", *ACME))["overrides"]
        assert (shown["act"], shown["reason"], shown["actor"][:4]) == ("isolated", WHY[1], "cli:")
        assert (await done(with_redis, "status", "-t", "beta", "-p", "stripe"))["overrides"] == []
        assert WHY[1] in (await with_redis("gate", "status", *ACME)).out
        assert WHY[1] in (await with_redis("gate", "breaker")).out
        lifted = await done(with_redis, "breaker", "reset", *ACME)
        assert (lifted["isolation"], lifted["breakers"]) == ("lifted", [])
        await heeded(lambda: _is(refusal(fl), None))
    audit = await rows(
        database,
        "SELECT act, tenant_id, provider, details::text FROM audit WHERE act LIKE 'gate.%' ORDER BY audit_id",
    )
    assert [(row["act"], row["tenant_id"], row["provider"]) for row in audit] == [
        ("gate.isolated", "acme", "stripe"),
        ("gate.reset", "acme", "stripe"),
    ]
    assert WHY[1] in audit[0]["details"]


async def _is(call: Any, expected: object) -> bool:
    return await call == expected


async def test_jobs_keep_their_place_until_a_reset_lets_them_run(
    with_redis: Shell, database: Database
) -> None:
    fl = app(with_redis)
    starts: list[int] = []
    refused, ended = asyncio.Event(), asyncio.Event()

    @fl.job(kind="orders.sync")
    async def sync(ctx: JobContext, number: int) -> None:
        try:
            async with fl.admission(ctx.tenant, "stripe"):
                starts.append(number)
        except LimitExceededError:
            refused.set()
            raise
        if len(starts) == 5:
            ended.set()

    async with fl:
        await connect(fl)
        await done(with_redis, "isolate", *ACME, *WHY)
        for number in range(5):
            await fl.enqueue("orders.sync", {"number": number}, tenant="acme", provider="stripe")
        running = asyncio.create_task(fl.run())
        async with asyncio.timeout(60):
            await refused.wait()
            await heeded(lambda: rows(database, "SELECT FROM pause WHERE scope = 'rate'"))
            assert starts == []
            lifted = await done(with_redis, "breaker", "reset", *ACME)
            assert lifted["groups_due"] == 1, "nobody waits for the 30 s of the refusal"
            await ended.wait()
        fl.stop()
        await running
    assert sorted(starts) == list(range(5))
    jobs_found = await rows(
        database, "SELECT state, attempt, failures::text AS failures FROM job WHERE kind = 'orders.sync'"
    )
    assert {(row["state"], row["attempt"], row["failures"]) for row in jobs_found} == {("completed", 1, "[]")}


async def test_waiting_call_is_refused_once_its_calls_are_stopped(with_redis: Shell) -> None:
    async with app(with_redis) as fl:
        await connect(fl, concurrency_limit=1, calls={"requests": {"capacity": 3.0, "per_s": 0.001}})
        await fl.runtime.gate.ready()
        waits = asyncio.Event()

        async def wait() -> None:
            waits.set()
            async with fl.admission("acme", "stripe", wait_s=60):
                raise AssertionError("it was let in")

        reach = OverrideScope("acme", "stripe", "default")
        async with asyncio.timeout(30):
            async with fl.admission("acme", "stripe", wait_s=5):
                waiting = asyncio.create_task(wait())
                await waits.wait()
                await fl.runtime.gate.override_store.put(
                    OverrideKind.ISOLATED, reach, reason="stop", actor="test"
                )
                await fl.runtime.gate.overrides.refresh()
            with pytest.raises(LimitExceededError, match="stop") as refused:
                await waiting
        assert refused.value.reason == "isolated"
        await fl.runtime.gate.override_store.end(OverrideKind.ISOLATED, reach)
        await fl.runtime.gate.overrides.refresh()
        assert [await refusal(fl) for _ in range(3)] == [None, None, "rate"], "its slot and unit went back"


async def test_an_observer_is_stopped_by_hand_too(with_redis: Shell) -> None:
    async with app(with_redis) as fl:
        await connect(fl, observe=True)
        assert await refusal(fl) is None
        await fl.runtime.gate.override_store.put(
            OverrideKind.ISOLATED, OverrideScope(), reason="stop", actor="test"
        )
        await fl.runtime.gate.overrides.refresh()
        assert await refusal(fl) == "isolated"


async def test_a_process_that_starts_heeds_what_is_switched_from_its_first_call_on(with_redis: Shell) -> None:
    async with app(with_redis) as fl:
        await connect(fl)
        for act, reach in (
            (OverrideKind.ISOLATED, OverrideScope("acme", "stripe", "default")),
            (OverrideKind.DEGRADED, OverrideScope()),
        ):
            await fl.runtime.gate.override_store.put(act, reach, reason="stop", actor="test")
    async with app(with_redis) as fl:
        assert await refusal(fl) == "isolated"
        assert fl.runtime.gate.core.gate.is_degraded


async def test_disabled_nothing_is_limited_and_enabled_again_it_is(with_redis: Shell) -> None:
    async with app(with_redis) as fl:
        await connect(fl, **FEW)
        await fl.runtime.gate.ready()
        assert [await refusal(fl) for _ in range(2)] == [None, "rate"]
        assert (await done(with_redis, "disable", "--all", *WHY))["result"] == "disabled"
        await heeded(lambda: _is(refusal(fl), None))
        assert [await refusal(fl) for _ in range(5)] == [None] * 5
        trial = await done(with_redis, "enable", "--all", "--gradual", "--dry-run")
        assert trial["result"] == "would be enabled step by step"
        started = await done(with_redis, "enable", "--all", "--gradual", "--step", "1h")
        assert started["result"] == "enabled step by step"
        (shown,) = (await with_redis("gate", "overrides", "--json")).rows
        assert (shown["act"], shown["on_again"]) == ("disabled", 0.1)
        again = await done(with_redis, "enable", "--all", "--gradual")
        assert again["result"] == "on its way already"
        assert (await done(with_redis, "enable", "--all"))["result"] == "enabled"
        await heeded(lambda: _is(refusal(fl), "rate"))
        assert (await done(with_redis, "enable", "--all"))["result"] == "not disabled"


async def test_degraded_each_process_keeps_to_its_share_until_it_is_restored(with_redis: Shell) -> None:
    async with app(with_redis) as fl:
        await connect(fl)
        assert await refusal(fl) is None
        guarded = fl.runtime.gate.core.gate
        assert (await done(with_redis, "degrade", "--all", *WHY))["result"] == "degraded"
        await heeded(lambda: _is_now(guarded.is_degraded))
        assert (await done(with_redis, "restore", "--all"))["result"] == "restored"
        await heeded(lambda: _is_now(not guarded.is_degraded))
        assert (await done(with_redis, "restore", "--all"))["result"] == "not degraded"


async def _is_now(value: bool) -> bool:
    return value


async def test_an_open_breaker_is_closed_by_hand(with_redis: Shell) -> None:
    async with app(with_redis) as fl:
        await connect(fl)
        for _ in range(10):
            async with fl.admission("acme", "stripe", wait_s=5) as admission:
                admission.record_response(RawResponse(503, {}, b""))
        assert await refusal(fl) == "breaker"
        trial = await done(with_redis, "breaker", "reset", *ACME, "--dry-run")
        assert [breaker["was"] for breaker in trial["breakers"]] == ["open"]
        assert await refusal(fl) == "breaker"
        closed = await done(with_redis, "breaker", "reset", *ACME)
        assert [breaker["was"] for breaker in closed["breakers"]] == ["open"]
        assert await refusal(fl) is None


async def test_a_vendor_that_answers_500_to_all_is_seen_by_host_and_reset_without_naming_one(
    with_redis: Shell,
) -> None:
    async with app(with_redis) as fl:
        await connect(fl)
        await connect(fl, "beta")
        call_admitter = fl.runtime.gate.call_admitter
        for host in ("api.stripe.com", "files.stripe.com"):
            for _ in range(10):
                request = CallRequest(ConnectionKey("acme", "stripe"), host=host, wait_s=5)
                async with call_admitter.enter(request) as admission:
                    admission.record_response(RawResponse(500, {}, b""))
        await fl.enqueue("sync", tenant="acme", provider="stripe")
        await fl.runtime.lanes.hold("acme", "stripe/default", 60.0, reason="the breaker is open")
        status = await with_redis("status", "--json")
        assert status.code == 4
        stopped = status.record["breakers"]
        assert [(breaker["times_opened"], breaker["lanes_held"]) for breaker in stopped] == [(1, 1), (1, 1)]
        assert all(
            0 <= breaker["last_failure_ago_s"] < 60 and breaker["last_failure"] == "http_500"
            for breaker in stopped
        )
        assert [(breaker["tenant"], breaker["host"], breaker["mode"]) for breaker in stopped] == [
            ("acme", "api.stripe.com", "open"),
            ("acme", "files.stripe.com", "open"),
        ]
        assert any("files.stripe.com are stopped" in problem for problem in status.record["problems"])
        shown = await done(with_redis, "status", *ACME)
        assert shown["breaker"] == {"mode": "open"}
        assert [breaker["host"] for breaker in shown["breakers"]] == ["api.stripe.com", "files.stripe.com"]
        assert {failure["host"] for failure in shown["failures"]} == {"api.stripe.com", "files.stripe.com"}
        without_events = await done(with_redis, "status", *ACME, "--events", "0")
        assert without_events["failures"] == []
        assert {breaker["last_failure"] for breaker in without_events["breakers"]} == {"http_500"}
        assert (await done(with_redis, "status", "-t", "beta", "-p", "stripe"))["breakers"] == []
        reset = await with_redis("gate", "breaker", "reset", *ACME, "--host", "nosuch.example", "--json")
        assert (reset.code, reset.record["result"]) == (0, "nothing to reset")
        assert "no breaker is open for the host 'nosuch.example'" in reset.err
        closed = await done(with_redis, "breaker", "reset", "-p", "stripe")
        assert [(breaker["host"], breaker["was"]) for breaker in closed["breakers"]] == [
            ("api.stripe.com", "open"),
            ("files.stripe.com", "open"),
        ]
        assert (await done(with_redis, "breaker", "reset", *ACME))["result"] == "nothing to reset"
        assert (await with_redis("status", "--json")).record["breakers"] == []


async def test_waiting_call_is_promoted_and_all_is_cleared(with_redis: Shell, database: Database) -> None:
    async with app(with_redis) as fl:
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
            for number in range(3):
                group.create_task(wait(number))
                await heeded(lambda count=number + 1: _waits(with_redis, count))
            last = (await done(with_redis, "status", *ACME))["waiters"][-1]["lease"]
            trial = await done(with_redis, "promote", last, *ACME, "--dry-run")
            assert trial["result"] == "would be promoted"
            assert (await done(with_redis, "promote", last, *ACME))["result"] == "promoted"
        assert order == [2, 0, 1]
        assert (await with_redis("gate", "promote", last, *ACME)).code == 1
        count = (await done(with_redis, "clear", "--dry-run"))["keys"]
        assert count > 0
        assert (await done(with_redis, "clear", "--yes"))["keys"] >= count
        await heeded(lambda: _is(refusal(fl), "recovery"))  # once its bucket, which began empty, has a unit
    audit = await rows(database, "SELECT act FROM audit WHERE act LIKE 'gate.%' ORDER BY audit_id")
    assert [row["act"] for row in audit] == ["gate.promoted", "gate.cleared"]


async def _waits(shell: Shell, count: int) -> bool:
    return len((await done(shell, "status", *ACME))["waiters"]) == count


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("isolate", *WHY), "--tenant with --provider"),
        (("isolate", "--all", *ACME, *WHY), "--tenant with --provider"),
        (("isolate", "-t", "acme", *WHY), "--tenant with --provider"),
        (("isolate", "-p", "stripe", "-a", "default", *WHY), "--tenant with --provider"),
        (("isolate", "-p", "Stripe!", *WHY), "is no name for a provider"),
        (("isolate", "--all", "--reason", " "), "give the reason"),
        (("disable", "--all"), "--reason"),
        (("degrade", *WHY), "give --all"),
        (("restore",), "give --all"),
        (("enable", "--all", "--gradual", "--step", "soon"), "is no length of time"),
        (("promote", "nothing", *ACME), "16 hex digits"),
        (("clear",), "--dry-run to see"),
    ],
)
async def test_ambiguous_command_changes_nothing(bare: Shell, arguments: tuple[str, ...], words: str) -> None:
    done = await bare("gate", *arguments)
    assert (done.code, done.out) == (2, "")
    assert words in done.err


async def test_unknown_connection_or_provider_is_named_in_the_error(with_redis: Shell) -> None:
    nobody = await with_redis("gate", "isolate", "-t", "nobody", "-p", "stripe", *WHY)
    assert (nobody.code, "connections add" in nobody.err) == (1, True)
    unknown = await with_redis("gate", "disable", "-p", "nosuch", *WHY)
    assert (unknown.code, "providers list" in unknown.err) == (1, True)
    assert (await with_redis("gate", "overrides", "--json")).rows == []
    assert (await done(with_redis, "breaker", "reset", "-t", "gone", "-p", "stripe"))["breakers"] == []


async def test_without_redis_switches_hold_and_the_rest_tells_the_way_out(shell: Shell) -> None:
    assert (await done(shell, "isolate", "--all", *WHY))["result"] == "isolated"
    assert (await done(shell, "breaker", "reset", "--all"))["isolation"] == "lifted"
    for arguments in (("clear", "--yes"), ("clear", "--dry-run"), ("breaker", "reset", "--all")):
        outcome = await shell("gate", *arguments)
        assert (outcome.code, "REDIS_URL" in outcome.err) == (69, True)
    assert (
        "each process has breakers of its own" in (await shell("status", "--json")).record["breakers_unseen"]
    )
    assert "breakers are not shown" in (await shell("status")).err
