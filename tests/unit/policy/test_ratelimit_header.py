"""V3: RateLimit headers in three dialects; whatever cannot be read is as good as absent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.policy.failures.ratelimit_header import QuotaState, parse_ratelimit, ratelimit_wait_s


def current(value: str, policy: str | None = None) -> tuple[QuotaState, ...]:
    headers = {"ratelimit": [value]}
    if policy is not None:
        headers["ratelimit-policy"] = [policy]
    return parse_ratelimit(headers)


def test_current_draft_with_its_policies() -> None:
    states = current(
        '"burst";r=0;t=3, "daily";r=40;t=3600',
        '"burst";q=100;w=60;qu="requests", "daily";q=1000;w=86400;pk=:dGVuYW50:',
    )
    assert states == (
        QuotaState("burst", remaining=0, reset_s=3, quota=100, window_s=60),
        QuotaState("daily", remaining=40, reset_s=3600, quota=1000, window_s=86_400),
    )
    assert ratelimit_wait_s(states) == 3


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ('"default";r=50;t=30', QuotaState("default", 50, 30)),
        ("default;r=50;t=30", QuotaState("default", 50, 30)),
        ('"default"; r=50; t=30', QuotaState("default", 50, 30)),
        ('"default";r=50', QuotaState("default", 50)),
        ('"a\\"b";r=1', QuotaState('a"b', 1)),
        ('"default";r=1;x=?1;y="z";v=1.5;u', QuotaState("default", 1)),
        ('"default";r=1;r=2', QuotaState("default", 2)),  # the last of a repeated parameter counts (RFC 9651)
        (f'"default";r={10**15 - 1};t={10**10 - 1}', QuotaState("default", 10**15 - 1, 10**10 - 1)),
    ],
)
def test_readable(value: str, expected: QuotaState) -> None:
    assert current(value) == (expected,)


@pytest.mark.parametrize(
    "value",
    [
        "",
        " ",
        ",",
        '"default"',  # r is required
        '"default";t=30',
        '"default";r=-1;t=30',
        '"default";r=1;t=-30',
        '"default";r=1.5',
        '"default";r="1"',
        '"default";r=?1',
        '"default";r',
        '"default";R=1',
        f'"default";r={10**15}',
        f'"default";r=1;t={10**10}',
        '"default";r=1e3',
        '"default";r=1_0',
        '"default";r=\u0661',
        '"default;r=1',
        '"default";r=1,',
        '"default";r=1;;t=2',
        '"default";r=1 t=2',
        '"def\x00ault";r=1',
        '"señor";r=1',
        "r=1;t=2;",
        "\x00",
        '"x";r=1;' + "a" * 10_000,
        ",".join(['"x";r=0;t=1'] * 10_000),
        "limit=100, remaining=x, reset=5",
        "limit=100, remaining=-1",
        "remaining=1, remaining=2",
    ],
    ids=lambda value: repr(value[:30]),
)
def test_v3_malformed_is_ignored(value: str) -> None:
    assert current(value) == ()
    assert ratelimit_wait_s(current(value)) is None


def test_v3_one_impossible_item_spoils_only_itself() -> None:
    assert current('"a";r=-1;t=3, "b";r=0;t=9') == (QuotaState("b", 0, 9),)


def test_v3_a_repeated_policy_is_kept_at_its_tighter_reading() -> None:
    for value in ('"a";r=5;t=1, "a";r=0;t=9', '"a";r=0;t=9, "a";r=5;t=1', '"a";r=0;t=9, "a";r=0;t=2'):
        assert current(value) == (QuotaState("a", 0, 9),)


def test_v3_several_lines_are_one_list() -> None:
    assert parse_ratelimit({"ratelimit": ['"a";r=0;t=3', '"b";r=1']}) == (
        QuotaState("a", 0, 3),
        QuotaState("b", 1),
    )


def test_v3_a_malformed_policy_header_takes_nothing_away() -> None:
    assert current('"a";r=0;t=3', "nonsense;;") == (QuotaState("a", 0, 3),)


def test_draft_07() -> None:
    assert current("limit=100, remaining=0, reset=30") == (QuotaState("", 0, 30, quota=100),)


@pytest.mark.parametrize(
    ("limit", "remaining", "reset", "expected"),
    [
        (["100"], ["0"], ["30"], QuotaState("", 0, 30, quota=100)),
        (["100, 100;w=60"], ["7"], ["30"], QuotaState("", 7, 30, quota=100)),
        ([], ["7"], [], QuotaState("", 7)),
        (["x"], ["7"], [], QuotaState("", 7)),
        (["100"], [], ["30"], None),
        (["100"], ["-1"], ["30"], None),
        (["100"], ["0"], ["-30"], None),
        (["100"], ["0"], ["1e9"], None),
        (["100"], ["0"], ["99999999999"], None),
        (["100"], ["0, 5"], ["30"], None),
        (["100"], ["0", "5"], ["30"], None),
        (["100"], ["0"], ["30", "60"], None),
    ],
)
def test_three_older_headers(
    limit: list[str], remaining: list[str], reset: list[str], expected: QuotaState | None
) -> None:
    headers = {"ratelimit-limit": limit, "ratelimit-remaining": remaining, "ratelimit-reset": reset}
    assert parse_ratelimit(headers) == ((expected,) if expected else ())


def test_the_wait_is_that_of_the_slowest_exhausted_limit() -> None:
    states = current('"a";r=0;t=3, "b";r=0;t=60, "c";r=9;t=3600, "d";r=0')
    assert ratelimit_wait_s(states) == 60
    assert ratelimit_wait_s(current('"c";r=9;t=3600')) is None


@given(st.lists(st.text(alphabet='";=,: rtqw019.-?*abc\\\x00é', max_size=80), max_size=3))
def test_no_text_breaks_the_parser(values: list[str]) -> None:
    for name in ("ratelimit", "ratelimit-remaining"):
        for state in parse_ratelimit(
            {name: values, "ratelimit-policy": values, "ratelimit-reset": values[:1]}
        ):
            assert state.remaining >= 0
            assert state.reset_s is None or 0 <= state.reset_s < 10**10
