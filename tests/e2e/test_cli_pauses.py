"""`fairlead jobs pause`, `resume`, `pauses`, `explain`, and `retry` and `cancel` by filter."""

from __future__ import annotations

from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.jobs import PostgresJobStore
from fairlead.adapters.postgres.lanes import PostgresLaneStore
from fairlead.adapters.postgres.schedule_runs import PostgresScheduleStore
from fairlead.engine.jobs.schedules import PAUSED_BY
from fairlead.engine.ports import ClaimFilter, Completed, FailureRecord, Job, NewJob, Rescheduled, Schedule
from tests.support.cli import Shell
from tests.support.engine import IDS, new_job
from tests.support.rows import rows
from tests.support.seeds import a_session

ANY = ClaimFilter()


async def stored(database: Database, *jobs: NewJob) -> list[str]:
    """The ids of jobs that wait."""
    enqueued = await PostgresJobStore(database, IDS).enqueue(list(jobs))
    return [str(job.job_id) for job in enqueued]


async def claim_jobs(database: Database, demand: int = 100) -> list[Job]:
    """What may begin now."""
    return await PostgresJobStore(database, IDS).claim(ANY, demand, await a_session(database))


async def failed_once(database: Database, job: NewJob) -> str:
    """The id of a job that failed and waits for its next attempt."""
    (job_id,) = await stored(database, job)
    (claimed,) = await claim_jobs(database)
    failure = FailureRecord(
        "transient_server", "http_503", "it failed", ran_s=0.5, attempt=1, next_retry_s=60
    )
    outcome = Rescheduled(claimed.job_id, claimed.lease_id, 60.0, failure, {"transient_server": 1})
    assert await PostgresJobStore(database, IDS).acknowledge([outcome])
    return job_id


async def test_a_pause_holds_and_lets_go(shell: Shell, database: Database) -> None:
    group = ("--group", "shopify/default", "--tenant", "acme")
    held_job, free = new_job(tenant_id="acme", group_key="shopify/default"), new_job(tenant_id="b")
    await stored(database, held_job, free)
    dry = await shell("jobs", "pause", *group, "--for", "1h30m", "--dry-run", "--json")
    assert (dry.record["result"], dry.record["lanes"], dry.record["for_s"]) == ("would be paused", 1, 5400.0)
    assert (await shell("jobs", "pauses", "--json")).rows == []
    paused = await shell("jobs", "pause", *group, "--for", "1h", "--reason", "vendor\x1b[31m down", "--json")
    assert (paused.code, paused.record["result"], paused.record["lanes"]) == (0, "paused", 1)
    assert [job.job_id for job in await claim_jobs(database)] == [free.job_id]
    listed = (await shell("jobs", "pauses", "--json")).record
    assert (listed["scope"], listed["key"], listed["tenant"]) == ("group", "shopify/default", "acme")
    assert (listed["lanes"], listed["reason"], listed["until"] is not None) == (
        1,
        "vendor\x1b[31m down",
        True,
    )
    assert "vendor\\x1b[31m down" in (await shell("jobs", "pauses")).out
    assert (await shell("jobs", "resume", "--tenant", "acme", "--json")).record["result"] == "not paused"
    dry = await shell("jobs", "resume", *group, "--dry-run", "--json")
    assert dry.record["result"] == "would be resumed"
    assert (await shell("jobs", "resume", *group, "--json")).record["result"] == "resumed"
    assert [job.job_id for job in await claim_jobs(database)] == [held_job.job_id]
    audit = await rows(database, "SELECT act, tenant_id, details::text FROM audit ORDER BY audit_id")
    assert [(row["act"], row["tenant_id"]) for row in audit] == [
        ("jobs.paused", "acme"),
        ("jobs.resumed", "acme"),
    ]
    assert '"for_s": 3600.0' in audit[0]["details"]


async def test_pause_takes_exactly_one_subject_and_a_readable_time(shell: Shell) -> None:
    for arguments in (
        (),
        ("--queue", "mail", "--kind", "x"),
        ("--queue", "mail", "--tenant", "acme"),
        ("--queue", "No Queue"),
        ("--tenant", "acme", "--for", "soon"),
        ("--tenant", "acme", "--for", "0s"),
        ("--tenant", "acme", "--for", "500d"),
        ("--group", "x" * 500),
        ("--provider", "shopfy"),
    ):
        done = await shell("jobs", "pause", *arguments, "--json")
        assert (done.code, done.error["code"], done.out) == (2, "invalid_input", ""), arguments
    assert (await shell("jobs", "pauses", "--json")).rows == []


