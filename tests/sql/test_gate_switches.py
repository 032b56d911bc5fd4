"""Switches of the gate as rows: what is kept, what ends, and what no row may say."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.gate_overrides import PostgresOverrideStore
from fairlead.policy.limits.override import EVERYTHING, OverrideKind, OverrideScope
from tests.support.rows import run

CONNECTION = OverrideScope("acme: a\\b'\"", "stripe", "default")
PROVIDER = OverrideScope(provider="stripe")


@pytest.fixture
def store(database: Database) -> PostgresOverrideStore:
    return PostgresOverrideStore(database)


async def put(
    store: PostgresOverrideStore,
    act: OverrideKind,
    reach: OverrideScope,
    reason: str = "why",
    actor: str = "ann",
) -> None:
    await store.put(act, reach, reason=reason, actor=actor)


async def in_force(store: PostgresOverrideStore) -> list[tuple[OverrideKind, OverrideScope]]:
    return [(switch.kind, switch.scope) for switch in await store.search()]


async def test_switches_are_read_as_stored(store: PostgresOverrideStore) -> None:
    await put(store, OverrideKind.ISOLATED, CONNECTION, "vendor\u2019s wish", "cli:bob")
    await put(store, OverrideKind.DISABLED, PROVIDER)
    await put(store, OverrideKind.DEGRADED, EVERYTHING)
    overrides = await store.search()
    assert [(override.kind, override.scope) for override in overrides] == [
        (OverrideKind.DEGRADED, EVERYTHING),
        (OverrideKind.DISABLED, PROVIDER),
        (OverrideKind.ISOLATED, CONNECTION),
    ]
    assert (overrides[2].reason, overrides[2].actor, overrides[2].rollout) == (
        "vendor\u2019s wish",
        "cli:bob",
        None,
    )


async def test_a_switch_ends_as_it_was_named_and_once(store: PostgresOverrideStore) -> None:
    await put(store, OverrideKind.ISOLATED, CONNECTION)
    for act, reach in (
        (OverrideKind.ISOLATED, PROVIDER),
        (OverrideKind.ISOLATED, EVERYTHING),
        (OverrideKind.DISABLED, CONNECTION),
    ):
        assert not await store.end(act, reach)
    assert await in_force(store) == [(OverrideKind.ISOLATED, CONNECTION)]
    assert await store.end(OverrideKind.ISOLATED, CONNECTION)
    assert not await store.end(OverrideKind.ISOLATED, CONNECTION)
    assert await in_force(store) == []


async def test_switched_again_the_newer_reason_counts_since_the_first(store: PostgresOverrideStore) -> None:
    await put(store, OverrideKind.ISOLATED, CONNECTION, "one", "ann")
    (first,) = await store.search()
    await asyncio.gather(*(put(store, OverrideKind.ISOLATED, CONNECTION, "two", "bob") for _ in range(5)))
    (second,) = await store.search()
    assert (second.reason, second.actor, second.since) == ("two", "bob", first.since)


async def test_fading_switch_follows_the_clock_of_the_database_and_ends(
    store: PostgresOverrideStore, database: Database
) -> None:
    await put(store, OverrideKind.DISABLED, EVERYTHING)
    assert not await store.start_rollout(PROVIDER, 60)
    assert await store.start_rollout(EVERYTHING, 60)
    assert not await store.start_rollout(EVERYTHING, 1), "it goes on at its pace"
    await run(database, "UPDATE gate_override SET rollout_since = now() - interval '179 s'")
    (rollout,) = await store.search()
    assert rollout.rollout is not None
    assert rollout.rollout.step_s == 60
    assert rollout.rollout.age_s == pytest.approx(179, abs=1)
    await run(database, "UPDATE gate_override SET rollout_since = now() - interval '180 s'")
    assert await in_force(store) == []
    assert not await store.end(OverrideKind.DISABLED, EVERYTHING), "it had ended by itself"


async def test_disabled_again_nothing_comes_back(store: PostgresOverrideStore, database: Database) -> None:
    await put(store, OverrideKind.DISABLED, EVERYTHING)
    (first,) = await store.search()
    await store.start_rollout(EVERYTHING, 60)
    await run(database, "UPDATE gate_override SET rollout_since = now() - interval '1 day'")
    await put(store, OverrideKind.DISABLED, EVERYTHING)
    (again,) = await store.search()
    assert again.rollout is None
    assert again.since > first.since


@pytest.mark.parametrize(
    "values",
    [
        "('stopped', '', '', '', 'r', 'a')",
        "('isolated', 'acme', '', '', 'r', 'a')",
        "('isolated', 'acme', 'stripe', '', 'r', 'a')",
        "('isolated', 'acme', '', 'default', 'r', 'a')",
        "('isolated', '', 'stripe', 'default', 'r', 'a')",
        "('isolated', '', '', '', '', 'a')",
        "('degraded', '', 'stripe', '', 'r', 'a')",
    ],
)
async def test_no_row_says_what_is_none(database: Database, values: str) -> None:
    columns = "kind, tenant_id, provider, account, reason, actor"
    with pytest.raises(asyncpg.CheckViolationError):
        await run(database, f"INSERT INTO gate_override ({columns}) VALUES {values}")


async def test_only_limits_come_back_step_by_step(store: PostgresOverrideStore, database: Database) -> None:
    await put(store, OverrideKind.ISOLATED, EVERYTHING)
    with pytest.raises(asyncpg.CheckViolationError):
        await run(database, "UPDATE gate_override SET rollout_since = now(), step_s = 60")
