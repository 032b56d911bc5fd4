"""Runs: the same for all wherever they begin, right through clock changes, none missed or doubled."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.errors import InvalidInputError
from fairlead.policy.jobs.cron import (
    EPOCH,
    Cron,
    DueRuns,
    Every,
    due_runs,
    latest_run_at,
    parse_schedule,
    run_times_between,
)

BERLIN = ZoneInfo("Europe/Berlin")
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def walls(expr: str, day: str, tz: str = "Europe/Berlin", days: int = 1) -> list[str]:
    """The runs of local *day* as UTC times of day, with the local time shown then."""
    start = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(tz)).astimezone(UTC)
    end = (datetime.fromisoformat(day) + timedelta(days=days)).replace(tzinfo=ZoneInfo(tz)).astimezone(UTC)
    moments = run_times_between(expr, tz, start - timedelta(seconds=1), end - timedelta(seconds=1), 1000)
    return [f"{moment:%H:%M}Z={moment.astimezone(ZoneInfo(tz)):%H:%M}" for moment in moments]


# ---- plain schedules ---------------------------------------------------------------------------


def test_the_schedules_of_the_main_job() -> None:
    after_at, until = utc("2026-11-20T12:00"), utc("2026-11-20T13:00")
    assert len(run_times_between("*/5 * * * *", "UTC", after_at, until, 100)) == 12
    assert len(run_times_between("* * * * *", "UTC", after_at, until, 100)) == 60
    assert run_times_between("*/15 * * * *", "UTC", after_at, until, 2) == [
        utc("2026-11-20T12:15"),
        utc("2026-11-20T12:30"),
    ]
    assert run_times_between("30 * * * *", "UTC", after_at, until, 100) == [utc("2026-11-20T12:30")]


def test_after_is_out_and_until_is_in() -> None:
    run_at = utc("2026-11-20T12:05")
    assert run_times_between("*/5 * * * *", "UTC", run_at, run_at, 9) == []
    assert run_times_between("*/5 * * * *", "UTC", run_at - timedelta(microseconds=1), run_at, 9) == [run_at]
    assert run_times_between("*/5 * * * *", "UTC", run_at, run_at + timedelta(minutes=5), 9) == [
        run_at + timedelta(minutes=5)
    ]
    assert run_times_between("*/5 * * * *", "UTC", run_at, run_at - HOUR, 9) == []
    assert run_times_between("*/5 * * * *", "UTC", run_at, run_at + HOUR, 0) == []


@pytest.mark.parametrize(
    ("alias", "expression"),
    [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * SUN"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 JAN *"),
        ("@annually", "0 0 1 1 *"),
        ("  0   0 * * *  ", "0 0 * * *"),
    ],
)
def test_aliases(alias: str, expression: str) -> None:
    until = NEW_YEAR + 400 * DAY
    run_times = run_times_between(alias, "UTC", NEW_YEAR, until, 20)
    assert run_times
    assert run_times == run_times_between(expression, "UTC", NEW_YEAR, until, 20)


# ---- @every ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5s", 5),
        ("500ms", 0.5),
        ("10ms", 0.01),
        ("1m30s", 90),
        ("2h", 7200),
        ("1d", 86_400),
        ("366d", 366 * 86_400),
    ],
)
def test_every(text: str, seconds: float) -> None:
    period = timedelta(seconds=seconds)
    run_times = run_times_between(f"@every {text}", "UTC", NEW_YEAR, NEW_YEAR + 3 * period, 10)
    assert len(run_times) == 3
    assert all((run_at - EPOCH) % period == timedelta(0) for run_at in run_times)


def test_every_is_counted_from_the_epoch_so_that_all_processes_agree() -> None:
    until = NEW_YEAR + timedelta(minutes=1)
    all_times = run_times_between("@every 7s", "UTC", NEW_YEAR, until, 100)
    for offset_ms in (1, 3_333, 6_999, 20_000):
        after_at = NEW_YEAR + timedelta(milliseconds=offset_ms)
        assert run_times_between("@every 7s", "Europe/Berlin", after_at, until, 100) == [
            t for t in all_times if t > after_at
        ]


# ---- clock changes: Berlin 2026-03-29 02:00→03:00 and 2026-10-25 03:00→02:00 --------------------


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        ("30 1 * * *", ["00:30Z=01:30"]),
        ("0 2 * * *", ["01:00Z=03:00"]),  # skipped times run right after the gap
        ("30 2 * * *", ["01:00Z=03:00"]),
        ("0,30 2 * * *", ["01:00Z=03:00"]),  # both at once is once
        ("30 2,3 * * *", ["01:00Z=03:00", "01:30Z=03:30"]),
        ("0 3 * * *", ["01:00Z=03:00"]),
        ("0 2,3 * * *", ["01:00Z=03:00"]),
        ("*/30 2 * * *", []),  # repeating: nothing is made up for an hour that was not
    ],
)
def test_the_gap(expr: str, expected: list[str]) -> None:
    assert walls(expr, "2026-03-29") == expected


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        ("30 1 * * *", ["23:30Z=01:30"]),
        ("0 2 * * *", ["00:00Z=02:00"]),  # times shown twice run the first time
        ("30 2 * * *", ["00:30Z=02:30"]),
        ("0 3 * * *", ["02:00Z=03:00"]),
        ("*/30 2 * * *", ["00:00Z=02:00", "00:30Z=02:30", "01:00Z=02:00", "01:30Z=02:30"]),  # real time
    ],
)
def test_the_overlap(expr: str, expected: list[str]) -> None:
    assert walls(expr, "2026-10-25") == expected


def test_an_hourly_job_runs_25_times_on_the_long_day_and_23_on_the_short_one() -> None:
    assert len(walls("0 * * * *", "2026-10-25")) == 25
    assert walls("30 * * * *", "2026-03-29")[1:3] == ["00:30Z=01:30", "01:30Z=03:30"]
    assert len(walls("30 * * * *", "2026-03-29")) == 23
    assert len(walls("*/15 * * * *", "2026-10-25")) == 100


def test_a_process_that_starts_in_the_second_pass_does_not_run_the_first_again() -> None:
    second_pass = utc("2026-10-25T01:10")  # 02:10 shown for the second time
    assert run_times_between("30 2 * * *", "Europe/Berlin", second_pass, second_pass + HOUR, 9) == []
    assert latest_run_at("30 2 * * *", "Europe/Berlin", second_pass - DAY, second_pass) == utc(
        "2026-10-25T00:30"
    )


def test_a_change_at_midnight_and_one_of_half_an_hour() -> None:
    assert walls("0 0 * * *", "2024-04-26", "Africa/Cairo") == ["22:00Z=01:00"]  # midnight did not exist
    lord_howe = walls("*/30 5 * * *", "2026-04-05", "Australia/Lord_Howe")
    assert lord_howe == ["18:30Z=05:00", "19:00Z=05:30"]
    assert walls("45 1 * * *", "2026-04-05", "Australia/Lord_Howe") == [
        "14:45Z=01:45"
    ]  # shown twice, run once


@pytest.mark.parametrize(
    "expr", ["30 2 * * *", "0 3 * * *", "*/20 2 * * *", "15 */2 * * *", "0 0 1 * *", "5 4 * * MON#1"]
)
def test_ticks_agree_with_cronsim_over_a_year(expr: str) -> None:
    start = datetime(2026, 1, 1, tzinfo=BERLIN)
    theirs = []
    for run_at in CronSim(expr, start):
        if run_at.year > 2026:
            break
        theirs.append(run_at.astimezone(UTC))
    ours = run_times_between(
        expr, "Europe/Berlin", start, datetime(2026, 12, 31, 23, 59, tzinfo=BERLIN), 10**6
    )
    assert ours == theirs


# ---- properties --------------------------------------------------------------------------------

expressions = st.sampled_from(
    [
        "* * * * *",
        "*/5 * * * *",
        "30 2 * * *",
        "0,30 2 * * *",
        "*/7 2,3 * * *",
        "0 0 * * *",
        "15 3 29 3 *",
        "@every 90s",
    ]
)
zones = st.sampled_from(["UTC", "Europe/Berlin", "America/Havana", "Australia/Lord_Howe", "Antarctica/Troll"])
near_changes = st.sampled_from(
    [utc(day) for day in ("2026-03-29", "2026-10-25", "2026-03-08", "2026-11-01", "2026-04-05", "2026-10-04")]
)
offsets = st.integers(-26 * 3600, 26 * 3600)


@pytest.mark.parametrize("expr", ["*/30 2 * * *", "10,50 1,2,3 * * *", "*/20 * * * *", "0 2 * * *"])
@pytest.mark.parametrize(
    ("tz", "change"),
    [
        ("Europe/Berlin", "2026-03-29T01:00"),
        ("Europe/Berlin", "2026-10-25T01:00"),
        ("Australia/Lord_Howe", "2026-04-04T15:00"),
        ("Australia/Lord_Howe", "2026-10-03T15:30"),
        ("Antarctica/Troll", "2026-10-25T01:00"),
    ],
)
def test_each_cut_around_a_change_gives_the_same_runs(expr: str, tz: str, change: str) -> None:
    start, end = utc(change) - 4 * HOUR, utc(change) + 4 * HOUR
    all_times = run_times_between(expr, tz, start, end, 100)
    for minutes in range(0, 480, 11):
        cut = start + timedelta(minutes=minutes)
        before_cut, later = [t for t in all_times if t <= cut], [t for t in all_times if t > cut]
        assert run_times_between(expr, tz, start, cut, 100) == before_cut
        assert run_times_between(expr, tz, cut, end, 100) == later
        assert run_times_between(expr, tz, cut, end, 2) == later[:2]
        assert run_times_between(expr, tz, cut, end, 3) == later[:3]


@settings(max_examples=40, deadline=None)
@given(expr=expressions, tz=zones, day=near_changes, cuts=st.tuples(offsets, offsets, offsets))
def test_none_missed_none_doubled_wherever_the_time_is_cut(
    expr: str, tz: str, day: datetime, cuts: tuple[int, int, int]
) -> None:
    first, middle, last = (day + timedelta(seconds=offset_s) for offset_s in sorted(cuts))
    all_times = run_times_between(expr, tz, first, last, 10**6)
    assert all_times == run_times_between(expr, tz, first, middle, 10**6) + run_times_between(
        expr, tz, middle, last, 10**6
    )
    assert all_times == sorted(set(all_times))
    assert all(first < run_at <= last for run_at in all_times)
    assert latest_run_at(expr, tz, first, last) == (all_times[-1] if all_times else None)
    assert run_times_between(expr, tz, first, last, 3) == all_times[:3]
    assert due_runs(expr, tz, "coalesce", first, last).coalesced == max(0, len(all_times) - 1)


@given(st.text(max_size=60) | st.text(alphabet="0123456789*/,-#L W@everymsh", max_size=30))
def test_any_text_is_a_schedule_or_is_refused(text: str) -> None:
    with contextlib.suppress(InvalidInputError):
        schedule = parse_schedule(text)
        assert isinstance(schedule, Every | Cron)


# ---- making up for lost time -------------------------------------------------------------------


def test_coalesce_takes_the_latest_and_counts_the_rest() -> None:
    after_at, now = utc("2026-11-20T12:00"), utc("2026-11-20T13:02")
    assert due_runs("*/5 * * * *", "UTC", "coalesce", after_at, now) == DueRuns(
        (utc("2026-11-20T13:00"),), coalesced=11
    )
    assert due_runs("@every 10s", "UTC", "coalesce", after_at, now) == DueRuns((now,), coalesced=371)
    assert due_runs("*/5 * * * *", "UTC", "coalesce", now, now + timedelta(seconds=1)) == DueRuns(())


def test_catch_up_takes_all_oldest_first_a_limited_number_at_a_time() -> None:
    after_at, now = utc("2026-11-20T12:00"), utc("2026-11-20T13:02")
    all_times: list[datetime] = []
    while run_times := due_runs("*/5 * * * *", "UTC", "catch_up", after_at, now, limit=5).run_times:
        assert len(run_times) <= 5
        all_times += run_times
        after_at = run_times[-1]
    assert all_times == run_times_between("*/5 * * * *", "UTC", utc("2026-11-20T12:00"), now, 100)


@pytest.mark.parametrize("expr", ["* * * * *", "@every 10ms", "* * * 1 *", "0 0 29 2 *", "0 0 1 1 *"])
def test_ten_years_away_cost_little_and_the_count_is_bounded(expr: str) -> None:
    after_at, now = utc("2016-11-20T12:00"), utc("2026-11-20T12:34:56.789")
    due = due_runs(expr, "Europe/Berlin", "coalesce", after_at, now)
    assert due.coalesced <= 10_000
    (latest,) = due.run_times
    assert run_times_between(expr, "Europe/Berlin", latest, now, 1) == []
    assert after_at < latest <= now


# ---- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "expr",
    [
        "",
        "*",
        "* * * *",
        "* * * * * *",  # seconds: every tool reads six fields differently
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * 32 * *",
        "* * * 13 *",
        "* * * * 8",
        "*/0 * * * *",
        "5-1 * * * *",
        "a * * * *",
        "-1 * * * *",
        "0 0 31 2 *",
        "0 0 30 2 *",
        "\u0665 * * * *",
        "* * * * *" + " " * 300,
        ",".join(["1"] * 200) + " * * * *",
        "@every",
        "@every ",
        "@every 5",
        "@every s",
        "@every -5s",
        "@every 0s",
        "@every 9ms",
        "@every 367d",
        "@every 999999999d",
        "@every 1.5s",
        "@every 5s ago",
        "@every \u0665s",
        "@reboot",
        "@Daily",
        "* * * * *\0",
    ],
    ids=lambda expr: repr(expr[:20]),
)
def test_no_schedule(expr: str) -> None:
    with pytest.raises(InvalidInputError, match=r"is no schedule: .* hint: use five fields") as caught:
        parse_schedule(expr)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "tz", ["", "Europe", "Europe/Nowhere", "../../etc/passwd", "/etc/passwd", "utc\0", "x" * 10_000, "CEST"]
)
def test_no_time_zone(tz: str) -> None:
    with pytest.raises(InvalidInputError, match="is no time zone hint: "):
        parse_schedule("* * * * *", tz)


def test_a_moment_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="hint:"):
        run_times_between("* * * * *", "UTC", NEW_YEAR.replace(tzinfo=None), NEW_YEAR, 1)
    with pytest.raises(ValueError, match="hint:"):
        latest_run_at("* * * * *", "UTC", NEW_YEAR, (NEW_YEAR + DAY).replace(tzinfo=None))
