"""`fairlead dlq` by filter, spread, exported, counted and pruned."""

from __future__ import annotations

import csv
import io
import json
import stat
from uuid import UUID

import pytest

from fairlead import Fairlead
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.dead_letters import PostgresDeadLetterStore
from fairlead.adapters.postgres.jobs import PostgresJobStore
from fairlead.assembly.config import load
from fairlead.engine.ports import ClaimFilter, Completed, Discarded, FailureRecord, NewJob
from tests.support.cli import Shell
from tests.support.engine import IDS, a_job, new_job
from tests.support.passing_time import pass_time
from tests.support.rows import rows
from tests.support.seeds import a_session


async def dead(
    database: Database, *jobs: NewJob, code: str = "http_503", reason: str = "it failed"
) -> list[str]:
    """The ids of dead letters; nothing else may wait."""
    store = PostgresJobStore(database, IDS)
    await store.enqueue(list(jobs))
    claimed = await store.claim(ClaimFilter(queues=("default", "mail")), 1000, await a_session(database))
    category = "transient_server" if code.startswith("http_5") else "permanent_request"
    failure = FailureRecord(category, code, reason, ran_s=0.1, attempt=1)
    ids = {job.job_id: IDS.uuid7() for job in sorted(claimed, key=lambda job: job.job_id)}
    outcomes = [Discarded(job.job_id, job.lease_id, ids[job.job_id], failure) for job in claimed]
    assert len(await store.acknowledge(outcomes)) == len(jobs)
    return [str(ids[job.job_id]) for job in jobs]


async def test_redrive_by_filter_capped_and_spread(shell: Shell, database: Database) -> None:
    old = await dead(database, *(new_job("mail", tenant_id="a") for _ in range(4)))
    await pass_time(database, 7200)
    (young,) = await dead(database, new_job("mail", tenant_id="a"))
    (other,) = await dead(database, new_job("mail", tenant_id="a"), code="bad_address")
    for arguments in ((), (young, "--code", "http_503"), ("--category", "nosuch"), ("--older-than", "soon")):
        refused = await shell("dlq", "redrive", *arguments, "--json")
        assert (refused.code, refused.error["code"]) == (2, "invalid_input"), arguments
    filters = ("--code", "http_503", "--tenant", "a", "--kind", "mail", "--older-than", "1h")
    dry = await shell("dlq", "redrive", *filters, "--dry-run", "--json")
    assert [row["dead_letter_id"] for row in dry.rows] == old  # the oldest first
    done = await shell("dlq", "redrive", *filters, "--limit", "3", "--spread", "10m", "--json")
    assert [(row["dead_letter_id"], row["result"]) for row in done.rows] == [
        (letter_id, "redriven") for letter_id in old[:3]
    ]
    waits = await rows(
        database,
        "SELECT round(extract(epoch FROM run_at - created_at)) AS s FROM job"
        " WHERE replay_of IS NOT NULL ORDER BY 1",
    )
    assert [int(row["s"]) for row in waits] == [0, 200, 400]
    states = {entry: (await shell("dlq", "show", entry, "--json")).record for entry in (*old, young, other)}
    assert [states[entry]["replays"] for entry in (*old, young, other)] == [1, 1, 1, 0, 0, 0]
    assert {record["status"] for record in states.values()} == {"pending_review"}
    audit = await rows(database, "SELECT act, tenant_id, details::text FROM audit ORDER BY audit_id")
    assert [(row["act"], row["tenant_id"]) for row in audit] == [("dead_letter.redriven", "a")] * 3
    assert all('"replays": "1"' in row["details"] for row in audit)
    rest = await shell("dlq", "redrive", *filters, "--limit", "3", "--json")
    assert [row["dead_letter_id"] for row in rest.rows] == old[3:], "what is under way is passed over"
    given_up = await shell("dlq", "abandon", old[0], "--reason", "the customer left", "--json")
    assert given_up.record["result"] == "abandoned, its replay is cancelled"


async def test_an_entry_that_a_person_redrives_is_resolved_by_that_person(
    shell: Shell, database: Database
) -> None:
    (entry_id,) = await dead(database, new_job("mail", tenant_id="a"))
    assert (await shell("dlq", "redrive", entry_id)).code == 0
    jobs = PostgresJobStore(database, IDS)
    (replay,) = await jobs.claim(ClaimFilter(), 9, await a_session(database))
    assert await jobs.acknowledge([Completed(replay.job_id, replay.lease_id)])
    entry = (await shell("dlq", "show", entry_id, "--json")).record
    assert (entry["status"], entry["resolved_by"].partition(":")[0]) == ("manual_resolved", "cli")


