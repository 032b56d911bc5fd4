"""V1 and V2: every Retry-After of reference/reliability.md §4 through the one parser, and R15's delay."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.policy.failures.hint import (
    DAILY_PARK_CAP_S,
    HINT_CAP_S,
    clamp_hint,
    hinted_delay,
    parse_retry_after,
    server_hint,
)
from fairlead.policy.failures.http_date import parse_http_date

NOW = datetime(2026, 11, 20, 12, 0, 0, tzinfo=UTC)
NOW_S = NOW.timestamp()
ARABIC_FIVE, FULLWIDTH_FIVE, SUPERSCRIPT_TWO = "\u0665", "\uff15", "\u00b2"


def imf(moment: datetime) -> str:
    return format_datetime(moment, usegmt=True)


def read(*values: str, server_date: str | None = None, now_epoch_s: float | None = NOW_S) -> float | None:
    return parse_retry_after(values, server_date=server_date, now_epoch_s=now_epoch_s)


# ---- V1: seconds -------------------------------------------------------------------------------

V1 = {
    "0": 0,
    "-1": None,
    "-0": None,
    "+5": None,
    " 5 ": 5,  # blanks around a field value are not part of it (RFC 9110 §5.5)
    "\t5": 5,
    "\n5": None,
    "5\n": None,
    "\xa05": None,
    "5.5": 6,
    "5.0": 5,
    "5.": None,
    ".5": None,
    "0.001": 1,
    "2.0000": None,
    "1e3": None,
    "1e400": None,
    "nan": None,
    "inf": None,
    "Infinity": None,
    "1_000": None,
    ARABIC_FIVE: None,
    FULLWIDTH_FIVE: None,
    SUPERSCRIPT_TWO: None,
    "0x10": None,
    "9" * 5000: None,
    "": None,
    " ": None,
    "5 s": None,
    "5;": None,
    "120": 120,
    "007": 7,
    "9999999999": 9_999_999_999,
    "9999999999.999": 10_000_000_000,
    "99999999999": None,
    "120, 5": 120,
    "5,120": 120,
    "5,": None,
    ",5": None,
    "120, soon": None,
    "\x00": None,
    "5\x00": None,
    "true": None,
    "null": None,
}


@pytest.mark.parametrize(("value", "expected_s"), V1.items(), ids=[repr(value[:20]) for value in V1])
def test_v1_seconds(value: str, expected_s: float | None) -> None:
    assert read(value) == expected_s


def test_v1_two_headers_ask_for_the_longer_wait() -> None:
    assert read("120", "5") == read("5", "120") == 120
    assert read("5", "soon") == 5
    assert read("5", imf(NOW + timedelta(seconds=90))) == 90
    assert read("-1", "nan") is None
    assert read() is None


def test_v1_many_headers_are_not_all_read() -> None:
    assert read(*["5"] * 100_000, "800") == 5


def test_decimals_are_rounded_up_because_earlier_than_the_hint_is_too_early() -> None:
    assert [read(value) for value in ("1.0", "1.001", "1.5", "1.999", "2.000")] == [1, 2, 2, 2, 2]


# ---- V2: dates ---------------------------------------------------------------------------------

IN_90_S = NOW + timedelta(seconds=90)
V2 = {
    imf(IN_90_S): 90,
    "Friday, 20-Nov-26 12:01:30 GMT": 90,  # RFC 850
    "Fri Nov 20 12:01:30 2026": 90,  # asctime
    "Tue Dec  1 12:00:00 2026": 11 * 86_400,  # asctime pads the day with a blank
    "Mon, 20 Nov 2026 12:01:30 GMT": 90,  # the wrong weekday: the date is meant
    imf(NOW - timedelta(days=1)): 0,
    "Thu, 01 Jan 1970 00:00:00 GMT": 0,
    "Sun, 06 Nov 1994 08:49:37 GMT": 0,
    "Fri, 31 Dec 9999 23:59:59 GMT": None,  # further away than ten digits can say
    "Fri, 31 Dec 99999 23:59:59 GMT": None,
    "Fri, 01 Jan 0000 00:00:00 GMT": None,
    "Fri, 20 Nov 26 12:01:30 GMT": None,  # two digits belong to the RFC 850 form only
    "Friday, 20-Nov-2026 12:01:30 GMT": None,
    "Fri, 20 Nov 2026 12:01:30 -0000": None,
    "Fri, 20 Nov 2026 12:01:30 +9999": None,
    "Fri, 20 Nov 2026 12:01:30 +0000": None,
    "Fri, 20 Nov 2026 12:01:30 UTC": None,
    "Fri, 20 Nov 2026 12:01:30": None,
    "Fri, 20 Nov 2026 12:01:60 GMT": 120,  # a leap second
    "Fri, 20 Nov 2026 12:01:61 GMT": None,
    "Fri, 20 Nov 2026 24:00:00 GMT": None,
    "Fri, 30 Feb 2026 12:01:30 GMT": None,
    "fri, 20 nov 2026 12:01:30 gmt": None,
    "20 Nov 2026 12:01:30 GMT": None,
    "2026-11-20T12:01:30Z": 90.0,
    "Fri, 2٠ Nov 2026 12:01:30 GMT": None,
    "tomorrow": None,
    "Fri, 20 Nov 2026 12:01:30 GMT" * 1000: None,
    "Fri, 20 Nov 2026 12:01:30 GMT, 5": None,
}


@pytest.mark.parametrize(("value", "expected_s"), V2.items(), ids=[value[:40] for value in V2])
def test_v2_dates(value: str, expected_s: float | None) -> None:
    assert read(value) == expected_s


@pytest.mark.parametrize("wrong_by", [timedelta(hours=3), timedelta(hours=-3)])
def test_v2_a_date_is_measured_by_the_clock_that_wrote_it(wrong_by: timedelta) -> None:
    server_now = NOW + wrong_by
    assert read(imf(server_now + timedelta(seconds=90)), server_date=imf(server_now)) == 90


def test_v2_without_a_readable_date_header_our_clock_serves() -> None:
    for server_date in (None, "", "garbage", "Fri, 20 Nov 2026 12:00:00 -0000"):
        assert read(imf(IN_90_S), server_date=server_date) == 90


def test_v2_without_any_clock_a_date_says_nothing() -> None:
    assert read(imf(IN_90_S), now_epoch_s=None) is None
    assert read("90", now_epoch_s=None) == 90


@pytest.mark.parametrize(
    ("year", "expected"), [("69", 1969), ("99", 1999), ("00", 2000), ("26", 2026), ("68", 2068)]
)
def test_two_digit_years(year: str, expected: int) -> None:
    epoch_s = parse_http_date(f"Friday, 20-Nov-{year} 00:00:00 GMT")
    assert epoch_s == datetime(expected, 11, 20, tzinfo=UTC).timestamp()


def test_a_second_after_the_last_year_is_none() -> None:
    assert parse_http_date("Fri, 31 Dec 9999 23:59:59 GMT") is not None
    assert parse_http_date("Fri, 31 Dec 9999 23:59:60 GMT") is None  # no datetime holds it


@given(st.datetimes(min_value=NOW.replace(year=1000, tzinfo=None), timezones=st.just(UTC)))
def test_date_in_every_http_format_is_read_back(moment: datetime) -> None:
    moment = moment.replace(microsecond=0)
    asctime = f"{moment:%a %b} {moment.day:2d} {moment:%H:%M:%S} {moment.year:04d}"
    assert parse_http_date(imf(moment)) == parse_http_date(asctime) == moment.timestamp()


@given(values=st.lists(st.text(max_size=60), max_size=4), date=st.none() | st.text(max_size=60))
def test_no_text_breaks_the_parser(values: list[str], date: str | None) -> None:
    wait_s = parse_retry_after(values, server_date=date, now_epoch_s=NOW_S)
    assert wait_s is None or 0 <= wait_s <= 10_000_000_000


# ---- R15: what is made of a hint ---------------------------------------------------------------


def test_named_scenarios() -> None:
    assert hinted_delay(120, HINT_CAP_S, 0, 0) == 120
    assert hinted_delay(2, HINT_CAP_S, 0, 0) == 2


@pytest.mark.parametrize(
    ("hint_s", "daily", "expected_s"),
    [
        (10, False, 10),
        (900, False, 900),
        (901, False, 900),
        (9_999_999_999, False, 900),
        (math.inf, False, 900),
        (math.nan, False, 0),
        (-5, False, 0),
        (3600, True, 3600),
        (90_000, True, DAILY_PARK_CAP_S),
    ],
)
def test_clamp(hint_s: float, daily: bool, expected_s: float) -> None:
    assert clamp_hint(hint_s, daily_limit=daily) == expected_s


@pytest.mark.parametrize(
    ("hint_s", "d", "draw", "expected_s"),
    [
        (10, 5, 0, 10),
        (10, 5, 0.5, 12.5),  # d is wider than 10 %
        (100, 5, 0.5, 105),  # 10 % is wider than d
        (100_000, 5, 0, 900),
        (100_000, 5, 0.5, 945),
        (0, 5, 0.5, 2.5),
    ],
)
def test_hinted_delay(hint_s: float, d: float, draw: float, expected_s: float) -> None:
    assert hinted_delay(hint_s, HINT_CAP_S, d, draw) == pytest.approx(expected_s)


@given(
    hint_s=st.floats(0, 1e11),
    cap_s=st.floats(1, 1e5),
    d=st.floats(0, 1e4),
    draw=st.floats(0, 1, exclude_max=True),
)
def test_never_earlier_than_the_hint_never_far_beyond(
    hint_s: float, cap_s: float, d: float, draw: float
) -> None:
    asked_s = min(hint_s, cap_s)
    assert asked_s <= hinted_delay(hint_s, cap_s, d, draw) <= asked_s + max(d, asked_s / 10)


def test_a_herd_told_the_same_wait_does_not_return_at_once() -> None:
    waits = [hinted_delay(10, HINT_CAP_S, 5, number / 5000) for number in range(5000)]
    assert min(waits) == 10
    assert sum(wait_s < 10.2 for wait_s in waits) / len(waits) <= 0.05  # E37


# ---- which header counts -----------------------------------------------------------------------


def test_retry_after_wins_over_ratelimit() -> None:
    ratelimit = {"ratelimit": ['"default";r=0;t=30'], "date": [imf(NOW)]}
    assert server_hint({**ratelimit, "retry-after": ["7"]}, now_epoch_s=None) == 7
    assert server_hint({**ratelimit, "retry-after": [imf(IN_90_S)]}, now_epoch_s=None) == 90
    assert server_hint({**ratelimit, "retry-after": ["soon"]}, now_epoch_s=None) == 30
    assert server_hint(ratelimit, now_epoch_s=None) == 30
    assert server_hint({}, now_epoch_s=None) is None
