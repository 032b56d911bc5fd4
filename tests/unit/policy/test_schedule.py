"""What a schedule may be, and where within its spread a run's job stands."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.engine.ports import Schedule
from fairlead.errors import InvalidInputError
from fairlead.policy.jobs.cron import next_run_at, run_times_between
from fairlead.policy.jobs.schedule import check_schedule, run_delay_s

HOURLY = Schedule("scan", "0 * * * *", "token.scan", "acme")
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


def delays_s(schedule: Schedule, count: int = 500) -> list[float]:
    """Of its first runs in 2026."""
    until = NEW_YEAR + timedelta(days=366)
    run_times = run_times_between(schedule.expression, schedule.timezone, NEW_YEAR, until, count)
    return [run_delay_s(schedule, run_at) for run_at in run_times]


# ---- jitter ------------------------------------------------------------------------------------


def test_without_jitter_a_job_is_due_at_its_run() -> None:
    assert set(delays_s(HOURLY)) == {0.0}


def test_jitter_is_even_within_its_bound_and_stable() -> None:
    spread = replace(HOURLY, jitter_s=600.0)
    delays = delays_s(spread)
    assert delays == delays_s(replace(spread, args={"more": 1}, priority=0, queue="other"))
    assert 0 <= min(delays) < 10
    assert 590 < max(delays) < 600
    tenths = [sum(n * 60 <= delay_s < (n + 1) * 60 for delay_s in delays) for n in range(10)]
    assert all(25 <= count <= 80 for count in tenths)


def test_each_run_and_each_schedule_has_its_own() -> None:
    spread = replace(HOURLY, jitter_s=600.0)
    assert len(set(delays_s(spread))) == 500
    first, other = delays_s(spread), delays_s(replace(spread, name="other"))
    assert not set(first) & set(other)


def test_tick_delay_depends_on_the_instant_not_its_timezone() -> None:
    spread = replace(HOURLY, jitter_s=600.0)
    here = NEW_YEAR.astimezone(None)
    assert run_delay_s(spread, here) == run_delay_s(spread, NEW_YEAR)


@given(
    expression=st.sampled_from(
        ["* * * * *", "0,7 * * * *", "30 2 * * *", "@every 10ms", "@every 90s", "0 0 29 2 *"]
    ),
    jitter_s=st.floats(0.0, 86_400.0),
    offset_s=st.integers(0, 2 * 366 * 86_400),
)
def test_tick_delay_stays_within_its_bound_and_before_the_next_run(
    expression: str, jitter_s: float, offset_s: int
) -> None:
    spread = replace(HOURLY, expression=expression, timezone="Europe/Berlin", jitter_s=jitter_s)
    run_at = next_run_at(expression, "Europe/Berlin", NEW_YEAR + timedelta(seconds=offset_s))
    assert run_at is not None
    following = next_run_at(expression, "Europe/Berlin", run_at)
    assert following is not None
    delay_s = run_delay_s(spread, run_at)
    assert 0 <= delay_s <= jitter_s
    assert timedelta(seconds=delay_s) < following - run_at
    assert run_at + timedelta(seconds=delay_s) == run_at + timedelta(microseconds=round(delay_s * 1e6))


@pytest.mark.parametrize(
    ("day", "room_s"),
    [
        ("2026-03-28T01:30", 23.5 * 3600),  # the next 02:30 is skipped, its run comes at 03:00 summer time
        ("2026-10-24T00:30", 24 * 3600),  # the next 02:30 comes twice, its run is the first
        ("2026-10-25T00:30", 25 * 3600),
    ],
)
def test_the_next_run_is_that_of_the_zone(day: str, room_s: float) -> None:
    spread = replace(HOURLY, expression="30 2 * * *", timezone="Europe/Berlin", jitter_s=86_400.0)
    run_at = datetime.fromisoformat(day).replace(tzinfo=UTC)
    delay_s = run_delay_s(replace(spread, expression="0 0 1 1 *", jitter_s=86_400.0), run_at)
    assert run_delay_s(spread, run_at) == pytest.approx(delay_s * min(1.0, room_s / 86_400), abs=1e-5)


# ---- what is refused ---------------------------------------------------------------------------


def test_valid_schedule_is_accepted() -> None:
    check_schedule(HOURLY)
    check_schedule(replace(HOURLY, missed="catch_up", jitter_s=86_400.0, args={"deep": [1, None]}))
    check_schedule(replace(HOURLY, expression="@every 10ms", tenant_id="señor / 1", jitter_s=0))


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": "Nightly report"},
        {"name": "x" * 65},
        {"name": None},
        {"expression": "now and then"},
        {"expression": "* * * * * *"},
        {"timezone": "Mars/Olympus"},
        {"kind": "No Kind"},
        {"queue": ""},
        {"tenant_id": ""},
        {"tenant_id": "a\nb"},
        {"missed": "skip"},
        {"missed": None},
        {"priority": 4},
        {"jitter_s": -1.0},
        {"jitter_s": float("nan")},
        {"jitter_s": float("inf")},
        {"jitter_s": 86_401.0},
        {"jitter_s": "5s"},
        {"args": {"n": float("nan")}},
        {"args": [1]},
        {"args": {"text": "\0"}},
    ],
    ids=repr,
)
def test_invalid_schedule_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError, match="hint: "):
        check_schedule(replace(HOURLY, **wrong))  # type: ignore[arg-type]