async def test_explain_tells_why_and_what_happened(shell: Shell, database: Database) -> None:
    job_id = await failed_once(database, new_job("mail", tenant_id="acme"))
    explanation = (await shell("jobs", "explain", job_id, "--json")).record
    assert (explanation["why"], explanation["until"], explanation["state"]) == (
        "not_due",
        explanation["run_at"],
        "retryable",
    )
    assert [(line["attempt"], line["code"]) for line in explanation["attempts"]] == [(1, "http_503")]
    people = (await shell("jobs", "explain", job_id)).out
    assert "attempt 1 failed (http_503)" in people
    assert people.splitlines()[-1].split()[3:6] == ["transient_server", "http_503", "0.5s"]
    (waiting,) = await stored(database, new_job("sync", tenant_id="acme"))
    await PostgresLaneStore(database).report_kinds(["default"], ["sync"])
    explanation = (await shell("jobs", "explain", waiting, "--json")).record
    assert (
        explanation["why"],
        explanation["ahead_in_lane"],
        explanation["lanes_ahead"],
        explanation["workers"],
    ) == ("queued", 0, 0, 1)
    await shell("jobs", "pause", "--kind", "sync", "--yes")
    explanation = (await shell("jobs", "explain", waiting, "--json")).record
    assert (explanation["why"], "fairlead jobs resume --kind sync" in explanation["detail"]) == (
        "paused",
        True,
    )
    await shell("jobs", "resume", "--kind", "sync")
    (job,) = await claim_jobs(database)
    assert (await shell("jobs", "explain", waiting, "--json")).record["running_on"] == "h:1"
    await PostgresJobStore(database, IDS).acknowledge([Completed(job.job_id, job.lease_id)])
    assert (await shell("jobs", "explain", waiting, "--json")).record["why"] == "finished"
    nobody = await shell("jobs", "explain", str(IDS.uuid7()), "--json")
    assert (nobody.code, nobody.error["code"]) == (1, "not_found")


async def test_kind_that_no_process_knows_is_named_by_explain_status_and_doctor(
    shell: Shell, database: Database
) -> None:
    await a_session(database)
    (waiting,) = await stored(database, new_job("sync", tenant_id="acme"))
    explained = (await shell("jobs", "explain", waiting, "--json")).record
    assert explained["why"] == "no_handler"
    assert "kind 'sync' from queue 'default'" in explained["detail"]
    schedule_store = PostgresScheduleStore(database)
    await schedule_store.sync_schedules([Schedule("gone", "@every 1d", "sync", "acme")])
    await schedule_store.pause(
        "gone", PAUSED_BY, "no_handler: no worker takes kind 'sync' from queue 'default'"
    )
    status = await shell("status", "--json")
    assert (status.code, status.record["unhandled"]) == (
        4,
        [{"queue": "default", "kind": "sync", "jobs": 1}],
    )
    jobs, schedule = [problem for problem in status.record["problems"] if "no_handler" in problem]
    assert "1 due jobs of kind sync in queue default" in jobs
    assert schedule.startswith("schedule gone is paused: no_handler")
    checks = {row["check"]: row for row in (await shell("doctor", "--json")).rows}
    assert checks["handlers"]["status"] == "warn"
    assert "1 of sync in queue default" in checks["handlers"]["detail"]


async def test_explain_reports_that_no_worker_runs(shell: Shell, database: Database) -> None:
    (job_id,) = await stored(database, new_job())
    explanation = (await shell("jobs", "explain", job_id, "--json")).record
    assert (explanation["why"], explanation["workers"], "fairlead run" in explanation["detail"]) == (
        "no_worker",
        0,
        True,
    )


async def test_many_jobs_are_hurried_and_cancelled_by_filter(shell: Shell, database: Database) -> None:
    retryable = await failed_once(database, new_job("mail", tenant_id="a"))
    scheduled = await stored(database, *(new_job("mail", tenant_id="a", delay_s=600) for _ in range(3)))
    other, running = await stored(database, new_job("sync", tenant_id="a"), new_job("sync", tenant_id="b"))
    for arguments in (("retry",), ("retry", retryable, "--kind", "mail"), ("cancel", "--state", "completed")):
        assert (await shell("jobs", *arguments)).code == 2, arguments
    dry = await shell("jobs", "retry", "--kind", "mail", "--dry-run", "--json")
    assert {row["job_id"] for row in dry.rows} == {retryable, *scheduled}
    some = await shell("jobs", "retry", "--tenant", "a", "--state", "scheduled", "--limit", "2", "--json")
    assert [row["result"] for row in some.rows] == ["due now"] * 2
    rest = await shell("jobs", "retry", "--tenant", "a", "--json")
    assert len(rest.rows) == 2
    assert (await shell("jobs", "retry", "--tenant", "a")).err == "no such jobs\n"
    assert len(await claim_jobs(database, 100)) == 6
    cancelled = await shell("jobs", "cancel", "--kind", "sync", "--state", "running", "--json")
    assert {row["job_id"] for row in cancelled.rows} == {other, running}
    (waiting,) = await stored(database, new_job("sync", tenant_id="a"))
    cancelled = await shell("jobs", "cancel", "--kind", "sync", "--reason", "left", "--json")
    assert [(row["job_id"], row["result"]) for row in cancelled.rows] == [(waiting, "cancelled")]
    (acts,) = await rows(database, "SELECT count(*) FROM audit WHERE act IN ('job.retried', 'job.cancelled')")
    assert acts["count"] == 7
