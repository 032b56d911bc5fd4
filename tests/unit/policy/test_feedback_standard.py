"""V1 to V3 of reference/reliability.md §4 through every dialect, and the headers that are no vendor's own."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from fairlead.policy.limits.feedback.dialect import DIALECTS, parse_limits
from fairlead.policy.limits.feedback.raw_response import LimitObservation, RawResponse
from tests.unit.policy.test_hint import NOW_S, V1, V2, imf

RETRY_AFTER = {**V1, **V2}


def listen(status: int = 200, **headers: str) -> tuple[LimitObservation, ...]:
    named = {name.replace("_", "-"): [value] for name, value in headers.items()}
    return parse_limits("standard", RawResponse(status, named), now_epoch_s=NOW_S)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_v1_and_v2_through_the_dialect(dialect: str) -> None:
    for value, expected_s in RETRY_AFTER.items():
        headers = {"retry-after": [value]}
        (item,) = parse_limits(dialect, RawResponse(429, headers), now_epoch_s=NOW_S)
        assert item.wait_s == (expected_s or 0.0), value
        unavailable = parse_limits(dialect, RawResponse(503, headers), now_epoch_s=NOW_S)
        assert [item.wait_s for item in unavailable] == ([] if expected_s is None else [expected_s]), value


@pytest.mark.parametrize("dialect", DIALECTS)
def test_v1_two_headers_ask_for_the_longer_wait(dialect: str) -> None:
    for values in (["120", "5"], ["5", "120"], ["120, 5"]):
        (item,) = parse_limits(dialect, RawResponse(429, {"retry-after": values}), now_epoch_s=None)
        assert item.wait_s == 120


@pytest.mark.parametrize("dialect", DIALECTS)
def test_v2_a_date_is_measured_by_the_clock_that_wrote_it(dialect: str) -> None:
    server_now = datetime(2026, 11, 20, 15, 0, 0, tzinfo=UTC)  # three hours ahead of ours
    headers = {"date": [imf(server_now)], "retry-after": [imf(server_now.replace(minute=2))]}
    (item,) = parse_limits(dialect, RawResponse(429, headers), now_epoch_s=NOW_S)
    assert item.wait_s == 120


# ---- V3: RateLimit -----------------------------------------------------------------------------


def test_current_draft_each_policy_is_a_limit() -> None:
    burst, daily = listen(
        ratelimit='"burst";r=8;t=1, "daily";r=40;t=3600',
        ratelimit_policy='"burst";q=10;w=10, "daily";q=5000;w=86400',
    )
    assert burst == LimitObservation("burst", remaining=8, capacity=10, window_s=10, reset_s=1)
    assert daily == LimitObservation(
        "daily", remaining=40, capacity=5000, window_s=86_400, reset_s=3600, daily=True
    )


@pytest.mark.parametrize(
    "headers",
    [
        {"ratelimit": '"default";r=7;t=30', "ratelimit_policy": '"default";q=100;w=60'},
        {"ratelimit": "limit=100, remaining=7, reset=30"},
        {"ratelimit_limit": "100", "ratelimit_remaining": "7", "ratelimit_reset": "30"},
        {"x_ratelimit_limit": "100", "x_ratelimit_remaining": "7", "x_ratelimit_reset": "30"},
    ],
)
def test_all_forms_say_the_same(headers: dict[str, str]) -> None:
    (item,) = listen(**headers)
    assert (item.limit, item.remaining, item.capacity, item.reset_s) == ("requests", 7, 100, 30)
    assert not item.refused


def test_a_kind_before_the_name_is_skipped() -> None:
    (item,) = listen(ratelimit='"api";r=489;t=189', ratelimit_policy='"fixed window";"api";q=500;w=300')
    assert item == LimitObservation("api", remaining=489, capacity=500, window_s=300, reset_s=189)


@pytest.mark.parametrize(
    "value",
    [
        "",
        '"a"',
        '"a";t=30',
        '"a";r=-1;t=30',
        '"a";r=1;t=-30',
        '"a";r=1e3',
        '"a";r=1_0',
        '"a";r=nan',
        '"a";r=٣',
        f'"a";r={10**15}',
        f'"a";r=1;t={10**10}',
        '"a;r=1',
        '"a";r=1,',
        '"a";r=1;' + "x" * 5000,
        "limit=100, remaining=-1",
        "remaining=1, remaining=2",
    ],
)
def test_v3_what_cannot_be_read_is_as_good_as_absent(value: str) -> None:
    assert listen(ratelimit=value) == ()
    assert listen(429, ratelimit=value) == (LimitObservation("requests", wait_s=0.0),)


def test_v3_huge_numbers_are_bounded_and_times_left_to_clamp_hint() -> None:
    (item,) = listen(429, ratelimit=f'"a";r={10**15 - 1};t={10**10 - 1}')
    assert (item.remaining, item.wait_s) == (1e9, 0.0)
    (item,) = listen(429, ratelimit=f'"a";r=0;t={10**10 - 1}')
    assert item.wait_s == 10**10 - 1


def test_v3_a_repeated_policy_is_kept_at_its_tighter_reading() -> None:
    assert listen(ratelimit='"a";r=5;t=1, "a";r=0;t=9') == (LimitObservation("a", remaining=0, reset_s=9),)


def test_v3_of_two_readings_as_tight_the_longer_one_is_kept() -> None:
    for value in ('"a";r=0;t=9, "a";r=0;t=40', '"a";r=0;t=40, "a";r=0;t=9'):
        assert listen(ratelimit=value) == (LimitObservation("a", remaining=0, reset_s=40),)


def test_v3_policies_without_a_name_for_us_are_one_limit() -> None:
    for value in ('"per user";r=5, "per team";r=2', '"per team";r=2, "per user";r=5'):
        assert listen(ratelimit=value) == (LimitObservation("requests", remaining=2),)


def test_a_refusal_blames_what_is_exhausted() -> None:
    burst, day = listen(429, ratelimit='"burst";r=0;t=3, "day";r=40;t=3600')
    assert (burst.wait_s, day.wait_s) == (3, None)


def test_v3_retry_after_wins_over_ratelimit() -> None:
    (item,) = listen(429, ratelimit='"burst";r=0;t=3', retry_after="7")
    assert (item.wait_s, item.reset_s) == (7, 3)
    (item,) = listen(429, ratelimit='"burst";r=0;t=30', retry_after="7")
    assert item.wait_s == 7
    (item,) = listen(429, ratelimit='"burst";r=0;t=30', retry_after="soon")
    assert item.wait_s == 30


def test_a_refusal_that_no_policy_explains() -> None:
    (item,) = listen(429, ratelimit='"burst";r=5;t=3', retry_after="7")
    assert (item.limit, item.wait_s) == ("burst", 7)
    (item,) = listen(429, ratelimit='"burst";r=5;t=3')
    assert item.wait_s == 0  # the reset is of a limit that is not exhausted
    burst, day, requests = listen(429, ratelimit='"burst";r=5, "day";r=40', retry_after="7")
    assert not burst.refused
    assert not day.refused
    assert requests == LimitObservation("requests", wait_s=7)


def test_a_refusal_takes_nothing_from_what_the_limit_told() -> None:
    burst, requests = listen(
        429,
        ratelimit='"burst";r=5, "per day";r=40',
        ratelimit_policy='"per day";q=500;w=86400',
        retry_after="7",
    )
    assert not burst.refused
    assert requests == LimitObservation(
        "requests", remaining=40, capacity=500, window_s=86_400, wait_s=7, daily=True
    )


# ---- X-RateLimit-* -----------------------------------------------------------------------------


def test_older_reset_is_a_moment_or_a_number_of_seconds() -> None:
    at_90_s = str(int(NOW_S) + 90)
    (item,) = listen(429, x_ratelimit_remaining="0", x_ratelimit_reset=at_90_s)
    assert (item.reset_s, item.wait_s) == (90, 90)
    (item,) = listen(429, x_ratelimit_remaining="0", x_ratelimit_reset="90")
    assert item.wait_s == 90
    (item,) = listen(429, x_ratelimit_remaining="0", x_ratelimit_reset=str(int(NOW_S) - 90))
    assert item.wait_s == 0


def test_older_reset_is_measured_by_the_servers_clock_and_by_none_where_there_is_none() -> None:
    server_now = datetime(2026, 11, 20, 15, 0, 0, tzinfo=UTC)
    headers = {"x-ratelimit-remaining": ["0"], "x-ratelimit-reset": [str(int(server_now.timestamp()) + 90)]}
    (item,) = parse_limits(
        "standard", RawResponse(429, {**headers, "date": [imf(server_now)]}), now_epoch_s=NOW_S
    )
    assert item.wait_s == 90
    (item,) = parse_limits("standard", RawResponse(429, headers), now_epoch_s=None)
    assert (item.remaining, item.reset_s, item.wait_s) == (0, None, 0)


@pytest.mark.parametrize("value", ["-1", "1.5", "1e3", "", "nan", "٣", "9" * 16, "9" * 5000])
def test_older_headers_that_cannot_be_read(value: str) -> None:
    assert listen(x_ratelimit_remaining=value) == ()


@pytest.mark.parametrize(
    "headers",
    [{"Retry-After": "120"}, {"retry-after": "120"}, {"RETRY-AFTER": ["120"]}, {"retry-after": ("120",)}],
)
def test_headers_are_taken_as_http_clients_give_them(headers: dict[str, Any]) -> None:
    """A text is one value, and no list of its characters: those of "120" ask for 2 s."""
    (item,) = parse_limits("standard", RawResponse(429, headers), now_epoch_s=None)
    assert item.wait_s == 120


def test_a_header_that_is_told_twice_in_two_cases_has_two_values() -> None:
    assert RawResponse(200, {"A": "1", "a": ["2", "3"]}).headers == {"a": ("1", "2", "3")}
