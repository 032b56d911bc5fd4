"""`fairlead jobs`, `dlq`, `status` and `providers resume` on rows that a test has made."""

from __future__ import annotations

from uuid import UUID

from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.dead_letters import PostgresDeadLetterStore
from fairlead.adapters.postgres.endpoints import PostgresEndpointGate
from fairlead.adapters.postgres.jobs import PostgresJobStore
from fairlead.engine.ports import (
    ClaimFilter,
    Discarded,
    EndpointKey,
    EndpointLimits,
    EndpointPermit,
    FailureRecord,
    NewJob,
    PermitRequest,
)
from fairlead.policy.calls.blast_radius import TOKEN
from tests.support.cli import Shell
from tests.support.engine import IDS, new_job
from tests.support.rows import rows, run
from tests.support.seeds import a_session

ANY = ClaimFilter()


async def stored(database: Database, *jobs: NewJob) -> list[str]:
    """The ids of jobs that wait."""
    enqueued = await PostgresJobStore(database, IDS).enqueue(list(jobs))
    return [str(job.job_id) for job in enqueued]


async def dead(database: Database, *jobs: NewJob, category: str, code: str) -> list[str]:
    """The ids of dead letters; nothing else may wait."""
    store = PostgresJobStore(database, IDS)
    await store.enqueue(list(jobs))
    claimed = await store.claim(ANY, len(jobs), await a_session(database))
    failure = FailureRecord(category, code, "it\nfailed \x1b[31mred", ran_s=0.1, attempt=1)
    outcomes = [Discarded(job.job_id, job.lease_id, IDS.uuid7(), failure) for job in claimed]
    assert len(await store.acknowledge(outcomes)) == len(jobs)
    return [str(outcome.dead_letter_id) for outcome in outcomes]


async def test_jobs_are_listed_hurried_and_cancelled(shell: Shell, database: Database) -> None:
    first, second, third = await stored(
        database,
        new_job("mail", tenant_id="a", delay_s=3600.0),
        new_job("mail", tenant_id="b\x1b]0;owned\x07", delay_s=3600.0),
        new_job("other", tenant_id="a", args={"n": 1}, group_key="shop", tags=("blue",)),
    )
    listed = await shell("jobs", "list", "--state", "scheduled", "--json")
    assert {row["job_id"] for row in listed.rows} == {first, second}
    people = await shell("jobs", "list")
    assert "b\\x1b]0;owned\\x07" in people.out
    shown = await shell("jobs", "show", third, "--json")
    assert (shown.record["group"], shown.record["tags"]) == ("shop", ["blue"])
    assert (shown.record["kind"], shown.record["args"], shown.record["state"]) == (
        "other",
        {"n": 1},
        "available",
    )
    dry = await shell("jobs", "retry", first, "--dry-run", "--json")
    assert dry.record == {"job_id": first, "result": "would be retried"}
    nobody = str(IDS.uuid7())
    partly = await shell("jobs", "retry", first, nobody, "--json")
    assert (partly.code, [row["result"] for row in partly.rows]) == (3, ["due now", "failed"])
    assert (await shell("jobs", "show", first, "--json")).record["state"] == "available"
    cancelled = await shell("jobs", "cancel", second, "--reason", "no longer wanted", "--json")
    assert (cancelled.code, cancelled.record["result"]) == (0, "cancelled")
    again = await shell("jobs", "cancel", second, "--json")
    assert (again.code, again.record["code"]) == (1, "invalid_input")
    audit = await rows(database, "SELECT act, actor, details FROM audit ORDER BY audit_id")
    assert [row["act"] for row in audit] == ["job.retried", "job.cancelled"]
    assert all(row["actor"].startswith("cli:") for row in audit)


