"""Lanes and what people set about them, several at once: nothing is missed, nobody waits in a circle."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.driver import DatabaseConnection
from fairlead.adapters.postgres.job_rows import new_job_columns
from fairlead.adapters.postgres.jobs import PostgresJobStore
from fairlead.adapters.postgres.lanes import PostgresLaneStore
from fairlead.adapters.postgres.statements import statement
from fairlead.engine.ports import ClaimFilter, GroupCap, Job, NewJob, TenantShare, Tier
from fairlead.errors import InvalidInputError
from fairlead.policy.jobs.lane import Scope, ScopeKind, is_internal_kind
from tests.support.engine import IDS, new_job
from tests.support.passing_time import pass_time
from tests.support.raw_connections import raw_connection
from tests.support.rows import rows, run
from tests.support.seeds import a_session

ANY = ClaimFilter()
ACME = Scope(ScopeKind.TENANT, "acme")
REASON_AND_ACTOR = {"reason": "429", "by": "test"}
BLOCKED = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '/* ' || $1 || ' */%'"


@pytest.fixture
def lanes(database: Database) -> PostgresLaneStore:
    return PostgresLaneStore(database)


@pytest.fixture
def jobs(database: Database) -> PostgresJobStore:
    return PostgresJobStore(database, IDS)


@pytest.fixture
async def session_id(database: Database) -> UUID:
    return await a_session(database)


class Careless(PostgresLaneStore):
    """Does not wait for lanes that are being made."""

    async def _settled_lanes(self, about: dict[str, str]) -> list[UUID]:
        return await self._lanes(about)

    async def _apply_to(self, tenant_ids: list[str], group_key: str | None) -> None:
        await self._locked(None, "lane_apply", tenant_ids=tenant_ids, group_key=group_key)


async def claim_jobs(jobs: PostgresJobStore, session_id: UUID) -> list[Job]:
    """All that may begin now."""
    jobs_claimed: list[Job] = []
    while batch := await jobs.claim(ANY, 100, session_id):
        jobs_claimed += batch
    return jobs_claimed


async def enqueue_by(connection: DatabaseConnection, *new: NewJob) -> None:
    """Store jobs in the transaction of *connection*."""
    enqueue = statement("job_enqueue")
    await connection.fetch(enqueue.text, *enqueue.args(notify=False, **new_job_columns(new)))


@asynccontextmanager
async def uncommitted(database: Database) -> AsyncIterator[DatabaseConnection]:
    """A transaction that is committed at the end of the block."""
    async with raw_connection(database) as connection:
        await connection.execute("BEGIN")
        yield connection
        await connection.execute("COMMIT")


async def blocked(database: Database, name: str) -> None:
    """Return once the statement *name* waits for a lock."""
    while not await rows(database, BLOCKED, name):
        await asyncio.sleep(0.01)


async def while_it_waits(
    database: Database,
    name: str,
    act: Coroutine[Any, Any, Any],
    hold: Callable[[DatabaseConnection], Awaitable[Any]],
) -> Any:
    """What *act* gives, begun after *hold* and ended after its commit; it waits at statement *name*."""
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        async with uncommitted(database) as connection:
            await hold(connection)
            task = group.create_task(act)
            await blocked(database, name)
        return await task


# ---- lanes that are being made ---------------------------------------------------------------------


async def test_a_pause_holds_lanes_that_were_being_made(
    database: Database, lanes: PostgresLaneStore, jobs: PostgresJobStore, session_id: UUID
) -> None:
    async def hold(connection: DatabaseConnection) -> None:
        await enqueue_by(connection, new_job(tenant_id="acme"))

    assert (
        await while_it_waits(database, "lane_barrier", lanes.pause(ACME, None, **REASON_AND_ACTOR), hold) == 1
    )
    assert await claim_jobs(jobs, session_id) == []


async def test_a_careless_pause_does_not(
    database: Database, jobs: PostgresJobStore, session_id: UUID
) -> None:
    async with uncommitted(database) as connection:
        await enqueue_by(connection, new_job(tenant_id="acme"))
        await Careless(database).pause(ACME, None, **REASON_AND_ACTOR)
    assert len(await claim_jobs(jobs, session_id)) == 1


async def test_a_resume_finds_lanes_that_were_being_made(
    database: Database, lanes: PostgresLaneStore, jobs: PostgresJobStore, session_id: UUID
) -> None:
    await lanes.pause(ACME, None, **REASON_AND_ACTOR)

    async def hold(connection: DatabaseConnection) -> None:
        await enqueue_by(connection, new_job(tenant_id="acme"))

    assert await while_it_waits(database, "pause_end", lanes.resume(ACME), hold)
    assert len(await claim_jobs(jobs, session_id)) == 1


async def test_a_resume_of_what_is_not_paused_waits_for_nobody(
    database: Database, lanes: PostgresLaneStore, jobs: PostgresJobStore
) -> None:
    """And nobody for it: the lanes of a whole queue are many, and claims pass over those that are locked."""
    await jobs.enqueue([new_job(tenant_id="acme")])
    async with uncommitted(database) as connection:
        await connection.execute("SELECT FROM lane FOR UPDATE")
        assert not await lanes.resume(ACME)


async def test_a_cap_and_a_weight_hold_for_lanes_that_were_being_made(
    database: Database, lanes: PostgresLaneStore, jobs: PostgresJobStore, session_id: UUID
) -> None:
    async def hold(connection: DatabaseConnection) -> None:
        await enqueue_by(connection, *(new_job(tenant_id="acme") for _ in range(5)))

    share = TenantShare("acme", weight=4.0, max_running=2)
    await while_it_waits(database, "lane_barrier", lanes.set_tenant(share), hold)
    assert len(await claim_jobs(jobs, session_id)) == 2
    (lane,) = await rows(database, "SELECT stride, capped FROM lane")
    assert lane == {"stride": 250, "capped": True}


async def test_a_careless_cap_does_not_hold(
    database: Database, jobs: PostgresJobStore, session_id: UUID
) -> None:
    async with uncommitted(database) as connection:
        await enqueue_by(connection, *(new_job(tenant_id="acme") for _ in range(5)))
        await Careless(database).set_tenant(TenantShare("acme", max_running=2))
    assert len(await claim_jobs(jobs, session_id)) == 5


# ---- lanes that somebody holds ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "changed",
    [
        "SELECT FROM lane FOR UPDATE",
        "UPDATE lane SET vtime = vtime + 1000, served_at = now()",
        "SELECT lane_wake_up(100)",
    ],
    ids=["locked", "served", "woken"],
)
async def test_a_pause_waits_for_who_holds_a_lane_and_has_the_last_word(
    database: Database, lanes: PostgresLaneStore, jobs: PostgresJobStore, session_id: UUID, changed: str
) -> None:
    await jobs.enqueue([new_job(tenant_id="acme", delay_s=5.0)])
    await pass_time(database, 6.0)
    if "lane_wake_up" not in changed:
        await run(database, "SELECT lane_wake_up(100)")

    async def hold(connection: DatabaseConnection) -> None:
        await connection.execute(changed)

    assert (
        await while_it_waits(database, "lane_pause", lanes.pause(ACME, None, **REASON_AND_ACTOR), hold) == 1
    )
    assert await claim_jobs(jobs, session_id) == []
    (lane,) = await rows(database, "SELECT state, park_reason FROM lane")
    assert lane == {"state": "parked", "park_reason": "pause"}


async def test_a_hold_waits_for_who_holds_a_lane_and_has_the_last_word(
    database: Database, lanes: PostgresLaneStore, jobs: PostgresJobStore, session_id: UUID
) -> None:
    """The row that it waited for has moved."""
    await jobs.enqueue([new_job(tenant_id="acme", group_key="g")])

    async def hold(connection: DatabaseConnection) -> None:
        await connection.execute("UPDATE lane SET vtime = vtime + 1000, served_at = now()")

    await while_it_waits(database, "lane_hold", lanes.hold("acme", "g", 60.0, reason="its rate"), hold)
    assert await claim_jobs(jobs, session_id) == []
    (lane,) = await rows(database, "SELECT state, park_reason FROM lane")
    assert lane == {"state": "parked", "park_reason": "pause"}


async def test_a_cap_waits_for_the_claim_that_it_would_have_stopped(
    database: Database, lanes: PostgresLaneStore, jobs: PostgresJobStore, session_id: UUID
) -> None:
    """The claim had read that there is no cap; what it takes counts under the new one."""
    await jobs.enqueue([new_job(tenant_id="acme") for _ in range(5)])
    claim = statement("job_claim")
    values: dict[str, object] = {
        "queues": ["default"],
        "kinds": [],
        "providers": [],
        "demand": 2,
        "wake": False,
    }
    args = claim.args(session_id=session_id, lease_seed=7, **values)

    async def hold(connection: DatabaseConnection) -> None:
        assert len(await connection.fetch(claim.text, *args)) == 2

    act = lanes.set_tenant(TenantShare("acme", max_running=3))
    await while_it_waits(database, "lane_apply", act, hold)
    assert len(await claim_jobs(jobs, session_id)) == 1


@pytest.mark.slow
async def test_many_who_pause_resume_and_set_are_no_circle(
    database: Database, lanes: PostgresLaneStore, jobs: PostgresJobStore, session_id: UUID
) -> None:
    names = "abcdef"
    await jobs.enqueue(
        [new_job(tenant_id=name, group_key=group) for name in names for group in "xyz" for _ in "12"]
    )
    await lanes.set_tier(Tier("free", max_running=50))
    scopes = [
        Scope(ScopeKind.QUEUE, "default"),
        *(Scope(ScopeKind.TENANT, name) for name in names),
        *(Scope(ScopeKind.GROUP, group) for group in "xyz"),
    ]

    async def bother(turn: int) -> None:
        scope, name = scopes[turn % len(scopes)], names[turn % len(names)]
        await lanes.pause(scope, None, **REASON_AND_ACTOR)
        await lanes.set_tenant(TenantShare(name, tier="free" if turn % 2 else None, weight=1.0 + turn))
        await lanes.set_group_cap(GroupCap("x", None if turn % 2 else name, 40 + turn))
        await lanes.set_tier(Tier("free", weight=1.0 + turn, max_running=50 + turn))
        await jobs.enqueue([new_job(tenant_id=name, group_key="w", kind=f"kind{turn}")])
        await lanes.resume(scope)

    async with asyncio.timeout(60):
        await asyncio.gather(*(bother(turn) for turn in range(24)))
    for scope in scopes:
        await lanes.resume(scope)
    assert len(await claim_jobs(jobs, session_id)) == 36 + 24
    wrong = await rows(
        database,
        "SELECT FROM lane WHERE stride <> tenant_stride(tenant_id)"
        " OR capped <> is_capped(kind, tenant_id, group_key)",
    )
    assert wrong == []


# ---- what is told ----------------------------------------------------------------------------------


async def test_listener_is_notified_of_a_resume_and_of_a_raised_cap(
    lanes: PostgresLaneStore, jobs: PostgresJobStore, session_id: UUID
) -> None:
    payloads: asyncio.Queue[str] = asyncio.Queue()
    unlisten = await jobs.listen(payloads.put_nowait)
    await lanes.pause(ACME, None, **REASON_AND_ACTOR)
    await jobs.enqueue([new_job(tenant_id="acme", queue="mail")])
    await jobs.close()
    while not payloads.empty():
        payloads.get_nowait()
    async with asyncio.timeout(10):
        await lanes.resume(ACME)
        assert await payloads.get() in {"mail", ""}
        await lanes.set_tenant(TenantShare("acme", max_running=5))
        while await payloads.get():
            continue
    await unlisten()


async def test_behind_a_transaction_pooler(
    database: Database, database_settings: DatabaseSettings, session_id: UUID
) -> None:
    pooled = await Database.open(replace(database_settings, transaction_pooler=True, max_size=1))
    lanes, jobs = PostgresLaneStore(pooled, notify=False), PostgresJobStore(pooled, IDS, notify=False)
    await jobs.enqueue([new_job(tenant_id="acme") for _ in range(5)])
    assert await lanes.pause(ACME, 60.0, **REASON_AND_ACTOR) == 1
    assert await lanes.resume(ACME)
    await lanes.set_tenant(TenantShare("acme", max_running=2))
    assert await lanes.sweep(0.0) is not None
    assert len(await claim_jobs(jobs, session_id)) == 2
    await pooled.close()


async def test_a_tier_that_is_not_there(lanes: PostgresLaneStore) -> None:
    with pytest.raises(InvalidInputError, match="there is no tier 'gold'") as caught:
        await lanes.set_tenant(TenantShare("acme", tier="gold"))
    assert caught.value.tenant == "acme"
    assert await lanes.tenant("acme") is None


async def test_explain_counts_who_is_before(lanes: PostgresLaneStore, jobs: PostgresJobStore) -> None:
    await jobs.enqueue([new_job(tenant_id=f"t{n}") for n in range(5)])
    mine = [stored.job_id for stored in await jobs.enqueue([new_job(tenant_id="t0") for _ in range(3)])]
    groups = [new_job(tenant_id="me", group_key=f"g{n}") for n in range(4)]  # they stand in one line
    await jobs.enqueue(groups)
    await jobs.enqueue([new_job(tenant_id=f"u{n}", priority=0) for n in range(3)])
    explanation = await lanes.explain(mine[-1])
    assert explanation is not None
    assert (explanation.why, explanation.ahead_in_lane, explanation.lanes_ahead) == ("no_worker", 3, 0)
    explained = [await lanes.explain(job.job_id) for job in groups]
    ahead = sorted(
        explanation.lanes_ahead
        for explanation in explained
        if explanation is not None and explanation.lanes_ahead is not None
    )
    assert ahead[0] == 0
    assert ahead[1:] == [6, 7, 8]


async def test_sql_and_python_know_our_kinds_alike(database: Database) -> None:
    kinds = [
        "token.refresh",
        "event.x.y",
        "dead_letter.process",
        "token",
        "token.",
        "tokens.x",
        ".token",
        "a.event",
        "clean_up",
        "clean_up.x",
    ]
    rows_found = await rows(
        database, "SELECT kind, is_internal_kind(kind) AS own FROM unnest($1::text[]) AS k (kind)", kinds
    )
    assert [row["own"] for row in rows_found] == [is_internal_kind(kind) for kind in kinds]
