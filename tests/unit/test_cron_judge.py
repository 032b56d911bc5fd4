"""The judge of killed cron processes sees a run that was missed, and counts the ends that came late."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.faults.test_cron_kills import by_a_late_end, caught_up, coalesced

FIRST = datetime(2026, 1, 1, tzinfo=UTC)


def at(second: float) -> datetime:
    return FIRST + timedelta(seconds=second)


TICKS = [at(second) for second in range(4)]


def record(second: int, job: str | None, made_up: int = 0) -> dict[str, Any]:
    return {"run_at": at(second), "taken_at": at(second), "coalesced": made_up, "job_id": job}


def a_job(id: str, second: int, ended: float) -> dict[str, Any]:
    return {
        "job_id": id,
        "run_at": at(second).isoformat(),
        "created_at": at(second),
        "finished_at": at(ended),
    }


def test_every_run_with_a_record_and_a_job_is_no_harm() -> None:
    records = [record(second, str(second)) for second in range(4)]
    jobs = [a_job(str(second), second, second + 0.1) for second in range(4)]
    assert caught_up(TICKS, records, jobs) == (0, 0)
    assert coalesced(TICKS, records, jobs) == (0, 0)
    assert by_a_late_end(records, jobs) == 0


def test_a_run_that_was_missed_is_seen() -> None:
    records = [record(second, str(second)) for second in (0, 1, 3)]
    jobs = [a_job(str(second), second, second + 0.1) for second in (0, 1, 3)]
    assert caught_up(TICKS, records, jobs) == (1, 0)
    assert coalesced(TICKS, records, jobs) == (1, 0)
    records[2]["coalesced"] = 1
    assert coalesced(TICKS, records, jobs) == (0, 0), "it was made up by the next"


def test_a_run_without_a_job_is_missed_unless_one_was_open() -> None:
    records = [record(0, "0"), record(1, None), record(2, "2"), record(3, "3")]
    jobs = [a_job("0", 0, 1.5), a_job("2", 2, 2.1), a_job("3", 3, 3.1)]
    assert coalesced(TICKS, records, jobs) == (0, 0)
    jobs[0]["finished_at"] = at(-2.0)
    assert coalesced(TICKS, records, jobs) == (1, 0)


def test_a_late_end_excuses_its_run_and_is_counted() -> None:
    records = [record(0, "0"), record(1, None), record(2, "2"), record(3, "3")]
    jobs = [a_job("0", 0, 0.5), a_job("2", 2, 2.1), a_job("3", 3, 3.1)]
    assert coalesced(TICKS, records, jobs) == (0, 0)
    assert by_a_late_end(records, jobs) == 1
    jobs[0]["finished_at"] = at(1.0)
    assert by_a_late_end(records, jobs) == 0, "it was open at that moment"


def test_a_run_taken_twice_is_seen() -> None:
    records = [record(second, str(second)) for second in (0, 1, 1, 2, 3)]
    jobs = [a_job(str(second), second, second + 0.1) for second in range(4)]
    assert caught_up(TICKS, records, jobs) == (0, 1)
    assert coalesced(TICKS, records, jobs) == (0, 1)