async def test_dead_letters_are_read_and_closed(shell: Shell, database: Database) -> None:
    first, two, three = await dead(
        database,
        *(new_job("mail", tenant_id=tenant) for tenant in ("a", "a", "b")),
        category="permanent_request",
        code="bad_address",
    )
    (four,) = await dead(
        database, new_job("sync", tenant_id="b"), category="transient_server", code="http_503"
    )
    listed = await shell("dlq", "list", "--category", "permanent_request", "--json")
    assert {row["dead_letter_id"] for row in listed.rows} == {first, two, three}
    people = await shell("dlq", "list", "--tenant", "b")
    assert (len(people.out.splitlines()), "it\\nfailed" in people.out) == (3, True)
    stats = await shell("dlq", "stats", "--by", "tenant", "--json")
    assert [(row["tenant"], row["entries"]) for row in stats.rows] == [("a", 2), ("b", 2)]
    shown = await shell("dlq", "show", four, "--json")
    assert (shown.record["code"], shown.record["status"], shown.record["history"][0]["attempt"]) == (
        "http_503",
        "pending_review",
        1,
    )
    dry = await shell("dlq", "redrive", "--tenant", "a", "--dry-run", "--json")
    assert {row["result"] for row in dry.rows} == {"would redrive"}
    driven = await shell("dlq", "redrive", "--tenant", "a", "--spread", "60", "--json")
    assert {row["result"] for row in driven.rows} == {"redriven"}
    replays = await PostgresJobStore(database, IDS).search(
        state=None, kind="mail", tenant_id="a", queue=None, limit=9
    )
    assert sum(job.label in ("available", "scheduled") for job in replays) == 2
    assert (await rows(database, "SELECT replays FROM dead_letter WHERE tenant_id = 'a'"))[0]["replays"] == 1
    twice = await shell("dlq", "redrive", first, "--json")
    assert twice.record["result"] == "under way already"
    no_reason = await shell("dlq", "resolve", three)
    assert (no_reason.code, "--reason" in no_reason.err) == (2, True)
    closed = await shell("dlq", "resolve", three, "--reason", "address mended", "--json")
    assert (closed.code, closed.record["result"]) == (0, "manual_resolved")
    given_up = await shell("dlq", "abandon", "--kind", "sync", "--reason", "customer left", "--json")
    assert (given_up.code, given_up.record["dead_letter_id"]) == (0, four)
    entry = await PostgresDeadLetterStore(database).get(UUID(four))
    assert entry is not None
    assert (entry.status, entry.resolution_reason) == ("abandoned", "customer left")
    assert (entry.resolved_by or "").startswith("cli:")
    late = await shell("dlq", "abandon", four, three, "--reason", "again", "--json")
    assert (late.code, {row["result"] for row in late.rows}) == (1, {"failed"})


async def test_status_tells_what_is_unhealthy(shell: Shell, database: Database) -> None:
    await stored(database, new_job("mail"))
    gate = PostgresEndpointGate(database)
    for number in (1, 2):
        limits = EndpointLimits(None, 1.0)
        ask = PermitRequest(EndpointKey("hubspot", "app"), limits, UUID(int=number), 1, "x")
        refused = TOKEN["rejected.permanent_config.client"]
        paused = await gate.record(ask, EndpointPermit(), refused, "invalid_client")
    assert paused is not None
    await gate.close()
    sick = await shell("status", "--json")
    assert (sick.code, sick.record["healthy"], len(sick.record["problems"])) == (4, False, 3)
    assert sick.record["jobs"]["available"] == 1
    assert sick.record["connections"] == {"active": 0, "unknown": 0, "needs_reauth": 0, "revoked": 0}
    assert [(tenant["tenant"], tenant["waiting"]) for tenant in sick.record["tenants"]] == [("acme", 1)]
    await shell("jobs", "pause", "--tenant", "acme")
    paused = await shell("status", "--json")
    assert [(pause["scope"], pause["key"], pause["lanes"]) for pause in paused.record["pauses"]] == [
        ("tenant", "acme", 1)
    ]
    shown = await shell("providers", "show", "hubspot", "--json")
    assert shown.record["endpoints_state"][0]["state"] == "paused"
    # as an endpoint has it whose host people choose: its app finds it all the same
    await run(database, "UPDATE endpoint_gate SET client_id = client_id || ' vendor.example/token'")
    other = await shell("providers", "resume", "hubspot", "--client-id", "ap", "--json")
    assert (other.code, other.error["code"]) == (1, "not_found")
    dry = await shell("providers", "resume", "hubspot", "--client-id", "app", "--dry-run", "--json")
    assert dry.record["result"] == "would be resumed"
    resumed = await shell("providers", "resume", "hubspot", "--json")
    assert (resumed.code, resumed.record["result"]) == (0, "resumed")
    await a_session(database)
    well = await shell("status", "--json")
    assert (well.code, well.record["healthy"], well.record["problems"]) == (0, True, [])
    nothing = await shell("providers", "resume", "hubspot", "--json")
    assert (nothing.code, nothing.error["code"]) == (1, "not_found")
