"""`fairlead schedules` on schedules that a test has declared."""

from __future__ import annotations

from datetime import timedelta

from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.jobs import PostgresJobStore
from fairlead.adapters.postgres.schedule_runs import PostgresScheduleStore
from fairlead.engine.ports import Schedule
from tests.support.cli import Shell
from tests.support.engine import IDS, new_job
from tests.support.rows import rows, run
from tests.support.seeds import a_session

NIGHTLY = Schedule(
    "nightly.report",
    "30 2 * * *",
    "report",
    "acme \u202e",  # it would turn the line around
    timezone="Europe/Berlin",
    jitter_s=600.0,
    args={"deep": True},
)
OFF = Schedule("off", "@every 10m", "work", "acme", missed="catch_up", paused=True)


async def declared(database: Database, *schedules: Schedule) -> PostgresScheduleStore:
    schedule_store = PostgresScheduleStore(database)
    await schedule_store.sync_schedules(schedules)
    return schedule_store


async def test_schedules_are_listed_and_shown(shell: Shell, database: Database) -> None:
    nothing = await shell("schedules", "list")
    assert (nothing.code, nothing.out) == (0, "")
    assert "fairlead run" in nothing.err
    schedule_store = await declared(database, NIGHTLY, OFF)
    listed = await shell("schedules", "list", "--json")
    assert [(row["schedule"], row["state"]) for row in listed.rows] == [
        ("nightly.report", "active"),
        ("off", "paused"),
    ]
    assert (listed.rows[0]["jitter_s"], listed.rows[0]["overdue_s"], listed.rows[1]["next_run_at"]) == (
        600,
        0,
        None,
    )
    people = await shell("schedules", "list")
    assert len(people.out.splitlines()) == 3
    (state, _) = await schedule_store.schedules()
    run_at = state.last_run_at + timedelta(seconds=1)
    job, session_id = new_job("report"), await a_session(database)
    assert await schedule_store.record_run("nightly.report", state.last_run_at, run_at, 4, session_id, job)
    shown = await shell("schedules", "show", "nightly.report", "--count", "3", "--json")
    assert shown.record["args"] == {"deep": True}
    assert len(shown.record["upcoming"]) == 3
    assert shown.record["next_run_at"] == shown.record["upcoming"][0]["run_at"]
    assert shown.record["upcoming"][0]["run_at"] <= shown.record["upcoming"][0]["due_at"]
    (run,) = shown.record["taken"]
    assert (run["coalesced"], run["job_id"]) == (4, str(job.job_id))
    assert "acme \\u202e" in (await shell("schedules", "show", "nightly.report")).out
    unknown = await shell("schedules", "show", "none", "--json")
    assert (unknown.code, unknown.error["code"]) == (1, "not_found")


async def test_a_pause_holds_through_a_declaration_until_it_is_lifted(
    shell: Shell, database: Database
) -> None:
    await declared(database, NIGHTLY, OFF)
    dry = await shell("schedules", "pause", "nightly.report", "--dry-run", "--json")
    assert dry.record == {"schedule": "nightly.report", "result": "would be paused"}
    partly = await shell("schedules", "pause", "nightly.report", "none", "--reason", "vendor down", "--json")
    assert (partly.code, [row["result"] for row in partly.rows]) == (3, ["paused", "failed"])
    again = await shell("schedules", "pause", "nightly.report", "--reason", "again", "--json")
    assert (again.code, again.record["result"]) == (0, "paused already")
    await declared(database, NIGHTLY, OFF)
    shown = (await shell("schedules", "show", "nightly.report", "--json")).record
    assert (shown["state"], shown["pause_reason"], shown["paused_by_program"]) == (
        "paused",
        "vendor down",
        False,
    )
    assert shown["paused_by"].startswith("cli:")
    assert (await shell("schedules", "resume", "nightly.report", "--dry-run", "--json")).record["result"] == (
        "would be resumed"
    )
    resumed = await shell("schedules", "resume", "nightly.report", "off", "--json")
    assert (resumed.code, [row["result"] for row in resumed.rows]) == (
        0,
        ["resumed", "paused by its program"],
    )
    not_paused = await shell("schedules", "resume", "nightly.report", "--make-up", "--json")
    assert (not_paused.code, not_paused.record["result"]) == (0, "not paused")
    empty = await shell("schedules", "pause", "nightly.report", "--reason", " ", "--json")
    assert (empty.code, empty.record["code"]) == (1, "invalid_input")
    audit = await rows(database, "SELECT act, actor, tenant_id, details FROM audit ORDER BY audit_id")
    assert [row["act"] for row in audit] == ["schedule.paused", "schedule.resumed"]
    assert all(row["actor"].startswith("cli:") and row["tenant_id"] == NIGHTLY.tenant_id for row in audit)


async def test_run_makes_the_job_now_and_remove_forgets_the_schedule(
    shell: Shell, database: Database
) -> None:
    await declared(database, NIGHTLY, OFF)
    dry = await shell("schedules", "run", "nightly.report", "--dry-run", "--json")
    assert dry.record == {"schedule": "nightly.report", "result": "would be run"}
    jobs = PostgresJobStore(database, IDS)
    assert await jobs.counts() == {}
    done = await shell("schedules", "run", "nightly.report", "off", "--json")
    assert (done.code, [row["result"] for row in done.rows]) == (0, ["enqueued"] * 2)
    again = await shell("schedules", "run", "nightly.report", "off", "--json")
    assert [row["result"] for row in again.rows] == ["its last job has not ended", "enqueued"]
    assert again.rows[0]["job_id"] == done.rows[0]["job_id"]
    views = await jobs.search(state="available", kind="report", tenant_id=None, queue=None, limit=9)
    assert [(str(job.job_id), job.args["deep"]) for job in views] == [(done.rows[0]["job_id"], True)]
    assert "job id" in (await shell("schedules", "run", "off")).out
    untouched = await shell("schedules", "remove", "off", "--dry-run", "--json")
    assert untouched.record["result"] == "would be removed"
    removed = await shell("schedules", "remove", "off", "off", "--json")
    assert (removed.code, [row["result"] for row in removed.rows]) == (3, ["removed", "failed"])
    assert [row["schedule"] for row in (await shell("schedules", "list", "--json")).rows] == [
        "nightly.report"
    ]
    acts = await rows(database, "SELECT act FROM audit ORDER BY audit_id")
    assert [row["act"] for row in acts] == ["schedule.run"] * 4 + ["schedule.removed"]


async def test_a_schedule_that_cannot_be_computed_is_told(shell: Shell, database: Database) -> None:
    await declared(database, NIGHTLY)
    await run(database, "UPDATE schedule SET expression = 'now and then'")
    broken = (await shell("schedules", "list", "--json")).record
    assert (broken["state"], "is no schedule" in broken["problem"]) == ("broken", True)
    assert (await shell("schedules", "show", "nightly.report", "--json")).record["upcoming"] == []
    sick = await shell("status", "--json")
    assert sick.code == 4
    assert any("takes no runs" in problem for problem in sick.record["problems"])


async def test_an_impossible_schedule_of_the_settings_never_starts(shell: Shell) -> None:
    shell.settings('[schedules]\nclean_up = "each friday"\n')
    refused = await shell("schedules", "list", "--json")
    assert (refused.code, refused.error["code"]) == (78, "invalid_config")
    assert "clean_up" in refused.error["message"]
