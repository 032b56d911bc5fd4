"""Faults of a host or process that `fairlead status` and `jobs explain` name."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from fairlead.assembly.doctor.check import Check
from fairlead.assembly.doctor.host_checks import journal_check
from fairlead.cli.jobs.explain import explanation_record
from fairlead.cli.kit.output import record_of
from fairlead.cli.status import list_problems
from fairlead.engine.ports import Explanation, JobView

NOW = datetime(2026, 11, 20, tzinfo=UTC)
WELL: dict[str, Any] = {
    "processes": [{"host": "h", "pid": 1, "state": "alive", "trouble": None}],
    "host_checks": [],
    "endpoints": [],
    "breakers": [],
    "breakers_unseen": None,
    "schedules": [],
    "unhandled": [],
}


def problems_of(check: Check) -> list[str]:
    return list(list_problems({**WELL, "host_checks": [record_of(check)]}))


def test_status_names_a_full_journal(tmp_path: Path) -> None:
    assert problems_of(journal_check(tmp_path)) == []
    (problem,) = problems_of(journal_check(tmp_path, warn_bytes=1 << 62, fail_bytes=1 << 62))
    assert problem.startswith("journal of this host: ")
    assert "MiB free" in problem
    assert "hint: make room" in problem


def test_status_names_a_wrong_clock_but_no_warning() -> None:
    wrong = Check("clock", "fail", "this host is 60.000 s ahead of the database", "have NTP set both")
    (problem,) = problems_of(wrong)
    assert problem == (
        "clock of this host: this host is 60.000 s ahead of the database (hint: have NTP set both)"
    )
    assert problems_of(replace(wrong, status="warn")) == []


def test_explain_names_the_faults_of_processes_that_claim_nothing() -> None:
    job = JobView(
        job_id=UUID(int=1), queue="default", kind="sync", tenant_id="acme", provider=None, group_key="",
        tags=(), state="available", label="available", priority=3, attempt=0, crash_count=0, run_at=NOW,
        created_at=NOW, finished_at=None, expires_at=None, unique_key=None, args={}, failures=(), result=None,
    )  # fmt: skip
    explanation = Explanation(job, "turn", "its turn comes next", None, 0, 0, None, 1)
    well = explanation_record(explanation)
    assert (well["detail"], well["unhealthy"]) == ("its turn comes next", [])
    sick = explanation_record(explanation, ["h 1: TLS fails"])
    assert (sick["why"], sick["unhealthy"]) == ("turn", ["h 1: TLS fails"])
    assert sick["detail"].endswith("because none can connect to anything (h 1: TLS fails)")