async def test_stats_count_dead_letters_by_each_column(shell: Shell, database: Database) -> None:
    await dead(database, *(new_job("mail", tenant_id=tenant) for tenant in "aab"))
    await dead(database, new_job("sync", tenant_id="b", queue="mail", provider="hubspot"), code="bad_address")
    stats = {
        by: [(row[by], row["entries"]) for row in (await shell("dlq", "stats", "--by", by, "--json")).rows]
        for by in ("category", "code", "tenant", "provider", "kind", "queue", "status")
    }
    assert stats == {
        "category": [("transient_server", 3), ("permanent_request", 1)],
        "code": [("http_503", 3), ("bad_address", 1)],
        "tenant": [("a", 2), ("b", 2)],
        "provider": [(None, 3), ("hubspot", 1)],
        "kind": [("mail", 3), ("sync", 1)],
        "queue": [("default", 3), ("mail", 1)],
        "status": [("pending_review", 4)],
    }
    top = await shell("dlq", "stats", "--by", "code", "--top", "1", "--tenant", "b", "--json")
    assert (top.record["code"], top.record["entries"]) == ("bad_address", 1)
    assert (await shell("dlq", "stats", "--status", "abandoned")).err == "no such dead letters\n"


async def test_export_without_secrets(shell: Shell, database: Database) -> None:
    secret = shell.secret("token")
    args = {"to": "ada@example.com", "refresh_token": secret, "nested": [{"header": f"Bearer {secret}"}]}
    (first,) = await dead(
        database, new_job("mail", tenant_id="=cmd()", args=args), reason='a "quote",\nand more'
    )
    others = await dead(database, *(new_job("mail", tenant_id="b") for _ in range(3)))
    exported = await shell("dlq", "export")
    assert [row["dead_letter_id"] for row in exported.rows] == [first, *others]
    assert exported.rows[0]["args"] == {
        "to": "ada@example.com",
        "refresh_token": "***",
        "nested": [{"header": "Bearer ***"}],
    }
    table = list(csv.DictReader(io.StringIO((await shell("dlq", "export", "--format", "csv")).out)))
    assert (table[0]["tenant"], table[0]["reason"]) == ("'=cmd()", 'a "quote",\nand more')
    assert json.loads(table[0]["args"])["to"] == "ada@example.com"
    export = await shell("dlq", "export", "--tenant", "b", "--limit", "2", "-o", "dead.jsonl", "--json")
    assert export.record == {"file": "dead.jsonl", "entries": 2}
    file = shell.folder / "dead.jsonl"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [json.loads(line)["dead_letter_id"] for line in file.read_text().splitlines()] == others[:2]
    again = await shell("dlq", "export", "-o", "dead.jsonl", "--json")
    assert (again.code, again.error["code"]) == (2, "invalid_input")
    assert (await shell("dlq", "export", "--kind", "none")).out == ""


async def test_prune_takes_closed_entries_only(shell: Shell, database: Database) -> None:
    first, two, three = await dead(database, *(new_job("mail") for _ in range(3)))
    store = PostgresDeadLetterStore(database)
    close = {"status": "abandoned", "resolution": "abandoned", "by": "x", "reason": "y"}
    await store.resolve(UUID(first), **close)
    await pass_time(database, 40 * 86_400)
    await store.resolve(UUID(two), **close)
    dry = await shell("dlq", "prune", "--dry-run", "--json")
    assert dry.record == {"entries": 1, "result": "would be deleted"}
    done = await shell("dlq", "prune", "--json")
    assert (done.code, done.record) == (0, {"entries": 1, "result": "deleted"})
    assert (await shell("dlq", "prune", "--json")).record["result"] == "nothing to delete"
    letters_left = await rows(
        database, "SELECT dead_letter_id::text AS id FROM dead_letter ORDER BY dead_letter_id"
    )
    assert [row["id"] for row in letters_left] == [two, three]
    await pass_time(database, 60)
    assert (await shell("dlq", "prune", "--older-than", "30s", "--json")).record["entries"] == 1
    acts = await rows(database, "SELECT details::text FROM audit WHERE act = 'dead_letters.pruned'")
    assert len(acts) == 2


async def test_settings_rule_what_becomes_of_the_dead(shell: Shell) -> None:
    """A replay that is kept for the end of a long outage is what a fresh entry waits for."""

    async def boom(context: object) -> None:
        raise ConnectionError("the vendor is away")

    async def action_in_s(**filters: str) -> float | None:
        settings = {f"FAIRLEAD_DEAD_LETTERS__{name.upper()}": value for name, value in filters.items()}
        environ = {**shell.environ, **settings, "FAIRLEAD_HOME": str(shell.folder / "home")}
        fl = Fairlead(load(environ))
        fl.job("boom")(boom)
        worn_out = a_job("boom", attempt=30, streaks={"transient_network": 30})
        async with fl:
            outcome = await fl.runtime.job_components.executor.run(worn_out)
        assert isinstance(outcome, Discarded)
        return outcome.action_in_s

    assert await action_in_s() == pytest.approx(300, abs=5)
    assert await action_in_s(max_replays="1", redrive_after_s="7200") == pytest.approx(7200, abs=5)
    assert await action_in_s(max_replays="0") == pytest.approx(7 * 86_400, abs=5)
