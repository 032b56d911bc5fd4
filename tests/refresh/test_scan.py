"""Scans find what is due, once; tokens without a refresh token get a notice and an end (T2, T3, R14)."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest

from fairlead.adapters.local.system import SystemIds
from fairlead.adapters.postgres.jobs import PostgresJobStore
from fairlead.engine.jobs.handler import JobContext
from fairlead.engine.ports import ConnectionKey, Job
from fairlead.engine.tokens.refresh_jobs import TokenJobs
from fairlead.events import NeedsReauth
from fairlead.policy.jobs.job import Cancel, Complete, RequireReauth, Snooze
from fairlead.testing.ledger import judge
from tests.support.refresher import FAST, end_sends
from tests.support.rows import rows, run

STRICT = "strict"


@pytest.fixture
async def jobs(database):
    store = PostgresJobStore(database, SystemIds())
    yield store
    await store.close()


@pytest.fixture
def tokens(fl, jobs) -> TokenJobs:
    return TokenJobs(fl.deps, FAST, fl.coordinator, fl.unknown, jobs)


def context(kind: str, **args: object) -> JobContext:
    job = Job(
        job_id=uuid4(),
        lease_id=1,
        queue="default",
        kind=kind,
        tenant_id="acme",
        provider=STRICT,
        group_key="",
        priority=1,
        attempt=1,
        crash_count=0,
        args=args,
        streaks={},
        replay_of=None,
        created_at=datetime.now(UTC),
        waited_s=0.0,
    )
    return JobContext(job, lambda: 60.0)


async def make_due(database, by: str = "2 hours") -> None:
    moments = ("due_at", "urgent_at", "critical_at", "expires_at")
    earlier = ", ".join(f"{moment} = {moment} - $1::text::interval" for moment in moments)
    await run(database, f"UPDATE credential SET {earlier}", by)


async def open_jobs(database, kind: str = "token.refresh") -> list[dict]:
    return await rows(database, "SELECT * FROM job WHERE kind = $1 AND state = 'available'", kind)


async def test_a_scan_enqueues_each_due_connection_once(fl, tokens, issuer, database) -> None:
    due = [await fl.connect(issuer, STRICT, f"t{number}") for number in range(5)]
    await make_due(database)
    await fl.connect(issuer, STRICT, "fresh")
    assert await tokens.scan(context("token.scan")) == Complete({"due": 5, "enqueued": 5})
    assert await tokens.scan(context("token.scan")) == Complete({"due": 5, "enqueued": 0})
    assert {UUID(job["group_key"]) for job in await open_jobs(database)} == set(due)


async def test_a_later_scan_raises_the_priority_and_adds_nothing(fl, tokens, issuer, database) -> None:
    await fl.connect(issuer, STRICT)
    await run(database, "UPDATE credential SET due_at = now() - interval '1 s'")
    await tokens.scan(context("token.scan"))
    assert [job["priority"] for job in await open_jobs(database)] == [2]
    await make_due(database)
    await tokens.scan(context("token.scan", urgent_only=True))
    assert [job["priority"] for job in await open_jobs(database)] == [0]


async def test_the_urgent_scan_leaves_what_is_only_due(fl, tokens, issuer, database) -> None:
    await fl.connect(issuer, STRICT)
    await run(database, "UPDATE credential SET due_at = now() - interval '1 s'")
    assert await tokens.scan(context("token.scan", urgent_only=True)) == Complete({"due": 0, "enqueued": 0})


async def test_a_job_of_an_old_generation_costs_no_request(fl, tokens, issuer) -> None:
    connection_id = await fl.connect(issuer, STRICT)
    done = await tokens.refresh(context("token.refresh", connection_id=str(connection_id), generation=1))
    assert done == Complete({"generation": 2, "refreshed": True})
    again = await tokens.refresh(context("token.refresh", connection_id=str(connection_id), generation=1))
    assert again == Complete({"generation": 2, "refreshed": False})
    assert judge(issuer.ledger()).provider_posts == 1


async def test_outcomes_of_a_refresh_job(fl, tokens, issuer, database) -> None:
    connection_id = str(await fl.connect(issuer, STRICT))
    missing = await tokens.refresh(context("token.refresh", connection_id=str(uuid4()), generation=1))
    assert isinstance(missing, Cancel)
    issuer.be_rude("cut_after", times=1)
    unknown = await tokens.refresh(context("token.refresh", connection_id=connection_id, generation=1))
    assert isinstance(unknown, Complete)
    assert unknown.result["state"] == "unknown"
    await run(database, "UPDATE credential SET expires_at = now()")
    await end_sends(database)
    outcome = await tokens.refresh(context("token.refresh", connection_id=connection_id, generation=1))
    assert outcome == RequireReauth("lost_rotation")


async def test_a_replay_that_waits_for_the_send_before_it_is_snoozed(fl, tokens, issuer, database) -> None:
    connection_id = str(await fl.connect(issuer, "until-successor-used"))
    issuer.be_rude("cut_after", times=1)
    waits = await tokens.refresh(context("token.refresh", connection_id=connection_id, generation=1))
    assert isinstance(waits, Snooze)
    assert 0 < waits.delay_s <= FAST.request_deadline_s
    await end_sends(database)
    healed = await tokens.refresh(context("token.refresh", connection_id=connection_id, generation=1))
    assert isinstance(healed, Complete)
    assert healed.result["generation"] == 2


async def test_connection_that_another_process_refreshes_is_snoozed(fl, peer, tokens, issuer) -> None:
    connection_id = await fl.connect(issuer, STRICT)
    hold = issuer.hold("processed")
    peer.coordinator.start_background(connection_id, 1)
    await hold.reached()
    busy = await tokens.refresh(context("token.refresh", connection_id=str(connection_id), generation=1))
    assert isinstance(busy, Snooze)
    hold.release()


async def test_an_unknown_outcome_comes_back_when_something_can_be_done(fl, tokens, issuer, database) -> None:
    connection_id = await fl.connect(issuer, STRICT)
    issuer.be_rude("cut_after", times=1)
    await tokens.refresh(context("token.refresh", connection_id=str(connection_id), generation=1))
    due = await rows(database, "SELECT due_at, expires_at FROM credential")
    assert abs((due[0]["due_at"] - due[0]["expires_at"]).total_seconds()) < 5


async def test_a_refresh_left_behind_is_found_by_any_scan(fl, peer, tokens, issuer, database) -> None:
    connection_id = await fl.connect(issuer, "stable")
    hold = issuer.hold("processed")
    peer.coordinator.start_background(connection_id, 1)
    await hold.reached()
    await run(database, "UPDATE worker_session SET lost_at = now() WHERE session_id = $1", peer.session_id)
    assert await tokens.scan(context("token.scan", urgent_only=True)) == Complete({"due": 0, "enqueued": 1})
    healed = await tokens.refresh(context("token.refresh", connection_id=str(connection_id), generation=1))
    assert isinstance(healed, Complete)
    assert healed.result["generation"] == 2
    hold.release()


async def test_a_dead_refresh_is_not_scheduled_until_it_has_cooled_down(fl, tokens, issuer, database) -> None:
    connection_id = await fl.connect(issuer, STRICT)
    await make_due(database)
    await run(
        database,
        "INSERT INTO dead_letter (dead_letter_id, job_id, lineage_id, queue, kind, tenant_id, connection_id,"
        " priority, category, code, reason) VALUES ($1, $1, $1, 'default', 'token.refresh', 'acme', $2, 1,"
        " 'transient_server', 'http_500', 'the provider was down')",
        uuid4(),
        connection_id,
    )
    assert await tokens.scan(context("token.scan")) == Complete({"due": 0, "enqueued": 0})
    await run(database, "UPDATE dead_letter SET last_at = now() - interval '1 hour'")
    assert await tokens.scan(context("token.scan")) == Complete({"due": 1, "enqueued": 1})
    await fl.coordinator.refresh(connection_id, 1)
    closed = await rows(database, "SELECT status, resolution FROM dead_letter")
    assert [tuple(entry.values()) for entry in closed] == [("auto_resolved", "manual_refresh")]


async def test_without_a_refresh_token_there_is_a_notice_and_an_end(fl, tokens, issuer, database) -> None:
    connection_id = await fl.connect(issuer, STRICT, refresh_token=None)
    await run(database, "UPDATE credential SET due_at = now() - interval '1 s'")
    await tokens.scan(context("token.scan"))
    await tokens.scan(context("token.scan"))
    assert await open_jobs(database) == [], "it is never scheduled"
    notices = await open_jobs(database, "event.token_expiring")
    assert len(notices) == 1
    await make_due(database, by="3 hours")
    await tokens.scan(context("token.scan"))
    view = await fl.connections.get(ConnectionKey("acme", STRICT))
    assert (view.state, view.state_reason) == ("needs_reauth", "no_refresh_token")
    assert [event.connection_id for event in fl.told(NeedsReauth)] == [connection_id]
